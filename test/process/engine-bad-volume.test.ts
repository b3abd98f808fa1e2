/** Volumes whose files cannot be read, and volumes with some bad files. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../../src/errors.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { retry } from '../support/mutations.js';
import { viewRequest, waitForState, waitThroughPauses } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions, readTries, resume, suspend } from '../support/suspend.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const hooks = { onMount: backend.onMount, onRead: backend.onRead };
const clock = createClock();
const alice = { quota: 'alice', retention: '2099-01-01' };

beforeAll(async () => {
  app = await startApp({ backend, now: clock.now });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(() => {
  Object.assign(backend, hooks);
  backend.log.length = 0;
});
afterAll(() => app.close());

/** Makes the positions bad, of all volumes. */
function spoil(isBad: (position: bigint) => boolean): void {
  backend.onRead = async (_volume, position, bytes) => {
    if (isBad(position)) throw new TapeError('MEDIA', `no block at ${position}`);
    return bytes;
  };
}

const countReads = () => backend.log.filter((entry) => entry.what === 'read').length;

const waitForHold = (name: string) =>
  waitFor(`${name} to be held`, async () => (await readSuspensions(app)).find((held) => held.name === name));

test('a volume of which three files in a row cannot be read is held, its files wait, and others are read', async () => {
  const files = Array.from({ length: 6 }, (_, n) => ({ path: `/worn/${n}`, volume: 'WORN', position: BigInt(n + 1) }));
  await addTaped(app.ctx, backend, [...files, { path: '/well/0', volume: 'WELL', position: 9n }]);
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 9n) return bytes;
    if (position === 2n) return bytes.map((byte) => byte ^ 1); // wrong bytes are no better than none
    throw new TapeError('MEDIA', `no block at ${position}`);
  };
  const id = await makeRequest(app, { ...alice, patterns: '/worn/' });
  expect(await waitForHold('WORN')).toMatchObject({
    kind: 'VOLUME',
    mode: 'HELD',
    reason: expect.stringMatching(
      /^3 files one after another could not be read from it, the last of them \/worn\/\d: no block at \d$/,
    ),
  });
  await waitFor('the unmount', async () => backend.log.some((entry) => entry.what === 'unmount'));
  const before = countReads();
  const other = await makeRequest(app, { ...alice, files: ['/well/0'] });
  await waitThroughPauses(app, clock, other, 'COMPLETED');
  expect(countReads()).toBe(before + 1);
  const tries = Object.values(await readTries(app, id));
  expect(tries.map(({ state, recallState }) => [state, recallState])).toEqual(files.map(() => ['WAITING', 'WAITING']));
  expect(
    tries.filter(({ attempts, lastErrorClass }) => attempts === 1 && lastErrorClass === 'MEDIA').length,
  ).toBeGreaterThan(2);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'RESTORING', filesFailed: 0 });

  Object.assign(backend, hooks);
  await resume(app, 'VOLUME', 'WORN');
  await waitThroughPauses(app, clock, id, 'COMPLETED');
});

test('bad files among good ones fail for good, and hold up neither their volume nor their request', async () => {
  const files = Array.from({ length: 12 }, (_, n) => ({
    path: `/some/${n}`,
    volume: 'SOME',
    position: BigInt(n + 1),
    size: n % 2 === 0 ? 500_000 : 10, // the good ones are in place later than the next bad one has failed
  }));
  await addTaped(app.ctx, backend, files);
  spoil((position) => position % 2n === 0n);
  const id = await makeRequest(app, { ...alice, patterns: '/some/' });
  await waitThroughPauses(app, clock, id, 'PARTIAL');
  expect(await viewRequest(app, id)).toMatchObject({ filesOnDisk: 6, filesFailed: 6 });
  expect((await readTries(app, id))['/some/1']).toEqual({
    state: 'FAILED',
    recallState: null,
    attempts: null,
    lastErrorClass: 'MEDIA',
    lastError: 'no block at 2; given up after 3 tries',
    nextTry: null,
  });
  expect(await readSuspensions(app)).toEqual([]);
});

