/** The audit contains one row for each change, written in the transaction of the change, and counts of refusals. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { addSeconds } from '../../src/core/time.js';
import { removeQuotaMember, setQuotaMember } from '../../src/domain/access/members.js';
import { addPathRule, removePathRule } from '../../src/domain/access/path-rules.js';
import { createToken, revokeToken } from '../../src/domain/access/tokens.js';
import { findUnknownOperation, pruneAudit } from '../../src/domain/audit/lists.js';
import { verifyFiles } from '../../src/domain/catalogue/verifications.js';
import { setMedium } from '../../src/domain/catalogue/volumes.js';
import { purgeFiles, reinstateFiles, withdrawFiles } from '../../src/domain/catalogue/withdrawals.js';
import { renameFiles } from '../../src/domain/catalogue-changes/renames.js';
import { reinstateVolume, retireVolume } from '../../src/domain/catalogue-changes/retirements.js';
import { moveVolume } from '../../src/domain/catalogue-changes/volume-moves.js';
import type { Context } from '../../src/domain/context.js';
import { removeRestoreDisk, resizeRestoreDisk, setDisk } from '../../src/domain/disks/disks.js';
import { repairFindings } from '../../src/domain/doctor/rows.js';
import { suspendDisk } from '../../src/domain/health/failing-disks.js';
import { resume, suspend, suspendFailing } from '../../src/domain/health/suspensions.js';
import { importRows } from '../../src/domain/import/import.js';
import { addLibrary, removeLibrary, updateLibrary } from '../../src/domain/libraries/changes.js';
import {
  createWebhook,
  removeWebhook,
  rotateWebhookSecret,
  testWebhook,
  updateWebhook,
} from '../../src/domain/notifications/webhooks/webhooks.js';
import { type Changing, isChanging, type Operation, policy } from '../../src/domain/policy.js';
import { removeQuota, setQuota } from '../../src/domain/quotas/quotas.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest, releaseFiles } from '../../src/domain/requests/ends.js';
import { retryRequest, setRequestPriority, updateRequest } from '../../src/domain/requests/update.js';
import { purgeUser } from '../../src/domain/users/purge.js';
import { addFiles, addQuota, buildRow } from '../support/factories.js';
import { ask, askData, type Connection } from '../support/graphql.js';
import { cancel } from '../support/mutations.js';
import { call } from '../support/rest.js';
import { dumpTables } from '../support/tables.js';
import { useApp } from '../support/use-app.js';

let now: string | undefined;
let alice: { url: string; token: string; headers: { Authorization: string } };

const app = useApp(
  {
    config: { access: { auth: new Set(['token']) } },
    now: () => now ?? app.ctx.db.clock.now(),
  },
  async () => {
    await addQuota(app.ctx, 'alice', 10n ** 9n);
    await addFiles(app.ctx, [{ path: '/a/1' }, { path: '/a/2' }]);
    // while `refusing` contains a row, writes to the audit fail
    await app.ctx.db.pool.query(`CREATE SCHEMA tests; CREATE TABLE tests.refusing (it bool);
    CREATE FUNCTION tests.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF EXISTS (SELECT FROM tests.refusing) THEN RAISE 'no room'; END IF; RETURN NEW; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION tests.refuse()`);
    const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
    alice = { url: app.url, token: secret, headers: { Authorization: `Bearer ${secret}` } };
  },
);

interface Row {
  id: bigint;
  who: string;
  way: string;
  tokenId: number | null;
  address: string | null;
  operation: string;
  kind: string;
  object: string;
  given: string;
  result: string;
  count: number;
}

/** Returns the audit rows after an id, oldest first, once pending counts are written. */
async function rowsAfter(id: bigint): Promise<Row[]> {
  await app.ctx.refusals.settle();
  const { rows } = await app.ctx.db.pool.query<Row>(
    'SELECT id, who, way, token_id AS "tokenId", address, operation, kind, object, given::text AS given, result, count FROM audit WHERE id > $1 ORDER BY id',
    [id],
  );
  return rows;
}

