/**
 * Staging libraries that refuse all calls are suspended with the reason and the time of the next try. No file fails.
 */
import { beforeEach, expect, test } from 'vitest';
import type { ErrorClass } from '../../src/core/errors.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import type { TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { ring, ringUntilSeen } from '../support/engine-watch.js';
import { addQuota } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData, type Edges } from '../support/graphql.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import type { MemoryTapeSystem } from '../support/memory-staging.js';
import { mutate } from '../support/payloads.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addMemoryLibrary, addRemote, readStates } from '../support/staging.js';
import { readTries, resume, suspend } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let system: MemoryTapeSystem;
const clock = createClock();

beforeEach(async () => {
  clock.goOn();
  app = await start({ library: createMemoryLibrary(), engine: { idleMs: 200, unusablePauseMs: 100 } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  system = await addMemoryLibrary(app.ctx, { name: 'silo' });
  system.onStaged = (paths) => system.arrive(paths);
});
const start = createFreshApp({ now: clock.now });

/** Requests new files below a directory. */
async function request(directory: string, count = 3): Promise<number> {
  const files = Array.from({ length: count }, (_, n) => ({ path: `/${directory}/${n}` }));
  await addRemote(app.ctx, system, { library: 'silo', files });
  return await makeRequest(app, { quota: 'alice', retention: '2099-01-01', patterns: `/${directory}/` });
}

/** Makes calls fail. @returns a function that ends the failures */
function refuse(errorClass: ErrorClass, message: string, isRefused = (_what: string) => true) {
  let isOver = false;
  const meet = (what: string) => {
    if (!isOver && isRefused(what)) throw new LibraryError(errorClass, message);
  };
  system.onCall = async (what) => meet(what);
  system.onRead = async () => {
    meet('read');
  };
  return () => {
    isOver = true;
  };
}

async function advance(seconds: number): Promise<void> {
  clock.advance(seconds);
  await ring(app, 'recall');
}

/** Advances the clock until `count` files of a request are on disk. */
const waitForFiles = (id: number, count: number, seconds: number) =>
  waitFor(`${count} files on disk`, async () => {
    await advance(seconds);
    return (await viewRequest(app, id)).filesOnDisk === count;
  });

interface Suspended {
  kind: string;
  name: string;
  reason: string;
  since: string;
  nextTryAt: string | null;
}

async function readSuspended(): Promise<Suspended[]> {
  const query = '{ suspensions { edges { node { kind name reason since nextTryAt } } } }';
  const { suspensions } = await askData<{ suspensions: Edges<Suspended> }>(app, query);
  return suspensions.edges.map(({ node }) => node);
}

/** Waits until the library is suspended for the n-th time. @returns the seconds until the next try */
async function waitForSuspended(failures: number, reason: string, column = 'failures'): Promise<number> {
  const held = await waitFor(`the library to be suspended for the ${failures}th time`, async () => {
    const { rows } = await app.ctx.db.pool.query(`SELECT ${column} AS failures FROM stager`);
    const [found] = rows[0]?.failures === failures ? await readSuspended() : [];
    return found;
  });
  expect(held).toMatchObject({ kind: 'LIBRARY', name: 'silo', reason });
  return Math.round((Date.parse(held.nextTryAt ?? '') - Date.parse(held.since)) / 1000);
}

test('a library that refuses all calls is suspended for growing times, and no file is charged a try', async () => {
  clock.freeze(); // time stands still, so that no pause ends early
  const stop = refuse('POLICY', 'who are you?');
  const id = await request('a');
  for (const [n, seconds] of [5, 20, 80].entries()) {
    expect(await waitForSuspended(n + 1, 'who are you?')).toBe(seconds);
    if (n === 0) {
      const query = `{ request(requestId: ${id}) { waiting { parts { edges { node { explanation } } } } } }`;
      expect(JSON.stringify(await askData(app, query))).toContain('who are you?');
    }
    const calls = system.log.length;
    await ringUntilSeen(app, 'recall', 'staging');
    expect(system.log.length).toBe(calls);
    await advance(seconds);
  }
  const tries = Object.values(await readTries(app, id));
  expect(tries.map(({ state, attempts }) => [state, attempts])).toEqual(Array(3).fill(['WAITING', 0]));
  stop();
  await waitForFiles(id, 3, 600);
  await waitForState(app, id, 'COMPLETED');
  expect(await readSuspended()).toEqual([]);
});

test('a library whose bytes may not be read is suspended as well', async () => {
  clock.freeze();
  const stop = refuse('POLICY', 'no token for bytes', (what) => what === 'read');
  const id = await request('a', 1);
  for (const [n, seconds] of [5, 20].entries()) {
    expect(await waitForSuspended(n + 1, 'no token for bytes', 'read_failures')).toBe(seconds);
    await advance(seconds);
  }
  await waitForSuspended(3, 'no token for bytes', 'read_failures');
  expect(Object.values(await readTries(app, id))).toMatchObject([{ state: 'WAITING', attempts: 0 }]);
  stop();
  await advance(600);
  await waitForState(app, id, 'COMPLETED');
  expect(await readSuspended()).toEqual([]);
});

test('a transient failure suspends nothing', async () => {
  let fails = 3;
  refuse('TRANSIENT', 'it is away', () => fails-- > 0);
  const id = await request('a');
  await waitFor('the files', async () => {
    await advance(10);
    expect(await readSuspended()).toEqual([]);
    return (await viewRequest(app, id)).filesOnDisk === 3;
  });
});

test('a suspended library that is resumed is called at once, and its pauses begin anew', async () => {
  clock.freeze(); // time stands still, so that no pause ends early
  const stop = refuse('PERMANENT', 'unknown site');
  const id = await request('a');
  await waitForSuspended(1, 'unknown site');
  await advance(5);
  await waitForSuspended(2, 'unknown site');
  stop();
  expect(await resume(app, 'LIBRARY', 'silo')).toMatchObject({ __typename: 'Suspension' });
  await advance(5); // each stage request has its own pause
  await waitForState(app, id, 'COMPLETED');
  const { rows } = await app.ctx.db.pool.query('SELECT failures, problem FROM stager');
  expect(rows).toEqual([{ failures: 0, problem: null }]);
});

test('a suspended library whose settings change is called at once, unless an operator has suspended it', async () => {
  clock.freeze(); // time stands still, so that no pause ends early
  const stop = refuse('POLICY', 'who are you?');
  const id = await request('a');
  await waitForSuspended(1, 'who are you?');
  stop();
  const change = () => mutate(app, 'updateLibrary', { name: 'silo', settings: [] }, 'library { __typename }');
  expect(await change()).toEqual({ __typename: 'Library' });
  expect(await readSuspended()).toEqual([]);
  await advance(5);
  await waitForState(app, id, 'COMPLETED');
  await suspend(app, { kind: 'LIBRARY', name: 'silo', mode: 'IMMEDIATE' });
  await change();
  expect(await readSuspended()).toMatchObject([{ name: 'silo', nextTryAt: null }]);
});

test('a library that answers other calls is not suspended for the call that it refuses', async () => {
  system.onStaged = () => {};
  const first = await request('a');
  await waitFor('a call', async () => Object.values(await readStates(app.ctx)).join() === 'ASKED,ASKED,ASKED');
  let refused = 0;
  system.onCall = async (what, paths) => {
    if (what !== 'stage' || !paths.includes('/b/0')) return;
    refused++;
    throw new LibraryError('POLICY', 'not this one');
  };
  const second = await request('b', 1);
  await waitFor('a refusal', async () => {
    await advance(700);
    return refused >= 1;
  });
  system.arrive(['/a/0', '/a/1', '/a/2']);
  await waitForFiles(first, 3, 700);
  expect((await viewRequest(app, second)).filesFailed).toBe(0);
});
