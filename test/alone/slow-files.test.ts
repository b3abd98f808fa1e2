/** Large files on disks that are slow: a call that makes progress is none that hangs, and none has to do too much at once. */
import { chmodSync, fstatSync, readFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { syncFile } from '../../src/engine/disk/descriptors.js';
import { openFolder } from '../../src/engine/disk/making.js';
import { Budget, PartialFile } from '../../src/engine/disk/partial-file.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { readRestored } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

vi.mock('../../src/engine/disk/descriptors.js', async (load) => {
  const real = await load<typeof import('../../src/engine/disk/descriptors.js')>();
  return { ...real, syncFile: vi.fn(real.syncFile) };
});

let app: TestApp;
const backend = createMemoryBackend();
const MB = 1024 * 1024;

beforeEach(async () => {
  app = await startApp({ backend, config: { diskTimeout: 1 } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(async () => {
  vi.restoreAllMocks();
  await app.close();
});

/** Each read of an open file takes so long. */
async function slowDown(ms: number): Promise<void> {
  const handle = await open(app.dataDir);
  const prototype = Object.getPrototypeOf(handle) as FileHandle;
  await handle.close();
  const read = prototype.read as (this: FileHandle, ...args: unknown[]) => Promise<unknown>;
  vi.spyOn(prototype, 'read').mockImplementation(async function (this: FileHandle, ...args: unknown[]) {
    await sleep(ms);
    return (await read.apply(this, args)) as never;
  });
}

test('a large copy whose mode was changed is read again and leaves, and its disk stays in service meanwhile', async () => {
  await addTaped(app.ctx, backend, [{ path: '/large/a', volume: 'V1', size: 6 * MB }]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/large/a'], retention: '2099-01-01' });
  await waitForState(app, id, 'COMPLETED');
  chmodSync(path.join(app.restoreDir, 'large/a'), 0o640);
  await slowDown(300); // two seconds for all of it
  await cancel(app, id);
  await waitFor('the copy to leave', async () => readRestored(app, '/large/a') === undefined);
  const { rows } = await app.ctx.db.pool.query(
    'SELECT k.failures, (SELECT count(*)::int FROM suspension) AS suspended FROM restore_disk k',
  );
  expect(rows).toEqual([{ failures: 0, suspended: 0 }]);
});

async function openPartial(syncBytes: number): Promise<PartialFile> {
  const folder = await openFolder(app.ctx, { diskId: 1, mountpoint: app.restoreDir, path: '/large/b' });
  const attributes = { mode: 0o644, uid: null, gid: null, mtime: null };
  return new PartialFile(folder, '.tapegate-1-1-1.part', { budget: new Budget(), attributes, syncBytes });
}

test('what is written of a file is synced as it goes on, so that little is left for the end', async () => {
  const sizes: number[] = [];
  const real = vi.mocked(syncFile).getMockImplementation();
  vi.mocked(syncFile).mockImplementation(async (fd) => {
    sizes.push(fstatSync(fd).size);
    await real?.(fd);
  });
  const file = await openPartial(MB);
  for (let n = 0; n < 32; n++) await file.write(new Uint8Array(MB / 4).fill(n));
  await file.finish();
  expect(sizes.at(-1)).toBe(8 * MB);
  const steps = sizes.map((size, n) => size - (sizes[n - 1] ?? 0));
  expect(Math.max(...steps)).toBeLessThanOrEqual(2 * MB);
  expect(readFileSync(path.join(app.restoreDir, 'large/.tapegate-1-1-1.part')).length).toBe(8 * MB);
});

test('a sync that fails on the way fails the file, though the last one goes well', async () => {
  vi.mocked(syncFile).mockImplementationOnce(async () => {
    throw Object.assign(new Error('EIO: i/o error, fsync'), { code: 'EIO' });
  });
  const file = await openPartial(MB);
  await file.write(new Uint8Array(MB));
  await expect(file.finish()).rejects.toThrow('EIO');
  expect(await file.discard()).toBe(true);
});