async function newestId(): Promise<bigint> {
  await app.ctx.refusals.settle();
  const { rows } = await app.ctx.db.pool.query<{ id: bigint }>('SELECT coalesce(max(id), 0) AS id FROM audit');
  return rows[0]?.id ?? 0n;
}

const makeRequest = () => createRequest(app.ctx, { quota: 'alice', pattern: '/a/' });
let serial = 0;
const unique = (word: string) => `${word}${++serial}`;

async function makeFailed(): Promise<number> {
  const id = await makeRequest();
  await app.ctx.db.pool.query(
    `UPDATE request_file SET state = 'FAILED', error_class = 'MEDIA', error = 'torn' WHERE request_id = $1`,
    [id],
  );
  return id;
}

async function makeUnverified(): Promise<string> {
  const file = `/bad/${unique('file')}`;
  await addFiles(app.ctx, [{ path: file, stage: 'UNVERIFIED', verified: null }]);
  await app.ctx.db.pool.query(
    `INSERT INTO verification (file_id, attempts, error_class, error, at) SELECT id, 1, 'MEDIA', 'bad', now() FROM tape_file WHERE path = $1`,
    [file],
  );
  return file;
}

async function makeFile(volume = 'V00001'): Promise<string> {
  const file = `/w/${unique('file')}`;
  await addFiles(app.ctx, [{ path: file, volume }]);
  return file;
}

async function makeWithdrawn(): Promise<string> {
  const file = await makeFile();
  await withdrawFiles(app.ctx, { path: file });
  return file;
}

async function makeVolume(): Promise<string> {
  const name = unique('EMPTY');
  await app.ctx.db.pool.query('INSERT INTO volume (name) VALUES ($1)', [name]);
  return name;
}

const removeWebhooks = () => app.ctx.db.pool.query('DELETE FROM webhook');
async function makeWebhook(): Promise<number> {
  await removeWebhooks();
  return (await createWebhook(app.ctx, { quota: 'alice', url: 'https://example.org/' })).webhook.id;
}

async function makeMember(): Promise<string> {
  const name = unique('member');
  await setQuotaMember(app.ctx, { quota: 'alice', kind: 'USER', name, isManager: true });
  return name;
}

const everybody = { action: 'LIST', kind: 'EVERYBODY' } as const;
async function makeRule(): Promise<string> {
  const prefix = `/${unique('rule')}`;
  await addPathRule(app.ctx, { ...everybody, prefix });
  return prefix;
}

const held = { kind: 'VOLUME', name: 'V00001' } as const;
const suspendVolume = (ctx: Context) => suspend(ctx, { ...held, mode: 'IMMEDIATE', reason: 'worn' });
const makeSuspended = () => suspendVolume(app.ctx);
const makeToken = async () => (await createToken(app.ctx, { name: 'bob', role: 'USER' })).token.id;
const makeUser = async () => (await setQuota(app.ctx, { user: unique('user'), size: 5n })).user;
const makeDisk = async () => (await setDisk(app.ctx, { mountpoint: `/mnt/${unique('disk')}`, size: 10n })).mountpoint;
const library = () => ({ name: unique('library'), kind: 'directory', settings: { directory: '/tapes' } });
const makeLibrary = async () => (await addLibrary(app.ctx, library())).name;

/** An operation. `run` gets the result of `prepare`. */
interface Change {
  prepare: () => Promise<unknown>;
  run: (ctx: Context, given: never) => Promise<unknown>;
}
const change = <Given>(
  prepare: () => Promise<Given>,
  run: (ctx: Context, given: Given) => Promise<unknown>,
): Change => ({ prepare, run });
const nothing = async () => {};

