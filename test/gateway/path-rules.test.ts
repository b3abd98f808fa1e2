/** Path rules: a caller cannot list, request or fetch files that the rules hide from the caller. */
import { beforeEach, expect, test } from 'vitest';
import { setQuotaMember } from '../../src/domain/access/members.js';
import { addPathRule, removePathRule } from '../../src/domain/access/path-rules.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { updateRequest } from '../../src/domain/requests/update.js';
import type { PathAction, RuleKind } from '../../src/generated/prisma/enums.js';
import { addFiles, addPaths, addQuota } from '../support/factories.js';
import { ask, askData } from '../support/graphql.js';
import { create, made, release, update } from '../support/mutations.js';
import { mutate } from '../support/payloads.js';
import { viewRequest } from '../support/request-view.js';
import { call } from '../support/rest.js';
import { keepTables } from '../support/tables.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

let putBack: () => Promise<void>;
const tokens: Record<string, string> = {};
const app = useApp({ config: { access: { auth: new Set(['token', 'open']) } } }, async () => {
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 10n ** 9n);
  await addFiles(
    app.ctx,
    ['/open/1', '/closed/1', '/closed/open/1', '/closedly/1'].map((path) => ({ path, stage: 'RESTORED' as const })),
  );
  await app.ctx.db.pool.query(
    `INSERT INTO restore_disk (mountpoint, size) VALUES ('/mnt/r', 10); UPDATE tape_file SET disk_id = 1`,
  );
  for (const name of ['alice', 'bob']) tokens[name] = (await createToken(app.ctx, { name, role: 'USER' })).secret;
  tokens.viewer = (await createToken(app.ctx, { name: 'viewer', role: 'VIEWER' })).secret;
  putBack = await keepTables(app.ctx);
});
beforeEach(() => putBack());

const gatewayOf = (caller: string) => ({ url: app.url, token: tokens[caller] });

async function close(action: PathAction): Promise<void> {
  const rule = (prefix: string, kind: RuleKind, name?: string) => addPathRule(app.ctx, { prefix, action, kind, name });
  await rule('/closed', 'USER', 'bob');
  await rule('/closed/open/', 'EVERYBODY');
}

const OPEN = ['/closed/open/1', '/closedly/1', '/open/1'];
const ALL = ['/closed/1', ...OPEN];
const HIDDEN = ['/closedly/1', '/open/1'];

async function listed(caller: string): Promise<string[]> {
  const { tapeFiles } = await askData<{ tapeFiles: { totalCount: number; edges: { node: { path: string } }[] } }>(
    gatewayOf(caller),
    '{ tapeFiles { totalCount edges { node { path } } } }',
  );
  expect(tapeFiles.totalCount).toBe(tapeFiles.edges.length);
  return tapeFiles.edges.map(({ node }) => node.path);
}

async function listedByRest(caller: string): Promise<string[]> {
  const headers: Record<string, string> = tokens[caller] ? { Authorization: `Bearer ${tokens[caller]}` } : {};
  const { body } = await call(app, 'GET', '/files', { headers });
  const [{ count, files }] = body as [{ count: number; files: { path: string }[] }];
  expect(Number(count)).toBe(files.length);
  return files.map(({ path }) => path);
}

test('a rule holds from when it is set until it is removed, also for callers who have just asked', async () => {
  const rule = { prefix: '/closed', action: 'LIST', kind: 'USER', name: 'alice' } as const;
  for (const caller of ['alice', 'bob', 'viewer', 'nobody'])
    expect([await listed(caller), await listedByRest(caller)]).toEqual([ALL, ALL]);
  await addPathRule(app.ctx, rule);
  expect([await listed('bob'), await listedByRest('bob')]).toEqual([HIDDEN, HIDDEN]);
  expect([await listed('alice'), await listedByRest('alice')]).toEqual([ALL, ALL]);
  await removePathRule(app.ctx, rule);
  expect([await listed('bob'), await listedByRest('bob')]).toEqual([ALL, ALL]);
});

