/**
 * Restore disks that fail, are away or refuse writes. The engine suspends or skips such a disk with the reason, retries
 * the disk later, and fails no file.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readlinkSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { setDisk } from '../../src/domain/disks/disks.js';
import { startEngine } from '../../src/engine/runner.js';
import { CallWatch } from '../../src/restore-area/call-watch.js';
import { addDisk, describeDisks } from '../../src/restore-area/setup.js';
import type { FileSystem } from '../../src/restore-area/space.js';
import type { TestApp } from '../support/app.js';
import { type Clock, createClock } from '../support/clock.js';
import { listTree, readDisks, ring, ringUntilSeen } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData, type Edges } from '../support/graphql.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cancel } from '../support/mutations.js';
import { runCli } from '../support/process.js';
import { waitForState, waitThroughPauses } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions, readTries, resume, suspend } from '../support/suspend.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let clock: Clock;
/** Lines of the log. */
let lines: { level: number; msg: string; disk?: string }[] = [];

const log = pino({ level: 'warn' }, { write: (line: string) => lines.push(JSON.parse(line)) });
beforeEach(() => {
  clock = createClock();
  lines = [];
});

const mounted: string[] = [];

/** Mounts a new tmpfs. @returns the mount point, or undefined if mounting is not allowed */
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
afterEach(unmountOwn);
const startFresh = createFreshApp({ now: () => clock.now(), log }); // stops its engine before unmountOwn() runs

const library = createMemoryLibrary();

interface Settings {
  config?: { diskTimeout?: number };
  readFileSystem?: (mountpoint: string) => Promise<FileSystem>;
}

/** Starts an engine, and puts `/<name>/0` and further files on tape. @returns the bytes of each path */
async function start(name: string, count: number, size = 10, { config = {}, readFileSystem }: Settings = {}) {
  const engine = { repairMs: 500, ...(readFileSystem && { readFileSystem }) };
  app = await startFresh({ library, engine, config });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  library.log.length = 0;
  return await tape(name, count, size);
}

async function tape(name: string, count: number, size = 10): Promise<Map<string, Uint8Array>> {
  const files = Array.from({ length: count }, (_, n) => ({ path: `/${name}/${n}`, volume: name, size }));
  return await addTaped(app.ctx, library, files);
}

const ask = (match: string) => makeRequest(app, { quota: 'alice', patterns: match, retention: '2099-01-01' });

const filesIn = (dir: string, name: string) => listTree(dir).filter((file) => file.startsWith(`${name}/`));

const setSize = (mountpoint: string, size: bigint) => setDisk(app.ctx, { mountpoint, size });

const suspendedDisk = (mountpoint: string) =>
  waitFor(`${mountpoint} to be suspended`, async () =>
    (await readSuspensions(app)).find(({ kind, name }) => kind === 'DISK' && name === mountpoint),
  );

/** Waits until all copies are removed, and advances the clock past pauses. */
const waitForRemoval = () =>
  waitFor('the removal of all copies', async () => {
    clock.advance(600);
    return (await readDisks(app)).used === 0n;
  });

const moveAway = () => renameSync(app.restoreDir, `${app.restoreDir}-away`);
const moveBack = () => renameSync(`${app.restoreDir}-away`, app.restoreDir);

test.skipIf(!mayMount)('the files of a disk that turns read-only are put on another one, at once', async () => {
  const mountpoint = mountOwn('size=8m') ?? '';
  await start('ro', 20);
  await addDisk(app.ctx, { mountpoint, size: 10n ** 12n }); // the new disk has the most room
  await setSize(app.restoreDir, 10n ** 6n);
  await waitForState(app, await ask('/ro/0'), 'COMPLETED');
  expect(listTree(mountpoint)).toContain('ro/0');
  execFileSync('mount', ['-o', 'remount,ro', mountpoint]);
  clock.freeze(); // time stands still, so that no pause ends
  await waitForState(app, await ask('/ro/'), 'COMPLETED');
  clock.goOn();
  expect(await suspendedDisk(mountpoint)).toMatchObject({
    mode: 'IMMEDIATE',
    reason: `EROFS: ${mountpoint} is read-only for this process; if systemd runs Tapegate, add ${mountpoint} to ReadWritePaths= and restart Tapegate`,
  });
  expect(filesIn(app.restoreDir, 'ro')).toHaveLength(19);
  expect(lines.filter(({ disk }) => disk === mountpoint)).toHaveLength(1);
});

