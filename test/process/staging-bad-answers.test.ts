/** What staging libraries answer that is wrong, or do not answer, and what of it concerns whom: nobody reads here. */
import { randomUUID } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { addDisk } from '../../src/engine/disk/setup.js';
import { runStager } from '../../src/engine/staging/stager.js';
import { UsageNotes } from '../../src/engine/staging/usage.js';
import { Waker } from '../../src/engine/waker.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { LibraryError } from '../../src/tape/backend.js';
import { RetryLaterError, type StagingLibrary } from '../../src/tape/staging.js';
import { createMemoryStaging, MemoryTapeSystem } from '../../src/tape/staging-memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { measure } from '../support/engine-by-hand.js';
import { addQuota } from '../support/factories.js';
import { makeRequest } from '../support/rest.js';
import { addRemote, addStagingLibrary, readStaging, readStates } from '../support/staging.js';
import { suspend } from '../support/suspend.js';
import { emptyTables } from '../support/tables.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let system: MemoryTapeSystem;
let libraryId: number;
const clock = createClock();
const alice = { quota: 'alice', retention: '2099-01-01' };
const stops: (() => Promise<void>)[] = [];

beforeAll(async () => {
  app = await startApp({ now: clock.now });
  mkdirSync(app.restoreDir);
});

beforeEach(async () => {
  await emptyTables(app.ctx);
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  await addDisk(app.ctx, { mountpoint: app.restoreDir, size: 10n ** 9n });
  system = new MemoryTapeSystem();
  libraryId = await addStagingLibrary(app.ctx, { name: 'silo' });
});

afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

afterAll(async () => {
  await app.close();
});

/** An engine asks the library from now on. @param changed what it does otherwise than the one in memory */
function startAsking(changed: Partial<StagingLibrary> = {}, stage = 100) {
  const library = { ...createMemoryStaging(system, { limits: { stage, poll: 100, release: 100 } }), ...changed };
  const usage = new UsageNotes(libraryId, library);
  const place = { id: libraryId, name: 'silo', library, usage, depth: { files: 1000, bytes: null } };
  const stop = new AbortController();
  const options = {
    engineId: randomUUID(),
    leaseSeconds: 15,
    stop: stop.signal,
    bells: [new Waker()],
    idleMs: 20,
    leftMs: 100,
  };
  const running = runStager(app.ctx, place, { ...options, measure });
  stops.push(async () => {
    stop.abort();
    await running;
  });
}

const paths = (count: number) => Array.from({ length: count }, (_, n) => `/a/${String(n).padStart(2, '0')}`);
const put = (names: readonly string[]) =>
  addRemote(app.ctx, system, { library: 'silo', files: names.map((path) => ({ path })) });
const asked = () => system.log.filter(({ what }) => what === 'stage').flatMap((call) => call.paths);
const allOf = (names: readonly string[], state: string) => Object.fromEntries(names.map((path) => [path, state]));
const untilStates = (states: Record<string, string>) =>
  waitFor(`the files to be ${JSON.stringify(states)}`, async () => {
    clock.advance(4);
    return JSON.stringify(await readStates(app.ctx)) === JSON.stringify(states);
  });
const readProblem = async () =>
  (await app.ctx.db.pool.query<{ problem: string | null }>('SELECT problem FROM stager')).rows[0]?.problem ?? undefined;

test('demands that cannot be looked at hold up no other one, and are looked at again', async () => {
  const names = paths(20);
  await put(names);
  let isBad = (path: string) => path < '/a/06';
  system.onCall = async (what, called) => {
    if (what === 'poll' && called.some((path) => isBad(path))) throw new LibraryError('TRANSIENT', 'it cannot say');
  };
  await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking({}, 1); // a demand for each file
  await untilStates(allOf(names, 'ASKED'));
  system.arrive(names);
  const [bad, good] = [names.slice(0, 6), names.slice(6)];
  await untilStates({ ...allOf(bad, 'ASKED'), ...allOf(good, 'READY') });
  isBad = () => false;
  await untilStates(allOf(names, 'READY'));
});

test('what is ready until a time that is over is ready, by the clock of somebody else', async () => {
  const names = paths(3);
  await put(names);
  await makeRequest(app, { ...alice, patterns: '/a/' });
  const over = [new Date('2001-01-01T00:00:00Z'), new Date(Number.NaN), new Date(8.64e15)];
  startAsking({
    poll: async ({ files }) => files.map(({ path }, n) => ({ path, state: 'ready', until: over[n] ?? null })),
  });
  await untilStates(allOf(names, 'READY'));
  await passes(3);
  expect(await readStates(app.ctx)).toEqual(allOf(names, 'READY'));
  expect(asked()).toEqual(names);
});

