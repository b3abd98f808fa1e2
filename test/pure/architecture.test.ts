/** Who may import whom, and other rules that the compiler does not hold. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ts from 'build-typescript';
import { expect, test } from 'vitest';
import { lockOrder, transactionLocks } from '../../src/database/lock-order.js';
import { policy } from '../../src/operations/policy.js';
import { packageRoot } from '../../src/package-root.js';

const files = ['src', 'rest', 'graphql']
  .flatMap((folder) =>
    readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' }).map(
      (name) => `${folder}/${name}`,
    ),
  )
  .filter((file) => /\.tsx?$/.test(file) && !file.startsWith('src/generated/'))
  .sort();

const texts = new Map<string, string>();
function read(file: string): string {
  const text = texts.get(file) ?? readFileSync(path.join(packageRoot, file), 'utf8');
  texts.set(file, text);
  return text;
}

/** What a file imports of this project, from its top folder. */
function importsOf(file: string): string[] {
  const specifiers = [...read(file).matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map((match) => match[1] ?? '');
  return specifiers.map((specifier) => resolve(file, specifier));
}

const resolve = (file: string, specifier: string): string =>
  path.join(path.dirname(file), specifier).replace(/\.js$/, '.ts');

/** What a file loads before its own code runs: neither types nor what is imported when it is needed. */
const loadsOf = (file: string): string[] =>
  [...read(file).matchAll(/^import (?!type )(?:[^;]*? from )?['"]([^'"]+)['"];?$/gm)].map((match) => match[1] ?? '');

/** `a/` is a folder and all below it; any other entry is a file. */
const isIn = (file: string, places: readonly string[]): boolean =>
  places.some((place) => (place.endsWith('/') ? file.startsWith(place) : file === `${place}.ts`));

/** Words of the domain: values, errors, times and exact numbers. */
const words = [
  ...[
    'src/audit',
    'src/caller',
    'src/errors',
    'src/plural',
    'src/request-ids',
    'src/signals',
    'src/stages',
    'src/time',
    'src/json',
    'src/remembered',
    'src/traces',
  ],
];
const database = ['src/database/', 'src/generated/'];

/** Beside its own folder. */
const mayImport: { part: string[]; from: string[] }[] = [
  {
    part: [
      'src/adler32',
      'src/blocks',
      'src/bytes',
      'src/caller',
      'src/config-limits',
      'src/database-url',
      'src/errors',
      'src/time',
      'src/json-scan',
      'src/json-thread',
      'src/package-root',
      'src/plural',
      'src/secrets',
      'src/cancellable',
      'src/deadline',
      'src/remembered',
      'src/request-ids',
      'src/signals',
      'src/source-positions',
      'src/traces',
    ],
    from: [],
  },
  {
    part: ['src/config', 'src/config-browsers', 'src/config-door', 'src/config-reader', 'src/config-telemetry'],
    from: [
      ...['src/config-access', 'src/config-browsers', 'src/config-door', 'src/config-limits', 'src/config-reader'],
      ...[
        'src/config-telemetry',
        'src/database-url',
        'src/environment',
        'src/secrets',
        'src/tls-files',
        'src/webhook-targets',
      ],
    ],
  },
  { part: ['src/tls-files'], from: ['src/errors'] },
  { part: ['src/webhook-targets'], from: ['src/address-ranges'] },
  { part: ['src/environment'], from: ['src/secrets'] },
  { part: ['src/crash'], from: ['src/environment', 'src/source-positions'] },
  { part: ['src/json'], from: ['src/json-scan'] },
  { part: ['src/mail'], from: ['src/generated/', 'src/bytes'] },
  { part: ['src/http-body'], from: ['src/errors', 'src/json', 'src/json-scan', 'src/json-thread'] },
  { part: ['src/encodings'], from: ['src/remembered'] },
  { part: ['src/http-target'], from: ['src/errors', 'src/http-body', 'src/remembered'] },
  {
    part: ['src/database/'],
    from: ['src/generated/', 'src/database-url', 'src/errors', 'src/time', 'src/package-root'],
  },
  {
    part: ['src/events', 'src/event-queue', 'src/event-numbers', 'src/event-table', 'src/event-writes'],
    from: [
      ...[...database, 'src/errors', 'src/event-queue', 'src/event-numbers', 'src/event-table', 'src/signals'],
      'src/time',
    ],
  },
  { part: ['src/stages'], from: [...database, 'src/events'] },
  { part: ['src/audit', 'src/refusals'], from: [...database, 'src/audit', 'src/caller', 'src/errors'] },
  { part: ['src/context'], from: ['src/caller', 'src/database/', 'src/config', 'src/events', 'src/refusals'] },
  { part: ['src/tape/'], from: ['src/adler32', 'src/blocks', 'src/errors'] },
  { part: ['src/planner/'], from: ['src/time'] },
  {
    part: ['src/operations/'],
    from: [
      ...words,
      ...database,
      'src/planner/',
      'src/config',
      'src/context',
      'src/events',
      'src/event-numbers',
      'src/event-table',
      'src/event-writes',
      'src/mail',
      'src/webhook-targets',
    ],
  },
  {
    part: ['src/engine/'],
    from: [
      'src/package-root',
      'src/webhook-targets',
      'src/operations/',
      'src/planner/',
      'src/tape/',
      'src/adler32',
      'src/audit',
      'src/blocks',
      'src/context',
      'src/deadline',
      'src/errors',
      'src/mail',
      'src/secrets',
      'src/signals',
      'src/time',
      'src/traces',
    ],
  },
  {
    part: ['src/metrics/'],
    from: [...['src/operations/', 'src/database/', 'src/context', 'src/errors', 'src/package-root', 'src/signals']],
  },
  {
    part: ['src/config-access', 'src/config-legacy', 'src/config-ways', 'src/address-ranges'],
    from: ['src/caller', 'src/errors', 'src/address-ranges', 'src/config-legacy', 'src/config-ways', 'src/remembered'],
  },
  {
    part: ['src/access/'],
    from: [
      ...words,
      'src/operations/',
      'src/context',
      'src/config',
      'src/config-access',
      'src/config-browsers',
      'src/config-legacy',
      'src/config-ways',
      'src/address-ranges',
      'src/config-limits',
      'src/tls-files',
      'src/http-body',
      'src/http-target',
      'src/generated/',
    ],
  },
  { part: ['src/simulator/'], from: ['src/planner/'] },
  { part: ['src/web/'], from: ['src/generated/'] },
  {
    part: ['rest/'],
    from: [
      ...words,
      'src/operations/',
      'src/config',
      'src/context',
      'src/cancellable',
      'src/encodings',
      'src/http-body',
      'src/package-root',
    ],
  },
  {
    part: ['graphql/'],
    from: [
      ...words,
      'src/operations/',
      'src/context',
      'src/cancellable',
      'src/access/',
      'src/encodings',
      'src/http-body',
      'src/generated/',
      'src/package-root',
    ],
  },
];

/** They put the parts together, and may import whatever they need. */
const wiring = [
  'src/tapegate',
  'src/cli',
  'src/app',
  'src/door',
  'src/dashboard',
  'src/health',
  'src/import-endpoint',
  'src/listen',
  'src/open-traces',
  'src/runtime',
  'src/demo',
  'src/engine-process',
  'src/commands/',
];

test('every source file has its place in the table', () => {
  const known = [...mayImport.flatMap(({ part }) => part), ...wiring];
  expect(files.filter((file) => !isIn(file, known))).toEqual([]);
  expect(
    known.filter((place) => !existsSync(path.join(packageRoot, place.endsWith('/') ? place : `${place}.ts`))),
  ).toEqual([]);
});

test.each(mayImport)('$part import only what they may', ({ part, from }) => {
  const broken = files
    .filter((file) => isIn(file, part))
    .flatMap((file) => {
      const own = part.filter((place) => place.endsWith('/') && isIn(file, [place]));
      const allowed = [...own, ...from];
      return importsOf(file)
        .filter((imported) => !isIn(imported, allowed))
        .map((imported) => `${file} -> ${imported}`);
    });
  expect(broken).toEqual([]);
});

test('the table sees what files import', () => {
  expect(importsOf('src/app.ts')).toEqual(
    expect.arrayContaining(['rest/router.ts', 'graphql/server.ts', 'src/context.ts']),
  );
  expect(importsOf('src/tape/index.ts')).toContain('src/tape/directory.ts');
});

test('nobody imports the wiring but the wiring', () => {
  const broken = files
    .filter((file) => !isIn(file, wiring))
    .flatMap((file) =>
      importsOf(file)
        .filter((imported) => isIn(imported, wiring))
        .map((imported) => `${file} -> ${imported}`),
    );
  expect(broken).toEqual([]);
});

/** The rooms of src/operations/ and src/engine/, from the bottom up: each imports only from those before it, or its own. */
const rooms = {
  'src/operations/': [
    ['audit'],
    ['access', 'libraries', 'links', 'webhooks'],
    ['quotas'],
    ['mail'],
    ['requests'],
    ['bulks'],
    ['users'],
    ['catalogue'],
    ['disks'],
    ['recalls', 'doctor', 'staging'],
    ['plan', 'site', 'adoption'],
  ],
  'src/engine/': [['disk'], ['links'], ['drive'], ['archive', 'doctor', 'staging', 'webhooks', 'adoption']],
};

test('a room imports only from rooms below it', () => {
  const broken: string[] = [];
  for (const [folder, order] of Object.entries(rooms)) {
    const roomOf = (file: string) => (file.startsWith(folder) ? file.slice(folder.length).split('/')[0] : undefined);
    const rank = (room: string | undefined) => order.findIndex((level) => level.includes(room ?? ''));
    for (const file of files.filter((name) => name.startsWith(folder) && name.slice(folder.length).includes('/'))) {
      const own = roomOf(file);
      if (rank(own) < 0) broken.push(`${file} is in no known room`);
      for (const imported of importsOf(file)) {
        const other = roomOf(imported);
        if (rank(other) >= 0 && other !== own && rank(other) >= rank(own)) broken.push(`${file} -> ${imported}`);
      }
    }
  }
  expect(broken).toEqual([]);
});

/** The files of each circle of imports, as paths that come back to their first file. */
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

test('no import goes in a circle', () => {
  expect(findCircles(new Map(files.map((file) => [file, importsOf(file)])))).toEqual([]);
  const planted = new Map([
    ['a', ['b', 'c']],
    ['b', ['d']],
    ['c', []],
    ['d', ['b']],
  ]);
  expect(findCircles(planted)).toEqual(['b -> d -> b']);
});

const MAX_FUNCTION_LINES = 60;

/** Functions that are longer for a reason: `file function: why`. */
const longFunctions: string[] = [];

/** Of a file's functions and methods: their names, and how many lines they take. */
function functionsOf(file: string, text: string): { name: string; lines: number }[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const found: { name: string; lines: number }[] = [];
  const visit = (node: ts.Node) => {
    const isNamed = ts.isFunctionDeclaration(node) || ts.isMethodDeclaration(node);
    if (isNamed || ts.isArrowFunction(node) || ts.isFunctionExpression(node) || ts.isConstructorDeclaration(node)) {
      const [start, end] = [node.getStart(), node.getEnd()].map((at) => source.getLineAndCharacterOfPosition(at).line);
      const owner = isNamed ? node.name : ts.isVariableDeclaration(node.parent) ? node.parent.name : undefined;
      found.push({ name: owner?.getText() ?? 'a function', lines: (end ?? 0) - (start ?? 0) + 1 });
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

/** Whether so many lines come without one that begins with a closing bracket, as the last one of each function at the top does. */
function hasLongPart(text: string): boolean {
  let since = 0;
  return text.split('\n').some((line) => {
    since = /^[}\])]/.test(line) ? 0 : since + 1;
    return since >= MAX_FUNCTION_LINES;
  });
}

test('no function is longer than 60 lines, but for those that say why', () => {
  const long = files.flatMap((file) =>
    (hasLongPart(read(file)) ? functionsOf(file, read(file)) : [])
      .filter(({ lines }) => lines > MAX_FUNCTION_LINES)
      .map(({ name, lines }) => `${file} ${name}: ${lines}`),
  );
  expect(long.filter((found) => !longFunctions.some((known) => found.startsWith(known.split(':')[0] ?? '')))).toEqual(
    [],
  );
  const planted = `class A { long() {${'\n'.repeat(60)}} }\nconst short = () => {\n};`;
  expect(functionsOf('a.ts', planted)).toEqual([
    { name: 'long', lines: 61 },
    { name: 'short', lines: 2 },
  ]);
});

/** Where SQL of a connection's own, before there is a pool, may be text: the database's own room. */
const isDatabaseRoom = (file: string) => file.startsWith('src/database/');

test('SQL is a value: no text of a statement is handed to a function', () => {
  const textual = /\.(query|stream)(<[^(]*>)?\(\s*['"`](?!LISTEN )/;
  const hits = files.filter((file) => !isDatabaseRoom(file) && textual.test(read(file)));
  expect(hits).toEqual([]);
  expect(textual.test('await pool.query<{ id: number }>(\n  `SELECT 1`)')).toBe(true);
  const carried = /\b(sql|statement|condition): string\b/;
  expect(files.filter((file) => !isDatabaseRoom(file) && carried.test(read(file)))).toEqual([]);
});

test('sums of sizes stay as wide as they come: one that is made 64 bits wide fails where the files are large', () => {
  const narrowed = /\bsum\([^()]*\)( OVER \([^()]*\))?(, 0\))?::bigint/;
  expect(files.filter((file) => narrowed.test(read(file)))).toEqual([]);
  expect(narrowed.test('sql`SELECT coalesce(sum(f.size), 0)::bigint`')).toBe(true);
});

test('rows are locked by what src/database/locks.ts has, and advisory locks have their keys there', () => {
  const locks = /FOR (NO KEY )?(UPDATE|SHARE)\b|pg_(try_)?advisory/;
  const known = ['src/database/embedded.ts', 'src/database/locks.ts', 'src/database/migrate.ts', 'src/demo.ts'];
  expect(files.filter((file) => locks.test(read(file)))).toEqual(known);
});

test('each transaction has a line in the table of locks, and each line its transaction', () => {
  const names = files.flatMap((file) =>
    [...read(file).matchAll(/\b(?:transaction|runTransaction)\(\s*[\w.]+,\s*'(\w+)'/g)].map((match) => match[1] ?? ''),
  );
  expect([...new Set(names)].sort()).toEqual(Object.keys(transactionLocks).sort());
});

test('the table of locks in src/README.md is that of src/database/lock-order.ts', () => {
  const rows = [...read('src/README.md').matchAll(/^\| `(\w+)` \|((?: [× ] \|)+)$/gm)].map(
    ([, name = '', cells = '']) => {
      const marks = cells.split('|').slice(0, -1);
      return [name, lockOrder.filter((_, index) => marks[index]?.includes('×'))];
    },
  );
  expect(Object.fromEntries(rows)).toEqual(transactionLocks);
});

/** Calls that open a transaction, and what they are given of the exported function around them that may be a call of its own. */
function foreignCallsOf(file: string, text: string, functionTypes: ReadonlySet<string>): string[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const found: string[] = [];
  const isCallable = (type: ts.TypeNode | undefined): boolean => {
    if (!type) return false;
    const names = type.getText().match(/\w+/g) ?? [];
    return type.getText().includes('=>') || names.some((name) => functionTypes.has(name));
  };
  /** Of what is taken apart, only the parts that may be calls. */
  const callablesIn = ({ name, type }: ts.ParameterDeclaration): string[] => {
    if (!isCallable(type)) return [];
    if (ts.isIdentifier(name)) return [name.text];
    const members = type && ts.isTypeLiteralNode(type) ? type.members.filter(ts.isPropertySignature) : [];
    const typeOf = (part: string) => members.find((member) => member.name.getText() === part)?.type;
    return name.elements.flatMap((element) => {
      if (!ts.isBindingElement(element)) return [];
      const part = typeOf((element.propertyName ?? element.name).getText());
      return part && !isCallable(part) ? [] : [element.name.getText()];
    });
  };
  const look = (node: ts.Node, given: readonly string[]) => {
    if (ts.isIdentifier(node) && given.includes(node.text)) found.push(`${file} ${node.text}`);
    ts.forEachChild(node, (child) => look(child, given));
  };
  const visit = (node: ts.Node, given: readonly string[]) => {
    if (ts.isCallExpression(node) && /^(transaction|runTransaction)$/.test(node.expression.getText())) {
      for (const argument of node.arguments) look(argument, given);
    }
    const isExported =
      ts.isFunctionDeclaration(node) && node.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword);
    const own = isExported ? node.parameters.flatMap(callablesIn) : [];
    ts.forEachChild(node, (child) => visit(child, [...given, ...own]));
  };
  visit(source, []);
  return found;
}

test('no disk or tape is reached in a transaction', () => {
  const rooms = ['src/operations/', 'src/database/'];
  const opens = /(?<![.\w])(run)?[tT]ransaction\(/;
  expect(files.filter((file) => !isIn(file, rooms) && opens.test(read(file)))).toEqual([]);
  const system = /from 'node:(fs|fs\/promises|child_process|net)'/;
  expect(files.filter((file) => file.startsWith('src/operations/') && system.test(read(file)))).toEqual([]);
  // so only what an operation is given can reach one
  const functionTypes = new Set(
    files.flatMap((file) =>
      [...read(file).matchAll(/^(?:export )?type (\w+)(?:<[^=]*>)? = [^;]*?=>/gm)].map(([, name = '']) => name),
    ),
  );
  expect(functionTypes).toContain('MeasureDisks');
  const operations = files.filter((file) => file.startsWith('src/operations/'));
  expect(
    operations
      .filter((file) => opens.test(read(file)))
      .flatMap((file) => foreignCallsOf(file, read(file), functionTypes)),
  ).toEqual([]);
  const planted = `export async function go(ctx: Context, { n, measure }: { n: number; measure: MeasureDisks }, is: () => boolean) {
    await measure([]);
    await transaction(ctx.db.pool, 'go', async (tx) => { await reserve(tx, n, measure); return is(); });
  }`;
  expect(foreignCallsOf('a.ts', planted, functionTypes)).toEqual(['a.ts measure', 'a.ts is']);
});

/** Functions that are each the usual presenter or choice of their own file, and mean the same wherever they stand. */
const sharedNames = ['filterOf', 'nameOf'];

test('a function name means one thing in operations and in the engine', () => {
  const places = new Map<string, string[]>();
  for (const file of files.filter((name) => isIn(name, ['src/operations/', 'src/engine/']))) {
    for (const [, name = ''] of read(file).matchAll(/^(?:export )?(?:async )?function\*? (\w+)/gm)) {
      places.set(name, [...(places.get(name) ?? []), file]);
    }
  }
  const twice = [...places].filter(([name, found]) => found.length > 1 && !sharedNames.includes(name));
  expect(twice).toEqual([]);
});

test('only the outermost files know HTTP, and only rest/ and graphql/ know their protocol', () => {
  const uses = (pattern: RegExp) => files.filter((file) => pattern.test(read(file)));
  expect(
    uses(/from 'express'/).filter(
      (file) =>
        !isIn(file, [
          'src/access/',
          'rest/',
          'graphql/',
          'src/app',
          'src/dashboard',
          'src/door',
          'src/encodings',
          'src/health',
          'src/http-body',
          'src/listen',
        ]),
    ),
  ).toEqual([]);
  expect(uses(/from '(graphql|graphql-yoga|@pothos\/[a-z-]+)'/).filter((file) => !isIn(file, ['graphql/']))).toEqual(
    [],
  );
  expect(uses(/from 'commander'/).filter((file) => !isIn(file, ['src/cli', 'src/commands/']))).toEqual([]);
});

/** The files and packages that are loaded with some files. */
function loadAll(entries: readonly string[]): { loaded: Set<string>; packages: Set<string> } {
  const packages = new Set<string>();
  const loaded = new Set(entries);
  for (const file of loaded) {
    for (const specifier of loadsOf(file)) {
      if (specifier.startsWith('.')) loaded.add(resolve(file, specifier));
      else if (!specifier.startsWith('node:')) packages.add(specifier);
    }
  }
  return { loaded, packages };
}

test('the command line loads no command before it is named, and a command loads no package before it runs', () => {
  const { loaded, packages } = loadAll(['src/cli.ts']);
  expect([...packages]).toEqual(['commander']);
  expect(loaded).toContain('src/commands/table.ts');
  for (const file of ['src/commands/quota.ts', 'src/commands/client.ts', 'src/config.ts']) {
    expect(loaded).not.toContain(file);
  }
  const commands = importsOf('src/commands/table.ts');
  expect(commands).toContain('src/commands/quota.ts');
  expect([...loadAll(commands).packages]).toEqual(['commander']);
});

test('the environment is read in src/environment.ts only', () => {
  expect(files.filter((file) => /process\.env\b/.test(read(file)))).toEqual(['src/environment.ts']);
});

test('commands reach the streams and signals of the process in io.ts only, but for those that stay', () => {
  const stays = ['io', 'program', 'processes', 'held-signals', 'engine-processes'].map(
    (name) => `src/commands/${name}.ts`,
  );
  const reached =
    /\bprocess\.(stdin|stdout|stderr|exit|exitCode|on|once)\b|= process;|import \{[^}]*\benvironment\b[^}]*\} from '\.\.\/config/;
  const commands = files.filter((file) => file.startsWith('src/commands/') && reached.test(read(file)));
  expect(commands.filter((file) => !stays.includes(file))).toEqual([]);
  expect(reached.test('const { stdin } = process;')).toBe(true);
});

test('a bound on time among other signals is that of src/deadline.ts: of Node.js itself it may never come', () => {
  const collected = /AbortSignal\.any\([^;]*AbortSignal\.timeout/;
  expect(files.filter((file) => collected.test(read(file)))).toEqual([]);
  expect(collected.test('AbortSignal.any([\n  stop,\n  AbortSignal.timeout(1),\n])')).toBe(true);
});

test('a file goes to RESTORED in one place', () => {
  const hits = files.flatMap((file) => [...read(file).matchAll(/from: 'RESTORING', to: 'RESTORED'/g)].map(() => file));
  expect(hits.filter((file) => file !== 'src/stages.ts')).toHaveLength(1);
});

test('every source file says what it is for before its first line of code', () => {
  expect(files.filter((file) => !/^(#!.*\n)?(import [^;]*;\n|\n)*\/\*\*/.test(read(file)))).toEqual([]);
});

test('no source file is longer than 500 lines', () => {
  const long = files
    .map((file) => ({ file, lines: read(file).split('\n').length - 1 }))
    .filter(({ lines }) => lines > 500);
  expect(long).toEqual([]);
});

test('no error of the compiler is silenced, and no rule of the linter without a reason', () => {
  const broken = files.filter((file) => /@ts-(ignore|nocheck|expect-error)\b/.test(read(file)));
  const unexplained = files.filter((file) => /biome-ignore [^\n:]*(?::\s*)?\n/.test(read(file)));
  expect({ broken, unexplained }).toEqual({ broken: [], unexplained: [] });
});

/**
 * Read for what a caller sees already: figures of requests, files and quotas by their ids, pages by their keys, and formats; or asked
 * for as another operation, as `getRequestWithPaths` is.
 */
const partsOfSeen = [
  'ChosenRow',
  'cancelInBulk',
  'canChooseOfFile',
  'canChooseOfHold',
  'canChooseOfRequest',
  'countAtPrimaryPlace',
  'countAwaited',
  'countReleased',
  'countRequestsOf',
  'createBulk',
  'readLookedAt',
  'getChosenOfRequest',
  'getDisk',
  'getLibrary',
  'getVolume',
  'findHostsOf',
  'findServed',
  'getRequestWithPaths',
  'isListed',
  'keyOf',
  'listFolder',
  'findPathProblem',
  'noteRefusal',
  'parseRequestId',
  'readAllowed',
  'readAwaited',
  'readBulk',
  'readChosenHolds',
  'readClaimed',
  'readDriveSecondsOf',
  'readEntry',
  'readFilesBelow',
  'showFolder',
  'readHolds',
  'readLocalities',
  'readMeasurements',
  'readMembers',
  'readMountpoints',
  'readPageKeys',
  'readQuotaHistory',
  'readQuotasOfCaller',
  'readSuspensionsOf',
  'readTries',
  'readUsed',
  'readUsedOf',
  'readWaiting',
  'releaseInAll',
  'releaseInBulk',
  'removeBulk',
  'streamRequestPaths',
  'tellUnseen',
];

/** What the protocols import of the operations, but for types and constants. */
function calledOperations(): Set<string> {
  const names = new Set<string>();
  for (const file of files.filter((name) => isIn(name, ['rest/', 'graphql/']))) {
    for (const [, list = ''] of read(file).matchAll(
      /^import \{([^}]*)\} from '[^']*\/src\/operations\/(?!policy)[^']*';/gm,
    )) {
      for (const name of list.split(',').map((part) => part.trim())) {
        if (name !== '' && !name.startsWith('type ')) names.add(name);
      }
    }
  }
  return names;
}

test('what a protocol calls is in the policy, or is a part of what its caller sees already', () => {
  const known = [...Object.keys(policy), ...partsOfSeen];
  const unknown = [...calledOperations()].filter(
    (name) => !known.includes(name) && !/^(waitingReasons|siteParts|eventTypes|keptKinds)$/.test(name),
  );
  expect(unknown).toEqual([]);
  expect(calledOperations()).toContain('createRequest');
});

test('every operation of the policy asks it, under its own name', () => {
  const text = files.filter((file) => file.startsWith('src/operations/')).map(read);
  const asks = (name: string) => new RegExp(`(allow|allowManage|checkMember|lockOwnRequest)\\([^;]*'${name}'`);
  const silent = Object.keys(policy).filter((name) => !text.some((each) => asks(name).test(each)));
  expect(silent).toEqual([]);
});

test('only commands that run where the database is need it: all others do with the URL of a gateway', () => {
  const needing = files.filter(
    (file) => file.startsWith('src/commands/') && /\b(readEnvironment|withContext|openRuntime)\(/.test(read(file)),
  );
  const names = needing.map((file) => file.replace('src/commands/', ''));
  const here = [
    'adopt.ts',
    'archive.ts',
    'backup.ts',
    'context.ts',
    'migrate.ts',
    'processes.ts',
    'scan.ts',
    'where.ts',
  ];
  expect(names.sort()).toEqual(here);
});
