/**
 * Who may do what, on both protocols: every operation of the policy with the callers at the borders of its right, and one operation of each
 * right with every kind of caller, for what is its own, another's, and what does not exist. The policy itself is tested in pure/policy.test.ts.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { schema } from '../../graphql/schema.js';
import { setMember } from '../../src/operations/access/members.js';
import { setPathRule } from '../../src/operations/access/path-rules.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { withdrawFiles } from '../../src/operations/catalogue/withdrawals.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import { type Operation, policy, type Right } from '../../src/operations/policy.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { createWebhook } from '../../src/operations/webhooks/webhooks.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { ask, type GraphqlAnswer } from '../support/graphql.js';
import { call } from '../support/rest.js';
import { postOperation } from '../support/streams.js';

const MISSING = 2_000_000_000;

/** Quotas whose requests a caller sees, for which it asks, and where it changes what others have asked for. */
interface Facts {
  sees: readonly string[] | 'all';
  asks: readonly string[] | 'all';
  manages: readonly string[] | 'all';
  rights: readonly Right[];
}

const ofUser: readonly Right[] = ['read', 'ask', 'change', 'manage'];
const ofService: readonly Right[] = ['read', 'ask', 'change'];
const callers: Record<string, Facts> = {
  alice: { sees: ['alice', 'lab'], asks: ['alice', 'lab'], manages: ['alice'], rights: ofUser },
  bob: { sees: ['bob'], asks: ['bob'], manages: ['bob'], rights: ofUser },
  // of the group work space, but not who has asked
  dora: { sees: ['dora', 'lab'], asks: ['dora', 'lab'], manages: ['dora'], rights: ofUser },
  erin: { sees: ['erin', 'lab'], asks: ['erin', 'lab'], manages: ['erin', 'lab'], rights: ofUser },
  pipeline: { sees: ['alice'], asks: ['alice'], manages: ['alice'], rights: ofService },
  foreign: { sees: ['bob'], asks: ['bob'], manages: ['bob'], rights: ofService },
  auditor: { sees: 'all', asks: [], manages: [], rights: ['read', 'look'] },
  carol: { sees: 'all', asks: 'all', manages: 'all', rights: ['read', 'ask', 'change', 'manage', 'look', 'operate'] },
};
const has = (quotas: readonly string[] | 'all', quota: string) => quotas === 'all' || quotas.includes(quota);

let app: TestApp;
const tokens: Record<string, string> = {};

