/** Leases of drives: events that a lease survives, events that end it, and the work that the next engine takes over. */
import { randomUUID } from 'node:crypto';
import { statSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import {
  claimDrive,
  ensureDrives,
  type Lease,
  releaseDrive,
  renewLease,
  setMount,
} from '../../src/domain/recalls/drives.js';
import { finishRecalls, isHeld, recordReady } from '../../src/domain/recalls/ends.js';
import { Confirmations, holdLease, NotHeldError } from '../../src/engine/drive/lease.js';
import { type EngineOptions, startEngine } from '../../src/engine/runner.js';
import { CallWatch } from '../../src/restore-area/call-watch.js';
import { removeUnheld } from '../../src/restore-area/copies/removal.js';
import { claim, idOf, startByHand, withEngine } from '../support/engine-by-hand.js';
import { listTree, readDisks, readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { lock, whileLocked } from '../support/locks.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

const { app, library, tape, ask, place, query } = useMemorySite({ isIdle: true, drives: 1 });
const hooks = { onRead: library.onRead };

/** Starts an engine that abandons its active files at once when it stops. */
const startHasty = (options: EngineOptions = {}) => startEngine(app.ctx, library, { drainMs: 0, ...options });

/** Blocks reads of the second position until `open` is called. */
function holdSecondRead() {
  const gate = createGate();
  library.onRead = async (_volume, position) => {
    if (position === 2n) await gate.opened;
  };
  const begun = () => waitFor('the second read', async () => library.log.some((entry) => entry.position === 2n));
  return { open: gate.open, begun };
}

const countRecalls = (state: 'WAITING' | 'RUNNING') => app.ctx.db.prisma.recall.count({ where: { state } });
const movesOf = async (file: string) => (await readMoves(app, file)).map(({ move }) => move);
const parts = () => listTree(app.restoreDir).filter((name) => name.endsWith('.part'));
const removeCopies = () => removeUnheld(app.ctx, new AbortController().signal);
const readCount = () => library.log.filter((entry) => entry.what === 'read').length;

interface DriveRow {
  engine_id: string | null;
  epoch: bigint;
  lease_until: string | null;
  volume_id: number | null;
  isHeld: boolean;
}

async function readDrive(): Promise<DriveRow> {
  const [drive] = await query<DriveRow>(
    `SELECT engine_id, epoch, lease_until, volume_id, lease_until >= timezone('utc', clock_timestamp()) AS "isHeld"
     FROM drive WHERE id = 1`,
  );
  if (!drive) throw new Error('there is no drive');
  return drive;
}

const endLease = () => query(`UPDATE drive SET lease_until = timezone('utc', now()) - interval '1 second'`);

/** Claims the drive as an engine would. */
async function holdDrive() {
  await endLease(); // ends the lease of the previous test
  const claimedAt = performance.now();
  const lease = await claim(app, 1, 60);
  const calls = new CallWatch({ disk: 60, tape: 60 });
  const { signal: stop } = new AbortController();
  const held = holdLease(app.ctx, lease, { leaseSeconds: 60, claimedAt, stop, held: new Set(), calls });
  onTestFinished(async () => {
    held.endRenewal();
    await endLease();
  });
  return held;
}

test('no partial file is opened once another engine has taken the drive over', async () => {
  const lease = await holdDrive();
  const confirmations = new Confirmations(app.ctx, lease);
  await confirmations.confirmOpening();
  await endLease();
  await claim(app, 1, 60);
  const openings = async () => {
    // one confirmation of the lease covers fewer openings
    for (let n = 0; n <= 32; n++) await confirmations.confirmOpening();
  };
  await expect(openings()).rejects.toThrow(NotHeldError);
  expect(lease.signal.aborted).toBe(true);
});

test('a fresh answer of the database opens no partial file once the lease is lost', async () => {
  const lease = await holdDrive();
  const confirmations = new Confirmations(app.ctx, lease);
  await confirmations.confirmOpening();
  lease.giveUp();
  await expect(confirmations.confirmOpening()).rejects.toThrow(NotHeldError);
});

test('an engine that is stopped returns its files, and the next one restores them', async () => {
  const contents = await tape('/stop/a', '/stop/b');
  const reads = holdSecondRead();
  const id = await ask('/stop/a', '/stop/b');
  const first = await startHasty();
  await reads.begun();
  await first.stop();
  const recalls = `SELECT f.path, f.stage, c.state, c.attempts, c.error FROM recall c JOIN tape_file f ON f.id = c.file_id`;
  expect(await query(recalls)).toEqual([
    { path: '/stop/b', stage: 'ONTAPE', state: 'WAITING', attempts: 0, error: null },
  ]);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'RESTORING', filesOnDisk: 1, filesFailed: 0 });
  expect([parts(), await readDisks(app)]).toEqual([[], { used: 1000n, reserved: 0n }]);
  expect(await readDrive()).toMatchObject({ engine_id: null, volume_id: null, lease_until: null });

  Object.assign(library, hooks);
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
  for (const [file, bytes] of contents) expect(readRestored(app, file)).toEqual(bytes);
  expect(await movesOf('/stop/b')).toEqual(['TA', 'AT', 'TA', 'AR']);
});

