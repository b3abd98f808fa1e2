/** Restores through staging libraries of each type, from the request to the file on disk, by one engine. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { findIllegalMoves, listTree, readDisks, readRestored } from '../support/engine-watch.js';
import { addQuota, addTaped, checksumOf } from '../support/factories.js';
import { askData, type Edges } from '../support/graphql.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cancel } from '../support/mutations.js';
import { addKind, openCommand, openS3, openWlcg, putFiles, type RealKind } from '../support/real-kinds.js';
import { type RequestView, viewRequest } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { keyIn } from '../support/s3-bench.js';
import { S3Error } from '../support/s3-store.js';
import { readStates } from '../support/staging.js';
import { resume, suspend } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let kinds: Awaited<ReturnType<typeof openKinds>>;
const clock = createClock();
const library = createMemoryLibrary();
const names = ['dcache', 'storm', 's3', 'scripts'] as const;

const openKinds = async () => ({
  dcache: await openWlcg('dcache'),
  storm: await openWlcg('storm'),
  s3: await openS3(),
  scripts: openCommand(),
});

beforeAll(async () => {
  kinds = await openKinds();
  app = await startApp({ library, now: clock.now, engine: { idleMs: 300, env: kinds.s3.env }, config: { drives: 1 } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  for (const name of names) await addKind(app, name, kinds[name]);
});
afterAll(async () => {
  for (const name of names) if (kinds[name].releases) expect([name, kinds[name].countDemands()]).toEqual([name, 0]);
  expect(await findIllegalMoves(app)).toEqual([]);
  expect(listTree(app.restoreDir).filter((name) => name.includes('.part'))).toEqual([]);
  expect((await readDisks(app)).reserved).toBe(0n);
  await app.close();
  for (const { bench } of Object.values(kinds)) await bench.close();
});

const request = (patterns: string) => makeRequest(app, { quota: 'alice', retention: '2099-01-01', patterns });
const keeping = ['storm', 's3'] as const;

/** Puts files in each library, below a directory with the name of the library. */
async function putInAll(directory: string, files: readonly string[]): Promise<Map<string, Buffer>> {
  const contents = await Promise.all(
    names.map((name) =>
      putFiles(
        app,
        name,
        kinds[name],
        files.map((file) => ({ path: `/${directory}/${name}/${file}` })),
      ),
    ),
  );
  return new Map(contents.flatMap((each) => [...each]));
}

const arrive = async (paths: readonly string[]) => {
  for (const { bench } of Object.values(kinds)) await bench.arrive(paths);
};

/** Lets requested files arrive and time pass, until the request meets a condition. */
const bring = (id: number, paths: readonly string[], what: string, isIt: (view: RequestView) => boolean) =>
  waitFor(`request ${id} to have ${what}`, async () => {
    await arrive(paths);
    clock.advance(5);
    const view = await viewRequest(app, id);
    return isIt(view) && view;
  });

const waitForStaging = (what: string, isIt: (states: Record<string, string>) => boolean) =>
  waitFor(what, async () => {
    clock.advance(5);
    const states = await readStates(app.ctx);
    return isIt(states) && states;
  });

/** Waits until libraries have released files. Files stay KEPT in libraries that cannot release them. */
const waitForRelease = (paths: readonly string[]) =>
  waitForStaging('the files to be released', (states) =>
    paths.every((path) => states[path] === (keeping.some((name) => path.split('/')[2] === name) ? 'KEPT' : undefined)),
  );

function expectRestored(contents: ReadonlyMap<string, Uint8Array>): void {
  for (const [path, bytes] of contents) expect([path, readRestored(app, path)?.equals(bytes)]).toEqual([path, true]);
}

/** Returns the files that libraries keep although no request needs them, and the end time of each file. */
async function readKept(directory: string): Promise<Map<string, string | null>> {
  type Copy = { path: string; until: string | null };
  const { libraries } = await askData<{ libraries: Edges<{ staging: { nextKept: Copy[] } | null }> }>(
    app,
    '{ libraries { edges { node { staging { nextKept { path until } } } } } }',
  );
  const copies = libraries.edges.flatMap(({ node }) => node.staging?.nextKept ?? []);
  return new Map(copies.flatMap(({ path, until }) => (path.startsWith(`/${directory}/`) ? [[path, until]] : [])));
}

