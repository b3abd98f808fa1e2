/** Files that get other paths, and withdrawn files that are forgotten, as clients see it. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { setPathRule } from '../../src/operations/access/path-rules.js';
import { stepSize } from '../../src/operations/catalogue/chosen-files.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota, buildRow } from '../support/factories.js';
import { findFaults } from '../support/faults.js';
import { askData, type Connection } from '../support/graphql.js';
import { cancel, retry } from '../support/mutations.js';
import { viewRequest } from '../support/request-view.js';
import { get, makeRequest, readUsed } from '../support/rest.js';

/** Files that an operation takes at a time here. */
const STEP = 100;

let app: TestApp;

beforeAll(async () => {
  stepSize.files = STEP;
  app = await startApp();
  await addQuota(app.ctx, 'ann', 1_000_000n);
});
afterAll(() => {
  stepSize.files = 10_000;
});
afterAll(async () => {
  expect(await findFaults(app)).toEqual([]);
  await app.close();
});

interface Changed {
  __typename: string;
  files?: number;
  bytes?: string;
  requests?: number;
  kept?: number;
  message?: string;
}

async function rename(from: string, to: string, more: object = {}): Promise<Changed> {
  const query = `mutation ($input: RenameFilesInput!) { result: renameFiles(input: $input) {
    __typename ... on ChosenFiles { files bytes requests } ... on Failure { message } } }`;
  return (await askData<{ result: Changed }>(app, query, { input: { from, to, ...more } })).result;
}

async function forget(path: string, more: object = {}): Promise<Changed> {
  const query = `mutation ($input: ForgetFilesInput!) { result: forgetFiles(input: $input) {
    __typename ... on ForgottenFiles { files bytes kept } ... on Failure { message } } }`;
  return (await askData<{ result: Changed }>(app, query, { input: { path, ...more } })).result;
}

async function withdraw(path: string): Promise<void> {
  const query = 'mutation ($path: String!) { withdrawFiles(input: { path: $path, why: "wrong" }) { __typename } }';
  expect(await askData(app, query, { path })).toEqual({ withdrawFiles: { __typename: 'ChosenFiles' } });
}

async function list(match: string, more = ''): Promise<string[]> {
  const query = `query ($match: String) { tapeFiles(match: $match ${more}) { edges { node { path } } } }`;
  const { tapeFiles } = await askData<{ tapeFiles: Connection<{ path: string }> }>(app, query, { match });
  return tapeFiles.edges.map(({ node }) => node.path);
}

const pathsOf = (view: { holds: { path: string }[] }) => view.holds.map(({ path }) => path);
const add = (...paths: string[]) =>
  addFiles(
    app.ctx,
    paths.map((path) => ({ path })),
  );

test('a file that is renamed stays the same file: requests keep it, at the same charge', async () => {
  await add('/one/a', '/one/b');
  const id = await makeRequest(app, { quota: 'ann', files: ['/one/a', '/one/b'] });
  const used = await readUsed(app, 'ann');
  expect(await rename('/one/a', '/uno/ä', { dryRun: true })).toMatchObject({ files: 1, bytes: '1000', requests: 1 });
  expect(pathsOf(await viewRequest(app, id))).toEqual(['/one/a', '/one/b']);
  expect(await rename('/one/a', '/uno/ä')).toEqual({
    __typename: 'ChosenFiles',
    files: 1,
    bytes: '1000',
    requests: 1,
  });
  expect(pathsOf(await viewRequest(app, id))).toEqual(['/uno/ä', '/one/b']);
  expect((await get(app, `/requests/${id}`)).text).toContain('/uno/ä');
  expect(await list('/one/')).toEqual(['/one/b']);
  expect(await readUsed(app, 'ann')).toBe(used);
  await cancel(app, id);
});

test('a folder is renamed with all below it, what is withdrawn included, and nothing beside it', async () => {
  await add('/two/x/1', '/two/x/y/2', '/two/x.nc', '/two/x0', '/two/x/gone');
  await withdraw('/two/x/gone');
  expect(await rename('/two/x/', '/zwei/und/mehr/')).toMatchObject({ files: 3 });
  expect(await list('/two/')).toEqual(['/two/x.nc', '/two/x0']);
  expect(await list('/zwei/')).toEqual(['/zwei/und/mehr/1', '/zwei/und/mehr/y/2']);
  expect(await list('/zwei/', 'withdrawn: true')).toEqual(['/zwei/und/mehr/gone']);
});

