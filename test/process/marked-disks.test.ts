/** Restore disks as engines of several hosts see them: markers, free space, and disks that a host does not see. */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { listDisks, recordMeasurements } from '../../src/domain/disks/disks.js';
import { recordMarked } from '../../src/domain/disks/markings.js';
import { type Engine, type EngineOptions, startEngine } from '../../src/engine/runner.js';
import { AbsentError, markerName, prepareMarker } from '../../src/restore-area/marker.js';
import { ensureMarked } from '../../src/restore-area/setup.js';
import { DiskGauge, readFileSystem } from '../../src/restore-area/space.js';
import { ownerName } from '../../src/tape/directory/index.js';
import type { TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { withEngine } from '../support/engine-by-hand.js';
import { listTree, readDisks, ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData, type Edges } from '../support/graphql.js';
import { waitForBlocked } from '../support/locks.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cancel } from '../support/mutations.js';
import { runCli } from '../support/process.js';
import { viewRequest, waitForState, waitThroughPauses } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const library = createMemoryLibrary();
const clock = createClock();
const start = createFreshApp({ now: clock.now });

beforeEach(async () => {
  app = await start();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  const files = Array.from({ length: 8 }, (_, n) => ({ path: `/disk/${n}`, volume: `V${n % 3}`, size: 10 }));
  await addTaped(app.ctx, library, files);
});

const query = async <Row extends object>(sql: string, values: unknown[] = []) =>
  (await app.ctx.db.pool.query<Row>(sql, values)).rows;

const ask = (match = '/disk/') => makeRequest(app, { quota: 'alice', patterns: match, retention: '2099-01-01' });
const completes = (id: number) => waitThroughPauses(app, clock, id, 'COMPLETED');
const suspendedDisk = () => waitFor('the disk to be suspended', async () => (await readSuspensions(app))[0]);

/** Restores a file and waits until its copy is removed, so that the disk is empty. */
async function useOnce(): Promise<void> {
  await withEngine(app, library, async () => {
    const id = await ask('/disk/0');
    await waitForState(app, id, 'COMPLETED');
    await cancel(app, id);
    await waitFor('the removal of the copy', async () => (await readDisks(app)).used === 0n);
  });
}

const moveAway = () => renameSync(app.restoreDir, `${app.restoreDir}-away`);
const moveBack = () => renameSync(`${app.restoreDir}-away`, app.restoreDir);

/** Leaves an empty directory at the mount point, as if the disk were not mounted. */
function unmount(): void {
  moveAway();
  mkdirSync(app.restoreDir);
}

function mountAgain(): void {
  rmSync(app.restoreDir, { recursive: true });
  moveBack();
}

async function findDisk(): Promise<{ id: number; mountpoint: string }> {
  const [disk] = await listDisks(app.ctx);
  if (!disk) throw new Error('there is no disk');
  return disk;
}

/** Removes the recorded markers, as if an older version had used the disks. */
const forgetMarkers = () => query('UPDATE restore_disk SET marked_at = NULL, marked_as = NULL');

const expectUnmarked = async () => {
  expect(await ensureMarked(app.ctx, await findDisk())).toContain('lost its marker');
  expect(readdirSync(app.restoreDir)).toEqual([]);
};

test('an empty disk that is away when an engine starts is not marked again, and files wait for it', async () => {
  await useOnce();
  unmount();
  await withEngine(app, library, async () => {
    const id = await ask();
    const reason = `the restore disk ${app.restoreDir} is not mounted, or lost its marker`;
    expect((await suspendedDisk()).reason).toContain(reason);
    expect(readdirSync(app.restoreDir)).toEqual([]);
    mountAgain();
    await completes(id);
  });
  expect(listTree(app.restoreDir).filter((name) => name.startsWith('disk/'))).toHaveLength(8);
  expect(await readSuspensions(app)).toEqual([]);
});

test('a disk that is registered while an engine works is marked by the engine', async () => {
  await useOnce();
  const fresh = path.join(app.dataDir, 'fresh');
  mkdirSync(fresh);
  await withEngine(app, library, async () => {
    await query('INSERT INTO restore_disk (mountpoint, size) VALUES ($1, 1000000)', [fresh]);
    await waitFor('the marker', async () => existsSync(path.join(fresh, markerName)));
    await query('UPDATE restore_disk SET size = 0 WHERE mountpoint <> $1', [fresh]);
    await completes(await ask());
  });
  expect(listTree(fresh)).toHaveLength(9);
});

test('a process that marks a disk at the same time as another one puts the recorded marker in place', async () => {
  await useOnce();
  rmSync(path.join(app.restoreDir, markerName));
  await forgetMarkers();
  const { id, mountpoint } = await findDisk();
  const name = await prepareMarker({ diskId: id, mountpoint });
  const other = await app.ctx.db.pool.connect();
  await other.query('BEGIN');
  await other.query('UPDATE restore_disk SET marked_at = now(), marked_as = $1', [name]);
  const met = ensureMarked(app.ctx, { id, mountpoint });
  await waitForBlocked(app, 1);
  await other.query('COMMIT');
  other.release();
  expect(await met).toBeUndefined();
  expect(readdirSync(mountpoint).filter((name) => name.startsWith(markerName) && name !== ownerName)).toEqual([
    markerName,
  ]);
});

test('a process that measures a disk does not mark it', async () => {
  await useOnce();
  unmount();
  await expect(new DiskGauge({ group: undefined }).readSpace(await findDisk())).rejects.toThrow('lost its marker');
  await expectUnmarked();
});

test('an operator marks the replacement of a disk, which is used then', async () => {
  await useOnce();
  unmount();
  const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  const add = ['disk', 'add', app.restoreDir, '--size', '1G'];
  const refused = await runCli(add, { env });
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('disk add --mark creates it') });
  expect(readdirSync(app.restoreDir)).toEqual([]);
  await query('UPDATE restore_disk SET folds_names = true');
  expect(await runCli([...add, '--mark'], { env })).toMatchObject({ code: 0 });
  expect(await query('SELECT folds_names AS folds FROM restore_disk')).toEqual([{ folds: false }]);
  await withEngine(app, library, async () => waitForState(app, await ask(), 'COMPLETED'));
});

