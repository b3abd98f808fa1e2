/** A database that has lost its last transactions knows nothing of claims that engines still go by. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startEngine } from '../../src/engine/runner.js';
import { isHeld, noteReady } from '../../src/operations/recalls/confirm.js';
import {
  claimDrive,
  ensureDrives,
  giveBackDrive,
  type Lease,
  renewLease,
  setMount,
} from '../../src/operations/recalls/drives.js';
import { finishRecalls } from '../../src/operations/recalls/ends.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { claim, idOf, startByHand, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, readDisks, readStage } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { whileLocked } from '../support/locks.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startIdleApp();
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

const sql = (text: string, values: unknown[] = []) => app.ctx.db.pool.query(text, values);

interface DriveRow {
  engine_id: string | null;
  epoch: bigint;
  lease_until: string | null;
  volume_id: number | null;
}

async function readDrive(): Promise<DriveRow> {
  return (await sql('SELECT engine_id, epoch, lease_until, volume_id FROM drive WHERE id = 1')).rows[0];
}

/** As if the database were one of then. */
async function writeDrive(drive: DriveRow): Promise<void> {
  const values = [drive.engine_id, drive.epoch, drive.lease_until, drive.volume_id];
  await sql('UPDATE drive SET engine_id = $1, epoch = $2, lease_until = $3, volume_id = $4 WHERE id = 1', values);
}

async function claimAs(engineId: string): Promise<Lease> {
  const lease = await claimDrive(app.ctx, { engineId, of: { id: 1, name: 'directory', drives: 1 }, leaseSeconds: 600 });
  if (!lease) throw new Error('there is no drive');
  return lease;
}

test('an epoch that was given is not given again by a database that has forgotten the claim', async () => {
  const before = await readDrive();
  const lost = await claimAs(randomUUID());
  await waitFor('a millisecond to pass', async () => BigInt(Date.now()) > lost.epoch);
  await writeDrive(before);
  const next = await claimAs(randomUUID());
  expect(next.epoch).toBeGreaterThan(lost.epoch);
  expect(await renewLease(app.ctx, lost, 600)).toBe('lost');
  await giveBackDrive(app.ctx, next);
});

test('epochs grow, whatever the clock of the database says', async () => {
  const ahead = 8n * 10n ** 17n; // it went back by a long time
  await sql('UPDATE drive SET epoch = $1', [ahead]);
  const lease = await claim(app);
  expect(lease.epoch).toBe(ahead + 1n);
  await giveBackDrive(app.ctx, lease);
  await sql('UPDATE drive SET epoch = 0');
});

test('where an epoch is given twice all the same, what its other holder says changes nothing', async () => {
  await addTaped(app.ctx, backend, [{ path: '/twice/a', volume: 'TWICE' }]);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/twice/' });
  const holder = await claimAs(randomUUID());
  await startByHand(app, holder, ['/twice/a']);
  const other: Lease = { ...holder, engineId: randomUUID() };
  const fileId = await idOf(app, '/twice/a');
  const state = async () => [await readDrive(), (await sql('SELECT * FROM recall')).rows];
  const before = await state();
  expect(await isHeld(app.ctx, other)).toBe(false);
  expect(await noteReady(app.ctx, other, [{ fileId, ino: 1n, mtimeNs: 1n }])).toEqual(new Set());
  expect(await setMount(app.ctx, other, null)).toBe(false);
  expect(await startByHand(app, other, ['/twice/a'])).toEqual([]);
  expect(await renewLease(app.ctx, other, 1)).toBe('lost');
  await finishRecalls(app.ctx, other, [{ fileId, kind: 'failed', errorClass: 'PERMANENT', error: 'not mine' }]);
  await giveBackDrive(app.ctx, other);
  expect(await state()).toEqual(before);
  await whileLocked(app, 'SELECT FROM drive FOR UPDATE', async () => {
    expect(await renewLease(app.ctx, other, 1)).toBe('lost');
  });
  await finishRecalls(app.ctx, holder, [{ fileId, kind: 'returned' }]);
  await giveBackDrive(app.ctx, holder);
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
});

test('recalls that start just after their drive was given back are put in order by an engine with other drives', async () => {
  await ensureDrives(app.ctx, 2);
  await addTaped(app.ctx, backend, [{ path: '/late/a', volume: 'LATE' }]);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/late/' });
  const { used } = await readDisks(app);
  const first = await claim(app, 2, 600);
  const lease = await claim(app, 2, 600);
  expect(lease.driveName).toBe('drive-2');
  const { starting, leaving } = await whileLocked(app, 'SELECT FROM restore_disk FOR UPDATE', async (waiters) => {
    const starting = startByHand(app, lease, ['/late/a']);
    await waiters(1);
    const leaving = giveBackDrive(app.ctx, lease); // its engine waits for no start
    await waiters(2);
    return { starting, leaving };
  });
  await leaving;
  expect(await starting).toHaveLength(1);
  await giveBackDrive(app.ctx, first);
  expect([await readStage(app, '/late/a'), await readDisks(app)]).toEqual(['A', { used, reserved: 1000n }]);
  app.ctx.config.drives = 1;
  const engine = await startEngine(app.ctx, backend, { drainMs: 1000 });
  await waitForState(app, id, 'COMPLETED');
  await engine.stop();
  expect(await readDisks(app)).toEqual({ used: used + 1000n, reserved: 0n });
});

test('nothing starts on a drive that was given back', async () => {
  await addTaped(app.ctx, backend, [{ path: '/back/a', volume: 'BACK' }]);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/back/' });
  const lease = await claim(app);
  await giveBackDrive(app.ctx, lease);
  const volume = await sql(`SELECT id FROM volume WHERE name = 'BACK'`);
  await sql('UPDATE drive SET volume_id = $1 WHERE id = 1', [volume.rows[0].id]);
  expect(await startByHand(app, lease, ['/back/a'])).toEqual([]);
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
});
