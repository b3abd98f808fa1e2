/** What a staging library is asked for, and when: nobody reads here. */
import { randomUUID } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { addDisk } from '../../src/engine/disk/setup.js';
import { runStager } from '../../src/engine/staging/stager.js';
import { UsageNotes } from '../../src/engine/staging/usage.js';
import { Waker } from '../../src/engine/waker.js';
import { removeLibrary } from '../../src/operations/libraries/remove.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { LibraryError } from '../../src/tape/backend.js';
import { createMemoryStaging, MemoryTapeSystem } from '../../src/tape/staging-memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { measure } from '../support/engine-by-hand.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { viewRequest } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addRemote, addStagingLibrary, readStaging, readStates } from '../support/staging.js';
import { resume, suspend } from '../support/suspend.js';
import { emptyTables } from '../support/tables.js';
import { createGate, waitFor } from '../support/wait.js';

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
  await addQuota(app.ctx, 'bob', 10n ** 12n);
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

interface AskOptions {
  depth?: { files: number; bytes: bigint | null };
  stage?: number;
  engineId?: string;
  leaseSeconds?: number;
}

/** An engine asks the library from now on. @returns what ends it */
function startAsking({
  depth = { files: 1000, bytes: null },
  stage = 100,
  engineId = randomUUID(),
  leaseSeconds = 15,
}: AskOptions = {}) {
  const limits = { stage, poll: 100, release: 100 };
  const library = createMemoryStaging(system, { limits });
  const usage = new UsageNotes(libraryId, library);
  const place = { id: libraryId, name: 'silo', library, usage, depth };
  const stop = new AbortController();
  const bells = [new Waker()];
  const running = runStager(app.ctx, place, {
    engineId,
    leaseSeconds,
    stop: stop.signal,
    bells,
    idleMs: 20,
    leftMs: 100,
    measure,
  });
  const end = async () => {
    stop.abort();
    await running;
  };
  stops.push(end);
  return end;
}

const paths = (count: number, folder = 'a') =>
  Array.from({ length: count }, (_, n) => `/${folder}/${String(n).padStart(4, '0')}`);
const put = (names: readonly string[], size = 1000) =>
  addRemote(app.ctx, system, { library: 'silo', files: names.map((path) => ({ path, size })) });
const calls = (what: string) => system.log.filter((call) => call.what === what);
const untilStates = (states: Record<string, string>) =>
  waitFor(`the files to be ${JSON.stringify(states)}`, async () => {
    const found = await readStates(app.ctx);
    return JSON.stringify(found) === JSON.stringify(states);
  });
const allOf = (names: readonly string[], state: string) => Object.fromEntries(names.map((path) => [path, state]));

test('many files are asked for in few calls, and polled until they are ready', async () => {
  const names = paths(250);
  await put(names);
  await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking();
  await untilStates(allOf(names, 'ASKED'));
  expect(calls('stage').map(({ paths: asked }) => asked.length)).toEqual([100, 100, 50]);
  expect(
    calls('stage')
      .flatMap(({ paths: asked }) => asked)
      .sort(),
  ).toEqual(names);
  system.arrive(names);
  await untilStates(allOf(names, 'READY'));
  expect(new Set((await readStaging(app.ctx)).map(({ remoteId }) => remoteId)).size).toBe(3);
});

test('no more than the depth is asked for, in files and in bytes, and the next ones follow', async () => {
  const names = paths(30);
  await put(names);
  await makeRequest(app, { ...alice, patterns: '/a/' });
  const end = startAsking({ depth: { files: 10, bytes: null } });
  await waitFor('ten files to be asked for', async () => (await readStaging(app.ctx)).length === 10);
  await app.ctx.db.pool.query(
    `DELETE FROM recall WHERE file_id IN (SELECT file_id FROM staging ORDER BY file_id LIMIT 5)`,
  );
  await waitFor('the five that nobody wants to be let go', async () => {
    clock.advance(4); // they wait for others of their demand for a while
    return calls('release').flatMap((call) => call.paths).length === 5;
  });
  await waitFor(
    'five others to be asked for',
    async () => new Set(calls('stage').flatMap((call) => call.paths)).size === 15,
  );
  await waitFor('the five to be forgotten', async () => (await readStaging(app.ctx)).length === 10);
  await end();
  await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking({ depth: { files: 100, bytes: 12_500n } });
  await waitFor('what fits into 12,500 bytes', async () => (await readStaging(app.ctx)).length === 12);
});