test('the rules of the longest matching directory decide what is listed, counted and found', async () => {
  const closed = await app.ctx.db.pool.query<{ id: bigint }>(`SELECT id FROM tape_file WHERE path = '/closed/1'`);
  const node = Buffer.from(`TapeFile:${closed.rows[0]?.id}`).toString('base64');
  await close('LIST');
  const seen = { alice: OPEN, nobody: OPEN, bob: ALL, viewer: ALL };
  for (const [caller, paths] of Object.entries(seen)) {
    expect([caller, await listed(caller), await listedByRest(caller)]).toEqual([caller, paths, paths]);
    const query = `{ tapeFile(path: "/closed/1") { path } node(id: "${node}") { id } }`;
    const found = paths === ALL ? expect.any(Object) : null;
    expect([caller, await askData(gatewayOf(caller), query)]).toEqual([caller, { tapeFile: found, node: found }]);
  }
  await removePathRule(app.ctx, { prefix: '/closed', action: 'LIST', kind: 'USER', name: 'bob' });
  expect(await listed('alice')).toEqual(ALL);
});

test('the query nodes returns null for hidden files and invalid ids, and the other objects in their places', async () => {
  const { rows } = await app.ctx.db.pool.query<{ id: bigint; path: string }>('SELECT id, path FROM tape_file');
  const idOf = (file: string) => `TapeFile:${rows.find(({ path }) => path === file)?.id}`;
  const ids = [idOf('/closed/1'), 'TapeFile:x', idOf('/open/1'), 'TapeFile:99', idOf('/closed/open/1')];
  const input = { ids: ids.map((id) => Buffer.from(id).toString('base64')) };
  const query = 'query ($ids: [ID!]!) { nodes(ids: $ids) { ... on TapeFile { path } } }';
  await close('LIST');
  const others = [null, { path: '/open/1' }, null, { path: '/closed/open/1' }];
  expect(await askData(gatewayOf('alice'), query, input)).toEqual({ nodes: [null, ...others] });
  expect(await askData(gatewayOf('bob'), query, input)).toEqual({ nodes: [{ path: '/closed/1' }, ...others] });
});

const requestAs = (caller: string, fields: object) => create(gatewayOf(caller), { quota: caller, ...fields });

test('files that its maker may not request are unknown to a request, also if they appear later', async () => {
  await close('REQUEST');
  const listing = await requestAs('alice', { files: ALL });
  expect(listing.filesTotal).toBe(3);
  expect((await viewRequest(gatewayOf('alice'), listing.requestId)).unresolved).toMatchObject([{ path: '/closed/1' }]);
  expect((await requestAs('bob', { files: ALL })).filesTotal).toBe(4);
  const { requestId: id } = await requestAs('alice', { pattern: '/' });
  const operated = await createRequest(app.ctx, { quota: 'alice', pattern: '/' });
  const estimate =
    '{ e: estimateRequest(input: { quota: "alice", files: ["/closed/1", "/open/1"] }) { estimate { fileCount filesUnknown unknownPaths } } }';
  expect(await askData(gatewayOf('alice'), estimate)).toEqual({
    e: { estimate: { fileCount: 1, filesUnknown: 1, unknownPaths: ['/closed/1'] } },
  });
  await addPaths(app.ctx, '/closed/2', '/closed/open/2');
  expect((await viewRequest(app, id)).filesTotal).toBe(4);
  expect((await viewRequest(app, operated)).filesTotal).toBe(6);
});

test('a file that may not be listed can be neither requested nor released', async () => {
  await close('LIST');
  const { requestId: id, filesTotal } = await requestAs('alice', { files: ALL });
  expect([filesTotal, (await requestAs('alice', { pattern: '/' })).filesTotal]).toEqual([3, 3]);
  const estimate = '{ e: estimateRequest(input: { quota: "alice", pattern: "/closed/" }) { estimate { fileCount } } }';
  expect(await askData(gatewayOf('alice'), estimate)).toEqual({ e: { estimate: { fileCount: 1 } } });
  const released = await release(gatewayOf('alice'), { requestId: id, match: '/closed/1' });
  expect(released).toMatchObject({ filesReleased: 0, filesTotal: 3 });
});

test('changes of a request do not reveal which quotas exist', async () => {
  const { requestId: id } = await requestAs('alice', { files: ['/not/yet'] });
  for (const change of ['updateRequest', 'retryRequest']) {
    const outcomes = ['bob', 'nobody'].map(async (quota) => {
      const input = { requestId: id, expectedQuota: quota };
      const answer = await mutate(gatewayOf('alice'), change, input, 'request { state }', 'code message');
      return JSON.stringify(answer).replace(quota, 'nobody');
    });
    const [known, unknown] = await Promise.all(outcomes);
    expect([change, known]).toEqual([change, unknown]);
  }
});

