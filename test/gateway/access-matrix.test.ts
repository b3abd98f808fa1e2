/**
 * Tests each operation of the policy on both protocols: callers with and without the right, on their own, foreign and
 * missing objects. pure/policy.test.ts tests the policy itself.
 */
import { describe, expect, test } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { setQuotaMember } from '../../src/domain/access/members.js';
import { addPathRule } from '../../src/domain/access/path-rules.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { withdrawFiles } from '../../src/domain/catalogue/withdrawals.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { createWebhook } from '../../src/domain/notifications/webhooks/webhooks.js';
import { type Operation, policy, type Right } from '../../src/domain/policy.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { startBeside } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { ask, type Edges, type GraphqlAnswer, sendGraphql } from '../support/graphql.js';
import { OF_PROXY, settingsOfProxy } from '../support/proxy.js';
import { call } from '../support/rest.js';
import { postOperation } from '../support/streams.js';
import { useApp } from '../support/use-app.js';

const MISSING = 2_000_000_000;

/** Quotas whose requests a caller sees, creates and manages, and the caller's rights. */
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
  // dora is a member of the group quota, but did not create its requests
  dora: { sees: ['dora', 'lab'], asks: ['dora', 'lab'], manages: ['dora'], rights: ofUser },
  erin: { sees: ['erin', 'lab'], asks: ['erin', 'lab'], manages: ['erin', 'lab'], rights: ofUser },
  pipeline: { sees: ['alice'], asks: ['alice'], manages: ['alice'], rights: ofService },
  foreign: { sees: ['bob'], asks: ['bob'], manages: ['bob'], rights: ofService },
  auditor: { sees: 'all', asks: [], manages: [], rights: ['read', 'look'] },
  carol: { sees: 'all', asks: 'all', manages: 'all', rights: ['read', 'ask', 'change', 'manage', 'look', 'operate'] },
};
const has = (quotas: readonly string[] | 'all', quota: string) => quotas === 'all' || quotas.includes(quota);

const tokens: Record<string, string> = {};

