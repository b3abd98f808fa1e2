/** Files that an operator or a complete list withdraws, and that are later restored to the catalogue or purged. */
import { expect, test } from 'vitest';
import { addPathRule } from '../../src/domain/access/path-rules.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { addFiles, addPaths, addQuota } from '../support/factories.js';
import { ask, askData, type Connection } from '../support/graphql.js';
import { send } from '../support/http.js';
import { cancel, made, retry, update } from '../support/mutations.js';
import { mutate } from '../support/payloads.js';
import { viewRequest } from '../support/request-view.js';
import { get, makeRequest, readUsed } from '../support/rest.js';
import { CHANGES, type Changes, postOperation, take } from '../support/streams.js';
import { STEP, useCatalogue } from '../support/use-app.js';

const app = useCatalogue({ config: { access: { auth: new Set(['token', 'open']) } } });

interface Affected {
  __typename: string;
  message?: string;
}

const change = (field: string, input: object) =>
  mutate<Affected>(app, field, input, 'affected { __typename fileCount bytes requestCount }');
const withdraw = (path: string, more: object = {}) => change('withdrawFiles', { path, ...more });
const reinstate = (path: string, more: object = {}) => change('reinstateFiles', { path, ...more });

async function list(match: string, more = ''): Promise<{ totalCount: number; paths: string[] }> {
  const query = `query ($match: String) { tapeFiles(match: $match ${more}) { totalCount edges { node { path } } } }`;
  const { tapeFiles } = await askData<{ tapeFiles: Connection<{ path: string }> }>(app, query, { match });
  return { totalCount: tapeFiles.totalCount ?? -1, paths: tapeFiles.edges.map(({ node }) => node.path) };
}
const countListed = async (match: string, more = '') => (await list(match, more)).totalCount;

const pathsOf = async (id: number) => (await viewRequest(app, id)).files.map(({ path }) => path);
const unresolvedOf = async (id: number) => (await viewRequest(app, id)).unresolved;
const waits = { state: 'WAITING', error: null };
const failed = (why: string) => ({ state: 'FAILED', errorClass: 'POLICY', error: `withdrawn from the archive${why}` });

test('a withdrawn file is in no list and cannot be requested, and is restored unchanged', async () => {
  await addQuota(app.ctx, 'ann', 10_000n);
  await addPaths(app.ctx, '/one/a', '/one/b');
  const before = (await get(app, '/files?match=/one/')).text;
  const reason = 'wrong calibration';
  expect(await withdraw('/one/a', { reason })).toMatchObject({ fileCount: 1, bytes: '1000', requestCount: 0 });
  expect(await list('/one/')).toEqual({ totalCount: 1, paths: ['/one/b'] });
  expect(await list('/one/', 'onlyWithdrawn: true')).toEqual({ totalCount: 1, paths: ['/one/a'] });
  expect((await get(app, '/files?match=/one/')).text).not.toContain('/one/a');
  const query = '{ tapeFile(path: "/one/a") { withdrawnAt withdrawnReason stage } }';
  const tapeFile = { withdrawnAt: expect.stringMatching(/^\d{4}-/), withdrawnReason: reason, stage: 'ONTAPE' };
  expect(await askData(app, query)).toEqual({ tapeFile });
  const listed = await makeRequest(app, { quota: 'ann', files: ['/one/a', '/one/b'] });
  const pattern = await makeRequest(app, { quota: 'ann', patterns: '/one/' });
  expect(await pathsOf(listed)).toEqual(['/one/b']);
  expect(await unresolvedOf(listed)).toEqual([{ path: '/one/a', reason: 'UNKNOWN' }]);
  expect([await pathsOf(pattern), await unresolvedOf(pattern)]).toEqual([['/one/b'], []]);
  expect(await readUsed(app, 'ann')).toBe(2000);
  expect(await reinstate('/one/a')).toMatchObject({ fileCount: 1, requestCount: 1 });
  expect((await get(app, '/files?match=/one/')).text).toBe(before);
  for (const id of [listed, pattern])
    expect([(await pathsOf(id)).sort(), await unresolvedOf(id)]).toEqual([['/one/a', '/one/b'], []]);
  expect(await readUsed(app, 'ann')).toBe(4000);
});

