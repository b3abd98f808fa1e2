/** Renamed files, as clients see them. */
import { expect, test } from 'vitest';
import { addPathRule } from '../../src/domain/access/path-rules.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { readPositions } from '../../src/domain/catalogue/tape-files.js';
import { withdrawFiles } from '../../src/domain/catalogue/withdrawals.js';
import { importRows } from '../../src/domain/import/import.js';
import { addLibrary, updateLibrary } from '../../src/domain/libraries/changes.js';
import { addFiles, addPaths, addQuota, buildRow } from '../support/factories.js';
import { askData, type Connection } from '../support/graphql.js';
import { AS_AN_IMPORT, whileLocked } from '../support/locks.js';
import { cancel, made, release, update } from '../support/mutations.js';
import { mutate } from '../support/payloads.js';
import { viewRequest } from '../support/request-view.js';
import { get, makeRequest, readUsed } from '../support/rest.js';
import { STEP, useCatalogue } from '../support/use-app.js';

const app = useCatalogue({ config: { access: { auth: new Set(['token', 'open']) } } }, async () => {
  for (const user of ['ann', 'bob']) await addQuota(app.ctx, user, 1_000_000n);
});

const AFFECTED = 'affected { __typename fileCount bytes requestCount }';
const rename = (from: string, to: string, more: object = {}) =>
  mutate<{ message?: string }>(app, 'renameFiles', { from, to, ...more }, AFFECTED);

async function list(match: string, more = ''): Promise<string[]> {
  const query = `query ($match: String) { tapeFiles(match: $match ${more}) { edges { node { path } } } }`;
  const { tapeFiles } = await askData<{ tapeFiles: Connection<{ path: string }> }>(app, query, { match });
  return tapeFiles.edges.map(({ node }) => node.path);
}

const add = (...paths: string[]) => addPaths(app.ctx, ...paths);
const pathsOf = async (id: number) => (await viewRequest(app, id)).files.map(({ path }) => path);
const unresolvedOf = async (id: number) => (await viewRequest(app, id)).unresolved;
const tapePathOf = async (path: string) =>
  (await askData<{ tapeFile: { tapePath: string | null } }>(app, `{ tapeFile(path: "${path}") { tapePath } }`)).tapeFile
    .tapePath;

test('a renamed file stays in its requests, with the same charge and whatever rules apply to its new path', async () => {
  await add('/one/a', '/one/b');
  await addPathRule(app.ctx, { prefix: '/uno', action: 'REQUEST', kind: 'USER', name: 'nobody-else' });
  const id = await makeRequest(app, { quota: 'ann', files: ['/one/a', '/one/b'] });
  const used = await readUsed(app, 'ann');
  const renamed = { __typename: 'AffectedFiles', fileCount: 1, bytes: '1000', requestCount: 1 };
  expect(await rename('/one/a', '/uno/ä', { dryRun: true })).toEqual(renamed);
  expect(await pathsOf(id)).toEqual(['/one/a', '/one/b']);
  expect(await rename('/one/a', '/uno/ä')).toEqual(renamed);
  expect(await pathsOf(id)).toEqual(['/uno/ä', '/one/b']);
  expect((await get(app, `/requests/${id}`)).text).toContain('/uno/ä');
  expect(await list('/one/')).toEqual(['/one/b']);
  expect(await readUsed(app, 'ann')).toBe(used);
  await cancel(app, id);
});

test('a directory is renamed with all its files, also withdrawn ones, and nothing else', async () => {
  await add('/two/x/1', '/two/x/y/2', '/two/x.nc', '/two/x0', '/two/x/gone');
  await withdrawFiles(app.ctx, { path: '/two/x/gone' });
  expect(await rename('/two/x/', '/zwei/und/mehr/')).toMatchObject({ fileCount: 3 });
  expect(await list('/two/')).toEqual(['/two/x.nc', '/two/x0']);
  expect(await list('/zwei/')).toEqual(['/zwei/und/mehr/1', '/zwei/und/mehr/y/2']);
  expect(await list('/zwei/', 'onlyWithdrawn: true')).toEqual(['/zwei/und/mehr/gone']);
});

