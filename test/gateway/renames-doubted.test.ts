/** What a sceptic looked for in files that get other paths, or are forgotten: who is told what, and what is waited for. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADVISORY_SPACE, advisoryKeys } from '../../src/database/locks.js';
import { setPathRule } from '../../src/operations/access/path-rules.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { stepSize } from '../../src/operations/catalogue/chosen-files.js';
import { forgetFiles } from '../../src/operations/catalogue/forgetting.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { readPlaces } from '../../src/operations/catalogue/places.js';
import { renameFiles } from '../../src/operations/catalogue/renames.js';
import { withdrawFiles } from '../../src/operations/catalogue/withdrawals.js';
import { addLibrary as createLibrary } from '../../src/operations/libraries/add.js';
import { setLibrary } from '../../src/operations/libraries/set.js';
import { compactRequests } from '../../src/operations/requests/compaction.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota, buildRow } from '../support/factories.js';
import { findFaults } from '../support/faults.js';
import { askData } from '../support/graphql.js';
import { whileLocked } from '../support/locks.js';
import { cancel, made, update } from '../support/mutations.js';
import { viewRequest } from '../support/request-view.js';
import { makeRequest, readUsed } from '../support/rest.js';
import { CHANGES, type Changes, postOperation, take } from '../support/streams.js';
import { callTape, poll, stageFiles, statesOf, type TapeClient } from '../support/tape-rest.js';

const AS_AN_IMPORT = `SELECT pg_advisory_xact_lock(${ADVISORY_SPACE}, ${advisoryKeys.catalogue})`;

/** Files that an operation takes at a time here. */
const STEP = 100;

let app: TestApp;
let bob: TapeClient;

beforeAll(async () => {
  stepSize.files = STEP;
  app = await startApp({ config: { access: { auth: new Set(['token', 'open']) } } });
  for (const user of ['ann', 'bob']) await addQuota(app.ctx, user, 1_000_000n);
  bob = { url: app.url, token: (await createToken(app.ctx, { name: 'bob', role: 'USER' })).secret };
});
afterAll(() => {
  stepSize.files = 10_000;
});
afterAll(async () => {
  expect(await findFaults(app)).toEqual([]);
  await app.close();
});

const add = (...paths: string[]) =>
  addFiles(
    app.ctx,
    paths.map((path) => ({ path })),
  );
const rename = (from: string, to: string, isInLibrary = false) => renameFiles(app.ctx, { from, to, isInLibrary });
const pathsOf = (view: { holds: { path: string }[] }) => view.holds.map(({ path }) => path);
const compact = () =>
  compactRequests({ ...app.ctx, config: { ...app.ctx.config, requestDays: 0 } }, new AbortController().signal);

async function idOf(path: string): Promise<bigint> {
  const { rows } = await app.ctx.db.pool.query<{ id: bigint }>('SELECT id FROM tape_file WHERE path = $1', [path]);
  if (!rows[0]) throw new Error(`there is no ${path}`);
  return rows[0].id;
}

async function addLibrary(name: string): Promise<void> {
  const query = `mutation { addLibrary(input: { name: "${name}", kind: "wlcg", settings: "{\\"url\\": \\"https://tape.example\\"}" }) { __typename ... on Failure { message } } }`;
  expect(await askData(app, query)).toEqual({ addLibrary: { __typename: 'Library' } });
}

/** What names and places the catalogue has of a file. */
async function placeOf(path: string): Promise<{ tapePath: string | null; volume: string; copy: string | null }> {
  const { rows } = await app.ctx.db.pool.query<{ tapePath: string | null; volume: string; copy: string | null }>(
    `SELECT f.tape_path AS "tapePath", v.name AS volume, c.name AS copy FROM tape_file f JOIN volume v ON v.id = f.volume_id
       LEFT JOIN volume c ON c.id = f.copy_volume_id WHERE f.path = $1`,
    [path],
  );
  if (!rows[0]) throw new Error(`there is no ${path}`);
  return rows[0];
}

