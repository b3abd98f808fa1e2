/**
 * The engine suspends and retries a drive that fails or hangs, without suspending its volume or other drives. A library
 * that refuses calls is suspended in the same way.
 */
import { randomUUID } from 'node:crypto';
import { beforeEach, expect, test } from 'vitest';
import type { ErrorClass } from '../../src/core/errors.js';
import { removeSurplusDrives } from '../../src/domain/libraries/changes.js';
import { CallWatch, type HungError } from '../../src/restore-area/call-watch.js';
import { DriveError, type DriveLibrary, LibraryError } from '../../src/tape/drive-library.js';
import { RetryLaterError } from '../../src/tape/staging.js';
import type { TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { ring, ringUntilSeen } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData, type Edges } from '../support/graphql.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readTries, resume, suspend } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

type Call = 'mount' | 'read' | 'unmount';

const never = new Promise<never>(() => {});

let app: TestApp;
const clock = createClock();
let library = createMemoryLibrary();
/** Returns the error of a call on a drive, or `hangs` for a call that ignores its signal and never ends. */
let fault: (what: Call, drive: string, volume: string, position?: bigint | null) => Error | 'hangs' | undefined = () =>
  undefined;
/** Delays a call on a drive. */
let wait: (what: Call) => Promise<void> = async () => {};
let mounts: string[] = [];

async function check(what: Call, drive: string, volume: string, position?: bigint | null): Promise<void> {
  await wait(what);
  const error = fault(what, drive, volume, position);
  if (error === 'hangs') await never;
  if (error instanceof Error) throw error;
}

const watched: DriveLibrary = {
  mount: async (volume, drive, signal) => {
    mounts.push(drive);
    await check('mount', drive, volume);
    const mounted = await library.mount(volume, drive, signal);
    return {
      read: async function* (file, readSignal) {
        await check('read', drive, volume, file.position);
        yield* mounted.read(file, readSignal);
      },
      unmount: async () => {
        await mounted.unmount();
        await check('unmount', drive, volume);
      },
    };
  },
};

const startFresh = createFreshApp({ now: clock.now });

async function start(drives: number, config = {}): Promise<void> {
  app = await startFresh({
    library: watched,
    config: { drives, ...config },
    engine: { idleMs: 200, unusablePauseMs: 100, verifyMs: 200 },
  });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
}

beforeEach(() => {
  [library, fault, wait, mounts] = [createMemoryLibrary(), () => undefined, async () => {}, []];
  clock.freeze(); // time stands still, so that no pause ends early
});

interface Suspended {
  kind: string;
  name: string;
  mode: string;
  reason: string;
  since: string;
  nextTryAt: string | null;
}

async function readSuspended(): Promise<Suspended[]> {
  const query = '{ suspensions { edges { node { kind name mode reason since nextTryAt } } } }';
  const { suspensions } = await askData<{ suspensions: Edges<Suspended> }>(app, query);
  return suspensions.edges.map(({ node }) => node);
}

const pauseOf = ({ since, nextTryAt }: Suspended) =>
  Math.round((Date.parse(nextTryAt ?? '') - Date.parse(since)) / 1000);

/** Waits until the drive is suspended after `count` mounts. */
async function waitForSuspended(count: number): Promise<Suspended> {
  return await waitFor(`the drive to be suspended after ${count} mounts`, async () => {
    const [held] = mounts.length === count ? await readSuspended() : [];
    return held;
  });
}

async function endPause(seconds: number): Promise<void> {
  clock.advance(seconds);
  await ring(app, 'recall');
}

/** Requests `/<name>/1`, which is on volume `<name>`. */
async function request(name: string): Promise<number> {
  await addTaped(app.ctx, library, [{ path: `/${name}/1`, volume: name }]);
  return await makeRequest(app, { quota: 'alice', patterns: `/${name}/`, retention: '2099-01-01' });
}

const readVolumes = async () => (await app.ctx.db.pool.query('SELECT failures, problem FROM volume')).rows;

const busy = () => new DriveError('TRANSIENT', 'another process uses it');