const changes: Record<Changing, Change> & Record<string, Change> = {
  createRequest: change(nothing, (ctx) => createRequest(ctx, { quota: 'alice', pattern: '/a/' })),
  updateRequest: change(makeRequest, (ctx, id) => updateRequest(ctx, { id, label: 'x' })),
  cancelRequest: change(makeRequest, (ctx, id) => cancelRequest(ctx, id)),
  releaseFiles: change(makeRequest, (ctx, id) => releaseFiles(ctx, { id, match: '/a/1' })),
  retryRequest: change(makeFailed, (ctx, id) => retryRequest(ctx, { id })),
  setRequestPriority: change(makeRequest, (ctx, id) => setRequestPriority(ctx, { id, priority: 7 })),
  suspend: change(nothing, suspendVolume),
  resume: change(makeSuspended, (ctx) => resume(ctx, held)),
  verifyFiles: change(makeUnverified, (ctx, match) => verifyFiles(ctx, { match })),
  withdrawFiles: change(makeFile, (ctx, file) => withdrawFiles(ctx, { path: file })),
  reinstateFiles: change(makeWithdrawn, (ctx, file) => reinstateFiles(ctx, { path: file })),
  renameFiles: change(makeFile, (ctx, file) => renameFiles(ctx, { from: file, to: `${file}.new` })),
  purgeFiles: change(makeWithdrawn, (ctx, file) => purgeFiles(ctx, { path: file })),
  moveVolume: change(
    async () => {
      const from = unique('VOLUME');
      await makeFile(from);
      return from;
    },
    (ctx, from) => moveVolume(ctx, { from, to: `${from}B` }),
  ),
  retireVolume: change(makeVolume, (ctx, name) => retireVolume(ctx, { name })),
  reinstateVolume: change(
    async () => {
      const name = await makeVolume();
      await retireVolume(app.ctx, { name });
      return name;
    },
    (ctx, name) => reinstateVolume(ctx, name),
  ),
  createToken: change(nothing, (ctx) => createToken(ctx, { name: 'bob', role: 'USER' })),
  revokeToken: change(makeToken, (ctx, id) => revokeToken(ctx, id)),
  setQuotaMember: change(nothing, (ctx) =>
    setQuotaMember(ctx, { quota: 'alice', kind: 'USER', name: unique('member'), isManager: false }),
  ),
  removeQuotaMember: change(makeMember, (ctx, name) => removeQuotaMember(ctx, { quota: 'alice', kind: 'USER', name })),
  addPathRule: change(nothing, (ctx) => addPathRule(ctx, { ...everybody, prefix: `/${unique('rule')}` })),
  removePathRule: change(makeRule, (ctx, prefix) => removePathRule(ctx, { ...everybody, prefix })),
  purgeUser: change(makeUser, (ctx, user) => purgeUser(ctx, user)),
  setQuota: change(nothing, (ctx) => setQuota(ctx, { user: unique('user'), size: 5n })),
  removeQuota: change(makeUser, (ctx, user) => removeQuota(ctx, user)),
  setDisk: change(nothing, (ctx) => setDisk(ctx, { mountpoint: `/mnt/${unique('disk')}`, size: 10n })),
  resizeRestoreDisk: change(makeDisk, (ctx, mountpoint) => resizeRestoreDisk(ctx, { mountpoint, size: 20n })),
  removeRestoreDisk: change(makeDisk, (ctx, mountpoint) => removeRestoreDisk(ctx, mountpoint)),
  setMedium: change(nothing, (ctx) => setMedium(ctx, { medium: 'lto-8', names: ['V00001'] })),
  addLibrary: change(nothing, (ctx) => addLibrary(ctx, library())),
  updateLibrary: change(makeLibrary, (ctx, name) => updateLibrary(ctx, { name, drives: 3 })),
  removeLibrary: change(makeLibrary, (ctx, name) => removeLibrary(ctx, name)),
  repairFindings: change(
    () => app.ctx.db.pool.query(`UPDATE quota SET used = 77 WHERE "user" = 'alice'`),
    (ctx) => repairFindings(ctx, { limit: 500 }),
  ),
  createWebhook: change(removeWebhooks, (ctx) =>
    createWebhook(ctx, { quota: 'alice', url: 'https://example.org/a?token=hidden' }),
  ),
  updateWebhook: change(makeWebhook, (ctx, id) => updateWebhook(ctx, { id, isEnabled: false })),
  rotateWebhookSecret: change(makeWebhook, (ctx, id) => rotateWebhookSecret(ctx, id)),
  testWebhook: change(makeWebhook, (ctx, id) => testWebhook(ctx, id)),
  removeWebhook: change(makeWebhook, (ctx, id) => removeWebhook(ctx, id)),
  importRows: change(nothing, (ctx) => importRows(ctx, [buildRow({ path: `/i/${unique('file')}` })])),
};

