/**
 * An engine's requests to a staging library: their times, their files, and the handling of wrong responses. No file is
 * read.
 */
import { randomUUID } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { removeLibrary } from '../../src/domain/libraries/changes.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { WorkSignal } from '../../src/engine/jobs/jobs.js';
import { runStager } from '../../src/engine/staging/stager.js';
import { addDisk } from '../../src/restore-area/setup.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import { RetryLaterError, type StagingLibrary } from '../../src/tape/staging.js';
import { createClock } from '../support/clock.js';
import { measure } from '../support/engine-by-hand.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData, type Edges } from '../support/graphql.js';
import { createMemoryStaging, type MemorySystemOptions, MemoryTapeSystem } from '../support/memory-staging.js';
import { mutate } from '../support/payloads.js';
import { viewRequest } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addRemote, addStagingLibrary, readStaging, readStates } from '../support/staging.js';
import { resume, suspend } from '../support/suspend.js';
import { emptyTables } from '../support/tables.js';
import { useApp } from '../support/use-app.js';
import { createGate, waitFor } from '../support/wait.js';

let system: MemoryTapeSystem;
let libraryId: number;
const clock = createClock();
const stops: (() => Promise<void>)[] = [];

const app = useApp({ now: clock.now }, async () => mkdirSync(app.restoreDir));

beforeEach(async () => {
  await emptyTables(app.ctx);
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 10n ** 12n);
  await addDisk(app.ctx, { mountpoint: app.restoreDir, size: 10n ** 9n });
  system = new MemoryTapeSystem();
  libraryId = await addStagingLibrary(app.ctx, { name: 'silo' });
});
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

interface AskOptions {
  depth?: { files: number; bytes: bigint | null };
  /** Maximum number of files in one call. */
  stage?: number;
  /** Replaces methods of the in-memory library. */
  calls?: Partial<StagingLibrary>;
}

/** Lets an engine request files from the library. @returns a function that stops the engine */
function startAsking({ depth = { files: 1000, bytes: null }, stage = 100, calls = {} }: AskOptions = {}) {
  const library = { ...createMemoryStaging(system, { limits: { stage, poll: 100, release: 100 } }), ...calls };
  const place = { id: libraryId, name: 'silo', library, depth };
  const stop = new AbortController();
  const running = runStager(app.ctx, place, {
    ...{ engineId: randomUUID(), leaseSeconds: 15, stop: stop.signal, signals: [new WorkSignal()] },
    ...{ idleMs: 20, unusablePauseMs: 100, measure },
  });
  const end = async () => {
    stop.abort();
    await running;
  };
  stops.push(end);
  return end;
}

const request = (patterns: string, quota = 'alice') => makeRequest(app, { quota, retention: '2099-01-01', patterns });
const pathsOf = (count: number, directory = 'a') =>
  Array.from({ length: count }, (_, n) => `/${directory}/${String(n).padStart(3, '0')}`);
const put = (paths: readonly string[], size = 1000) =>
  addRemote(app.ctx, system, { library: 'silo', files: paths.map((path) => ({ path, size })) });
const sql = async <Row extends object>(text: string, values: unknown[] = []) =>
  (await app.ctx.db.pool.query<Row>(text, values)).rows;

/** Returns the paths in each call of one kind. */
const callsOf = (what: string) => system.log.flatMap((call) => (call.what === what ? [call.paths] : []));
const countStaging = async () => (await readStaging(app.ctx)).length;
const allOf = (paths: readonly string[], state: string) => Object.fromEntries(paths.map((path) => [path, state]));

/** Waits until files have these states. @param seconds by which the clock advances before each check */
const waitForStates = (states: Record<string, string>, seconds = 0) =>
  waitFor(`the files to be ${JSON.stringify(states)}`, async () => {
    clock.advance(seconds);
    return JSON.stringify(await readStates(app.ctx)) === JSON.stringify(states);
  });