test('a file that no drive read before it left the disk of the library is requested again', async () => {
  const brief = openCommand({ nameless: true, until: 600 });
  await addKind(app, 'brief', brief);
  const path = '/brief/late';
  const contents = await putFiles(app, 'brief', brief, [{ path }]);
  const id = await request(path);
  // the clock has not been advanced, so the file's end time is in the future
  const waitForOne = (state: string) =>
    waitFor(`the file to be ${state}`, async () => (await readStates(app.ctx))[path] === state);
  await waitForOne('ASKED');
  await suspend(app, { kind: 'VOLUME', name: 'brief', mode: 'IMMEDIATE' });
  await brief.bench.arrive([path]);
  await waitForOne('READY');
  clock.advance(700);
  await waitFor('another call', async () => brief.calls().filter((call) => call === 'stage').length > 1);
  await brief.bench.evict(path);
  await resume(app, 'VOLUME', 'brief');
  await waitFor('the file to be restored', async () => {
    await brief.bench.arrive([path]);
    clock.advance(1);
    return (await viewRequest(app, id)).state === 'COMPLETED';
  });
  expectRestored(contents);
  await suspend(app, { kind: 'LIBRARY', name: 'brief', mode: 'IMMEDIATE' });
  await brief.bench.close();
});

test('a request is restored from all libraries at once, and a library that is away delays only its own files', async () => {
  const files = ['1', '2', 'with spaces  and more', 'Grüße/日本語', `'quotes" & $(exit 1)`, '100%41+b#c?d'];
  const staged = await putInAll('all', files);
  const paths = [...staged.keys()];
  const taped = await addTaped(app.ctx, library, [{ path: '/all/drive/1' }]);
  const { server } = kinds.s3.bench;
  const others = server.onRequest;
  server.onRequest = async () => new S3Error(500, 'InternalError');
  const id = await request('/all/');
  const [own, total] = [files.length, staged.size + 1];
  await bring(id, paths, 'all files but those of S3', ({ filesOnDisk }) => filesOnDisk === total - own);
  server.onRequest = others;
  const view = await bring(id, paths, 'all files', ({ state }) => state === 'COMPLETED');
  expect(view.files.map(({ error }) => error)).toEqual(Array(total).fill(null));
  expectRestored(new Map([...staged, ...taped]));
  await waitForRelease(paths);
  const copies = await readKept('all');
  expect(new Set(copies.keys())).toEqual(
    new Set(keeping.flatMap((name) => files.map((file) => `/all/${name}/${file}`))),
  );
  for (const [path, until] of copies) {
    if (path.startsWith('/all/storm/')) expect(until).toBeNull();
    else expect(Date.parse(until ?? '')).toBeGreaterThan(Date.now());
  }
});

test('files that a library has lost fail, and the others of the request are restored', async () => {
  const contents = await putInAll('partly', ['1', 'lost', '3']);
  for (const name of names) await kinds[name].bench.spoil(`/partly/${name}/lost`, 'lost');
  const id = await request('/partly/');
  const { files } = await bring(id, [...contents.keys()], 'ended', ({ state }) => state === 'PARTIAL');
  const isLost = (path: string) => path.endsWith('/lost');
  for (const { path, state, errorClass } of files)
    expect([path, state, errorClass]).toEqual([path, ...(isLost(path) ? ['FAILED', 'PERMANENT'] : ['ON_DISK', null])]);
  const right = [...contents].filter(([path]) => !isLost(path));
  expectRestored(new Map(right));
  await waitForRelease(right.map(([path]) => path));
});

test('files of a request that is cancelled before they arrive are released, and shown while a library keeps them', async () => {
  const paths = [...(await putInAll('cancelled', ['1', '2'])).keys()];
  const id = await request('/cancelled/');
  await waitForStaging('all files to be requested', (states) => paths.every((path) => states[path] === 'ASKED'));
  await cancel(app, id);
  await waitForRelease(paths);
  await arrive(paths);
  for (const name of names) {
    const staged = await Promise.all(['1', '2'].map((n) => kinds[name].bench.isStaged(`/cancelled/${name}/${n}`)));
    expect([name, ...staged]).toEqual([name, !kinds[name].releases, !kinds[name].releases]);
  }
  expect([...(await readKept('cancelled')).keys()].sort()).toEqual(
    keeping.flatMap((name) => [1, 2].map((n) => `/cancelled/${name}/${n}`)).sort(),
  );
  await waitFor('S3 to say until when', async () => {
    clock.advance(60);
    const copies = await readKept('cancelled');
    return [...copies].every(([path, until]) => path.startsWith('/cancelled/storm/') || until !== null);
  });
  for (const name of keeping) for (const n of [1, 2]) await kinds[name].bench.evict(`/cancelled/${name}/${n}`);
  await waitFor('no copy to be shown', async () => {
    clock.advance(4 * 86_400);
    return (await readKept('cancelled')).size === 0;
  });
});