const audited = Object.keys(policy).filter((operation) => isChanging(operation as Operation));

test('the table contains each operation that changes something', () => {
  expect(audited.length).toBeGreaterThan(10);
  expect(audited.filter((operation) => !(operation in changes))).toEqual([]);
});

/** Returns all tables, tokens included. */
async function readEverything() {
  const { rows: apiTokens } = await app.ctx.db.pool.query('SELECT * FROM api_token ORDER BY id');
  return { ...(await dumpTables(app.ctx)), apiTokens };
}

test.each(Object.entries(changes))('%s is audited once, or refused and not done', async (operation, change) => {
  const given = (await change.prepare()) as never;
  const run = (caller: object) => change.run({ ...app.ctx, caller: { ...app.ctx.caller, ...caller } }, given);
  const asCarol = async () => {
    const { token } = await createToken(app.ctx, { name: 'carol', role: 'OPERATOR' });
    return { name: 'carol', way: 'token', tokenId: token.id, address: '192.0.2.7' };
  };
  const [carol, revoked] = [await asCarol(), await asCarol()];
  await revokeToken(app.ctx, revoked.tokenId);
  const before = await readEverything();

  await app.ctx.db.pool.query('INSERT INTO tests.refusing VALUES (true)');
  await expect(run({}).finally(() => app.ctx.db.pool.query('DELETE FROM tests.refusing'))).rejects.toThrow('no room');
  expect(await readEverything()).toEqual(before);

  if (!['revokeToken', 'removeQuota', 'purgeUser', 'repairFindings'].includes(operation)) {
    await expect(run(revoked)).rejects.toThrow('the token is no longer valid');
    expect(await readEverything()).toEqual(before);
  }

  if (audited.includes(operation)) {
    const newest = await newestId();
    const mallory = { name: 'mallory', roles: new Set<never>(), address: '192.0.2.9' };
    for (let n = 0; n < 3; n++) await expect(run(mallory)).rejects.toMatchObject({ code: 'FORBIDDEN' });
    expect(await rowsAfter(newest)).toMatchObject([
      { who: 'mallory', address: '192.0.2.9', operation, kind: 'NONE', object: '', given: '{}', count: 1 },
      { who: 'mallory', operation, object: '', result: 'FORBIDDEN', count: 2 },
    ]);
    expect(await readEverything()).toEqual(before);
  }

  const newest = await newestId();
  await run(carol);
  const rows = await rowsAfter(newest);
  // an operation of several transactions also records its start
  const results = ['repairFindings', 'purgeUser'].includes(operation) ? ['BEGUN', 'DONE'] : ['DONE'];
  expect(rows.map(({ operation: name, result }) => [name, result])).toEqual(results.map((each) => [operation, each]));
  expect(rows[0]).toMatchObject({ who: 'carol', way: 'token', tokenId: carol.tokenId, address: '192.0.2.7', count: 1 });
  expect(rows[0]?.object === '').toBe(['importRows', 'repairFindings'].includes(operation));
});