test.skipIf(!mayMount)('files wait while the only disk fails, and it is resumed when it works', async () => {
  const mountpoint = mountOwn('size=8m') ?? '';
  await start('only', 10);
  await addDisk(app.ctx, { mountpoint, size: 10n ** 9n });
  await setSize(app.restoreDir, 0n);
  await waitForState(app, await ask('/only/0'), 'COMPLETED'); // now the disk has its marker
  execFileSync('mount', ['-o', 'remount,ro', mountpoint]);
  const id = await ask('/only/');
  await suspendedDisk(mountpoint);
  // many more times than a file is tried
  for (let times = 0; times < 10; times++) {
    clock.advance(600);
    await ring(app, 'recall');
    await readSuspensions(app);
  }
  const tries = await waitFor('all files to wait', async () => {
    const all = Object.values(await readTries(app, id)).filter(({ state }) => state !== 'ON_DISK');
    return all.length === 9 && all.every((one) => one.recallState === 'WAITING' && one.lastError) && all;
  });
  const seen = tries.map(({ attempts, lastErrorClass }) => `${attempts} ${lastErrorClass}`);
  expect(seen).toEqual(Array(9).fill('0 TRANSIENT'));
  execFileSync('mount', ['-o', 'remount,rw', mountpoint]);
  await waitThroughPauses(app, clock, id, 'COMPLETED');
  expect(await readSuspensions(app)).toEqual([]);
  const failures = await app.ctx.db.prisma.restoreDisk.findFirst({ where: { mountpoint }, select: { failures: true } });
  expect(failures).toEqual({ failures: 0 });
});

test.skipIf(!mayMount)('an engine suspends a read-only disk when it starts, before any recall', async () => {
  const mountpoint = mountOwn('size=8m') ?? '';
  await start('begin', 1);
  await addDisk(app.ctx, { mountpoint, size: 10n ** 9n });
  execFileSync('mount', ['-o', 'remount,ro', mountpoint]);
  const engine = await startEngine(app.ctx, library, {});
  await engine.stop(0);
  expect(await readSuspensions(app)).toMatchObject([
    { name: mountpoint, reason: expect.stringContaining('read-only for this process') },
  ]);
});

test('a missing disk is suspended, and used at once when an operator resumes it', async () => {
  await start('gone', 5);
  await waitForState(app, await ask('/gone/0'), 'COMPLETED');
  clock.freeze();
  moveAway();
  const id = await ask('/gone/');
  const reason = `the restore disk ${app.restoreDir} does not exist`;
  expect((await suspendedDisk(app.restoreDir)).reason).toBe(reason);
  const { stdout } = await runCli(['disk', 'list'], { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } });
  expect(stdout).toMatch(new RegExp(` suspended: ${reason}$`, 'm'));
  expect(stdout.split(reason)).toHaveLength(2);
  moveBack();
  await resume(app, 'DISK', app.restoreDir);
  await waitForState(app, id, 'COMPLETED');
});

test('a disk that is away is logged once, however many of its copies are to be removed', async () => {
  await start('many', 100);
  const id = await ask('/many/');
  await waitForState(app, id, 'COMPLETED');
  clock.freeze();
  moveAway();
  mkdirSync(app.restoreDir); // as if the disk were not mounted
  lines.length = 0;
  await cancel(app, id);
  await suspendedDisk(app.restoreDir);
  await ringUntilSeen(app, 'event', 'removal');
  expect(lines.map(({ msg }) => msg)).toEqual([expect.stringContaining('restore disk suspended: ')]);
  expect((await readDisks(app)).used).toBe(1000n);
  rmSync(app.restoreDir, { recursive: true });
  moveBack();
  clock.goOn();
  await waitForRemoval();
});

