/** Purging a user removes all personal data of that user, and no data of other users. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { lockCatalogue } from '../../src/db/locks.js';
import { transaction } from '../../src/db/transaction.js';
import { setQuotaMember } from '../../src/domain/access/members.js';
import { addPathRule } from '../../src/domain/access/path-rules.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { Refusals } from '../../src/domain/audit/audit.js';
import type { Context } from '../../src/domain/context.js';
import { suspend } from '../../src/domain/health/suspensions.js';
import { queueWebhooks } from '../../src/domain/notifications/webhooks/news.js';
import { createWebhook } from '../../src/domain/notifications/webhooks/webhooks.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { updateRequest } from '../../src/domain/requests/update.js';
import { purgeUser } from '../../src/domain/users/purge.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { call } from '../support/rest.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const app = useApp({}, async () => {
  await addFiles(app.ctx, [{ path: '/a/1' }, { path: '/a2/2', volume: 'V00002' }]);
  for (const user of ['lab', 'dora', 'eve']) await addQuota(app.ctx, user, 10n ** 9n);
});

const held = { kind: 'VOLUME', name: 'V00001', mode: 'IMMEDIATE' } as const;

/** Returns every row of every table, tokens and audit included. */
async function readAll(): Promise<string[]> {
  await app.ctx.refusals.settle();
  const { rows: tables } = await app.ctx.db.pool.query<{ name: string }>(
    `SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' AND tablename <> '_prisma_migrations'`,
  );
  const selects = tables.map(({ name }) => `SELECT '${name} ' || row_to_json(t)::text AS row FROM "${name}" t`);
  const { rows } = await app.ctx.db.pool.query<{ row: string }>(selects.join(' UNION ALL '));
  return rows.map(({ row }) => row);
}

/** Returns a context whose caller has this name. The caller is an operator by default. */
function namedContext(name: string, more: Partial<Context['caller']> = {}): Context {
  return { ...app.ctx, caller: { ...app.ctx.caller, name, way: 'token', ...more } };
}
const userContext = (name: string) => namedContext(name, { roles: new Set(['user']) });

async function expectNothingLeft(traces: RegExp): Promise<void> {
  expect((await readAll()).filter((row) => traces.test(row))).toEqual([]);
}

/** Stores personal data in each table that can contain such data. */
async function leaveTraces(user: string, email: string): Promise<{ id: number; secret: string }> {
  const { ctx } = app;
  await setQuota(ctx, { user, size: 10n ** 9n, email: `once-${user}@beeble.example` });
  await setQuota(ctx, { user, size: 10n ** 9n, email, notes: `call ${user} at ${email}` });
  const asUser = namedContext(user, { address: '192.0.2.44' });
  const own = { quota: user, pattern: '/a/', label: `of ${user}`, notifyOnLastFile: email, notifyOnFirstFile: '' };
  const id = await createRequest(asUser, own);
  const other = await createRequest(asUser, {
    quota: 'lab',
    pattern: '/a/',
    label: 'ours',
    notifyOnLastFile: `at-home-${email}`,
  });
  await updateRequest(asUser, { id: other, notifyOnLastFile: `on-leave-${email}` });
  await createWebhook(asUser, { quota: user, url: `https://${user}.example/`, note: `of ${user}` });
  await createWebhook(asUser, { quota: 'lab', url: 'https://lab.example/', note: `of ${user}` });
  for (const each of [id, other]) await cancelRequest(asUser, each);
  await queueWebhooks(ctx, new AbortController().signal);
  await expect(createRequest(asUser, { ...own, retention: '2000-01-01' })).rejects.toThrow();
  await setQuotaMember(ctx, { quota: 'lab', kind: 'USER', name: user, isManager: true });
  await addPathRule(ctx, { prefix: '/a', action: 'LIST', kind: 'USER', name: user });
  await addPathRule(ctx, { prefix: '/a', action: 'LIST', kind: 'USER', name: `service:${user}` });
  await suspend(ctx, { kind: 'USER', name: user, mode: 'IMMEDIATE', reason: 'away' });
  await suspend(ctx, { ...held, reason: `ask ${email}` });
  const { secret } = await createToken(asUser, { name: user, role: 'USER', note: `of ${user}` });
  await createToken(ctx, { name: 'portal', role: 'SERVICE', quotas: [user, 'lab'] });
  await ctx.db.pool.query(
    `INSERT INTO legacy_use (day, endpoint, address, "user", uses, last_at) VALUES (now(), 'GET /files', '192.0.2.44', $1, 3, now())`,
    [user],
  );
  await ctx.db.pool.query(
    `INSERT INTO notification (request_id, kind, recipient, subject, body, message_id, state, next_try_at, last_error, created_at)
     SELECT r.id, 'LAST_FILE', $1, 'for ' || $2, 'dear ' || $2, 'm' || r.id, 'PENDING', now(), '550 ' || $1, now() FROM request r WHERE r.id = ANY($3)`,
    [email, user, [id, other]],
  );
  return { id, secret };
}