test('files that were started ahead of their reading return to the queue when the engine stops', async () => {
  // more files than one batch, so that a second batch starts while the first batch is read
  const files = Array.from({ length: 200 }, (_, n) => ({ path: `/ahead/${n}`, volume: 'AHEAD', size: 10 }));
  await addTaped(app.ctx, library, files);
  const before = await readDisks(app);
  const reads = holdSecondRead();
  const id = await makeRequest(app, { quota: 'alice', patterns: '/ahead/' });
  const first = await startHasty();
  await reads.begun();
  await waitFor('a second batch to start', async () => (await countRecalls('RUNNING')) > 128);
  await first.stop();
  expect([await countRecalls('RUNNING'), await countRecalls('WAITING')]).toEqual([0, 199]);
  expect([parts(), await readDisks(app)]).toEqual([[], { used: before.used + 10n, reserved: 0n }]);
  Object.assign(library, hooks);
  const read = readCount();
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
  expect(readCount() - read).toBe(199);
});

test('an engine that lost its lease writes nothing any more, and overwrites no copy of the next engine', async () => {
  const names = Array.from({ length: 10 }, (_, n) => `/lost/${n}`);
  const contents = await tape(...names);
  const { used } = await readDisks(app);
  const reads = holdSecondRead();
  const id = await ask(...names);
  const slow = await startHasty({ leaseSeconds: 600 });
  await reads.begun();
  await endLease(); // by the engine's own clock, the lease is valid for ten minutes
  Object.assign(library, hooks);
  const other = await startHasty();
  const view = await waitForState(app, id, 'COMPLETED');
  const [moves, inodes] = [await movesOf('/lost/'), names.map((name) => statSync(place(name)).ino)];
  library.log.length = 0;
  reads.open();
  await waitFor('the slow engine to notice', async () => library.log.some((entry) => entry.what === 'unmount'));
  await slow.stop();
  await other.stop();
  expect(await viewRequest(app, id)).toEqual(view);
  expect([await movesOf('/lost/'), names.map((name) => statSync(place(name)).ino)]).toEqual([moves, inodes]);
  expect([parts(), await readDisks(app)]).toEqual([[], { used: used + 10_000n, reserved: 0n }]);
  for (const [file, bytes] of contents) expect(readRestored(app, file)).toEqual(bytes);
  await cancel(app, id);
  expect(await removeCopies()).toBe(10);
});

test('a recall of a dead engine that cannot be recovered blocks neither the other files nor its drive', async () => {
  await tape('/poison/a', '/poison/b');
  await tape('/poison/c');
  const reads = holdSecondRead();
  const id = await ask('/poison/a', '/poison/b');
  const dead = await startHasty({ leaseSeconds: 600 });
  await reads.begun();
  await query(`CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'poisoned'; END $$;
    CREATE TRIGGER poison BEFORE UPDATE OR DELETE ON recall FOR EACH ROW
      WHEN (old.position = 2 AND old.state = 'RUNNING') EXECUTE FUNCTION poison()`);
  await endLease();
  Object.assign(library, hooks);
  const next = await startHasty();
  const other = await ask('/poison/c');
  await waitForState(app, other, 'COMPLETED');
  await waitFor('the other file of the dead engine', async () => (await viewRequest(app, id)).filesOnDisk === 1);
  reads.open();
  await dead.stop();
  await next.stop();
  await query('DROP TRIGGER poison ON recall; DROP FUNCTION poison()');
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
  for (const request of [id, other]) await cancel(app, request);
  expect(await removeCopies()).toBe(3);
});

test('a lease that cannot be renewed ends by its time: running recalls return unchanged, and none starts', async () => {
  const names = ['/ends/1', '/ends/2', '/ends/3'];
  await tape(...names);
  const reads = holdSecondRead();
  const id = await ask(...names);
  const engine = await startHasty({ leaseSeconds: 3 });
  await reads.begun();
  await whileLocked(app, 'SELECT FROM drive FOR UPDATE', async () => {
    await waitFor('both recalls to be given up', async () => {
      const given = await query(`SELECT FROM recall WHERE state = 'WAITING' AND attempts = 0 AND error IS NULL`);
      return given.length === 2;
    });
    reads.open();
    expect(library.log.flatMap(({ position }) => position ?? [])).toEqual([1n, 2n]);
    expect(parts()).toEqual([]);
  });
  expect(await waitForState(app, id, 'COMPLETED')).toMatchObject({ filesOnDisk: 3, filesFailed: 0 });
  await engine.stop();
});