test('a forgotten file is kept from whoever might not list it before, by its id, by its name and in events', async () => {
  const rows = ['/secret/plan', '/plain/x'].map((path) => ({ path, stage: 'ONDISK' as const }));
  await addFiles(app.ctx, rows);
  await setPathRule(app.ctx, { prefix: '/secret', action: 'LIST', kind: 'USER', name: 'carl' });
  const id = await made(app, { quota: 'ann', files: ['/secret/plan'] });
  const file = await idOf('/secret/plan');
  const node = Buffer.from(`TapeFile:${file}`).toString('base64');
  const byId = () => askData(bob, 'query ($id: ID!) { node(id: $id) { ... on TapeFile { path } } }', { id: node });
  expect(await byId()).toEqual({ node: null });
  const newest = await app.ctx.events.newestId();
  await addFiles(
    app.ctx,
    rows.map(({ path }) => ({ path })),
  ); // on tape now
  await withdrawFiles(app.ctx, { path: '/secret/plan' });
  await cancel(app, id);
  await forgetFiles(app.ctx, { path: '/secret/plan' });
  expect(await byId()).toEqual({ node: null });
  const hidden = `/.tapegate-forgotten/${file}/secret/plan`;
  expect(pathsOf(await viewRequest(app, id))).toEqual([hidden]);
  const byPath = await askData(bob, 'query ($path: String!) { tapeFile(path: $path) { path } }', { path: hidden });
  expect(byPath).toEqual({ tapeFile: null });
  const stream = postOperation<Changes>(bob, { query: CHANGES, variables: { after: String(newest) } });
  const [first] = await take(stream, 1);
  stream.close();
  expect(first?.stageChanges.path).toBe('/plain/x');
});

test('what is brought into the compact form while files are forgotten is told of afterwards', async () => {
  await add('/race/a', '/race/b');
  const id = await makeRequest(app, { quota: 'ann', files: ['/race/a', '/race/b'] });
  await withdrawFiles(app.ctx, { path: '/race/a' });
  await cancel(app, id);
  const [, done] = await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const forgotten = forgetFiles(app.ctx, { path: '/race/a' });
    await waiters(1); // it has looked by now which of them requests tell of
    await compact();
    return [undefined, forgotten] as const;
  });
  await done;
  expect(pathsOf(await viewRequest(app, id))).toEqual([
    expect.stringMatching(/^\/\.tapegate-forgotten\/\d+\/race\/a$/),
    '/race/b',
  ]);
});

test('what is withdrawn while files are forgotten stays for the requests that tell of it', async () => {
  await add('/later/a', '/later/b', '/later/c');
  const id = await makeRequest(app, { quota: 'ann', files: ['/later/b'] });
  await cancel(app, id);
  await compact();
  await withdrawFiles(app.ctx, { path: '/later/a' });
  const done = await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const forgotten = forgetFiles(app.ctx, { path: '/later/' });
    await waiters(1); // it has looked by now which of them requests tell of
    await app.ctx.db.pool.query(`UPDATE tape_file SET withdrawn_at = now() WHERE path = '/later/b'`);
    return { forgotten };
  });
  expect(await done.forgotten).toMatchObject({ files: 2 });
  expect(pathsOf(await viewRequest(app, id))).toEqual([
    expect.stringMatching(/^\/\.tapegate-forgotten\/\d+\/later\/b$/),
  ]);
  expect(await update(app, { id, label: 'known' })).toMatchObject({ __typename: 'Request' });
});

