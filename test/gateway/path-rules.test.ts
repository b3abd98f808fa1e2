/** Rules by folders: what they keep from a caller is, for that caller, not there. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { PathAction, RuleKind } from '../../src/generated/prisma/enums.js';
import { setMember } from '../../src/operations/access/members.js';
import { removePathRule, setPathRule } from '../../src/operations/access/path-rules.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { removeQuota } from '../../src/operations/quotas/remove.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { updateRequest } from '../../src/operations/requests/update.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { ask, askData } from '../support/graphql.js';
import { call } from '../support/rest.js';
import { postOperation, waitForReaders } from '../support/streams.js';
import { keepTables } from '../support/tables.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let putBack: () => Promise<void>;
const tokens: Record<string, string> = {};

beforeAll(async () => {
  app = await startApp({ config: { access: { auth: new Set(['token', 'open']) } } });
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
afterAll(() => app.close());

const gatewayOf = (caller: string) => ({ url: app.url, token: tokens[caller] });

async function close(action: PathAction): Promise<void> {
  const rule = (prefix: string, kind: RuleKind, name?: string) => setPathRule(app.ctx, { prefix, action, kind, name });
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

test('without rules everybody sees everything', async () => {
  for (const caller of ['alice', 'bob', 'viewer', 'nobody']) {
    expect(await listed(caller)).toEqual(ALL);
    expect(await listedByRest(caller)).toEqual(ALL);
  }
});

test('a rule holds from the moment in which it is set, also for what was asked a moment before, and until it is removed', async () => {
  const rule = { prefix: '/closed', action: 'LIST', kind: 'USER', name: 'alice' } as const;
  for (let round = 0; round < 3; round++) {
    expect([await listed('bob'), await listedByRest('bob')]).toEqual([ALL, ALL]);
    await setPathRule(app.ctx, rule);
    expect([await listed('bob'), await listedByRest('bob')]).toEqual([HIDDEN, HIDDEN]);
    expect([await listed('alice'), await listedByRest('alice')]).toEqual([ALL, ALL]);
    await removePathRule(app.ctx, rule);
  }
});

test('the longest folder with rules decides what is listed, counted and found; a folder is no beginning of a name', async () => {
  const closed = await app.ctx.db.pool.query<{ id: bigint }>(`SELECT id FROM tape_file WHERE path = '/closed/1'`);
  const node = Buffer.from(`TapeFile:${closed.rows[0]?.id}`).toString('base64');
  await close('LIST');
  const seen = { alice: OPEN, nobody: OPEN, bob: ALL, viewer: ALL };
  for (const [caller, paths] of Object.entries(seen)) {
    expect([caller, await listed(caller), await listedByRest(caller)]).toEqual([caller, paths, paths]);
    const query = `{ tapeFile(path: "/closed/1") { path } node(id: "${node}") { id } }`;
    const { tapeFile, node: found } = await askData<{ tapeFile: object | null; node: object | null }>(
      gatewayOf(caller),
      query,
    );
    const isSeen = paths === ALL;
    expect([caller, tapeFile !== null, found !== null]).toEqual([caller, isSeen, isSeen]);
  }
  await removePathRule(app.ctx, { prefix: '/closed', action: 'LIST', kind: 'USER', name: 'bob' });
  expect(await listed('alice')).toEqual(ALL);
});

async function requested(caller: string, wish: object): Promise<{ files: number; awaited: string[]; id: number }> {
  const { result } = await askData<{
    result: { requestId: number; filesTotal: number; awaited: { edges: { node: { path: string } }[] } };
  }>(
    gatewayOf(caller),
    `mutation ($input: CreateRequestInput!) { result: createRequest(input: $input) {
       ... on Request { requestId filesTotal awaited { edges { node { path } } } } ... on Failure { message } } }`,
    { input: { quota: caller, ...wish } },
  );
  return { files: result.filesTotal, awaited: result.awaited.edges.map(({ node }) => node.path), id: result.requestId };
}

test('a request takes what its maker may request; the rest is as what the catalogue does not know, also when it comes later', async () => {
  await close('REQUEST');
  expect(await requested('alice', { files: ALL })).toMatchObject({ files: 3, awaited: ['/closed/1'] });
  expect(await requested('bob', { files: ALL })).toMatchObject({ files: 4, awaited: [] });
  const { id } = await requested('alice', { pattern: '/' });
  const operated = await createRequest(app.ctx, { quota: 'alice', pattern: '/' });
  const estimate =
    '{ e: estimateRequest(input: { quota: "alice", files: ["/closed/1", "/open/1"] }) { ... on Estimate { files filesUnknown unknownPaths } } }';
  expect(await askData(gatewayOf('alice'), estimate)).toEqual({
    e: { files: 1, filesUnknown: 1, unknownPaths: ['/closed/1'] },
  });
  await addFiles(app.ctx, [{ path: '/closed/2' }, { path: '/closed/open/2' }]);
  const { rows } = await app.ctx.db.pool.query(
    `SELECT request_id AS id, count(*)::int AS files FROM hold WHERE request_id = ANY($1) GROUP BY 1 ORDER BY 1`,
    [[id, operated]],
  );
  expect(rows).toEqual([
    { id, files: 4 },
    { id: operated, files: 6 },
  ]);
});

test('what may not be listed may be neither requested nor fetched, and releasing its path tells nothing of it', async () => {
  await close('LIST');
  const { id, files } = await requested('alice', { files: ALL });
  expect(files).toBe(3);
  expect((await requested('alice', { pattern: '/' })).files).toBe(3);
  const estimate =
    '{ e: estimateRequest(input: { quota: "alice", pattern: "/closed/" }) { ... on Estimate { files } } }';
  expect(await askData(gatewayOf('alice'), estimate)).toEqual({ e: { files: 1 } });
  const release = `mutation { r: releaseFiles(input: { id: ${id}, match: "/closed/1" }) { ... on Request { filesReleased holds { edges { node { file { path } } } } } } }`;
  const { r } = await askData<{ r: { filesReleased: number; holds: { edges: object[] } } }>(
    gatewayOf('alice'),
    release,
  );
  expect([r.filesReleased, r.holds.edges.length]).toEqual([0, 3]);
});

test('whose quotas there are, no change of a request tells', async () => {
  const { id } = await requested('alice', { files: ['/not/yet'] });
  for (const change of ['updateRequest', 'retryRequest']) {
    const outcomes = ['bob', 'nobody'].map(async (quota) => {
      const query = `mutation { r: ${change}(input: { id: ${id}, quota: "${quota}" }) { ... on Failure { code message } } }`;
      return JSON.stringify(await askData(gatewayOf('alice'), query)).replace(quota, 'nobody');
    });
    const [known, unknown] = await Promise.all(outcomes);
    expect([change, known]).toEqual([change, unknown]);
  }
});

test('whoever lets a request live longer lets it take what it may request itself', async () => {
  await close('REQUEST');
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/closed' });
  const update =
    'mutation ($input: UpdateRequestInput!) { r: updateRequest(input: $input) { ... on Request { filesTotal } ... on Failure { message } } }';
  const later = { id, retention: '2098-01-01T00:00:00Z' };
  expect(await askData(gatewayOf('alice'), update, { input: later })).toEqual({ r: { filesTotal: 3 } });
  await addFiles(app.ctx, [{ path: '/closed/2' }, { path: '/closedly/2' }]);
  const filesOf = async () =>
    (await askData<{ request: { filesTotal: number } }>(gatewayOf('alice'), `{ request(id: ${id}) { filesTotal } }`))
      .request.filesTotal;
  expect(await filesOf()).toBe(4);
});

test('a request that merely lives longer takes what its maker may request, whoever lets it', async () => {
  const named = (name: string, way: 'token' | 'proxy', groups: string[]) => {
    const acts = new Set(['alice']);
    const caller = { ...app.ctx.caller, name, way, groups, roles: new Set(['user'] as const), reads: acts, acts };
    return { ...app.ctx, caller };
  };
  await setPathRule(app.ctx, { prefix: '/closed', action: 'REQUEST', kind: 'GROUP', name: 'sci' });
  const id = await createRequest(named('alice', 'proxy', ['sci']), { quota: 'alice', pattern: '/closed/' });
  const held = async () => Number((await app.ctx.db.prisma.request.findUniqueOrThrow({ where: { id } })).filesTotal);
  expect(await held()).toBe(2);
  await updateRequest(named('alice', 'token', []), { id, retention: '2097-01-01' });
  await addFiles(app.ctx, [{ path: '/closed/by-token' }]);
  expect(await held()).toBe(3);
  await updateRequest(named('bob', 'proxy', ['other']), { id, retention: '2098-01-01' });
  await addFiles(app.ctx, [{ path: '/closed/by-manager' }]);
  expect(await held()).toBe(4);
  await updateRequest(named('alice', 'proxy', ['left']), { id, retention: '2099-01-01' });
  await addFiles(app.ctx, [{ path: '/closed/by-proxy' }]);
  expect(await held()).toBe(4);
});

test('a service of the name of a user is somebody else, and so is what it has asked for', async () => {
  await setMember(app.ctx, { quota: 'bob', kind: 'USER', name: 'alice', isManager: false });
  const service = (await createToken(app.ctx, { name: 'alice', role: 'SERVICE', quotas: ['bob'] })).secret;
  const make =
    'mutation { r: createRequest(input: { quota: "bob", pattern: "/open/" }) { ... on Request { requestId } ... on Failure { message } } }';
  const makeAs = async (token: string | undefined) =>
    (await askData<{ r: { requestId: number } }>({ url: app.url, token }, make)).r.requestId;
  await waitFor(
    'alice to be a member',
    async () =>
      (await askData<{ quota: object | null }>(gatewayOf('alice'), '{ quota(user: "bob") { user } }')).quota !== null,
  );
  const [own, others] = [await makeAs(tokens.alice), await makeAs(service)];
  const cancelled = [own, others].map((id) =>
    ask(gatewayOf('alice'), `mutation { r: cancelRequest(id: ${id}) { __typename } }`),
  );
  expect(await Promise.all(cancelled)).toEqual([
    { data: { r: { __typename: 'Request' } } },
    { data: { r: { __typename: 'Forbidden' } } },
  ]);
});

test('a quota that is made anew has no members of before', async () => {
  await addQuota(app.ctx, 'erin', 10n);
  await setMember(app.ctx, { quota: 'erin', kind: 'USER', name: 'bob', isManager: true });
  await removeQuota(app.ctx, 'erin');
  await addQuota(app.ctx, 'erin', 10n);
  expect(await askData({ url: app.url, token: tokens.viewer }, '{ quota(user: "erin") { members { name } } }')).toEqual(
    { quota: { members: [] } },
  );
});

test('where a copy is, is told to those who may fetch it', async () => {
  await close('FETCH');
  const { id } = await requested('bob', { files: ['/closed/1'] });
  await setMember(app.ctx, { quota: 'bob', kind: 'USER', name: 'alice', isManager: false });
  const query = `{ tapeFile(path: "/closed/1") { restoredPath bytesPath disk { mountpoint } } request(id: ${id}) { restoredBelow } }`;
  const nothing = { tapeFile: { restoredPath: null, bytesPath: null, disk: null }, request: { restoredBelow: [] } };
  const place = {
    tapeFile: {
      restoredPath: '/mnt/r/closed/1',
      bytesPath: '/webdav/closed/1',
      disk: { mountpoint: '/mnt/r' },
    },
    request: { restoredBelow: ['/mnt/r'] },
  };
  const told = await Promise.all(['alice', 'bob', 'viewer'].map((caller) => askData(gatewayOf(caller), query)));
  expect(told).toEqual([nothing, place, place]);
});

test('whoever is a member no longer sees nothing of the quota from then on', async () => {
  const id = await createRequest(app.ctx, { quota: 'bob', pattern: '/open/' });
  const headers = { Authorization: `Bearer ${tokens.alice}` };
  const status = async () => (await call(app, 'GET', `/requests/${id}`, { headers })).status;
  await waitFor('what was known before to be forgotten', async () => (await status()) === 404);
  await setMember(app.ctx, { quota: 'bob', kind: 'USER', name: 'alice', isManager: false });
  await waitFor('alice to be a member', async () => (await status()) === 200);
  const remove = 'mutation { r: removeMember(input: { quota: "bob", kind: USER, name: "alice" }) { __typename } }';
  expect(await ask(gatewayOf('alice'), remove)).toEqual({ data: { r: { __typename: 'Forbidden' } } });
  expect(await ask(gatewayOf('bob'), remove)).toEqual({ data: { r: { __typename: 'QuotaMember' } } });
  await waitFor('alice to be a member no longer', async () => (await status()) === 404);
});

test('whoever asks, where nobody is known, gives rights to nobody', async () => {
  const set =
    'mutation { r: setMember(input: { quota: "alice", kind: USER, name: "mallory", isManager: true }) { __typename } }';
  expect(await ask({ url: app.url }, set)).toEqual({ data: { r: { __typename: 'Forbidden' } } });
  const { errors } = await ask({ url: app.url }, '{ pathRules { edges { node { name } } } }');
  expect(errors).toMatchObject([{ extensions: { code: 'FORBIDDEN' } }]);
});

test('whoever sees all requests, being nobody in particular, sees of them what it may list', async () => {
  await close('LIST');
  const id = await createRequest(app.ctx, { quota: 'bob', files: [...ALL, '/closed/unknown'] });
  const query = `{ request(id: ${id}) { holds { edges { node { file { path } } } } awaited { edges { node { path } } } } }`;
  type Held = { request: { holds: { edges: { node: { file: { path: string } } }[] }; awaited: { edges: object[] } } };
  for (const [caller, paths] of Object.entries({ nobody: OPEN, bob: ALL, viewer: ALL })) {
    const { request } = await askData<Held>(gatewayOf(caller), query);
    expect([caller, request.holds.edges.map(({ node }) => node.file.path).sort()]).toEqual([caller, paths]);
    expect([caller, request.awaited.edges.length]).toEqual([caller, paths === ALL ? 1 : 0]);
    const headers: Record<string, string> = tokens[caller] ? { Authorization: `Bearer ${tokens[caller]}` } : {};
    const [{ files }] = (await call(app, 'GET', `/requests/${id}`, { headers })).body as [{ files: string[] }];
    expect([caller, files.filter((path) => path !== '/closed/unknown').sort()]).toEqual([caller, paths]);
  }
});

test('what a caller may no longer see ends its streams, also those of whoever asks', async () => {
  const open = async (caller: string) => {
    const stages = { query: 'subscription { stageChanges { path } }' };
    const [end] = await Promise.allSettled([postOperation(gatewayOf(caller), stages).next()]);
    return end?.status;
  };
  const addMember = (name: string) => setMember(app.ctx, { quota: 'alice', kind: 'USER', name, isManager: false });
  const first = open('nobody');
  await waitForReaders(app, 1);
  await addMember('zaphod'); // nobody has looked before, and so one stream too many ends
  expect(await first).toBe('rejected');
  for (const caller of ['nobody', 'alice', 'viewer']) {
    const ends = open(caller);
    await waitForReaders(app, 1);
    await addMember(`another of ${caller}`);
    await setPathRule(app.ctx, { prefix: '/closed', action: 'LIST', kind: 'USER', name: `not ${caller}` });
    expect([caller, await ends]).toEqual([caller, 'rejected']);
  }
});

test('mail tells where a copy is where the request may fetch it', async () => {
  await close('FETCH');
  const wish = { files: ['/closed/1', '/open/1'], notifyOnLastFile: 'a@example.org' };
  await requested('alice', wish);
  const { rows } = await app.ctx.db.pool.query<{ body: string }>('SELECT body FROM notification');
  expect(rows[0]?.body).toContain('/mnt/r/open/1');
  expect(rows[0]?.body).not.toContain('/mnt/r/closed/1');
});

test('a rule tells how many files it meets, and where a folder that looks the same has some', async () => {
  const [nfc, nfd] = ['/r\u00e9sum\u00e9', '/re\u0301sume\u0301'];
  await addFiles(
    app.ctx,
    [`${nfd}/1`, `${nfd}/2`, `${nfd}s/1`, '/one'].map((path) => ({ path })),
  );
  const set = async (prefix: string) => {
    const { setPathRule: rule } = await askData<{ setPathRule: object }>(
      app,
      `mutation ($prefix: String!) { setPathRule(input: { prefix: $prefix, action: FETCH, kind: EVERYBODY }) {
        ... on PathRule { prefix filesBelow alike { prefix filesBelow } } } }`,
      { prefix },
    );
    return rule;
  };
  expect(await set(nfc)).toEqual({ prefix: nfc, filesBelow: 0, alike: [{ prefix: nfd, filesBelow: 2 }] });
  expect(await set(nfd)).toEqual({ prefix: nfd, filesBelow: 2, alike: [] });
  expect(await set('/one')).toEqual({ prefix: '/one', filesBelow: 1, alike: [] });
  expect(await set('/')).toEqual({ prefix: '/', filesBelow: 8, alike: [] });
  await app.ctx.db.pool.query(
    `INSERT INTO tape_file (path, size) SELECT '/many/' || n, 1 FROM generate_series(1, 10001) n`,
  );
  expect(await set('/many')).toEqual({ prefix: '/many', filesBelow: 10_000, alike: [] });
  const { pathRules } = await askData<{ pathRules: { edges: { node: { prefix: string; filesBelow: number } }[] } }>(
    app,
    '{ pathRules { edges { node { prefix filesBelow } } } }',
  );
  expect(pathRules.edges.map(({ node }) => [node.prefix, node.filesBelow])).toEqual(
    expect.arrayContaining([
      ['/', 10_000],
      [nfc, 0],
      [nfd, 2],
    ]),
  );
});
