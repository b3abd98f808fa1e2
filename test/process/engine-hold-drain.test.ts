/** Hold and drain of every kind of thing. The engine looks for work only when it is rung for. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { findIllegalMoves, readDisks, readStage, ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { type Mode, readSuspensions, readTries, resume, suspend } from '../support/suspend.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
let gate = createGate();

beforeAll(async () => {
  app = await startApp({ backend, config: { drives: 1 }, engine: { idleMs: 3_600_000 } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
beforeEach(() => {
  gate = createGate();
  backend.onRead = async (_volume, _position, bytes) => {
    await gate.opened;
    return bytes;
  };
});
afterEach(() => {
  gate.open();
  backend.log.length = 0;
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  expect((await readDisks(app)).reserved).toBe(0n);
  await app.close();
});

const nameOf = (kind: string, volume: string): string =>
  ({ VOLUME: volume, DRIVE: 'drive-1', USER: 'alice', DISK: app.restoreDir, BACKEND: 'directory' })[kind] ?? '';

/** A file that is being read, and another one of the same volume that waits. */
async function begin(name: string): Promise<{ volume: string; running: number; waiting: number }> {
  const volume = name.toUpperCase();
  await addTaped(app.ctx, backend, [
    { path: `/${name}/running`, volume },
    { path: `/${name}/waiting`, volume },
  ]);
  const running = await makeRequest(app, { quota: 'alice', files: [`/${name}/running`] });
  await waitFor('the read', async () => backend.log.some((entry) => entry.what === 'read'));
  const waiting = await makeRequest(app, { quota: 'alice', files: [`/${name}/waiting`] });
  return { volume, running, waiting };
}

/** Nothing is mounted or read, however often the engine is woken. */
async function expectIdle(look: () => Promise<unknown>): Promise<void> {
  const before = backend.log.filter((entry) => entry.what === 'read').length;
  for (let times = 0; times < 20; times++) {
    await ring(app, 'recall');
    await look();
  }
  expect(backend.log.filter((entry) => entry.what === 'read')).toHaveLength(before);
}

const KINDS = ['VOLUME', 'DRIVE', 'USER', 'DISK', 'BACKEND'];

test.each(KINDS)(
  'hold of a %s stops what runs, which is no try, begins nothing, and resume wakes the engine',
  async (kind) => {
    const file = `hold-${kind.toLowerCase()}`;
    const { volume, running, waiting } = await begin(file);
    const name = nameOf(kind, volume);
    expect(await suspend(app, { kind, name, mode: 'HELD', reason: 'service' })).toMatchObject({
      kind,
      name,
      mode: 'HELD',
    });
    const tries = await waitFor('the stop', async () => {
      const now = (await readTries(app, running))[`/${file}/running`];
      return now?.recallState === 'WAITING' && now;
    });
    expect(tries).toMatchObject({ state: 'WAITING', attempts: 0 });
    expect(await readStage(app, `/${file}/running`)).toBe('T');
    gate.open();
    await expectIdle(() => viewRequest(app, running));
    expect((await viewRequest(app, running)).state).toBe('RESTORING');
    expect((await viewRequest(app, waiting)).state).toBe('QUEUED');
    await resume(app, kind, name);
    await waitForState(app, running, 'COMPLETED');
    await waitForState(app, waiting, 'COMPLETED');
  },
);

test.each(KINDS)('drain of a %s lets what runs end, begins nothing, and resume wakes the engine', async (kind) => {
  const file = `drain-${kind.toLowerCase()}`;
  const { volume, running, waiting } = await begin(file);
  const name = nameOf(kind, volume);
  await suspend(app, { kind, name, mode: 'DRAINING' });
  // whoever stops recalls has looked by the time that a later hold of something else is obeyed
  await ring(app, 'event');
  expect(await readSuspensions(app)).toMatchObject([{ kind, name, mode: 'DRAINING' }]);
  expect((await readTries(app, running))[`/${file}/running`]).toMatchObject({ recallState: 'RUNNING' });
  gate.open();
  await waitForState(app, running, 'COMPLETED');
  expect(backend.log.filter((entry) => entry.what === 'read')).toHaveLength(1);
  await expectIdle(() => viewRequest(app, waiting));
  const mode = (await viewRequest(app, waiting)).state;
  expect(mode).toBe('QUEUED');
  expect((await readTries(app, waiting))[`/${file}/waiting`]).toMatchObject({ recallState: 'WAITING', attempts: 0 });
  await resume(app, kind, name);
  await waitForState(app, waiting, 'COMPLETED');
});

test.each<Mode>(['HELD', 'DRAINING'])('what waits for the room of a disk that is %s says so', async (mode) => {
  const path = `/room/${mode}`;
  await addTaped(app.ctx, backend, [{ path, volume: `ROOM-${mode}` }]);
  await suspend(app, { kind: 'DISK', name: app.restoreDir, mode });
  const id = await makeRequest(app, { quota: 'alice', files: [path] });
  const tries = await waitFor('the reason', async () => {
    const now = (await readTries(app, id))[path];
    return now?.lastError != null && now;
  });
  expect(tries).toMatchObject({
    nextTry: null, // that is no question of time
    recallState: 'WAITING',
    attempts: 0,
    lastErrorClass: 'SPACE',
    lastError: `no restore disk has room for 1000 bytes: ${app.restoreDir} is ${mode === 'HELD' ? 'held' : 'drained'}`,
  });
  gate.open();
  await resume(app, 'DISK', app.restoreDir);
  await waitForState(app, id, 'COMPLETED');
});