test('a directory is withdrawn with all its files, and nothing else', async () => {
  const paths = ['/two/x/1', '/two/x/y/2', '/two/x.nc', '/two/x0', '/two/x-1', '/two/xa/3'];
  await addPaths(app.ctx, ...paths);
  expect(await withdraw('/two/x/', { dryRun: true })).toMatchObject({ fileCount: 2, bytes: '2000', requestCount: 0 });
  expect(await countListed('/two/')).toBe(6);
  expect(await withdraw('/two/x/')).toMatchObject({ fileCount: 2 });
  expect((await list('/two/')).paths.sort()).toEqual(['/two/x-1', '/two/x.nc', '/two/x0', '/two/xa/3']);
  const directory = '{ directory(path: "/two") { edges { node { path } } } }';
  expect(JSON.stringify(await ask(app, directory))).not.toContain('/two/x"');
  expect(await reinstate('/two/x/', { dryRun: true })).toMatchObject({ fileCount: 2 });
  expect(await countListed('/two/', 'onlyWithdrawn: true')).toBe(2);
  expect(await reinstate('/two/x/')).toMatchObject({ fileCount: 2 });
  expect(await countListed('/two/')).toBe(6);
});

test('a directory with more files than a step is withdrawn and restored completely', async () => {
  await addQuota(app.ctx, 'eve', 1_000_000n);
  const paths = Array.from({ length: STEP + 2 }, (_, n) => `/many/f${100_000 + n}`);
  await addPaths(app.ctx, ...paths);
  const id = await makeRequest(app, { quota: 'eve', patterns: '/many/' });
  expect(await withdraw('/many/')).toMatchObject({ fileCount: STEP + 2, requestCount: 1 });
  expect(await countListed('/many/')).toBe(0);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'PARTIAL', filesFailed: STEP + 2 });
  const { rows } = await app.ctx.db.pool.query(`SELECT count(*)::int AS rows FROM audit WHERE object = '/many/'`);
  expect(rows).toEqual([{ rows: 2 }]); // one row per step
  expect(await reinstate('/many/')).toMatchObject({ fileCount: STEP + 2 });
  expect(await countListed('/many/')).toBe(STEP + 2);
});

test('a withdrawal that matches nothing, or was made already, is refused and changes nothing', async () => {
  await addPaths(app.ctx, '/three/a', '/three/b');
  await withdraw('/three/b');
  const refused: [Affected, string][] = [
    [
      await withdraw('/three'),
      'there is no file "/three"; it is a directory: to select the files below it, use "/three/"',
    ],
    [await withdraw('/nowhere/'), 'there is no file below "/nowhere/"'],
    [await withdraw('/three/b'), 'file "/three/b": already withdrawn'],
    [await reinstate('/three/a'), 'file "/three/a": not withdrawn'],
  ];
  for (const [{ message }, expected] of refused) expect(message).toBe(expected);
  expect((await list('/three/')).paths).toEqual(['/three/a']);
});

