/** Restore disks that refuse to take more while their figures say that they have room. */
import { execFileSync } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { addDisk, describeDisks } from '../../src/engine/disk/setup.js';
import type { FileSystem } from '../../src/engine/disk/space.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { type Clock, createClock } from '../support/clock.js';
import { listTree, ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData, type Edges } from '../support/graphql.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readTries, resume } from '../support/suspend.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let clock: Clock;
/** Files that were read from tape. */
let reads: number;
const mounted: string[] = [];

/** A file system of its own; undefined where mounting is not allowed. */
function mountOwn(options: string): string | undefined {
  const dir = makeTempDir();
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `mode=755,${options}`, 'tapegate-test', dir], { stdio: 'ignore' });
    mounted.push(dir);
    return dir;
  } catch {
    rmSync(dir, { recursive: true });
    return undefined;
  }
}

function unmountOwn(): void {
  for (const dir of mounted.splice(0)) {
    execFileSync('umount', ['-l', dir]);
    rmSync(dir, { recursive: true });
  }
}

const mayMount = mountOwn('size=1m') !== undefined;
unmountOwn();

async function start(readFileSystem?: (mountpoint: string) => Promise<FileSystem>): Promise<void> {
  const backend = createMemoryBackend();
  const { onRead } = backend;
  backend.onRead = async (volume, position, bytes) => {
    reads += 1;
    return onRead ? await onRead(volume, position, bytes) : bytes;
  };
  app = await startFresh({ backend, engine: readFileSystem ? { readFileSystem } : {} });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  const files = Array.from({ length: 8 }, (_, n) => ({ path: `/full/${n}`, volume: 'V1', size: 100_000 }));
  await addTaped(app.ctx, backend, files);
}

beforeEach(() => {
  clock = createClock();
  reads = 0;
});
afterEach(unmountOwn);
const startFresh = createFreshApp({ now: () => clock.now() });

const ask = (match: string) => makeRequest(app, { quota: 'alice', patterns: match, retention: '2099-01-01' });

/** A file that is restored where else there is no room: from then on the engine knows that disk. */
async function restoreFirst(): Promise<void> {
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 0n });
  const id = await ask('/full/0');
  await waitForState(app, id, 'COMPLETED');
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 10n ** 9n });
}

const filesIn = (dir: string) => listTree(dir).filter((name) => name.startsWith('full/'));

async function readProblem(mountpoint: string): Promise<string | null> {
  const query = '{ restoreDisks(first: 9) { edges { node { mountpoint problem } } } }';
  const { restoreDisks } = await askData<{
    restoreDisks: Edges<{ mountpoint: string; problem: string | null }>;
  }>(app, query);
  return restoreDisks.edges.find(({ node }) => node.mountpoint === mountpoint)?.node.problem ?? null;
}

/** Seconds for which nothing new is put on a disk. */
async function readPause(mountpoint: string): Promise<number> {
  const { rows } = await app.ctx.db.pool.query<{ pause: number }>(
    'SELECT extract(epoch FROM full_until - full_at)::int AS pause FROM restore_disk WHERE mountpoint = $1',
    [mountpoint],
  );
  return rows[0]?.pause ?? 0;
}

/** All files of a request, with why they wait. */
async function waitForReasons(id: number, reason: RegExp): Promise<void> {
  await waitFor('all files to say why they wait', async () => {
    const tries = Object.values(await readTries(app, id)).filter(({ state }) => state === 'WAITING');
    return (
      tries.length > 0 && tries.every((file) => file.recallState === 'WAITING' && reason.test(file.lastError ?? ''))
    );
  });
}

test.skipIf(!mayMount)('where the roomiest disk has no inodes left, files go to the next one at once', async () => {
  const mountpoint = mountOwn('size=300g,nr_inodes=8') ?? '';
  await start();
  await addDisk(app.ctx, { mountpoint, size: 250n * 10n ** 9n });
  await restoreFirst();
  clock.freeze(); // no pause ends
  const id = await ask('/full/');
  await waitForState(app, id, 'COMPLETED');
  clock.goOn();
  const [here, there] = [filesIn(mountpoint), filesIn(app.restoreDir)];
  expect(here).toContain('full/0');
  expect(there.length).toBeGreaterThan(0);
  expect([...here, ...there].sort()).toEqual(Array.from({ length: 8 }, (_, n) => `full/${n}`));
});