test('a disk that an older version has marked is used, and recorded as marked', async () => {
  await useOnce();
  await forgetMarkers();
  await useOnce();
  unmount();
  await expectUnmarked();
});

test.each([
  ['a changed copy', `UPDATE tape_file SET stage = 'UNVERIFIED', changed_disk_id = $1`],
  ['a copy that is to be removed', `UPDATE tape_file SET disk_id = $1`],
  [
    'a file that a recall has left',
    'INSERT INTO stale_partial_file (file_id, disk_id, drive_id, epoch, size) SELECT f.id, $1, d.id, 1, 10 FROM tape_file f, drive d',
  ],
])('a disk without a recorded marker is not marked while %s is recorded and missing', async (_what, record) => {
  await useOnce();
  await forgetMarkers();
  const disk = await findDisk();
  await query(record, [disk.id]);
  unmount();
  expect(await ensureMarked(app.ctx, disk)).toContain('its recorded copies are missing');
  expect(readdirSync(app.restoreDir)).toEqual([]);
});

test('of two hosts that meet a new disk at the same time one marks it, and the other one finds it missing', async () => {
  await useOnce();
  await forgetMarkers();
  unmount();
  const disk = await findDisk();
  expect(await recordMarked(app.ctx, disk.id, `${markerName}-of-the-other`)).toBe(true);
  expect(await recordMarked(app.ctx, disk.id, 'late')).toBe(false);
  await expectUnmarked();
  // the other host was killed before it put its marker in place
  const content = `${JSON.stringify({ disk: disk.id, mountpoint: disk.mountpoint })}\n`;
  writeFileSync(path.join(`${app.restoreDir}-away`, `${markerName}-of-the-other`), content);
  rmSync(path.join(`${app.restoreDir}-away`, markerName));
  mountAgain();
  expect(await ensureMarked(app.ctx, disk)).toBeUndefined();
  expect(existsSync(path.join(app.restoreDir, markerName))).toBe(true);
});