test('a row names the caller, its address, the operation and the result, on both protocols', async () => {
  const before = await newestId();
  const body = { quota: 'alice', patterns: '/a/', label: 'mine' };
  const { body: made } = await call(alice, 'POST', '/requests', { headers: alice.headers, body });
  const id = (made as [{ req_id: number }])[0].req_id;
  await cancel(alice, id);
  await call(alice, 'POST', '/requests', { headers: alice.headers, body: { ...body, quota: 'bob' } });
  await ask(
    alice,
    'mutation { suspend(input: { kind: VOLUME, name: "V00001", mode: IMMEDIATE }) { errors { code } } }',
  );
  const rows = await rowsAfter(before);
  const who = { who: 'alice', way: 'token', tokenId: expect.any(Number), address: '127.0.0.1', count: 1 };
  expect(rows).toMatchObject([
    { ...who, operation: 'createRequest', kind: 'REQUEST', object: String(id), result: 'DONE' },
    { ...who, operation: 'cancelRequest', kind: 'REQUEST', object: String(id), result: 'DONE' },
    { ...who, operation: 'createRequest', object: '', result: 'FORBIDDEN' },
    { ...who, operation: 'suspend', result: 'FORBIDDEN' },
  ]);
  expect(JSON.parse(rows[0]?.given ?? '')).toMatchObject({ quota: 'alice', pattern: '/a/', label: 'mine' });
});

test('anonymous callers are counted by address, and their credentials are not stored', async () => {
  const before = await newestId();
  for (let n = 0; n < 5; n++) {
    const headers = { Authorization: `Bearer tapegate_guess${n}` };
    expect((await call(app, 'GET', '/quota/alice', { headers })).status).toBe(401);
  }
  const rows = await rowsAfter(before);
  expect(rows.map(({ operation, way, result, address, count }) => [operation, way, result, address, count])).toEqual([
    ['identify', 'unknown', 'UNAUTHENTICATED', '127.0.0.1', 1],
    ['identify', 'unknown', 'UNAUTHENTICATED', '127.0.0.1', 4],
  ]);
  expect(JSON.stringify(rows.map(({ given }) => given))).not.toContain('guess');
});

test('refusals of anonymous callers are counted for each address, in few rows for many addresses', async () => {
  const refuse = async (address: string) => {
    const caller = { ...app.ctx.caller, name: '', way: 'open', address, roles: new Set<never>() } as const;
    await expect(cancelRequest({ ...app.ctx, caller }, 1)).rejects.toThrow();
  };
  const before = await newestId();
  for (let n = 0; n < 12; n++) for (let m = 0; m < 2; m++) await refuse(`192.0.2.${n}`);
  const counts = new Map<string | null, number>();
  for (const { address, count } of await rowsAfter(before)) counts.set(address, (counts.get(address) ?? 0) + count);
  expect([...counts.values()]).toEqual(Array(12).fill(2));

  const later = await newestId();
  for (let n = 0; n < 300; n++) await refuse(`198.51.${n >> 8}.${n & 255}`);
  const rows = await rowsAfter(later);
  expect(rows.length).toBeLessThan(50);
  expect(rows.reduce((sum, { count }) => sum + count, 0)).toBe(300);
});

test('calls that change nothing are not recorded', async () => {
  const { ctx } = app;
  const id = await makeRequest();
  const member = { quota: 'alice', kind: 'USER', name: unique('member'), isManager: false } as const;
  await setQuotaMember(ctx, member);
  await updateRequest(ctx, { id, label: 'same' });
  const before = await newestId();
  await setQuotaMember(ctx, member);
  await updateRequest(ctx, { id, label: 'same' });
  await retryRequest(ctx, { id });
  expect(await rowsAfter(before)).toEqual([]);
  await setQuotaMember(ctx, { ...member, isManager: true });
  await releaseFiles(ctx, { id, match: '/a/1' });
  await releaseFiles(ctx, { id, match: '/a/1' });
  await cancelRequest(ctx, id);
  await cancelRequest(ctx, id);
  await releaseFiles(ctx, { id, paths: ['/a/1'] }, { mayHaveEnded: true });
  const operations = (await rowsAfter(before)).map(({ operation }) => operation);
  expect(operations).toEqual(['setQuotaMember', 'releaseFiles', 'cancelRequest']);
});

