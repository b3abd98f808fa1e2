/** The directory library. */
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { createDirectoryLibrary } from '../../src/tape/directory/index.js';
import { mount, put, readAll } from '../support/tape-library.js';
import { describeWritableLibrary } from '../support/tape-library-writes.js';
import { makeTempDir } from '../support/temp-dir.js';
import { asUnprivilegedUser } from '../support/unprivileged-user.js';

const dirs: string[] = [];

/** Creates a directory with an empty library, and a file outside the library. */
function makeSite() {
  const dir = makeTempDir();
  dirs.push(dir);
  const root = path.join(dir, 'library');
  mkdirSync(root);
  writeFileSync(path.join(dir, 'secret'), 'secret');
  return { dir, root, library: createDirectoryLibrary(root) };
}

afterAll(() => {
  for (const dir of dirs) rmSync(dir, { recursive: true, force: true });
});

describeWritableLibrary('directory', () => makeSite().library);

test('a volume is a directory, and a position a file in it', async () => {
  const { root, library } = makeSite();
  await put(library, 'V 1', 1n, Buffer.from('one'));
  await put(library, 'V 1', 123_456_789_012n, Buffer.from('two'));
  expect(readdirSync(path.join(root, 'V 1'))).toEqual(['00000001', '123456789012']);
});

test('a write that fails leaves no file', async () => {
  const { root, library } = makeSite();
  await put(library, 'V1', 1n, Buffer.from('one'));
  await expect(put(library, 'V1', 1n, Buffer.from('two'))).rejects.toMatchObject({ errorClass: 'PERMANENT' });
  expect(readdirSync(path.join(root, 'V1'))).toEqual(['00000001']);
});

test('a volume name outside the library is PERMANENT, and nothing is read or written there', async () => {
  const { dir, root, library } = makeSite();
  await put(library, 'V1', 1n, Buffer.from('one'));
  mkdirSync(path.join(dir, 'other'));
  writeFileSync(path.join(dir, 'other', '00000001'), 'other');
  for (const volume of ['', '.', '..', '../other', '/etc', `${dir}/other`, 'V1/../../other', '.hidden', 'V\u00001']) {
    await expect(mount(library, volume)).rejects.toMatchObject({ errorClass: 'PERMANENT' });
    await expect(put(library, volume, 9n, Buffer.from('x'))).rejects.toMatchObject({ errorClass: 'PERMANENT' });
  }
  expect(readdirSync(dir).sort()).toEqual(['library', 'other', 'secret']);
  expect(readdirSync(path.join(dir, 'other'))).toEqual(['00000001']);
  expect(readdirSync(root)).toEqual(['V1']);
});

test('a name that is too long, or the name of a file, is no volume', async () => {
  const { root, library } = makeSite();
  writeFileSync(path.join(root, 'file'), 'x');
  for (const volume of ['file', 'V'.repeat(300)]) {
    await expect(mount(library, volume)).rejects.toMatchObject({ errorClass: 'MEDIA' });
  }
});

test.each([
  ['a link to a file', (place: string, dir: string) => symlinkSync(path.join(dir, 'secret'), place)],
  ['a link to nothing', (place: string) => symlinkSync('nowhere', place)],
  ['a directory', (place: string) => mkdirSync(place)],
  ['a pipe', (place: string) => execFileSync('mkfifo', [place])],
])('%s instead of a file is PERMANENT, and not written through', async (_what, make) => {
  const { dir, root, library } = makeSite();
  await put(library, 'V1', 1n, Buffer.from('one'));
  make(path.join(root, 'V1', '00000002'), dir);
  await expect(readAll(await mount(library, 'V1'), 2n)).rejects.toMatchObject({ errorClass: 'PERMANENT' });
  await expect(put(library, 'V1', 2n, Buffer.from('x'))).rejects.toMatchObject({ errorClass: 'PERMANENT' });
  expect(readdirSync(dir).sort()).toEqual(['library', 'secret']);
  expect(readdirSync(path.join(root, 'V1'))).toEqual(['00000001', '00000002']);
});

test('a volume that disappears while it is mounted is MEDIA', async () => {
  const { root, library } = makeSite();
  await library.openLibrary?.(true);
  await put(library, 'V1', 1n, Buffer.from('one'));
  await put(library, 'V2', 1n, Buffer.from('one')); // an empty library would be unavailable
  const volume = await mount(library, 'V1');
  rmSync(path.join(root, 'V1'), { recursive: true });
  await expect(readAll(volume, 1n)).rejects.toMatchObject({ errorClass: 'MEDIA' });
});

test('a missing permission is POLICY', async () => {
  const { dir, root, library } = makeSite();
  await put(library, 'V1', 1n, Buffer.from('one'));
  await put(library, 'V2', 1n, Buffer.from('one'));
  chmodSync(path.join(root, 'V1', '00000001'), 0o000);
  chmodSync(path.join(root, 'V2'), 0o555);
  const failures = await asUnprivilegedUser(async () => [
    await readAll(await mount(library, 'V1'), 1n).catch((error: unknown) => error),
    await put(library, 'V2', 2n, Buffer.from('x')).catch((error: unknown) => error),
  ]);
  chmodSync(root, 0o000);
  failures.push(await asUnprivilegedUser(() => mount(library, 'V1').catch((error: unknown) => error)));
  chmodSync(root, 0o755);
  expect(failures).toMatchObject([{ errorClass: 'POLICY' }, { errorClass: 'POLICY' }, { errorClass: 'POLICY' }]);
  expect(existsSync(path.join(dir, 'library', 'V2', '00000002'))).toBe(false);
});

test('a failed sync is reported', async () => {
  const { root, library } = makeSite();
  await put(library, 'V1', 1n, Buffer.from('bytes'));
  rmSync(path.join(root, 'V1'), { recursive: true });
  await expect(library.sync?.('V1', new AbortController().signal)).rejects.toMatchObject({ errorClass: 'PERMANENT' });
});
