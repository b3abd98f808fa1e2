/** Drives that cannot be used, as their library tells: each waits by itself, is tried again, and costs neither its volume nor others anything. */
import { beforeEach, expect, test } from 'vitest';
import type { ErrorClass } from '../../src/errors.js';
import { DriveError, LibraryError, type TapeBackend } from '../../src/tape/backend.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData, type Edges } from '../support/graphql.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { readTries, resume, suspend } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

type Call = 'mount' | 'read' | 'unmount';

let app: TestApp;
const clock = createClock();
let backend = createMemoryBackend();
/** What a call on a drive throws. */
let fault: (what: Call, drive: string) => Error | undefined = () => undefined;
let mounts: string[] = [];

function check(what: Call, drive: string): void {
  const error = fault(what, drive);
  if (error) throw error;
}

const watched: TapeBackend = {
  mount: async (volume, drive, signal) => {
    mounts.push(drive);
    check('mount', drive);
    const mounted = await backend.mount(volume, drive, signal);
    return {
      read: async function* (file, readSignal) {
        check('read', drive);
        yield* mounted.read(file, readSignal);
      },
      unmount: async () => {
        await mounted.unmount();
        check('unmount', drive);
      },
    };
  },
};

const startFresh = createFreshApp({ now: clock.now });

