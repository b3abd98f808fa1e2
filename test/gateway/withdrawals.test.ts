/** Files that are withdrawn from the catalogue, by hand or by a complete list, and come back. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { stepSize } from '../../src/operations/catalogue/chosen-files.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { findFaults } from '../support/faults.js';
import { ask, askData, type Connection } from '../support/graphql.js';
import { send } from '../support/http.js';
import { cancel, update } from '../support/mutations.js';
import { viewRequest } from '../support/request-view.js';
import { get, makeRequest, readUsed } from '../support/rest.js';

/** Files that an operation takes at a time here. */
const STEP = 100;

let app: TestApp;

beforeAll(async () => {
  stepSize.files = STEP;
  app = await startApp();
});
afterAll(() => {
  stepSize.files = 10_000;
});
afterAll(async () => {
  expect(await findFaults(app)).toEqual([]);
  await app.close();
});

interface Chosen {
  __typename: string;
  files?: number;
  bytes?: string;
  requests?: number;
  message?: string;
}

async function choose(field: 'withdrawFiles' | 'reinstateFiles', input: object): Promise<Chosen> {
  const type = field === 'withdrawFiles' ? 'WithdrawFilesInput' : 'ReinstateFilesInput';
  const query = `mutation ($input: ${type}!) { result: ${field}(input: $input) {
    __typename ... on ChosenFiles { files bytes requests } ... on Failure { message } } }`;
  return (await askData<{ result: Chosen }>(app, query, { input })).result;
}
const withdraw = (path: string, more: object = {}) => choose('withdrawFiles', { path, ...more });
const reinstate = (path: string, more: object = {}) => choose('reinstateFiles', { path, ...more });

interface Listed {
  totalCount: number;
  paths: string[];
}

async function list(match: string, more = ''): Promise<Listed> {
  const query = `query ($match: String) { tapeFiles(match: $match ${more}) { totalCount edges { node { path } } } }`;
  const { tapeFiles } = await askData<{ tapeFiles: Connection<{ path: string }> }>(app, query, { match });
  return { totalCount: tapeFiles.totalCount ?? -1, paths: tapeFiles.edges.map(({ node }) => node.path) };
}

const waits = { state: 'WAITING', error: null };
const told = (why: string) => ({ state: 'FAILED', errorClass: 'POLICY', error: `withdrawn from the archive${why}` });

test('a file that is withdrawn is in no list, and nobody can ask for it; it comes back as it was', async () => {
  await addQuota(app.ctx, 'ann', 10_000n);
  await addFiles(app.ctx, [{ path: '/one/a' }, { path: '/one/b' }]);
  const before = (await get(app, '/files?match=/one/')).text;
  expect(await withdraw('/one/a', { why: 'wrong calibration' })).toMatchObject({
    files: 1,
    bytes: '1000',
    requests: 0,
  });
  expect(await list('/one/')).toEqual({ totalCount: 1, paths: ['/one/b'] });
  expect(await list('/one/', 'withdrawn: true')).toEqual({ totalCount: 1, paths: ['/one/a'] });
  expect((await get(app, '/files?match=/one/')).text).not.toContain('/one/a');
  const query = '{ tapeFile(path: "/one/a") { withdrawnAt withdrawnWhy stage } }';
  expect((await askData<{ tapeFile: object }>(app, query)).tapeFile).toMatchObject({
    withdrawnAt: expect.stringMatching(/^\d{4}-/),
    withdrawnWhy: 'wrong calibration',
    stage: 'ONTAPE',
  });
  const [listed, pattern] = [
    await makeRequest(app, { quota: 'ann', files: ['/one/a', '/one/b'] }),
    await makeRequest(app, { quota: 'ann', patterns: '/one/' }),
  ];
  expect(await viewRequest(app, listed)).toMatchObject({
    holds: [{ path: '/one/b' }],
    awaited: [{ path: '/one/a', reason: 'UNKNOWN' }],
  });
  expect(await viewRequest(app, pattern)).toMatchObject({ holds: [{ path: '/one/b' }], awaited: [] });
  expect(await readUsed(app, 'ann')).toBe(2000);
  expect(await reinstate('/one/a')).toMatchObject({ files: 1, requests: 1 });
  expect((await get(app, '/files?match=/one/')).text).toBe(before);
  for (const id of [listed, pattern]) {
    const { holds, awaited } = await viewRequest(app, id);
    expect([holds.map(({ path }) => path).sort(), awaited]).toEqual([['/one/a', '/one/b'], []]);
  }
  expect(await readUsed(app, 'ann')).toBe(4000);
});