test('a start of recalls that waits for others longer than a lease does not cost the drive', async () => {
  await tape('/waits/a');
  const engine = await startHasty({ leaseSeconds: 1 });
  await waitFor('the drive to be claimed', async () => (await readDrive()).isHeld);
  const id = await whileLocked(app, 'SELECT FROM restore_disk FOR UPDATE', async (waiters) => {
    const made = await ask('/waits/a');
    await waiters(1);
    const before = await readDrive();
    await waitFor('the lease to end, if it were not renewed', async () => {
      const passed = `SELECT WHERE timezone('utc', clock_timestamp()) > $1::timestamp + interval '1 second'`;
      return (await query(passed, [before.lease_until])).length === 1;
    });
    const after = await waitFor('the lease to be renewed', async () => {
      const now = await readDrive();
      return now.isHeld && now;
    });
    expect(after.epoch).toBe(before.epoch);
    return made;
  });
  await waitForState(app, id, 'COMPLETED');
  await engine.stop();
  expect(await movesOf('/waits/')).toEqual(['TA', 'AR']);
});

test('an engine that stalled beyond its lease continues if no other engine has claimed its drive', async () => {
  await tape('/asleep/a');
  const reads = holdReads(library);
  const engine = await startHasty({ leaseSeconds: 1 });
  const id = await ask('/asleep/a');
  await reads.begun();
  const { epoch } = await readDrive();
  // stops this process, including the engine, until more than a second after the lease has expired
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2500);
  await waitFor('the lease to be renewed', async () => (await readDrive()).isHeld);
  reads.open();
  await waitForState(app, id, 'COMPLETED');
  expect((await readDrive()).epoch).toBe(epoch);
  await engine.stop();
  expect(await movesOf('/asleep/')).toEqual(['TA', 'AR']);
});

test('a lease that has ended is renewed unless another engine has the drive, and never waits for a locked row', async () => {
  const lease = await claim(app);
  expect((await readDrive()).isHeld).toBe(false);
  await whileLocked(app, 'SELECT FROM drive FOR UPDATE', async () => {
    expect(await renewLease(app.ctx, lease, 600)).toBe('busy');
  });
  expect(await renewLease(app.ctx, lease, 600)).toBe('renewed');
  expect((await readDrive()).isHeld).toBe(true);
  await endLease();
  const other = await claim(app);
  expect(await renewLease(app.ctx, lease, 600)).toBe('lost');
  expect((await readDrive()).isHeld).toBe(false);
  expect(await renewLease(app.ctx, other, 0)).toBe('renewed');
});

test('a drive reports its read rate with its lease, and none without one', async () => {
  const readRate = async () => {
    type Plan = { plan: { drives: { bytesPerSecond: number | null }[] } };
    return (await askData<Plan>(app, '{ plan { drives { bytesPerSecond } } }')).plan.drives[0]?.bytesPerSecond;
  };
  const lease = await claim(app);
  expect(await renewLease(app.ctx, lease, 600, { rate: 250e6, pace: [] })).toBe('renewed');
  expect(await readRate()).toBe(250e6);
  await releaseDrive(app.ctx, lease);
  expect(await readRate()).toBeNull();
  expect(await renewLease(app.ctx, lease, 600, { rate: 7, pace: [] })).toBe('lost');
  await addTaped(app.ctx, library, [{ path: '/fast/a', volume: 'FAST', size: 5_000_000 }]);
  await ask('/fast/a');
  const look = () => waitFor('a rate', async () => ((await readRate()) ?? 0) > 1000);
  await withEngine(app, library, look, { leaseSeconds: 1 });
});

test('a transaction that stalls loses its locks after a minute, and a slow reader of a list does not', async () => {
  const { pool, streamPool } = app.ctx.db;
  const timeoutOf = async (of: typeof pool) =>
    (await of.query<Record<string, string>>('SHOW idle_in_transaction_session_timeout')).rows[0];
  expect(await timeoutOf(pool)).toEqual({ idle_in_transaction_session_timeout: '1min' });
  expect(await timeoutOf(streamPool)).toEqual({ idle_in_transaction_session_timeout: '0' });
});

// after a database has lost its last transactions, it does not know claims that engines still rely on

async function claimAs(engineId: string): Promise<Lease> {
  const lease = await claimDrive(app.ctx, { engineId, of: { id: 1, name: 'directory', drives: 1 }, leaseSeconds: 600 });
  if (!lease) throw new Error('there is no drive');
  return lease;
}