test('two bad files that are all that is wanted of a volume fail for good, and the volume is not held', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/two/1', volume: 'TWO' },
    { path: '/two/2', volume: 'TWO' },
  ]);
  spoil(() => true);
  const id = await makeRequest(app, { ...alice, patterns: '/two/' });
  await waitThroughPauses(app, clock, id, 'PARTIAL');
  expect(await viewRequest(app, id)).toMatchObject({ filesFailed: 2 });
  expect(countReads()).toBe(6);
  expect(await readSuspensions(app)).toEqual([]);
});

/** Asks for files one after the other, each in a mount of its own, until it has been read. */
async function readOneByOne(volume: string, count: number): Promise<number[]> {
  const positions = Array.from({ length: count }, (_, n) => BigInt(n + 1));
  const fileOf = (position: bigint) => `/${volume}/${position}`;
  await addTaped(
    app.ctx,
    backend,
    positions.map((position) => ({ path: fileOf(position), volume, position })),
  );
  const ids: number[] = [];
  for (const position of positions) {
    const id = await makeRequest(app, { ...alice, files: [fileOf(position)] });
    ids.push(id);
    await waitFor(`the end of ${fileOf(position)}`, async () => {
      const tries = (await readTries(app, id))[fileOf(position)];
      return tries?.state !== 'WAITING' || (tries.attempts ?? 0) > 0;
    });
  }
  return ids;
}

test('what lies behind bad files is read once their volume is put back into service, and they fail for good', async () => {
  const files = Array.from({ length: 8 }, (_, n) => ({
    path: `/behind/${n + 1}`,
    volume: 'BEHIND',
    position: BigInt(n + 1),
  }));
  await addTaped(app.ctx, backend, files);
  spoil((position) => position <= 5n);
  const id = await makeRequest(app, { ...alice, patterns: '/behind/' });
  await waitForHold('BEHIND');
  await resume(app, 'VOLUME', 'BEHIND');
  await waitThroughPauses(app, clock, id, 'PARTIAL');
  expect(await viewRequest(app, id)).toMatchObject({ filesOnDisk: 3, filesFailed: 5 });
  expect(await readSuspensions(app)).toEqual([]);
});

const waitForFreeDrives = () =>
  waitFor(
    'the drives to be free',
    async () => (await app.ctx.db.prisma.drive.count({ where: { volumeId: null } })) === 2,
  );

/** Puts the volume back into service whenever it is held, until the request is over. @returns how often */
async function resumeUntilOver(volume: string, id: number): Promise<number> {
  for (let times = 0; ; times++) {
    const isOver = await waitFor(`request ${id} to be over, or its volume to be held`, async () => {
      clock.advance(600);
      await ring(app, 'recall');
      if ((await viewRequest(app, id)).state === 'PARTIAL') return 'over';
      return (await readSuspensions(app)).some(({ name }) => name === volume) && 'held';
    });
    if (isOver === 'over') return times;
    await waitForFreeDrives();
    await resume(app, 'VOLUME', volume);
  }
}

test('a volume that is put back before anybody has mended it is held again, and none of its files is given up', async () => {
  const files = Array.from({ length: 6 }, (_, n) => ({
    path: `/hasty/${n}`,
    volume: 'HASTY',
    position: BigInt(n + 1),
  }));
  await addTaped(app.ctx, backend, files);
  spoil(() => true);
  const id = await makeRequest(app, { ...alice, patterns: '/hasty/' });
  for (let round = 0; round < 5; round++) {
    await waitForHold('HASTY');
    await waitForFreeDrives();
    expect(await viewRequest(app, id)).toMatchObject({ state: 'RESTORING', filesFailed: 0 });
    await resume(app, 'VOLUME', 'HASTY');
  }
  await waitForHold('HASTY');
  await waitForFreeDrives();
  Object.assign(backend, hooks);
  await resume(app, 'VOLUME', 'HASTY');
  await waitThroughPauses(app, clock, id, 'COMPLETED');
});