const readProblem = async () =>
  (await sql<{ problem: string | null }>('SELECT problem FROM stager'))[0]?.problem ?? undefined;
const fail = (message: string) => async () => {
  throw new LibraryError('TRANSIENT', message);
};

/** Requests files of the library, and starts an engine. @returns the id of the request */
async function begin(paths: readonly string[], options: AskOptions = {}): Promise<number> {
  await put(paths);
  const id = await request('/a/');
  startAsking(options);
  return id;
}

/** Requests files, and waits until the engine has asked the library for them. */
async function askFor(paths: readonly string[], options: AskOptions = {}): Promise<number> {
  const id = await begin(paths, options);
  await waitForStates(allOf(paths, 'ASKED'));
  return id;
}

/** Waits until the engine has checked the library `count` times. */
async function waitForPasses(count: number): Promise<void> {
  await put(['/pass']);
  for (let n = 0; n < count; n++) {
    await sql(
      `INSERT INTO staging (file_id, library_id, state, batch, size, asked_at, since, due_at)
       SELECT id, $1, 'KEPT', gen_random_uuid(), 1, '2001-01-01', '2001-01-01', '2001-01-01' FROM tape_file WHERE path = '/pass'`,
      [libraryId],
    );
    await waitFor('a pass', async () => !('/pass' in (await readStates(app.ctx))));
  }
}

test('many files are requested in few calls, and polled until they are ready', async () => {
  const paths = pathsOf(250);
  await askFor(paths);
  expect(callsOf('stage').map(({ length }) => length)).toEqual([100, 100, 50]);
  expect(callsOf('stage').flat().sort()).toEqual(paths);
  system.arrive(paths);
  await waitForStates(allOf(paths, 'READY'));
  expect(new Set((await readStaging(app.ctx)).map(({ remoteId }) => remoteId)).size).toBe(3);
});

test('no more files and bytes are requested than the depth allows, and others follow when files are released', async () => {
  await put(pathsOf(30));
  await request('/a/');
  const end = startAsking({ depth: { files: 10, bytes: null } });
  await waitFor('ten files to be requested', async () => (await countStaging()) === 10);
  await sql('DELETE FROM recall WHERE file_id IN (SELECT file_id FROM staging ORDER BY file_id LIMIT 5)');
  await waitFor('five files to be released', async () => {
    clock.advance(4); // a release waits for other files of the same stage request
    return callsOf('release').flat().length === 5;
  });
  await waitFor('five others to be requested', async () => new Set(callsOf('stage').flat()).size === 15);
  await waitFor('ten files to be left', async () => (await countStaging()) === 10);
  await end();
  await request('/a/');
  startAsking({ depth: { files: 100, bytes: 12_500n } });
  await waitFor('what fits into 12,500 bytes', async () => (await countStaging()) === 12);
});

test('no more is requested than fits into the restore area; a file that no disk has room for says so', async () => {
  await sql('UPDATE restore_disk SET size = 5500');
  await put(pathsOf(10));
  await put(['/a/large'], 6000);
  const id = await request('/a/');
  startAsking();
  await waitFor('five files to be requested', async () => (await countStaging()) === 5);
  const read = `SELECT c.error, c.error_class AS "errorClass" FROM recall c JOIN tape_file f ON f.id = c.file_id
    WHERE f.path = '/a/large' AND c.error IS NOT NULL`;
  const large = await waitFor('the large file to say why it waits', async () => (await sql(read))[0]);
  expect(large).toEqual({
    errorClass: 'SPACE',
    error: `no restore disk has room for 6.00 kB: ${app.restoreDir} has 5.50 kB left of the 5.50 kB allocated to Tapegate`,
  });
  expect((await viewRequest(app, id)).filesFailed).toBe(0);
});

