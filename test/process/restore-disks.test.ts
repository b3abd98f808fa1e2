/** Restore disks: allocation and real free space, draining disks, and disks that are not mounted. */
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { NotFoundError } from '../../src/core/errors.js';
import { chooseDisk, setDisk } from '../../src/domain/disks/disks.js';
import { resume, suspend } from '../../src/domain/health/suspensions.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { startEngine } from '../../src/engine/runner.js';
import { markerName } from '../../src/restore-area/marker.js';
import { addDisk as addMarkedDisk } from '../../src/restore-area/setup.js';
import { type FileSystem, marginOf } from '../../src/restore-area/space.js';
import { listTree, readDisks, readStage, ring } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { runCli } from '../support/process.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { put } from '../support/rest.js';
import { readSuspensions, readTries } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

const { app, library, clock, tape, ask, query } = useMemorySite({ drives: 4, engine: { readFileSystem } });
/** Capacities of mount points in bytes, each as a separate file system. Other mount points have plenty of room. */
const capacities = new Map<string, number | Error>();

/** Returns the total size of the files below a directory, partial files included. */
function sizeOf(dir: string): number {
  const sizes = new Map<number, number>(); // a file that is put in place briefly has two names
  for (const name of listNames(dir)) {
    const stats = statSync(path.join(dir, name), { throwIfNoEntry: false }); // an engine may just have removed the file
    if (stats?.isFile() && !name.startsWith(markerName)) sizes.set(stats.ino, stats.size);
  }
  return [...sizes.values()].reduce((sum, size) => sum + size, 0);
}

/** Returns the names below a directory. Retries if an engine removes a directory meanwhile. */
function listNames(dir: string): string[] {
  for (;;) {
    try {
      return readdirSync(dir, { recursive: true, encoding: 'utf8' });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  }
}

async function readFileSystem(mountpoint: string): Promise<FileSystem> {
  const capacity = capacities.get(mountpoint);
  if (capacity instanceof Error) throw capacity;
  const freeBytes = capacity === undefined ? 10n ** 15n : BigInt(capacity - sizeOf(mountpoint));
  return { name: mountpoint, totalBytes: 0n, freeBytes }; // with a total of 0 bytes, no margin is kept free
}

afterEach(async () => {
  capacities.clear();
  for (const { id } of await query<{ id: number }>('SELECT id FROM request')) await cancelRequest(app.ctx, id);
  for (const { name } of await query<{ name: string }>('SELECT name FROM suspension'))
    await resume(app.ctx, { kind: 'DISK', name }).catch((error) => {
      if (!(error instanceof NotFoundError)) throw error; // the engine has already resumed the disk
    });
  await eventually('all copies to be removed', async () => (await readDisks(app)).used === 0n);
  await query('DELETE FROM restore_disk WHERE mountpoint <> $1', [app.restoreDir]);
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 10n ** 9n });
});

async function waitForReason(id: number): Promise<{ class: string | null; error: string | null }> {
  return await waitFor('the reason why a file waits', async () => {
    const [tries] = Object.values(await readTries(app, id));
    return tries?.lastError != null && { class: tries.lastErrorClass, error: tries.lastError };
  });
}

const runHere = (...args: string[]) => runCli(args, { env: { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir } });
const listDisks = async () => (await runHere('disk', 'list')).stdout;

/** Advances the clock past pauses until a condition is met. */
async function eventually<T>(what: string, look: () => Promise<T | undefined | false>): Promise<T> {
  return await waitFor(what, async () => {
    clock.advance(30);
    await ring(app, 'recall');
    return await look();
  });
}

/**
 * Waits until a disk is suspended for this reason. An engine that checks while disks are exchanged first reports
 * another reason.
 */
const waitForHold = (mountpoint: string, reason: string) =>
  eventually(`${mountpoint} to be suspended: ${reason}`, async () =>
    (await readSuspensions(app)).some((held) => held.name === mountpoint && held.reason.includes(reason)),
  );

const completes = (id: number) =>
  eventually(`request ${id} to complete`, async () => (await viewRequest(app, id)).state === 'COMPLETED');

async function addDisk(name: string, size: bigint): Promise<string> {
  const mountpoint = path.join(app.dataDir, name);
  mkdirSync(mountpoint);
  await setDisk(app.ctx, { mountpoint, size });
  return mountpoint;
}