async function start(drives: number): Promise<void> {
  app = await startFresh({ backend: watched, config: { drives }, engine: { idleMs: 200, leftMs: 100 } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
}

beforeEach(() => {
  [backend, fault, mounts] = [createMemoryBackend(), () => undefined, []];
});

interface Held {
  kind: string;
  name: string;
  mode: string;
  reason: string;
  since: string;
  nextTry: string | null;
}

async function readHeld(): Promise<Held[]> {
  const { suspensions } = await askData<{ suspensions: Edges<Held> }>(
    app,
    '{ suspensions { edges { node { kind name mode reason since nextTry } } } }',
  );
  return suspensions.edges.map(({ node }) => node);
}

const pauseOf = ({ since, nextTry }: Held) => Math.round((Date.parse(nextTry ?? '') - Date.parse(since)) / 1000);

/** The drive is held after so many mounts. */
async function waitForHeld(count: number): Promise<Held> {
  return await waitFor(`the drive to be held after ${count} mounts`, async () => {
    const [held] = mounts.length === count ? await readHeld() : [];
    return held;
  });
}

async function comeBack(seconds: number): Promise<void> {
  clock.advance(seconds);
  await ring(app, 'recall');
}

const busy = () => new DriveError('TRANSIENT', 'somebody else uses it');

test.each(['mount', 'read'] as const)(
  'a drive that cannot be used at a %s is held by itself, and its volume is read on the other one',
  async (what) => {
    await start(2);
    fault = (call, drive) => (call === what && drive === 'drive-1' ? busy() : undefined);
    const bad = 20;
    await addTaped(
      app.ctx,
      backend,
      Array.from({ length: bad }, (_, n) => ({ path: `/a/${n}`, volume: `V${n % 4}` })),
    );
    const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
    const view = await waitForState(app, id, 'COMPLETED');
    expect([view.filesOnDisk, view.filesFailed]).toEqual([bad, 0]);
    expect(new Set(Object.values(await readTries(app, id)).map(({ attempts }) => attempts ?? 0))).toEqual(new Set([0]));
    const held = await readHeld();
    // the other one may have read all before it had its turn
    expect(held.filter(({ kind }) => kind !== 'DRIVE')).toEqual([]);
    if (mounts.includes('drive-1')) {
      expect(held).toMatchObject([{ name: 'drive-1', mode: 'HELD', reason: 'somebody else uses it' }]);
    }
  },
);

test('it is tried again after pauses that grow, and is in service when something was read on it', async () => {
  await start(1);
  await addTaped(app.ctx, backend, [{ path: '/a/1', volume: 'V1' }]);
  fault = busy;
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  for (const [n, seconds] of [5, 20, 80, 320, 600, 600].entries()) {
    const held = await waitForHeld(n + 1);
    expect(held).toMatchObject({ kind: 'DRIVE', name: 'drive-1', mode: 'HELD', reason: 'somebody else uses it' });
    expect(pauseOf(held)).toBe(seconds);
    await comeBack(seconds);
  }
  await waitForHeld(7);
  expect(Object.values(await readTries(app, id))).toMatchObject([{ state: 'WAITING', attempts: 0 }]);
  fault = () => undefined;
  await comeBack(600);
  await waitForState(app, id, 'COMPLETED');
  const failures = async () => (await app.ctx.db.pool.query('SELECT failures FROM drive')).rows;
  await waitFor('the count to begin anew', async () => (await failures())[0]?.failures === 0);
  expect(await readHeld()).toEqual([]);
});

test.each<ErrorClass>(['POLICY', 'PERMANENT', 'MEDIA'])(
  'what is %s of a drive is tried three times, and then left to an operator',
  async (errorClass) => {
    await start(1);
    await addTaped(app.ctx, backend, [{ path: '/a/1', volume: 'V1' }]);
    fault = () => new DriveError(errorClass, 'it eats cartridges');
    const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
    for (const count of [1, 2]) {
      expect((await waitForHeld(count)).nextTry).not.toBeNull();
      await comeBack(600);
    }
    expect(await waitForHeld(3)).toMatchObject({ reason: 'it eats cartridges', nextTry: null });
    fault = () => undefined;
    await resume(app, 'DRIVE', 'drive-1');
    await waitForState(app, id, 'COMPLETED');
    expect(await readHeld()).toEqual([]);
  },
);

test('a drive that does not let go of its volume is held, and what was read from it stays', async () => {
  await start(1);
  await addTaped(app.ctx, backend, [{ path: '/a/1', volume: 'V1' }]);
  fault = (what) => (what === 'unmount' ? busy() : undefined);
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  await waitForState(app, id, 'COMPLETED');
  expect(await waitForHeld(1)).toMatchObject({ kind: 'DRIVE', reason: 'somebody else uses it' });
  const { rows } = await app.ctx.db.pool.query('SELECT failures, problem FROM volume');
  expect(rows).toEqual([{ failures: 0, problem: null }]);
});

test('what an operator has said of a drive stays as it is', async () => {
  await start(1);
  await addTaped(app.ctx, backend, [{ path: '/a/1', volume: 'V1' }]);
  fault = () => {
    return busy();
  };
  await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  await waitForHeld(1);
  await suspend(app, { kind: 'DRIVE', name: 'drive-1', mode: 'HELD', reason: 'the technician comes' });
  await comeBack(600);
  await comeBack(600);
  expect(await readHeld()).toMatchObject([{ reason: 'the technician comes', nextTry: null }]);
  expect(mounts).toHaveLength(1);
});

test('a library that is away when a volume is unmounted is held against no volume and no drive', async () => {
  await start(1);
  await addTaped(app.ctx, backend, [{ path: '/a/1', volume: 'V1' }]);
  let unmounts = 0;
  fault = (what) => (what === 'unmount' && unmounts++ === 0 ? new LibraryError('TRANSIENT', 'it is away') : undefined);
  await waitForState(app, await makeRequest(app, { quota: 'alice', patterns: '/a/' }), 'COMPLETED');
  await addTaped(app.ctx, backend, [{ path: '/b/1', volume: 'V1', position: 2n }]);
  await waitForState(app, await makeRequest(app, { quota: 'alice', patterns: '/b/' }), 'COMPLETED');
  const { rows } = await app.ctx.db.pool.query('SELECT failures, problem FROM volume');
  expect([rows, await readHeld()]).toEqual([[{ failures: 0, problem: null }], []]);
});