test('a user with a long queue leaves room for another user', async () => {
  await put(pathsOf(200, 'long'));
  await put(pathsOf(20, 'short'));
  await request('/long/');
  await request('/short/', 'bob');
  startAsking({ depth: { files: 40, bytes: null } });
  await waitFor('the depth to be full', async () => (await countStaging()) === 40);
  const states = Object.keys(await readStates(app.ctx));
  expect(states.filter((path) => path.startsWith('/short/')).length).toBe(20);
});

test('files of a request that is cancelled before they arrive are released by the id of their demand', async () => {
  const paths = pathsOf(3);
  await cancelRequest(app.ctx, await askFor(paths));
  await waitForStates({});
  expect(system.log.filter(({ what }) => what === 'release')).toEqual([{ what: 'release', paths, id: 'demand-1' }]);
  expect([...system.demands.values()].flatMap((wanted) => [...wanted])).toEqual([]);
});

test('a call whose answer is lost is made again, and files that no request needs by then are released', async () => {
  const paths = pathsOf(2);
  const gate = createGate();
  system.onCall = async (what) => {
    if (what === 'stage') await gate.opened;
  };
  system.lose('stage');
  const id = await begin(paths);
  await waitFor('the call', async () => callsOf('stage').length === 1);
  expect(await readStates(app.ctx)).toEqual(allOf(paths, 'INTENDED'));
  await cancelRequest(app.ctx, id);
  gate.open();
  await waitFor('the library to rest', readProblem);
  await waitForStates({}, 20);
  expect(callsOf('stage').length).toBe(2);
  expect(system.log.filter(({ what }) => what === 'release')).toEqual([{ what: 'release', paths, id: 'demand-2' }]);
});

test('files that an engine was about to request when it died are requested by the next engine', async () => {
  const paths = pathsOf(2);
  await put(paths);
  await request('/a/');
  const [gate, taken] = [createGate(), createGate()];
  system.onStaged = () => taken.open();
  const memory = createMemoryStaging(system);
  let answers = 0;
  const stall: StagingLibrary['stage'] = async (...given) => {
    const answer = await memory.stage(...given);
    await gate.opened; // the process stalls before it can record the response
    answers++;
    return answer;
  };
  const end = startAsking({ calls: { stage: stall } });
  await taken.opened;
  await sql('UPDATE stager SET engine_id = NULL, lease_until = NULL'); // as if the lease had expired
  startAsking();
  await waitForStates(allOf(paths, 'ASKED'));
  const readIds = async () => (await readStaging(app.ctx)).map(({ remoteId }) => remoteId);
  expect(await readIds()).toEqual(['demand-2', 'demand-2']);
  gate.open();
  await waitFor('the first engine to resume', async () => answers === 1);
  await end();
  expect(await readIds()).toEqual(['demand-2', 'demand-2']);
});

test('a lost file fails, one that is unavailable is tried 8 times, and others of the call are requested', async () => {
  const paths = pathsOf(3);
  await put(paths);
  system.spoil('/a/000', 'lost');
  system.spoil('/a/001', 'unavailable');
  const id = await request('/a/');
  startAsking();
  const { files } = await waitFor('both files to fail', async () => {
    clock.advance(700);
    const view = await viewRequest(app, id);
    return view.filesFailed === 2 && view;
  });
  expect(files.map(({ path, state, errorClass, error }) => [path, state, errorClass, error])).toEqual([
    ['/a/000', 'FAILED', 'PERMANENT', 'there is no "/a/000" on tape'],
    ['/a/001', 'FAILED', 'TRANSIENT', '"/a/001" cannot be had for now; given up after 8 tries'],
    ['/a/002', 'WAITING', null, null],
  ]);
  await waitForStates({ '/a/002': 'ASKED' });
});

test('a demand that the system has forgotten is made again, and its files are charged no try', async () => {
  const paths = pathsOf(2);
  await askFor(paths);
  system.forget();
  await waitFor('another call', async () => callsOf('stage').length === 2);
  system.arrive(paths);
  await waitForStates(allOf(paths, 'READY'));
  expect(await sql('SELECT attempts FROM recall')).toEqual([{ attempts: 0 }, { attempts: 0 }]);
});

