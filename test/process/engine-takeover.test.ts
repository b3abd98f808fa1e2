import { statSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { removeUnheld } from '../../src/engine/disk/removal.js';
import { startEngine } from '../../src/engine/runner.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { findIllegalMoves, listTree, readDisks, readMoves, readRestored } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
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

/** Lets the tape give one file and then nothing for as long as the gate is closed. */
function holdSecondRead() {
  const gate = createGate();
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 2n) await gate.opened;
    return bytes;
  };
  const begun = () => waitFor('the second read', async () => backend.log.some((entry) => entry.position === 2n));
  return { open: gate.open, begun };
}

async function countRecalls(state: 'WAITING' | 'RUNNING'): Promise<number> {
  return await app.ctx.db.prisma.recall.count({ where: { state } });
}

const parts = () => listTree(app.restoreDir).filter((name) => name.endsWith('.part'));

test('an engine that stops in the middle gives its files back, and the next one finishes', async () => {
  const contents = await addTaped(app.ctx, backend, [
    { path: '/stop/a', volume: 'STOP', position: 1n },
    { path: '/stop/b', volume: 'STOP', position: 2n },
  ]);
  const reads = holdSecondRead();
  const id = await makeRequest(app, { quota: 'alice', patterns: '/stop/' });
  const first = await startEngine(app.ctx, backend, { drainMs: 0 });
  await reads.begun();
  await first.stop();
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path, f.stage, c.state, c.attempts, c.error FROM recall c JOIN tape_file f ON f.id = c.file_id`,
  );
  expect(rows).toEqual([{ path: '/stop/b', stage: 'ONTAPE', state: 'WAITING', attempts: 0, error: null }]);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'RESTORING', filesOnDisk: 1, filesFailed: 0 });
  expect([parts(), await readDisks(app)]).toEqual([[], { used: 1000n, reserved: 0n }]);
  const free = await app.ctx.db.pool.query('SELECT engine_id, volume_id, lease_until FROM drive');
  expect(free.rows).toEqual([{ engine_id: null, volume_id: null, lease_until: null }]);

  Object.assign(backend, hooks);
  const second = await startEngine(app.ctx, backend);
  await waitForState(app, id, 'COMPLETED');
  await second.stop();
  for (const [file, bytes] of contents) expect(readRestored(app, file)).toEqual(bytes);
  expect((await readMoves(app, '/stop/b')).map(({ move }) => move)).toEqual(['TA', 'AT', 'TA', 'AR']);
});

test('files that were started ahead of their reading go back into the queue when the engine stops', async () => {
  // more than a drive starts together, so that a second batch is started while the first one is read
  const files = Array.from({ length: 300 }, (_, n) => ({ path: `/ahead/${n}`, volume: 'AHEAD', size: 10 }));
  await addTaped(app.ctx, backend, files);
  const before = await readDisks(app);
  const reads = holdSecondRead();
  const id = await makeRequest(app, { quota: 'alice', patterns: '/ahead/' });
  const first = await startEngine(app.ctx, backend, { drainMs: 0 });
  await reads.begun();
  await waitFor('a second batch to be started', async () => (await countRecalls('RUNNING')) > 128);
  await first.stop();
  expect([await countRecalls('RUNNING'), await countRecalls('WAITING')]).toEqual([0, 299]);
  expect([parts(), await readDisks(app)]).toEqual([[], { used: before.used + 10n, reserved: 0n }]);

  Object.assign(backend, hooks);
  backend.log.length = 0;
  const second = await startEngine(app.ctx, backend);
  await waitForState(app, id, 'COMPLETED');
  await second.stop();
  expect(backend.log.filter((entry) => entry.what === 'read').length).toBe(299);
});

test('an engine that lost its lease changes nothing any more, while another one does its work', async () => {
  const contents = await addTaped(app.ctx, backend, [
    { path: '/lease/a', volume: 'LEASE', position: 1n },
    { path: '/lease/b', volume: 'LEASE', position: 2n },
  ]);
  const before = await readDisks(app);
  const reads = holdSecondRead();
  const id = await makeRequest(app, { quota: 'alice', patterns: '/lease/' });
  const slow = await startEngine(app.ctx, backend, { drainMs: 0, leaseSeconds: 600 });
  await reads.begun();
  await waitFor('the first file to be in place', async () => parts().length === 1);
  // as if it had stood still for longer than its lease
  await app.ctx.db.pool.query(`UPDATE drive SET lease_until = timezone('utc', now()) - interval '1 second'`);
  Object.assign(backend, hooks);
  const other = await startEngine(app.ctx, backend, { drainMs: 0 });
  const view = await waitForState(app, id, 'COMPLETED');
  const done = await readMoves(app, '/lease/');
  reads.open(); // now the slow one reads to the end as well
  await waitFor(
    'the slow one to notice',
    async () => backend.log.filter((entry) => entry.what === 'unmount').length === 2,
  );
  await slow.stop();
  await other.stop();
  expect(await viewRequest(app, id)).toEqual(view);
  expect(await readMoves(app, '/lease/')).toEqual(done);
  expect(parts()).toEqual([]);
  expect(await readDisks(app)).toEqual({ used: before.used + 2000n, reserved: 0n });
  for (const [file, bytes] of contents) expect(readRestored(app, file)).toEqual(bytes);
  await cancel(app, id);
  expect(await removeUnheld(app.ctx, new AbortController().signal)).toBe(2);
  expect(listTree(app.restoreDir)).not.toContain('lease'); // they are the copies that the other one put there
});

test('an engine whose clocks stood still writes nothing any more, and overwrites no copy of the one after it', async () => {
  const files = Array.from({ length: 40 }, (_, n) => ({
    path: `/paused/${n}`,
    volume: 'PAUSED',
    position: BigInt(n + 1),
  }));
  const contents = await addTaped(app.ctx, backend, files);
  const reads = holdSecondRead();
  const id = await makeRequest(app, { quota: 'alice', patterns: '/paused/' });
  const slow = await startEngine(app.ctx, backend, { drainMs: 0, leaseSeconds: 600 });
  await reads.begun();
  // by its own clock its lease holds for ten minutes
  await app.ctx.db.pool.query(`UPDATE drive SET lease_until = timezone('utc', now()) - interval '1 second'`);
  Object.assign(backend, hooks);
  const other = await startEngine(app.ctx, backend, { drainMs: 0 });
  await waitForState(app, id, 'COMPLETED');
  const inodes = () => files.map((file) => statSync(path.join(app.restoreDir, file.path)).ino);
  const before = inodes();
  backend.log.length = 0;
  reads.open();
  await waitFor('the slow one to notice', async () => backend.log.some((entry) => entry.what === 'unmount'));
  await slow.stop();
  await other.stop();
  expect(inodes()).toEqual(before);
  expect(parts()).toEqual([]);
  for (const [file, bytes] of contents) expect(readRestored(app, file)).toEqual(bytes);
  await cancel(app, id);
  expect(await removeUnheld(app.ctx, new AbortController().signal)).toBe(40);
});

test('a recall of a dead engine that cannot be put in order keeps neither the others nor its drive from work', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/poison/a', volume: 'POISON', position: 1n },
    { path: '/poison/b', volume: 'POISON', position: 2n },
    { path: '/poison/c', volume: 'FINE', position: 1n },
  ]);
  const reads = holdSecondRead();
  const id = await makeRequest(app, { quota: 'alice', files: ['/poison/a', '/poison/b'] });
  const dead = await startEngine(app.ctx, backend, { drainMs: 0, leaseSeconds: 600 });
  await reads.begun();
  const { pool } = app.ctx.db;
  await pool.query(`CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'poisoned'; END $$;
    CREATE TRIGGER poison BEFORE UPDATE OR DELETE ON recall FOR EACH ROW
      WHEN (old.position = 2 AND old.state = 'RUNNING') EXECUTE FUNCTION poison();
    UPDATE drive SET lease_until = timezone('utc', now()) - interval '1 second'`);
  Object.assign(backend, hooks);
  const next = await startEngine(app.ctx, backend, { drainMs: 0 });
  const other = await makeRequest(app, { quota: 'alice', files: ['/poison/c'] });
  await waitForState(app, other, 'COMPLETED');
  await waitFor('the other file of the dead engine', async () => (await viewRequest(app, id)).filesOnDisk === 1);
  reads.open();
  await dead.stop();
  await next.stop();
  await pool.query('DROP TRIGGER poison ON recall; DROP FUNCTION poison()');
  const last = await startEngine(app.ctx, backend, { drainMs: 0 });
  await waitForState(app, id, 'COMPLETED');
  await last.stop();
  for (const request of [id, other]) await cancel(app, request);
  expect(await removeUnheld(app.ctx, new AbortController().signal)).toBe(3);
});

test('an engine that may have lost its lease begins no further file', async () => {
  await addTaped(
    app.ctx,
    backend,
    [1n, 2n, 3n].map((position) => ({ path: `/still/${position}`, volume: 'STILL', position })),
  );
  const reads = holdSecondRead();
  const id = await makeRequest(app, { quota: 'alice', patterns: '/still/' });
  const engine = await startEngine(app.ctx, backend, { drainMs: 0, leaseSeconds: 1 });
  await reads.begun();
  const client = await app.ctx.db.pool.connect();
  await client.query('BEGIN');
  await client.query('SELECT FROM drive FOR UPDATE'); // its lease cannot be renewed
  await waitFor('the lease to run out', async () => {
    const { rowCount } = await client.query(`SELECT FROM drive WHERE lease_until < timezone('utc', clock_timestamp())`);
    return rowCount === 1;
  });
  reads.open();
  await waitFor('both files to be given up', async () => {
    const { rowCount } = await app.ctx.db.pool.query(`SELECT FROM recall WHERE state = 'WAITING' AND attempts = 0`);
    return rowCount === 2;
  });
  expect(backend.log.flatMap(({ position }) => position ?? [])).toEqual([1n, 2n]);
  expect(parts()).toEqual([]);
  await client.query('ROLLBACK');
  client.release();
  await waitForState(app, id, 'COMPLETED');
  await engine.stop();
});

test('who stands still in a transaction loses its locks after a while; a slow reader of a list does not', async () => {
  const timeoutOf = async (pool: typeof app.ctx.db.pool) =>
    (await pool.query<Record<string, string>>('SHOW idle_in_transaction_session_timeout')).rows[0];
  expect(await timeoutOf(app.ctx.db.pool)).toEqual({ idle_in_transaction_session_timeout: '1min' });
  expect(await timeoutOf(app.ctx.db.streamPool)).toEqual({ idle_in_transaction_session_timeout: '0' });
  // the same at once, by hand: the transaction is over, and what it had locked is free
  const holder = await app.ctx.db.pool.connect();
  holder.on('error', () => {}); // its connection is ended
  await holder.query(`BEGIN; SET LOCAL idle_in_transaction_session_timeout = 1; LOCK TABLE restore_disk`);
  expect(
    (await app.ctx.db.pool.query('SELECT count(*) FROM (SELECT FROM restore_disk FOR SHARE) locked')).rowCount,
  ).toBe(1);
  await expect(holder.query('COMMIT')).rejects.toThrow();
  holder.release(true);
});