test('a folder is withdrawn with all below it, and nothing beside it', async () => {
  const paths = ['/two/x/1', '/two/x/y/2', '/two/x.nc', '/two/x0', '/two/x-1', '/two/xa/3'];
  await addFiles(
    app.ctx,
    paths.map((path) => ({ path })),
  );
  expect(await withdraw('/two/x/', { dryRun: true })).toMatchObject({ files: 2, bytes: '2000', requests: 0 });
  expect((await list('/two/')).totalCount).toBe(6);
  expect(await withdraw('/two/x/')).toMatchObject({ files: 2 });
  expect((await list('/two/')).paths.sort()).toEqual(['/two/x-1', '/two/x.nc', '/two/x0', '/two/xa/3']);
  const folder = '{ folder(path: "/two") { edges { node { path } } } }';
  expect(JSON.stringify(await ask(app, folder))).not.toContain('/two/x"');
  expect(await reinstate('/two/x/', { dryRun: true })).toMatchObject({ files: 2 });
  expect((await list('/two/', 'withdrawn: true')).totalCount).toBe(2);
  expect(await reinstate('/two/x/')).toMatchObject({ files: 2 });
  expect((await list('/two/')).totalCount).toBe(6);
});

test('a folder of more files than one step withdraws is withdrawn whole, and comes back whole', async () => {
  await addQuota(app.ctx, 'eve', 100_000n);
  const paths = Array.from({ length: STEP + 2 }, (_, n) => `/many/f${100_000 + n}`);
  await addFiles(
    app.ctx,
    paths.map((path) => ({ path, size: 1n })),
  );
  const id = await makeRequest(app, { quota: 'eve', patterns: '/many/' });
  expect(await withdraw('/many/')).toMatchObject({ files: STEP + 2, requests: 1 });
  expect((await list('/many/')).totalCount).toBe(0);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'PARTIAL', filesFailed: STEP + 2 });
  const { rows } = await app.ctx.db.pool.query(`SELECT count(*)::int AS rows FROM audit WHERE object = '/many/'`);
  expect(rows).toEqual([{ rows: 2 }]); // one a step
  expect(await reinstate('/many/')).toMatchObject({ files: STEP + 2 });
  expect((await list('/many/')).totalCount).toBe(STEP + 2);
});

test('what cannot be meant is refused by name, and changes nothing', async () => {
  await addFiles(app.ctx, [{ path: '/three/a' }, { path: '/three/b' }]);
  await withdraw('/three/b');
  const refused: [Chosen, string][] = [
    [await withdraw('/'), 'path must be a file or a folder, and not all there is: "/"'],
    [await withdraw(''), 'path has a path that does not begin with "/": ""'],
    [await withdraw('three/a'), 'path has a path that does not begin with "/": "three/a"'],
    [await withdraw('/three//'), 'path has a path that has the part "": "/three/"'],
    [await withdraw('/three/../'), 'path has a path that has the part "..": "/three/.."'],
    [await withdraw('/three'), 'there is no file "/three"; it is a folder, and "/three/" are the files below it'],
    [await withdraw('/nowhere/'), 'there is no file below "/nowhere/"'],
    [await withdraw('/three/b'), 'file "/three/b": withdrawn already'],
    [await reinstate('/three/a'), 'file "/three/a": not withdrawn'],
    [
      await withdraw('/three/a', { why: 'ask zoe@example.org' }),
      'why must not hold an address of mail: "ask zoe@example.org"',
    ],
    [await withdraw('/three/a', { why: 'a\nb' }), 'why must not hold control characters: "a\\nb"'],
  ];
  for (const [{ message }, expected] of refused) expect(message).toBe(expected);
  expect((await list('/three/')).paths).toEqual(['/three/a']);
});