test('no row of any table contains the user any more, and its token is refused', async () => {
  const user = 'zaphodia';
  const { id, secret } = await leaveTraces(user, 'zaphodia@beeble.example');
  const isOfUser = (row: string) => row.includes('zaphodia') || row.includes('beeble') || row.includes('192.0.2.44');
  const before = (await readAll()).filter(isOfUser).map((row) => row.split(' ')[0]);
  expect([...new Set(before)].sort().join(' ')).toBe(
    'api_token audit legacy_use notification path_rule quota quota_member request suspension webhook webhook_message',
  );
  const { pseudonym } = await purgeUser(app.ctx, user);
  expect(pseudonym).toMatch(/^purged-[0-9a-f]{8}$/);
  expect((await readAll()).filter(isOfUser)).toEqual([]);
  const [request] = (await call(app, 'GET', `/requests/${id}`)).body as { quota: string; label: string }[];
  expect(request).toMatchObject({ quota: pseudonym, label: pseudonym });
  const asked = await call(app, 'GET', '/quota/lab', { headers: { Authorization: `Bearer ${secret}` } });
  expect(asked.status).toBe(401);
  const { rows } = await app.ctx.db.pool.query(
    `SELECT operation, who, object FROM audit WHERE who = $1 OR object = $1 ORDER BY id`,
    [pseudonym],
  );
  expect(rows).toContainEqual({ operation: 'createRequest', who: pseudonym, object: String(id) });
  expect(rows.at(-1)).toEqual({ operation: 'purgeUser', who: 'system', object: pseudonym });
  const { rows: emails } = await app.ctx.db.pool.query(`SELECT FROM notification WHERE state = 'PENDING'`);
  expect(emails).toHaveLength(0);
});

test('labels and addresses that others gave to its requests are removed', async () => {
  const { ctx } = app;
  await setQuota(ctx, { user: 'lunkwill', size: 10n ** 9n });
  const id = await createRequest(ctx, { quota: 'lunkwill', pattern: '/a/' });
  const ofLab = await createRequest(namedContext('lunkwill'), { quota: 'lab', pattern: '/a/' });
  for (const request of [id, ofLab]) {
    await updateRequest(ctx, { id: request, label: 'for Lunk Will', notifyOnFirstFile: `w${request}@old.example` });
    await updateRequest(ctx, { id: request, label: 'ours', notifyOnFirstFile: null });
    await cancelRequest(ctx, request);
  }
  const other = await createRequest(ctx, { quota: 'lab', pattern: '/a/', label: 'stays' });
  await cancelRequest(ctx, other);
  await purgeUser(ctx, 'lunkwill');
  const rows = await readAll();
  expect(rows.filter((row) => /unk ?will|old\.example/i.test(row))).toEqual([]);
  expect(rows.filter((row) => /^audit .*"label": ?"stays"/.test(row))).toHaveLength(1);
});

