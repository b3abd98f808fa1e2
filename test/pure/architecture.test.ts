/**
 * Rules on the source that the compiler does not check: which files may import each other, and which files may contain
 * a text.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { policy } from '../../src/domain/policy.js';

const files = ['src', 'rest', 'graphql', 'clients/typescript']
  .flatMap((root) =>
    readdirSync(path.join(packageRoot, root), { recursive: true, encoding: 'utf8' }).map((name) => `${root}/${name}`),
  )
  .filter((file) => /\.tsx?$/.test(file) && !file.startsWith('src/generated/'))
  .sort();

const texts = new Map<string, string>();
function read(file: string): string {
  const text = texts.get(file) ?? readFileSync(path.join(packageRoot, file), 'utf8');
  texts.set(file, text);
  return text;
}

const sourceFiles = new Set(files);

/** Returns the path of an imported file. Imports in src/web/ have no extension. */
const resolve = (file: string, specifier: string): string => {
  const name = path.join(path.dirname(file), specifier).replace(/\.js$/, '');
  return sourceFiles.has(`${name}.tsx`) ? `${name}.tsx` : `${name}.ts`;
};

/** Returns the files of this project that a file imports. */
const importsOf = (file: string): string[] =>
  [...read(file).matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(([, specifier = '']) =>
    resolve(file, specifier),
  );

/** Returns the modules that a file loads before its own code runs, without types and dynamic imports. */
const loadsOf = (file: string): string[] =>
  [...read(file).matchAll(/^import (?!type )(?:[^;]*? from )?['"]([^'"]+)['"];?$/gm)].map((match) => match[1] ?? '');

/**
 * Returns the paths for a list of names. A name without the root rest/, graphql/ or clients/ is below src/.
 * `a/` is a directory, `a` is the file a.ts.
 */
const pathsOf = (names: string): string[] =>
  (names.match(/\S+/g) ?? []).map((name) => (/^(rest|graphql|clients)\//.test(name) ? name : `src/${name}`));

const isIn = (file: string, places: readonly string[]): boolean =>
  places.some((place) => (place.endsWith('/') ? file.startsWith(place) : file === `${place}.ts`));

/**
 * Parts from bottom to top, each with the parts that it may import besides its own directory. No part imports a higher
 * part.
 */
const mayImport: [part: string, from: string][] = [
  ['clients/typescript/', 'generated/'],
  ['core/', 'generated/'],
  ['planner/', 'core/'],
  ['simulator/', 'planner/'],
  [
    'web/',
    'clients/typescript/responses core/text/bytes core/text/failures core/text/requested-files core/text/spans generated/',
  ],
  ['config/', 'core/'],
  ['tape/', 'core/'],
  ['db/', 'core/ config/ generated/'],
  ['events/', 'core/ db/ generated/'],
  ['domain/', 'core/ config/ db/ events/ planner/ generated/'],
  ['restore-area/', 'core/ domain/ tape/ generated/'],
  ['telemetry/', 'core/ config/ db/ domain/'],
  ['gateway/', 'core/ config/ domain/ generated/'],
  ['adoption/', 'core/ db/ domain/ restore-area/ generated/'],
  ['engine/', 'core/ domain/ planner/ restore-area/ tape/ generated/'],
  ['rest/', 'core/ config/ domain/ gateway/'],
  ['graphql/', 'core/ domain/ gateway/ generated/'],
  [
    'cli/',
    `clients/typescript/ core/ config/ db/ events/ domain/ planner/ simulator/ tape/ restore-area/ adoption/ engine/
      gateway/ graphql/ generated/`,
  ],
];

/** Files that connect all parts, and may import every part. */
const wiring = pathsOf('main/ clients/typescript/cli clients/typescript/no-database');

/** Returns `file -> import` for each import of these files that `isAllowed` rejects. */
const findImports = (importing: readonly string[], isAllowed: (imported: string, file: string) => boolean): string[] =>
  importing.flatMap((file) =>
    importsOf(file)
      .filter((imported) => !isAllowed(imported, file))
      .map((imported) => `${file} -> ${imported}`),
  );

test('every source file is in the table of parts, and every name of the table exists', () => {
  const known = [...mayImport.flatMap(([part]) => pathsOf(part)), ...wiring];
  expect(files.filter((file) => !isIn(file, known))).toEqual([]);
  const fileOf = (place: string) => path.join(packageRoot, place.endsWith('/') ? place : `${place}.ts`);
  expect(known.filter((place) => !existsSync(fileOf(place)))).toEqual([]);
});

test.each(mayImport)('%s imports only what the table allows', (part, from) => {
  const own = pathsOf(part);
  const directories = own.filter((place) => place.endsWith('/'));
  const allowed = pathsOf(from);
  const importing = files.filter((file) => isIn(file, own) && !isIn(file, wiring));
  const isOwn = (imported: string, file: string) =>
    directories.some((place) => isIn(file, [place]) && isIn(imported, [place]));
  expect(findImports(importing, (imported, file) => isOwn(imported, file) || isIn(imported, allowed))).toEqual([]);
});

test('only the wiring imports the wiring', () => {
  const others = files.filter((file) => !isIn(file, wiring));
  expect(findImports(others, (imported) => !isIn(imported, wiring))).toEqual([]);
});

/**
 * Subdirectories from bottom to top. Each subdirectory imports only from itself and from earlier subdirectories in the
 * list.
 */
const layers = {
  'src/domain/': [
    'audit',
    'health',
    'access libraries links',
    'notifications',
    'quotas',
    'requests',
    'stage-requests users',
    'catalogue',
    'import disks',
    'catalogue-changes recalls doctor',
    'staging',
    'plan site',
    'watching',
  ],
  'src/engine/': ['jobs', 'drive', 'archive doctor staging notifications'],
  'src/gateway/': ['http', 'auth', 'limits', 'browser'],
  'src/cli/': ['terminal', 'connection', 'requests', 'catalogue'],
  'src/core/': ['text', 'net'],
  'src/db/': ['lists embedded standby', 'backup'],
  'src/restore-area/': ['copies', 'links'],
  'src/main/': ['commands', 'reference'],
  'graphql/': ['schema', 'server', 'subscriptions'],
  'rest/': ['v1', 'tape', 'webdav'],
};

test.each(Object.entries(layers))('each subdirectory of %s imports only from those below it', (root, order) => {
  const nameOf = (file: string) =>
    file.startsWith(root) ? file.slice(root.length).split('/').slice(0, -1)[0] : undefined;
  const rankOf = (name = '') => order.findIndex((level) => level.split(' ').includes(name));
  const layered = files.filter((file) => nameOf(file) !== undefined);
  expect(layered.filter((file) => rankOf(nameOf(file)) < 0)).toEqual([]);
  const isBelow = (imported: string, file: string) =>
    nameOf(imported) === nameOf(file) || rankOf(nameOf(imported)) < rankOf(nameOf(file));
  expect(findImports(layered, isBelow)).toEqual([]);
});

/** Returns all import cycles, each as a path that ends at its first file. */
function findCircles(imports: ReadonlyMap<string, readonly string[]>): string[] {
  const circles: string[] = [];
  const done = new Set<string>();
  const follow = (file: string, way: readonly string[]) => {
    const at = way.indexOf(file);
    if (at >= 0) circles.push([...way.slice(at), file].join(' -> '));
    if (at >= 0 || done.has(file)) return;
    for (const imported of imports.get(file) ?? []) follow(imported, [...way, file]);
    done.add(file);
  };
  for (const file of imports.keys()) follow(file, []);
  return circles;
}

test('imports form no circle', () => {
  expect(findCircles(new Map(files.map((file) => [file, importsOf(file)])))).toEqual([]);
  const planted = { a: ['b', 'c'], b: ['d'], c: [], d: ['b'] };
  expect(findCircles(new Map(Object.entries(planted)))).toEqual(['b -> d -> b']);
});

interface Rule {
  rule: string;
  pattern: RegExp;
  /** The only files that may contain the text. A file without the text must leave the list. */
  only?: string;
  /** Paths to which the rule applies; default: all source files. */
  within?: string;
  /** Example that the pattern must match, for patterns that no file may contain. */
  finds?: string;
}

const rules: Rule[] = [
  {
    rule: 'the text of an SQL statement is an argument of no call',
    pattern: /\.(query|stream)(<[^(]*>)?\(\s*['"`](?!LISTEN )/,
    only: 'db/',
  },
  {
    rule: 'SQL is passed as a value, not as a string',
    pattern: /\b(sql|statement|condition): string\b/,
    only: 'db/',
  },
  {
    rule: 'a sum of sizes is not narrowed to 64 bits',
    pattern: /\bsum\([^()]*\)( OVER \([^()]*\))?(, 0\))?::bigint/,
    finds: 'sql`SELECT coalesce(sum(f.size), 0)::bigint`',
  },
  {
    rule: 'row locks and the keys of advisory locks are in src/db/locks.ts',
    pattern: /FOR (NO KEY )?(UPDATE|SHARE)\b|pg_(try_)?advisory/,
    only: 'db/embedded/embedded db/locks db/migrate main/demo',
  },
  {
    rule: 'only operations open transactions',
    pattern: /(?<![.\w])(run)?[tT]ransaction\(/,
    only: 'db/ domain/ adoption/',
  },
  {
    rule: 'an operation reaches no file, process or connection itself',
    pattern: /from 'node:(fs|fs\/promises|child_process|net)'/,
    within: 'domain/',
    finds: "from 'node:fs'",
  },
  {
    rule: 'only the endpoints know HTTP',
    pattern: /from 'express'/,
    only: 'gateway/ rest/ graphql/ main/app',
  },
  {
    rule: 'only graphql/ knows GraphQL',
    pattern: /from '(graphql|graphql-yoga|@pothos\/[a-z-]+)'/,
    only: 'graphql/',
  },
  {
    rule: 'only commands know their parser',
    pattern: /from 'commander'/,
    only: 'cli/ main/',
  },
  {
    rule: 'the environment is read in one file',
    pattern: /process\.env\b/,
    only: 'core/environment',
  },
  {
    rule: 'commands reach the streams and signals of the process in few files',
    pattern:
      /\bprocess\.(stdin|stdout|stderr|exit|exitCode|on|once)\b|= process;|import \{[^}]*\benvironment\b[^}]*\} from '(\.\.\/)+config/,
    only: 'cli/terminal/io',
    within: 'cli/',
  },
  {
    rule: 'only these commands need the database; all others work through the URL of a gateway',
    pattern: /\b(readEnvironment|withMigrated|openContext|openRuntime)\(/,
    only: `cli/connection/runtime cli/adopt cli/catalogue/archive cli/backup cli/connection/gateway-client
      cli/connection/context cli/catalogue/scan cli/takeover cli/connection/where`,
    within: 'cli/',
  },
  {
    // Node.js may garbage-collect such a timeout before it fires
    rule: 'a timeout among other signals is that of src/core/deadline.ts',
    pattern: /AbortSignal\.any\([^;]*AbortSignal\.timeout/,
    finds: 'AbortSignal.any([\n  stop,\n  AbortSignal.timeout(1),\n])',
  },
  {
    rule: 'a file becomes RESTORED in one place',
    pattern: /from: 'RESTORING',\s+to: 'RESTORED'/,
    only: 'core/stages domain/recalls/ends',
  },
  {
    rule: 'no error of the compiler is silenced, and no rule of the linter without a reason',
    pattern: /@ts-(ignore|nocheck|expect-error)\b|biome-ignore [^\n:]*(?::\s*)?\n/,
    finds: '// biome-ignore lint/x\n',
  },
];

test.each(rules.map((row) => [row.rule, row] as const))('%s', (_rule, { pattern, only = '', within, finds }) => {
  if (finds) expect(pattern.test(finds)).toBe(true);
  const allowed = pathsOf(only);
  const found = files.filter((file) => (!within || isIn(file, pathsOf(within))) && pattern.test(read(file)));
  expect(found.filter((file) => !isIn(file, allowed))).toEqual([]);
  expect(allowed.filter((place) => !place.endsWith('/') && !found.includes(`${place}.ts`))).toEqual([]);
});

test('src/ has directories only', () => {
  expect(files.filter((file) => /^src\/[^/]+$/.test(file))).toEqual([]);
});

test('every source file begins with a comment on its purpose', () => {
  expect(files.filter((file) => !/^(#!.*\n)?(import [^;]*;\n|\n)*\/\*\*/.test(read(file)))).toEqual([]);
});

/** Function names that several files may use, each for a function of its own. */
const sharedNames = ['filterOf', 'nameOf'];

test('a function name means one thing in operations and in the engine', () => {
  const places = new Map<string, string[]>();
  for (const file of files.filter((name) =>
    isIn(name, ['src/domain/', 'src/adoption/', 'src/engine/', 'src/restore-area/']),
  )) {
    for (const [, name = ''] of read(file).matchAll(/^(?:export )?(?:async )?function\*? (\w+)/gm)) {
      places.set(name, [...(places.get(name) ?? []), file]);
    }
  }
  expect([...places].filter(([name, found]) => found.length > 1 && !sharedNames.includes(name))).toEqual([]);
});

/** Returns the files and packages that some files load directly and indirectly. */
function loadAll(entries: readonly string[]): { loaded: Set<string>; packages: string[] } {
  const packages = new Set<string>();
  const loaded = new Set(entries);
  for (const file of loaded) {
    for (const specifier of loadsOf(file)) {
      if (specifier.startsWith('.')) loaded.add(resolve(file, specifier));
      else if (!specifier.startsWith('node:')) packages.add(specifier);
    }
  }
  return { loaded, packages: [...packages] };
}

test('the command line loads a command only when it is named, and a command loads a package only when it runs', () => {
  const { loaded, packages } = loadAll(['src/main/cli.ts']);
  expect(packages).toEqual(['commander']);
  expect(loaded).toContain('src/main/table.ts');
  for (const name of ['cli/quota', 'cli/connection/gateway-client', 'config/config'])
    expect(loaded).not.toContain(`src/${name}.ts`);
  const commands = importsOf('src/main/table.ts');
  expect(commands).toContain('src/cli/quota.ts');
  expect(loadAll(commands).packages).toEqual(['commander']);
});

/** Constants, and operations without a check of their own: their callers check the caller's rights first. */
const unchecked = new Set(
  `cancelStageRequestFiles checkPattern commonFileFields countAtPrimaryPath countUnresolved countReleased
  countRequestsOf createStageRequest eventTypes findDownloadable findHostsOf findPathProblem findServed
  getRequestWithPaths keyOf listDirectory parseRequestId readAllowed readUnresolved readStageRequest
  readClaimed readComparisons readDriveSecondsOf readEntry readFilesBelow readRequestFiles readLocalities readListed readExamined readMeasurements
  readDisks readDriveUsers readDefaultQuota readMembers readMountpoints readQuotaHistory readQuotaUsers readQuotasOfCaller readRequestsOf readRequestsById readSuspensionsOf readTries readUsed readUsedOf readLink useLink readRequestEvents countRequestEvents
  readVolumes readWaiting recordMissingFiles releaseInAllStageRequests releaseStageRequestFiles removeStageRequest siteParts streamRequestPaths withSlot describeUnchecked waitingReasons
  MAX_COUNTED MAX_QUOTA_USERS MAX_WATCHED countDrivesIn countFilesOf countFilesOnDisks countFilesOnVolumes countLegacyUses countRequestsWithFiles countSuspensions countTokens
  countUnresolvedPaths countVolumesIn countWaitingMail countWebhookMessages countWebhooks parseDirectory FINISHED readEnds readDrivesIn readFilesByPath
  readFilesOnDisks readFilesOnVolumes readMember readPathRule readRequestsWithFiles readSuspension readToken readVolumesIn readWebhook
  readWebhookMessage isKeyOf MAX_SORTED matchPaths readDirectorySizes suggestNames`.match(/\w+/g),
);

/** Returns the names, except types, that rest/ and graphql/ import from domain operations. */
function calledOperations(): string[] {
  const names = files
    .filter((file) => isIn(file, ['rest/', 'graphql/']))
    .flatMap((file) => [
      ...read(file).matchAll(/^import \{([^}]*)\} from '[^']*\/src\/domain\/(?!policy|context)[^']*';/gm),
    ])
    .flatMap(([, list = '']) => list.split(',').map((part) => part.trim()));
  return names.filter((name) => name !== '' && !name.startsWith('type '));
}

test('each operation that a protocol calls is in the policy, or reads a part of what the caller may see already', () => {
  const called = calledOperations();
  expect(called.filter((name) => !(name in policy) && !unchecked.has(name))).toEqual([]);
  expect([...unchecked].filter((name) => !called.includes(name))).toEqual([]);
});

test('each operation of the policy asks the policy under its own name', () => {
  const operations = files.filter((file) => file.startsWith('src/domain/')).map(read);
  const asking = '(allow|allowManage|checkMember|lockOwnRequest|audited|deedOf)\\(|const (?:deed|action) = ';
  const asks = (name: string) => new RegExp(`(${asking})[^;]*'${name}'`);
  const silent = Object.keys(policy).filter((name) => !operations.some((text) => asks(name).test(text)));
  expect(silent).toEqual([]);
});