test('many refusals of one caller do not hide those of another', async () => {
  const before = await newestId();
  const asker = (name: string) => ({ name, way: 'token', tokenId: undefined, address: '192.0.2.1' }) as const;
  const operations = Object.keys(policy) as (keyof typeof policy)[];
  for (const operation of operations) {
    app.ctx.refusals.record(asker('mallory'), { operation, kind: 'NONE', object: '' }, 'FORBIDDEN');
  }
  app.ctx.refusals.record(asker('carol'), { operation: 'suspend', kind: 'NONE', object: 'V1' }, 'FORBIDDEN');
  const rows = await rowsAfter(before);
  expect(rows.filter(({ who }) => who === 'carol')).toMatchObject([
    { operation: 'suspend', object: 'V1', address: '192.0.2.1' },
  ]);
  const counts = rows.map(({ who, count }) => (who === 'mallory' ? count : 0));
  expect(counts.reduce((sum, count) => sum + count, 0)).toBe(operations.length);
});

test('recorded input is cut, and invalid text does not break the audit', async () => {
  const before = await newestId();
  const files = Array.from({ length: 2000 }, (_, n) => `/long/${'x'.repeat(200)}${n}`);
  await createRequest(app.ctx, { quota: 'alice', files, label: 'many' });
  await expect(createRequest(app.ctx, { quota: 'alice', pattern: 'a\0b\ud800' })).rejects.toThrow();
  const rows = await rowsAfter(before);
  expect(rows.map(({ result }) => result)).toEqual(['DONE', 'INVALID_INPUT']);
  expect(rows[0]?.given.length).toBeLessThan(10_000);
  expect(JSON.parse(rows[0]?.given ?? '')).toMatchObject({ label: 'many', files: { count: 2000 } });
});

test('a suspension by the engine is audited once', async () => {
  const { mountpoint } = await setDisk(app.ctx, { mountpoint: '/mnt/failing', size: 10n });
  const before = await newestId();
  await suspendFailing(app.ctx, { kind: 'VOLUME', name: 'V00009' }, { problem: 'torn' });
  await suspendFailing(app.ctx, { kind: 'VOLUME', name: 'V00009' }, { problem: 'torn again' });
  await suspendDisk(app.ctx, mountpoint, 'gone');
  await suspendDisk(app.ctx, mountpoint, 'gone');
  const row = { who: 'system', way: 'system', operation: 'suspend', result: 'DONE' };
  expect(await rowsAfter(before)).toMatchObject([
    { ...row, kind: 'VOLUME', object: 'V00009' },
    { ...row, kind: 'DISK', object: mountpoint },
  ]);
});

test('the audit is append-only', async () => {
  const { pool } = app.ctx.db;
  for (const statement of ["UPDATE audit SET who = 'x'", 'DELETE FROM audit', 'TRUNCATE audit']) {
    await expect(pool.query(statement)).rejects.toThrow('audit is append-only');
  }
});

test('rows older than TAPEGATE_AUDIT_DAYS are removed', async () => {
  const at = app.ctx.db.clock.now();
  now = addSeconds(at, -401 * 86_400);
  for (let n = 0; n < 3; n++) await setQuota(app.ctx, { user: 'old', size: 1n });
  now = addSeconds(at, -399 * 86_400);
  await setQuota(app.ctx, { user: 'young', size: 1n });
  now = undefined;
  await pruneAudit(app.ctx, new AbortController().signal);
  const { rows } = await app.ctx.db.pool.query(`SELECT object FROM audit WHERE at < now() - interval '398 days'`);
  expect(rows).toEqual([{ object: 'young' }]);
});

