/** Folders of the restore area that cannot be synced: what was put into them is no file of somebody else's afterwards. */
import { mkdirSync, readFileSync, readlinkSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { addDisk } from '../../src/engine/disk/setup.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { type Clock, createClock } from '../support/clock.js';
import { listTree, readDisks, ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { viewRequest } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions, resume } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let clock: Clock;
let backend: ReturnType<typeof createMemoryBackend>;
/** What becomes of syncing a folder; nothing where it goes well. */
let onSync: (folder: string) => Promise<void>;

beforeEach(async () => {
  clock = createClock();
  backend = createMemoryBackend();
  onSync = async () => {};
  app = await start({ backend, config: { diskTimeout: 2 }, engine: { repairMs: 500 } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  const handle = await open(app.dataDir);
  const prototype = Object.getPrototypeOf(handle) as FileHandle;
  await handle.close();
  const sync = prototype.sync;
  vi.spyOn(prototype, 'sync').mockImplementation(async function (this: FileHandle) {
    await onSync(readlinkSync(`/proc/self/fd/${this.fd}`));
    await sync.call(this);
  });
});
const start = createFreshApp({ now: () => clock.now() });
afterEach(() => {
  vi.restoreAllMocks();
});

const fault = () => Object.assign(new Error('EIO: i/o error, fsync'), { code: 'EIO' });

async function request(count: number): Promise<{ id: number; contents: Map<string, Uint8Array> }> {
  const files = Array.from({ length: count }, (_, n) => ({ path: `/deep/er/${n}`, volume: 'V1' }));
  const contents = await addTaped(app.ctx, backend, files);
  return { id: await makeRequest(app, { quota: 'alice', patterns: '/deep/', retention: '2099-01-01' }), contents };
}

/** The time between two tries goes by. */
async function waitForEnd(id: number): Promise<string> {
  return await waitFor('the request to end', async () => {
    clock.advance(60);
    await ring(app, 'recall');
    const { state } = await viewRequest(app, id);
    return ['COMPLETED', 'PARTIAL'].includes(state) && state;
  });
}

/** All files are on one of the disks, once, with their bytes; nothing else is on these, and no room is lost. */
async function expectAll(contents: Map<string, Uint8Array>, disks = [app.restoreDir]): Promise<void> {
  await waitFor('nothing to be left behind', async () => {
    clock.advance(60);
    await ring(app, 'event');
    const { rowCount } = await app.ctx.db.pool.query('SELECT FROM left_behind');
    return rowCount === 0;
  });
  const found = disks.flatMap((disk) =>
    listTree(disk)
      .filter((name) => !['deep', 'deep/er'].includes(name))
      .map((name) => [`/${name}`, readFileSync(path.join(disk, name)).toString('hex')]),
  );
  const expected = [...contents].map(([name, bytes]) => [name, Buffer.from(bytes).toString('hex')]);
  expect(Object.fromEntries(found)).toEqual(Object.fromEntries(expected));
  expect(found.length).toBe(contents.size);
  expect(await readDisks(app)).toEqual({ used: BigInt(contents.size * 1000), reserved: 0n });
}

test.runIf(process.platform === 'linux').each(['deep/er', 'deep'])(
  'files whose folder %s cannot be synced for a while are brought again, and none has failed',
  async (folder) => {
    let times = 0;
    onSync = async (synced) => {
      if (synced === path.join(app.restoreDir, folder) && times++ < 2) throw fault();
    };
    const { id, contents } = await request(8);
    expect(await waitForEnd(id)).toBe('COMPLETED');
    expect(times).toBeGreaterThan(2);
    await expectAll(contents);
  },
);

test.runIf(process.platform === 'linux')(
  'a disk whose folders cannot be synced is taken out of service, and spoils nothing on another one',
  async () => {
    const other = path.join(app.dataDir, 'other');
    mkdirSync(other);
    await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 10n ** 6n });
    await addDisk(app.ctx, { mountpoint: other, size: 10n ** 6n }); // they are filled in turn
    let isFailing = true;
    onSync = async (folder) => {
      if (isFailing && folder.startsWith(`${app.restoreDir}/`)) throw fault();
    };
    const held = waitFor('the disk to be held', async () =>
      (await readSuspensions(app)).find(({ name }) => name === app.restoreDir),
    );
    const { id, contents } = await request(8);
    expect(await waitForEnd(id)).toBe('COMPLETED');
    expect((await held).reason).toContain('EIO');
    isFailing = false;
    await expectAll(contents, [app.restoreDir, other]);
    const reads = backend.log.filter(({ what }) => what === 'read').map(({ position }) => position);
    const once = reads.filter((position) => reads.indexOf(position) === reads.lastIndexOf(position));
    expect(once.length).toBeGreaterThanOrEqual(4); // more, where the disk is held before its turn comes again
  },
);

test.runIf(process.platform === 'linux')(
  'a disk that hangs when a folder is synced is held, and what was put there is brought again',
  async () => {
    let hangs = true;
    onSync = async (folder) => {
      if (hangs && folder.startsWith(`${app.restoreDir}/`)) await new Promise<never>(() => {});
    };
    const { id, contents } = await request(8);
    const held = await waitFor('the disk to be held', async () =>
      (await readSuspensions(app)).find(({ name }) => name === app.restoreDir),
    );
    expect(held.reason).toBe(`the restore disk ${app.restoreDir} has not answered for 2 s`);
    hangs = false;
    await resume(app, 'DISK', app.restoreDir);
    expect(await waitForEnd(id)).toBe('COMPLETED');
    await expectAll(contents);
  },
);
