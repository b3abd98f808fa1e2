/**
 * Circuit breakers of volumes and staging libraries: their failure counts, the time of the next try, and their resets.
 */
import { expect, test } from 'vitest';
import type { Sql } from '../../src/db/sql.js';
import { transaction } from '../../src/db/transaction.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { type MeasureDisks, measureDisks, reserve } from '../../src/domain/disks/reservations.js';
import { closeCircuit, countFailures, openCircuit, trialSeconds } from '../../src/domain/health/circuits.js';
import { returnDisk, suspendDisk } from '../../src/domain/health/failing-disks.js';
import { resume, suspend } from '../../src/domain/health/suspensions.js';
import { ensureStager, readRests } from '../../src/domain/staging/stagers.js';
import { addFiles } from '../support/factories.js';
import { waitForBlocked } from '../support/locks.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const app = useApp();

const FAR = '2099-01-01T00:00:00.000000';
const CLOSED = { failures: 0, failing_since: null, retry_at: null, problem: null };

async function addVolume(name: string): Promise<number> {
  await addFiles(app.ctx, [{ path: `/circuits/${name}`, volume: name }]);
  const { rows } = await app.ctx.db.pool.query<{ id: number }>('SELECT id FROM volume WHERE name = $1', [name]);
  return rows[0]?.id ?? 0;
}

async function readVolume(id: number) {
  const columns = 'failures, failing_since, retry_at, problem';
  return (await app.ctx.db.pool.query(`SELECT ${columns} FROM volume WHERE id = $1`, [id])).rows[0];
}

test('failures of a volume are counted from the first until it works', async () => {
  const circuit = { of: 'volume', id: await addVolume('CIRCUIT1') } as const;
  await openCircuit(app.ctx, circuit, { until: FAR, problem: 'torn' });
  const first = await readVolume(circuit.id);
  expect(first).toMatchObject({ failures: 1, problem: 'torn' });
  await openCircuit(app.ctx, circuit, { until: FAR, problem: 'torn again' });
  expect(await readVolume(circuit.id)).toEqual({ ...first, failures: 2, problem: 'torn again' });
  expect(await countFailures(app.ctx, circuit)).toBe(2);
  await closeCircuit(app.ctx, circuit);
  expect(await readVolume(circuit.id)).toEqual(CLOSED);
});

test('a volume that is resumed may be tried at once', async () => {
  const circuit = { of: 'volume', id: await addVolume('CIRCUIT2') } as const;
  await openCircuit(app.ctx, circuit, { until: FAR, problem: 'torn' });
  await suspend(app.ctx, { kind: 'VOLUME', name: 'CIRCUIT2', mode: 'IMMEDIATE', reason: '' });
  await resume(app.ctx, { kind: 'VOLUME', name: 'CIRCUIT2' });
  expect(await readVolume(circuit.id)).toEqual(CLOSED);
});

test('a failing disk is suspended and retried together, whatever happens meanwhile', async () => {
  const { pool } = app.ctx.db;
  const { mountpoint } = await setDisk(app.ctx, { mountpoint: '/mnt/circuits', size: 10n });
  const read = async () => {
    const disk = "SELECT EXISTS (SELECT FROM suspension WHERE kind = 'DISK'), retry_at IS NOT NULL AS retried";
    return (await pool.query(`${disk} FROM restore_disk WHERE mountpoint = $1`, [mountpoint])).rows[0];
  };
  await suspendDisk(app.ctx, mountpoint, 'gone');
  await pool.query("DELETE FROM suspension WHERE kind = 'DISK'");
  await suspendDisk(app.ctx, mountpoint, 'gone');
  expect(await read()).toEqual({ exists: true, retried: true });
  // another engine suspends the disk again after the first statement
  const query = async (statement: Sql) => {
    const answer = await pool.query(statement);
    await suspendDisk(app.ctx, mountpoint, 'late');
    return answer;
  };
  const late = { query, connect: () => pool.connect() };
  await returnDisk({ ...app.ctx, db: Object.create(app.ctx.db, { pool: { value: late } }) }, mountpoint);
  expect(await read()).toEqual({ exists: true, retried: true });
  await suspend(app.ctx, { kind: 'DISK', name: mountpoint, mode: 'IMMEDIATE', reason: '' });
  await returnDisk(app.ctx, mountpoint);
  expect(await read()).toEqual({ exists: true, retried: false });
});

test('calls and reads of a library rest each for itself, and a failure that is not counted keeps the pause as it is', async () => {
  await ensureStager(app.ctx, 1);
  const [calls, reads] = [{ of: 'calls', id: 1 } as const, { of: 'reads', id: 1 } as const];
  await openCircuit(app.ctx, calls, { until: FAR, problem: 'busy', isCounted: false });
  await openCircuit(app.ctx, reads, { until: FAR, problem: 'away' });
  const rests = await readRests(app.ctx, 1);
  expect(rests).toMatchObject({ failures: 0, readFailures: 1 });
  expect([rests.restUntil, rests.readRestUntil]).not.toContain(null);
  await closeCircuit(app.ctx, calls);
  expect(await readRests(app.ctx, 1)).toMatchObject({ restUntil: null, readFailures: 1 });
  await closeCircuit(app.ctx, reads);
  expect(await readRests(app.ctx, 1)).toMatchObject({ readRestUntil: null, readFailures: 0 });
});

test('pauses grow fourfold from 5 seconds to 10 minutes', () => {
  expect([0, 1, 2, 3, 4, 100].map(trialSeconds)).toEqual([5, 20, 80, 320, 600, 600]);
});

test('a recall that finds a disk suspended is checked again if the disk was resumed meanwhile', async () => {
  const { pool } = app.ctx.db;
  const { mountpoint } = await setDisk(app.ctx, { mountpoint: '/mnt/resumed', size: 10n });
  await suspend(app.ctx, { kind: 'DISK', name: mountpoint, mode: 'IMMEDIATE', reason: '' });
  const measure: MeasureDisks = async (disks) =>
    new Map(disks.map(({ id }) => [id, { freeBytes: 10n, fileSystem: mountpoint }]));
  const seen = await measureDisks(app.ctx, measure);
  const signals: string[] = [];
  const unlisten = app.ctx.events.onNotify('room', () => signals.push('room'));
  const resuming = await pool.connect();
  await resuming.query('BEGIN');
  await resuming.query('SELECT FROM restore_disk FOR UPDATE');
  await resuming.query("DELETE FROM suspension WHERE kind = 'DISK' AND name = $1", [mountpoint]);
  const reserving = transaction(pool, 'test', (tx) => reserve(app.ctx, tx, [{ fileId: 0n, size: 10n }], seen));
  await waitForBlocked(app, 1);
  await resuming.query('COMMIT');
  resuming.release();
  expect(await reserving).toEqual([]);
  await waitFor('the signal', async () => signals.length > 0);
  unlisten();
});
