/** Both suites of libraries, over real scripts; and what many files cost. */
import { chmodSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { VolumeError } from '../../src/tape/backend.js';
import {
  createCommandBench,
  createDrives,
  driveSettings,
  readLines,
  waitForNoScript,
} from '../support/command-bench.js';
import { ask, errorOf, readStaged, settle, staged, wordsOf } from '../support/staging-bench.js';
import { describeStagingLibrary } from '../support/staging-library.js';
import { describeBackend, quiet } from '../support/tape-backend.js';
import { makeTempDir } from '../support/temp-dir.js';

function createDriveBench() {
  const root = makeTempDir('tapes');
  return {
    root,
    backend: createDrives(driveSettings(root)),
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

describeBackend('command', createDriveBench);

describeStagingLibrary('command', async () => createCommandBench(), { release: true, ids: true, until: false });
describeStagingLibrary(
  'nameless command that keeps all',
  async () => createCommandBench({ release: null, offsets: false }, ['IDS=off', 'UNTIL=3600']),
  { release: false, ids: false, until: true, isShort: true },
);

test('a volume is mounted on its drive before it is read, and unmounted once', async () => {
  const { root, backend, put, close } = createDriveBench();
  await put('V1', 7n, Buffer.from('seven'));
  const volume = await backend.mount('V1', 'drive-3', quiet());
  for (let time = 0; time < 2; time++) {
    const chunks: Uint8Array[] = [];
    for await (const chunk of volume.read({ path: '/a', position: 7n, size: 5n }, quiet())) chunks.push(chunk);
    expect(Buffer.concat(chunks).toString()).toBe('seven');
  }
  await volume.unmount();
  expect(readLines(path.join(root, 'log'))).toEqual(['mount V1 drive-3', 'unmount V1 drive-3']);
  await close();
});

test('a volume that goes while it is read is what failed, and no file', async () => {
  const { root, backend, put, close } = createDriveBench();
  await put('V1', 1n, Buffer.from('one'));
  const volume = await backend.mount('V1', 'drive-1', quiet());
  rmSync(path.join(root, 'V1'), { recursive: true });
  const read = volume.read({ path: '/a', position: 1n, size: 3n }, quiet())[Symbol.asyncIterator]();
  const error = await errorOf(read.next());
  expect(error).toBeInstanceOf(VolumeError);
  expect(error).toMatchObject({ errorClass: 'MEDIA', message: expect.stringContaining('volume V1 is gone') });
  await close();
});

test('a script that cannot be started is told in words that say what to mend', async () => {
  const root = makeTempDir('tapes');
  const script = path.join(root, 'mount');
  const mount = () =>
    errorOf(createDrives({ ...driveSettings(root), mount: [script] }).mount('V1', 'drive-1', quiet()));
  const told = (why: string) => ({ errorClass: 'POLICY', message: `${script} could not be started: ${why}` });
  expect(await mount()).toMatchObject(told('there is no such program on this host (ENOENT)'));
  writeFileSync(script, '#!/bin/sh\r\nexit 0\r\n', { mode: 0o755 });
  expect(await mount()).toMatchObject(
    told('the program that its first line names is not on this host, or its lines end with CR LF (ENOENT)'),
  );
  chmodSync(script, 0o644);
  expect(await mount()).toMatchObject(
    told("Tapegate's user may not run it: look at its mode, and at the folders above it (EACCES)"),
  );
  rmSync(root, { recursive: true });
});

test('two thousand files take one call for each hundred of them, beyond their bytes', async () => {
  const bench = createCommandBench();
  const paths = Array.from({ length: 2000 }, (_, index) => `/many/${index % 100}/file ${index}`);
  for (const file of paths) await bench.put(file, Buffer.from(file));
  const { stage, poll, release } = bench.library.limits;
  const batches = paths.flatMap((_, index) => (index % stage === 0 ? [paths.slice(index, index + stage)] : []));
  expect([poll, release]).toEqual([stage, stage]);
  const asked = [];
  for (const batch of batches)
    asked.push(
      await ask(
        bench.library,
        batch.map((file) => staged(file, 30)),
      ),
    );
  await bench.arrive(paths.slice(0, 1000)); // the others are on their way while one looks twice
  for (const each of asked)
    for (const state of await bench.library.poll(each.demand, quiet())) each.states.set(state.path, state);
  await bench.arrive(paths);
  for (const [index, each] of asked.entries()) {
    const states = await settle(bench.library, each);
    expect(new Set(wordsOf(states, batches[index] ?? []))).toEqual(new Set(['ready']));
  }
  expect((await readStaged(bench.library, staged('/many/99/file 1999'))).toString()).toBe('/many/99/file 1999');
  for (const { demand } of asked) expect(await bench.library.release(demand, quiet())).toEqual([]);
  expect(await bench.isStaged('/many/99/file 1999')).toBe(false);
  expect(bench.calls().length).toBeLessThanOrEqual(20);
  await bench.close();
});