test('what was tried before its volume was mended is read, also behind files that stay bad', async () => {
  const files = Array.from({ length: 6 }, (_, n) => ({
    path: `/mended/${n + 1}`,
    volume: 'MENDED',
    position: BigInt(n + 1),
  }));
  await addTaped(app.ctx, backend, files);
  spoil(() => true);
  const id = await makeRequest(app, { ...alice, patterns: '/mended/' });
  await waitForHold('MENDED');
  await waitForFreeDrives();
  let bad = 0;
  backend.onMount = async () => {
    bad = 0;
  };
  backend.onRead = async (_volume, position, bytes) => {
    if (position > 3n && bad >= 3) await new Promise(() => {}); // until the hold has stopped it
    if (position > 3n) return bytes;
    bad++;
    throw new TapeError('MEDIA', `no block at ${position}`);
  };
  await resume(app, 'VOLUME', 'MENDED');
  expect(await resumeUntilOver('MENDED', id)).toBeLessThan(3);
  expect(await viewRequest(app, id)).toMatchObject({ filesOnDisk: 3, filesFailed: 3 });
  expect(await readSuspensions(app)).toEqual([]);
});

test('where nothing but bad files is left of a volume they fail for good, though it is held for them at first', async () => {
  const files = Array.from({ length: 4 }, (_, n) => ({ path: `/only/${n}`, volume: 'ONLY', position: BigInt(n + 1) }));
  await addTaped(app.ctx, backend, files);
  spoil(() => true);
  const id = await makeRequest(app, { ...alice, patterns: '/only/' });
  expect(await resumeUntilOver('ONLY', id)).toBeGreaterThan(5);
  expect(await viewRequest(app, id)).toMatchObject({ filesOnDisk: 0, filesFailed: 4 });
  expect(await readSuspensions(app)).toEqual([]);
});

test('one bad file that is asked for again and again does not take its volume out of service', async () => {
  await addTaped(app.ctx, backend, [{ path: '/again/1', volume: 'AGAIN' }]);
  spoil(() => true);
  const id = await makeRequest(app, { ...alice, files: ['/again/1'] });
  for (let round = 0; round < 4; round++) {
    await waitThroughPauses(app, clock, id, 'PARTIAL');
    await retry(app, { id });
  }
  await waitThroughPauses(app, clock, id, 'PARTIAL');
  expect(countReads()).toBe(15);
  expect(await readSuspensions(app)).toEqual([]);
});

test('bad files are counted from mount to mount', async () => {
  spoil((position) => position <= 3n);
  await readOneByOne('MOUNTS', 3);
  expect((await waitForHold('MOUNTS')).reason).toMatch(/^3 files .* the last of them \/MOUNTS\/3: no block at 3$/);
  await resume(app, 'VOLUME', 'MOUNTS');
});

test('a good file begins the count anew', async () => {
  spoil((position) => position !== 3n);
  const ids = await readOneByOne('ANEW', 5);
  for (const id of ids) await waitThroughPauses(app, clock, id, id === ids[2] ? 'COMPLETED' : 'PARTIAL');
  expect(await readSuspensions(app)).toEqual([]);
});

test('what an operator drains is not held by the engine over it', async () => {
  await addTaped(
    app.ctx,
    backend,
    [1, 2, 3, 4].map((n) => ({ path: `/drained/${n}`, volume: 'DRAINED' })),
  );
  const gate = createGate();
  backend.onRead = async () => {
    await gate.opened;
    throw new TapeError('MEDIA', 'no block');
  };
  const id = await makeRequest(app, { ...alice, patterns: '/drained/' });
  await waitFor('a read', async () => countReads() > 0);
  await suspend(app, { kind: 'VOLUME', name: 'DRAINED', mode: 'DRAINING', reason: 'it leaves the library' });
  gate.open();
  await waitFor(
    'the drive to be free',
    async () => (await app.ctx.db.prisma.drive.count({ where: { volumeId: null } })) === 2,
  );
  expect(Object.values(await readTries(app, id)).map((tries) => tries.attempts)).toEqual([1, 1, 1, 1]);
  expect(await readSuspensions(app)).toMatchObject([{ mode: 'DRAINING', reason: 'it leaves the library' }]);
  Object.assign(backend, hooks);
  await resume(app, 'VOLUME', 'DRAINED');
  await waitThroughPauses(app, clock, id, 'COMPLETED');
});