/** Waits until `count` transactions wait for the lock of the catalogue. */
async function awaitWaiting(count: number): Promise<void> {
  await waitFor(`${count} to wait for the catalogue`, async () => {
    const { rows } = await app.ctx.db.pool.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM pg_locks
       WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    );
    return rows[0]?.count === count;
  });
}

test('a pending request of the user counts as open, and refuses the purge', async () => {
  const { ctx } = app;
  await setQuota(ctx, { user: 'majikthise', size: 10n ** 9n });
  let order: Promise<unknown>[] = [];
  const { id } = await transaction(ctx.db.pool, 'importRows', async (tx) => {
    await lockCatalogue(tx, 'alone');
    const made = createRequest(userContext('majikthise'), { quota: 'lab', pattern: '/a/', label: 'majikthise 555' });
    await awaitWaiting(1);
    order = [made, purgeUser(ctx, 'majikthise').catch((error) => error)];
    await awaitWaiting(2);
    return { id: made };
  });
  const [, forgotten] = await Promise.all(order);
  expect(forgotten).toMatchObject({ code: 'IN_USE' });
  await cancelRequest(ctx, await id);
  await purgeUser(ctx, 'majikthise');
  await expectNothingLeft(/majikthise/);
});

test('a request of the user during the purge is refused, and does not store its name again', async () => {
  const { ctx } = app;
  await setQuota(ctx, { user: 'vroomfondel', size: 10n ** 9n });
  let order: Promise<unknown>[] = [];
  await transaction(ctx.db.pool, 'importRows', async (tx) => {
    await lockCatalogue(tx, 'alone');
    const forgotten = purgeUser(ctx, 'vroomfondel');
    await awaitWaiting(1);
    const input = {
      quota: 'vroomfondel',
      pattern: '/a/',
      label: 'vroomfondel 555',
      notifyOnLastFile: 'v@home.example',
    };
    order = [forgotten, createRequest(userContext('vroomfondel'), input).catch((error) => error)];
    await awaitWaiting(2);
  });
  const [, refused] = await Promise.all(order);
  expect(refused).toMatchObject({ code: 'UNKNOWN_USER' });
  await expectNothingLeft(/vroomfondel|v@home/);
});

test('refusals that another process has counted do not store the name again', async () => {
  const { ctx } = app;
  await setQuota(ctx, { user: 'agrajag', size: 1n });
  const other = new Refusals(ctx.db, ctx.log, ctx.now);
  const unlisten = ctx.events.onNotify('purged', () => other.clearNames());
  const asker = { name: 'agrajag', way: 'proxy', tokenId: undefined, address: '192.0.2.45' } as const;
  for (let n = 0; n < 3; n++)
    other.record(asker, { operation: 'cancelRequest', kind: 'NONE', object: '' }, 'NOT_FOUND');
  const rung = new Promise<void>((resolve) => ctx.events.onNotify('purged', resolve));
  await purgeUser(ctx, 'agrajag');
  await rung;
  unlisten();
  await other.settle();
  const rows = await readAll();
  expect(rows.filter((row) => row.includes('agrajag') || row.includes('192.0.2.45'))).toEqual([]);
  expect(rows.filter((row) => row.includes('"result":"NOT_FOUND","count":2'))).toHaveLength(1);
});

test('a second purge is refused, and does not store the name again', async () => {
  await setQuota(app.ctx, { user: 'trillian', size: 1n });
  await purgeUser(app.ctx, 'trillian');
  await expect(purgeUser(app.ctx, 'trillian')).rejects.toThrow('there is no data about user "trillian"');
  await expectNothingLeft(/trillian/);
});

