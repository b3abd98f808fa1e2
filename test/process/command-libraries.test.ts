/** Both test suites for libraries, run with real scripts, and the number of script calls for many files. */
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { VolumeError } from '../../src/tape/drive-library.js';
import {
  createCommandBench,
  createDrives,
  driveSettings,
  readLines,
  waitForNoScript,
} from '../support/command-bench.js';
import { libraryDir } from '../support/library-dir.js';
import { ask, errorOf, makeReady, readStaged, settle, staged, wordsOf } from '../support/staging-bench.js';
import { describeStagingLibrary } from '../support/staging-library.js';
import { describeLibrary, quiet } from '../support/tape-library.js';
import { makeTempDir } from '../support/temp-dir.js';

function createDriveBench() {
  const root = makeTempDir('tapes');
  return {
    root,
    library: createDrives(driveSettings(root)),
    put: async (volume: string, position: bigint, bytes: Uint8Array) => {
      mkdirSync(path.join(root, volume), { recursive: true });
      writeFileSync(path.join(root, volume, String(position)), bytes);
    },
    close: async () => {
      await waitForNoScript(`TAPES=${root}`);
      rmSync(root, { recursive: true });
    },
  };
}

describeLibrary('command', createDriveBench);

describeStagingLibrary('command', async () => createCommandBench(), { release: true, ids: true, until: false });
const createNameless = () => createCommandBench({ release: null, offsets: false }, ['TAPE_IDS=off', 'TAPE_UNTIL=3600']);
describeStagingLibrary('nameless command that keeps all', async () => createNameless(), {
  ...{ release: false, ids: false, until: true },
  ...{ readsAsAnother: true, isShort: true },
});

test('a script that always gives whole files is read from any byte', async () => {
  const bench = createNameless();
  const bytes = randomBytes(200_000);
  await bench.put('/whole', bytes);
  const file = staged('/whole', bytes.length);
  await makeReady(bench, [file]);
  for (const from of [0, 1, 65_536, 199_999, 200_000])
    expect([from, await readStaged(bench.library, file, BigInt(from))]).toEqual([from, bytes.subarray(from)]);
  expect(readLines(path.join(bench.root, 'fetches'))).toEqual(Array(5).fill('0 /whole'));
  await bench.close();
});

test('a volume is mounted on its drive before its reads, and unmounted once', async () => {
  const { root, library, put, close } = createDriveBench();
  await put('V1', 7n, Buffer.from('seven'));
  const volume = await library.mount('V1', 'drive-3', quiet());
  for (let time = 0; time < 2; time++) {
    const chunks: Uint8Array[] = [];
    for await (const chunk of volume.read({ path: '/a', position: 7n, size: 5n }, quiet())) chunks.push(chunk);
    expect(Buffer.concat(chunks).toString()).toBe('seven');
  }
  await volume.unmount();
  expect(readLines(path.join(root, 'log'))).toEqual(['mount V1 drive-3', 'unmount V1 drive-3']);
  await close();
});

test('a volume that disappears during a read is an error of the volume, not of the file', async () => {
  const { root, library, put, close } = createDriveBench();
  await put('V1', 1n, Buffer.from('one'));
  const volume = await library.mount('V1', 'drive-1', quiet());
  rmSync(path.join(root, 'V1'), { recursive: true });
  const read = volume.read({ path: '/a', position: 1n, size: 3n }, quiet())[Symbol.asyncIterator]();
  const error = await errorOf(read.next());
  expect(error).toBeInstanceOf(VolumeError);
  expect(error).toMatchObject({ errorClass: 'MEDIA', message: expect.stringContaining('volume V1 is gone') });
  await close();
});

test('a script that cannot be started is reported with a remedy', async () => {
  const root = makeTempDir('tapes');
  const script = path.join(libraryDir, 'programs/to-be-mended');
  const mount = () =>
    errorOf(createDrives({ ...driveSettings(root), mount: ['to-be-mended'] }).mount('V1', 'drive-1', quiet()));
  const told = (why: string) => ({ errorClass: 'POLICY', message: `${script} cannot be started: ${why}` });
  expect(await mount()).toMatchObject(told('the program does not exist on this host (ENOENT)'));
  writeFileSync(script, '#!/bin/sh\r\nexit 0\r\n', { mode: 0o755 });
  expect(await mount()).toMatchObject(
    told(
      'the interpreter in the first line of the script does not exist on this host, or the lines of the script end with CR LF (ENOENT)',
    ),
  );
  chmodSync(script, 0o644);
  expect(await mount()).toMatchObject(
    told(
      'the user that runs Tapegate has no permission to run the program: check the modes of the program and of its parent directories (EACCES)',
    ),
  );
  rmSync(root, { recursive: true });
});

test('many files take one call for each batch of them', async () => {
  const bench = createCommandBench({ stageBatch: 100, pollBatch: 100, releaseBatch: 100 });
  const paths = Array.from({ length: 300 }, (_, index) => `/many/${index % 100}/file ${index}`);
  for (const file of paths) await bench.put(file, Buffer.from(file));
  const demands = [];
  for (const start of [0, 100, 200]) {
    const files = paths.slice(start, start + 100).map((file) => staged(file, 30));
    demands.push(await ask(bench.library, files));
  }
  await bench.arrive(paths);
  for (const asked of demands) {
    const states = await settle(bench.library, asked);
    expect(new Set(wordsOf(states, [...states.keys()]))).toEqual(new Set(['ready']));
  }
  for (const { demand } of demands) expect(await bench.library.release(demand, quiet())).toEqual([]);
  expect(bench.calls()).toEqual(['stage', 'poll', 'release'].flatMap((call) => Array(3).fill(`${call} 100`)));
  await bench.close();
});
