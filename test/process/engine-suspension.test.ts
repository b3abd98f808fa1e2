/**
 * Suspended and draining volumes, drives, users, disks and libraries. In these tests engines check for work only when
 * notified.
 */
import { afterAll, expect, test } from 'vitest';
import { readDisks, readStage, ring, ringUntilSeen } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { useMemorySite } from '../support/memory-site.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { type Mode, readSuspensions, readTries, resume, suspend } from '../support/suspend.js';
import { createGate, waitFor } from '../support/wait.js';

const { app, library, ask } = useMemorySite({ users: ['alice', 'bob'], engine: { idleMs: 3_600_000 } });

afterAll(async () => {
  expect((await readDisks(app)).reserved).toBe(0n);
});

const requestAs = (quota: string, fields: object) => makeRequest(app, { quota, retention: '2099-01-01', ...fields });

const waitForRead = (volume: string) =>
  waitFor(`a read of ${volume}`, async () => library.log.find((e) => e.what === 'read' && e.volume === volume));

const countReads = () => library.log.filter((entry) => entry.what === 'read').length;

const KINDS = ['VOLUME', 'DRIVE', 'USER', 'DISK', 'LIBRARY'];

const namesOf = (kind: string, volume: string): string[] =>
  ({
    VOLUME: [volume],
    DRIVE: ['drive-1', 'drive-2'],
    USER: ['alice'],
    DISK: [app.restoreDir],
    LIBRARY: ['directory'],
  })[kind] ?? [];

/** Requests two files of one volume, and waits until the first file is being read. */
async function begin(name: string) {
  const gate = holdReads(library);
  const [running, waiting] = [`/${name}/running`, `/${name}/waiting`];
  await addTaped(app.ctx, library, [
    { path: running, volume: name },
    { path: waiting, volume: name },
  ]);
  const first = await ask(running);
  await waitForRead(name);
  return { gate, running, waiting, first, second: await ask(waiting) };
}

/** Expects that the drives check for work and read nothing. */
async function expectIdle(): Promise<void> {
  const before = countReads();
  await ringUntilSeen(app, 'recall', 'drives');
  expect(countReads()).toBe(before);
}

test.each(KINDS)('suspending a %s stops recalls, which is no try, and resuming starts them again', async (kind) => {
  const volume = `HELD-${kind}`;
  const { gate, running, first, second } = await begin(volume);
  for (const name of namesOf(kind, volume)) {
    const suspension = await suspend(app, { kind, name, mode: 'IMMEDIATE', reason: 'service' });
    expect(suspension).toMatchObject({ kind, name, mode: 'IMMEDIATE' });
  }
  const tries = await waitFor('the stop', async () => {
    const now = (await readTries(app, first))[running];
    return now?.recallState === 'WAITING' && now;
  });
  expect(tries).toMatchObject({ state: 'WAITING', attempts: 0 });
  expect(await readStage(app, running)).toBe('T');
  gate.open();
  await expectIdle();
  expect((await viewRequest(app, first)).state).toBe('RESTORING');
  expect((await viewRequest(app, second)).state).toBe('QUEUED');
  for (const name of namesOf(kind, volume)) await resume(app, kind, name);
  for (const id of [first, second]) await waitForState(app, id, 'COMPLETED');
});

test.each(KINDS)('draining a %s finishes running recalls and starts none, until it is resumed', async (kind) => {
  const volume = `DRAINED-${kind}`;
  const { gate, running, waiting, first, second } = await begin(volume);
  for (const name of namesOf(kind, volume)) await suspend(app, { kind, name, mode: 'DRAINING' });
  await ring(app, 'event');
  expect((await readSuspensions(app)).map(({ name, mode }) => `${name} ${mode}`)).toEqual(
    namesOf(kind, volume).map((name) => `${name} DRAINING`),
  );
  expect((await readTries(app, first))[running]).toMatchObject({ recallState: 'RUNNING' });
  gate.open();
  await waitForState(app, first, 'COMPLETED');
  expect(countReads()).toBe(1);
  await expectIdle();
  expect((await viewRequest(app, second)).state).toBe('QUEUED');
  expect((await readTries(app, second))[waiting]).toMatchObject({ recallState: 'WAITING', attempts: 0 });
  for (const name of namesOf(kind, volume)) await resume(app, kind, name);
  await waitForState(app, second, 'COMPLETED');
});

test.each<Mode>(['IMMEDIATE', 'DRAINING'])('a file that waits for room on a %s disk reports it', async (mode) => {
  const path = `/room/${mode}`;
  await addTaped(app.ctx, library, [{ path, volume: `ROOM-${mode}` }]);
  await suspend(app, { kind: 'DISK', name: app.restoreDir, mode });
  const id = await ask(path);
  const tries = await waitFor('the reason', async () => {
    const now = (await readTries(app, id))[path];
    return now?.lastError != null && now;
  });
  expect(tries).toMatchObject({
    nextTryAt: null, // the next try depends on room, not on time
    recallState: 'WAITING',
    attempts: 0,
    lastErrorClass: 'SPACE',
    lastError: `no restore disk has room for 1.00 kB: ${app.restoreDir} is ${mode === 'IMMEDIATE' ? 'suspended' : 'draining'}`,
  });
  await resume(app, 'DISK', app.restoreDir);
  await waitForState(app, id, 'COMPLETED');
});