test.each(['mount', 'read'] as const)(
  'a drive that fails at a %s is suspended, and its volumes are read on the other drive',
  async (what) => {
    await start(2);
    let failures = 0;
    fault = (call, drive) => (call === what && drive === 'drive-1' && ++failures ? busy() : undefined);
    const files = Array.from({ length: 20 }, (_, n) => ({ path: `/a/${n}`, volume: `V${n % 4}` }));
    await addTaped(app.ctx, library, files);
    const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', retention: '2099-01-01' });
    expect(await waitForState(app, id, 'COMPLETED')).toMatchObject({ filesOnDisk: 20, filesFailed: 0 });
    expect(Object.values(await readTries(app, id)).filter(({ attempts }) => attempts)).toEqual([]);
    if (failures === 0) return; // drive-2 has read all files before drive-1 began
    const held = await waitFor('the drive to be suspended', async () => (await readSuspended())[0]);
    expect(held).toMatchObject({ name: 'drive-1', mode: 'IMMEDIATE', reason: 'another process uses it' });
  },
);

test('a failing drive is tried again after growing pauses, and resumed when something was read on it', async () => {
  await start(1);
  fault = busy;
  const id = await request('a');
  for (const [n, seconds] of [5, 20, 80, 320, 600, 600].entries()) {
    const held = await waitForSuspended(n + 1);
    expect(held).toMatchObject({
      kind: 'DRIVE',
      name: 'drive-1',
      mode: 'IMMEDIATE',
      reason: 'another process uses it',
    });
    expect(pauseOf(held)).toBe(seconds);
    await endPause(seconds);
  }
  await waitForSuspended(7);
  expect(Object.values(await readTries(app, id))).toMatchObject([{ state: 'WAITING', attempts: 0 }]);
  fault = () => undefined;
  await endPause(600);
  await waitForState(app, id, 'COMPLETED');
  const failures = async () => (await app.ctx.db.pool.query('SELECT failures FROM drive')).rows;
  await waitFor('the count to be reset', async () => (await failures())[0]?.failures === 0);
  expect(await readSuspended()).toEqual([]);
});

test.each<ErrorClass>(['POLICY', 'PERMANENT', 'MEDIA'])(
  'after three errors of class %s a drive stays suspended until an operator resumes it',
  async (errorClass) => {
    await start(1);
    fault = () => new DriveError(errorClass, 'it eats cartridges');
    const id = await request('a');
    for (const count of [1, 2]) {
      expect((await waitForSuspended(count)).nextTryAt).not.toBeNull();
      await endPause(600);
    }
    expect(await waitForSuspended(3)).toMatchObject({ reason: 'it eats cartridges', nextTryAt: null });
    fault = () => undefined;
    await resume(app, 'DRIVE', 'drive-1');
    await waitForState(app, id, 'COMPLETED');
    expect(await readSuspended()).toEqual([]);
  },
);

test('a drive that does not unmount its volume is suspended, and its files stay restored', async () => {
  await start(1);
  fault = (what) => (what === 'unmount' ? busy() : undefined);
  await waitForState(app, await request('a'), 'COMPLETED');
  expect(await waitForSuspended(1)).toMatchObject({ kind: 'DRIVE', reason: 'another process uses it' });
  expect(await readVolumes()).toEqual([{ failures: 0, problem: null }]);
});

test('the engine does not change the suspension of a failing drive by an operator', async () => {
  await start(1);
  fault = busy;
  await request('a');
  await waitForSuspended(1);
  await suspend(app, { kind: 'DRIVE', name: 'drive-1', mode: 'IMMEDIATE', reason: 'the technician comes' });
  clock.advance(600);
  await ringUntilSeen(app, 'recall', 'drives');
  expect(await readSuspended()).toMatchObject([{ reason: 'the technician comes', nextTryAt: null }]);
  expect(mounts).toHaveLength(1);
});

test('a library that is away at an unmount counts against neither the volume nor the drive', async () => {
  await start(1);
  let unmounts = 0;
  fault = (what) => (what === 'unmount' && unmounts++ === 0 ? new LibraryError('TRANSIENT', 'it is away') : undefined);
  for (const name of ['a', 'b']) await waitForState(app, await request(name), 'COMPLETED');
  const sound = { failures: 0, problem: null };
  expect([await readVolumes(), await readSuspended()]).toEqual([[sound, sound], []]);
});