/** Waits until the engine has turned to the library so often. */
async function passes(count: number): Promise<void> {
  await put(['/pass']);
  for (let n = 0; n < count; n++) {
    await app.ctx.db.pool.query(
      `INSERT INTO staging (file_id, library_id, state, batch, size, asked_at, since, due_at)
       SELECT id, $1, 'KEPT', gen_random_uuid(), 1, '2001-01-01', '2001-01-01', '2001-01-01' FROM tape_file WHERE path = '/pass'`,
      [libraryId],
    );
    await waitFor('a pass', async () => !('/pass' in (await readStates(app.ctx))));
  }
}

test('what was never asked for is not asked for once nobody wants it', async () => {
  const names = paths(5);
  await put(names);
  const id = await makeRequest(app, { ...alice, patterns: '/a/' });
  system.onCall = async (what) => {
    if (what === 'stage') throw new RetryLaterError('not now', 3000);
  };
  startAsking({}, 1);
  await waitFor('the library to rest', readProblem);
  expect(await readStates(app.ctx)).toEqual(allOf(names, 'INTENDED'));
  await cancelRequest(app.ctx, id);
  system.onCall = async () => {};
  // it was asked for the first one, of which nobody knows whether it was heard
  await untilStates({ '/a/00': 'INTENDED' });
  clock.advance(3100);
  await untilStates({});
  expect(asked()).toEqual(['/a/00', '/a/00']);
});

test.each(['a\0b', '\ud800', 'x'.repeat(100_000)])(
  'a demand under a name that cannot be kept is told of the library, and its files are asked for again (%#)',
  async (name) => {
    const names = paths(2);
    await put(names);
    await makeRequest(app, { ...alice, patterns: '/a/' });
    const memory = createMemoryStaging(system);
    let isBad = true;
    startAsking({
      stage: async (files, signal) => {
        const answer = await memory.stage(files, signal);
        return isBad ? { ...answer, id: name } : answer;
      },
    });
    expect(await waitFor('a problem', readProblem)).toContain('which cannot be kept');
    expect(await readStates(app.ctx)).toEqual(allOf(names, 'INTENDED'));
    isBad = false;
    await untilStates(allOf(names, 'ASKED'));
    expect((await readStaging(app.ctx)).map(({ attempts }) => attempts > 0)).toEqual([true, true]);
  },
);

test('a library that could not answer is said to be so until it has answered', async () => {
  await put(paths(1));
  await makeRequest(app, { ...alice, patterns: '/a/' });
  system.onCall = async () => {
    throw new LibraryError('TRANSIENT', 'nobody is there');
  };
  startAsking();
  await waitFor('the library to rest', readProblem);
  await app.ctx.db.pool.query(`UPDATE staging SET due_at = '2100-01-01'`);
  clock.advance(60);
  await passes(2); // with nothing to ask
  expect(await readProblem()).toBe('nobody is there');
  system.onCall = async () => {};
  await app.ctx.db.pool.query(`UPDATE staging SET due_at = '2001-01-01'`);
  await untilStates({ '/a/00': 'ASKED' });
  await waitFor('it to be well', async () => (await readProblem()) === undefined);
});

test.each<[string, (other: number) => Promise<unknown>]>([
  ['is held', () => suspend(app, { kind: 'BACKEND', name: 'other', mode: 'HELD' })],
  [
    'cannot answer',
    (other) =>
      app.ctx.db.pool.query('INSERT INTO stager (library_id, failures, problem) VALUES ($1, 3, $2)', [other, 'away']),
  ],
])('what another library was asked for that %s keeps no room in the restore area', async (_what, leave) => {
  const other = await addStagingLibrary(app.ctx, { name: 'other' });
  await addRemote(app.ctx, system, { library: 'other', files: [{ path: '/other' }] });
  await makeRequest(app, { ...alice, patterns: '/other' });
  await app.ctx.db.pool.query(
    `INSERT INTO staging (file_id, library_id, state, batch, size, asked_at, since, due_at)
     SELECT file_id, $1, 'ASKED', gen_random_uuid(), 10 ^ 12, now(), now(), now() FROM recall`,
    [other],
  );
  await put(paths(2));
  await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking();
  await passes(2);
  expect(asked()).toEqual([]);
  await leave(other);
  await untilStates({ ...allOf(paths(2), 'ASKED'), '/other': 'ASKED' });
});