test('the margin is a hundredth of the file system, and at most a gibibyte', () => {
  const margin = (totalBytes: bigint) => marginOf({ name: '', totalBytes, freeBytes: 0n });
  expect([margin(1000n), margin(10n ** 9n), margin(10n ** 15n)]).toEqual([10n, 10n ** 7n, 2n ** 30n]);
});

test('room that is reserved on one disk counts on the other disks of the same file system', () => {
  const fileSystem = { freeBytes: 1000n, reserved: 400n };
  const disks = [
    { name: 'a', size: 10_000n, used: 0n, reserved: 400n, fileSystem },
    { name: 'b', size: 20_000n, used: 0n, reserved: 0n, fileSystem },
  ];
  expect([601n, 600n].map((size) => chooseDisk(disks, size)?.name)).toEqual([undefined, 'b']);
});

test('files are put on the disk with the most room', async () => {
  const other = path.join(app.dataDir, 'even');
  mkdirSync(other);
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 1000n });
  await addMarkedDisk(app.ctx, { mountpoint: other, size: 1500n });
  // 1 leaves 700 bytes on `other`, 2 leaves 600 on the first disk, 3 goes to `other`, 4 fits exactly on the first disk
  const files = [800, 400, 700, 600].map((size, n) => ({ path: `/even/${n + 1}`, position: BigInt(n + 1), size }));
  await addTaped(
    app.ctx,
    library,
    files.map((file) => ({ ...file, volume: 'EVEN' })),
  );
  await waitForState(app, await ask(...files.map((file) => file.path)), 'COMPLETED');
  expect(listTree(other)).toEqual(['even', 'even/1', 'even/3']);
  expect(listTree(app.restoreDir)).toEqual(['even', 'even/2', 'even/4']);
});

test('a recall beyond the allocation of the disks waits with the reason, delays no smaller one, and runs when there is room', async () => {
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 1500n });
  const files = [1000, 501, 500].map((size, n) => ({ path: `/space/${n}`, position: BigInt(n + 1), size }));
  await addTaped(
    app.ctx,
    library,
    files.map((file) => ({ ...file, volume: 'SPACE' })),
  );
  const first = await ask('/space/0');
  await waitForState(app, first, 'COMPLETED');
  const second = await ask('/space/1');
  const error = `no restore disk has room for 501 bytes: ${app.restoreDir} has 500 bytes left of the 1.50 kB allocated to Tapegate`;
  expect(await waitForReason(second)).toEqual({ class: 'SPACE', error });
  expect(await listDisks()).toMatch(/ 500 bytes +full: waiting recalls do not fit\n$/);
  expect((await readTries(app, second))['/space/1']).toMatchObject({ recallState: 'WAITING', attempts: 0 });
  const waiting = { state: 'QUEUED', filesFailed: 0, recallsStartedAt: null };
  expect(await viewRequest(app, second)).toMatchObject(waiting);
  await waitForState(app, await ask('/space/2'), 'COMPLETED');
  expect(await readDisks(app)).toEqual({ used: 1500n, reserved: 0n });
  expect(await listDisks()).toMatch(/ 0 bytes +full: no room left\n$/);
  expect(listTree(app.restoreDir)).toEqual(['space', 'space/0', 'space/2']);
  clock.freeze(); // the recall starts when there is room, not after a pause
  await put(app, first, { quota: 'alice', retention: '2020-01-01' });
  await waitForState(app, second, 'COMPLETED');
  clock.goOn();
  expect(await readDisks(app)).toEqual({ used: 1001n, reserved: 0n });
  expect(listTree(app.restoreDir)).toEqual(['space', 'space/1', 'space/2']);
});

test('a recall beyond the real free space of the disk waits, and reports what is free and what is reserved', async () => {
  capacities.set(app.restoreDir, 1500);
  for (const name of ['a', 'b', 'c']) await tape(`/free/${name}`);
  const reads = holdReads(library);
  const first = await ask('/free/a');
  await waitFor('the first recall', async () => (await readStage(app, '/free/a')) === 'A');
  const second = await ask('/free/b');
  expect(await waitForReason(second)).toEqual({
    class: 'SPACE',
    error: `no restore disk has room for 1.00 kB: ${app.restoreDir} has 500 bytes free: 1.50 kB free in its file system, minus 1.00 kB reserved`,
  });
  reads.open();
  await waitForState(app, first, 'COMPLETED');
  // the bytes of the first file are neither free nor reserved any more, and leave no room for a third file
  const third = await ask('/free/c');
  expect((await waitForReason(third)).error).toContain(': 500 bytes free in its file system, minus 0 bytes reserved');
  await cancel(app, third); // otherwise this request might get the room
  await cancel(app, first);
  await waitForState(app, second, 'COMPLETED');
});

