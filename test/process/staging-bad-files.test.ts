/** Files that a staging library cannot give, or says it has and has not, among others that it gives. */
import { setTimeout } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { StagedSource } from '../../src/engine/staging/source.js';
import { Unread } from '../../src/engine/staging/unread.js';
import { LibraryError } from '../../src/tape/backend.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { NotReadyError, RetryLaterError } from '../../src/tape/staging.js';
import { MemoryTapeSystem } from '../../src/tape/staging-memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { ring } from '../support/engine-watch.js';
import { addQuota } from '../support/factories.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addMemoryLibrary, addRemote, readStaging } from '../support/staging.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let system: MemoryTapeSystem;
let keeping: MemoryTapeSystem;
const clock = createClock();
const alice = { quota: 'alice', retention: '2099-01-01' };

beforeAll(async () => {
  app = await startApp({ backend: createMemoryBackend(), now: clock.now, engine: { idleMs: 200 } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  system = await addMemoryLibrary(app.ctx, { name: 'silo' });
  keeping = await addMemoryLibrary(app.ctx, { name: 'keeping' }, new MemoryTapeSystem({ ids: false, releases: false }));
  for (const each of [system, keeping]) each.onStaged = (paths) => each.arrive(paths); // tapes take no time
});
afterEach(() => {
  for (const each of [system, keeping]) each.onRead = async (_path, bytes) => bytes;
});
afterAll(async () => {
  await app.close();
});

const put = (folder: string, count: number, library = 'silo') =>
  addRemote(app.ctx, library === 'silo' ? system : keeping, {
    library,
    files: Array.from({ length: count }, (_, n) => ({ path: `/${folder}/${String(n).padStart(2, '0')}` })),
  });
const attemptsOf = async () =>
  (await app.ctx.db.pool.query<{ n: number }>('SELECT coalesce(max(attempts), 0)::int AS n FROM recall')).rows[0]?.n;

test.each([
  ['fails', (path: string) => new LibraryError('TRANSIENT', `the pool of ${path} is away`)],
  ['says to come again', (path: string) => new RetryLaterError(`the pool of ${path} is busy`, 3600)],
])('files for which the library %s hold up no other, and come when they can', async (how, makeError) => {
  const folder = how.replaceAll(' ', '-');
  await put(folder, 20);
  // five that are read first
  let isBad = (path: string) => path.startsWith(`/${folder}/0`) && path < `/${folder}/05`;
  system.onRead = async (path, bytes) => {
    if (isBad(path)) throw makeError(path);
    return bytes;
  };
  const id = await makeRequest(app, { ...alice, patterns: `/${folder}/` });
  const view = await waitFor('the others to come', async () => {
    clock.advance(60);
    const seen = await viewRequest(app, id);
    return seen.filesOnDisk === 15 && seen;
  });
  expect(view.filesFailed).toBe(0);
  expect(await attemptsOf()).toBe(0);
  isBad = () => false;
  clock.advance(4000);
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
});

test('a read that takes too long is told to end, and nothing of it stays', async () => {
  const ended: unknown[] = [];
  const library = {
    async *read(_file: unknown, _from: bigint, signal: AbortSignal) {
      try {
        yield Buffer.alloc(1);
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        throw signal.reason;
      } finally {
        ended.push(signal.reason);
      }
    },
  };
  const ctx = { ...app.ctx, config: { ...app.ctx.config, tapeTimeout: 0.05 } };
  const rows = [{ path: '/slow/00', volume: 'V1', position: null, attempts: 0, fileId: 0n, batch: null }];
  const source = new StagedSource(ctx, { id: 1, name: 'silo', library } as never, rows as never, new Unread());
  const read = async () => {
    const file = { path: '/slow/00', position: 0n, size: 2n };
    for await (const chunk of source.read(file, new AbortController().signal)) expect(chunk.length).toBe(1);
  };
  await expect(read()).rejects.toThrow('a read of library silo has not ended in 0.05 s');
  expect(ended.map(String)).toEqual(ended.map(() => 'Error: a read of library silo has not ended in 0.05 s'));
  expect(ended.length).toBeGreaterThan(0);
});

test.each<[string, (signal: AbortSignal) => AsyncGenerator<Uint8Array>, RegExp]>([
  [
    'comes byte by byte',
    async function* (signal) {
      for (;;) {
        await setTimeout(20, undefined, { signal });
        yield Buffer.alloc(1);
      }
    },
    /^a read of library silo has brought \d+ bytes in 0.5 s$/,
  ],
  [
    'breaks off after each byte',
    async function* () {
      yield Buffer.alloc(1);
      throw new LibraryError('TRANSIENT', 'the connection was closed');
    },
    /^the connection was closed$/,
  ],
])('a file that %s holds no reader for ever', async (_what, give, message) => {
  const library = { read: (_file: unknown, _from: bigint, signal: AbortSignal) => give(signal) };
  const ctx = { ...app.ctx, config: { ...app.ctx.config, tapeTimeout: 0.5 } };
  const rows = [{ path: '/drip/00', volume: 'V1', position: null, attempts: 0, fileId: 0n, batch: null }];
  const source = new StagedSource(ctx, { id: 1, name: 'silo', library } as never, rows as never, new Unread());
  const read = async () => {
    const file = { path: '/drip/00', position: 0n, size: 10n ** 12n };
    for await (const chunk of source.read(file, new AbortController().signal)) expect(chunk.length).toBe(1);
  };
  await expect(read()).rejects.toThrow(message);
});

test('a file that is not there when it is read is asked for after pauses that grow, be it kept there or not', async () => {
  await put('kept', 1, 'keeping');
  keeping.onRead = async (path) => {
    throw new NotReadyError(`${path} is on tape alone`);
  };
  const id = await makeRequest(app, { ...alice, patterns: '/kept/' });
  await waitFor('it to be asked for a fifth time', async () => {
    clock.advance(20);
    return (await readStaging(app.ctx)).some(({ attempts }) => attempts >= 5);
  });
  expect(await attemptsOf()).toBe(0);
  keeping.onRead = async (_path, bytes) => bytes;
  clock.advance(600);
  await ring(app, 'recall');
  await waitForState(app, id, 'COMPLETED');
});
