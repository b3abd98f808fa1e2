/**
 * Restores through a staging library, from the request to the file on disk, with files that the library cannot deliver.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { secondsBetween } from '../../src/cli/terminal/times.js';
import { TapeError } from '../../src/core/errors.js';
import { StagedSource, UndeliveredFiles } from '../../src/engine/staging/source.js';
import { type FileOnVolume, LibraryError } from '../../src/tape/drive-library.js';
import { ChangedError, NotReadyError, type ReadVersion, RetryLaterError } from '../../src/tape/staging.js';
import { listTree, readDisks, readRestored, ring } from '../support/engine-watch.js';
import { askData, type Edges } from '../support/graphql.js';
import { useMemorySite } from '../support/memory-site.js';
import { MemoryTapeSystem } from '../support/memory-staging.js';
import { viewRequest, waitForState, waitForView } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addMemoryLibrary, addRemote, readStates } from '../support/staging.js';
import { readSuspensions, resume, suspend } from '../support/suspend.js';
import { createGate, waitFor } from '../support/wait.js';

let system: MemoryTapeSystem;
/** A tape system that keeps all files and has no ids for stage requests. */
let keeping: MemoryTapeSystem;
const MIB = 1024 * 1024;
const { app, clock } = useMemorySite({ engine: { idleMs: 200 } });

beforeAll(async () => {
  system = await addMemoryLibrary(app.ctx, { name: 'silo' });
  keeping = await addMemoryLibrary(app.ctx, { name: 'keeping' }, new MemoryTapeSystem({ ids: false, releases: false }));
});
beforeEach(() => {
  for (const each of [system, keeping]) {
    each.onStaged = (paths) => each.arrive(paths); // tape reads take no time
    each.onRead = async (_path, bytes) => bytes;
    each.log.length = 0;
  }
});
afterAll(async () => {
  await waitFor('all files to be released', async () => {
    clock.advance(5);
    return Object.values(await readStates(app.ctx)).every((state) => state === 'KEPT');
  });
  expect([...system.disk.keys()]).toEqual([]);
  expect(listTree(app.restoreDir).filter((name) => name.includes('.part'))).toEqual([]);
  expect((await readDisks(app)).reserved).toBe(0n);
});

const put = (directory: string, count: number, size = 1000) =>
  addRemote(app.ctx, system, {
    library: 'silo',
    files: Array.from({ length: count }, (_, n) => ({ path: `/${directory}/${String(n).padStart(2, '0')}`, size })),
  });
const request = (directory: string) =>
  makeRequest(app, { quota: 'alice', retention: '2099-01-01', patterns: `/${directory}/` });
const callsOf = (what: string) => system.log.filter((call) => call.what === what);
const readAttempts = async (directory: string) => {
  const query = `SELECT coalesce(sum(c.attempts), 0)::int AS n FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE f.path LIKE $1`;
  return (await app.ctx.db.pool.query<{ n: number }>(query, [`/${directory}/%`])).rows[0]?.n;
};

async function readParts(id: number) {
  type Part = { reason: string; explanation: string; fileCount: number };
  const query = `{ request(requestId: ${id}) { waiting { end { planned } parts { edges { node { reason explanation fileCount } } } } } }`;
  type Waiting = { end: { planned: string } | null; parts: Edges<Part> } | null;
  const { waiting } = (await askData<{ request: { waiting: Waiting } }>(app, query)).request;
  return { end: waiting?.end?.planned, parts: waiting?.parts.edges.map(({ node }) => node) ?? [] };
}

test('a request that waits says at which library and since when', async () => {
  system.onStaged = () => {};
  await put('why', 2);
  const id = await request('why');
  const parts = await waitFor('the files to be requested', async () => {
    const found = (await readParts(id)).parts;
    return found[0]?.reason === 'STAGING' && found;
  });
  const since = /^the library is staging the files: requested from silo at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;
  expect(parts).toEqual([{ reason: 'STAGING', fileCount: 2, explanation: expect.stringMatching(since) }]);
  system.arrive(['/why/00', '/why/01']);
  await waitForState(app, id, 'COMPLETED');
});