test('a library is called neither before the time that it says when it is busy, nor while it is suspended', async () => {
  system.busy(3000);
  await begin(['/a/000']);
  const rests = `SELECT FROM stager WHERE rest_until >= $1::timestamp + interval '2990 s'`;
  await waitFor('the library to rest', async () => (await sql(rests, [clock.now()])).length === 1);
  await waitForPasses(1);
  expect(system.log.length).toBe(1);
  await suspend(app, { kind: 'LIBRARY', name: 'silo', mode: 'IMMEDIATE' });
  clock.advance(3100);
  await put(['/b/000']);
  await request('/b/');
  await waitForPasses(1);
  expect(system.log.length).toBe(1);
  await resume(app, 'LIBRARY', 'silo');
  await waitForStates({ '/a/000': 'ASKED', '/b/000': 'ASKED' });
});

test('a library that drains gets no new request, and files that were requested before arrive', async () => {
  await put(['/b/000']);
  await askFor(['/a/000']);
  await suspend(app, { kind: 'LIBRARY', name: 'silo', mode: 'DRAINING' });
  await request('/b/');
  system.arrive(['/a/000']);
  await waitForStates({ '/a/000': 'READY' });
  await waitForPasses(1);
  expect(callsOf('stage').length).toBe(1);
});

/** Makes a file that the tape system keeps after its release. */
async function keepOne(options: MemorySystemOptions): Promise<void> {
  system = new MemoryTapeSystem({ releases: false, ...options });
  const id = await askFor(['/a/000']);
  system.arrive(['/a/000']);
  await waitForStates({ '/a/000': 'READY' });
  await cancelRequest(app.ctx, id);
}

test.each([
  ['', 5, () => {}],
  [', even if the system says it only when the file arrives', 50, () => system.disk.set('/a/000', null)],
])('a file that the system keeps is shown with its end, until then%s', async (_what, days, atRelease) => {
  const endMs = Date.now() + days * 86_400_000;
  await keepOne({ lifetimeMs: days * 86_400_000 });
  system.onCall = async (what) => void (what === 'release' && atRelease());
  await waitForStates({ '/a/000': 'KEPT' }, 5);
  type Shown = { filesKept: number; nextKept: { path: string; until: string }[] };
  const { libraries } = await askData<{ libraries: Edges<{ staging: Shown | null }> }>(
    app,
    '{ libraries { edges { node { staging { filesKept nextKept { path until } } } } } }',
  );
  const shown = libraries.edges.flatMap(({ node }) => node.staging ?? []);
  expect(shown).toEqual([{ filesKept: 1, nextKept: [{ path: '/a/000', until: expect.any(String) }] }]);
  expect(Math.abs(Date.parse(shown[0]?.nextKept[0]?.until ?? '') - endMs)).toBeLessThan(300_000);
  clock.advance(days * 86_400 + 1000);
  await waitForStates({});
});

test('a file that the system keeps without an end is checked every ten minutes until it has left', async () => {
  await keepOne({});
  await waitForStates({ '/a/000': 'KEPT' });
  clock.advance(590);
  await put(['/b/000']);
  await request('/b/');
  await waitForStates({ '/a/000': 'KEPT', '/b/000': 'ASKED' });
  expect(callsOf('release').length).toBe(1);
  clock.advance(20);
  await waitFor('a check', async () => callsOf('release').length === 2);
  expect((await readStates(app.ctx))['/a/000']).toBe('KEPT');
  system.evict('/a/000');
  clock.advance(610);
  await waitForStates({ '/b/000': 'ASKED' });
  expect(callsOf('release').length).toBe(3);
});