test.each([
  ['IMMEDIATE', 'before'],
  ['DRAINING', 'before'],
  ['DRAINING', 'after'],
  ['IMMEDIATE', 'after'],
] as const)('a disk that is %s by an operator %s it fails is left alone until it works', async (mode, when) => {
  await start('left', 1);
  const id = await ask('/left/');
  await waitForState(app, id, 'COMPLETED');
  const other = path.join(app.dataDir, 'other');
  mkdirSync(other);
  await addDisk(app.ctx, { mountpoint: other, size: 10n ** 6n });
  const takeOut = () => suspend(app, { kind: 'DISK', name: app.restoreDir, mode, reason: 'it is looked into' });
  if (when === 'before') await takeOut();
  lines.length = 0;
  moveAway();
  await cancel(app, id);
  await waitFor('the disk to be known to fail', async () => lines.some(({ disk }) => disk === app.restoreDir));
  if (when === 'after') await takeOut();

  const calls = vi.spyOn(CallWatch.prototype, 'follow');
  await tape('later', 1);
  const later = await ask('/later/');
  await waitForState(app, later, 'COMPLETED');
  await cancel(app, later);
  await waitFor('the other copy to be removed', async () => listTree(other).length === 0);
  const places = calls.mock.calls.map(([place]) => (place.kind === 'disk' ? place.mountpoint : 'tape'));
  calls.mockRestore();
  expect(places).toContain(other);
  expect(places).not.toContain(app.restoreDir);

  moveBack();
  await waitForRemoval();
  expect(await readSuspensions(app)).toMatchObject([{ name: app.restoreDir, mode, reason: 'it is looked into' }]);
});