/** Restores a file that has no checksum in the catalogue. */
async function restoreUnchecked(library: string, kind: RealKind, path: string, size: number) {
  await putFiles(app, library, kind, [{ path, size, checksum: null }]);
  const id = await request(path);
  await waitFor('the file to be restored', async () => {
    await kind.bench.arrive([path]);
    clock.advance(5);
    return (await viewRequest(app, id)).state === 'COMPLETED';
  });
  return readRestored(app, path);
}

test('an object that S3 replaces during a read is restored as the new object', async () => {
  const { server } = kinds.s3.bench;
  const [path, size] = ['/replaced/s3/a', 6 * 1024 * 1024];
  const newer = randomBytes(size);
  const others = server.onRequest;
  let reads = 0;
  server.onRequest = async (asked) => {
    const isThird = asked.operation === 'GetObject' && ++reads === 3;
    if (isThird) Object.assign(server.store.find(keyIn(path)), { bytes: newer, etag: '"newer"' });
    return await others(asked);
  };
  expect((await restoreUnchecked('s3', kinds.s3, path, size))?.equals(newer)).toBe(true);
  server.onRequest = others;
});

test.each<[string, older: Record<string, string>, newer: Record<string, string>]>([
  ['tag', { etag: '"older"' }, { etag: '"newer"' }],
  ['date', { 'last-modified': 'Mon, 01 Jan 2024 00:00:00 GMT' }, { 'last-modified': 'Tue, 02 Jan 2024 00:00:00 GMT' }],
  ['nothing', {}, {}],
])('a file that is replaced during a read that breaks off is restored as the new file: %s', async (by, ...headers) => {
  const eos = await openWlcg('eos');
  const [name, path] = [`replaced-${by}`, `/replaced/${by}/a`];
  await addKind(app, name, eos);
  const { server } = eos.bench;
  const size = 3_000_000;
  const newer = randomBytes(size);
  const reads: number[] = [];
  server.onBytes = (asked, response, bytes) => {
    const from = Number(/^bytes=(\d+)-$/.exec(asked.headers.range ?? '')?.[1] ?? 0);
    const [told, given] = reads.push(from) === 1 ? [headers[0], bytes] : [headers[1], newer];
    const range = from === 0 ? {} : { 'content-range': `bytes ${from}-${size - 1}/${size}` };
    response.writeHead(from === 0 ? 200 : 206, { ...told, 'content-length': String(size - from), ...range });
    if (reads.length === 1) response.write(given.subarray(0, 1_000_003), () => response.destroy());
    else response.end(given.subarray(from));
    return true;
  };
  expect((await restoreUnchecked(name, eos, path, size))?.equals(newer)).toBe(true);
  expect(reads).toEqual(by === 'nothing' ? [0, 0] : [0, expect.any(Number), 0]);
  const query = 'SELECT checksum FROM tape_file WHERE path = $1';
  expect((await app.ctx.db.pool.query(query, [path])).rows).toEqual([{ checksum: checksumOf(newer) }]);
  await eos.bench.close();
});

test('many files take few calls: each call is made for as many files as the library takes', async () => {
  const many = await openWlcg('dcache', { stageFiles: 40, infoFiles: 40, releaseFiles: 40 });
  await addKind(app, 'many', many);
  const paths = Array.from({ length: 120 }, (_, n) => `/many/${n % 10}/file ${n}.nc`);
  const contents = await putFiles(
    app,
    'many',
    many,
    paths.map((path) => ({ path, size: 100 })),
  );
  clock.freeze(); // no poll is due before all files have been requested
  const id = await request('/many/');
  const own = (states: Record<string, string>) => Object.entries(states).filter(([path]) => contents.has(path));
  await waitForStaging(
    'all files to be requested',
    (states) => own(states).filter(([, state]) => state === 'ASKED').length === 120,
  );
  await many.bench.arrive(paths);
  clock.goOn();
  clock.advance(60);
  await bring(id, [], 'ended', ({ state }) => state === 'COMPLETED');
  expectRestored(contents);
  await waitForStaging('all files to be released', (states) => own(states).length === 0);
  expect(many.calls().length).toBeLessThanOrEqual(20);
  expect([many.countDemands(), await many.bench.isStaged(paths[7] ?? '')]).toEqual([0, false]);
  await many.bench.close();
});