test('a mount that fails is not tried again at once for the rest of a long queue, which says why', async () => {
  const files = Array.from({ length: 600 }, (_, n) => ({ path: `/arm/${n}`, volume: 'ARM', size: 10 }));
  await addTaped(app.ctx, backend, files);
  let isStuck = true;
  backend.onMount = async () => {
    if (isStuck) throw new TapeError('TRANSIENT', 'the arm is stuck');
  };
  clock.freeze();
  const id = await makeRequest(app, { ...alice, patterns: '/arm/' });
  const tries = await waitFor('the pause', async () => {
    const all = Object.values(await readTries(app, id));
    return all.every((one) => one.nextTry !== null) && all;
  });
  expect(tries).toHaveLength(600);
  expect(tries.filter((one) => one.lastError !== 'the arm is stuck' || one.lastErrorClass !== 'TRANSIENT')).toEqual([]);
  expect(new Set(tries.map((one) => one.attempts))).toEqual(new Set([0])); // a mount is no try of a file
  // another drive may have turned to it before the first one had said that it rests
  const mayMount = [['mount'], ['mount', 'mount']];
  expect(mayMount).toContainEqual(backend.log.map((entry) => entry.what));
  await addTaped(app.ctx, backend, [{ path: '/arm/late', volume: 'ARM', position: 601n, size: 10 }]);
  const late = await makeRequest(app, { ...alice, files: ['/arm/late'] });
  for (let times = 0; times < 20; times++) {
    await ring(app, 'recall');
    expect((await viewRequest(app, late)).filesOnDisk).toBe(0);
  }
  expect(mayMount).toContainEqual(backend.log.map((entry) => entry.what));

  isStuck = false;
  // whoever puts it back into service has mended it: nothing pauses any longer, and time stands still
  await suspend(app, { kind: 'VOLUME', name: 'ARM', mode: 'HELD' });
  await resume(app, 'VOLUME', 'ARM');
  for (const request of [id, late]) await waitForState(app, request, 'COMPLETED');
  clock.goOn();
});

test('a back end that is resumed is tried at once, and other errors keep their pauses', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/back/1', volume: 'BACK', position: 1n },
    { path: '/back/2', volume: 'BACK', position: 2n },
  ]);
  backend.onRead = async (_volume, position) => {
    throw new TapeError(position === 1n ? 'TRANSIENT' : 'SPACE', 'not now');
  };
  clock.freeze();
  const id = await makeRequest(app, { ...alice, patterns: '/back/' });
  await waitFor('the pauses', async () => Object.values(await readTries(app, id)).every((tries) => tries.nextTry));
  Object.assign(backend, hooks);
  await suspend(app, { kind: 'BACKEND', name: 'directory', mode: 'DRAINING' });
  await resume(app, 'BACKEND', 'directory');
  await waitFor('the one', async () => (await readTries(app, id))['/back/1']?.state === 'ON_DISK');
  // to wait for room is no try
  const waits = { attempts: 0, lastErrorClass: 'SPACE', nextTry: expect.any(String) };
  expect((await readTries(app, id))['/back/2']).toMatchObject(waits);
  clock.goOn();
  await waitThroughPauses(app, clock, id, 'COMPLETED');
});

test('a library that stumbles for a while does not have its volumes held', async () => {
  await addTaped(app.ctx, backend, [{ path: '/robot/1', volume: 'ROBOT' }]);
  backend.onMount = async () => {
    if (backend.log.length <= 7) throw new TapeError('TRANSIENT', 'the robot does not answer');
  };
  const id = await makeRequest(app, { ...alice, files: ['/robot/1'] });
  await waitThroughPauses(app, clock, id, 'COMPLETED');
  expect(backend.log.filter((entry) => entry.what === 'mount')).toHaveLength(8);
  expect(await readSuspensions(app)).toEqual([]);
});