describe.skipIf(!mayMount)('a full disk', () => {
  const SIZE = 100_000;
  const countReads = () => library.log.filter(({ what }) => what === 'read').length;

  /**
   * Restores a file to the mounted disk while the other disk has no room. Afterwards the engine knows the mounted disk.
   */
  async function restoreFirst(): Promise<void> {
    await setSize(app.restoreDir, 0n);
    await waitForState(app, await ask('/full/0'), 'COMPLETED');
    await setSize(app.restoreDir, 10n ** 9n);
  }

  async function readProblem(mountpoint: string): Promise<string | null> {
    type Disk = { mountpoint: string; problem: string | null };
    const query = '{ restoreDisks(first: 9) { edges { node { mountpoint problem } } } }';
    const { restoreDisks } = await askData<{ restoreDisks: Edges<Disk> }>(app, query);
    return restoreDisks.edges.find(({ node }) => node.mountpoint === mountpoint)?.node.problem ?? null;
  }

  const readDescription = async (mountpoint: string) =>
    (await describeDisks(app.ctx)).find((disk) => disk.mountpoint === mountpoint)?.problem;

  /** Returns the number of seconds for which the disk gets no files. */
  async function readPause(mountpoint: string): Promise<number | undefined> {
    const { rows } = await app.ctx.db.pool.query<{ pause: number }>(
      'SELECT extract(epoch FROM full_until - full_at)::int AS pause FROM restore_disk WHERE mountpoint = $1',
      [mountpoint],
    );
    return rows[0]?.pause;
  }

  async function waitForReasons(id: number, reason: RegExp): Promise<void> {
    await waitFor('the reason why the files wait', async () => {
      const tries = Object.values(await readTries(app, id)).filter(({ state }) => state === 'WAITING');
      const waits = tries.every((file) => file.recallState === 'WAITING' && reason.test(file.lastError ?? ''));
      return tries.length > 0 && waits;
    });
  }

  test('without inodes gets no files, and the next disk does at once', async () => {
    const mountpoint = mountOwn('size=300g,nr_inodes=8') ?? '';
    await start('full', 8, SIZE);
    await addDisk(app.ctx, { mountpoint, size: 250n * 10n ** 9n });
    await restoreFirst();
    clock.freeze(); // no pause ends
    await waitForState(app, await ask('/full/'), 'COMPLETED');
    const [here, there] = [filesIn(mountpoint, 'full'), filesIn(app.restoreDir, 'full')];
    expect(here).toContain('full/0');
    expect(there.length).toBeGreaterThan(0);
    expect([...here, ...there].sort()).toEqual(Array.from({ length: 8 }, (_, n) => `full/${n}`));
  });

  test('without inodes is known by its figures: nothing is read for it, and it is reported', async () => {
    const mountpoint = mountOwn('size=300g,nr_inodes=8') ?? '';
    await start('full', 1, SIZE);
    await addDisk(app.ctx, { mountpoint, size: 250n * 10n ** 9n });
    await setSize(app.restoreDir, 0n);
    const fill = Array.from({ length: 9 }, (_, n) => path.join(mountpoint, `.tapegate-${n}`));
    try {
      for (const file of fill) writeFileSync(file, '');
    } catch {
      // full
    }
    const id = await ask('/full/0');
    const full = 'its file system has no inodes left';
    const room = `no restore disk has room for 100 kB: `;
    await waitForReasons(id, new RegExp(`^${room}.*${mountpoint} is full: ${full}$`));
    expect(Object.values(await readTries(app, id))).toMatchObject([{ attempts: 0, lastErrorClass: 'SPACE' }]);
    expect([countReads(), await readDescription(mountpoint)]).toEqual([0, `full: ${full}`]);
    for (const file of fill.filter(existsSync)) rmSync(file);
    await waitThroughPauses(app, clock, id, 'COMPLETED');
  });

  /**
   * Starts with a disk that takes fewer bytes than its file system reports, as with a quota that statfs() does not
   * show.
   */
  async function startRefusing(): Promise<{ mountpoint: string; ballast: string }> {
    const mountpoint = mountOwn('size=1m') ?? '';
    const readFileSystem = async (name: string) => ({ name, totalBytes: 0n, freeBytes: 10n ** 15n });
    await start('full', 8, SIZE, { readFileSystem });
    await addDisk(app.ctx, { mountpoint, size: 10n ** 12n });
    const ballast = path.join(mountpoint, '.tapegate-ballast');
    writeFileSync(ballast, Buffer.alloc(800_000));
    clock.freeze();
    return { mountpoint, ballast };
  }

  test('that refuses files gets no more of them, whatever its figures say, and another disk does', async () => {
    const { mountpoint } = await startRefusing();
    await restoreFirst();
    await waitForState(app, await ask('/full/'), 'COMPLETED');
    expect(filesIn(mountpoint, 'full').length).toBeLessThan(8);
    expect(filesIn(app.restoreDir, 'full').length).toBeGreaterThan(0);
    for (const read of [readProblem, readDescription]) expect(await read(mountpoint)).toMatch(/^full: ENOSPC/);
  });

  test('that is the only one is tried again after growing pauses, and files wait without a try', async () => {
    const { mountpoint, ballast } = await startRefusing();
    await setSize(app.restoreDir, 0n);
    writeFileSync(ballast, Buffer.alloc(1_000_000));
    const id = await ask('/full/0');
    const reason = new RegExp(`^no restore disk has room for 100 kB: .*${mountpoint} is full: ENOSPC`);
    await waitForReasons(id, reason);
    expect([countReads(), await readProblem(mountpoint)]).toEqual([1, expect.stringMatching(/^full: ENOSPC/)]);
    expect(listTree(mountpoint)).toEqual([path.basename(ballast)]); // no partial file
    const pauses = [await readPause(mountpoint)];
    for (let tried = 2; tried <= 4; tried++) {
      clock.advance((pauses.at(-1) ?? 0) + 1);
      await waitFor(`try ${tried}`, async () => {
        await ring(app, 'room');
        return countReads() === tried;
      });
      await waitForReasons(id, reason);
      pauses.push(await readPause(mountpoint));
    }
    expect(pauses).toEqual([5, 20, 80, 320]);
    expect(Object.values(await readTries(app, id))).toMatchObject([{ attempts: 0, lastErrorClass: 'SPACE' }]);
    rmSync(ballast);
    expect(await resume(app, 'DISK', mountpoint)).toMatchObject({ __typename: 'Suspension', mode: 'DRAINING' });
    await waitForState(app, id, 'COMPLETED');
    expect([countReads(), await readProblem(mountpoint)]).toEqual([5, null]);
    expect(await resume(app, 'DISK', mountpoint)).toMatchObject({ code: 'NOT_FOUND' });
  });

  test.each<[string, (first: number, mountpoint: string) => Promise<unknown>]>([
    ['a copy is removed', (first) => cancel(app, first)],
    ['its allocation changes', (_first, mountpoint) => setSize(mountpoint, 10n ** 11n)],
  ])('gets files again at once when %s', async (_name, makeRoom) => {
    const { mountpoint, ballast } = await startRefusing();
    await setSize(app.restoreDir, 0n);
    const first = await ask('/full/0');
    await waitForState(app, first, 'COMPLETED');
    writeFileSync(ballast, Buffer.alloc(850_000));
    const second = await ask('/full/1');
    await waitForReasons(second, /is full: ENOSPC/);
    rmSync(ballast); // the engine does not notice the freed space
    await makeRoom(first, mountpoint);
    await waitForState(app, second, 'COMPLETED');
  });
});