test('not more is asked for than the restore area can take; a file that no disk has room for says so', async () => {
  await app.ctx.db.pool.query('UPDATE restore_disk SET size = 5500');
  await put(paths(10));
  await put(['/a/large'], 6000);
  const id = await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking();
  await waitFor('five files to be asked for', async () => (await readStaging(app.ctx)).length === 5);
  const large = await waitFor('the large one to say why it waits', async () => {
    const { rows } = await app.ctx.db.pool.query<{ error: string; errorClass: string }>(
      `SELECT c.error, c.error_class AS "errorClass" FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE f.path = '/a/large' AND c.error IS NOT NULL`,
    );
    return rows[0];
  });
  expect(large).toEqual({
    errorClass: 'SPACE',
    error: `no restore disk has room for 6000 bytes: ${app.restoreDir} has 5500 of its allocation of 5500 bytes left`,
  });
  expect((await viewRequest(app, id)).filesFailed).toBe(0);
});

test('a user with a long queue leaves room for another one', async () => {
  await put(paths(200, 'long'));
  await put(paths(20, 'short'));
  await makeRequest(app, { ...alice, patterns: '/long/' });
  await makeRequest(app, { quota: 'bob', retention: '2099-01-01', patterns: '/short/' });
  startAsking({ depth: { files: 40, bytes: null } });
  await waitFor('the depth to be full', async () => (await readStaging(app.ctx)).length === 40);
  const states = Object.keys(await readStates(app.ctx));
  expect(states.filter((path) => path.startsWith('/short/')).length).toBe(20);
});

test('what is asked for and cancelled before it comes is released by its name, and forgotten', async () => {
  const names = paths(3);
  await put(names);
  const id = await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking();
  await untilStates(allOf(names, 'ASKED'));
  await cancelRequest(app.ctx, id);
  await untilStates({});
  expect(calls('release')).toEqual([{ what: 'release', paths: names, id: 'demand-1' }]);
  expect([...system.demands.values()].flatMap((wanted) => [...wanted])).toEqual([]);
});

test('an answer that is lost is asked for again, and what nobody wants by then is released all the same', async () => {
  const names = paths(2);
  await put(names);
  const id = await makeRequest(app, { ...alice, patterns: '/a/' });
  const gate = createGate();
  system.onCall = async (what) => {
    if (what === 'stage') await gate.opened;
  };
  system.lose('stage');
  startAsking();
  await waitFor('the call', async () => calls('stage').length === 1);
  expect(await readStates(app.ctx)).toEqual(allOf(names, 'INTENDED'));
  await cancelRequest(app.ctx, id);
  gate.open();
  await waitFor('the library to rest', async () => {
    const { rows } = await app.ctx.db.pool.query('SELECT problem FROM stager WHERE problem IS NOT NULL');
    return rows[0];
  });
  await waitFor('it to be let go', async () => {
    clock.advance(20);
    return (await readStaging(app.ctx)).length === 0;
  });
  expect(calls('stage').length).toBe(2);
  expect(calls('release')).toEqual([{ what: 'release', paths: names, id: 'demand-2' }]);
});

test('what an engine was about to ask for when it died is asked for by the next one', async () => {
  const names = paths(2);
  await put(names);
  await makeRequest(app, { ...alice, patterns: '/a/' });
  const gate = createGate();
  const taken = createGate();
  system.onStaged = () => taken.open();
  let answers = 0;
  const frozen = createMemoryStaging(system, { limits: { stage: 10, poll: 10, release: 10 } });
  const place = {
    id: libraryId,
    name: 'silo',
    depth: { files: 10, bytes: null },
    usage: new UsageNotes(libraryId, frozen),
    library: {
      ...frozen,
      stage: async (...given: Parameters<typeof frozen.stage>) => {
        const answer = await frozen.stage(...given);
        await gate.opened; // the process stands still before it can note the answer
        answers++;
        return answer;
      },
    },
  };
  const stop = new AbortController();
  const options = {
    engineId: randomUUID(),
    leaseSeconds: 0.2,
    stop: stop.signal,
    bells: [new Waker()],
    idleMs: 20,
    leftMs: 100,
    measure,
  };
  const first = runStager(app.ctx, place, options);
  await taken.opened;
  await app.ctx.db.pool.query(`UPDATE stager SET engine_id = NULL, lease_until = NULL`); // as if its time were over
  startAsking();
  await untilStates(allOf(names, 'ASKED'));
  expect(new Set((await readStaging(app.ctx)).map(({ remoteId }) => remoteId))).toEqual(new Set(['demand-2']));
  gate.open();
  await waitFor('the first one to wake', async () => answers === 1);
  stop.abort();
  await first;
  expect(new Set((await readStaging(app.ctx)).map(({ remoteId }) => remoteId))).toEqual(new Set(['demand-2']));
});

