/** Withdrawn files that are purged from the catalogue, as clients see it. */
import { expect, test } from 'vitest';
import { setPathRule } from '../../src/operations/access/path-rules.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { forgetFiles } from '../../src/operations/catalogue/forgetting.js';
import { withdrawFiles } from '../../src/operations/catalogue/withdrawals.js';
import { compactRequests } from '../../src/operations/requests/compaction.js';
import { addFiles, addPaths, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { AS_AN_IMPORT, whileLocked } from '../support/locks.js';
import { cancel, made, retry, update } from '../support/mutations.js';
import { viewRequest } from '../support/request-view.js';
import { get, makeRequest } from '../support/rest.js';
import { CHANGES, type Changes, postOperation, take } from '../support/streams.js';
import { useCatalogue } from '../support/use-app.js';

const app = useCatalogue({ config: { access: { auth: new Set(['token', 'open']) } } }, async () => {
  for (const user of ['ann', 'bob']) await addQuota(app.ctx, user, 1_000_000n);
});

async function purge(path: string, more: object = {}): Promise<{ message?: string }> {
  const query = `mutation ($input: ForgetFilesInput!) { result: forgetFiles(input: $input) {
    __typename ... on ForgottenFiles { files bytes kept } ... on Failure { message } } }`;
  return (await askData<{ result: { message?: string } }>(app, query, { input: { path, ...more } })).result;
}

const add = (...paths: string[]) => addPaths(app.ctx, ...paths);
const withdraw = (path: string) => withdrawFiles(app.ctx, { path, why: 'wrong' });
const countWithdrawn = async (match: string) => {
  const query = 'query ($match: String) { tapeFiles(match: $match, withdrawn: true) { totalCount } }';
  return (await askData<{ tapeFiles: { totalCount: number } }>(app, query, { match })).tapeFiles.totalCount;
};
const pathsOf = async (id: number) => (await viewRequest(app, id)).holds.map(({ path }) => path);
const compact = () =>
  compactRequests({ ...app.ctx, config: { ...app.ctx.config, requestDays: 0 } }, new AbortController().signal);

test('a file that is in no request is removed completely, and its path is free', async () => {
  await add('/eight/a', '/eight/b');
  expect((await purge('/eight/a')).message).toBe('file "/eight/a": not withdrawn');
  await withdraw('/eight/a');
  const purged = { __typename: 'ForgottenFiles', files: 1, bytes: '1000', kept: 0 };
  expect(await purge('/eight/', { dryRun: true })).toEqual(purged);
  expect(await purge('/eight/')).toEqual(purged);
  expect((await purge('/eight/a')).message).toBe('there is no file "/eight/a"');
  expect(await askData(app, '{ tapeFile(path: "/eight/a") { path } }')).toEqual({ tapeFile: null });
  await addFiles(app.ctx, [{ path: '/eight/a', size: 5n }]);
  expect(await askData(app, '{ tapeFile(path: "/eight/a") { size withdrawnAt } }')).toEqual({
    tapeFile: { size: '5', withdrawnAt: null },
  });
});

test('a purged file that is in requests stays in them under a path of its own', async () => {
  await add('/nine/a', '/nine/b');
  const id = await makeRequest(app, { quota: 'ann', files: ['/nine/a', '/nine/b'] });
  await withdraw('/nine/a');
  expect(await purge('/nine/a')).toMatchObject({ files: 1, kept: 0 });
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
  expect(await countWithdrawn('/nine/')).toBe(0);
  const hidden = holds[0]?.path ?? '';
  const reinstate =
    'mutation ($path: String!) { result: reinstateFiles(input: { path: $path }) { __typename ... on Failure { message } } }';
  const { result } = await askData<{ result: { message?: string } }>(app, reinstate, { path: hidden });
  expect(result.message).toContain('that Tapegate keeps for itself');
  await cancel(app, id);
  expect((await get(app, `/requests/${id}`)).text).toContain(hidden);
});

test('a file in a live request is not purged until that has ended', async () => {
  await addFiles(app.ctx, [{ path: '/ten/a', stage: 'ONDISK' }, { path: '/ten/b' }]);
  const id = await makeRequest(app, { quota: 'ann', files: ['/ten/a'] });
  await withdraw('/ten/');
  expect((await purge('/ten/a')).message).toBe(`"/ten/a" cannot be forgotten yet: request ${id} has it`);
  expect(await purge('/ten/')).toMatchObject({ files: 1, kept: 1 });
  await cancel(app, id);
  expect(await purge('/ten/')).toMatchObject({ files: 1, kept: 0 });
  expect(await countWithdrawn('/ten/')).toBe(0);
});

test('a purged file stays hidden from callers who could not list it: by id, by path and in events', async () => {
  const bob = { url: app.url, token: (await createToken(app.ctx, { name: 'bob', role: 'USER' })).secret };
  await addFiles(app.ctx, [
    { path: '/secret/plan', stage: 'ONDISK' },
    { path: '/plain/x', stage: 'ONDISK' },
  ]);
  await setPathRule(app.ctx, { prefix: '/secret', action: 'LIST', kind: 'USER', name: 'carl' });
  const id = await made(app, { quota: 'ann', files: ['/secret/plan'] });
  const { rows } = await app.ctx.db.pool.query<{ id: bigint }>(`SELECT id FROM tape_file WHERE path = '/secret/plan'`);
  const file = rows[0]?.id;
  const node = Buffer.from(`TapeFile:${file}`).toString('base64');
  const byId = () => askData(bob, 'query ($id: ID!) { node(id: $id) { ... on TapeFile { path } } }', { id: node });
  expect(await byId()).toEqual({ node: null });
  const newest = await app.ctx.events.newestId();
  await add('/secret/plan', '/plain/x'); // now on tape
  await withdraw('/secret/plan');
  await cancel(app, id);
  await purge('/secret/plan');
  expect(await byId()).toEqual({ node: null });
  const hidden = `/.tapegate-forgotten/${file}/secret/plan`;
  expect(await pathsOf(id)).toEqual([hidden]);
  const byPath = await askData(bob, 'query ($path: String!) { tapeFile(path: $path) { path } }', { path: hidden });
  expect(byPath).toEqual({ tapeFile: null });
  const stream = postOperation<Changes>(bob, { query: CHANGES, variables: { after: String(newest) } });
  const [first] = await take(stream, 1);
  stream.close();
  expect(first?.stageChanges.path).toBe('/plain/x');
});

test('a request that is compacted during a purge still lists the purged file', async () => {
  await add('/race/a', '/race/b');
  const id = await makeRequest(app, { quota: 'ann', files: ['/race/a', '/race/b'] });
  await withdraw('/race/a');
  await cancel(app, id);
  const { purged } = await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const purged = forgetFiles(app.ctx, { path: '/race/a' });
    await waiters(1); // the purge has read which files are in requests
    await compact();
    return { purged };
  });
  await purged;
  expect(await pathsOf(id)).toEqual([expect.stringMatching(/^\/\.tapegate-forgotten\/\d+\/race\/a$/), '/race/b']);
});