// the spy identifies a descriptor by its link in /proc, which only Linux has
describe.runIf(process.platform === 'linux')('a disk whose directories cannot be synced', () => {
  /** Called before a directory is synced; may throw or wait. */
  let onSync = async (_dir: string) => {};
  let contents = new Map<string, Uint8Array>();

  beforeEach(async () => {
    contents = await start('deep/er', 8, 1000);
    const handle = await open(app.dataDir);
    const prototype = Object.getPrototypeOf(handle) as FileHandle;
    await handle.close();
    const { sync } = prototype;
    vi.spyOn(prototype, 'sync').mockImplementation(async function (this: FileHandle) {
      await onSync(readlinkSync(`/proc/self/fd/${this.fd}`));
      await sync.call(this);
    });
  });
  afterEach(() => {
    vi.restoreAllMocks();
    onSync = async () => {};
  });

  const isOnDisk = (dir: string) => dir.startsWith(`${app.restoreDir}/`);
  const fault = () => Object.assign(new Error('EIO: i/o error, fsync'), { code: 'EIO' });

  /** Expects each file exactly once on the disks, with its bytes. No other file exists there, and no room is lost. */
  async function expectAll(disks = [app.restoreDir]): Promise<void> {
    await waitFor('nothing to be left behind', async () => {
      clock.advance(60);
      await ring(app, 'event');
      return (await app.ctx.db.prisma.stalePartialFile.count()) === 0;
    });
    const found = disks.flatMap((disk) => filesIn(disk, 'deep/er').map((name) => ({ disk, name })));
    expect(found.map(({ name }) => `/${name}`).sort()).toEqual([...contents.keys()].sort());
    for (const { disk, name } of found) expect(readFileSync(path.join(disk, name))).toEqual(contents.get(`/${name}`));
    expect(await readDisks(app)).toEqual({ used: 8000n, reserved: 0n });
  }

  test.each(['deep/er', 'deep'])('for a while at %s, gets its files again, and none fails', async (dir) => {
    let times = 0;
    onSync = async (synced) => {
      if (synced === path.join(app.restoreDir, dir) && times++ < 2) throw fault();
    };
    await waitThroughPauses(app, clock, await ask('/deep/'), 'COMPLETED');
    expect(times).toBeGreaterThan(2);
    await expectAll();
  });

  test('is suspended, and files are restored on another one', async () => {
    const other = path.join(app.dataDir, 'other');
    mkdirSync(other);
    await setSize(app.restoreDir, 10n ** 6n);
    await addDisk(app.ctx, { mountpoint: other, size: 10n ** 6n }); // the disks are filled in turn
    let isFailing = true;
    onSync = async (dir) => {
      if (isFailing && isOnDisk(dir)) throw fault();
    };
    const held = suspendedDisk(app.restoreDir);
    await waitThroughPauses(app, clock, await ask('/deep/'), 'COMPLETED');
    expect((await held).reason).toContain('EIO');
    isFailing = false;
    await expectAll([app.restoreDir, other]);
    const reads = library.log.filter(({ what }) => what === 'read').map(({ position }) => position);
    const once = reads.filter((position) => reads.indexOf(position) === reads.lastIndexOf(position));
    expect(once.length).toBeGreaterThanOrEqual(4); // more than 4, if the failing disk is suspended before its next turn
  });

  test('because it hangs is suspended, and its files are restored again', async () => {
    const { diskTimeout } = app.ctx.config;
    contents = await start('deep/er', 8, 1000, { config: { diskTimeout: 1 } });
    let hangs = true;
    onSync = async (dir) => {
      if (hangs && isOnDisk(dir)) await new Promise<never>(() => {});
    };
    const id = await ask('/deep/');
    const { reason } = await suspendedDisk(app.restoreDir);
    expect(reason).toBe(`the restore disk ${app.restoreDir} has not answered for 1 s`);
    hangs = false;
    // with the default timeout again: on a busy machine, the disk calls of a drive may take longer than a second
    Object.assign(app.ctx.config, { diskTimeout });
    await resume(app, 'DISK', app.restoreDir);
    await waitThroughPauses(app, clock, id, 'COMPLETED');
    await expectAll();
  });
});