test('a file that cannot be had ends, or is tried again by its class; others of the call are asked for', async () => {
  const names = paths(3);
  await put(names);
  system.spoil('/a/0000', 'lost');
  system.spoil('/a/0001', 'unavailable');
  const id = await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking();
  const view = await waitFor('both to have failed', async () => {
    clock.advance(700);
    const seen = await viewRequest(app, id);
    return seen.filesFailed === 2 && seen;
  });
  expect(view.holds.map(({ path, state, errorClass, error }) => [path, state, errorClass, error])).toEqual([
    ['/a/0000', 'FAILED', 'PERMANENT', 'there is no "/a/0000" on tape'],
    ['/a/0001', 'FAILED', 'TRANSIENT', '"/a/0001" cannot be had for now; given up after 8 tries'],
    ['/a/0002', 'WAITING', null, null],
  ]);
  await untilStates({ '/a/0002': 'ASKED' });
});

test('what the system has forgotten is asked for again, which is no try of the file', async () => {
  const names = paths(2);
  await put(names);
  await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking();
  await untilStates(allOf(names, 'ASKED'));
  system.forget();
  await waitFor('they to be asked for again', async () => calls('stage').length === 2);
  system.arrive(names);
  await untilStates(allOf(names, 'READY'));
  const { rows } = await app.ctx.db.pool.query('SELECT attempts FROM recall');
  expect(rows).toEqual([{ attempts: 0 }, { attempts: 0 }]);
});

test('a library that is busy is left alone as long as it says, and one that is held is not turned to', async () => {
  const names = paths(1);
  await put(names);
  system.busy(3000);
  await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking();
  await waitFor('it to say so', async () => {
    const { rows } = await app.ctx.db.pool.query<{ rests: string }>(
      'SELECT extract(epoch FROM rest_until - $1::timestamp)::int AS rests FROM stager WHERE rest_until IS NOT NULL',
      [clock.now()],
    );
    return rows[0] && Number(rows[0].rests) >= 2990;
  });
  expect(system.log.length).toBe(1);
  await suspend(app, { kind: 'BACKEND', name: 'silo', mode: 'HELD' });
  clock.advance(3100);
  await put(['/b/0000']);
  await makeRequest(app, { ...alice, patterns: '/b/' });
  expect(system.log.length).toBe(1);
  await resume(app, 'BACKEND', 'silo');
  await untilStates({ '/a/0000': 'ASKED', '/b/0000': 'ASKED' });
});

test('a library that drains is asked for nothing new, and what it was asked for comes', async () => {
  await put(['/a/0000', '/b/0000']);
  await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking();
  await untilStates({ '/a/0000': 'ASKED' });
  await suspend(app, { kind: 'BACKEND', name: 'silo', mode: 'DRAINING' });
  await makeRequest(app, { ...alice, patterns: '/b/' });
  system.arrive(['/a/0000']);
  await untilStates({ '/a/0000': 'READY' });
  expect(calls('stage').length).toBe(1);
});

test('what the system keeps after it was released is shown until its time is over', async () => {
  system = new MemoryTapeSystem({ releases: false, lifetimeMs: 3_600_000 });
  await put(['/a/0000']);
  const id = await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking();
  await untilStates({ '/a/0000': 'ASKED' });
  system.arrive(['/a/0000']);
  await untilStates({ '/a/0000': 'READY' });
  await cancelRequest(app.ctx, id);
  await untilStates({ '/a/0000': 'KEPT' });
  clock.advance(3700);
  await untilStates({});
});

test('what the system keeps without a word of how long is looked at now and then, until it has left', async () => {
  system = new MemoryTapeSystem({ releases: false });
  await put(['/a/0000']);
  const id = await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking();
  await untilStates({ '/a/0000': 'ASKED' });
  system.arrive(['/a/0000']);
  await untilStates({ '/a/0000': 'READY' });
  await cancelRequest(app.ctx, id);
  await untilStates({ '/a/0000': 'KEPT' });
  clock.advance(590);
  await put(['/b/0000']);
  await makeRequest(app, { ...alice, patterns: '/b/' });
  await untilStates({ '/a/0000': 'KEPT', '/b/0000': 'ASKED' });
  expect(calls('release').length).toBe(1);
  clock.advance(20);
  await waitFor('it to be looked at', async () => calls('release').length === 2);
  expect((await readStates(app.ctx))['/a/0000']).toBe('KEPT');
  system.evict('/a/0000');
  clock.advance(590);
  await untilStates({ '/b/0000': 'ASKED' });
  expect(calls('release').length).toBe(3);
});