test('files are staged, read, restored and released, many with each call', async () => {
  const contents = await put('many', 300);
  const id = await request('many');
  expect((await waitForState(app, id, 'COMPLETED')).filesOnDisk).toBe(300);
  for (const [file, bytes] of contents) expect(readRestored(app, file)).toEqual(bytes);
  await waitFor('the files to be released', async () => Object.keys(await readStates(app.ctx)).length === 0);
  expect([...system.disk.keys()]).toEqual([]);
  expect(system.log.filter(({ what }) => what !== 'read').length).toBeLessThanOrEqual(12);
});

test('a read that breaks off continues where it broke off', async () => {
  const contents = await put('broken', 1, 3 * MIB);
  let breaks = 0;
  system.onRead = async (_path, bytes) => (breaks++ < 3 ? bytes.subarray(0, breaks * MIB) : bytes);
  await waitForState(app, await request('broken'), 'COMPLETED');
  expect(readRestored(app, '/broken/00')).toEqual(contents.get('/broken/00'));
  expect(callsOf('read').map(({ from }) => from)).toEqual([0n, BigInt(MIB), 2n * BigInt(MIB)]);
});

type Read = (from: bigint, signal: AbortSignal, version: ReadVersion) => AsyncGenerator<Uint8Array>;

/** Reads a file from a library as an engine does. */
async function readStaged(
  read: Read,
  { tapeTimeout = 60, ...how }: Partial<FileOnVolume> & { tapeTimeout?: number } = {},
) {
  const path = '/read/alone';
  const files: unknown[] = [];
  const ctx = { ...app.ctx, config: { ...app.ctx.config, tapeTimeout } };
  const library = {
    read: (file: unknown, ...given: Parameters<Read>) => {
      files.push(file);
      return read(...given);
    },
  };
  const rows = [{ path, volume: 'V1', position: null, attempts: 0, fileId: 0n, batch: null }];
  const source = new StagedSource(
    ctx,
    { id: 1, name: 'silo', library } as never,
    rows as never,
    new UndeliveredFiles(),
  );
  const file = { path, position: 0n, size: 9n, ...how };
  for await (const _chunk of source.read(file, new AbortController().signal));
  return files;
}

test('a file is not whole if its library calls the bytes wrong after the last of them', async () => {
  const read: Read = async function* (from) {
    if (from < 3n) yield Buffer.alloc(3);
    if (from === 0n) throw new TapeError('TRANSIENT', 'their checksum is another one');
  };
  await expect(readStaged(read, { size: 3n })).rejects.toThrow('their checksum is another one');
});

test("a checksum from the first restore does not replace the comparison with the library's checksum", async () => {
  const read: Read = async function* () {
    yield Buffer.alloc(3);
  };
  const known = { size: 3n, checksum: 'adler32:00030001' };
  expect(await readStaged(read, known)).toMatchObject([known]);
  expect(await readStaged(read, { ...known, isChecksumTaken: true })).toMatchObject([{ checksum: null }]);
});

test('a read does not continue in another version of the file', async () => {
  const versions: ReadVersion[] = [];
  const read: Read = async function* (_from, _signal, version) {
    versions.push({ ...version });
    if (version.tag !== undefined) throw new ChangedError('it is another one by now');
    version.tag = '"one"';
    yield Buffer.alloc(3);
    throw new TapeError('TRANSIENT', 'it broke off');
  };
  await expect(readStaged(read)).rejects.toThrow('it is another one by now');
  expect(versions).toEqual([{}, { tag: '"one"' }]);
});

test('a read that no validator or checksum protects does not continue after a break', async () => {
  const starts: bigint[] = [];
  const read: Read = async function* (from) {
    starts.push(from);
    yield Buffer.alloc(3);
    if (starts.length === 1) throw new LibraryError('TRANSIENT', 'it broke off');
    yield Buffer.alloc(3);
  };
  await expect(readStaged(read)).rejects.toThrow('it broke off');
  await readStaged(read);
  expect(starts).toEqual([0n, 0n]);
  await readStaged(read, { checksum: 'adler32:00030001' });
  expect(starts).toEqual([0n, 0n, 0n, 6n]);
});

