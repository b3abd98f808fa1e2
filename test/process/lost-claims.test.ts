/** A database that has lost its last transactions knows nothing of claims that engines still go by. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isHeld, noteReady } from '../../src/operations/recalls/confirm.js';
import { claimDrive, giveBackDrive, type Lease, renewLease, setMount } from '../../src/operations/recalls/drives.js';
import { finishRecalls } from '../../src/operations/recalls/ends.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { claim, idOf, startByHand, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves } from '../support/engine-watch.js';
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
  const lease = await claimDrive(app.ctx, { engineId, count: 1, leaseSeconds: 600 });
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