/** Waits until the library is suspended for this many seconds. */
async function waitForRefused(seconds: number): Promise<Suspended> {
  return await waitFor(`the library to be suspended for ${seconds} s`, async () =>
    (await readSuspended()).find((held) => held.kind === 'LIBRARY' && pauseOf(held) === seconds),
  );
}

const refusal = (errorClass: ErrorClass = 'POLICY') => new LibraryError(errorClass, 'there is no program tape-read');

test.each<[Call, ErrorClass]>([
  ['mount', 'PERMANENT'],
  ['read', 'POLICY'],
])(
  'a library that refuses at a %s (%s) is suspended for growing pauses, however many drives it has, and resumed when something was read',
  async (what, errorClass) => {
    await start(2);
    fault = (call) => (call === what ? refusal(errorClass) : undefined);
    const ids = [await request('a'), await request('b')];
    for (const seconds of [5, 20, 80]) {
      expect(await waitForRefused(seconds)).toMatchObject({
        ...{ name: 'directory', mode: 'IMMEDIATE', reason: 'there is no program tape-read' },
      });
      expect(await readSuspended()).toHaveLength(1);
      await endPause(seconds);
    }
    await waitForRefused(320);
    for (const id of ids)
      expect(Object.values(await readTries(app, id))).toMatchObject([{ state: 'WAITING', attempts: 0 }]);
    fault = () => undefined;
    await endPause(320);
    for (const id of ids) await waitForState(app, id, 'COMPLETED');
    expect(await readSuspended()).toEqual([]);
    fault = (call) => (call === what ? refusal(errorClass) : undefined);
    await request('c');
    await waitForRefused(5);
    fault = () => undefined;
    await resume(app, 'LIBRARY', 'directory');
  },
);

test('a refusal reported after its pause, because the drive unmounted for long, suspends the library no further', async () => {
  let endUnmount: () => void = () => {};
  let endMount: () => void = () => {};
  const unmounting = new Promise<void>((resolve) => (endUnmount = resolve));
  const mounting = new Promise<void>((resolve) => (endMount = resolve));
  await start(2);
  let unmounts = 0;
  fault = (call) => (call === 'read' ? refusal() : undefined);
  wait = async (call) => {
    if (call === 'unmount' && ++unmounts === 1) await unmounting;
    if (call === 'mount' && mounts.length === 3) await mounting;
  };
  const ids = [await request('a'), await request('b')];
  await waitForRefused(5);
  await waitFor('both drives to be refused', async () => unmounts === 2);
  fault = () => undefined;
  await endPause(5);
  await waitFor('the next try', async () => mounts.length === 3);
  endUnmount();
  const readClaimed = async () =>
    (await app.ctx.db.pool.query('SELECT FROM drive WHERE engine_id IS NOT NULL')).rowCount;
  await waitFor('the refused drive to be released', async () => (await readClaimed()) === 1);
  expect(await readSuspended()).toEqual([]);
  endMount();
  for (const id of ids) await waitForState(app, id, 'COMPLETED');
});

test('a file whose read must be repeated later does not block the files behind it', async () => {
  await start(1);
  fault = (call, _drive, _volume, position) =>
    call === 'read' && position === 1n ? new RetryLaterError('the file is busy', 1) : undefined;
  await addTaped(
    app.ctx,
    library,
    ['/late/1', '/late/2', '/late/3'].map((path) => ({ path, volume: 'a' })),
  );
  const id = await makeRequest(app, { quota: 'alice', patterns: '/late/', retention: '2099-01-01' });
  const readErrors = async () => Object.values(await readTries(app, id)).map(({ lastError }) => lastError);
  await waitFor('the pause of the volume', async () => (await readErrors()).every((error) => error !== null));
  clock.advance(1.5);
  await ring(app, 'recall');
  await waitFor('the other files', async () => {
    const tries = await readTries(app, id);
    return ['/late/2', '/late/3'].every((path) => tries[path]?.state === 'ON_DISK');
  });
  expect((await readTries(app, id))['/late/1']).toMatchObject({ state: 'WAITING', attempts: 0 });
  fault = () => undefined;
  clock.advance(1);
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
});