test('one of two engines calls the library, and the other takes over when it stops', async () => {
  await put(pathsOf(2));
  const first = startAsking();
  startAsking();
  await request('/a/000');
  await waitForStates({ '/a/000': 'ASKED' });
  await first();
  await request('/a/001');
  await waitForStates({ '/a/000': 'ASKED', '/a/001': 'ASKED' });
  expect(callsOf('stage')).toEqual([['/a/000'], ['/a/001']]);
});

const force = () =>
  mutate(
    app,
    'removeLibrary',
    { name: 'silo', force: true },
    'removed { __typename name volumeCount stagedFileCount stagedBytes left { path demand until } }',
  );

/** Moves the requested file to another library, and lets its release fail. */
async function failRelease(): Promise<void> {
  system.onCall = (what) => (what === 'release' ? fail('the system is away')() : Promise.resolve());
  await addFiles(app.ctx, [{ path: '/a/000', volume: 'V00001', position: 1n }]);
  await waitForStates({ '/a/000': 'RELEASING' });
}

test('a library is not removed before its files are released, even if they are in another library by then', async () => {
  await askFor(['/a/000']);
  await failRelease();
  await expect(removeLibrary(app.ctx, 'silo')).rejects.toThrow(
    'library "silo" still stages 1 file for Tapegate: try again when it is released, or force the removal if the library no longer answers',
  );
  system.onCall = async () => {};
  await waitForStates({}, 20);
  expect(await removeLibrary(app.ctx, 'silo')).toMatchObject({ name: 'silo', volumes: 1 });
});

test('a library that is gone is removed by force, which reports and audits files that may stay there', async () => {
  await askFor(['/a/000']);
  expect(await force()).toMatchObject({
    __typename: 'InUse',
    message: expect.stringContaining('contains 1 file (1000 bytes in total)'),
  });
  await failRelease();
  const [row] = await readStaging(app.ctx);
  const left = [{ path: '/a/000', demand: row?.remoteId, until: null }];
  expect(await force()).toEqual({
    ...{ __typename: 'RemovedLibrary', name: 'silo', volumeCount: 1, stagedFileCount: 1 },
    ...{ stagedBytes: expect.any(String), left },
  });
  expect(await readStaging(app.ctx)).toEqual([]);
  expect(await sql(`SELECT given FROM audit WHERE operation = 'removeLibrary' AND result = 'DONE'`)).toEqual([
    { given: expect.objectContaining({ force: true, stagedFiles: 1, demands: [row?.remoteId] }) },
  ]);
});

test('files of an old demand are released together, even if requests stop needing them at different times', async () => {
  const paths = pathsOf(4);
  await askFor(paths);
  clock.advance(2000);
  for (const path of paths.slice(0, 3)) {
    await sql('DELETE FROM recall WHERE file_id IN (SELECT f.id FROM tape_file f WHERE f.path = $1)', [path]);
    await waitFor(`${path} to be released`, async () => (await readStates(app.ctx))[path] !== 'ASKED');
    clock.advance(20);
  }
  await waitForStates({ '/a/003': 'ASKED' }, 10);
  expect(callsOf('release')).toEqual([paths.slice(0, 3)]);
});

test('demands whose poll fails delay no other demand, and are polled again', async () => {
  const paths = pathsOf(20);
  let isBad = (path: string) => path < '/a/006';
  system.onCall = async (what, called) => {
    if (what === 'poll' && called.some((path) => isBad(path))) await fail('it cannot say')();
  };
  await begin(paths, { stage: 1 }); // one stage request for each file
  await waitForStates(allOf(paths, 'ASKED'), 4);
  system.arrive(paths);
  await waitForStates({ ...allOf(paths.slice(0, 6), 'ASKED'), ...allOf(paths.slice(6), 'READY') }, 4);
  isBad = () => false;
  await waitForStates(allOf(paths, 'READY'), 4);
});