test('a read that takes too long is aborted', async () => {
  const ended: string[] = [];
  const read: Read = async function* (_from, signal) {
    try {
      yield Buffer.alloc(1);
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      throw signal.reason;
    } finally {
      ended.push(String(signal.reason));
    }
  };
  const message = 'a read from library silo did not finish within 0.05 s';
  await expect(readStaged(read, { tapeTimeout: 0.05 })).rejects.toThrow(message);
  expect(new Set(ended)).toEqual(new Set([`Error: ${message}`]));
});

test.each<[string, Read, RegExp]>([
  [
    'comes byte by byte',
    async function* (_from, signal) {
      for (;;) {
        await setTimeout(20, undefined, { signal });
        yield Buffer.alloc(1);
      }
    },
    /^a read from library silo returned only \d+ bytes in 0.5 s: the minimum is 65536 bytes$/,
  ],
  [
    'breaks off after each byte',
    async function* () {
      yield Buffer.alloc(1);
      throw new LibraryError('TRANSIENT', 'the connection was closed');
    },
    /^the connection was closed$/,
  ],
])('a file that %s does not occupy a reader forever', async (_what, read, message) => {
  await expect(readStaged(read, { size: 10n ** 12n, tapeTimeout: 0.5 })).rejects.toThrow(message);
});

test('a file with wrong bytes is charged a try, and staged again before the next one', async () => {
  const contents = await put('wrong', 1);
  let isWrong = true;
  system.onRead = async (_path, bytes) => {
    const given = isWrong ? randomBytes(bytes.length) : bytes;
    isWrong = false;
    return given;
  };
  const id = await request('wrong');
  await waitFor('the first try to fail', async () => (await readAttempts('wrong')) === 1);
  await waitFor('a release', async () => callsOf('release').length > 0);
  clock.advance(60);
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
  expect(readRestored(app, '/wrong/00')).toEqual(contents.get('/wrong/00'));
  expect(callsOf('stage').length).toBe(2);
});

test('a file that has left the disk of the library is requested again after growing pauses, and charged no try', async () => {
  await put('left', 1);
  await addRemote(app.ctx, keeping, { library: 'keeping', files: [{ path: '/left/kept' }] });
  for (const each of [system, keeping]) {
    let reads = 0;
    each.onRead = async (path, bytes) => {
      if (++reads > 3) return bytes;
      throw new NotReadyError(`${path} is on tape alone`);
    };
  }
  const id = await request('left');
  const { files } = await waitFor('the request to end', async () => {
    clock.advance(20);
    const view = await viewRequest(app, id);
    expect(await readAttempts('left')).toBe(0);
    return view.state === 'COMPLETED' && view;
  });
  expect(files.map(({ error }) => error)).toEqual([null, null]);
});

test('a file that is never ready when it is read is shown with the reason, and charged tries after five times', async () => {
  await put('never', 1);
  system.onRead = async (path) => {
    throw new NotReadyError(`${path} is on tape alone`);
  };
  const id = await request('never');
  const reason = 'library silo reported the file as ready, but the file was not ready: /never/00 is on tape alone';
  const query = `{ request(requestId: ${id}) {
    files(first: 1) { edges { node { lastErrorClass lastError } } }
    waiting { parts { edges { node { explanation } } } } } }`;
  interface Answer {
    request: { files: Edges<{ lastError: string | null }>; waiting: { parts: Edges<{ explanation: string }> } | null };
  }
  const shown = await waitFor('the reason', async () => {
    clock.advance(1);
    const { request } = await askData<Answer>(app, query);
    const isTold = request.waiting?.parts.edges.some(({ node }) => node.explanation.endsWith(reason));
    const requestFile = request.files.edges[0]?.node;
    return isTold && requestFile?.lastError === reason && requestFile;
  });
  expect(shown).toMatchObject({ lastErrorClass: 'TRANSIENT' });
  await waitFor('a second try', async () => {
    clock.advance(20);
    await ring(app, 'recall');
    return (await readAttempts('never')) === 2;
  });
  system.onRead = async (_path, bytes) => bytes;
  clock.advance(700);
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
});