test('a library that refuses at an unmount is suspended, and its files stay restored', async () => {
  await start(1);
  fault = (what) => (what === 'unmount' ? refusal() : undefined);
  await waitForState(app, await request('a'), 'COMPLETED');
  expect(await waitForRefused(5)).toMatchObject({ reason: 'there is no program tape-read' });
  fault = () => undefined;
});

test('a library that refuses while an idle drive verifies copies is suspended, and the copies are verified later', async () => {
  await start(1);
  fault = () => refusal();
  await addTaped(app.ctx, library, [{ path: '/a/1', volume: 'a', stage: 'UNVERIFIED', verified: null }]);
  await waitForRefused(5);
  fault = () => undefined;
  await endPause(5);
  const readFile = async () => (await app.ctx.db.pool.query('SELECT stage FROM tape_file')).rows[0]?.stage;
  await waitFor('the copy to be verified', async () => (await readFile()) === 'ONDISK');
  expect(await readSuspended()).toEqual([]);
});

test('a library from which another drive reads is not suspended: only this engine pauses', async () => {
  await start(1);
  await app.ctx.db.pool.query(
    `INSERT INTO drive (name, engine_id, lease_until, rate) VALUES ('drive-9', $1, timezone('utc', now()) + interval '1 minute', 1e6)`,
    [randomUUID()],
  );
  fault = () => refusal();
  await request('a');
  await waitFor('a second try', async () => {
    await app.ctx.db.pool.query(`SELECT pg_notify('tapegate', 'suspension')`); // ends the pause
    return mounts.length > 1;
  });
  expect(await readSuspended()).toEqual([]);
});

test('a statement that changes no suspension ends no pause: it signals nothing', async () => {
  await start(1);
  const rung: string[] = [];
  for (const bell of ['suspension', 'library']) app.ctx.events.onNotify(bell, () => rung.push(bell));
  await removeSurplusDrives(app.ctx);
  await app.ctx.db.pool.query(`SELECT pg_notify('tapegate', 'library')`);
  await waitFor('the later signal', async () => rung.includes('library'));
  expect(rung).toEqual(['library']);
});

test.each<Call>(['mount', 'read', 'unmount'])(
  'a drive whose %s hangs is suspended with its volume, and the other drive continues',
  async (what) => {
    await start(2, { tapeTimeout: 1 });
    fault = (call, _drive, volume) => (call === what && volume === 'stuck' ? 'hangs' : undefined);
    const id = await request('stuck');
    const held = await waitFor('drive and volume to be suspended', async () => {
      const all = await readSuspended();
      return all.length === 2 && all;
    });
    const drive = held.find(({ kind }) => kind === 'DRIVE')?.name ?? '';
    const reason = `${drive}, at stuck, has not answered for 1 s`;
    expect(held).toMatchObject([
      { kind: 'VOLUME', name: 'stuck', mode: 'IMMEDIATE', reason },
      { kind: 'DRIVE', name: drive, mode: 'IMMEDIATE', reason },
    ]);
    await waitForState(app, await request('fine'), 'COMPLETED');
    if (what !== 'unmount') {
      const tries = await waitFor('the file to wait', async () => {
        const now = (await readTries(app, id))['/stuck/1'];
        return now?.recallState === 'WAITING' && now;
      });
      expect(tries).toMatchObject({ attempts: 0 });
    }
    fault = () => undefined;
    await resume(app, 'VOLUME', 'stuck');
    await waitForState(app, id, 'COMPLETED');
  },
);

test('of calls that hang together only the first is blamed, and none that makes progress', async () => {
  const told: string[] = [];
  const watch = new CallWatch({ disk: 1, tape: 1 }, (error: HungError) => told.push(error.message));
  const first = watch.follow({ kind: 'disk', mountpoint: '/one' }, () => never);
  const second = watch.follow({ kind: 'disk', mountpoint: '/two' }, () => never);
  const slow = watch.follow({ kind: 'disk', mountpoint: '/slow' }, async (tick) => {
    await waitFor('the others to hang', async () => {
      tick();
      return told.length > 0;
    });
    return 'ended';
  });
  const blame = 'the restore disk /one has not answered for 1 s';
  await Promise.all([expect(first).rejects.toThrow(blame), expect(second).rejects.toThrow('/one')]);
  expect([await slow, watch.hasHung, told]).toEqual(['ended', true, [blame]]);
});