test('a caller who extends the request of another gives it what the caller may request', async () => {
  await close('REQUEST');
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/closed' });
  const later = { requestId: id, retention: '2098-01-01T00:00:00Z' };
  expect(await update(gatewayOf('alice'), later)).toMatchObject({ filesTotal: 3 });
  await addPaths(app.ctx, '/closed/2', '/closedly/2');
  expect((await viewRequest(gatewayOf('alice'), id)).filesTotal).toBe(4);
});

test('an extended request contains what its maker may request', async () => {
  const named = (name: string, way: 'token' | 'proxy', groups: string[]) => {
    const acts = new Set(['alice']);
    const caller = { ...app.ctx.caller, name, way, groups, roles: new Set(['user'] as const), reads: acts, acts };
    return { ...app.ctx, caller };
  };
  await addPathRule(app.ctx, { prefix: '/closed', action: 'REQUEST', kind: 'GROUP', name: 'sci' });
  const id = await createRequest(named('alice', 'proxy', ['sci']), { quota: 'alice', pattern: '/closed/' });
  const held = async () => Number((await app.ctx.db.prisma.request.findUniqueOrThrow({ where: { id } })).filesTotal);
  expect(await held()).toBe(2);
  await updateRequest(named('alice', 'token', []), { id, retention: '2097-01-01' });
  await addPaths(app.ctx, '/closed/by-token');
  expect(await held()).toBe(3);
  await updateRequest(named('bob', 'proxy', ['other']), { id, retention: '2098-01-01' });
  await addPaths(app.ctx, '/closed/by-manager');
  expect(await held()).toBe(4);
  await updateRequest(named('alice', 'proxy', ['left']), { id, retention: '2099-01-01' });
  await addPaths(app.ctx, '/closed/by-proxy');
  expect(await held()).toBe(4);
});

test('a service with the name of a user is another caller', async () => {
  await setQuotaMember(app.ctx, { quota: 'bob', kind: 'USER', name: 'alice', isManager: false });
  const service = (await createToken(app.ctx, { name: 'alice', role: 'SERVICE', quotas: ['bob'] })).secret;
  const quota = '{ quota(user: "bob") { user } }';
  await waitFor('alice to be a member', async () => {
    return (await askData<{ quota: object | null }>(gatewayOf('alice'), quota)).quota !== null;
  });
  const input = { quota: 'bob', pattern: '/open/' };
  const own = await made(gatewayOf('alice'), input);
  const others = await made({ url: app.url, token: service }, input);
  for (const [id, __typename] of [
    [own, 'Request'],
    [others, 'Forbidden'],
  ]) {
    const cancelled = await mutate(gatewayOf('alice'), 'cancelRequest', { requestId: id }, 'request { __typename }');
    expect(cancelled).toMatchObject({ __typename });
  }
});

test('the path of a copy is shown to callers who may fetch it', async () => {
  await close('FETCH');
  const { requestId: id } = await requestAs('bob', { files: ['/closed/1'] });
  await setQuotaMember(app.ctx, { quota: 'bob', kind: 'USER', name: 'alice', isManager: false });
  const query = `{ tapeFile(path: "/closed/1") { restoredPath downloadPath disk { mountpoint } } request(requestId: ${id}) { restoredBelow } }`;
  const nothing = { tapeFile: { restoredPath: null, downloadPath: null, disk: null }, request: { restoredBelow: [] } };
  const place = {
    tapeFile: { restoredPath: '/mnt/r/closed/1', downloadPath: '/webdav/closed/1', disk: { mountpoint: '/mnt/r' } },
    request: { restoredBelow: ['/mnt/r'] },
  };
  const told = await Promise.all(['alice', 'bob', 'viewer'].map((caller) => askData(gatewayOf(caller), query)));
  expect(told).toEqual([nothing, place, place]);
});

const FORBIDDEN = { data: { r: { member: null, errors: [{ code: 'FORBIDDEN' }] } } };