test('a library that cannot be read rests, and neither its volume nor its files are charged', async () => {
  await put('away', 3);
  let isAway = true;
  system.onRead = async (_path, bytes) => {
    if (isAway) throw new LibraryError('TRANSIENT', 'the endpoint for bytes is away');
    return bytes;
  };
  const id = await request('away');
  await waitFor('the library to rest', async () => {
    clock.advance(40);
    const { rows } = await app.ctx.db.pool.query<{ n: number }>('SELECT max(read_failures) AS n FROM stager');
    return (rows[0]?.n ?? 0) >= 3;
  });
  expect(await readAttempts('away')).toBe(0);
  isAway = false;
  clock.advance(600);
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
  expect(await readSuspensions(app)).toEqual([]);
});

test('a request that waits because reads of its library pause says why, and ends after the pause', async () => {
  await put('paused', 20);
  let isAway = true;
  system.onRead = async () => {
    if (isAway) throw new RetryLaterError('the endpoint for bytes is busy', 300);
  };
  const id = await request('paused');
  const explanation = await waitFor('the reason', async () => {
    const { parts, end } = await readParts(id);
    const part = parts.find(({ reason }) => reason === 'STAGED');
    const isLate = end !== undefined && secondsBetween(clock.now(), end) > 200;
    return isLate && part && / pause /.test(part.explanation) && part.explanation;
  });
  expect(explanation).toMatch(
    /^the library has staged the files, .*: reads of silo pause until \d{4}-\S+Z: the endpoint for bytes is busy$/,
  );
  isAway = false;
  clock.advance(4000);
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
});

test('a suspended library stops its reads, and a draining library finishes its calls', async () => {
  await put('held', 1, MIB);
  const gate = createGate();
  system.onRead = async () => {
    await gate.opened;
  };
  const id = await request('held');
  await waitFor('a read', async () => callsOf('read').length === 1);
  await suspend(app, { kind: 'LIBRARY', name: 'silo', mode: 'IMMEDIATE' });
  await waitForView(app, id, 'to wait again', ({ files }) => files[0]?.stage === 'ONTAPE');
  gate.open();
  await resume(app, 'LIBRARY', 'silo');
  await suspend(app, { kind: 'LIBRARY', name: 'silo', mode: 'DRAINING' });
  await waitForState(app, id, 'COMPLETED');
  await resume(app, 'LIBRARY', 'silo');
});

test('a file whose read fails for good fails alone', async () => {
  await put('bad', 3);
  system.onRead = async (path) => {
    if (path === '/bad/01') throw new TapeError('POLICY', 'it is not for you');
  };
  const { files } = await waitForState(app, await request('bad'), 'PARTIAL');
  expect(files.map(({ state, error }) => [state, error])).toEqual([
    ['ON_DISK', null],
    ['FAILED', 'it is not for you'],
    ['ON_DISK', null],
  ]);
});

test.each([
  ['fail', (path: string) => new LibraryError('TRANSIENT', `the pool of ${path} is away`)],
  ['are to be made later', (path: string) => new RetryLaterError(`the pool of ${path} is busy`, 300)],
])('files whose reads %s delay no other file, and are restored when that ends', async (how, makeError) => {
  const directory = how.replaceAll(' ', '-');
  await put(directory, 20);
  let isBad = (path: string) => path < `/${directory}/05`; // the files that are read first
  system.onRead = async (path) => {
    if (isBad(path)) throw makeError(path);
  };
  const id = await request(directory);
  const view = await waitFor('the other files', async () => {
    clock.advance(60);
    const seen = await viewRequest(app, id);
    return seen.filesOnDisk === 15 && seen;
  });
  expect([view.filesFailed, await readAttempts(directory)]).toEqual([0, 0]);
  isBad = () => false;
  clock.advance(4000);
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
});