test.skipIf(!mayMount)(
  'a disk without inodes is full by its figures: nothing is read for it, and all say so',
  async () => {
    const mountpoint = mountOwn('size=300g,nr_inodes=8') ?? '';
    await start();
    await addDisk(app.ctx, { mountpoint, size: 250n * 10n ** 9n });
    await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 0n });
    const fill = Array.from({ length: 9 }, (_, n) => path.join(mountpoint, `.tapegate-${n}`));
    try {
      for (const file of fill) writeFileSync(file, '');
    } catch {
      // full
    }
    const id = await ask('/full/0');
    const full = 'its file system has no inodes left';
    await waitForReasons(
      id,
      new RegExp(`^no restore disk has room for 100000 bytes: .*${mountpoint} is full: ${full}$`),
    );
    expect(Object.values(await readTries(app, id))).toMatchObject([{ attempts: 0, lastErrorClass: 'SPACE' }]);
    expect(reads).toBe(0);
    const disks = await describeDisks(app.ctx);
    expect(disks.find((disk) => disk.mountpoint === mountpoint)).toMatchObject({ problem: `full: ${full}` });
    for (const file of fill.filter(existsSync)) rmSync(file);
    await waitFor('the file', async () => {
      await ring(app, 'room');
      return (await viewRequest(app, id)).state === 'COMPLETED';
    });
  },
);

/** As where a quota is reached that the figures do not know of. */
async function startRefusing(): Promise<{ mountpoint: string; ballast: string }> {
  const mountpoint = mountOwn('size=1m') ?? '';
  await start(async (name) => ({ name, totalBytes: 0n, freeBytes: 10n ** 15n }));
  await addDisk(app.ctx, { mountpoint, size: 10n ** 12n });
  const ballast = path.join(mountpoint, '.tapegate-ballast');
  writeFileSync(ballast, Buffer.alloc(800_000));
  clock.freeze();
  return { mountpoint, ballast };
}

test.skipIf(!mayMount)('what the roomiest disk refuses goes to another one, however much it says to have', async () => {
  const { mountpoint } = await startRefusing();
  await restoreFirst();
  const id = await ask('/full/');
  await waitForState(app, id, 'COMPLETED');
  expect(filesIn(mountpoint).length).toBeLessThan(8);
  expect(filesIn(app.restoreDir).length).toBeGreaterThan(0);
  expect(await readProblem(mountpoint)).toMatch(/^full: ENOSPC/);
  const disks = await describeDisks(app.ctx);
  expect(disks.find((disk) => disk.mountpoint === mountpoint)?.problem).toMatch(/^full: ENOSPC/);
});

test.skipIf(!mayMount)('where the only disk refuses, files wait, and it is tried after pauses that grow', async () => {
  const { mountpoint, ballast } = await startRefusing();
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 0n });
  writeFileSync(ballast, Buffer.alloc(1_000_000));
  const id = await ask('/full/0');
  const reason = new RegExp(`^no restore disk has room for 100000 bytes: .*${mountpoint} is full: ENOSPC`);
  await waitForReasons(id, reason);
  expect([reads, await readProblem(mountpoint)]).toEqual([1, expect.stringMatching(/^full: ENOSPC/)]);
  const pauses: number[] = [];
  for (let tried = 2; tried <= 4; tried++) {
    pauses.push(await readPause(mountpoint));
    clock.advance((pauses.at(-1) ?? 0) + 1);
    clock.freeze(); // where it is by now
    await waitFor(`try ${tried}`, async () => {
      await ring(app, 'room');
      return reads === tried;
    });
    await waitForReasons(id, reason);
  }
  expect([...pauses, await readPause(mountpoint)]).toEqual([5, 20, 80, 320]);
  expect(Object.values(await readTries(app, id))).toMatchObject([{ attempts: 0, lastErrorClass: 'SPACE' }]);
  rmSync(ballast);
  expect(await resume(app, 'DISK', mountpoint)).toMatchObject({ __typename: 'Suspension', mode: 'DRAINING' });
  await waitForState(app, id, 'COMPLETED');
  expect([reads, await readProblem(mountpoint)]).toEqual([5, null]);
  expect(await resume(app, 'DISK', mountpoint)).toMatchObject({ code: 'NOT_FOUND' });
});

test.skipIf(!mayMount).each([
  ['a copy leaves it', (first: number) => cancel(app, first)],
  [
    'its allocation is changed',
    (_first: number, mountpoint: string) => setDisk(app.ctx, { mountpoint, size: 10n ** 11n }),
  ],
])('a disk that is full takes files again at once when %s', async (_name, makeRoom) => {
  const { mountpoint, ballast } = await startRefusing();
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 0n });
  const first = await ask('/full/0');
  await waitForState(app, first, 'COMPLETED');
  writeFileSync(ballast, Buffer.alloc(850_000));
  const second = await ask('/full/1');
  await waitForReasons(second, /is full: ENOSPC/);
  rmSync(ballast); // nobody is told of that
  await makeRoom(first, mountpoint);
  await waitForState(app, second, 'COMPLETED');
});
