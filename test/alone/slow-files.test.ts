/** Restore disks that are slow or fail in the middle of a step. */
import { chmodSync, fstatSync, linkSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { syncFile } from '../../src/restore-area/descriptors.js';
import { openCopyDirectory } from '../../src/restore-area/made-directories.js';
import { createBudget, PartialFile } from '../../src/restore-area/partial-file.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { readRestored, readStage } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cancel } from '../support/mutations.js';
import { waitThroughPauses } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

/** Called before each lstat() and link() in the restore area; may throw. */
const disk = vi.hoisted(() => ({ look: (_path: string): void => {}, link: (_from: string, _to: string): void => {} }));

vi.mock('../../src/restore-area/descriptors.js', async (load) => {
  const real = await load<typeof import('../../src/restore-area/descriptors.js')>();
  const lstatPath = async (file: string, options: { bigint: true }) => {
    disk.look(file);
    return await real.lstatPath(file, options);
  };
  const linkPath = async (from: string, to: string) => {
    disk.link(from, to);
    await real.linkPath(from, to);
  };
  return { ...real, lstatPath, linkPath, syncFile: vi.fn(real.syncFile) };
});

let app: TestApp;
const clock = createClock();
const library = createMemoryLibrary();
const MB = 1024 * 1024;
/** More seconds than any single disk call takes on a busy machine. */
const DISK_SECONDS = 4;

beforeAll(async () => {
  app = await startApp({ library, now: clock.now, config: { diskTimeout: DISK_SECONDS } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(() => {
  disk.look = () => {};
  disk.link = () => {};
  vi.restoreAllMocks();
});
afterAll(() => app.close());

async function restore(file: string, size: number): Promise<{ id: number; bytes: Uint8Array | undefined }> {
  const contents = await addTaped(app.ctx, library, [{ path: file, volume: 'V1', size }]);
  const id = await makeRequest(app, { quota: 'alice', files: [file], retention: '2099-01-01' });
  await waitThroughPauses(app, clock, id, 'COMPLETED');
  return { id, bytes: contents.get(file) };
}

const fail = (code: string) => Object.assign(new Error(code), { code });

const waitForRemoval = (file: string) =>
  waitFor('the copy to leave', async () => readRestored(app, file) === undefined);

/** Delays each read of an open file by `ms`. */
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

test('a large copy whose mode was changed is read again and removed, and its slow disk stays in service', async () => {
  const { id } = await restore('/large/a', 6 * MB);
  chmodSync(path.join(app.restoreDir, 'large/a'), 0o640);
  await slowDown((DISK_SECONDS * 1000) / 5); // all reads together take longer than the timeout
  await cancel(app, id);
  await waitForRemoval('/large/a');
  const { rows } = await app.ctx.db.pool.query(
    'SELECT k.failures, (SELECT count(*)::int FROM suspension) AS suspended FROM restore_disk k',
  );
  expect(rows).toEqual([{ failures: 0, suspended: 0 }]);
});

test.each(['ESTALE', 'EIO', 'ETIMEDOUT'])(
  'a copy is restored even if its check fails with %s once it is in place',
  async (code) => {
    let looks = 0;
    disk.look = (file) => {
      if (!file.endsWith('/seen')) return;
      looks++;
      throw fail(code);
    };
    const file = `/${code}/seen`;
    const { id, bytes } = await restore(file, 1000);
    expect(looks).toBe(1);
    expect(readRestored(app, file)).toEqual(bytes);
    disk.look = () => {};
    await cancel(app, id); // the change time of the copy is unknown, so its bytes identify it
    await waitForRemoval(file);
  },
);

test('a copy that a disk puts in place after its error, and after the next check, is recognised and counted', async () => {
  disk.link = (from, to) => {
    disk.link = () => {};
    disk.look = () => {
      disk.look = () => {};
      linkSync(from, to);
      throw fail('ENOENT');
    };
    throw fail('ETIMEDOUT');
  };
  const { id } = await restore('/slow/late', 1000);
  expect(await readStage(app, '/slow/late')).toBe('R');
  await cancel(app, id);
  await waitForRemoval('/slow/late');
});

async function openPartial(): Promise<PartialFile> {
  const directory = await openCopyDirectory(app.ctx, { diskId: 1, mountpoint: app.restoreDir, path: '/large/b' });
  const attributes = { mode: 0o644, uid: null, gid: null, mtime: null };
  return new PartialFile(directory, '.tapegate-1-1-1.part', { budget: createBudget(), attributes, syncBytes: MB });
}

test('a file is synced while it is written, so that little is left for the end', async () => {
  const sizes: number[] = [];
  const real = vi.mocked(syncFile).getMockImplementation();
  vi.mocked(syncFile).mockImplementation(async (fd) => {
    sizes.push(fstatSync(fd).size);
    await real?.(fd);
  });
  const file = await openPartial();
  for (let n = 0; n < 32; n++) await file.write(new Uint8Array(MB / 4).fill(n));
  await file.finish();
  expect(sizes.at(-1)).toBe(8 * MB);
  const steps = sizes.map((size, n) => size - (sizes[n - 1] ?? 0));
  expect(Math.max(...steps)).toBeLessThanOrEqual(2 * MB);
});

test('a file whose sync fails while it is written fails, even if its last sync succeeds', async () => {
  vi.mocked(syncFile).mockImplementationOnce(async () => {
    throw fail('EIO');
  });
  const file = await openPartial();
  await file.write(new Uint8Array(MB));
  await expect(file.finish()).rejects.toThrow('EIO');
});
