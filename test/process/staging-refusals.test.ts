/** Staging libraries that refuse what they are asked, as a whole: held with the reason and the next try, and nothing is given up. */
import { beforeEach, expect, test } from 'vitest';
import type { ErrorClass } from '../../src/errors.js';
import { LibraryError } from '../../src/tape/backend.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { MemoryTapeSystem } from '../../src/tape/staging-memory.js';
import type { TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { ring } from '../support/engine-watch.js';
import { addQuota } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData, type Edges } from '../support/graphql.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addMemoryLibrary, addRemote, readStates } from '../support/staging.js';
import { readTries, resume, suspend } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let system: MemoryTapeSystem;
const clock = createClock();
const alice = { quota: 'alice', retention: '2099-01-01' };

beforeEach(async () => {
  app = await start({ backend: createMemoryBackend(), engine: { idleMs: 200, leftMs: 100 } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  system = await addMemoryLibrary(app.ctx, { name: 'silo' });
  system.onStaged = (paths) => system.arrive(paths);
});
const start = createFreshApp({ now: clock.now });

const put = (folder: string, count = 3) =>
  addRemote(app.ctx, system, {
    library: 'silo',
    files: Array.from({ length: count }, (_, n) => ({ path: `/${folder}/${n}` })),
  });
const calls = (what: string) => system.log.filter((call) => call.what === what).length;

interface Held {
  kind: string;
  name: string;
  reason: string;
  since: string;
  nextTry: string | null;
}

async function readHeld(): Promise<Held[]> {
  const { suspensions } = await askData<{ suspensions: Edges<Held> }>(
    app,
    '{ suspensions { edges { node { kind name reason since nextTry } } } }',
  );
  return suspensions.edges.map(({ node }) => node);
}

/** Held for the how-many-th time. */
async function waitForHeld(failures: number, column = 'failures'): Promise<Held> {
  return await waitFor(`the library to be held for the ${failures}th time`, async () => {
    const { rows } = await app.ctx.db.pool.query(`SELECT ${column} AS failures FROM stager`);
    const [held] = rows[0]?.failures === failures ? await readHeld() : [];
    return held;
  });
}

const pauseOf = ({ since, nextTry }: Held) => Math.round((Date.parse(nextTry ?? '') - Date.parse(since)) / 1000);

async function explain(id: number): Promise<string[]> {
  type Answer = { request: { waiting: { parts: Edges<{ explanation: string }> } | null } };
  const query = `{ request(id: ${id}) { waiting { parts { edges { node { explanation } } } } } }`;
  const { request } = await askData<Answer>(app, query);
  return request.waiting?.parts.edges.map(({ node }) => node.explanation) ?? [];
}

test.each<ErrorClass>(['POLICY', 'PERMANENT'])(
  'one that refuses all with %s is held, says why, gives no file up, and goes on when that is mended',
  async (errorClass) => {
    await put('a');
    let isRefused = true;
    system.onCall = async () => {
      if (isRefused) throw new LibraryError(errorClass, 'who are you?');
    };
    const id = await makeRequest(app, { ...alice, patterns: '/a/' });
    for (const [n, seconds] of [5, 20, 80].entries()) {
      const held = await waitForHeld(n + 1);
      expect(held).toMatchObject({ kind: 'BACKEND', name: 'silo', reason: 'who are you?' });
      expect(pauseOf(held)).toBe(seconds);
      if (n === 0) expect((await explain(id)).join()).toContain('who are you?');
      const asked = calls('stage');
      await ring(app, 'recall');
      expect(calls('stage')).toBe(asked);
      clock.advance(seconds);
      await ring(app, 'recall');
    }
    const tries = Object.values(await readTries(app, id));
    expect(tries.map(({ state, attempts }) => [state, attempts])).toEqual(Array(3).fill(['WAITING', 0]));
    isRefused = false;
    await waitFor('it to be tried', async () => {
      clock.advance(600);
      await ring(app, 'recall');
      return (await viewRequest(app, id)).filesOnDisk === 3;
    });
    await waitForState(app, id, 'COMPLETED');
    expect(await readHeld()).toEqual([]);
  },
);

test('what may pass by itself holds nothing', async () => {
  await put('a');
  let fails = 3;
  system.onCall = async () => {
    if (fails-- > 0) throw new LibraryError('TRANSIENT', 'it is away');
  };
  const id = await makeRequest(app, { ...alice, patterns: '/a/' });
  await waitFor('it to come all the same', async () => {
    clock.advance(10);
    await ring(app, 'recall');
    expect(await readHeld()).toEqual([]);
    return (await viewRequest(app, id)).filesOnDisk === 3;
  });
});

test('one that is resumed is asked at once, and its pauses begin anew', async () => {
  await put('a');
  let isRefused = true;
  system.onCall = async () => {
    if (isRefused) throw new LibraryError('POLICY', 'who are you?');
  };
  const id = await makeRequest(app, { ...alice, patterns: '/a/' });
  await waitForHeld(1);
  clock.advance(5);
  await ring(app, 'recall');
  await waitForHeld(2);
  isRefused = false;
  expect(await resume(app, 'BACKEND', 'silo')).toMatchObject({ __typename: 'Suspension' });
  clock.advance(5); // what was to be asked then waits a moment by itself
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
  const { rows } = await app.ctx.db.pool.query('SELECT failures, problem FROM stager');
  expect(rows).toEqual([{ failures: 0, problem: null }]);
});

test('one that answers other calls is not held for the one that it refuses', async () => {
  await put('a');
  system.onStaged = () => {};
  const first = await makeRequest(app, { ...alice, patterns: '/a/' });
  await waitFor('it to be asked', async () => Object.values(await readStates(app.ctx)).join() === 'ASKED,ASKED,ASKED');
  await put('b', 1);
  let refused = 0;
  system.onCall = async (what, paths) => {
    if (what !== 'stage' || !paths.includes('/b/0')) return;
    refused++;
    throw new LibraryError('POLICY', 'not this one');
  };
  const second = await makeRequest(app, { ...alice, patterns: '/b/' });
  await waitFor('it to be refused beside what is polled', async () => {
    clock.advance(700);
    await ring(app, 'recall');
    return refused >= 1;
  });
  system.arrive(['/a/0', '/a/1', '/a/2']);
  await waitFor('the others to come', async () => {
    clock.advance(700);
    await ring(app, 'recall');
    return (await viewRequest(app, first)).filesOnDisk === 3;
  });
  expect((await viewRequest(app, second)).filesFailed).toBe(0);
});

test('one whose bytes may not be read is held as well, and longer from time to time', async () => {
  await put('a', 1);
  let isRefused = true;
  system.onRead = async (_path, bytes) => {
    if (isRefused) throw new LibraryError('POLICY', 'no token for bytes');
    return bytes;
  };
  const id = await makeRequest(app, { ...alice, patterns: '/a/' });
  for (const [n, seconds] of [5, 20].entries()) {
    const held = await waitForHeld(n + 1, 'read_failures');
    expect(held).toMatchObject({ kind: 'BACKEND', name: 'silo', reason: 'no token for bytes' });
    expect(pauseOf(held)).toBe(seconds);
    clock.advance(seconds);
    await ring(app, 'recall');
  }
  await waitForHeld(3, 'read_failures');
  expect(Object.values(await readTries(app, id))).toMatchObject([{ state: 'WAITING', attempts: 0 }]);
  isRefused = false;
  clock.advance(600);
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
  expect(await readHeld()).toEqual([]);
});

test('one that is set to something else is tried at once, and one that an operator has held stays so', async () => {
  await put('a');
  let isRefused = true;
  system.onCall = async () => {
    if (isRefused) throw new LibraryError('POLICY', 'who are you?');
  };
  const id = await makeRequest(app, { ...alice, patterns: '/a/' });
  await waitForHeld(1);
  isRefused = false;
  const input = { name: 'silo', settings: '{}' };
  const set = 'mutation ($input: SetLibraryInput!) { result: setLibrary(input: $input) { __typename } }';
  expect(await askData(app, set, { input })).toEqual({ result: { __typename: 'Library' } });
  expect(await readHeld()).toEqual([]);
  clock.advance(5); // what was to be asked then waits a moment by itself
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
  await suspend(app, { kind: 'BACKEND', name: 'silo', mode: 'HELD' });
  await askData(app, set, { input });
  expect(await readHeld()).toMatchObject([{ name: 'silo', nextTry: null }]);
});