test('a directory with more files than a step is renamed completely, also to its parent', async () => {
  await add(...Array.from({ length: STEP + 2 }, (_, n) => `/many/deep/f${100_000 + n}`));
  const id = await makeRequest(app, { quota: 'ann', patterns: '/many/' });
  expect(await rename('/many/deep/', '/many/')).toMatchObject({ fileCount: STEP + 2, requestCount: 1 });
  expect(await list('/many/deep/')).toEqual([]);
  const { rows } = await app.ctx.db.pool.query(
    `SELECT count(*)::int AS n FROM tape_file WHERE path ~ '^/many/f1\\d+$'`,
  );
  expect(rows).toEqual([{ n: STEP + 2 }]);
  const { rows: given } = await app.ctx.db.pool.query(
    `SELECT (given->>'files')::int AS files FROM audit WHERE operation = 'renameFiles' AND object = '/many/deep/' ORDER BY id`,
  );
  expect(given).toEqual([{ files: STEP }, { files: 2 }]);
  await cancel(app, id);
});

test('requests that wait for the new path, or whose pattern matches it, get the renamed file once', async () => {
  await add('/three/a');
  const before = Number(await readUsed(app, 'ann'));
  const listed = await makeRequest(app, { quota: 'ann', files: ['/drei/a', '/three/a'] });
  const pattern = await makeRequest(app, { quota: 'ann', patterns: '/drei/' });
  expect(await unresolvedOf(listed)).toEqual([{ path: '/drei/a', reason: 'UNKNOWN' }]);
  const other = await makeRequest(app, { quota: 'ann', files: ['/drei/a'] });
  expect(await rename('/three/a', '/drei/a')).toMatchObject({ fileCount: 1 });
  for (const id of [listed, pattern, other])
    expect([await pathsOf(id), await unresolvedOf(id)]).toEqual([['/drei/a'], []]);
  expect(await readUsed(app, 'ann')).toBe(before + 3000);
  const { rows } = await app.ctx.db.pool.query(`SELECT unresolved_paths AS n FROM quota WHERE "user" = 'ann'`);
  expect(rows).toEqual([{ n: 0 }]);
  for (const id of [listed, pattern, other]) await cancel(app, id);
});

test('a released file does not join its request again under its new path', async () => {
  await add('/four/a', '/four/b');
  const id = await makeRequest(app, { quota: 'ann', patterns: '/four/' });
  await release(app, { requestId: id, paths: ['/four/a'] });
  expect(await rename('/four/a', '/four/c')).toMatchObject({ fileCount: 1 });
  const { files, unresolved } = await viewRequest(app, id);
  expect(files.map(({ path, state }) => [path, state])).toEqual([
    ['/four/c', 'RELEASED'],
    ['/four/b', 'WAITING'],
  ]);
  expect(unresolved).toEqual([]);
  await cancel(app, id);
});

test('a file that waits for quota still waits under its new path, unless that is hidden from the user', async () => {
  await addQuota(app.ctx, 'bob', 1500n);
  await add('/full/a');
  await addPathRule(app.ctx, { prefix: '/hidden', action: 'LIST', kind: 'USER', name: 'carl' });
  const bob = { url: app.url, token: (await createToken(app.ctx, { name: 'bob', role: 'USER' })).secret };
  const asBob = (input: object) => made(bob, { quota: 'bob', ...input });
  const [listed, pattern] = [await asBob({ files: ['/full/a', '/full/b'] }), await asBob({ pattern: '/full/b' })];
  await add('/full/b');
  const full = (path: string) => [{ path, reason: 'QUOTA_FULL' }];
  expect([await unresolvedOf(listed), await unresolvedOf(pattern)]).toEqual([full('/full/b'), full('/full/b')]);
  expect(await rename('/full/b', '/full/bb')).toMatchObject({ fileCount: 1, requestCount: 2 });
  expect(await unresolvedOf(pattern)).toEqual(full('/full/bb'));
  await rename('/full/bb', '/hidden/b');
  expect([await unresolvedOf(listed), await unresolvedOf(pattern)]).toEqual([
    [{ path: '/full/bb', reason: 'UNKNOWN' }],
    [],
  ]);
  for (const id of [listed, pattern]) await cancel(app, id);
});

test('a path that waited for quota is unknown after its request is revived, if its file was renamed', async () => {
  await addQuota(app.ctx, 'dora', 1500n);
  await add('/room/a');
  const id = await makeRequest(app, { quota: 'dora', files: ['/room/a', '/room/b'] });
  await add('/room/b');
  expect(await unresolvedOf(id)).toEqual([{ path: '/room/b', reason: 'QUOTA_FULL' }]);
  await cancel(app, id);
  await rename('/room/b', '/raum/b');
  await update(app, { requestId: id, retention: '2099-01-01T00:00:00Z' });
  expect(await unresolvedOf(id)).toEqual([{ path: '/room/b', reason: 'UNKNOWN' }]);
  await cancel(app, id);
});