const app = useApp({ config: { access: { auth: new Set(['token']) } } }, async () => {
  for (const user of ['alice', 'bob', 'lab']) await addQuota(app.ctx, user, 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/a/1' }, { path: '/a/2' }]);
  await app.ctx.db.pool.query(`INSERT INTO quota_member (quota_id, kind, name, is_manager)
    SELECT id, 'USER', m.name, m.name = 'erin' FROM quota, unnest(ARRAY['alice', 'dora', 'erin']) AS m (name) WHERE "user" = 'lab'`);
  await setDisk(app.ctx, { mountpoint: '/mnt/a', size: 1n });
  await app.ctx.db.pool.query(`INSERT INTO volume (name) VALUES ('V1')`);
  await app.ctx.db.pool.query(`INSERT INTO volume (name, retired_at) VALUES ('GONE', now())`);
  await app.ctx.db.pool.query(`INSERT INTO drive (name) VALUES ('drive-1')`);
  await addFiles(app.ctx, [{ path: '/gone/1' }]);
  await withdrawFiles(app.ctx, { path: '/gone/1' });
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

const gatewayOf = (caller: string) => ({ url: app.url, token: tokens[caller] });
const bearerOf = (caller: string) => ({ headers: { Authorization: `Bearer ${tokens[caller]}` } });

/** Creates a request as alice. */
async function makeTarget(quota: string): Promise<number> {
  const caller = { ...app.ctx.caller, name: 'alice', way: 'token', roles: new Set(['user'] as const) } as const;
  return await createRequest({ ...app.ctx, caller }, { quota, pattern: '/a/' });
}

type Outcome = 'done' | 'forbidden' | 'missing' | 'nothing';

const change = (field: string) => `mutation { result: ${field} { errors { __typename message } } }`;

/** Builds a query for a request (by id) or a quota (by user). */
type BuildQuery = (target: { id: number; quota: string }) => string;

/** Operations on one request or quota. If the caller does not see the object, the response is the same as for a missing object. */
const single: Partial<Record<Operation, BuildQuery>> = {
  getRequest: ({ id }) => `{ result: request(requestId: ${id}) { requestId } }`,
  getQuota: ({ quota }) => `{ result: quota(user: "${quota}") { used } }`,
  watchRequest: ({ id }) => `subscription { result: requestProgress(requestId: ${id}) { state } }`,
  watchStages: ({ id }) => `subscription { result: stageChanges(requestId: ${id}) { path } }`,
  createDownload: ({ id }) => change(`createDownload(input: { requestId: ${id} })`),
  watchEnd: ({ id }) => `subscription { result: requestEnd(requestId: ${id}) { at } }`,
  estimateRequest: ({ quota }) =>
    change(`estimateRequest(input: { quota: "${quota}", pattern: "/a/" })`).replace('mutation ', ''),
  createRequest: ({ quota }) => change(`createRequest(input: { quota: "${quota}", pattern: "/a/" })`),
  updateRequest: ({ id }) => change(`updateRequest(input: { requestId: ${id}, label: "x" })`),
  cancelRequest: ({ id }) => change(`cancelRequest(input: { requestId: ${id} })`),
  releaseFiles: ({ id }) => change(`releaseFiles(input: { requestId: ${id}, paths: ["/a/1"] })`),
  retryRequest: ({ id }) => change(`retryRequest(input: { requestId: ${id} })`),
  setQuotaMember: ({ quota }) => change(`setQuotaMember(input: { quota: "${quota}", ${MEMBER}, isManager: false })`),
  removeQuotaMember: ({ quota }) => change(`removeQuotaMember(input: { quota: "${quota}", ${MEMBER} })`),
  createWebhook: ({ quota }) => change(`createWebhook(input: { quota: "${quota}", url: "https://example.org/" })`),
  // a quota with open requests is not removed
  removeQuota: ({ quota }) => change(`removeQuota(input: { user: "${quota}" })`),
  setRequestPriority: ({ id }) => change(`setRequestPriority(input: { requestId: ${id}, priority: 1 })`),
};

/** Operations on the webhooks of a quota, which only managers of the quota see. */
const webhooks: Partial<Record<Operation, (webhook: number) => string>> = {
  listWebhookMessages: (webhook) => `{ result: webhookMessages(webhookId: ${webhook}) { edges { cursor } } }`,
  updateWebhook: (webhook) => change(`updateWebhook(input: { webhookId: ${webhook}, note: "x" })`),
  rotateWebhookSecret: (webhook) => change(`rotateWebhookSecret(input: { webhookId: ${webhook} })`),
  testWebhook: (webhook) => change(`testWebhook(input: { webhookId: ${webhook} })`),
  removeWebhook: (webhook) => change(`removeWebhook(input: { webhookId: ${webhook} })`),
};

/** Replaces all webhooks with one. @returns the id of the webhook; for the quota `nobody`, an id that does not exist */
async function makeWebhook(quota: string): Promise<number> {
  if (quota === 'nobody') return MISSING;
  await app.ctx.db.pool.query('DELETE FROM webhook');
  return (await createWebhook(app.ctx, { quota, url: 'https://example.org/' })).webhook.id;
}

const MEMBER = 'kind: USER, name: "zoe"';
const LIBRARY = 'name: "east", type: DIRECTORY, settings: [{ name: "directory", value: "/tapes" }]';
const RULE = 'prefix: "/nowhere", action: LIST, kind: EVERYBODY';

/** Operations on objects without an owner. */
const common: Partial<Record<Operation, string>> = {
  getFile: '{ result: tapeFile(path: "/a/1") { path } }',
  listFiles: '{ result: tapeFiles { totalCount } }',
  listLegacyUses: '{ result: legacyUses { edges { cursor } } }',
  listVolumes: '{ result: volumes { totalCount } }',
  getVolume: '{ result: volume(name: "V1") { name } }',
  listDrives: '{ result: drives { totalCount } }',
  listRecalls: '{ result: recalls { totalCount } }',
  listFailedFiles: '{ result: failedFiles { totalCount } }',
  simulatePlan: '{ result: simulatePlan(input: {}) { comparison { at } errors { __typename message } } }',
  listLibraries: '{ result: libraries { totalCount } }',
  readSettings: '{ result: libraries { edges { node { settings { name } } } } }',
  readStagingFigures: '{ result: libraries { edges { node { staging { filesKept } } } } }',
  readLibraryProblems: '{ result: libraries { edges { node { problem } } } }',
  readUsage: '{ result: libraries { edges { node { usage { sent } } } } }',
  updateLibrary: change('updateLibrary(input: { name: "directory" })'),
  addLibrary: change(`addLibrary(input: { ${LIBRARY} })`),
  removeLibrary: change('removeLibrary(input: { name: "directory" })'),
  listDisksByPage: '{ result: restoreDisks { totalCount } }',
  showCaller: '{ result: caller { name } }',
  isEmailSent: '{ result: isEmailSent }',
  listSuspensions: '{ result: suspensions { edges { node { name } } } }',
  listWaitingMail: '{ result: waitingMail { edges { node { user } } } }',
  showPlan: '{ result: plan { at } }',
  readFence: '{ fence { reason }, result: __typename }',
  listRequests: '{ result: requests { totalCount } }',
  listQuotasByPage: '{ result: quotas { totalCount } }',
  listVerifications: '{ result: verificationFailures { totalCount } }',
  listAudit: '{ result: auditEntries { totalCount } }',
  suspend: change('suspend(input: { kind: VOLUME, name: "V1", mode: IMMEDIATE })'),
  resume: change('resume(input: { kind: VOLUME, name: "V1" })'),
  listPathRules: '{ result: pathRules { edges { node { prefix } } } }',
  addPathRule: change(`addPathRule(input: { ${RULE} })`),
  removePathRule: change(`removePathRule(input: { ${RULE} })`),
  purgeUser: change('purgeUser(input: { user: "fred" })'),
  resizeRestoreDisk: change('resizeRestoreDisk(input: { mountpoint: "/mnt/a", size: 1000 })'),
  removeRestoreDisk: change('removeRestoreDisk(input: { mountpoint: "/mnt/b" })'),
  withdrawFiles: change('withdrawFiles(input: { path: "/a/1", dryRun: true })'),
  reinstateFiles: change('reinstateFiles(input: { path: "/gone/1", dryRun: true })'),
  renameFiles: change('renameFiles(input: { from: "/a/1", to: "/a/new", dryRun: true })'),
  purgeFiles: change('purgeFiles(input: { path: "/gone/1", dryRun: true })'),
  moveVolume: change('moveVolume(input: { from: "V00001", to: "V9", dryRun: true })'),
  retireVolume: change('retireVolume(input: { name: "V1", withdraw: true, dryRun: true })'),
  reinstateVolume: change('reinstateVolume(input: { name: "GONE" })'),
  verifyFiles: change('verifyFiles(input: { match: "/a/" })'),
  createToken: change('createToken(input: { name: "x", role: USER })'),
  listWebhooks: '{ result: webhooks { edges { node { url } } } }',
  listTokens: '{ result: tokens { edges { node { name } } } }',
  // the app's own token, which no test here uses
  revokeToken: change('revokeToken(input: { tokenId: 1 })'),
  setQuota: change('setQuota(input: { user: "lab", size: 1000000000 })'),
  setMedium: change('setVolumeMedium(input: { names: ["V1"], medium: LTO_8 })'),
  listFindings: '{ result: doctorFindings { notExamined examined { quotas } edges { node { kind } } } }',
  repairFindings: change('repairFindings(input: {})'),
  watchSite: 'subscription { result: siteChanges { parts } }',
  watchRequestList: 'subscription { result: requestsProgress { state } }',
  watchRequests: 'subscription { result: requestChanges { hasMore } }',
  readHistory: '{ result: history(since: "2026-01-01") { at } }',
  listProcesses: '{ result: processes { host } }',
  readDriveHosts: '{ result: drives { edges { node { host } } } }',
  readHostsOf: '{ result: restoreDisks { edges { node { hosts } } } }',
  readVolumeFiguresOf: '{ result: volumes { edges { node { fileCount bytes } } } }',
};

/** Prepares the database for operations of `common`. */
const preparations: Partial<Record<Operation, () => Promise<unknown>>> = {
  purgeUser: () => createToken(app.ctx, { name: 'fred', role: 'USER' }),
  removeRestoreDisk: () => setDisk(app.ctx, { mountpoint: '/mnt/b', size: 1n }),
  removePathRule: () => addPathRule(app.ctx, { prefix: '/nowhere', action: 'LIST', kind: 'EVERYBODY' }),
};

/** Operations without a GraphQL field, which other tests cover. */
const notInGraphql: readonly Operation[] = ['importRows', 'readMetrics', 'setDisk'];

test('the matrix contains each operation of the policy', () => {
  expect([...Object.keys(single), ...Object.keys(webhooks), ...Object.keys(common), ...notInGraphql].sort()).toEqual(
    Object.keys(policy).sort(),
  );
});

function outcomeOf({ data, errors }: GraphqlAnswer): { outcome: Outcome; message: string } {
  const [error] = errors ?? [];
  const result = (data as { result?: { errors?: { __typename: string; message: string }[] } | null } | undefined)
    ?.result;
  const [failure] = result?.errors ?? [];
  const code = error?.extensions?.code ?? failure?.__typename;
  const message = error?.message ?? failure?.message ?? '';
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
  // alice created the request
  if (right === 'change') return has(facts.manages, quota) || caller === 'alice' ? 'done' : 'forbidden';
  return 'done';
}

async function expectOutcome(operation: Operation, caller: string, quota: string): Promise<void> {
  const query = single[operation];
  if (!query) throw new Error(`${operation} has no query`);
  const isThere = quota !== 'nobody';
  if (operation === 'removeQuotaMember')
    await setQuotaMember(app.ctx, { quota, kind: 'USER', name: 'zoe', isManager: false });
  const id = isThere ? await makeTarget(quota) : MISSING;
  const { outcome, message } = await askAs(caller, query({ id, quota }));
  expect([caller, quota, outcome]).toEqual([caller, quota, expectedOf(operation, caller, quota, isThere)]);
  if (outcome !== 'missing' || !isThere || policy[operation] === 'ask') return;
  const none = await askAs(caller, query({ id: MISSING, quota: 'nobody' }));
  expect(message.replace(String(id), String(MISSING)).replace(`"${quota}"`, '"nobody"')).toBe(none.message);
}

/**
 * Pairs of caller and quota: a member, a viewer and an operator of a group quota, and a quota that the caller does not
 * see.
 */
const representatives = [
  ['dora', 'lab'],
  ['dora', 'bob'],
  ['auditor', 'lab'],
  ['carol', 'lab'],
] as const;

test.each(Object.keys(single) as Operation[])('%s follows the policy', async (operation) => {
  for (const [caller, quota] of representatives) await expectOutcome(operation, caller, quota);
});

test.each(Object.keys(webhooks) as Operation[])('%s is for those who manage the quota', async (operation) => {
  for (const [caller, quota] of [...representatives, ['erin', 'lab'], ['erin', 'nobody']] as const) {
    const { rights, manages } = callers[caller] as Facts;
    const webhook = await makeWebhook(quota);
    const { outcome, message } = await askAs(caller, webhooks[operation]?.(webhook) ?? '');
    const isOwn = quota !== 'nobody' && has(manages, quota);
    const expected = !rights.includes('manage') ? 'forbidden' : isOwn ? 'done' : 'missing';
    expect([caller, quota, outcome]).toEqual([caller, quota, expected]);
    if (outcome === 'missing') expect(message).toBe(`there is no webhook with id ${webhook}`);
  }
});

/** For each right, the least privileged caller with the right, and the most privileged caller without it. */
const borders: Record<Right, readonly [least: string, most: string | undefined]> = {
  read: ['foreign', undefined],
  ask: ['foreign', 'auditor'],
  change: ['foreign', 'auditor'],
  manage: ['bob', 'pipeline'],
  look: ['auditor', 'erin'],
  operate: ['carol', 'auditor'],
};

test.each(Object.entries(common))('%s follows the policy', async (name, query) => {
  const [least, most] = borders[policy[name as Operation]];
  await preparations[name as Operation]?.();
  if (most) expect([most, (await askAs(most, query)).outcome]).toEqual([most, 'forbidden']);
  expect([least, (await askAs(least, query)).outcome]).toEqual([least, 'done']);
});

const QUOTAS = ['alice', 'lab', 'bob', 'nobody'];

describe.each(Object.keys(callers))('%s', (caller) => {
  test('changes the members and sees the webhooks of the quotas that it manages', async () => {
    for (const quota of QUOTAS) await expectOutcome('setQuotaMember', caller, quota);
    await app.ctx.db.pool.query('DELETE FROM webhook');
    for (const quota of ['alice', 'lab', 'bob', undefined])
      await createWebhook(app.ctx, { quota, url: `https://example.org/${quota}` });
    const { rights, manages } = callers[caller] as Facts;
    const answer = await ask(gatewayOf(caller), '{ webhooks { edges { node { user } } } }');
    const { webhooks: listed } = (answer.data ?? {}) as { webhooks?: Edges<{ user: string | null }> };
    const users = listed?.edges.map((edge) => edge.node.user);
    const own = ['alice', 'lab', 'bob'].filter((quota) => has(manages, quota));
    expect(users).toEqual(rights.includes('manage') ? [...own, ...(manages === 'all' ? [null] : [])] : undefined);
    const ofAllQuotas = await askAs(caller, change('createWebhook(input: { url: "https://example.org/" })'));
    expect(ofAllQuotas.outcome).toBe(manages === 'all' ? 'done' : 'forbidden');
  });

  test('lists, counts and loads only what it may see', async () => {
    const ids = Object.fromEntries(
      await Promise.all(['alice', 'lab', 'bob'].map(async (quota) => [quota, await makeTarget(quota)] as const)),
    );
    const { sees } = callers[caller] as Facts;
    const visible = ['alice', 'bob', 'lab'].filter((quota) => has(sees, quota));
    const gateway = gatewayOf(caller);
    const query =
      '{ quotas { totalCount edges { node { user } } } requests(first: 1000) { totalCount edges { node { requestId quota { user } } } } }';
    const { data } = await ask(gateway, query);
    const { quotas, requests } = data as {
      quotas: { totalCount: number } & Edges<{ user: string }>;
      requests: { totalCount: number } & Edges<{ requestId: number; quota: { user: string } }>;
    };
    expect([quotas.edges.map(({ node }) => node.user), quotas.totalCount]).toEqual([visible, visible.length]);
    const listed = requests.edges.map(({ node }) => node);
    expect([...new Set(listed.map(({ quota }) => quota.user))].sort()).toEqual(visible);
    expect(requests.totalCount).toBe(listed.length);
    const rest = await call(app, 'GET', '/requests', bearerOf(caller));
    const [{ requests: restListed }] = rest.body as [{ requests: { id: number; quota: string }[] }];
    expect(restListed.map(({ id }) => id)).toEqual(listed.map(({ requestId }) => requestId).reverse());
    for (const [quota, id] of Object.entries(ids)) {
      const node = Buffer.from(`Request:${id}`).toString('base64');
      const answer = await ask(gateway, `{ node(id: "${node}") { id } }`);
      expect(answer).toEqual({ data: { node: has(sees, quota) ? { id: node } : null } });
    }
  });
});

test('a caller without a role reads no node', async () => {
  const settings = { ...settingsOfProxy(), TAPEGATE_PROXY_ROLES: 'user=staff' };
  const { access } = readConfig({ TAPEGATE_AUTH: 'proxy', ...settings });
  const other = await startBeside(app, { config: { access } });
  const { data } = await ask(gatewayOf('carol'), '{ __type(name: "Node") { possibleTypes { name } } }');
  const { possibleTypes } = (data as { __type: { possibleTypes: { name: string }[] } }).__type;
  expect(possibleTypes.length).toBeGreaterThan(5);
  for (const { name } of possibleTypes) {
    const query = `{ node(id: "${Buffer.from(`${name}:1`).toString('base64')}") { id } }`;
    const { body } = await sendGraphql(other, { query }, { headers: { ...OF_PROXY, 'X-Remote-User': 'mallory' } });
    expect([name, outcomeOf(body).outcome]).toEqual([name, 'forbidden']);
  }
  await other.close();
});

test.each(['dora', 'pipeline', 'auditor'])('REST applies the same policy: %s', async (caller) => {
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
      const outcome = expectedOf(operation, caller, quota, isThere);
      // the REST contract answers 403 for an unknown quota
      const missing = operation === 'createRequest' ? 403 : 404;
      const status = { done: 200, forbidden: 403, missing, nothing: 404 }[outcome];
      expect({ operation, quota, status: answer.status }).toEqual({ operation, quota, status });
      if (status >= 400) expect(answer.body).toEqual([{ error: expect.any(String), error_msg: expect.any(String) }]);
    }
  }
});

test('missing and invalid credentials return 401 with a challenge, on both protocols', async () => {
  const { token, secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  await app.ctx.db.pool.query('UPDATE api_token SET revoked_at = now() WHERE id = $1', [token.id]);
  const basic = (user: string, password: string) => `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
  const wrong = [`Bearer ${secret}`, 'Bearer tapegate_no', 'Bearer x.y.z', 'Basic !', 'Digest a=b'];
  for (const authorization of [undefined, ...wrong, basic('bob', tokens.alice ?? '')]) {
    const headers = authorization === undefined ? {} : { Authorization: authorization };
    const rest = await call(app, 'GET', '/quota/alice', { headers });
    expect({ authorization, status: rest.status, body: rest.body }).toEqual({
      authorization,
      status: 401,
      body: [{ error: expect.any(String), error_msg: expect.any(String) }],
    });
    expect(rest.headers.get('www-authenticate')).toContain('Bearer');
    const graphql = await fetch(`${app.url}/graphql?query={plan{at}}`, { headers });
    expect([graphql.status, await graphql.json()]).toEqual([
      401,
      { errors: [{ message: expect.any(String), extensions: { code: 'UNAUTHENTICATED' } }] },
    ]);
  }
  const headers = { Authorization: basic('alice', tokens.alice ?? '') };
  expect((await call(app, 'GET', '/quota/alice', { headers })).status).toBe(200);
});

test('a read-only token sees what its user sees, and changes nothing', async () => {
  const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER', isReadOnly: true });
  const id = await makeTarget('alice');
  const headers = { Authorization: `Bearer ${secret}` };
  const answers = await Promise.all([
    call(app, 'GET', `/requests/${id}`, { headers }),
    call(app, 'PUT', `/requests/${id}`, { headers, body: { quota: 'alice', label: 'y' } }),
    call(app, 'POST', '/requests', { headers, body: { quota: 'alice', patterns: '/a/' } }),
  ]);
  expect(answers.map(({ status }) => status)).toEqual([200, 403, 403]);
  const operator = (await createToken(app.ctx, { name: 'looker', role: 'OPERATOR', isReadOnly: true })).secret;
  const answer = await ask({ url: app.url, token: operator }, common.suspend ?? '');
  expect(outcomeOf(answer).outcome).toBe('forbidden');
});
