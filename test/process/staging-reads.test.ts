/** Restores through a staging library, from the request to the file on disk. */
import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { StagedSource } from '../../src/engine/staging/source.js';
import { Unread } from '../../src/engine/staging/unread.js';
import { TapeError } from '../../src/errors.js';
import { LibraryError } from '../../src/tape/backend.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { ChangedError, type ReadVersion } from '../../src/tape/staging.js';
import type { MemoryTapeSystem } from '../../src/tape/staging-memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { findIllegalMoves, listTree, readDisks, readRestored, ring } from '../support/engine-watch.js';
import { addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { viewRequest, waitForState, waitForView } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addMemoryLibrary, addRemote, readStates } from '../support/staging.js';
import { resume, suspend } from '../support/suspend.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
let system: MemoryTapeSystem;
const clock = createClock();
const alice = { quota: 'alice', retention: '2099-01-01' };
const MIB = 1024 * 1024;

beforeAll(async () => {
  app = await startApp({ backend: createMemoryBackend(), now: clock.now, engine: { idleMs: 200 } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  system = await addMemoryLibrary(app.ctx, { name: 'silo' });
});
afterEach(() => {
  system.onCall = async () => {};
  system.onStaged = () => {};
  system.onRead = async (_path, bytes) => bytes;
  system.log.length = 0;
});
afterAll(async () => {
  await waitFor(
    'nothing to be staged that nobody holds',
    async () => Object.keys(await readStates(app.ctx)).length === 0,
  );
  expect([...system.disk.keys()]).toEqual([]);
  expect(await findIllegalMoves(app)).toEqual([]);
  expect(listTree(app.restoreDir).filter((name) => name.includes('.part'))).toEqual([]);
  expect((await readDisks(app)).reserved).toBe(0n);
  await app.close();
});

/** Tapes take no time from now on. */
const arriveAtOnce = () => {
  system.onStaged = (paths) => system.arrive(paths);
};
const put = (folder: string, count: number, size = 1000) =>
  addRemote(app.ctx, system, {
    library: 'silo',
    files: Array.from({ length: count }, (_, n) => ({ path: `/${folder}/${n}`, size })),
  });
const reads = () => system.log.filter(({ what }) => what === 'read');
const attemptsOf = async (folder: string) =>
  (
    await app.ctx.db.pool.query<{ n: number }>(
      `SELECT coalesce(sum(c.attempts), 0)::int AS n FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE f.path LIKE $1`,
      [`/${folder}/%`],
    )
  ).rows[0]?.n;

test('files are staged, read, put in place and released', async () => {
  const right = await put('many', 300);
  arriveAtOnce();
  const id = await makeRequest(app, { ...alice, patterns: '/many/' });
  const view = await waitForState(app, id, 'COMPLETED');
  expect(view.filesOnDisk).toBe(300);
  for (const [file, bytes] of right) expect(readRestored(app, file)).toEqual(bytes);
  await waitFor('them to be released', async () => Object.keys(await readStates(app.ctx)).length === 0);
  expect([...system.disk.keys()].filter((path) => path.startsWith('/many/'))).toEqual([]);
  const calls = system.log.filter(({ what }) => what !== 'read');
  expect(calls.length).toBeLessThanOrEqual(12);
});

test('what waits says at which library and since when it was asked for', async () => {
  await put('why', 2);
  const id = await makeRequest(app, { ...alice, patterns: '/why/' });
  type Answer = {
    request: {
      waiting: { parts: { edges: { node: { reason: string; explanation: string; files: number } }[] } } | null;
    };
  };
  const readParts = async () => {
    const { request } = await askData<Answer>(
      app,
      'query ($id: Int!) { request(id: $id) { waiting { parts(first: 10) { edges { node { reason explanation files } } } } } }',
      { id },
    );
    return request.waiting?.parts.edges.map(({ node }) => node) ?? [];
  };
  const [part] = await waitFor('them to be asked for', async () => {
    const parts = await readParts();
    return parts[0]?.reason === 'STAGING' && parts;
  });
  expect(part?.explanation).toMatch(
    /^its library brings it to disk: asked for at silo since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/,
  );
  expect(part?.files).toBe(2);
  system.arrive(['/why/0', '/why/1']);
  await waitForState(app, id, 'COMPLETED');
});

test('a read that breaks off goes on from there', async () => {
  const right = await put('broken', 1, 3 * MIB);
  arriveAtOnce();
  let breaks = 0;
  // what is left of the file ends early each time, as a connection does
  system.onRead = async (_path, bytes) => (breaks++ < 3 ? bytes.subarray(0, breaks * MIB) : bytes);
  const id = await makeRequest(app, { ...alice, patterns: '/broken/' });
  await waitForState(app, id, 'COMPLETED');
  expect(
    Buffer.compare(readRestored(app, '/broken/0') ?? Buffer.alloc(0), right.get('/broken/0') ?? Buffer.alloc(1)),
  ).toBe(0);
  expect(reads().map(({ from }) => from)).toEqual([0n, BigInt(MIB), 2n * BigInt(MIB)]);
});

test('bytes that the library calls wrong after the last of them are not taken for whole', async () => {
  const library = {
    async *read(_file: unknown, from: bigint) {
      if (from < 3n) yield Buffer.alloc(3);
      if (from === 0n) throw new TapeError('TRANSIENT', 'their checksum is another one');
    },
  };
  const place = { id: 1, name: 'silo', library } as never;
  const source = new StagedSource(
    app.ctx,
    place,
    [{ path: '/wrong/0', volume: 'V1', position: null }] as never,
    new Unread(),
  );
  const read = async () => {
    const file = { path: '/wrong/0', position: 0n, size: 3n };
    for await (const chunk of source.read(file, new AbortController().signal)) expect(chunk.length).toBe(3);
  };
  await expect(read()).rejects.toThrow('their checksum is another one');
});

test('what was exchanged in the midst of a read is not read on', async () => {
  const versions: unknown[] = [];
  const library = {
    async *read(_file: unknown, from: bigint, _signal: AbortSignal, version: ReadVersion) {
      versions.push({ ...version });
      if (version.tag !== undefined) throw new ChangedError('it is another one by now');
      version.tag = '"one"';
      yield Buffer.alloc(3);
      throw new TapeError('TRANSIENT', `it broke off after ${from + 3n}`);
    },
  };
  const place = { id: 1, name: 'silo', library } as never;
  const source = new StagedSource(
    app.ctx,
    place,
    [{ path: '/exchanged', volume: 'V1', position: null }] as never,
    new Unread(),
  );
  const read = async () => {
    const file = { path: '/exchanged', position: 0n, size: 9n };
    for await (const chunk of source.read(file, new AbortController().signal)) expect(chunk.length).toBe(3);
  };
  await expect(read()).rejects.toThrow('it is another one by now');
  expect(versions).toEqual([{}, { tag: '"one"' }]);
});

test('what has left the disk of the system before it was read is staged again, which is no try of it', async () => {
  await put('early', 2);
  let isFirst = true;
  // on disk when it was asked for, and gone when the drive comes to it
  system.onStaged = (paths) => {
    system.arrive(paths);
    if (isFirst) queueMicrotask(() => system.disk.clear());
    isFirst = false;
  };
  const id = await makeRequest(app, { ...alice, patterns: '/early/' });
  const view = await waitForState(app, id, 'COMPLETED');
  expect(system.log.filter(({ what }) => what === 'stage').length).toBe(2);
  expect(view.holds.map(({ error }) => error)).toEqual([null, null]);
});

test('wrong bytes are a try, and are staged anew before the next one', async () => {
  const right = await put('wrong', 1);
  arriveAtOnce();
  let isWrong = true;
  system.onRead = async (_path, bytes) => {
    const given = isWrong ? randomBytes(bytes.length) : bytes;
    isWrong = false;
    return given;
  };
  const id = await makeRequest(app, { ...alice, patterns: '/wrong/' });
  await waitFor('the first try to fail', async () => (await attemptsOf('wrong')) === 1);
  await waitFor('it to be released', async () => system.log.some(({ what }) => what === 'release'));
  clock.advance(60);
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
  expect(readRestored(app, '/wrong/0')).toEqual(right.get('/wrong/0'));
  expect(system.log.filter(({ what }) => what === 'stage').length).toBe(2);
});

test('a library that cannot be read rests, and neither its volume nor its files pay for that', async () => {
  await put('away', 3);
  arriveAtOnce();
  let isAway = true;
  system.onRead = async (_path, bytes) => {
    if (isAway) throw new LibraryError('TRANSIENT', 'the door for bytes is closed');
    return bytes;
  };
  const id = await makeRequest(app, { ...alice, patterns: '/away/' });
  await waitFor('it to rest', async () => {
    clock.advance(40);
    const { rows } = await app.ctx.db.pool.query<{ n: number }>('SELECT read_failures AS n FROM stager');
    return (rows[0]?.n ?? 0) >= 3;
  });
  expect(await attemptsOf('away')).toBe(0);
  isAway = false;
  clock.advance(600);
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
  const { rows } = await app.ctx.db.pool.query('SELECT name FROM suspension');
  expect(rows).toEqual([]);
});

test('a library that is held stops what is read, and one that drains goes on with what it was asked for', async () => {
  await put('held', 1, MIB);
  arriveAtOnce();
  const gate = createGate();
  system.onRead = async (_path, bytes) => {
    await gate.opened;
    return bytes;
  };
  const id = await makeRequest(app, { ...alice, patterns: '/held/' });
  await waitFor('it to be read', async () => reads().length === 1);
  await suspend(app, { kind: 'BACKEND', name: 'silo', mode: 'HELD' });
  await waitForView(app, id, 'to wait again', ({ holds }) => holds[0]?.stage === 'ONTAPE');
  gate.open();
  await resume(app, 'BACKEND', 'silo');
  await suspend(app, { kind: 'BACKEND', name: 'silo', mode: 'DRAINING' });
  await waitForState(app, id, 'COMPLETED');
  await put('new', 1);
  const next = await makeRequest(app, { ...alice, patterns: '/new/' });
  await ring(app, 'recall');
  expect((await viewRequest(app, next)).filesOnDisk).toBe(0);
  await resume(app, 'BACKEND', 'silo');
  await waitForState(app, next, 'COMPLETED');
});

test('an error of a file ends it by its class, and the others of the batch come', async () => {
  await put('bad', 3);
  arriveAtOnce();
  system.onRead = async (path, bytes) => {
    if (path === '/bad/1') throw new TapeError('POLICY', 'it is not for you');
    return bytes;
  };
  const id = await makeRequest(app, { ...alice, patterns: '/bad/' });
  const view = await waitForState(app, id, 'PARTIAL');
  expect(view.holds.map(({ state, error }) => [state, error])).toEqual([
    ['ON_DISK', null],
    ['FAILED', 'it is not for you'],
    ['ON_DISK', null],
  ]);
});
