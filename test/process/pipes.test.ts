/** Pipes that have taken the place of a file: whoever opens one for reading would wait for a writer that never comes. */
import { execFileSync } from 'node:child_process';
import { lstatSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { withSource } from '../../src/engine/archive/source.js';
import { readChecksum } from '../../src/engine/disk/copy.js';
import { markerName, writeMarker } from '../../src/engine/disk/marker.js';
import { startApp, type TestApp } from '../support/app.js';
import { cleanUp, runCli } from '../support/process.js';

let app: TestApp;

beforeAll(async () => {
  app = await startApp();
  mkdirSync(app.restoreDir, { recursive: true });
  await writeMarker({ diskId: 1, mountpoint: app.restoreDir });
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const place = (name: string) => path.join(app.restoreDir, name);
const makePipe = (file: string) => execFileSync('mkfifo', [file]);

test.each([
  ['a pipe', () => makePipe(place('copy'))],
  [
    'a link to a pipe',
    () => {
      makePipe(place('pipe'));
      symlinkSync('pipe', place('copy'));
    },
  ],
  ['a folder', () => mkdirSync(place('copy'))],
])('%s that takes the place of a copy before it is read is told, and holds up nothing', async (_what, swap) => {
  swap();
  const copy = { diskId: 1, mountpoint: app.restoreDir, path: '/copy' };
  await expect(readChecksum(copy, 'sha256:')).rejects.toThrow('is not a plain file');
  for (const name of readdirSync(app.restoreDir)) {
    if (name !== markerName) rmSync(place(name), { recursive: true });
  }
});

test('a pipe that takes the place of a file to be archived, after it was found, is told and holds up nothing', async () => {
  const file = path.join(app.dataDir, 'source');
  writeFileSync(file, 'bytes');
  const { size, ino, mtimeNs } = lstatSync(file, { bigint: true });
  rmSync(file);
  makePipe(file);
  const source = { file, folder: app.dataDir, path: '/source', size, ino, mtimeNs };
  await expect(withSource(source, async () => {})).rejects.toThrow(`${file} is not a plain file`);
});

test('a pipe in the place of a marker is a disk that is not there', async () => {
  const mountpoint = path.join(app.dataDir, 'disk');
  const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  mkdirSync(mountpoint);
  makePipe(path.join(mountpoint, markerName));
  const added = await runCli(['disk', 'add', mountpoint, '--size', '1G'], { env });
  expect(added.stderr).toContain(`${path.join(mountpoint, markerName)} is not a plain file`);
  expect((await runCli(['disk', 'list'], { env })).stdout).toContain('is not a plain file');
});