beforeAll(async () => {
  app = await startApp({ config: { access: { auth: new Set(['token']) } } });
  for (const user of ['alice', 'bob', 'lab']) await addQuota(app.ctx, user, 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/a/1' }, { path: '/a/2' }]);
  await app.ctx.db.pool.query(`INSERT INTO quota_member (quota_id, kind, name, is_manager)
    SELECT id, 'USER', m.name, m.name = 'erin' FROM quota, unnest(ARRAY['alice', 'dora', 'erin']) AS m (name) WHERE "user" = 'lab'`);
  await setDisk(app.ctx, { mountpoint: '/mnt/a', size: 1n });
  await app.ctx.db.pool.query(`INSERT INTO volume (name) VALUES ('V1')`);
  await app.ctx.db.pool.query(`INSERT INTO drive (name) VALUES ('drive-1')`);
  const service = (quota: string) => ({ role: 'SERVICE', quotas: [quota] }) as const;
  const made = {
    pipeline: service('alice'),
    foreign: service('bob'),
    auditor: { role: 'VIEWER' },
    carol: { role: 'OPERATOR' },
  };
  for (const name of Object.keys(callers)) {
    const how = made[name as keyof typeof made] ?? { role: 'USER' };
    tokens[name] = (await createToken(app.ctx, { name, ...how } as Parameters<typeof createToken>[1])).secret;
  }
});
afterAll(() => app.close());

const gatewayOf = (caller: string) => ({ url: app.url, token: tokens[caller] });
const bearerOf = (caller: string) => ({ headers: { Authorization: `Bearer ${tokens[caller]}` } });

/** A request that alice has made; with the quota of the group where she is told to. */
async function makeTarget(quota: string): Promise<number> {
  const caller = { ...app.ctx.caller, name: 'alice', way: 'token', roles: new Set(['user'] as const) } as const;
  return await createRequest({ ...app.ctx, caller }, { quota, pattern: '/a/' });
}

/** Whom to remove. */
async function addZoe(): Promise<void> {
  for (const quota of ['alice', 'lab', 'bob'])
    await setMember(app.ctx, { quota, kind: 'USER', name: 'zoe', isManager: false });
}

type Outcome = 'done' | 'forbidden' | 'missing' | 'nothing';

/** What a request, a quota or a webhook is asked, by its id and its user. */
type Ask = (target: { id: number; quota: string; webhook: number }) => string;

/** Of single things: how each operation is asked by GraphQL; what is asked of a request that is not seen is as if it were not there. */
const single: Partial<Record<Operation, Ask>> = {
  getRequest: ({ id }) => `{ result: request(id: ${id}) { requestId } }`,
  getQuota: ({ quota }) => `{ result: quota(user: "${quota}") { used } }`,
  watchRequest: ({ id }) => `subscription { result: requestProgress(id: ${id}) { state } }`,
  watchStages: ({ id }) => `subscription { result: stageChanges(requestId: ${id}) { path } }`,
  watchEnd: ({ id }) => `subscription { result: requestEnd(id: ${id}) { at } }`,
  estimateRequest: ({ quota }) =>
    `{ result: estimateRequest(input: { quota: "${quota}", pattern: "/a/" }) { __typename ... on Failure { message } } }`,
  createRequest: ({ quota }) =>
    `mutation { result: createRequest(input: { quota: "${quota}", pattern: "/a/" }) { __typename ... on Failure { message } } }`,
  updateRequest: ({ id }) =>
    `mutation { result: updateRequest(input: { id: ${id}, label: "x" }) { __typename ... on Failure { message } } }`,
  cancelRequest: ({ id }) => `mutation { result: cancelRequest(id: ${id}) { __typename ... on Failure { message } } }`,
  releaseFiles: ({ id }) =>
    `mutation { result: releaseFiles(input: { id: ${id}, paths: ["/a/1"] }) { __typename ... on Failure { message } } }`,
  retryRequest: ({ id }) =>
    `mutation { result: retryRequest(input: { id: ${id} }) { __typename ... on Failure { message } } }`,
  setMember: ({ quota }) =>
    `mutation { result: setMember(input: { quota: "${quota}", ${MEMBER}, isManager: false }) { __typename ... on Failure { message } } }`,
  removeMember: ({ quota }) =>
    `mutation { result: removeMember(input: { quota: "${quota}", ${MEMBER} }) { __typename ... on Failure { message } } }`,
  createWebhook: ({ quota }) =>
    `mutation { result: createWebhook(input: { quota: "${quota}", url: "https://example.org/" }) { __typename ... on Failure { message } } }`,
  // whose requests live, so that they stay
  removeQuota: ({ quota }) =>
    `mutation { result: removeQuota(user: "${quota}") { __typename ... on Failure { message } } }`,
  setPriority: ({ id }) =>
    `mutation { result: setPriority(id: ${id}, priority: 1) { __typename ... on Failure { message } } }`,
};

/** Of the webhooks of a quota, which only those who manage it know of. */
const webhooks: Partial<Record<Operation, Ask>> = {
  listWebhookMessages: ({ webhook }) => `{ result: webhookMessages(webhookId: ${webhook}) { edges { cursor } } }`,
  setWebhook: ({ webhook }) =>
    `mutation { result: setWebhook(input: { id: ${webhook}, note: "x" }) { __typename ... on Failure { message } } }`,
  rotateWebhookSecret: ({ webhook }) =>
    `mutation { result: rotateWebhookSecret(id: ${webhook}) { __typename ... on Failure { message } } }`,
  testWebhook: ({ webhook }) =>
    `mutation { result: testWebhook(id: ${webhook}) { __typename ... on Failure { message } } }`,
  removeWebhook: ({ webhook }) =>
    `mutation { result: removeWebhook(id: ${webhook}) { __typename ... on Failure { message } } }`,
};

/** One of a quota; of `nobody` there is none. */
async function makeWebhook(quota: string): Promise<number> {
  if (quota === 'nobody') return MISSING;
  await app.ctx.db.pool.query('DELETE FROM webhook');
  return (await createWebhook(app.ctx, { quota, url: 'https://example.org/' })).webhook.id;
}

/** One that is, and stays so. */
async function makeWithdrawn(): Promise<void> {
  await addFiles(app.ctx, [{ path: '/gone/1' }]);
  await withdrawFiles(app.ctx, { path: '/gone/1' }).catch(() => {}); // it was before
}

async function makeRetired(): Promise<void> {
  await app.ctx.db.pool.query(
    `INSERT INTO volume (name, retired_at) VALUES ('GONE', now()) ON CONFLICT (name) DO UPDATE SET retired_at = now()`,
  );
}

const MEMBER = 'kind: USER, name: "zoe"';
const LIBRARY = 'name: "east", kind: "directory", settings: "{\\"folder\\": \\"/tapes\\"}"';
const RULE = 'prefix: "/nowhere", action: LIST, kind: EVERYBODY';

/** Of what is nobody's own. */
const common: Partial<Record<Operation, string>> = {
  getFile: '{ result: tapeFile(path: "/a/1") { path } }',
  listFiles: '{ result: tapeFiles { totalCount } }',
  listLegacyUses: '{ result: legacyUses { edges { cursor } } }',
  listVolumes: '{ result: volumes { totalCount } }',
  listDrives: '{ result: drives { totalCount } }',
  listLibraries: '{ result: libraries { totalCount } }',
  readSettings: '{ result: libraries { edges { node { settings } } } }',
  readStagingFigures: '{ result: libraries { edges { node { staging { kept } } } } }',
  readUsage: '{ result: libraries { edges { node { usage { sent } } } } }',
  setLibrary: 'mutation { result: setLibrary(input: { name: "directory" }) { __typename ... on Failure { message } } }',
  addLibrary: `mutation { result: addLibrary(input: { ${LIBRARY} }) { __typename ... on Failure { message } } }`,
  removeLibrary: 'mutation { result: removeLibrary(name: "directory") { __typename } }',
  listDisksByPage: '{ result: restoreDisks { totalCount } }',
  showCaller: '{ result: caller { name } }',
  listSuspensions: '{ result: suspensions { edges { node { name } } } }',
  listWaitingMail: '{ result: waitingMail { edges { node { user } } } }',
  showPlan: '{ result: plan { at } }',
  listRequests: '{ result: requests { totalCount } }',
  listQuotasByPage: '{ result: quotas { totalCount } }',
  listVerifications: '{ result: verifications { totalCount } }',
  listAudit: '{ result: audit { totalCount } }',
  suspend:
    'mutation { result: suspend(input: { kind: VOLUME, name: "V1", mode: HELD }) { __typename ... on Failure { message } } }',
  resume: 'mutation { result: resume(input: { kind: VOLUME, name: "V1" }) { __typename ... on Failure { message } } }',
  listPathRules: '{ result: pathRules { edges { node { prefix } } } }',
  setPathRule: `mutation { result: setPathRule(input: { ${RULE} }) { __typename ... on Failure { message } } }`,
  removePathRule: `mutation { result: removePathRule(input: { ${RULE} }) { __typename ... on Failure { message } } }`,
  forgetUser: 'mutation { result: forgetUser(user: "fred") { __typename ... on Failure { message } } }',
  resizeDisk: 'mutation { result: resizeDisk(input: { mountpoint: "/mnt/a", size: 1000 }) { __typename } }',
  forgetDisk: 'mutation { result: removeDisk(mountpoint: "/mnt/b") { __typename } }',
  withdrawFiles:
    'mutation { result: withdrawFiles(input: { path: "/a/1", dryRun: true }) { __typename ... on Failure { message } } }',
  reinstateFiles:
    'mutation { result: reinstateFiles(input: { path: "/gone/1", dryRun: true }) { __typename ... on Failure { message } } }',
  renameFiles:
    'mutation { result: renameFiles(input: { from: "/a/1", to: "/a/new", dryRun: true }) { __typename ... on Failure { message } } }',
  forgetFiles:
    'mutation { result: forgetFiles(input: { path: "/gone/1", dryRun: true }) { __typename ... on Failure { message } } }',
  moveVolume:
    'mutation { result: moveVolume(input: { from: "V00001", to: "V9", dryRun: true }) { __typename ... on Failure { message } } }',
  retireVolume:
    'mutation { result: retireVolume(input: { name: "V1", withdraw: true, dryRun: true }) { __typename ... on Failure { message } } }',
  reinstateVolume: 'mutation { result: reinstateVolume(name: "GONE") { __typename ... on Failure { message } } }',
  verifyAgain: 'mutation { result: verifyAgain(match: "/a/") { __typename } }',
  createToken: 'mutation { result: createToken(input: { name: "x", role: USER }) { __typename } }',
  listWebhooks: '{ result: webhooks { edges { node { url } } } }',
  listTokens: '{ result: tokens { edges { node { name } } } }',
  // the one that the app was given, which nobody shows here
  revokeToken: 'mutation { result: revokeToken(id: 1) { __typename } }',
  setQuota: 'mutation { result: setQuota(input: { user: "lab", size: 1000000000 }) { __typename } }',
  setMedium: 'mutation { result: setVolume(input: { names: ["V1"], medium: "lto-8" }) { __typename } }',
  listFindings: '{ result: doctorFindings { notLookedAt lookedAt { quotas } edges { node { kind } } } }',
  repairFindings: 'mutation { result: repairFindings { __typename } }',
  watchSite: 'subscription { result: siteChanges { parts } }',
  watchRequests: 'subscription { result: requestChanges { hasMore } }',
  readHistory: '{ result: history(since: "2026-01-01") { at } }',
  listProcesses: '{ result: processes { host } }',
  readKept: '{ result: kept { bytes } }',
  readDriveHosts: '{ result: drives { edges { node { host } } } }',
  readHostsOf: '{ result: restoreDisks { edges { node { hosts } } } }',
  readVolumeFiguresOf: '{ result: volumes { edges { node { files bytes } } } }',
};

/** No field of GraphQL has them; what calls them instead is tested where that is. */
const unasked: readonly Operation[] = ['importRows', 'readMetrics', 'setDisk'];

test('the matrix has every operation of the policy', () => {
  expect([...Object.keys(single), ...Object.keys(webhooks), ...Object.keys(common), ...unasked].sort()).toEqual(
    Object.keys(policy).sort(),
  );
});

test('every field of the roots says which operation of the policy it is', () => {
  const roots = [schema.getQueryType(), schema.getMutationType(), schema.getSubscriptionType()];
  const fields = roots.flatMap((root) => Object.values(root?.getFields() ?? {}));
  const operations = new Map(
    fields.map((field) => {
      const options = field.extensions.pothosOptions as { authScopes?: { operation?: string } };
      return [field.name, options?.authScopes?.operation];
    }),
  );
  // what a node is by its type is left out where the caller may not see it, as below
  expect([...operations].filter(([, operation]) => operation === undefined)).toEqual([['node', undefined]]);
  expect([...operations.values()].filter((name) => name !== undefined && !(name in policy))).toEqual([]);
});

/** What an answer says, and for people. */
function outcomeOf({ data, errors }: GraphqlAnswer): { outcome: Outcome; message: string } {
  const [error] = errors ?? [];
  const result = (data as { result?: { __typename?: string; message?: string } | null } | undefined)?.result;
  const code = error?.extensions?.code ?? result?.__typename;
  const message = error?.message ?? result?.message ?? '';
  if (code === 'FORBIDDEN' || code === 'Forbidden') return { outcome: 'forbidden', message };
  if (code === 'NOT_FOUND' || code === 'NotFound' || code === 'UnknownUser') return { outcome: 'missing', message };
  if (error) throw new Error(error.message);
  return result === null || result === undefined ? { outcome: 'nothing', message } : { outcome: 'done', message };
}

async function askAs(caller: string, query: string): Promise<{ outcome: Outcome; message: string }> {
  if (!query.startsWith('subscription')) return outcomeOf(await ask(gatewayOf(caller), query));
  const stream = postOperation(gatewayOf(caller), { query });
  try {
    return outcomeOf((await stream.next()).value as GraphqlAnswer);
  } finally {
    stream.close();
  }
}

const reads = new Set<Operation>(['getRequest', 'getQuota']);

function expectedOf(operation: Operation, caller: string, quota: string, isThere: boolean): Outcome {
  const facts = callers[caller] as Facts;
  const right = policy[operation];
  if (!facts.rights.includes(right)) return 'forbidden';
  if (right === 'ask') return !has(facts.asks, quota) ? 'forbidden' : isThere ? 'done' : 'missing';
  if (!isThere || !has(facts.sees, quota)) return reads.has(operation) ? 'nothing' : 'missing';
  if (right === 'manage') return has(facts.manages, quota) ? 'done' : 'forbidden';
  // alice has made it
  if (right === 'change') return has(facts.manages, quota) || caller === 'alice' ? 'done' : 'forbidden';
  return 'done';
}

/** Asks with each of these callers and quotas, and compares with what is expected of them. */
async function expectOutcomes(operation: Operation, asked: readonly (readonly [caller: string, quota: string])[]) {
  const query = single[operation];
  if (!query) throw new Error(`${operation} is no operation of single things`);
  const answers: [string, string, Outcome][] = [];
  const expected: [string, string, Outcome][] = [];
  for (const [caller, quota] of asked) {
    const isThere = quota !== 'nobody';
    if (operation === 'removeMember') await addZoe();
    const id = isThere ? await makeTarget(quota) : MISSING;
    const { outcome, message } = await askAs(caller, query({ id, quota, webhook: MISSING }));
    answers.push([caller, quota, outcome]);
    expected.push([caller, quota, expectedOf(operation, caller, quota, isThere)]);
    if (outcome !== 'missing' || !isThere || policy[operation] === 'ask') continue;
    // as if there were none, to the letter
    const none = await askAs(caller, query({ id: MISSING, quota: 'nobody', webhook: MISSING }));
    expect(message.replace(String(id), String(MISSING)).replace(`"${quota}"`, '"nobody"')).toBe(none.message);
  }
  expect(answers).toEqual(expected);
}

async function expectWebhookOutcomes(
  operation: Operation,
  asked: readonly (readonly [caller: string, quota: string])[],
) {
  for (const [caller, quota] of asked) {
    const { rights, manages } = callers[caller] as Facts;
    const webhook = await makeWebhook(quota);
    const query = webhooks[operation]?.({ id: MISSING, quota, webhook }) ?? '';
    const { outcome, message } = await askAs(caller, query);
    const isOwn = quota !== 'nobody' && has(manages, quota);
    const expected = !rights.includes('manage') ? 'forbidden' : isOwn ? 'done' : 'missing';
    expect([caller, quota, outcome]).toEqual([caller, quota, expected]);
    if (outcome === 'missing') expect(message).toBe(`there is no webhook with id ${webhook}`);
  }
}

/** A member, a manager, a viewer and an operator, of a group work space; and what a member does not see. */
const representatives = [
  ['dora', 'lab'],
  ['dora', 'bob'],
  ['erin', 'lab'],
  ['auditor', 'lab'],
  ['carol', 'lab'],
] as const;

test.each(Object.keys(single) as Operation[])('GraphQL: %s', async (operation) => {
  await expectOutcomes(operation, representatives);
});

test.each(Object.keys(webhooks) as Operation[])('GraphQL: %s', async (operation) => {
  await expectWebhookOutcomes(operation, representatives);
});

/** The caller with least that has a right, and the one with most that has not. */
const borders: Record<Right, readonly [least: string, most: string | undefined]> = {
  read: ['foreign', undefined],
  ask: ['foreign', 'auditor'],
  change: ['foreign', 'auditor'],
  manage: ['bob', 'pipeline'],
  look: ['auditor', 'erin'],
  operate: ['carol', 'auditor'],
};

test.each(Object.entries(common))('GraphQL: %s', async (name, query) => {
  const [least, most] = borders[policy[name as Operation]];
  if (name === 'forgetUser') await createToken(app.ctx, { name: 'fred', role: 'USER' });
  if (name === 'forgetDisk') await setDisk(app.ctx, { mountpoint: '/mnt/b', size: 1n });
  if (name === 'removePathRule') await setPathRule(app.ctx, { prefix: '/nowhere', action: 'LIST', kind: 'EVERYBODY' });
  if (name === 'reinstateFiles' || name === 'forgetFiles') await makeWithdrawn();
  if (name === 'reinstateVolume') await makeRetired();
  if (most) expect([most, (await askAs(most, query)).outcome]).toEqual([most, 'forbidden']);
  expect([least, (await askAs(least, query)).outcome]).toEqual([least, 'done']);
});

const QUOTAS = ['alice', 'lab', 'bob', 'nobody'];

describe.each(Object.keys(callers))('%s', (caller) => {
  test('members and webhooks are of the quotas that it manages', async () => {
    const asked = QUOTAS.map((quota) => [caller, quota] as const);
    await expectOutcomes('setMember', asked);
    await expectWebhookOutcomes('setWebhook', asked);
  });

  test('webhooks are those of the quotas that it manages, and nobody but an operator makes one of all', async () => {
    await app.ctx.db.pool.query('DELETE FROM webhook');
    for (const quota of ['alice', 'lab', 'bob', undefined])
      await createWebhook(app.ctx, { quota, url: `https://example.org/${quota}` });
    const { rights, manages } = callers[caller] as Facts;
    const answer = await ask(gatewayOf(caller), '{ webhooks { edges { node { user } } } }');
    const { webhooks: listed } = (answer.data ?? {}) as { webhooks?: { edges: { node: { user: string | null } }[] } };
    const users = listed?.edges.map((edge) => edge.node.user);
    const own = ['alice', 'lab', 'bob'].filter((quota) => has(manages, quota));
    expect(users).toEqual(rights.includes('manage') ? [...own, ...(manages === 'all' ? [null] : [])] : undefined);
    const ofAll = 'mutation { result: createWebhook(input: { url: "https://example.org/" }) { __typename } }';
    expect((await askAs(caller, ofAll)).outcome).toBe(manages === 'all' ? 'done' : 'forbidden');
  });

  test('lists, counts and nodes have what it may see, and nothing else', async () => {
    const ids = Object.fromEntries(
      await Promise.all(['alice', 'lab', 'bob'].map(async (q) => [q, await makeTarget(q)] as const)),
    );
    const { sees } = callers[caller] as Facts;
    const visible = ['alice', 'bob', 'lab'].filter((quota) => has(sees, quota));
    const gateway = gatewayOf(caller);
    const query =
      '{ quotas { totalCount edges { node { user } } } requests(first: 1000) { totalCount edges { node { requestId quota { user } } } } }';
    const { data } = await ask(gateway, query);
    const { quotas, requests } = data as {
      quotas: { totalCount: number; edges: { node: { user: string } }[] };
      requests: { totalCount: number; edges: { node: { requestId: number; quota: { user: string } } }[] };
    };
    expect([quotas.edges.map(({ node }) => node.user), quotas.totalCount]).toEqual([visible, visible.length]);
    const listed = requests.edges.map(({ node }) => node);
    expect([...new Set(listed.map(({ quota }) => quota.user))].sort()).toEqual(visible);
    expect(requests.totalCount).toBe(listed.length);
    const rest = await call(app, 'GET', '/requests', bearerOf(caller));
    const [{ requests: restListed }] = rest.body as [{ requests: { id: number; quota: string }[] }];
    expect(restListed.map(({ id }) => id)).toEqual(listed.map(({ requestId }) => requestId));
    for (const [quota, id] of Object.entries(ids)) {
      const node = Buffer.from(`Request:${id}`).toString('base64');
      const answer = await ask(gateway, `{ node(id: "${node}") { id } }`);
      expect([quota, answer.errors, (answer.data as { node: object | null }).node !== null]).toEqual([
        quota,
        undefined,
        has(sees, quota),
      ]);
    }
  });

  const unfit = (outcome: Outcome) => ({ done: 200, forbidden: 403, missing: 404, nothing: 404 })[outcome];

  test('REST answers the same', async () => {
    for (const quota of QUOTAS) {
      const isThere = quota !== 'nobody';
      const id = isThere ? await makeTarget(quota) : MISSING;
      const calls: [Operation, string, string, object?][] = [
        ['getRequest', 'GET', `/requests/${id}`],
        ['getQuota', 'GET', `/quota/${quota}`],
        ['updateRequest', 'PUT', `/requests/${id}`, { quota, label: 'x' }],
        ['createRequest', 'POST', '/requests', { quota, patterns: '/a/' }],
      ];
      for (const [operation, method, path, body] of calls) {
        const answer = await call(app, method, path, { ...bearerOf(caller), ...(body && { body }) });
        const fields = { ...(body as object), quota };
        const outcome = expectedOf(operation, caller, quota, isThere);
        // there is no quota of that user, which the contract answers with 403
        const status = operation === 'createRequest' && outcome === 'missing' ? 403 : unfit(outcome);
        expect({ operation, fields, status: answer.status }).toEqual({ operation, fields, status });
        if (status >= 400) expect(answer.body).toEqual([{ error: expect.any(String), error_msg: expect.any(String) }]);
      }
    }
  });
});

test('whoever shows nothing, or what is good no longer, is told to say who it is, on both protocols', async () => {
  const { token, secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  await app.ctx.db.pool.query('UPDATE api_token SET revoked_at = now() WHERE id = $1', [token.id]);
  const basic = (user: string, password: string) => `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
  const shown = [
    undefined,
    `Bearer ${secret}`,
    'Bearer tapegate_no',
    'Bearer x.y.z',
    'Basic !',
    basic('bob', tokens.alice ?? ''),
    'Digest a=b',
  ];
  for (const authorization of shown) {
    const headers = authorization === undefined ? {} : { Authorization: authorization };
    const rest = await call(app, 'GET', '/quota/alice', { headers });
    expect([authorization, rest.status, rest.headers.get('www-authenticate')]).toEqual([
      authorization,
      401,
      expect.stringContaining('Bearer'),
    ]);
    expect(rest.body).toEqual([{ error: expect.any(String), error_msg: expect.any(String) }]);
    const graphql = await fetch(`${app.url}/graphql?query={plan{at}}`, { headers });
    expect([graphql.status, await graphql.json()]).toEqual([
      401,
      { errors: [{ message: expect.any(String), extensions: { code: 'UNAUTHENTICATED' } }] },
    ]);
  }
  const good = await call(app, 'GET', '/quota/alice', {
    headers: { Authorization: basic('alice', tokens.alice ?? '') },
  });
  expect(good.status).toBe(200);
});

test('a token that is read only sees what its user sees, and changes nothing', async () => {
  const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER', isReadOnly: true });
  const id = await makeTarget('alice');
  const headers = { Authorization: `Bearer ${secret}` };
  const statuses = await Promise.all([
    call(app, 'GET', `/requests/${id}`, { headers }),
    call(app, 'PUT', `/requests/${id}`, { headers, body: { quota: 'alice', label: 'y' } }),
    call(app, 'POST', '/requests', { headers, body: { quota: 'alice', patterns: '/a/' } }),
  ]);
  expect(statuses.map(({ status }) => status)).toEqual([200, 403, 403]);
  const operator = (await createToken(app.ctx, { name: 'looker', role: 'OPERATOR', isReadOnly: true })).secret;
  const answer = await ask({ url: app.url, token: operator }, common.suspend ?? '');
  expect(outcomeOf(answer).outcome).toBe('forbidden');
});