test('folders of more files than one step has are renamed whole, also upwards', async () => {
  await addFiles(
    app.ctx,
    Array.from({ length: STEP + 2 }, (_, n) => ({ path: `/many/deep/f${100_000 + n}`, size: 1n })),
  );
  const id = await makeRequest(app, { quota: 'ann', patterns: '/many/' });
  expect(await rename('/many/deep/', '/many/')).toMatchObject({ files: STEP + 2, requests: 1 });
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

test('what waits for the new path takes the file in, by path and by pattern, and not twice', async () => {
  await add('/three/a');
  const before = Number(await readUsed(app, 'ann'));
  const listed = await makeRequest(app, { quota: 'ann', files: ['/drei/a', '/three/a'] });
  const pattern = await makeRequest(app, { quota: 'ann', patterns: '/drei/' });
  expect(await viewRequest(app, listed)).toMatchObject({ awaited: [{ path: '/drei/a', reason: 'UNKNOWN' }] });
  const other = await makeRequest(app, { quota: 'ann', files: ['/drei/a'] });
  expect(await rename('/three/a', '/drei/a')).toMatchObject({ files: 1 });
  for (const id of [listed, pattern, other]) {
    const { holds, awaited } = await viewRequest(app, id);
    expect([holds.map(({ path }) => path), awaited]).toEqual([['/drei/a'], []]);
  }
  expect(await readUsed(app, 'ann')).toBe(before + 3000);
  const { rows } = await app.ctx.db.pool.query(`SELECT awaited_paths AS n FROM quota WHERE "user" = 'ann'`);
  expect(rows).toEqual([{ n: 0 }]);
  for (const id of [listed, pattern, other]) await cancel(app, id);
});

test('a file that was released does not come back under its new name', async () => {
  await add('/four/a', '/four/b');
  const id = await makeRequest(app, { quota: 'ann', patterns: '/four/' });
  await askData(app, `mutation { releaseFiles(input: { id: ${id}, paths: ["/four/a"] }) { __typename } }`);
  expect(await rename('/four/a', '/four/c')).toMatchObject({ files: 1 });
  const { holds, awaited } = await viewRequest(app, id);
  expect(holds.map(({ path, state }) => [path, state])).toEqual([
    ['/four/c', 'RELEASED'],
    ['/four/b', 'WAITING'],
  ]);
  expect(awaited).toEqual([]);
  await cancel(app, id);
});

test('what waits for room goes on waiting for the file, under its new name', async () => {
  await addQuota(app.ctx, 'bob', 1500n);
  await add('/five/a');
  const id = await makeRequest(app, { quota: 'bob', patterns: '/five/' });
  await addFiles(app.ctx, [{ path: '/five/c' }]);
  expect(await viewRequest(app, id)).toMatchObject({
    awaited: expect.arrayContaining([{ path: '/five/c', reason: 'QUOTA_FULL' }]),
  });
  expect(await rename('/five/c', '/fünf/c')).toMatchObject({ files: 1, requests: 1 });
  const { awaited } = await viewRequest(app, id);
  expect(awaited.map(({ path }) => path)).toContain('/fünf/c');
  expect(awaited.map(({ path }) => path)).not.toContain('/five/c');
  await cancel(app, id);
});

test('rules by folders hold under the new name for what joins by it', async () => {
  await add('/six/a');
  await setPathRule(app.ctx, { prefix: '/sechs', action: 'REQUEST', kind: 'USER', name: 'nobody-else' });
  const id = await makeRequest(app, { quota: 'ann', files: ['/six/a'] });
  expect(await rename('/six/a', '/sechs/a')).toMatchObject({ files: 1 });
  expect(pathsOf(await viewRequest(app, id))).toEqual(['/sechs/a']); // what it has stays
  await cancel(app, id);
});

test.each([
  ['no such file', '/bad/none', '/bad/x', 'NotFound', 'there is no file "/bad/none"'],
  ['a folder without its slash', '/bad', '/bad2', 'NotFound', '"/bad/" are the files below it'],
  ['the same path', '/bad/a', '/bad/a', 'InvalidInput', 'must be another path than "/bad/a"'],
  [
    'a folder to a file',
    '/bad/',
    '/worse',
    'InvalidInput',
    'must be a folder, with a slash at its end, as "/bad/" is: "/worse"',
  ],
  [
    'a file to a folder',
    '/bad/a',
    '/worse/',
    'InvalidInput',
    'must be a file, without a slash at its end, as "/bad/a" is: "/worse/"',
  ],
  ['a folder into itself', '/bad/', '/bad/in/', 'InvalidInput', 'must not be in "/bad/": "/bad/in/"'],
  ['everything', '/', '/all/', 'InvalidInput', 'must be a file or a folder, and not all there is: "/"'],
  ['a path that leads out', '/bad/a', '/bad/../../b', 'InvalidInput', 'has the part ".."'],
  ['a name that is kept', '/bad/a', '/bad/.tapegate-x', 'InvalidInput', 'that Tapegate keeps for itself'],
  ['a path that is taken', '/bad/a', '/bad/b', 'InUse', '1 path is taken: "/bad/b"; nothing was renamed'],
  ['a path that a withdrawn file has', '/bad/a', '/bad/gone', 'InUse', '"/bad/gone" (withdrawn)'],
  ['a file below a file', '/bad/a', '/bad/b/c', 'InUse', '"/bad/b" cannot be a file and a folder, of "/bad/b/c"'],
  ['a file where a folder is', '/bad/a', '/bad/deep', 'InUse', '"/bad/deep" cannot be a file and a folder'],
  ['a folder onto another', '/bad/deep/', '/bad/', 'InUse', '"/bad/b"'],
  ['a path that is too long', '/bad/', `/${'long/'.repeat(409)}`, 'InvalidInput', 'longer than 2048 bytes'],
])('%s is refused, and nothing is renamed', async (_what, from, to, type, message) => {
  if ((await list('/bad/')).length === 0) {
    await add('/bad/a', '/bad/b', '/bad/deep/b', '/bad/gone');
    await withdraw('/bad/gone');
  }
  const refused = await rename(from, to);
  expect([refused.__typename, refused.message]).toEqual([type, expect.stringContaining(message)]);
  expect(await rename(from, to, { dryRun: true })).toEqual(refused);
  expect(await list('/bad/')).toEqual(['/bad/a', '/bad/b', '/bad/deep/b']);
});

test('a folder that would be within itself again is refused before anything is renamed', async () => {
  await add('/up/y/1', '/up/y/y/2');
  expect((await rename('/up/y/', '/up/')).message).toContain('"/up/y/2" would be in "/up/y/" again');
  expect(await list('/up/')).toEqual(['/up/y/1', '/up/y/y/2']);
});

test('a path is free for another file once its own was renamed', async () => {
  await add('/seven/latest');
  const id = await makeRequest(app, { quota: 'ann', files: ['/seven/latest'] });
  await rename('/seven/latest', '/seven/v1');
  await addFiles(app.ctx, [{ path: '/seven/latest', size: 7n }]);
  expect(await list('/seven/')).toEqual(['/seven/latest', '/seven/v1']);
  expect(pathsOf(await viewRequest(app, id))).toEqual(['/seven/v1']);
  await cancel(app, id);
});

test('what no request tells of goes altogether when it is forgotten, and its path is free', async () => {
  await add('/eight/a', '/eight/b');
  expect((await forget('/eight/a')).message).toBe('file "/eight/a": not withdrawn');
  await withdraw('/eight/a');
  expect(await forget('/eight/', { dryRun: true })).toEqual({
    __typename: 'ForgottenFiles',
    files: 1,
    bytes: '1000',
    kept: 0,
  });
  expect(await forget('/eight/')).toEqual({ __typename: 'ForgottenFiles', files: 1, bytes: '1000', kept: 0 });
  expect((await forget('/eight/a')).message).toBe('there is no file "/eight/a"');
  expect(await askData(app, '{ tapeFile(path: "/eight/a") { path } }')).toEqual({ tapeFile: null });
  await addFiles(app.ctx, [{ path: '/eight/a', size: 5n }]);
  expect(await askData(app, '{ tapeFile(path: "/eight/a") { size withdrawnAt } }')).toEqual({
    tapeFile: { size: '5', withdrawnAt: null },
  });
});

test('what requests tell of stays for them under a name of its own, whatever becomes of the path', async () => {
  await add('/nine/a', '/nine/b');
  const id = await makeRequest(app, { quota: 'ann', files: ['/nine/a', '/nine/b'] });
  await withdraw('/nine/a'); // who waits is told, and has nothing of it any more
  expect(await forget('/nine/a')).toMatchObject({ files: 1, kept: 0 });
  await addFiles(app.ctx, [{ path: '/nine/a', size: 3n }]);
  const { holds, filesFailed } = await viewRequest(app, id);
  expect(filesFailed).toBe(1);
  expect(holds.map(({ path, state }) => [path, state])).toEqual([
    [expect.stringMatching(/^\/\.tapegate-forgotten\/\d+\/nine\/a$/), 'FAILED'],
    ['/nine/b', 'WAITING'],
  ]);
  await retry(app, { id });
  expect((await viewRequest(app, id)).holds[0]).toMatchObject({
    state: 'FAILED',
    error: 'withdrawn from the archive: wrong',
  });
  expect(await list('/nine/', 'withdrawn: true')).toEqual([]);
  const hidden = holds[0]?.path ?? '';
  const reinstate =
    'mutation ($path: String!) { result: reinstateFiles(input: { path: $path }) { __typename ... on Failure { message } } }';
  const { result } = await askData<{ result: Changed }>(app, reinstate, { path: hidden });
  expect(result.message).toContain('that Tapegate keeps for itself');
  await cancel(app, id);
  expect((await get(app, `/requests/${id}`)).text).toContain(hidden);
});

test('what is in a live request is passed over, and goes when that has ended', async () => {
  await addFiles(app.ctx, [{ path: '/ten/a', stage: 'ONDISK' }, { path: '/ten/b' }]);
  const id = await makeRequest(app, { quota: 'ann', files: ['/ten/a'] });
  await withdraw('/ten/');
  expect((await forget('/ten/a')).message).toBe(`"/ten/a" cannot be forgotten yet: request ${id} has it`);
  expect(await forget('/ten/')).toMatchObject({ files: 1, kept: 1 });
  await cancel(app, id);
  expect(await forget('/ten/')).toMatchObject({ files: 1, kept: 0 });
  expect(await list('/ten/', 'withdrawn: true')).toEqual([]);
});

test('a list that has the name of before makes a new file; one of a library that goes by names is refused', async () => {
  const addLibrary = `mutation { addLibrary(input: { name: "east", kind: "wlcg", settings: "{\\"url\\": \\"https://tape.example\\"}" }) { __typename ... on Failure { message } } }`;
  expect(await askData(app, addLibrary)).toEqual({ addLibrary: { __typename: 'Library' } });
  const row = (path: string) => buildRow({ path, volume: 'EAST1', library: 'east', position: null });
  await importRows(app.ctx, [row('/east/a')]);
  expect(await rename('/east/a', '/east/b')).toMatchObject({ files: 1 });
  const shown = '{ tapeFile(path: "/east/b") { tapePath } }';
  expect(await askData(app, shown)).toEqual({ tapeFile: { tapePath: '/east/a' } });
  await expect(importRows(app.ctx, [row('/east/a')])).rejects.toThrow(
    /line 1: the library has one file of the name "\/east\/a", which was renamed to "\/east\/b" here/,
  );
  expect(await rename('/east/b', '/east/c')).toMatchObject({ files: 1 });
  expect(await askData(app, '{ tapeFile(path: "/east/c") { tapePath } }')).toEqual({
    tapeFile: { tapePath: '/east/a' },
  });
  // back again, and then in the library, too
  expect(await rename('/east/c', '/east/a')).toMatchObject({ files: 1 });
  expect(await askData(app, '{ tapeFile(path: "/east/a") { tapePath } }')).toEqual({ tapeFile: { tapePath: null } });
  expect(await rename('/east/a', '/east/d', { inLibrary: true })).toMatchObject({ files: 1 });
  expect(await askData(app, '{ tapeFile(path: "/east/d") { tapePath } }')).toEqual({ tapeFile: { tapePath: null } });
  await importRows(app.ctx, [row('/east/a')]);
  await rename('/east/a', '/east/e');
  expect((await rename('/east/d', '/east/a', { inLibrary: true })).message).toContain(
    '1 file has such a name in its library, and another one here: "/east/e"',
  );
});

test('a library that has names for some folders only is told of no others', async () => {
  const settings = JSON.stringify({ bucket: 'archive', region: 'eu-west-2', prefixes: ['/bucket/=k/'] });
  const addLibrary =
    'mutation ($settings: String!) { addLibrary(input: { name: "cold", kind: "s3", settings: $settings }) { __typename ... on Failure { message } } }';
  expect(await askData(app, addLibrary, { settings })).toEqual({ addLibrary: { __typename: 'Library' } });
  await importRows(app.ctx, [buildRow({ path: '/bucket/a', volume: 'COLD1', library: 'cold', position: null })]);
  expect((await rename('/bucket/a', '/other/a', { inLibrary: true })).message).toBe(
    'to must have names in library cold, and "/other/a" is below none of "/bucket/"',
  );
  expect(await rename('/bucket/a', '/other/a')).toMatchObject({ files: 1 });
});