test('the files of a suspended user wait, except those that another user requests too', async () => {
  const files = ['bob', 'both', 'alice'].map((name, n) => ({ path: `/user/${name}`, position: BigInt(n + 1) }));
  await addTaped(
    app.ctx,
    library,
    files.map((file) => ({ ...file, volume: 'USERS' })),
  );
  await suspend(app, { kind: 'USER', name: 'bob', mode: 'IMMEDIATE', reason: 'too fast' });
  const held = await requestAs('bob', { files: ['/user/bob', '/user/both'] });
  await waitForState(app, await ask('/user/alice', '/user/both'), 'COMPLETED');
  expect(await readTries(app, held)).toMatchObject({
    '/user/bob': { state: 'WAITING', recallState: 'WAITING', attempts: 0 },
    '/user/both': { state: 'ON_DISK', recallState: null, attempts: null },
  });
  await resume(app, 'USER', 'bob');
  await waitForState(app, held, 'COMPLETED');
});

test('a recall for a suspended user and for another one is not stopped', async () => {
  await addTaped(app.ctx, library, [
    { path: '/shared/both', volume: 'SHARED' },
    { path: '/shared/bob', volume: 'SHARED2' },
  ]);
  const gate = holdReads(library);
  const bob = await requestAs('bob', { patterns: '/shared/' });
  const alice = await ask('/shared/both');
  await Promise.all([waitForRead('SHARED'), waitForRead('SHARED2')]);
  await suspend(app, { kind: 'USER', name: 'bob', mode: 'IMMEDIATE' });
  // the engine checks both recalls together
  await waitFor('the stop', async () => (await readTries(app, bob))['/shared/bob']?.recallState === 'WAITING');
  expect((await readTries(app, bob))['/shared/both']).toMatchObject({ recallState: 'RUNNING' });
  gate.open();
  await waitForState(app, alice, 'COMPLETED');
  expect(library.log.filter((e) => e.what === 'read' && e.volume === 'SHARED')).toHaveLength(1);
  await resume(app, 'USER', 'bob');
  await waitForState(app, bob, 'COMPLETED');
});

test('a file that a suspended drive was reading is read on another drive', async () => {
  await addTaped(app.ctx, library, [{ path: '/drive/a', volume: 'DRIVEN' }]);
  const gate = holdReads(library);
  const id = await ask('/drive/a');
  const { drive } = await waitForRead('DRIVEN');
  await suspend(app, { kind: 'DRIVE', name: drive, mode: 'IMMEDIATE' });
  await waitFor('another drive', async () => {
    await ring(app, 'recall'); // a stopped recall sends no notification; normally drives check for work every second
    return library.log.some((e) => e.what === 'read' && e.volume === 'DRIVEN' && e.drive !== drive);
  });
  gate.open();
  await waitForState(app, id, 'COMPLETED');
  await resume(app, 'DRIVE', drive);
});

test('a suspension stops a mount that has not ended, and that is no try', async () => {
  await addTaped(app.ctx, library, [{ path: '/mount/a', volume: 'STUCK' }]);
  const gate = createGate();
  library.onMount = () => gate.opened;
  const id = await ask('/mount/a');
  await waitFor('the mount', async () => library.log.some((entry) => entry.volume === 'STUCK'));
  await suspend(app, { kind: 'VOLUME', name: 'STUCK', mode: 'IMMEDIATE', reason: 'the arm is stuck' });
  const tries = await waitFor('the stop', async () => {
    const now = (await readTries(app, id))['/mount/a'];
    return now?.recallState === 'WAITING' && now;
  });
  expect(tries).toMatchObject({ attempts: 0, lastError: null, nextTryAt: null });
  gate.open();
  await resume(app, 'VOLUME', 'STUCK');
  await waitForState(app, id, 'COMPLETED');
});

test('draining takes effect within a long queue: files that have not begun wait', async () => {
  const files = Array.from({ length: 300 }, (_, n) => ({ path: `/long/${n}`, volume: 'LONG', size: 10 }));
  await addTaped(app.ctx, library, files);
  const gate = holdReads(library);
  const id = await requestAs('alice', { patterns: '/long/' });
  await waitForRead('LONG');
  await suspend(app, { kind: 'VOLUME', name: 'LONG', mode: 'DRAINING' });
  gate.open();
  await waitFor('the unmount', async () => library.log.some((e) => e.what === 'unmount' && e.volume === 'LONG'));
  const read = countReads();
  await waitFor('the files that had begun', async () => (await viewRequest(app, id)).filesOnDisk === read);
  expect(read).toBeLessThan(files.length);
  const tries = Object.values(await readTries(app, id)).filter(({ recallState }) => recallState !== null);
  expect(new Set(tries.map(({ recallState }) => recallState))).toEqual(new Set(['WAITING']));
  await resume(app, 'VOLUME', 'LONG');
  await waitForState(app, id, 'COMPLETED');
});