test('a request fails for its withdrawn files with the reason, and continues with the others', async () => {
  await addQuota(app.ctx, 'bea', 10_000n);
  await addFiles(app.ctx, [{ path: '/four/a' }, { path: '/four/b', stage: 'ONDISK' }, { path: '/four/c' }]);
  const id = await makeRequest(app, { quota: 'bea', files: ['/four/a', '/four/b', '/four/c'] });
  expect(await withdraw('/four/a', { reason: 'superseded' })).toMatchObject({ fileCount: 1, requestCount: 1 });
  await withdraw('/four/b');
  const view = await viewRequest(app, id);
  expect(view.files).toMatchObject([
    { path: '/four/a', ...failed(': superseded') },
    { path: '/four/b', state: 'ON_DISK' },
    { path: '/four/c', ...waits },
  ]);
  expect(view).toMatchObject({ state: 'QUEUED', filesFailed: 1, filesOnDisk: 1, filesTotal: 3 });
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE f.path LIKE '/four/%'`,
  );
  expect(rows).toEqual([{ path: '/four/c' }]);
  // a retry fails with the same error until the file is restored to the catalogue
  await retry(app, { requestId: id });
  expect((await viewRequest(app, id)).files[0]).toMatchObject(failed(': superseded'));
  await reinstate('/four/a');
  expect((await viewRequest(app, id)).files[0]).toMatchObject(failed(': superseded'));
  await retry(app, { requestId: id });
  expect((await viewRequest(app, id)).files[0]).toMatchObject(waits);
});

test('a file that waits for quota stops waiting when it is withdrawn, and joins when it is restored and fits', async () => {
  await addQuota(app.ctx, 'cat', 1500n);
  await addPaths(app.ctx, '/five/a');
  const pattern = await makeRequest(app, { quota: 'cat', patterns: '/five/' });
  const listed = await makeRequest(app, { quota: 'cat', files: ['/five/b'] });
  await addPaths(app.ctx, '/five/b');
  const full = [{ path: '/five/b', reason: 'QUOTA_FULL' }];
  expect([await unresolvedOf(pattern), await unresolvedOf(listed)]).toEqual([full, full]);
  expect(await withdraw('/five/b')).toMatchObject({ requestCount: 2 });
  expect(await unresolvedOf(pattern)).toEqual([]);
  expect(await unresolvedOf(listed)).toEqual([{ path: '/five/b', reason: 'UNKNOWN' }]);
  await addQuota(app.ctx, 'cat', 5000n);
  await update(app, { requestId: listed, label: 'looks again' });
  expect(await unresolvedOf(listed)).toEqual([{ path: '/five/b', reason: 'UNKNOWN' }]);
  await reinstate('/five/b');
  for (const id of [pattern, listed])
    expect([(await pathsOf(id)).at(-1), await unresolvedOf(id)]).toEqual(['/five/b', []]);
  expect(await readUsed(app, 'cat')).toBe(3000);
});

const CSV = 'path,size,stage,volume,position\n';
const rowsOf = (paths: readonly string[]) => CSV + paths.map((path, n) => `${path},1000,T,V00001,${n + 1}\n`).join('');

async function importList(paths: readonly string[], query = ''): Promise<{ status: number; body: object }> {
  const headers = { Authorization: `Bearer ${app.token}` };
  const { status, body } = await send(app, `/import${query}`, { method: 'PUT', body: rowsOf(paths), headers });
  return { status, body: body as object };
}

test('files missing in a complete list are withdrawn, and restored by a list that contains them', async () => {
  const paths = Array.from({ length: 40 }, (_, n) => `/six/f${100 + n}`);
  await addQuota(app.ctx, 'dan', 100_000n);
  await importList([...paths, '/sixty']);
  const id = await makeRequest(app, { quota: 'dan', patterns: '/six/' });
  const cut = paths.slice(0, 38);
  const dry = await importList([...cut, '/six/new'], '?complete=/six/&dryRun=true');
  expect(dry).toMatchObject({ status: 200, body: { added: 1, withdrawn: 2, known: 40 } });
  expect(await countListed('/six/')).toBe(40);
  expect(await importList([...cut, '/six/new'], '?complete=/six')).toMatchObject({ status: 200, body: dry.body });
  expect(await countListed('/six/')).toBe(39);
  expect(await countListed('/sixty')).toBe(1);
  const gone = (await viewRequest(app, id)).files.filter(({ state }) => state === 'FAILED');
  const missing = failed(': missing from a complete list of the archive');
  expect(gone).toMatchObject(['/six/f138', '/six/f139'].map((path) => ({ path, ...missing })));
  // an import does not restore a file that an operator has withdrawn
  await withdraw('/six/f100');
  const whole = await importList([...paths, '/six/new'], '?complete=/six/');
  expect(whole.body).toMatchObject({ added: 0, reinstated: 2, staysWithdrawn: 1, withdrawn: 0, known: 38 });
  expect((await list('/six/', 'onlyWithdrawn: true')).paths).toEqual(['/six/f100']);
  expect((await importList(paths)).body).not.toHaveProperty('withdrawn');
});

test('a list that misses more than maxWithdrawn percent of the files changes nothing', async () => {
  const paths = Array.from({ length: 20 }, (_, n) => `/seven/f${100 + n}`);
  await importList(paths);
  const half = [...paths.slice(0, 10), '/seven/other'];
  const error = expect.stringContaining('the list omits 10 of 20 files below "/seven/"');
  expect(await importList(half, '?complete=/seven/')).toMatchObject({ status: 409, body: { error } });
  expect((await importList([], '?complete=/seven/')).status).toBe(409);
  expect((await importList(half, '?complete=/seven/&maxWithdrawn=49')).status).toBe(409);
  expect((await list('/seven/')).paths).toEqual(paths);
  expect((await importList(half, '?complete=/seven/&maxWithdrawn=50')).body).toMatchObject({ added: 1, withdrawn: 10 });
  expect(await countListed('/seven/')).toBe(11);
});

test('bad parameters of an import are refused', async () => {
  const refused: [string, string][] = [
    [
      '?complet=/a/',
      'complet is not a parameter of an import; the parameters are complete, maxWithdrawn, dryRun, skipInvalid',
    ],
    ['?complete=/a/&complete=/b/', 'complete must be given once'],
    ['?complete=/', 'complete must be a file or a directory, not "/"'],
    ['?complete=%00', 'complete has a path that contains NUL or invalid Unicode: "\\u0000"'],
    ['?maxWithdrawn=5', 'maxWithdrawn requires "complete"'],
    ['?complete=/a&maxWithdrawn=-1', 'maxWithdrawn must be a percentage from 0 to 100, not "-1"'],
    ['?dryRun=yes', 'dryRun must be true or false, not "yes"'],
  ];
  for (const [query, error] of refused) {
    expect(await importList(['/eight/a'], query)).toMatchObject({ status: 400, body: { error } });
  }
  expect(await countListed('/eight/')).toBe(0);
});

test('an import updates a withdrawn file, and it stays withdrawn', async () => {
  await addQuota(app.ctx, 'fay', 10_000n);
  await addFiles(app.ctx, [{ path: '/nine/tape' }, { path: '/nine/disk', stage: 'ONDISK' }]);
  const id = await makeRequest(app, { quota: 'fay', files: ['/nine/disk'] });
  await withdraw('/nine/');
  await addFiles(app.ctx, [{ path: '/nine/tape', volume: 'V77', position: 9n }, { path: '/nine/disk' }]);
  expect((await viewRequest(app, id)).files[0]).toMatchObject({ stage: 'ONTAPE', ...failed('') });
  expect(await viewRequest(app, id)).toMatchObject({ state: 'PARTIAL', filesFailed: 1, filesOnDisk: 0 });
  expect(await countListed('/nine/')).toBe(0);
  await reinstate('/nine/');
  const query = '{ tapeFile(path: "/nine/tape") { volume { name } position } }';
  expect(await askData(app, query)).toEqual({ tapeFile: { volume: { name: 'V77' }, position: '9' } });
});

test('a file that a list has withdrawn can be withdrawn by an operator too, and then no list restores it', async () => {
  await importList(['/ten/a', '/ten/b']);
  await importList(['/ten/a'], '?complete=/ten/&maxWithdrawn=100');
  expect(await withdraw('/ten/b', { reason: 'embargo' })).toMatchObject({ fileCount: 1 });
  expect((await importList(['/ten/a', '/ten/b'])).body).toMatchObject({ staysWithdrawn: 1 });
  expect((await list('/ten/')).paths).toEqual(['/ten/a']);
});

test('a revived request does not wait for quota for a file that was withdrawn meanwhile', async () => {
  await addQuota(app.ctx, 'gus', 1500n);
  await addPaths(app.ctx, '/eleven/a');
  await makeRequest(app, { quota: 'gus', files: ['/eleven/a'] });
  const id = await makeRequest(app, { quota: 'gus', files: ['/eleven/late'] });
  await addPaths(app.ctx, '/eleven/late');
  expect(await unresolvedOf(id)).toEqual([{ path: '/eleven/late', reason: 'QUOTA_FULL' }]);
  await cancel(app, id);
  await withdraw('/eleven/late');
  await update(app, { requestId: id, retention: '2099-01-01T00:00:00Z' });
  expect(await unresolvedOf(id)).toEqual([{ path: '/eleven/late', reason: 'UNKNOWN' }]);
});

const purge = (path: string, more: object = {}) =>
  mutate<Affected>(app, 'purgeFiles', { path, ...more }, 'purged { __typename fileCount bytes filesKept }');

const wrong = { reason: 'wrong' };

test('a purged file is in no list, and its path is free', async () => {
  await addPaths(app.ctx, '/purged-eight/a', '/purged-eight/b');
  expect((await purge('/purged-eight/a')).message).toBe('file "/purged-eight/a": not withdrawn');
  await withdraw('/purged-eight/a', wrong);
  const purged = { __typename: 'PurgedFiles', fileCount: 1, bytes: '1000', filesKept: 0 };
  expect(await purge('/purged-eight/', { dryRun: true })).toEqual(purged);
  expect(await purge('/purged-eight/')).toEqual(purged);
  expect((await purge('/purged-eight/a')).message).toBe('there is no file "/purged-eight/a"');
  expect(await askData(app, '{ tapeFile(path: "/purged-eight/a") { path } }')).toEqual({ tapeFile: null });
  await addFiles(app.ctx, [{ path: '/purged-eight/a', size: 5n }]);
  expect(await askData(app, '{ tapeFile(path: "/purged-eight/a") { size withdrawnAt } }')).toEqual({
    tapeFile: { size: '5', withdrawnAt: null },
  });
});

test('a purged file that is in requests stays in them under a path of its own', async () => {
  await addPaths(app.ctx, '/purged-nine/a', '/purged-nine/b');
  const id = await makeRequest(app, { quota: 'ann', files: ['/purged-nine/a', '/purged-nine/b'] });
  await withdraw('/purged-nine/a', wrong);
  expect(await purge('/purged-nine/a')).toMatchObject({ fileCount: 1, filesKept: 0 });
  await addFiles(app.ctx, [{ path: '/purged-nine/a', size: 3n }]);
  const { files, filesFailed } = await viewRequest(app, id);
  expect(filesFailed).toBe(1);
  expect(files.map(({ path, state }) => [path, state])).toEqual([
    [expect.stringMatching(/^\/\.tapegate-purged\/\d+\/purged-nine\/a$/), 'FAILED'],
    ['/purged-nine/b', 'WAITING'],
  ]);
  await retry(app, { requestId: id });
  expect((await viewRequest(app, id)).files[0]).toMatchObject({
    state: 'FAILED',
    error: 'withdrawn from the archive: wrong',
  });
  expect(await countListed('/purged-nine/', 'onlyWithdrawn: true')).toBe(0);
  const hidden = files[0]?.path ?? '';
  expect((await reinstate(hidden)).message).toContain('contains a reserved name');
  await cancel(app, id);
  expect((await get(app, `/requests/${id}`)).text).toContain(hidden);
});

test('a file in a live request is not purged until that has ended', async () => {
  await addFiles(app.ctx, [{ path: '/purged-ten/a', stage: 'ONDISK' }, { path: '/purged-ten/b' }]);
  const id = await makeRequest(app, { quota: 'ann', files: ['/purged-ten/a'] });
  await withdraw('/purged-ten/', wrong);
  expect((await purge('/purged-ten/a')).message).toBe(
    `"/purged-ten/a" cannot be purged yet: request ${id} contains it`,
  );
  expect(await purge('/purged-ten/')).toMatchObject({ fileCount: 1, filesKept: 1 });
  await cancel(app, id);
  expect(await purge('/purged-ten/')).toMatchObject({ fileCount: 1, filesKept: 0 });
  expect(await countListed('/purged-ten/', 'onlyWithdrawn: true')).toBe(0);
});

test('a purged file stays hidden from callers who could not list it: by id, by path and in events', async () => {
  const bob = { url: app.url, token: (await createToken(app.ctx, { name: 'bob', role: 'USER' })).secret };
  await addFiles(app.ctx, [
    { path: '/secret/plan', stage: 'ONDISK' },
    { path: '/plain/x', stage: 'ONDISK' },
  ]);
  await addPathRule(app.ctx, { prefix: '/secret', action: 'LIST', kind: 'USER', name: 'carl' });
  const id = await made(app, { quota: 'ann', files: ['/secret/plan'] });
  const { rows } = await app.ctx.db.pool.query<{ id: bigint }>(`SELECT id FROM tape_file WHERE path = '/secret/plan'`);
  const file = rows[0]?.id;
  const node = Buffer.from(`TapeFile:${file}`).toString('base64');
  const byId = () => askData(bob, 'query ($id: ID!) { node(id: $id) { ... on TapeFile { path } } }', { id: node });
  expect(await byId()).toEqual({ node: null });
  const newest = await app.ctx.events.newestId();
  await addPaths(app.ctx, '/secret/plan', '/plain/x'); // both files are on tape
  await withdraw('/secret/plan', wrong);
  await cancel(app, id);
  await purge('/secret/plan');
  expect(await byId()).toEqual({ node: null });
  const hidden = `/.tapegate-purged/${file}/secret/plan`;
  expect(await pathsOf(id)).toEqual([hidden]);
  const byPath = await askData(bob, 'query ($path: String!) { tapeFile(path: $path) { path } }', { path: hidden });
  expect(byPath).toEqual({ tapeFile: null });
  const stream = postOperation<Changes>(bob, { query: CHANGES, variables: { after: String(newest) } });
  const [first] = await take(stream, 1);
  stream.close();
  expect(first?.stageChanges.path).toBe('/plain/x');
});

test('after its request is revived, a purged file is failed and not on disk', async () => {
  const long = `/gone/${'long/'.repeat(400)}end`; // this path leaves no room for the prefix of purged files
  await addFiles(app.ctx, [{ path: '/gone/a', stage: 'ONDISK' }, { path: long }]);
  const id = await makeRequest(app, { quota: 'ann', files: ['/gone/a', long] });
  expect((await viewRequest(app, id)).files[0]).toMatchObject({ state: 'ON_DISK' });
  await cancel(app, id);
  await withdraw('/gone/', wrong);
  await purge('/gone/');
  await update(app, { requestId: id, retention: '2099-01-01T00:00:00Z' });
  const longPath = expect.stringMatching(/^\/\.tapegate-purged\/\d+\/gone\/long\/long\//);
  expect((await viewRequest(app, id)).files).toMatchObject([
    failed(': wrong'),
    { ...failed(': wrong'), path: longPath },
  ]);
});