test('operators read the audit by GraphQL, in pages, filtered', async () => {
  const before = await newestId();
  const since = app.ctx.db.clock.now();
  const id = await makeRequest();
  const dave = { ...app.ctx, caller: { ...app.ctx.caller, name: 'dave' } };
  for (let n = 0; n < 5; n++) await setRequestPriority(dave, { id, priority: n });
  const mine = `objectKind: REQUEST, object: "${id}", caller: "dave", operation: "setRequestPriority", since: "${since}Z"`;
  const read = async (page: string) => {
    const query = `{ auditEntries(${mine}, ${page}) { totalCount edges { node { caller object input result } } pageInfo { hasNextPage endCursor } } }`;
    return (await askData<{ auditEntries: Connection<{ input: string }> }>(app, query)).auditEntries;
  };
  const first = await read('first: 3');
  const second = await read(`first: 3, after: "${first.pageInfo.endCursor}"`);
  expect([first.totalCount, first.pageInfo.hasNextPage, second.pageInfo.hasNextPage]).toEqual([5, true, false]);
  const given = [...first.edges, ...second.edges].map(({ node }) => JSON.parse(node.input).priority);
  expect(given).toEqual([0, 1, 2, 3, 4]);
  expect(await askData(app, '{ auditEntries(until: "2000-01-01") { totalCount } }')).toEqual({
    auditEntries: { totalCount: 0 },
  });
  expect((await ask(alice, '{ auditEntries { totalCount } }')).errors?.[0]?.extensions?.code).toBe('FORBIDDEN');
  // a read is not audited, but its refusal is
  expect((await rowsAfter(before)).at(-1)).toMatchObject({ who: 'alice', operation: 'listAudit', result: 'FORBIDDEN' });
});

test('a path rule is recorded under its normalized prefix', async () => {
  const before = await newestId();
  await addPathRule(app.ctx, { ...everybody, prefix: '/kept/so/' });
  await removePathRule(app.ctx, { ...everybody, prefix: '/kept/so/' });
  await expect(removePathRule(app.ctx, { ...everybody, prefix: '/kept/so/' })).rejects.toThrow('"/kept/so"');
  await addPathRule(app.ctx, { ...everybody, prefix: '/' });
  await removePathRule(app.ctx, { ...everybody, prefix: '/' });
  await expect(addPathRule(app.ctx, { ...everybody, prefix: '' })).rejects.toThrow(
    'prefix must not be empty: use / for all paths',
  );
  const rows = (await rowsAfter(before)).map(({ operation, object, result }) => [operation, object, result]);
  expect(rows).toEqual([
    ['addPathRule', '/kept/so', 'DONE'],
    ['removePathRule', '/kept/so', 'DONE'],
    ['removePathRule', '/kept/so', 'NOT_FOUND'],
    ['addPathRule', '/', 'DONE'],
    ['removePathRule', '/', 'DONE'],
    ['addPathRule', '/', 'INVALID_INPUT'],
  ]);
});

test('filters with an unknown operation or an empty time span are refused', async () => {
  const refusalOf = async (args: string) => (await ask(app, `{ auditEntries(${args}) { totalCount } }`)).errors;
  const told = (message: string, field: string) => [{ message, extensions: { code: 'INVALID_INPUT', field } }];
  const [unknown] = (await refusalOf('operation: "creatRequest"')) ?? [];
  expect(unknown?.extensions).toMatchObject({ code: 'INVALID_INPUT', field: 'operation' });
  expect(unknown?.message).toMatch(
    /^operation "creatRequest" is unknown; the operations are addLibrary, addPathRule, adopt, .*, createRequest, .*, verifyFiles/,
  );
  expect(await refusalOf('since: "2026-02-01", until: "2026-01-01"')).toMatchObject(
    told('until must be later than since (2026-02-01T00:00:00), not 2026-01-01T00:00:00', 'until'),
  );
  await askData(
    app,
    '{ auditEntries(operation: "identify", since: "2026-01-01", until: "2026-01-02") { totalCount } }',
  );
});

test('the audit knows each operation that the source code records', () => {
  const directory = path.join(packageRoot, 'src');
  const files = readdirSync(directory, { recursive: true, encoding: 'utf8' }).filter(
    (file) => file.endsWith('.ts') && !file.startsWith('generated'),
  );
  const names = files.flatMap((file) => [
    ...readFileSync(path.join(directory, file), 'utf8').matchAll(/\boperation: '(\w+)'/g),
  ]);
  expect(names.length).toBeGreaterThan(20);
  expect(names.filter(([, name = '']) => findUnknownOperation(name) !== undefined)).toEqual([]);
});