test('a database that has lost a claim does not assign its epoch again', async () => {
  const { engine_id, epoch, lease_until, volume_id } = await readDrive();
  const lost = await claimAs(randomUUID());
  await waitFor('a millisecond to pass', async () => BigInt(Date.now()) > lost.epoch);
  const restore = 'UPDATE drive SET engine_id = $1, epoch = $2, lease_until = $3, volume_id = $4 WHERE id = 1';
  await query(restore, [engine_id, epoch, lease_until, volume_id]);
  const next = await claimAs(randomUUID());
  expect(next.epoch).toBeGreaterThan(lost.epoch);
  expect(await renewLease(app.ctx, lost, 600)).toBe('lost');
  await releaseDrive(app.ctx, next);
});

test('epochs grow if the clock of the database goes back', async () => {
  const ahead = 8n * 10n ** 17n;
  await query('UPDATE drive SET epoch = $1', [ahead]);
  const lease = await claim(app);
  expect(lease.epoch).toBe(ahead + 1n);
  await releaseDrive(app.ctx, lease);
  await query('UPDATE drive SET epoch = 0');
});

test('if an epoch is assigned twice, its other holder can change nothing', async () => {
  await tape('/twice/a');
  const id = await ask('/twice/a');
  const holder = await claimAs(randomUUID());
  await startByHand(app, holder, ['/twice/a']);
  const other: Lease = { ...holder, engineId: randomUUID() };
  const fileId = await idOf(app, '/twice/a');
  const state = async () => [await readDrive(), await query('SELECT * FROM recall')];
  const before = await state();
  expect(await isHeld(app.ctx, other)).toBe(false);
  expect(await recordReady(app.ctx, other, [{ fileId, ino: 1n, mtimeNs: 1n }])).toEqual(new Set());
  expect(await setMount(app.ctx, other, null)).toBe(false);
  expect(await startByHand(app, other, ['/twice/a'])).toEqual([]);
  expect(await renewLease(app.ctx, other, 1)).toBe('lost');
  await finishRecalls(app.ctx, other, [{ fileId, kind: 'failed', errorClass: 'PERMANENT', error: 'not mine' }]);
  await releaseDrive(app.ctx, other);
  expect(await state()).toEqual(before);
  const unlock = await lock(app, 'SELECT FROM drive FOR UPDATE');
  expect(await renewLease(app.ctx, other, 1)).toBe('lost');
  await unlock();
  await finishRecalls(app.ctx, holder, [{ fileId, kind: 'returned' }]);
  await releaseDrive(app.ctx, holder);
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
});

test('nothing starts on a drive that was given back', async () => {
  await tape('/back/a');
  const id = await ask('/back/a');
  const lease = await claim(app);
  await releaseDrive(app.ctx, lease);
  await query(`UPDATE drive SET volume_id = (SELECT volume_id FROM tape_file WHERE path = '/back/a') WHERE id = 1`);
  expect(await startByHand(app, lease, ['/back/a'])).toEqual([]);
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
});

test('recalls that start while their drive is given back are recovered by an engine with other drives', async () => {
  await ensureDrives(app.ctx, 2);
  await tape('/late/a');
  const id = await ask('/late/a');
  const { used } = await readDisks(app);
  const first = await claim(app, 2, 600);
  const lease = await claim(app, 2, 600);
  expect(lease.driveName).toBe('drive-2');
  const { starting, leaving } = await whileLocked(app, 'SELECT FROM restore_disk FOR UPDATE', async (waiters) => {
    const starting = startByHand(app, lease, ['/late/a']);
    await waiters(1);
    const leaving = releaseDrive(app.ctx, lease); // releases the drive while a recall is starting
    await waiters(2);
    return { starting, leaving };
  });
  await leaving;
  expect(await starting).toHaveLength(1);
  await releaseDrive(app.ctx, first);
  expect([await readStage(app, '/late/a'), await readDisks(app)]).toEqual(['A', { used, reserved: 1000n }]);
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
  expect(await readDisks(app)).toEqual({ used: used + 1000n, reserved: 0n });
});

test('the first live request of an idle site starts the repairs at once', async () => {
  const live = await query<{ id: number }>("SELECT id FROM request WHERE state NOT IN ('EXPIRED', 'CANCELLED')");
  for (const { id } of live) await cancel(app, id);
  await query('DELETE FROM recall'); // recalls that other tests have left to dead engines
  await tape('/orphan', '/next-orphan', '/request');
  const loseRecall = (file: string) => query("UPDATE tape_file SET stage = 'RESTORING' WHERE path = $1", [file]);
  const untilReturned = (file: string) =>
    waitFor(`the return of ${file}`, async () => (await readStage(app, file)) === 'T');
  await loseRecall('/orphan');

  await withEngine(
    app,
    library,
    async () => {
      await untilReturned('/orphan'); // the engine has run the repair once
      await loseRecall('/next-orphan');
      await ask('/request');
      await untilReturned('/next-orphan');
    },
    { repairMs: 3_600_000 },
  );
});