test('who is told that nothing was renamed can count on it', async () => {
  await addFiles(
    app.ctx,
    Array.from({ length: STEP + 2 }, (_, n) => ({ path: `/steps/f${100_000 + n}`, size: 1n })),
  );
  await add('/other/x');
  const error = await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const renamed = rename('/steps/', '/stufen/').then(
      () => undefined,
      (thrown: Error) => thrown,
    );
    await waiters(1);
    await app.ctx.db.pool.query(`UPDATE tape_file SET path = '/stufen/f100101' WHERE path = '/other/x'`);
    return { renamed };
  });
  const message = (await error.renamed)?.message ?? '';
  expect(message).toContain('1 path is taken: "/stufen/f100101"');
  const { rows } = await app.ctx.db.pool.query<{ n: number }>(
    `SELECT count(*)::int AS n FROM tape_file WHERE path LIKE '/stufen/f1%' AND path <> '/stufen/f100101'`,
  );
  expect([rows[0]?.n, message.includes('nothing was renamed')]).toEqual([STEP, false]);
});

test('a client of the Tape REST API releases its file by the name that it has staged it by, and by the new one', async () => {
  await add('/bulk/a', '/bulk/b', '/bulk/c');
  const id = await stageFiles(
    bob,
    ['/bulk/a', '/bulk/b', '/bulk/c'].map((path) => ({ path })),
  );
  await rename('/bulk/a', '/pulk/a');
  await rename('/bulk/b', '/pulk/b');
  await rename('/bulk/c', '/pulk/c');
  expect(await readUsed(app, 'bob')).toBe(3000);
  expect((await callTape(bob, 'POST', `/release/${id}`, { paths: ['/bulk/a'] })).status).toBe(200);
  expect(await readUsed(app, 'bob')).toBe(2000);
  expect((await callTape(bob, 'POST', `/stage/${id}/cancel`, { paths: ['/bulk/b'] })).status).toBe(200);
  expect(statesOf(await poll(bob, id))).toEqual({
    '/bulk/a': 'CANCELLED',
    '/bulk/b': 'CANCELLED',
    '/bulk/c': 'SUBMITTED',
  });
  expect((await callTape(bob, 'DELETE', `/stage/${id}`)).status).toBe(200);
  expect(await readUsed(app, 'bob')).toBe(0);
});

test('a path that waited for room when its request ended is unknown when that is revived, once its file was renamed', async () => {
  await addQuota(app.ctx, 'dora', 1500n);
  await add('/room/a');
  const id = await makeRequest(app, { quota: 'dora', files: ['/room/a', '/room/b'] });
  await add('/room/b');
  expect((await viewRequest(app, id)).awaited).toEqual([{ path: '/room/b', reason: 'QUOTA_FULL' }]);
  await cancel(app, id);
  await rename('/room/b', '/raum/b');
  await update(app, { id, retention: '2099-01-01T00:00:00Z' });
  expect((await viewRequest(app, id)).awaited).toEqual([{ path: '/room/b', reason: 'UNKNOWN' }]);
  await cancel(app, id);
});

test('a request that is revived is not told that a forgotten file is on disk', async () => {
  await addFiles(app.ctx, [{ path: '/gone/a', stage: 'ONDISK' }]);
  const id = await makeRequest(app, { quota: 'ann', files: ['/gone/a'] });
  expect((await viewRequest(app, id)).holds).toMatchObject([{ state: 'ON_DISK' }]);
  await cancel(app, id);
  await withdrawFiles(app.ctx, { path: '/gone/a', why: 'wrong' });
  await forgetFiles(app.ctx, { path: '/gone/a' });
  await update(app, { id, retention: '2099-01-01T00:00:00Z' });
  expect((await viewRequest(app, id)).holds).toMatchObject([
    { state: 'FAILED', error: 'withdrawn from the archive: wrong' },
  ]);
});