test.each([
  ['a directory without its slash', '/bad', '/bad2', 'NotFound', 'to select the files below it, use "/bad/"'],
  ['the same path', '/bad/a', '/bad/a', 'InvalidInput', 'must be different from "/bad/a"'],
  [
    'a directory to a file',
    '/bad/',
    '/worse',
    'InvalidInput',
    'must be a directory, with a trailing slash, like "/bad/"',
  ],
  [
    'a file to a directory',
    '/bad/a',
    '/worse/',
    'InvalidInput',
    'must be a file, without a trailing slash, like "/bad/a"',
  ],
  ['a directory into itself', '/bad/', '/bad/in/', 'InvalidInput', 'must not be below "/bad/": "/bad/in/"'],
  ['a path that is taken', '/bad/a', '/bad/b', 'InUse', '1 path is taken: "/bad/b"; nothing was renamed'],
  ['a path of a withdrawn file', '/bad/a', '/bad/gone', 'InUse', '"/bad/gone" (withdrawn)'],
  [
    'a file below a file',
    '/bad/a',
    '/bad/b/c',
    'InUse',
    '"/bad/b" cannot be a file and also the directory of "/bad/b/c"',
  ],
  [
    'a file where a directory is',
    '/bad/a',
    '/bad/deep',
    'InUse',
    '"/bad/deep" cannot be a file and also the directory of',
  ],
  ['a directory onto another', '/bad/deep/', '/bad/', 'InUse', '"/bad/b"'],
  ['a path that is too long', '/bad/', `/${'long/'.repeat(409)}`, 'InvalidInput', 'longer than 2048 bytes'],
])('a rename with %s is refused and changes nothing', async (_what, from, to, type, message) => {
  if ((await list('/bad/')).length === 0) {
    await add('/bad/a', '/bad/b', '/bad/deep/b', '/bad/gone');
    await withdrawFiles(app.ctx, { path: '/bad/gone' });
  }
  const refused = await rename(from, to);
  expect(refused).toEqual({ __typename: type, message: expect.stringContaining(message) });
  expect(await rename(from, to, { dryRun: true })).toEqual(refused);
  expect(await list('/bad/')).toEqual(['/bad/a', '/bad/b', '/bad/deep/b']);
});

test('a rename that would put a path below its own source again is refused before it starts', async () => {
  await add('/up/y/1', '/up/y/y/2');
  expect((await rename('/up/y/', '/up/')).message).toContain(
    'the new path "/up/y/2" must not be below "/up/y/", the renamed directory',
  );
  expect(await list('/up/')).toEqual(['/up/y/1', '/up/y/y/2']);
});

test('a rename that fails after some steps does not report that nothing was renamed', async () => {
  await add('/other/x', ...Array.from({ length: STEP + 2 }, (_, n) => `/steps/f${100_000 + n}`));
  const { renamed } = await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const renamed = rename('/steps/', '/stufen/');
    await waiters(1);
    await app.ctx.db.pool.query(`UPDATE tape_file SET path = '/stufen/f100101' WHERE path = '/other/x'`);
    return { renamed };
  });
  const { message = '' } = await renamed;
  expect(message).toContain('1 path is taken: "/stufen/f100101"');
  const { rows } = await app.ctx.db.pool.query<{ n: number }>(
    `SELECT count(*)::int AS n FROM tape_file WHERE path LIKE '/stufen/f1%' AND path <> '/stufen/f100101'`,
  );
  expect([rows[0]?.n, message.includes('nothing was renamed')]).toEqual([STEP, false]);
});

test('the old path of a renamed file is free for another file', async () => {
  await add('/seven/latest');
  const id = await makeRequest(app, { quota: 'ann', files: ['/seven/latest'] });
  await rename('/seven/latest', '/seven/v1');
  await addFiles(app.ctx, [{ path: '/seven/latest', size: 7n }]);
  expect(await list('/seven/')).toEqual(['/seven/latest', '/seven/v1']);
  expect(await pathsOf(id)).toEqual(['/seven/v1']);
  await cancel(app, id);
});

