import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { addDisk } from '../../src/engine/disk/setup.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { findIllegalMoves, listTree, readDisks, readRestored } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest, put } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startApp({ backend });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

async function readRecall(file: string) {
  const { rows } = await app.ctx.db.pool.query(
    `SELECT c.state, c.error_class, c.error, c.attempts FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE f.path = $1`,
    [file],
  );
  return rows[0];
}

const sizes = (first: number, second: number, third: number) => [
  { path: '/space/1', volume: 'SPACE', position: 1n, size: first },
  { path: '/space/2', volume: 'SPACE', position: 2n, size: second },
  { path: '/space/3', volume: 'SPACE', position: 3n, size: third },
];

test('a recall without room on a disk waits and says so, holds up no smaller one, and runs once there is room', async () => {
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 1500n });
  await addTaped(app.ctx, backend, sizes(1000, 501, 500));
  const first = await makeRequest(app, { quota: 'alice', files: ['/space/1'] });
  await waitForState(app, first, 'COMPLETED');
  const second = await makeRequest(app, { quota: 'alice', files: ['/space/2'] });
  const waiting = {
    state: 'WAITING',
    error_class: 'SPACE',
    error: `no restore disk has room for 501 bytes: ${app.restoreDir} has 500 of its allocation of 1500 bytes left`,
    attempts: 0,
  };
  await waitFor('the recall to say so', async () => (await readRecall('/space/2'))?.error_class === 'SPACE');
  expect(await readRecall('/space/2')).toEqual(waiting);
  expect(await viewRequest(app, second)).toMatchObject({
    state: 'QUEUED',
    filesFailed: 0,
    tapestoreRequestStart: null,
  });
  const third = await makeRequest(app, { quota: 'alice', files: ['/space/3'] });
  await waitForState(app, third, 'COMPLETED');
  expect(await readDisks(app)).toEqual({ used: 1500n, reserved: 0n });
  expect(listTree(app.restoreDir)).toEqual(['space', 'space/1', 'space/3']);

  await put(app, first, { quota: 'alice', retention: '2020-01-01' });
  // at once, not when the pause between two looks is over
  await waitFor('the recall', async () => (await viewRequest(app, second)).state === 'COMPLETED', 10_000);
  expect(await readDisks(app)).toEqual({ used: 1001n, reserved: 0n });
  expect(listTree(app.restoreDir)).toEqual(['space', 'space/2', 'space/3']);
  for (const id of [second, third]) await cancel(app, id);
  await waitFor('the copies to go', async () => (await readDisks(app)).used === 0n);
});

test('room that is reserved for a recall is not given to another one', async () => {
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 1000n });
  await addTaped(app.ctx, backend, [
    { path: '/reserve/1', volume: 'RESERVE-1', size: 600 },
    { path: '/reserve/2', volume: 'RESERVE-2', size: 600 },
  ]);
  const read = backend.onRead;
  let most = 0n;
  backend.onRead = async (_volume, _position, bytes) => {
    const { used, reserved } = await readDisks(app);
    if (used + reserved > most) most = used + reserved;
    return bytes;
  };
  const id = await makeRequest(app, { quota: 'alice', patterns: '/reserve/' });
  const view = await waitFor('one file to come and the other to wait', async () => {
    const now = await viewRequest(app, id);
    const { rowCount } = await app.ctx.db.pool.query(`SELECT FROM recall WHERE error_class = 'SPACE'`);
    return now.filesOnDisk === 1 && rowCount === 1 && now;
  });
  expect(view).toMatchObject({ state: 'RESTORING', filesFailed: 0 });
  expect(most).toBe(600n);
  backend.onRead = read;
  await cancel(app, id);
  await waitFor('the copy to go', async () => (await readDisks(app)).used === 0n);
});

test('files go to the disk with the most room', async () => {
  const other = path.join(app.dataDir, 'other');
  mkdirSync(other);
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 1000n });
  await addDisk(app.ctx, { mountpoint: other, size: 1500n });
  await addTaped(app.ctx, backend, [
    { path: '/even/1', volume: 'EVEN', position: 1n, size: 800 },
    { path: '/even/2', volume: 'EVEN', position: 2n, size: 400 },
    { path: '/even/3', volume: 'EVEN', position: 3n, size: 700 },
    { path: '/even/4', volume: 'EVEN', position: 4n, size: 600 },
  ]);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/even/' });
  // 1 leaves 700 on the other disk, 2 leaves 600 here, 3 goes to the other one again, 4 fits here exactly
  await waitForState(app, id, 'COMPLETED');
  expect(listTree(other)).toEqual(['even', 'even/1', 'even/3']);
  expect(listTree(app.restoreDir)).toEqual(['even', 'even/2', 'even/4']);
  expect(readRestored(app, '/even/2')).toHaveLength(400);
});