test('a disk whose free space cannot be read gets no files, with the reason, and other disks do', async () => {
  capacities.set(app.restoreDir, new Error('the cable is out'));
  await tape('/cable/a');
  const id = await ask('/cable/a');
  // in parentheses, if the disk is already suspended for this reason
  const unknown = `the free space of the restore disk ${app.restoreDir} is unknown: the cable is out\\)?$`;
  expect(await waitForReason(id)).toEqual({
    class: 'TRANSIENT',
    error: expect.stringMatching(`^no restore disk has room for 1.00 kB: .*${unknown}`),
  });
  const other = await addDisk('other', 10n ** 9n);
  await completes(id);
  expect(listTree(other)).toEqual(['cable', 'cable/a']);
});

test('two engines that restore and remove files at the same time never exceed the room of a disk', async () => {
  const narrow = await addDisk('narrow', 10n ** 9n);
  capacities.set(narrow, 3500);
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 6000n });
  const most = { onDisk: 0, onNarrow: 0, allocated: 0n };
  const measure = () => {
    most.onDisk = Math.max(most.onDisk, sizeOf(app.restoreDir));
    most.onNarrow = Math.max(most.onNarrow, sizeOf(narrow));
  };
  const allocated = 'SELECT used + reserved AS bytes FROM restore_disk WHERE mountpoint = $1';
  library.onRead = async (_volume, _position, bytes) => {
    const [row = { bytes: 0n }] = await query<{ bytes: bigint }>(allocated, [app.restoreDir]);
    if (row.bytes > most.allocated) most.allocated = row.bytes;
    measure();
    return bytes;
  };
  const contents = new Map<string, Uint8Array>();
  for (let volume = 0; volume < 6; volume++) {
    const files = Array.from({ length: 4 }, (_, n) => `/commit/${volume}/${n}`);
    for (const [file, bytes] of await tape(...files)) contents.set(file, bytes);
  }
  const second = await startEngine(app.ctx, library, { readFileSystem, drainMs: 1000 });
  try {
    const engines = 'SELECT DISTINCT engine_id FROM drive WHERE engine_id IS NOT NULL';
    await waitFor('both engines to have drives', async () => (await query(engines)).length === 2);
    const open = new Map<number, string>();
    for (const file of contents.keys()) open.set(await ask(file), file);
    await waitFor('full disks', async () => (await readDisks(app)).used === 9000n);
    measure();
    while (open.size > 0) {
      const done = await waitFor('another file', async () => {
        const rows = await query<{ id: number }>(`SELECT id FROM request WHERE state = 'COMPLETED'`);
        return rows.length > 0 && rows;
      });
      for (const { id } of done) {
        const file = open.get(id) ?? '';
        const copies = [app.restoreDir, narrow].map((dir) => path.join(dir, file)).filter(isFile);
        expect(copies.map((copy) => readFileSync(copy))).toEqual([contents.get(file)]);
        open.delete(id);
        await cancel(app, id);
      }
    }
  } finally {
    await second.stop();
  }
  expect(most).toEqual({ onDisk: 6000, onNarrow: 3000, allocated: 6000n });
  await waitFor('all copies to be removed', async () => (await readDisks(app)).used === 0n);
  expect(await readDisks(app)).toEqual({ used: 0n, reserved: 0n });
});

const isFile = (file: string) => statSync(file, { throwIfNoEntry: false })?.isFile() === true;

