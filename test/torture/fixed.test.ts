/** Tests of races that the torture test found and that have been fixed. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { UnavailableError } from '../../src/core/errors.js';
import { openDatabase } from '../../src/db/pools.js';
import { importRows } from '../../src/domain/import/import.js';
import { chargeDriveTime, readShares } from '../../src/domain/quotas/shares.js';
import { ensureDrives, type Lease, releaseDrive } from '../../src/domain/recalls/drives.js';
import { finishRecalls } from '../../src/domain/recalls/ends.js';
import { joinUnresolved } from '../../src/domain/requests/joins.js';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { removeUnheld } from '../../src/restore-area/copies/removal.js';
import type { TestApp } from '../support/app.js';
import { claim, idOf, startByHand, startIdleApp } from '../support/engine-by-hand.js';
import { addQuota, addTaped, buildRow } from '../support/factories.js';
import { lock, waitForBlocked } from '../support/locks.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest, readUsed } from '../support/rest.js';

let app: TestApp;
let engine: Engine | undefined;
const library = createMemoryLibrary();

beforeAll(async () => {
  app = await startIdleApp();
});
afterEach(async () => {
  await engine?.stop();
  engine = undefined;
  library.log.length = 0;
});
afterAll(() => app.close());

const work = async () => {
  engine = await startEngine({ ...app.ctx, config: { ...app.ctx.config, drives: 1 } }, library, { drainMs: 200 });
};

const traits = { ino: 1n, mtimeNs: 1n, ctimeNs: null, checksum: null };

test('a connection that ends between two queries fails only the next one', async () => {
  const client = await app.ctx.db.pool.connect();
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  const ended = new Promise<void>((resolve) => client.once('end', () => resolve()));
  await app.ctx.db.pool.query('SELECT pg_terminate_backend($1)', [rows[0]?.pid]);
  await ended; // without a listener, the client's error would end the process
  await expect(client.query('SELECT 1')).rejects.toThrow('the database does not answer');
  client.release(true);
  expect((await app.ctx.db.pool.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
});

test('a query on a closed pool reports that the database does not answer', async () => {
  const db = openDatabase(app.ctx.db.config, { log: app.ctx.log });
  await db.close();
  await expect(db.pool.query('SELECT 1')).rejects.toThrow(UnavailableError);
});

test('files do not join a request that is cancelled while they are imported', async () => {
  const id = await makeRequest(app, { quota: 'alice', files: ['/join/late'] });
  const ends: Promise<unknown>[] = [];
  const unlock = await lock(app, `SELECT FROM request WHERE id = ${id} FOR UPDATE`);
  ends.push(cancel(app, id));
  await waitForBlocked(app, 1);
  ends.push(importRows(app.ctx, [buildRow({ path: '/join/late', volume: 'JOIN' })]));
  await waitForBlocked(app, 2);
  await unlock();
  await Promise.all(ends);
  const { rows } = await app.ctx.db.pool.query('SELECT FROM recall');
  expect({ recalls: rows.length, used: await readUsed(app, 'alice') }).toEqual({ recalls: 0, used: 0 });
  expect(await viewRequest(app, id)).toMatchObject({ state: 'CANCELLED', filesTotal: 0 });
});

test('of two concurrent jobs that let a file join a request, one does it, and the other changes nothing', async () => {
  await addQuota(app.ctx, 'bob', 999n);
  const id = await makeRequest(app, { quota: 'bob', files: ['/join/refused'] });
  await importRows(app.ctx, [buildRow({ path: '/join/refused', position: null })]);
  expect(await viewRequest(app, id)).toMatchObject({ filesTotal: 0, filesRefused: 1 });
  await addQuota(app.ctx, 'bob', 1000n);
  const unlock = await lock(app, `SELECT FROM request WHERE id = ${id} FOR UPDATE`);
  const passes = [joinUnresolved(app.ctx), joinUnresolved(app.ctx)];
  await waitForBlocked(app, 2);
  await unlock();
  await Promise.all(passes);
  expect(await viewRequest(app, id)).toMatchObject({ filesTotal: 1, unresolved: [] });
  expect(await readUsed(app, 'bob')).toBe(1000);
});

test('a request that is cancelled while an import changes the size of its file is charged nothing', async () => {
  const { rows } = await app.ctx.db.pool.query(`SELECT used FROM quota WHERE "user" = 'alice'`);
  await importRows(app.ctx, [buildRow({ path: '/size/grows', stage: 'ONDISK' })]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/size/grows'] });
  const unlock = await lock(app, `SELECT FROM quota WHERE "user" = 'alice' FOR UPDATE`);
  const cancelling = cancel(app, id);
  await waitForBlocked(app, 1);
  const importing = importRows(app.ctx, [buildRow({ path: '/size/grows', stage: 'ONDISK', size: 5000n })]);
  await waitForBlocked(app, 2);
  await unlock();
  await Promise.all([cancelling, importing]);
  expect((await app.ctx.db.pool.query(`SELECT used FROM quota WHERE "user" = 'alice'`)).rows).toEqual(rows);
});

test('a recall that stayed RUNNING on a drive that is no longer used is done on another one', async () => {
  await addTaped(app.ctx, library, [{ path: '/left/drive-3', volume: 'LEFT4' }]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/left/drive-3'] });
  await ensureDrives(app.ctx, 3);
  const leases = [await claim(app, 3, 60), await claim(app, 3, 60), await claim(app, 3)];
  expect(leases.map((lease) => lease.driveName)).toEqual(['drive-1', 'drive-2', 'drive-3']);
  await startByHand(app, leases[2] as Lease, ['/left/drive-3']);
  for (const lease of leases.slice(0, 2)) await releaseDrive(app.ctx, lease);
  await work();
  await waitForState(app, id, 'COMPLETED');
  expect(library.log.map(({ what, drive }) => ({ what, drive }))[0]).toEqual({ what: 'mount', drive: 'drive-1' });
});

test('a request is completed by a recall that starts and ends while the request is created', async () => {
  const [first = '', second = ''] = ['/made/first', '/made/second'];
  await addTaped(app.ctx, library, [
    { path: first, volume: 'MADE', position: 1n },
    { path: second, volume: 'MADE', position: 2n },
  ]);
  await work();
  await waitForState(app, await makeRequest(app, { quota: 'alice', files: [second] }), 'COMPLETED');
  await engine?.stop();
  const early = await makeRequest(app, { quota: 'alice', files: [first] });
  const fileId = await idOf(app, first);
  const lease = await claim(app);
  // the later request is blocked between two reads of its files
  const unlock = await lock(app, `SELECT FROM tape_file WHERE path = '${second}' FOR NO KEY UPDATE`);
  const late = makeRequest(app, { quota: 'alice', files: [first, second] });
  await waitForBlocked(app, 1);
  const started = await startByHand(app, lease, [first]);
  if (started.length > 0) await finishRecalls(app.ctx, lease, [{ fileId, kind: 'restored', ...traits }]);
  await unlock();
  await releaseDrive(app.ctx, lease);
  await work();
  await waitForState(app, await late, 'COMPLETED');
  await waitForState(app, early, 'COMPLETED');
});

test('a file is removed from disk if its only request was created and cancelled while its recall ended', async () => {
  await addTaped(app.ctx, library, [{ path: '/end/brief', volume: 'BRIEF' }]);
  const first = await makeRequest(app, { quota: 'alice', files: ['/end/brief'] });
  const fileId = await idOf(app, '/end/brief');
  const lease = await claim(app);
  await startByHand(app, lease, ['/end/brief']);
  await cancel(app, first);
  // the recall's end has read the requests, and waits for the file
  const unlockFile = await lock(app, `SELECT FROM tape_file WHERE id = ${fileId} FOR SHARE`);
  const ended = finishRecalls(app.ctx, lease, [{ fileId, kind: 'restored', ...traits }]);
  await waitForBlocked(app, 1);
  const brief = await makeRequest(app, { quota: 'alice', files: ['/end/brief'] });
  const unlockRequestFile = await lock(app, `SELECT FROM request_file WHERE request_id = ${brief} FOR UPDATE`);
  await unlockFile();
  await waitForBlocked(app, 1);
  const cancelled = cancel(app, brief);
  await Promise.race([cancelled, waitForBlocked(app, 2)]);
  await removeUnheld(app.ctx, new AbortController().signal);
  await unlockRequestFile();
  await Promise.all([ended, cancelled]);
  await removeUnheld(app.ctx, new AbortController().signal);
  const { rows } = await app.ctx.db.pool.query('SELECT stage, disk_id FROM tape_file WHERE id = $1', [fileId]);
  expect(rows).toEqual([{ stage: 'ONTAPE', disk_id: null }]);
});

test('drive time is charged to users in one order, so that two engines do not deadlock', async () => {
  const users = ['u1', 'u2', 'u3', 'u4', 'u5', 'u6', 'u7', 'u8'];
  for (const user of users) await addQuota(app.ctx, user, 10n ** 9n);
  const file = { path: '/charge/shared', volume: 'CHARGE', position: null };
  await importRows(app.ctx, [buildRow(file)]);
  for (const quota of users) await makeRequest(app, { quota, files: ['/charge/shared'] });
  await addQuota(app.ctx, 'u1', 10n ** 10n); // an update moves the row to the end of a scan
  const unlock = await lock(app, `SELECT FROM quota WHERE "user" = 'u1' FOR UPDATE`);
  const charging = chargeDriveTime(app.ctx, { fileIds: [await idOf(app, '/charge/shared')], seconds: 8 });
  await waitForBlocked(app, 1);
  // the charge waits for its first lock, and holds no other lock yet
  await app.ctx.db.pool.query(`SELECT FROM quota WHERE "user" LIKE 'u%' AND "user" <> 'u1' FOR UPDATE NOWAIT`);
  await unlock();
  await charging;
  const shares = await readShares(app.ctx);
  expect(users.map((user) => Math.round(shares.get(user) ?? 0))).toEqual(users.map(() => 1));
});