test('a file that is ready until a time in the past is ready: the clock of the library may be wrong', async () => {
  const paths = pathsOf(3);
  const over = [new Date('2001-01-01T00:00:00Z'), new Date(Number.NaN), new Date(8.64e15)];
  const poll: StagingLibrary['poll'] = async ({ files }) =>
    files.map(({ path }, n) => ({ path, state: 'ready', until: over[n] ?? null }));
  await begin(paths, { calls: { poll } });
  await waitForStates(allOf(paths, 'READY'), 4);
  await waitForPasses(3);
  expect(await readStates(app.ctx)).toEqual(allOf(paths, 'READY'));
  expect(callsOf('stage').flat()).toEqual(paths);
});

test('files that were never requested are not requested after their request was cancelled', async () => {
  const paths = pathsOf(5);
  system.onCall = async (what) => {
    if (what === 'stage') throw new RetryLaterError('not now', 3000);
  };
  const id = await begin(paths, { stage: 1 });
  await waitFor('the library to rest', readProblem);
  expect(await readStates(app.ctx)).toEqual(allOf(paths, 'INTENDED'));
  await cancelRequest(app.ctx, id);
  system.onCall = async () => {};
  await waitForStates({ '/a/000': 'INTENDED' }); // the library may know this file from the failed call
  clock.advance(3100);
  await waitForStates({}, 4);
  expect(callsOf('stage')).toEqual([['/a/000'], ['/a/000']]);
});

test.each(['a\0b', '\ud800', 'x'.repeat(100_000)])(
  'a demand whose id cannot be stored is a problem of the library, and is made again (%#)',
  async (badId) => {
    const paths = pathsOf(2);
    const memory = createMemoryStaging(system);
    let isBad = true;
    const stage: StagingLibrary['stage'] = async (...given) => {
      const answer = await memory.stage(...given);
      return isBad ? { ...answer, id: badId } : answer;
    };
    await begin(paths, { calls: { stage } });
    expect(await waitFor('a problem', readProblem)).toContain('an id must be valid Unicode without NUL');
    expect(await readStates(app.ctx)).toEqual(allOf(paths, 'INTENDED'));
    isBad = false;
    await waitForStates(allOf(paths, 'ASKED'), 4);
    expect((await readStaging(app.ctx)).every(({ attempts }) => attempts > 0)).toBe(true);
  },
);

test('a library that failed to answer is shown with its problem until it has answered', async () => {
  system.onCall = fail('nobody is there');
  await begin(['/a/000']);
  await waitFor('the library to rest', readProblem);
  await sql(`UPDATE staging SET due_at = '2100-01-01'`);
  clock.advance(60);
  await waitForPasses(2); // two checks without a call of the library
  expect(await readProblem()).toBe('nobody is there');
  system.onCall = async () => {};
  await sql(`UPDATE staging SET due_at = '2001-01-01'`);
  await waitForStates({ '/a/000': 'ASKED' }, 4);
  await waitFor('the problem to end', async () => (await readProblem()) === undefined);
});

test.each<[string, (other: number) => Promise<unknown>]>([
  ['is suspended', () => suspend(app, { kind: 'LIBRARY', name: 'other', mode: 'IMMEDIATE' })],
  [
    'does not answer',
    (other) => sql('INSERT INTO stager (library_id, failures, problem) VALUES ($1, 3, $2)', [other, 'away']),
  ],
])('files that were requested from another library that %s take no room in the restore area', async (_what, leave) => {
  const other = await addStagingLibrary(app.ctx, { name: 'other' });
  await addRemote(app.ctx, system, { library: 'other', files: [{ path: '/other' }] });
  await request('/other');
  await sql(
    `INSERT INTO staging (file_id, library_id, state, batch, size, asked_at, since, due_at)
     SELECT file_id, $1, 'ASKED', gen_random_uuid(), 10 ^ 12, now(), now(), now() FROM recall`,
    [other],
  );
  await begin(pathsOf(2));
  await waitForPasses(2);
  expect(callsOf('stage')).toEqual([]);
  await leave(other);
  await waitForStates({ ...allOf(pathsOf(2), 'ASKED'), '/other': 'ASKED' }, 4);
});