test('who waits for a file is told why it does not come, and goes on with the others', async () => {
  await addQuota(app.ctx, 'bea', 10_000n);
  await addFiles(app.ctx, [{ path: '/four/a' }, { path: '/four/b', stage: 'ONDISK' }, { path: '/four/c' }]);
  const id = await makeRequest(app, { quota: 'bea', files: ['/four/a', '/four/b', '/four/c'] });
  expect(await withdraw('/four/a', { why: 'superseded' })).toMatchObject({ files: 1, requests: 1 });
  await withdraw('/four/b');
  const view = await viewRequest(app, id);
  expect(view.holds).toMatchObject([
    { path: '/four/a', ...told(': superseded') },
    { path: '/four/b', state: 'ON_DISK' },
    { path: '/four/c', ...waits },
  ]);
  expect(view).toMatchObject({ state: 'QUEUED', filesFailed: 1, filesOnDisk: 1, filesTotal: 3 });
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE f.path LIKE '/four/%'`,
  );
  expect(rows).toEqual([{ path: '/four/c' }]);
  // to ask again says the same, until it is back
  const retried = `mutation { retryRequest(input: { id: ${id} }) { __typename } }`;
  await askData(app, retried);
  expect((await viewRequest(app, id)).holds[0]).toMatchObject(told(': superseded'));
  await reinstate('/four/a');
  expect((await viewRequest(app, id)).holds[0]).toMatchObject(told(': superseded'));
  await askData(app, retried);
  expect((await viewRequest(app, id)).holds[0]).toMatchObject(waits);
});

test('what waits for room waits for no file that is withdrawn, and takes it in when it is back and there is room', async () => {
  await addQuota(app.ctx, 'cat', 1500n);
  await addFiles(app.ctx, [{ path: '/five/a' }]);
  const pattern = await makeRequest(app, { quota: 'cat', patterns: '/five/' });
  const listed = await makeRequest(app, { quota: 'cat', files: ['/five/b'] });
  await addFiles(app.ctx, [{ path: '/five/b' }]);
  for (const id of [pattern, listed]) {
    expect((await viewRequest(app, id)).awaited).toEqual([{ path: '/five/b', reason: 'QUOTA_FULL' }]);
  }
  expect(await withdraw('/five/b')).toMatchObject({ requests: 2 });
  expect((await viewRequest(app, pattern)).awaited).toEqual([]);
  expect((await viewRequest(app, listed)).awaited).toEqual([{ path: '/five/b', reason: 'UNKNOWN' }]);
  await addQuota(app.ctx, 'cat', 5000n);
  await update(app, { id: listed, label: 'looks again' });
  expect((await viewRequest(app, listed)).awaited).toEqual([{ path: '/five/b', reason: 'UNKNOWN' }]);
  await reinstate('/five/b');
  for (const id of [pattern, listed]) {
    const { holds, awaited } = await viewRequest(app, id);
    expect([holds.at(-1)?.path, awaited]).toEqual(['/five/b', []]);
  }
  expect(await readUsed(app, 'cat')).toBe(3000);
});

const CSV = 'path,size,stage,volume,position\n';
const rowsOf = (paths: readonly string[]) => CSV + paths.map((path, n) => `${path},1000,T,V00001,${n + 1}\n`).join('');

async function importList(
  paths: readonly string[],
  query = '',
): Promise<{ status: number; body: Record<string, unknown> }> {
  const { status, body } = await send(app, `/import${query}`, {
    method: 'PUT',
    body: rowsOf(paths),
    headers: { Authorization: `Bearer ${app.token}` },
  });
  return { status, body: body as Record<string, unknown> };
}

test('what a complete list does not have is withdrawn, and comes back with the list that has it', async () => {
  const paths = Array.from({ length: 40 }, (_, n) => `/six/f${100 + n}`);
  await addQuota(app.ctx, 'dan', 100_000n);
  await importList([...paths, '/sixty']);
  const id = await makeRequest(app, { quota: 'dan', patterns: '/six/' });
  const cut = paths.slice(0, 38);
  const dry = await importList([...cut, '/six/new'], '?complete=/six/&dryRun=true');
  expect(dry).toMatchObject({ status: 200, body: { added: 1, withdrawn: 2, known: 40 } });
  expect((await list('/six/')).totalCount).toBe(40);
  expect(await importList([...cut, '/six/new'], '?complete=/six')).toMatchObject({ status: 200, body: dry.body });
  expect((await list('/six/')).totalCount).toBe(39);
  expect((await list('/sixty')).totalCount).toBe(1);
  const gone = (await viewRequest(app, id)).holds.filter(({ state }) => state === 'FAILED');
  expect(gone).toMatchObject([
    { path: '/six/f138', ...told(': a complete list of the archive does not have it') },
    { path: '/six/f139', ...told(': a complete list of the archive does not have it') },
  ]);
  // withdrawn by hand is for people to bring back
  await withdraw('/six/f100');
  const whole = await importList([...paths, '/six/new'], '?complete=/six/');
  expect(whole.body).toMatchObject({ added: 0, reinstated: 2, staysWithdrawn: 1, withdrawn: 0, known: 38 });
  expect((await list('/six/', 'withdrawn: true')).paths).toEqual(['/six/f100']);
  expect((await importList(paths)).body).not.toHaveProperty('withdrawn');
});

test('a list that was cut short withdraws nothing, unless it is meant', async () => {
  const paths = Array.from({ length: 20 }, (_, n) => `/seven/f${100 + n}`);
  await importList(paths);
  const half = [...paths.slice(0, 10), '/seven/other'];
  const message =
    'the list does not have 10 of 20 files below "/seven/", and at most 5 % are withdrawn at a time: nothing was imported';
  expect(await importList(half, '?complete=/seven/')).toMatchObject({ status: 409, body: { error: message } });
  expect((await importList([], '?complete=/seven/')).body).toMatchObject({
    error: expect.stringContaining('20 of 20 files'),
  });
  expect((await importList(half, '?complete=/seven/&maxWithdrawn=49')).status).toBe(409);
  expect((await list('/seven/')).paths).toEqual(paths);
  expect((await importList(half, '?complete=/seven/&maxWithdrawn=50')).body).toMatchObject({ added: 1, withdrawn: 10 });
  expect((await list('/seven/')).totalCount).toBe(11);
});

test('what an import takes beside its rows is checked before anything is read', async () => {
  const refused: [string, string][] = [
    ['?complet=/a/', 'complet is nothing that an import takes: there are complete, maxWithdrawn, dryRun'],
    ['?complete=/a/&complete=/b/', 'complete must be given once'],
    ['?complete=/', 'complete must be a file or a folder, and not all there is: "/"'],
    ['?complete=a', 'complete has a path that does not begin with "/": "a"'],
    ['?complete=/a//b', 'complete has a path that has the part "": "/a//b"'],
    ['?complete=%00', 'complete has a path that is taken by no disk: "\\u0000"'],
    ['?maxWithdrawn=5', 'maxWithdrawn is for an import that is complete'],
    ['?complete=/a&maxWithdrawn=101', 'maxWithdrawn must be from 0 to 100, in percent, not 101'],
    ['?complete=/a&maxWithdrawn=-1', 'maxWithdrawn must be from 0 to 100, in percent, not "-1"'],
    ['?dryRun=yes', 'dryRun must be true or false, not "yes"'],
  ];
  for (const [query, error] of refused) {
    expect(await importList(['/eight/a'], query)).toMatchObject({ status: 400, body: { error } });
  }
  expect((await list('/eight/')).totalCount).toBe(0);
});

test('what an import says of a file that is withdrawn is taken over, and it stays withdrawn', async () => {
  await addQuota(app.ctx, 'fay', 10_000n);
  await addFiles(app.ctx, [{ path: '/nine/tape' }, { path: '/nine/disk', stage: 'ONDISK' }]);
  const id = await makeRequest(app, { quota: 'fay', files: ['/nine/disk'] });
  await withdraw('/nine/');
  await addFiles(app.ctx, [{ path: '/nine/tape', volume: 'V77', position: 9n }, { path: '/nine/disk' }]);
  expect((await viewRequest(app, id)).holds[0]).toMatchObject({ stage: 'ONTAPE', ...told('') });
  expect(await viewRequest(app, id)).toMatchObject({ state: 'PARTIAL', filesFailed: 1, filesOnDisk: 0 });
  expect((await list('/nine/')).totalCount).toBe(0);
  await reinstate('/nine/');
  const query = '{ tapeFile(path: "/nine/tape") { volume { name } position } }';
  expect(await askData(app, query)).toEqual({ tapeFile: { volume: { name: 'V77' }, position: '9' } });
});

test('what a list has withdrawn is withdrawn by hand as well, and then no list brings it back', async () => {
  await importList(['/ten/a', '/ten/b']);
  await importList(['/ten/a'], '?complete=/ten/&maxWithdrawn=100');
  expect(await withdraw('/ten/b', { why: 'embargo' })).toMatchObject({ files: 1 });
  expect((await importList(['/ten/a', '/ten/b'])).body).toMatchObject({ staysWithdrawn: 1 });
  expect((await list('/ten/')).paths).toEqual(['/ten/a']);
});

test('a request that is revived waits for no room for what was withdrawn meanwhile', async () => {
  await addQuota(app.ctx, 'gus', 1500n);
  await addFiles(app.ctx, [
    { path: '/eleven/a', size: 1000n },
    { path: '/eleven/big', size: 1400n },
  ]);
  const id = await makeRequest(app, { quota: 'gus', files: ['/eleven/a'] });
  const other = await makeRequest(app, { quota: 'gus', files: ['/eleven/late'] });
  await addFiles(app.ctx, [{ path: '/eleven/late', size: 1400n }]);
  expect((await viewRequest(app, other)).awaited).toEqual([{ path: '/eleven/late', reason: 'QUOTA_FULL' }]);
  await cancel(app, other);
  await withdraw('/eleven/late');
  const later = new Date(Date.now() + 86_400_000).toISOString();
  await update(app, { id: other, retention: later });
  expect((await viewRequest(app, other)).awaited).toEqual([{ path: '/eleven/late', reason: 'UNKNOWN' }]);
  expect((await viewRequest(app, id)).filesTotal).toBe(1);
});