describe('with engines on two hosts, a disk', () => {
  let engines: Engine[] = [];
  /** Hosts on which the disk is not mounted. */
  const blind = new Set<string>();

  afterEach(async () => {
    await Promise.all(engines.map((engine) => engine.stop()));
    engines = [];
    blind.clear();
  });

  async function startHost(host: string): Promise<void> {
    const look = async (mountpoint: string) => {
      if (blind.has(host)) throw new AbsentError(`nothing is mounted on host ${host}`);
      return await readFileSystem(mountpoint);
    };
    engines.push(await startEngine(app.ctx, library, { host, readFileSystem: look, drainMs: 200, measureMs: 200 }));
  }

  /** Waits until each host has checked the disk. */
  async function waitForLooks(...hosts: string[]): Promise<void> {
    await waitFor(`a look of ${hosts}`, async () => {
      const rows = await query<{ host: string; isSeen: boolean }>(
        'SELECT host, problem IS NULL AS "isSeen" FROM disk_measurement',
      );
      return hosts.every((host) => rows.some((row) => row.host === host && row.isSeen !== blind.has(host)));
    });
  }

  test('that one host does not see stays in service: that host leaves its drives to the other one', async () => {
    await startHost('two'); // host two has all drives
    await waitForLooks('two');
    blind.add('two');
    await startHost('one');
    await waitForLooks('one', 'two');
    await waitForState(app, await ask(), 'COMPLETED');
    expect(await readSuspensions(app)).toEqual([]);
    const problems = await query(`SELECT problem FROM disk_measurement WHERE host = 'two'`);
    expect(problems).toEqual([{ problem: 'nothing is mounted on host two' }]);
  });

  test('that no host sees is suspended, and resumed as soon as one of them sees it', async () => {
    await startHost('one');
    await startHost('two');
    await waitForLooks('one', 'two');
    blind.add('one').add('two');
    await waitForLooks('one', 'two');
    const id = await ask();
    expect((await suspendedDisk()).reason).toContain('nothing is mounted on host');
    blind.delete('one');
    await waitFor('the files', async () => {
      clock.advance(1); // far less than the minute for which the checks of both hosts are valid
      await ring(app, 'recall');
      return (await viewRequest(app, id)).state === 'COMPLETED';
    });
    await waitFor('the end of the suspension', async () => (await readSuspensions(app)).length === 0);
  });
});

describe('the free space of a disk', () => {
  const FREE = 20_000_000_000_000_001n; // too large for a double
  const system = { name: 'one', totalBytes: 2n * FREE, freeBytes: FREE };

  interface Seen {
    free: string | null;
    problem: string | null;
  }
  const unknown: Seen = { free: null, problem: null };

  async function readDisk(): Promise<Seen | undefined> {
    type Disks = { restoreDisks: Edges<Seen> };
    const { restoreDisks } = await askData<Disks>(app, '{ restoreDisks { edges { node { free problem } } } }');
    return restoreDisks.edges[0]?.node;
  }

  const waitForSeen = (isIt: (seen: Seen) => boolean) =>
    waitFor('another measurement', async () => {
      const seen = await readDisk();
      return seen && isIt(seen) && seen;
    });
  const measured = () => waitForSeen(({ free }) => free !== null);

  const withLooks = (read: EngineOptions['readFileSystem'], work: () => Promise<unknown>) =>
    withEngine(app, library, work, { measureMs: 50, ...(read && { readFileSystem: read }) });

  test('is reported for a minute after an engine has measured it', async () => {
    await withLooks(async () => system, measured);
    clock.advance(50);
    expect(await readDisk()).toEqual({ free: String(FREE), problem: null });
    clock.advance(15);
    expect(await readDisk()).toEqual(unknown);
  });

  test('is unknown while the disk is away, and the host that misses it is named', async () => {
    await withLooks(undefined, async () => {
      expect(BigInt((await measured()).free ?? 0)).toBeGreaterThan(0n);
      moveAway();
      const problem = `${hostname()}: the restore disk ${app.restoreDir} does not exist`;
      expect(await waitForSeen((seen) => seen.problem !== null)).toEqual({ free: null, problem });
      moveBack();
      await waitForSeen((seen) => seen.problem === null);
    });
  });

  test('is the least that a host reports, beside what each host misses', async () => {
    await withLooks(async () => system, measured);
    const { id: diskId } = await findDisk();
    await recordMeasurements(app.ctx, 'zeta', [{ diskId, free: 7n, problem: null }]);
    await recordMeasurements(app.ctx, 'eta', [{ diskId, free: null, problem: 'the disk is\nnot there' }]);
    expect(await readDisk()).toEqual({ free: '7', problem: 'eta: the disk is not there' });
    const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
    const list = async () => JSON.parse((await runCli(['disk', 'list', '--json'], { env })).stdout);
    expect(await list()).toMatchObject({ free: expect.any(Number), problem: 'eta: the disk is not there' });
    moveAway();
    expect(await list()).toMatchObject({ free: 7, problem: `the restore disk ${app.restoreDir} does not exist` });
  });

  test('is unknown while the disk hangs, which is suspended for that', async () => {
    Object.assign(app.ctx.config, { diskTimeout: 1 });
    const hangs = () => new Promise<never>(() => {});
    await withLooks(hangs, async () => {
      await suspendedDisk();
      const problem = `the restore disk ${app.restoreDir} has not answered for 1 s`;
      expect(await readDisk()).toEqual({ free: null, problem });
    });
  });
});
