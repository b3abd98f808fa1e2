/** Who may import whom, and other rules that the compiler does not hold. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/package-root.js';

const files = ['src', 'rest', 'graphql']
  .flatMap((folder) =>
    readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' }).map(
      (name) => `${folder}/${name}`,
    ),
  )
  .filter((file) => file.endsWith('.ts') && !file.startsWith('src/generated/'))
  .sort();

const read = (file: string): string => readFileSync(path.join(packageRoot, file), 'utf8');

/** What a file imports of this project, from its top folder. */
function importsOf(file: string): string[] {
  const specifiers = [...read(file).matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map((match) => match[1] ?? '');
  return specifiers.map((specifier) => path.join(path.dirname(file), specifier).replace(/\.js$/, '.ts'));
}

/** `a/` is a folder and all below it; any other entry is a file. */
const isIn = (file: string, places: readonly string[]): boolean =>
  places.some((place) => (place.endsWith('/') ? file.startsWith(place) : file === `${place}.ts`));

/** Words of the domain: values, errors, times and exact numbers. */
const words = ['src/errors', 'src/stages', 'src/time', 'src/json'];
const database = ['src/database/', 'src/generated/'];

/** Beside its own folder. */
const mayImport: { part: string[]; from: string[] }[] = [
  { part: ['src/config', 'src/errors', 'src/time', 'src/json', 'src/package-root', 'src/cancellable'], from: [] },
  { part: ['src/mail'], from: ['src/generated/'] },
  { part: ['src/http-body'], from: ['src/errors', 'src/json'] },
  { part: ['src/database/'], from: ['src/generated/', 'src/errors', 'src/time', 'src/package-root'] },
  { part: ['src/events', 'src/event-queue'], from: [...database, 'src/events', 'src/event-queue'] },
  { part: ['src/stages'], from: [...database, 'src/events'] },
  { part: ['src/context'], from: ['src/database/', 'src/config', 'src/events'] },
  { part: ['src/tape/'], from: ['src/errors'] },
  { part: ['src/planner/'], from: ['src/time'] },
  {
    part: ['src/operations/'],
    from: [...words, ...database, 'src/planner/', 'src/config', 'src/context', 'src/events', 'src/mail'],
  },
  {
    part: ['src/engine/'],
    from: ['src/operations/', 'src/planner/', 'src/tape/', 'src/context', 'src/errors', 'src/mail', 'src/time'],
  },
  { part: ['src/simulator/'], from: ['src/planner/'] },
  { part: ['rest/'], from: [...words, 'src/operations/', 'src/context', 'src/cancellable', 'src/http-body'] },
  {
    part: ['graphql/'],
    from: [
      ...words,
      'src/operations/',
      'src/context',
      'src/cancellable',
      'src/http-body',
      'src/generated/',
      'src/package-root',
    ],
  },
];

/** They put the parts together, and may import whatever they need. */
const wiring = ['src/cli', 'src/app', 'src/runtime', 'src/demo', 'src/commands/'];

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

test('only the outermost files know HTTP, and only rest/ and graphql/ know their protocol', () => {
  const uses = (pattern: RegExp) => files.filter((file) => pattern.test(read(file)));
  expect(
    uses(/from 'express'/).filter((file) => !isIn(file, ['rest/', 'graphql/', 'src/app', 'src/http-body'])),
  ).toEqual([]);
  expect(uses(/from '(graphql|graphql-yoga|@pothos\/[a-z-]+)'/).filter((file) => !isIn(file, ['graphql/']))).toEqual(
    [],
  );
  expect(uses(/from 'commander'/)).toEqual(['src/cli.ts']);
});

test('the environment is read in src/config.ts only', () => {
  expect(files.filter((file) => /process\.env\b/.test(read(file)))).toEqual(['src/config.ts']);
});

test('a file goes to RESTORED in one place', () => {
  const hits = files.flatMap((file) => [...read(file).matchAll(/to: 'RESTORED'/g)].map(() => file));
  expect(hits.filter((file) => file !== 'src/stages.ts')).toHaveLength(1);
});

test('every source file says what it is for before its first line of code', () => {
  expect(files.filter((file) => !/^(#!.*\n)?(import [^;]*;\n|\n)*\/\*\*/.test(read(file)))).toEqual([]);
});

test('no source file is longer than 300 lines', () => {
  const long = files
    .map((file) => ({ file, lines: read(file).split('\n').length - 1 }))
    .filter(({ lines }) => lines > 300);
  expect(long).toEqual([]);
});

test('no error of the compiler is silenced, and no rule of the linter without a reason', () => {
  const broken = files.filter((file) => /@ts-(ignore|nocheck|expect-error)\b/.test(read(file)));
  const unexplained = files.filter((file) => /biome-ignore [^\n:]*(?::\s*)?\n/.test(read(file)));
  expect({ broken, unexplained }).toEqual({ broken: [], unexplained: [] });
});