test('a list of a library of names finds a renamed file by its name there', async () => {
  await addLibrary(app.ctx, { name: 'east', kind: 'wlcg', settings: { url: 'https://tape.example' } });
  const row = (path: string) => buildRow({ path, volume: 'EAST1', library: 'east', position: null });
  await importRows(app.ctx, [row('/east/a')]);
  expect(await rename('/east/a', '/east/b')).toMatchObject({ fileCount: 1 });
  expect(await tapePathOf('/east/b')).toBe('/east/a');
  await expect(importRows(app.ctx, [row('/east/a')])).rejects.toThrow(
    /line 1: "\/east\/a" is the library's name for "\/east\/b", which was renamed only in Tapegate/,
  );
  // another file may take the old path, and does not get bytes of the renamed file
  await addFiles(app.ctx, [{ path: '/east/a', volume: 'V00009', position: 5n }]);
  expect((await readPositions(app.ctx, ['/east/a'], 'EAST1')).get('/east/a')).toMatchObject({ volume: 'EAST1' });
  await expect(importRows(app.ctx, [{ ...row('/east/a'), stage: null }])).rejects.toThrow(
    'which was renamed only in Tapegate',
  );
  await rename('/east/a', '/west/a');
  expect(await rename('/east/b', '/east/c')).toMatchObject({ fileCount: 1 });
  expect(await tapePathOf('/east/c')).toBe('/east/a');
  expect(await rename('/east/c', '/east/a')).toMatchObject({ fileCount: 1 });
  expect(await tapePathOf('/east/a')).toBeNull();
  expect(await rename('/east/a', '/east/d', { inLibrary: true })).toMatchObject({ fileCount: 1 });
  expect(await tapePathOf('/east/d')).toBeNull();
  await importRows(app.ctx, [row('/east/a')]);
  await rename('/east/a', '/east/e');
  expect((await rename('/east/d', '/east/a', { inLibrary: true })).message).toContain(
    '1 other file already has the new name in its library: "/east/e"',
  );
  // an import may restore a renamed file that has taken the old name of another file
  await importRows(app.ctx, [row('/east/x'), row('/east/y')]);
  await rename('/east/x', '/east/z');
  await rename('/east/y', '/east/x');
  await importRows(app.ctx, [], { complete: { prefix: '/east/', mostPercent: 100 } });
  expect(await importRows(app.ctx, [row('/east/x')])).toMatchObject({ reinstated: 1 });
});

test('a renamed file that an import moves to another volume keeps the name in the library of its second copy', async () => {
  const settings = { url: 'https://tape.example' };
  for (const name of ['left', 'right']) await addLibrary(app.ctx, { name, kind: 'wlcg', settings });
  const rowOf = (path: string, volume: string) =>
    buildRow({ path, volume, library: 'left', position: null, copyVolume: 'RIGHT1', copyPosition: null });
  await importRows(app.ctx, [rowOf('/twice/a', 'LEFT1')]);
  await rename('/twice/a', '/twice/b');
  await importRows(app.ctx, [{ ...rowOf('/twice/b', 'V00010'), library: undefined, position: 7n }]);
  const query = '{ tapeFile(path: "/twice/b") { tapePath volume { name } copyVolume { name } } }';
  expect(await askData(app, query)).toEqual({
    tapeFile: { tapePath: '/twice/a', volume: { name: 'V00010' }, copyVolume: { name: 'RIGHT1' } },
  });
});

test('a library with names for some directories only accepts no rename to others, and keeps the prefixes of renamed files', async () => {
  const place = { bucket: 'archive', region: 'eu-west-2', tier: 'Bulk' };
  await addLibrary(app.ctx, { name: 'deep', kind: 's3', settings: { ...place, prefixes: ['/deep/=', '/e/='] } });
  await addFiles(app.ctx, [{ path: '/deep/1', volume: 'DEEP1', library: 'deep' }]);
  expect((await rename('/deep/1', '/other/1', { inLibrary: true })).message).toBe(
    'to must be below a prefix of library deep ("/deep/", "/e/"), but the new path "/other/1" is not',
  );
  const set = (prefixes: string[]) => updateLibrary(app.ctx, { name: 'deep', settings: { prefixes } });
  await expect(set(['/e/='])).rejects.toThrow('"/deep/1" is not below "/e/"');
  expect(await rename('/deep/1', '/e/1')).toMatchObject({ fileCount: 1 });
  await expect(set(['/e/='])).rejects.toThrow('"/deep/1" is not below "/e/"');
  expect(await set(['/deep/='])).toMatchObject({ settings: { prefixes: ['/deep/='] } });
});