test('a draining disk finishes its recalls, starts none, and keeps its copies while requests contain them', async () => {
  for (const name of ['a', 'b']) await tape(`/drain/${name}`);
  const reads = holdReads(library);
  const first = await ask('/drain/a');
  await waitFor('the first recall', async () => (await readStage(app, '/drain/a')) === 'A');
  const suspension = { mode: 'DRAINING' as const, reason: 'it gets a new fan' };
  await suspend(app.ctx, { kind: 'DISK', name: app.restoreDir, ...suspension });
  const second = await ask('/drain/b');
  const error = `no restore disk has room for 1.00 kB: ${app.restoreDir} is draining (it gets a new fan)`;
  expect(await waitForReason(second)).toEqual({ class: 'SPACE', error });
  reads.open();
  await waitForState(app, first, 'COMPLETED');
  expect(listTree(app.restoreDir)).toEqual(['drain', 'drain/a']);
  const disks = '{ restoreDisks(first: 1) { edges { node { suspension { mode reason } } } } }';
  expect(await askData(app, disks)).toEqual({ restoreDisks: { edges: [{ node: { suspension } }] } });
  expect(await listDisks()).toMatch(/ draining: it gets a new fan\n$/);
  expect((await runHere('disk', 'remove', app.restoreDir)).stderr).toContain(
    'contains 1 copy (1000 bytes in total), and has 0 running recalls: the disk is draining, and will be empty when the requests for these copies have ended',
  );
  const fresh = await addDisk('fresh', 10n ** 9n);
  await completes(second);
  expect(listTree(fresh)).toEqual(['drain', 'drain/b']);
  await cancel(app, first);
  await waitFor('the draining disk to be empty', async () => listTree(app.restoreDir).length === 0);
});

test('a file that waited for room reports that no more once there is room, also if something else delays it', async () => {
  await tape('/room/a');
  await suspend(app.ctx, { kind: 'DISK', name: app.restoreDir, mode: 'IMMEDIATE', reason: 'disk check' });
  const id = await ask('/room/a');
  expect((await waitForReason(id)).error).toContain('is suspended (disk check)');
  const user = { kind: 'USER', name: 'alice' } as const;
  await suspend(app.ctx, { ...user, mode: 'IMMEDIATE', reason: '' });
  await resume(app.ctx, { kind: 'DISK', name: app.restoreDir });
  await eventually('the reason to end', async () => Object.values(await readTries(app, id))[0]?.lastError === null);
  await resume(app.ctx, user);
  await completes(id);
});

test('a mount point where nothing is mounted gets no files, and copies of the disk are not given up', async () => {
  const mountpoint = await addDisk('mounted', 10n ** 9n);
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 0n });
  await tape('/mounted/a', '/mounted/b');
  const first = await ask('/mounted/a');
  await waitForState(app, first, 'COMPLETED');
  renameSync(mountpoint, `${mountpoint}-away`);
  mkdirSync(mountpoint);
  const second = await ask('/mounted/b');
  expect((await waitForReason(second)).class).toBe('TRANSIENT');
  await waitForHold(mountpoint, `the restore disk ${mountpoint} is not mounted, or lost its marker`);
  await cancel(app, first);
  // an engine that starts while the disk is not mounted
  const engine = await startEngine(app.ctx, library, { readFileSystem, drainMs: 1000 });
  await eventually('a look at the disk', async () => (await waitForReason(second)).error);
  await engine.stop();
  expect(readdirSync(mountpoint)).toEqual([]);
  expect([await readStage(app, '/mounted/a'), (await viewRequest(app, second)).state]).toEqual(['R', 'QUEUED']);
  expect((await readDisks(app)).used).toBe(1000n);
  rmSync(mountpoint, { recursive: true });
  renameSync(`${mountpoint}-away`, mountpoint);
  await completes(second);
  await waitFor('the first copy to be removed', async () => !listTree(mountpoint).includes('mounted/a'));
  expect(await readStage(app, '/mounted/a')).toBe('T');
  expect(listTree(mountpoint)).toEqual(['mounted', 'mounted/b']);
});

test('disks that are mounted in the place of each other get no files', async () => {
  const [one, two] = [await addDisk('one', 10n ** 9n), await addDisk('two', 10n ** 8n)];
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 0n });
  await tape('/swap/a', '/swap/b');
  await waitForState(app, await ask('/swap/a'), 'COMPLETED');
  const swap = () => {
    renameSync(one, `${one}-swap`);
    renameSync(two, one);
    renameSync(`${one}-swap`, two);
  };
  swap();
  const second = await ask('/swap/b');
  expect((await waitForReason(second)).class).toBe('TRANSIENT');
  for (const disk of [one, two]) await waitForHold(disk, `another disk is mounted at ${disk}: its marker is`);
  swap();
  await completes(second);
});

test('a disk of an older version, without a marker, is marked if its copies are there', async () => {
  await tape('/older/a', '/older/b');
  await waitForState(app, await ask('/older/a'), 'COMPLETED');
  rmSync(path.join(app.restoreDir, markerName));
  await query('UPDATE restore_disk SET marked_at = NULL, marked_as = NULL');
  await completes(await ask('/older/b'));
  expect(readdirSync(app.restoreDir)).toContain(markerName);
});