test('files that only the user could see stay hidden', async () => {
  const { ctx } = app;
  await setQuota(ctx, { user: 'slartibartfast', size: 1n });
  await addFiles(ctx, [{ path: '/fjords/1' }]);
  await addPathRule(ctx, { prefix: '/fjords', action: 'LIST', kind: 'USER', name: 'slartibartfast' });
  await purgeUser(ctx, 'slartibartfast');
  const { secret } = await createToken(ctx, { name: 'lab', role: 'USER' });
  for (const headers of [{}, { Authorization: `Bearer ${secret}` }]) {
    expect((await call(app, 'GET', '/files?match=fjords', { headers })).body).toEqual([{ count: 0, files: [] }]);
  }
});

/** Returns the version of each audit row. Any write changes the version of a row. */
async function readVersions(): Promise<Map<bigint, string>> {
  const { rows } = await app.ctx.db.pool.query<{ id: bigint; version: string }>(
    'SELECT id, xmin::text AS version FROM audit ORDER BY id',
  );
  return new Map(rows.map(({ id, version }) => [id, version]));
}

test('for a short name only rows that contain it as a whole are written', async () => {
  const { ctx } = app;
  await setQuota(ctx, { user: 'e', size: 1n, email: 'e@short.example' });
  await setQuotaMember(ctx, { quota: 'lab', kind: 'USER', name: 'e', isManager: false });
  await addPathRule(ctx, { prefix: '/e', action: 'LIST', kind: 'USER', name: 'service:e' });
  await suspend(namedContext('e', { address: '192.0.2.46' }), { ...held, reason: 'see e, everywhere' });
  await suspend(ctx, { ...held, reason: 'ask e@short.example' });
  const before = await readVersions();
  const { auditRows } = await purgeUser(ctx, 'e');
  const after = await readVersions();
  expect([...before].filter(([id, version]) => after.get(id) !== version)).toHaveLength(5);
  expect(auditRows).toBe(5);
  await expectNothingLeft(/"e"|:e"|e@short|192.0.2.46|see e/);
});

test('a long audit is processed in several steps', async () => {
  const { ctx } = app;
  for (let step = 0; step < 3; step++) {
    await setQuota(ctx, { user: 'hotblack', size: BigInt(step), email: 'hotblack@desiato.example' });
    await suspend(ctx, { ...held, reason: `hotblack@desiato.example knows ${step}` });
    await ctx.db.pool.query(`SELECT setval('audit_id_seq', nextval('audit_id_seq') + 15000)`);
  }
  expect(await purgeUser(ctx, 'hotblack')).toMatchObject({ auditRows: 6 });
  await expectNothingLeft(/hotblack|desiato/);
});

/**
 * Makes updates of a table fail while `work` runs: updates of rows that met `condition`, or updates of the column
 * "user".
 */
async function whileFailing(table: string, condition: string | undefined, work: () => Promise<void>): Promise<void> {
  const { pool } = app.ctx.db;
  await pool.query(`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'it fails'; END $$;
    CREATE TRIGGER fail BEFORE UPDATE ${condition ? '' : 'OF "user"'} ON ${table} FOR EACH ROW WHEN (${condition ?? 'true'}) EXECUTE FUNCTION fail()`);
  await work().finally(() => pool.query(`DROP TRIGGER fail ON ${table}; DROP FUNCTION fail`));
}

test('a purge that failed halfway is completed the next time', async () => {
  const { ctx } = app;
  const { secret } = await leaveTraces('gargravarr', 'gargravarr@vortex.example');
  const rowsOf = async () => (await readAll()).filter((row) => /gargravarr|vortex|192.0.2.44/.test(row));
  // the purge fails first at the addresses, then at the rows of the user, then in its last transaction
  for (const condition of [`OLD.kind = 'VOLUME'`, `OLD.operation = 'createRequest'`, undefined]) {
    await whileFailing(condition ? 'audit' : 'quota', condition, async () => {
      await expect(purgeUser(ctx, 'gargravarr')).rejects.toThrow('it fails');
    });
    expect(await rowsOf()).not.toEqual([]);
    const asked = await call(app, 'GET', '/quota/lab', { headers: { Authorization: `Bearer ${secret}` } });
    expect(asked.status).toBe(401);
  }
  await purgeUser(ctx, 'gargravarr');
  expect(await rowsOf()).toEqual([]);
});

test('a user with open requests is not purged, and nothing changes', async () => {
  await addQuota(app.ctx, 'arthur', 10n ** 9n);
  const id = await createRequest(app.ctx, { quota: 'arthur', pattern: '/a/' });
  await expect(purgeUser(app.ctx, 'arthur')).rejects.toMatchObject({ code: 'IN_USE' });
  const [quota] = (await call(app, 'GET', '/quota/arthur')).body as { email: string }[];
  expect(quota).toMatchObject({ email: 'arthur@example.org' });
  await cancelRequest(app.ctx, id);
  await purgeUser(app.ctx, 'arthur');
});

test('another user keeps the same address', async () => {
  await setQuota(app.ctx, { user: 'ford', size: 1n, email: 'group@example.org' });
  await setQuota(app.ctx, { user: 'prefect', size: 1n, email: 'group@example.org' });
  const id = await createRequest(app.ctx, { quota: 'prefect', files: ['/x/6'], notifyOnLastFile: 'group@example.org' });
  await purgeUser(app.ctx, 'ford');
  expect(await readNotify(id)).toMatchObject({ notifyOnLastFile: 'group@example.org' });
  const [quota] = (await call(app, 'GET', '/quota/prefect')).body as object[];
  expect(quota).toMatchObject({ email: 'group@example.org' });
});

test('each text column is classified by the personal data that it may contain', () => {
  const schema = readFileSync(path.join(packageRoot, 'prisma/schema.prisma'), 'utf8');
  const texts = [...schema.matchAll(/^model (\w+) \{\n(.*?)^\}/gms)].flatMap(([, model, body = '']) =>
    [...body.matchAll(/^ {2}(\w+) +(String|Json)\b/gm)].map(([, field]) => `${model}.${field}`),
  );
  expect(texts.length).toBeGreaterThan(40);
  const page = readFileSync(path.join(packageRoot, 'docs/operators/personal-data-columns.txt'), 'utf8');
  const listed = [...page.matchAll(/\b([A-Z]\w+\.[a-z]\w*)\b/g)].map(([, column]) => column);
  expect(listed.sort()).toEqual(texts.sort());
});

async function readNotify(id: number): Promise<object> {
  const query = `{ request(requestId: ${id}) { state notifyOnFirstFile notifyOnLastFile } }`;
  return (await askData<{ request: object }>(app, query)).request;
}

/** Returns the callers and email addresses that the audit contains for a request. */
async function givenFor(id: number): Promise<object[]> {
  const { rows } = await app.ctx.db.pool.query(
    `SELECT who, given->>'notifyOnLastFile' AS last FROM audit WHERE kind = 'REQUEST' AND object = $1 AND given ? 'notifyOnLastFile' ORDER BY id`,
    [String(id)],
  );
  return rows;
}

const purge = async (user: string) => (await purgeUser(app.ctx, user)).pseudonym;

/**
 * Returns the queued email of a request for unknown files. Such a request is complete at once, and no engine sends the
 * email.
 */
async function emailOf(id: number): Promise<object | undefined> {
  const { rows } = await app.ctx.db.pool.query(
    'SELECT recipient, state, body FROM notification WHERE request_id = $1',
    [id],
  );
  return rows[0];
}

test('an address that a portal gives for all its users stays with the other users', async () => {
  const done = 'done@portal.example';
  await setQuota(app.ctx, { user: 'carol', size: 10n ** 9n });
  const portal = namedContext('portal');
  const ofCarol = await createRequest(portal, { quota: 'carol', files: ['/x/3'], notifyOnLastFile: done });
  const ofEve = await createRequest(portal, { quota: 'eve', files: ['/x/4'], notifyOnLastFile: done });
  await suspend(app.ctx, { ...held, reason: `tell ${done}` });
  await cancelRequest(app.ctx, ofCarol);
  const pseudonym = await purge('carol');
  expect(await readNotify(ofEve)).toEqual({ state: 'COMPLETED', notifyOnFirstFile: null, notifyOnLastFile: done });
  expect(await emailOf(ofEve)).toEqual({ recipient: done, state: 'PENDING', body: expect.stringContaining('/x/4') });
  expect(await givenFor(ofEve)).toEqual([{ who: 'portal', last: done }]);
  expect(await readNotify(ofCarol)).toMatchObject({ notifyOnLastFile: null });
  expect(await emailOf(ofCarol)).toEqual({ recipient: pseudonym, state: 'REJECTED', body: '' });
  expect(await givenFor(ofCarol)).toEqual([{ who: 'portal', last: pseudonym }]);
  const { rows } = await app.ctx.db.pool.query(`SELECT reason FROM suspension WHERE name = 'V00001'`);
  expect(rows).toEqual([{ reason: `tell ${done}` }]);
});

test('quotas of others keep what the user has set', async () => {
  const { ctx } = app;
  await setQuota(namedContext('boss'), { user: 'fred', size: 10n ** 9n, email: 'fred@old.example' });
  const id = await createRequest(ctx, { quota: 'fred', files: ['/x/5'], notifyOnLastFile: '' });
  await setQuota(ctx, { user: 'fred', size: 10n ** 9n, email: 'fred@new.example' });
  await purge('boss');
  expect(await readNotify(id)).toMatchObject({ notifyOnLastFile: 'fred@old.example' });
  expect(await givenFor(id)).toEqual([{ who: 'system', last: '' }]);
});

test('the address of the user is removed from requests and reasons of others', async () => {
  const { ctx } = app;
  await setQuota(ctx, { user: 'gus', size: 10n ** 9n, email: 'gus@now.example' });
  const ofEve = await createRequest(ctx, { quota: 'eve', files: ['/x/7'], notifyOnLastFile: 'gus@now.example' });
  await suspend(ctx, { kind: 'VOLUME', name: 'V00002', mode: 'IMMEDIATE', reason: 'ask gus@now.example' });
  const pseudonym = await purge('gus');
  expect(await readNotify(ofEve)).toEqual({ state: 'COMPLETED', notifyOnFirstFile: null, notifyOnLastFile: null });
  expect(await emailOf(ofEve)).toMatchObject({ recipient: pseudonym, state: 'REJECTED' });
  expect(await givenFor(ofEve)).toEqual([{ who: 'system', last: pseudonym }]);
  const { rows } = await ctx.db.pool.query(`SELECT reason FROM suspension WHERE name = 'V00002'`);
  expect(rows).toEqual([{ reason: `ask ${pseudonym}` }]);
});

// the last test, because it also revokes the app's token
test('tokens of all roles with this name are refused', async () => {
  const { ctx } = app;
  const roles = ['USER', 'SERVICE', 'VIEWER', 'OPERATOR'] as const;
  const made = await Promise.all(
    roles.map((role) => createToken(ctx, { name: 'kurt', role, quotas: role === 'SERVICE' ? ['lab'] : [] })),
  );
  const other = await createToken(ctx, { name: 'kurt2', role: 'OPERATOR' });
  await purgeUser(ctx, 'kurt');
  const statusOf = async (secret: string) =>
    (await call(app, 'GET', '/quota/lab', { headers: { Authorization: `Bearer ${secret}` } })).status;
  expect(await Promise.all(made.map(({ secret }) => statusOf(secret)))).toEqual([401, 401, 401, 401]);
  expect(await statusOf(other.secret)).toBe(200);
});