test('a list of a library that goes by names gives no other file the bytes of one that was renamed', async () => {
  await addLibrary('north');
  const row = { volume: 'NORTH1', library: 'north', position: null };
  await importRows(app.ctx, [buildRow({ path: '/names/a', ...row })]);
  await rename('/names/a', '/names/b');
  await addFiles(app.ctx, [{ path: '/names/a', volume: 'V00009', position: 5n }]);
  const known = (await readPlaces(app.ctx, ['/names/a'], 'NORTH1')).get('/names/a');
  expect(known).toMatchObject({ volume: 'NORTH1' });
  await expect(importRows(app.ctx, [buildRow({ path: '/names/a', ...row, stage: null })])).rejects.toThrow(
    'which was renamed to "/names/b" here',
  );
  expect(await placeOf('/names/a')).toMatchObject({ volume: 'V00009' });
});

test('a file that an import puts on another volume keeps the name that the library of its other copy has for it', async () => {
  await addLibrary('left');
  await addLibrary('right');
  const rowOf = (path: string, volume: string) =>
    buildRow({ path, volume, library: 'left', position: null, copyVolume: 'RIGHT1', copyPosition: null });
  await importRows(app.ctx, [rowOf('/twice/a', 'LEFT1')]);
  await rename('/twice/a', '/twice/b');
  expect(await placeOf('/twice/b')).toEqual({ tapePath: '/twice/a', volume: 'LEFT1', copy: 'RIGHT1' });
  await importRows(app.ctx, [{ ...rowOf('/twice/b', 'V00010'), library: undefined, position: 7n }]);
  expect(await placeOf('/twice/b')).toEqual({ tapePath: '/twice/a', volume: 'V00010', copy: 'RIGHT1' });
});

test('a request that waits for room is not told of a folder that is hidden from it, and does not wait for what it may not have', async () => {
  await addQuota(app.ctx, 'bob', 1500n);
  await add('/full/a');
  await setPathRule(app.ctx, { prefix: '/hidden', action: 'LIST', kind: 'USER', name: 'carl' });
  const asBob = (input: object) => made(bob, { quota: 'bob', ...input });
  const [listed, pattern] = [await asBob({ files: ['/full/a', '/full/b'] }), await asBob({ pattern: '/full/b' })];
  await add('/full/b');
  const awaitedOf = async (id: number) => (await viewRequest(app, id)).awaited;
  expect([await awaitedOf(listed), await awaitedOf(pattern)]).toEqual([
    [{ path: '/full/b', reason: 'QUOTA_FULL' }],
    [{ path: '/full/b', reason: 'QUOTA_FULL' }],
  ]);
  await rename('/full/b', '/hidden/b');
  expect([await awaitedOf(listed), await awaitedOf(pattern)]).toEqual([[{ path: '/full/b', reason: 'UNKNOWN' }], []]);
  for (const id of [listed, pattern]) await cancel(app, id);
});

test('a long path is forgotten whole', async () => {
  const path = `/${'long/'.repeat(400)}end`;
  await add(path);
  const id = await makeRequest(app, { quota: 'ann', files: [path] });
  await withdrawFiles(app.ctx, { path });
  await cancel(app, id);
  await forgetFiles(app.ctx, { path });
  expect(pathsOf(await viewRequest(app, id))).toEqual([
    expect.stringMatching(/^\/\.tapegate-forgotten\/\d+\/long\/long\//),
  ]);
});

test('a library is not set so that a renamed file has no name there any more, and is so that it has', async () => {
  const place = { bucket: 'archive', region: 'eu-west-2', tier: 'Bulk' };
  await createLibrary(app.ctx, { name: 'deep', kind: 's3', settings: { ...place, prefixes: ['/deep/=', '/e/='] } });
  await addFiles(app.ctx, [{ path: '/deep/1', volume: 'DEEP1', library: 'deep' }]);
  await rename('/deep/1', '/e/1');
  const set = (prefixes: string[]) => setLibrary(app.ctx, { name: 'deep', settings: { prefixes } });
  await expect(set(['/e/='])).rejects.toThrow('"/deep/1" is below none of "/e/"');
  expect(await set(['/deep/='])).toMatchObject({ settings: { prefixes: ['/deep/='] } });
});
