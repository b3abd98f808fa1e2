import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../../src/errors.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import {
  findIllegalMoves,
  listTree,
  readDisks,
  readMoves,
  readRestored,
  readStage,
  ring,
} from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest, readUsed } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const hooks = { onMount: backend.onMount, onRead: backend.onRead };
const clock = createClock();

beforeAll(async () => {
  app = await startApp({ backend, config: { drives: 1 }, now: clock.now });
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 10_000n);
});
afterEach(() => {
  Object.assign(backend, hooks);
  backend.log.length = 0;
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

async function countRecalls(): Promise<number> {
  return (await app.ctx.db.pool.query('SELECT FROM recall')).rowCount ?? 0;
}

test('a cancelled request that waits is given up: nothing of it is read, and its charge is given back', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/waiting/busy', volume: 'BUSY' },
    { path: '/waiting/never', volume: 'NEVER' },
  ]);
  const reads = holdReads(backend);
  const busy = await makeRequest(app, { quota: 'bob', files: ['/waiting/busy'] });
  await reads.begun();
  const id = await makeRequest(app, { quota: 'alice', files: ['/waiting/never'] });
  expect(await readUsed(app, 'alice')).toBe(1000);
  await cancel(app, id);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'CANCELLED', tapestoreRequestStart: null });
  expect(await readUsed(app, 'alice')).toBe(0);
  expect(await countRecalls()).toBe(1);
  reads.open();
  await waitForState(app, busy, 'COMPLETED');
  await waitFor('the unmount', async () => backend.log.some((entry) => entry.what === 'unmount'));
  expect(backend.log.map((entry) => entry.volume)).not.toContain('NEVER');
  expect(await readMoves(app, '/waiting/never')).toEqual([]);

  await cancel(app, id); // once more changes nothing
  expect(await viewRequest(app, id)).toMatchObject({ state: 'CANCELLED' });
  expect(await readUsed(app, 'alice')).toBe(0);
  await cancel(app, busy);
});

test('a recall that runs when its last request is cancelled is stopped, and its file stays on tape', async () => {
  await addTaped(app.ctx, backend, [{ path: '/running/dir/a', volume: 'RUNNING' }]);
  const reads = holdReads(backend);
  const id = await makeRequest(app, { quota: 'alice', files: ['/running/dir/a'] });
  await reads.begun();
  await cancel(app, id);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'CANCELLED', filesOnDisk: 0, firstFilesOnDisk: null });
  expect(await readUsed(app, 'alice')).toBe(0);
  await waitFor('the file to be back on tape', async () => (await readMoves(app, '/running/')).length === 2);
  reads.open();
  expect((await readMoves(app, '/running/')).map(({ move }) => move)).toEqual(['TA', 'AT']);
  expect(listTree(app.restoreDir).filter((name) => name.endsWith('/a') || name.endsWith('.part'))).toEqual([]);
  await waitFor('earlier copies to go', async () => (await readDisks(app)).used === 0n);
  expect(await readDisks(app)).toEqual({ used: 0n, reserved: 0n });
  expect(await viewRequest(app, id)).toMatchObject({ state: 'CANCELLED', filesOnDisk: 0, firstFilesOnDisk: null });
  expect(await countRecalls()).toBe(0);
});

test('of files that were started ahead of their reading none is read once their request is cancelled', async () => {
  const files = Array.from({ length: 300 }, (_, n) => ({ path: `/ahead/${n}`, volume: 'AHEAD', size: 10 }));
  await addTaped(app.ctx, backend, files);
  const reads = holdReads(backend);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/ahead/' });
  await reads.begun();
  await waitFor('a second batch to be started', async () => (await readMoves(app, '/ahead/')).length > 128);
  await cancel(app, id);
  await waitFor('all recalls to end', async () => (await countRecalls()) === 0);
  reads.open();
  expect(backend.log.filter((entry) => entry.what === 'read' && entry.volume === 'AHEAD').length).toBe(1);
  expect((await readMoves(app, '/ahead/')).map(({ move }) => move).sort()).toEqual([
    ...Array(256).fill('AT'),
    ...Array(256).fill('TA'),
  ]);
  expect(await readDisks(app)).toEqual({ used: 0n, reserved: 0n });
});

test('a recall that runs goes on for the other requests that wait for it', async () => {
  await addTaped(app.ctx, backend, [{ path: '/others/a', volume: 'OTHERS' }]);
  const reads = holdReads(backend);
  const first = await makeRequest(app, { quota: 'alice', files: ['/others/a'] });
  await reads.begun();
  const second = await makeRequest(app, { quota: 'bob', files: ['/others/a'] });
  await cancel(app, first);
  reads.open();
  await waitForState(app, second, 'COMPLETED');
  expect(readRestored(app, '/others/a')).toHaveLength(1000);
  expect(await readStage(app, '/others/a')).toBe('R');
  expect((await viewRequest(app, first)).state).toBe('CANCELLED');
  expect(backend.log.filter((entry) => entry.what === 'read')).toHaveLength(1);
});

test('a recall that fails after its request was cancelled is not tried again', async () => {
  await addTaped(app.ctx, backend, [{ path: '/fails/a', volume: 'FAILS' }]);
  const gate = createGate();
  backend.onRead = async () => {
    await gate.opened;
    throw new TapeError('TRANSIENT', 'try again');
  };
  const id = await makeRequest(app, { quota: 'alice', files: ['/fails/a'] });
  await waitFor('a read', async () => backend.log.some((entry) => entry.what === 'read'));
  await cancel(app, id);
  gate.open();
  await waitFor('the end of the recall', async () => (await countRecalls()) === 0);
  expect(await readStage(app, '/fails/a')).toBe('T');
  expect((await readDisks(app)).reserved).toBe(0n);
});

test('a file that is asked for again while its copy is still to be removed is brought back', async () => {
  await addTaped(app.ctx, backend, [{ path: '/again/a', volume: 'AGAIN' }]);
  for (let round = 0; round < 5; round++) {
    const id = await makeRequest(app, { quota: 'alice', files: ['/again/a'] });
    await waitFor(`round ${round}`, async () => {
      clock.advance(1);
      await ring(app, 'recall');
      return (await viewRequest(app, id)).state === 'COMPLETED';
    });
    expect(readRestored(app, '/again/a')).toHaveLength(1000);
    await cancel(app, id);
  }
});
