/** The file of rejects of `import` and `scan` with `--skip-invalid`. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { Rejects, type SkipOptions } from '../../src/cli/catalogue/rejects.js';
import { makeTempDir } from '../support/temp-dir.js';

let source: string;
beforeEach(() => {
  source = path.join(makeTempDir(), 'list');
});

const bad = { line: 2, problem: 'path contains the part ""' };
const skip: SkipOptions = { skipInvalid: true };

/** Writes the rejects of one import. */
async function runImport(options: SkipOptions, rejects: (typeof bad)[], isImported = true): Promise<Rejects> {
  const opened = await Rejects.open(options, source);
  if (!opened) throw new Error('the import lists no rejects');
  await opened.write(rejects);
  await opened.end({ isImported });
  return opened;
}

/** Returns the contents of all files by name. */
function readAll(): Record<string, string> {
  const dir = path.dirname(source);
  return Object.fromEntries(readdirSync(dir).map((name) => [name, readFileSync(path.join(dir, name), 'utf8')]));
}

const listOf = (line: number) => `line ${line}: path contains the part ""\n`;

test('a dry run counts rejects and writes no file', async () => {
  const given = `${source}.given`;
  for (const options of [skip, { ...skip, rejects: given }]) {
    expect((await runImport({ ...options, dryRun: true }, [bad])).facts).toEqual({ rejected: 1 });
  }
  await runImport(skip, [bad]);
  expect(readAll()).toEqual({ 'list.rejects': listOf(2) });
  expect((await runImport({ ...skip, dryRun: true }, [])).facts).toEqual({ rejected: 0 });
  expect(readAll()).toEqual({ 'list.rejects': listOf(2) });
});

test('an import replaces the default file of rejects, and removes the file if no name is rejected', async () => {
  await runImport(skip, [bad]);
  const second = await runImport(skip, [{ ...bad, line: 3 }]);
  expect(second.facts).toEqual({ rejected: 1, rejectsFile: `${source}.rejects` });
  expect(readAll()).toEqual({ 'list.rejects': listOf(3) });
  await runImport(skip, []);
  expect(readAll()).toEqual({});
});

test('an import that fails keeps the rejects of the import before', async () => {
  await runImport(skip, [bad]);
  await runImport(skip, [{ ...bad, line: 3 }], false);
  await runImport(skip, [], false);
  expect(readAll()).toEqual({ 'list.rejects': listOf(2) });
});

test('an interrupted import does not block the next import', async () => {
  const interrupted = await Rejects.open(skip, source);
  await interrupted?.write([bad]);
  await runImport(skip, [{ ...bad, line: 3 }]);
  expect(readAll()).toEqual({ 'list.rejects': listOf(3) });
});

test('a file of --rejects, and anything but a regular file, is never replaced', async () => {
  const given = { ...skip, rejects: `${source}.given` };
  await runImport(given, [bad]);
  for (const dryRun of [false, true]) {
    await expect(Rejects.open({ ...given, dryRun }, source)).rejects.toThrow(
      `${source}.given already exists: give another file with --rejects`,
    );
  }
  mkdirSync(`${source}.rejects`);
  writeFileSync(`${source}.rejects/file`, '');
  await expect(Rejects.open(skip, source)).rejects.toThrow(
    `${source}.rejects is not a regular file: give another file with --rejects`,
  );
});