test('of two engines one asks, and the other one goes on when it stops', async () => {
  await put(paths(2));
  const first = startAsking();
  const second = startAsking();
  await makeRequest(app, { ...alice, patterns: '/a/0000' });
  await untilStates({ '/a/0000': 'ASKED' });
  await first();
  await makeRequest(app, { ...alice, patterns: '/a/0001' });
  await untilStates({ '/a/0000': 'ASKED', '/a/0001': 'ASKED' });
  await second();
  expect(calls('stage').map((call) => call.paths)).toEqual([['/a/0000'], ['/a/0001']]);
});

test('a library is not removed before it was told what nobody needs, be the files in another one by now', async () => {
  await put(['/a/0000']);
  await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking();
  await untilStates({ '/a/0000': 'ASKED' });
  system.onCall = async (what) => {
    if (what === 'release') throw new LibraryError('TRANSIENT', 'it cannot be told now');
  };
  await addFiles(app.ctx, [{ path: '/a/0000', volume: 'V00001', position: 1n }]);
  await untilStates({ '/a/0000': 'RELEASING' });
  await expect(removeLibrary(app.ctx, 'silo')).rejects.toThrow(
    'the library "silo" was asked for 1 file, and is still to be told that nobody needs it; try again when it was, or force it where it cannot be told any more',
  );
  system.onCall = async () => {};
  await waitFor('it to be told', async () => {
    clock.advance(20);
    return (await readStaging(app.ctx)).length === 0;
  });
  expect(await removeLibrary(app.ctx, 'silo')).toMatchObject({ name: 'silo', volumes: 1 });
});

test('a library that is gone for good is removed by force, which tells and audits what may stay there', async () => {
  await put(['/a/0000']);
  await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking();
  await untilStates({ '/a/0000': 'ASKED' });
  system.onCall = async (what) => {
    if (what === 'release') throw new LibraryError('TRANSIENT', 'it is no more');
  };
  const force = () =>
    askData(
      app,
      `mutation { result: removeLibrary(name: "silo", force: true) {
        ... on RemovedLibrary { name volumes leftFiles leftBytes left { path demand until } } ... on Failure { message }
      } }`,
      {},
    );
  const refused = { message: expect.stringContaining('has 1 file of') };
  expect(await force()).toMatchObject({ result: refused });
  await addFiles(app.ctx, [{ path: '/a/0000', volume: 'V00001', position: 1n }]);
  await untilStates({ '/a/0000': 'RELEASING' });
  const [row] = await readStaging(app.ctx);
  const left = [{ path: '/a/0000', demand: row?.remoteId, until: null }];
  expect(await force()).toEqual({
    result: { name: 'silo', volumes: 1, leftFiles: 1, leftBytes: expect.any(String), left },
  });
  expect(await readStaging(app.ctx)).toEqual([]);
  const { rows } = await app.ctx.db.pool.query(
    `SELECT given FROM audit WHERE operation = 'removeLibrary' AND result = 'DONE'`,
  );
  expect(rows).toEqual([{ given: expect.objectContaining({ force: true, leftFiles: 1, demands: [row?.remoteId] }) }]);
});

test('what was asked for long ago is released together, however far between it is not needed any more', async () => {
  const names = paths(4);
  await put(names);
  await makeRequest(app, { ...alice, patterns: '/a/' });
  startAsking();
  await untilStates(allOf(names, 'ASKED'));
  clock.advance(2000);
  for (const path of names.slice(0, 3)) {
    await app.ctx.db.pool.query(
      'DELETE FROM recall WHERE file_id IN (SELECT f.id FROM tape_file f WHERE f.path = $1)',
      [path],
    );
    await waitFor(`${path} to be let go`, async () => (await readStates(app.ctx))[path] !== 'ASKED');
    clock.advance(20);
  }
  await waitFor('them to be released', async () => {
    clock.advance(10);
    return Object.keys(await readStates(app.ctx)).length === 1;
  });
  expect(calls('release').map((call) => call.paths)).toEqual([names.slice(0, 3)]);
});