test('a file that is withdrawn during a purge stays in its requests', async () => {
  await add('/later/a', '/later/b', '/later/c');
  const id = await makeRequest(app, { quota: 'ann', files: ['/later/b'] });
  await cancel(app, id);
  await compact();
  await withdraw('/later/a');
  const { purged } = await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const purged = forgetFiles(app.ctx, { path: '/later/' });
    await waiters(1); // the purge has read which files are in requests
    await app.ctx.db.pool.query(`UPDATE tape_file SET withdrawn_at = now() WHERE path = '/later/b'`);
    return { purged };
  });
  expect(await purged).toMatchObject({ files: 2 });
  expect(await pathsOf(id)).toEqual([expect.stringMatching(/^\/\.tapegate-forgotten\/\d+\/later\/b$/)]);
  expect(await update(app, { id, label: 'known' })).toMatchObject({ __typename: 'Request' });
});

test('after its request is revived, a purged file is failed and not on disk', async () => {
  const long = `/gone/${'long/'.repeat(400)}end`; // a path that leaves no room for the prefix of purged files
  await addFiles(app.ctx, [{ path: '/gone/a', stage: 'ONDISK' }, { path: long }]);
  const id = await makeRequest(app, { quota: 'ann', files: ['/gone/a', long] });
  expect((await viewRequest(app, id)).holds[0]).toMatchObject({ state: 'ON_DISK' });
  await cancel(app, id);
  await withdraw('/gone/');
  await purge('/gone/');
  await update(app, { id, retention: '2099-01-01T00:00:00Z' });
  const failed = { state: 'FAILED', error: 'withdrawn from the archive: wrong' };
  const longPath = expect.stringMatching(/^\/\.tapegate-forgotten\/\d+\/gone\/long\/long\//);
  expect((await viewRequest(app, id)).holds).toMatchObject([failed, { ...failed, path: longPath }]);
});