test('a removed member no longer sees the quota', async () => {
  const id = await createRequest(app.ctx, { quota: 'bob', pattern: '/open/' });
  const headers = { Authorization: `Bearer ${tokens.alice}` };
  const status = async () => (await call(app, 'GET', `/requests/${id}`, { headers })).status;
  await waitFor('an earlier membership to expire', async () => (await status()) === 404);
  await setQuotaMember(app.ctx, { quota: 'bob', kind: 'USER', name: 'alice', isManager: false });
  await waitFor('alice to be a member', async () => (await status()) === 200);
  const remove =
    'mutation { r: removeQuotaMember(input: { quota: "bob", kind: USER, name: "alice" }) { member { name } errors { code } } }';
  const removeOther = remove.replace('"alice"', '"carol"');
  expect(await ask(gatewayOf('alice'), removeOther)).toEqual(FORBIDDEN);
  expect(await ask(gatewayOf('bob'), remove)).toEqual({ data: { r: { member: { name: 'alice' }, errors: [] } } });
  await waitFor('alice to be removed', async () => (await status()) === 404);
});

test('an anonymous caller cannot add members or read rules', async () => {
  const set =
    'mutation { r: setQuotaMember(input: { quota: "alice", kind: USER, name: "mallory", isManager: true }) { member { name } errors { code } } }';
  expect(await ask({ url: app.url }, set)).toEqual(FORBIDDEN);
  const { errors } = await ask({ url: app.url }, '{ pathRules { edges { node { name } } } }');
  expect(errors).toMatchObject([{ extensions: { code: 'FORBIDDEN' } }]);
});

test('an anonymous caller sees the listable files of all requests', async () => {
  await close('LIST');
  const id = await createRequest(app.ctx, { quota: 'bob', files: [...ALL, '/closed/unknown'] });
  for (const [caller, paths] of Object.entries({ nobody: OPEN, bob: ALL, viewer: ALL })) {
    const { files: seen, unresolved } = await viewRequest(gatewayOf(caller), id);
    expect([caller, seen.map(({ path }) => path).sort()]).toEqual([caller, paths]);
    expect([caller, unresolved.length]).toEqual([caller, paths === ALL ? 1 : 0]);
    const headers: Record<string, string> = tokens[caller] ? { Authorization: `Bearer ${tokens[caller]}` } : {};
    const [{ files }] = (await call(app, 'GET', `/requests/${id}`, { headers })).body as [{ files: string[] }];
    expect([caller, files.filter((path) => path !== '/closed/unknown').sort()]).toEqual([caller, paths]);
  }
});

test('an email contains the path of a copy only if the request may fetch it', async () => {
  await close('FETCH');
  await requestAs('alice', { files: ['/closed/1', '/open/1'], notifyOnLastFile: 'a@example.org' });
  const { rows } = await app.ctx.db.pool.query<{ body: string }>('SELECT body FROM notification');
  expect(rows[0]?.body).toContain('/mnt/r/open/1');
  expect(rows[0]?.body).not.toContain('/mnt/r/closed/1');
});

test('a rule reports how many files match', async () => {
  const [nfc, nfd] = ['/r\u00e9sum\u00e9', '/re\u0301sume\u0301'];
  await addPaths(app.ctx, `${nfd}/1`, `${nfd}/2`, `${nfd}s/1`, '/one');
  const rule = { action: 'FETCH', kind: 'EVERYBODY' };
  const set = (prefix: string) => mutate(app, 'addPathRule', { ...rule, prefix }, 'pathRule { prefix filesBelow }');
  expect(await set(nfc)).toEqual({ prefix: nfc, filesBelow: 0 });
  expect(await set(nfd)).toEqual({ prefix: nfd, filesBelow: 2 });
  expect(await set('/one')).toEqual({ prefix: '/one', filesBelow: 1 });
  expect(await set('/')).toEqual({ prefix: '/', filesBelow: 8 });
  await app.ctx.db.pool.query(
    `INSERT INTO tape_file (path, size) SELECT '/many/' || n, 1 FROM generate_series(1, 10001) n`,
  );
  expect(await set('/many')).toEqual({ prefix: '/many', filesBelow: 10_000 });
  const query = '{ pathRules { edges { node { prefix filesBelow } } } }';
  type Rules = { pathRules: { edges: { node: { prefix: string; filesBelow: number } }[] } };
  const counts = (await askData<Rules>(app, query)).pathRules.edges.map(({ node }) => [node.prefix, node.filesBelow]);
  expect(Object.fromEntries(counts)).toMatchObject({ '/': 10_000, [nfc]: 0, [nfd]: 2 });
});
