/** What operators, and the engine itself, take out of service. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../../src/errors.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions, readTries, resume, suspend } from '../support/suspend.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const hooks = { onMount: backend.onMount, onRead: backend.onRead };

beforeAll(async () => {
  app = await startApp({ backend });
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 10n ** 9n);
});
afterEach(() => {
  Object.assign(backend, hooks);
  backend.log.length = 0;
});
afterAll(() => app.close());

const waitForRead = (volume: string) =>
  waitFor(`a read of ${volume}`, async () => backend.log.find((e) => e.what === 'read' && e.volume === volume));

test('nothing is read from a held volume, and all that waits for it once it is resumed', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/held/a', volume: 'HELD' },
    { path: '/held/b', volume: 'FREE' },
  ]);
  await suspend(app, { kind: 'VOLUME', name: 'HELD', mode: 'HELD', reason: 'it squeaks' });
  const id = await makeRequest(app, { quota: 'alice', patterns: '/held/' });
  await waitFor('the other file', async () => (await viewRequest(app, id)).filesOnDisk === 1);
  expect(backend.log.filter((entry) => entry.volume === 'HELD')).toEqual([]);
  await resume(app, 'VOLUME', 'HELD');
  await waitForState(app, id, 'COMPLETED');
});

test('the files of a held user wait, but for those that another user waits for too', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/user/bob', volume: 'USERS', position: 1n },
    { path: '/user/both', volume: 'USERS', position: 2n },
    { path: '/user/alice', volume: 'USERS', position: 3n },
  ]);
  await suspend(app, { kind: 'USER', name: 'bob', mode: 'HELD', reason: 'too fast' });
  const held = await makeRequest(app, { quota: 'bob', files: ['/user/bob', '/user/both'] });
  const free = await makeRequest(app, { quota: 'alice', files: ['/user/alice', '/user/both'] });
  await waitForState(app, free, 'COMPLETED');
  expect(await readTries(app, held)).toMatchObject({
    '/user/bob': { state: 'WAITING', recallState: 'WAITING', attempts: 0 },
    '/user/both': { state: 'ON_DISK', recallState: null, attempts: null },
  });
  await resume(app, 'USER', 'bob');
  await waitForState(app, held, 'COMPLETED');
});

test('a recall that runs for a held user and for another one goes on', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/shared/both', volume: 'SHARED', position: 1n },
    { path: '/shared/bob', volume: 'SHARED2', position: 1n },
  ]);
  const gate = holdReads(backend);
  const bob = await makeRequest(app, { quota: 'bob', patterns: '/shared/' });
  const alice = await makeRequest(app, { quota: 'alice', files: ['/shared/both'] });
  await Promise.all([waitForRead('SHARED'), waitForRead('SHARED2')]);
  await suspend(app, { kind: 'USER', name: 'bob', mode: 'HELD' });
  // once the one is stopped, the other has been judged as well
  await waitFor('the stop', async () => (await readTries(app, bob))['/shared/bob']?.recallState === 'WAITING');
  expect((await readTries(app, bob))['/shared/both']).toMatchObject({ recallState: 'RUNNING' });
  gate.open();
  await waitForState(app, alice, 'COMPLETED');
  expect(backend.log.filter((e) => e.what === 'read' && e.volume === 'SHARED')).toHaveLength(1);
  await resume(app, 'USER', 'bob');
  await waitForState(app, bob, 'COMPLETED');
});

test('what a held drive was reading goes on on another drive', async () => {
  await addTaped(app.ctx, backend, [{ path: '/drive/a', volume: 'DRIVEN' }]);
  const gate = holdReads(backend);
  const id = await makeRequest(app, { quota: 'alice', files: ['/drive/a'] });
  const { drive } = await waitForRead('DRIVEN');
  await suspend(app, { kind: 'DRIVE', name: drive, mode: 'HELD' });
  const other = await waitFor('another drive', async () =>
    backend.log.find((e) => e.what === 'read' && e.drive !== drive),
  );
  expect(other.volume).toBe('DRIVEN');
  gate.open();
  await waitForState(app, id, 'COMPLETED');
  await resume(app, 'DRIVE', drive);
});

test('a hold stops a mount that has not ended, and that is no try', async () => {
  await addTaped(app.ctx, backend, [{ path: '/mount/a', volume: 'STUCK' }]);
  const gate = createGate();
  backend.onMount = () => gate.opened;
  const id = await makeRequest(app, { quota: 'alice', files: ['/mount/a'] });
  await waitFor('the mount', async () => backend.log.some((entry) => entry.volume === 'STUCK'));
  await suspend(app, { kind: 'VOLUME', name: 'STUCK', mode: 'HELD', reason: 'the arm is stuck' });
  const [tries] = await waitFor('the stop', async () => {
    const all = Object.values(await readTries(app, id));
    return all[0]?.recallState === 'WAITING' && all;
  });
  expect(tries).toMatchObject({ attempts: 0, lastError: null, nextTry: null });
  gate.open();
  await resume(app, 'VOLUME', 'STUCK');
  await waitForState(app, id, 'COMPLETED');
});

test('a drain takes effect in the middle of a long queue: what has not begun yet waits', async () => {
  const files = Array.from({ length: 300 }, (_, n) => ({ path: `/long/${n}`, volume: 'LONG', size: 10 }));
  await addTaped(app.ctx, backend, files);
  const gate = holdReads(backend);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/long/' });
  await waitForRead('LONG');
  await suspend(app, { kind: 'VOLUME', name: 'LONG', mode: 'DRAINING' });
  gate.open();
  await waitFor('the unmount', async () => backend.log.some((e) => e.what === 'unmount' && e.volume === 'LONG'));
  const read = backend.log.filter((entry) => entry.what === 'read').length;
  await waitFor('what had begun', async () => (await viewRequest(app, id)).filesOnDisk === read);
  expect(read).toBeLessThan(files.length);
  const tries = Object.values(await readTries(app, id)).filter(({ recallState }) => recallState !== null);
  expect(new Set(tries.map(({ recallState }) => recallState))).toEqual(new Set(['WAITING']));
  await resume(app, 'VOLUME', 'LONG');
  await waitForState(app, id, 'COMPLETED');
});

test('a volume that cannot be mounted three times is held by the engine with the reason, and no file is given up', async () => {
  await addTaped(app.ctx, backend, [{ path: '/broken/a', volume: 'BROKEN' }]);
  backend.onMount = async (volume) => {
    // a drive may say anything
    if (volume === 'BROKEN') throw new TapeError('MEDIA', 'no signal\n\u0000from the leader');
  };
  const id = await makeRequest(app, { quota: 'alice', files: ['/broken/a'] });
  const [held] = await waitFor('the volume to be held', async () => {
    const all = await readSuspensions(app);
    return all.length > 0 && all;
  });
  expect(held).toEqual({
    kind: 'VOLUME',
    name: 'BROKEN',
    mode: 'HELD',
    reason: 'it could not be mounted 3 times: no signal from the leader',
    since: expect.any(String),
  });
  expect(await readTries(app, id)).toMatchObject({ '/broken/a': { recallState: 'WAITING', attempts: 0 } });
  Object.assign(backend, hooks);
  await resume(app, 'VOLUME', 'BROKEN');
  await waitForState(app, id, 'COMPLETED');
});
