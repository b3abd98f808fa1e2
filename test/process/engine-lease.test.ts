/** What a lease outlives, and what ends it. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { startEngine } from '../../src/engine/runner.js';
import { giveBackDrive, renewLease } from '../../src/operations/recalls/drives.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { claim } from '../support/engine-by-hand.js';
import { findIllegalMoves, readMoves } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { whileLocked } from '../support/locks.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const hooks = { onRead: backend.onRead };

beforeAll(async () => {
  app = await startApp({ config: { drives: 1 } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(() => {
  Object.assign(backend, hooks);
  backend.log.length = 0;
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

interface DriveRow {
  epoch: bigint;
  leaseUntil: string;
  isHeld: boolean;
}

async function readDrive(): Promise<DriveRow> {
  const { rows } = await app.ctx.db.pool.query<DriveRow>(
    `SELECT epoch, lease_until AS "leaseUntil", lease_until >= timezone('utc', clock_timestamp()) AS "isHeld" FROM drive`,
  );
  const [drive] = rows;
  if (!drive) throw new Error('there is no drive');
  return drive;
}

/** Waits until a lease would have run out, had nobody renewed it, and for as long again. */
async function outlive({ leaseUntil }: DriveRow, leaseSeconds: number): Promise<void> {
  await waitFor('a lease to run out', async () => {
    const { rowCount } = await app.ctx.db.pool.query(
      `SELECT WHERE timezone('utc', clock_timestamp()) > $1::timestamp + make_interval(secs => $2)`,
      [leaseUntil, leaseSeconds],
    );
    return rowCount === 1;
  });
}

test('a start that waits for others for longer than a lease costs the drive nothing', async () => {
  await addTaped(app.ctx, backend, [{ path: '/waits/a', volume: 'WAITS' }]);
  const engine = await startEngine(app.ctx, backend, { drainMs: 0, leaseSeconds: 1 });
  await waitFor('the drive to be claimed', async () => (await readDrive()).isHeld);
  const id = await whileLocked(app, 'SELECT FROM restore_disk FOR UPDATE', async (waiters) => {
    const made = await makeRequest(app, { quota: 'alice', patterns: '/waits/' });
    await waiters(1);
    const before = await readDrive();
    await outlive(before, 1);
    expect(await readDrive()).toMatchObject({ epoch: before.epoch, isHeld: true });
    return made;
  });
  await waitForState(app, id, 'COMPLETED');
  await engine.stop();
  expect((await readMoves(app, '/waits/')).map(({ move }) => move)).toEqual(['TA', 'AR']);
});

test('a lease that has run out is renewed, unless somebody else has taken the drive', async () => {
  const lease = await claim(app);
  expect((await readDrive()).isHeld).toBe(false);
  expect(await renewLease(app.ctx, lease, 600)).toBe('renewed');
  expect((await readDrive()).isHeld).toBe(true);
  await app.ctx.db.pool.query(`UPDATE drive SET lease_until = timezone('utc', now()) - interval '1 second'`);
  const other = await claim(app);
  expect(await renewLease(app.ctx, lease, 600)).toBe('lost');
  expect((await readDrive()).isHeld).toBe(false);
  expect(await renewLease(app.ctx, other, 0)).toBe('renewed');
});

test('with its lease a drive says how fast it reads, and who has none says nothing', async () => {
  const readRate = async () => {
    const { plan } = await askData<{ plan: { drives: { rate: number | null }[] } }>(
      app,
      '{ plan { drives { rate } } }',
    );
    return plan.drives[0]?.rate;
  };
  await app.ctx.db.pool.query(`UPDATE drive SET lease_until = timezone('utc', now()) - interval '1 second'`);
  const lease = await claim(app);
  expect(await renewLease(app.ctx, lease, 600, 250e6)).toBe('renewed');
  expect(await readRate()).toBe(250e6);
  await giveBackDrive(app.ctx, lease);
  expect(await readRate()).toBeNull();
  expect(await renewLease(app.ctx, lease, 600, 7)).toBe('lost');
  const engine = await startEngine(app.ctx, backend, { drainMs: 0, leaseSeconds: 1 });
  await addTaped(app.ctx, backend, [{ path: '/fast/a', volume: 'FAST', size: 5_000_000 }]);
  await makeRequest(app, { quota: 'alice', patterns: '/fast/' });
  await waitFor('a rate', async () => ((await readRate()) ?? 0) > 1000);
  await engine.stop();
});

test('a lease is not renewed while somebody else has the row of the drive, and nothing waits for that', async () => {
  const lease = await claim(app);
  await whileLocked(app, 'SELECT FROM drive FOR UPDATE', async () => {
    expect(await renewLease(app.ctx, lease, 600)).toBe('busy');
  });
  expect(await renewLease(app.ctx, lease, 0)).toBe('renewed');
});

test('an engine that stood still for longer than its lease goes on where nobody has taken its drive', async () => {
  await addTaped(app.ctx, backend, [{ path: '/asleep/a', volume: 'ASLEEP' }]);
  const [begun, gate] = [createGate(), createGate()];
  backend.onRead = async (_volume, _position, bytes) => {
    begun.open();
    await gate.opened;
    return bytes;
  };
  const engine = await startEngine(app.ctx, backend, { drainMs: 0, leaseSeconds: 1 });
  const id = await makeRequest(app, { quota: 'alice', patterns: '/asleep/' });
  await begun.opened;
  const before = await readDrive();
  // this whole process stands still, and the engine is in it
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4000);
  await waitFor('the lease to be renewed', async () => (await readDrive()).isHeld);
  gate.open();
  await waitForState(app, id, 'COMPLETED');
  expect((await readDrive()).epoch).toBe(before.epoch);
  await engine.stop();
  expect((await readMoves(app, '/asleep/')).map(({ move }) => move)).toEqual(['TA', 'AR']);
});

test('a lease that cannot be renewed ends by its time, and what was in hand goes back as it was', async () => {
  await addTaped(app.ctx, backend, [{ path: '/ends/a', volume: 'ENDS' }]);
  const [begun, gate] = [createGate(), createGate()];
  backend.onRead = async (_volume, _position, bytes) => {
    begun.open();
    await gate.opened;
    return bytes;
  };
  const engine = await startEngine(app.ctx, backend, { drainMs: 0, leaseSeconds: 1 });
  const id = await makeRequest(app, { quota: 'alice', patterns: '/ends/' });
  await begun.opened;
  await whileLocked(app, 'SELECT FROM drive FOR UPDATE', async () => {
    // the tape still holds the file back: only the lease can have ended the recall
    await waitFor('the recall to be given up', async () => {
      const { rowCount } = await app.ctx.db.pool.query(
        `SELECT FROM recall WHERE state = 'WAITING' AND attempts = 0 AND error IS NULL`,
      );
      return rowCount === 1;
    });
  });
  gate.open();
  expect(await waitForState(app, id, 'COMPLETED')).toMatchObject({ filesFailed: 0 });
  expect(await viewRequest(app, id)).toMatchObject({ filesOnDisk: 1 });
  await engine.stop();
});
