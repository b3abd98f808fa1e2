/** A user is forgotten: nothing of the person is left anywhere, and what is left are figures. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { lockCatalogue } from '../../src/database/locks.js';
import { transaction } from '../../src/database/transaction.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import { setMember } from '../../src/operations/access/members.js';
import { setPathRule } from '../../src/operations/access/path-rules.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { setQuota } from '../../src/operations/quotas/quotas.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { updateRequest } from '../../src/operations/requests/update.js';
import { suspend } from '../../src/operations/suspensions.js';
import { forgetUser } from '../../src/operations/users/forget.js';
import { personalData } from '../../src/operations/users/personal-data.js';
import { queueWebhooks } from '../../src/operations/webhooks/news.js';
import { createWebhook } from '../../src/operations/webhooks/webhooks.js';
import { packageRoot } from '../../src/package-root.js';
import { Refusals } from '../../src/refusals.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { call } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

const UPDATE = 'mutation ($input: UpdateRequestInput!) { updateRequest(input: $input) { __typename } }';

let app: TestApp;

beforeAll(async () => {
  app = await startApp({});
  await addFiles(app.ctx, [{ path: '/a/1' }]);
  await addQuota(app.ctx, 'lab', 10n ** 9n);
});
afterAll(() => app.close());

/** Every row of every table, tokens and the audit included. */
async function readAll(): Promise<string[]> {
  await app.ctx.refusals.settle();
  const { rows: tables } = await app.ctx.db.pool.query<{ name: string }>(
    `SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' AND tablename <> '_prisma_migrations'`,
  );
  const all: string[] = [];
  for (const { name } of tables) {
    const { rows } = await app.ctx.db.pool.query<{ row: string }>(
      `SELECT row_to_json(t)::text AS row FROM "${name}" t`,
    );
    all.push(...rows.map(({ row }) => `${name} ${row}`));
  }
  return all;
}

/** Puts a person wherever one may be. */
async function leaveTraces(user: string, email: string): Promise<{ id: number; secret: string }> {
  const { ctx } = app;
  await setQuota(ctx, { user, size: 10n ** 9n, email: `once-${user}@beeble.example` });
  await setQuota(ctx, { user, size: 10n ** 9n, email, notes: `call ${user} at ${email}` });
  const caller = { ...ctx.caller, name: user, way: 'token' as const, address: '192.0.2.44' };
  const own = { quota: user, pattern: '/a/', label: `of ${user}`, notifyOnLastFile: email, notifyOnFirstFile: '' };
  const id = await createRequest({ ...ctx, caller }, own);
  const other = await createRequest(
    { ...ctx, caller },
    { quota: 'lab', pattern: '/a/', label: 'ours', notifyOnLastFile: `at-home-${email}` },
  );
  await updateRequest({ ...ctx, caller }, { id: other, notifyOnLastFile: `on-leave-${email}` });
  await createWebhook({ ...ctx, caller }, { quota: user, url: `https://${user}.example/`, note: `of ${user}` });
  await createWebhook({ ...ctx, caller }, { quota: 'lab', url: 'https://lab.example/', note: `of ${user}` });
  for (const each of [id, other]) await cancelRequest({ ...ctx, caller }, each);
  await queueWebhooks(ctx, new AbortController().signal);
  await expect(createRequest({ ...ctx, caller }, { ...own, retention: '2000-01-01' })).rejects.toThrow();
  await setMember(ctx, { quota: 'lab', kind: 'USER', name: user, isManager: true });
  await setPathRule(ctx, { prefix: '/a', action: 'LIST', kind: 'USER', name: user });
  await setPathRule(ctx, { prefix: '/a', action: 'LIST', kind: 'USER', name: `service:${user}` });
  await suspend(ctx, { kind: 'USER', name: user, mode: 'HELD', reason: 'away' });
  await suspend(ctx, { kind: 'VOLUME', name: 'V00001', mode: 'HELD', reason: `ask ${email}` });
  const { secret } = await createToken({ ...ctx, caller }, { name: user, role: 'USER', note: `of ${user}` });
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

test('nothing of the person is left in any row of any table, and the token is good no longer', async () => {
  const user = 'zaphodia';
  const { id, secret } = await leaveTraces(user, 'zaphodia@beeble.example');
  const isOfUser = (row: string) => row.includes('zaphodia') || row.includes('beeble') || row.includes('192.0.2.44');
  const before = (await readAll()).filter(isOfUser).map((row) => row.split(' ')[0]);
  const tables = [
    'api_token',
    'audit',
    'legacy_use',
    'notification',
    'path_rule',
    'quota',
    'quota_member',
    'request',
    'suspension',
    'webhook',
    'webhook_message',
  ];
  expect([...new Set(before)].sort()).toEqual(tables);
  const { pseudonym } = await forgetUser(app.ctx, user);
  expect(pseudonym).toMatch(/^forgotten-[0-9a-f]{8}$/);
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
  expect(rows.at(-1)).toEqual({ operation: 'forgetUser', who: 'system', object: pseudonym });
  const { rows: letters } = await app.ctx.db.pool.query(`SELECT FROM notification WHERE state = 'PENDING'`);
  expect(letters).toHaveLength(0);
});

test('what others have said of its requests goes, without the quota being named', async () => {
  const { ctx } = app;
  await setQuota(ctx, { user: 'lunkwill', size: 10n ** 9n });
  const id = await createRequest(ctx, { quota: 'lunkwill', pattern: '/a/' });
  const asMaker = { ...ctx, caller: { ...ctx.caller, name: 'lunkwill', way: 'token' as const } };
  const ofLab = await createRequest(asMaker, { quota: 'lab', pattern: '/a/' });
  for (const request of [id, ofLab]) {
    await askData(app, UPDATE, {
      input: { id: request, label: 'for Lunk Will', notifyOnFirstFile: `w${request}@old.example` },
    });
    await askData(app, UPDATE, { input: { id: request, label: 'ours', notifyOnFirstFile: null } });
    await suspend(ctx, { kind: 'VOLUME', name: 'V00001', mode: 'HELD', reason: `as w${request}@old.example asked` });
    await askData(app, `mutation { cancelRequest(id: ${request}) { __typename } }`);
  }
  const other = await createRequest(ctx, { quota: 'lab', pattern: '/a/', label: 'stays' });
  await cancelRequest(ctx, other);
  await forgetUser(ctx, 'lunkwill');
  const rows = await readAll();
  expect(rows.filter((row) => /unk ?will|old\.example/i.test(row))).toEqual([]);
  expect(rows.filter((row) => /^audit .*"label": ?"stays"/.test(row))).toHaveLength(1);
});

/** As many as that wait for the catalogue, which an import has. */
async function awaitWaiting(count: number): Promise<void> {
  await waitFor(`${count} that wait for the catalogue`, async () => {
    const { rows } = await app.ctx.db.pool.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM pg_locks
       WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    );
    return rows[0]?.count === count;
  });
}

test('what the user has under way before is not written afterwards: it counts as made', async () => {
  const { ctx } = app;
  await setQuota(ctx, { user: 'majikthise', size: 10n ** 9n });
  const caller = { ...ctx.caller, name: 'majikthise', way: 'proxy' as const, roles: new Set(['user' as const]) };
  let order: Promise<unknown>[] = [];
  const { id } = await transaction(ctx.db.pool, 'importRows', async (tx) => {
    await lockCatalogue(tx, 'alone');
    const wish = { quota: 'lab', pattern: '/a/', label: 'majikthise 555', notifyOnLastFile: 'majikthise@home.example' };
    const made = createRequest({ ...ctx, caller }, wish);
    await awaitWaiting(1);
    order = [made, forgetUser(ctx, 'majikthise').catch((error) => error)];
    await awaitWaiting(2);
    return { id: made };
  });
  const [, forgotten] = await Promise.all(order);
  expect(forgotten).toMatchObject({ code: 'IN_USE' });
  await cancelRequest(ctx, await id);
  await forgetUser(ctx, 'majikthise');
  expect((await readAll()).filter((row) => row.includes('majikthise'))).toEqual([]);
});

test('what the user asks for meanwhile is refused, and the refusal does not bring the name back', async () => {
  const { ctx } = app;
  await setQuota(ctx, { user: 'vroomfondel', size: 10n ** 9n });
  const caller = { ...ctx.caller, name: 'vroomfondel', way: 'proxy' as const, roles: new Set(['user' as const]) };
  let order: Promise<unknown>[] = [];
  await transaction(ctx.db.pool, 'importRows', async (tx) => {
    await lockCatalogue(tx, 'alone');
    const forgotten = forgetUser(ctx, 'vroomfondel');
    await awaitWaiting(1);
    const wish = { quota: 'vroomfondel', pattern: '/a/', label: 'vroomfondel 555', notifyOnLastFile: 'v@home.example' };
    order = [forgotten, createRequest({ ...ctx, caller }, wish).catch((error) => error)];
    await awaitWaiting(2);
  });
  const [, refused] = await Promise.all(order);
  expect(refused).toMatchObject({ code: 'UNKNOWN_USER' });
  expect((await readAll()).filter((row) => /vroomfondel|v@home/.test(row))).toEqual([]);
});

test('what another process has counted does not bring the name back', async () => {
  const { ctx } = app;
  await setQuota(ctx, { user: 'agrajag', size: 1n });
  const other = new Refusals(ctx.db, ctx.log, ctx.now);
  const unlisten = ctx.events.onRing('forgotten', () => other.forgetNames());
  const asker = { name: 'agrajag', way: 'proxy', tokenId: undefined, address: '192.0.2.45' } as const;
  for (let n = 0; n < 3; n++) other.note(asker, { operation: 'cancelRequest', kind: 'NONE', object: '' }, 'NOT_FOUND');
  const rung = new Promise<void>((resolve) => ctx.events.onRing('forgotten', resolve));
  await forgetUser(ctx, 'agrajag');
  await rung;
  unlisten();
  await other.settle();
  const rows = await readAll();
  expect(rows.filter((row) => row.includes('agrajag') || row.includes('192.0.2.45'))).toEqual([]);
  expect(rows.filter((row) => row.includes('"result":"NOT_FOUND","count":2'))).toHaveLength(1);
});

test('a second time is told, and does not bring the name back', async () => {
  await setQuota(app.ctx, { user: 'trillian', size: 1n });
  await forgetUser(app.ctx, 'trillian');
  await expect(forgetUser(app.ctx, 'trillian')).rejects.toThrow('there is nothing of user "trillian"');
  expect((await readAll()).filter((row) => row.includes('trillian'))).toEqual([]);
});

test('what only the user might see stays closed to all others', async () => {
  const { ctx } = app;
  await setQuota(ctx, { user: 'slartibartfast', size: 1n });
  await addFiles(ctx, [{ path: '/fjords/1' }]);
  await setPathRule(ctx, { prefix: '/fjords', action: 'LIST', kind: 'USER', name: 'slartibartfast' });
  await forgetUser(ctx, 'slartibartfast');
  const { secret } = await createToken(ctx, { name: 'lab', role: 'USER' });
  for (const headers of [{}, { Authorization: `Bearer ${secret}` }]) {
    expect((await call(app, 'GET', '/files?match=fjords', { headers })).body).toEqual([{ count: 0, files: [] }]);
  }
});

/** By which a row tells whether it was written since. */
async function readVersions(): Promise<Map<bigint, string>> {
  const { rows } = await app.ctx.db.pool.query<{ id: bigint; version: string }>(
    'SELECT id, xmin::text AS version FROM audit ORDER BY id',
  );
  return new Map(rows.map(({ id, version }) => [id, version]));
}

test('a short name, a part of many others, has the rows alone written that have it as a whole', async () => {
  const { ctx } = app;
  const asE = { ...ctx, caller: { ...ctx.caller, name: 'e', way: 'token' as const, address: '192.0.2.46' } };
  await setQuota(ctx, { user: 'e', size: 1n, email: 'e@short.example' });
  await setMember(ctx, { quota: 'lab', kind: 'USER', name: 'e', isManager: false });
  await setPathRule(ctx, { prefix: '/e', action: 'LIST', kind: 'USER', name: 'service:e' });
  await suspend(asE, { kind: 'VOLUME', name: 'V00001', mode: 'HELD', reason: 'see e, everywhere' });
  await suspend(ctx, { kind: 'VOLUME', name: 'V00001', mode: 'HELD', reason: 'ask e@short.example' });
  const before = await readVersions();
  const { auditRows } = await forgetUser(ctx, 'e');
  const after = await readVersions();
  expect([...before].filter(([id, version]) => after.get(id) !== version)).toHaveLength(5);
  expect(auditRows).toBe(5);
  expect((await readAll()).filter((row) => /"e"|:e"|e@short|192.0.2.46|see e/.test(row))).toEqual([]);
});

test('an audit of several steps is done to its end', async () => {
  const { ctx } = app;
  for (let step = 0; step < 3; step++) {
    await setQuota(ctx, { user: 'hotblack', size: BigInt(step), email: `hotblack${step}@desiato.example` });
    await suspend(ctx, {
      kind: 'VOLUME',
      name: 'V00001',
      mode: 'HELD',
      reason: `hotblack0@desiato.example knows ${step}`,
    });
    await ctx.db.pool.query(`SELECT setval('audit_id_seq', nextval('audit_id_seq') + 15000)`);
  }
  expect(await forgetUser(ctx, 'hotblack')).toMatchObject({ auditRows: 6 });
  expect((await readAll()).filter((row) => /hotblack|desiato/.test(row))).toEqual([]);
});

test('what broke off halfway is done to its end a second time, addresses of before included', async () => {
  const { ctx } = app;
  const { pool } = ctx.db;
  await leaveTraces('gargravarr', 'gargravarr@vortex.example');
  const rowsOf = async () => (await readAll()).filter((row) => /gargravarr|vortex|192.0.2.44/.test(row));
  // once where the addresses go, then among the user's own rows, then in the last transaction
  for (const condition of [`OLD.kind = 'VOLUME'`, `OLD.operation = 'createRequest'`, undefined]) {
    const table = condition ? 'audit' : 'quota';
    await pool.query(`CREATE FUNCTION fall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'it falls'; END $$;
      CREATE TRIGGER fall BEFORE UPDATE ${condition ? '' : 'OF "user"'} ON ${table} FOR EACH ROW WHEN (${condition ?? 'true'}) EXECUTE FUNCTION fall()`);
    try {
      await expect(forgetUser(ctx, 'gargravarr')).rejects.toThrow('it falls');
    } finally {
      await pool.query(`DROP TRIGGER fall ON ${table}; DROP FUNCTION fall`);
    }
    expect(await rowsOf()).not.toEqual([]);
  }
  await forgetUser(ctx, 'gargravarr');
  expect(await rowsOf()).toEqual([]);
});

test('a user with live requests is not forgotten, and nothing is changed', async () => {
  await addQuota(app.ctx, 'arthur', 10n ** 9n);
  const id = await createRequest(app.ctx, { quota: 'arthur', pattern: '/a/' });
  await expect(forgetUser(app.ctx, 'arthur')).rejects.toMatchObject({ code: 'IN_USE' });
  const [quota] = (await call(app, 'GET', '/quota/arthur')).body as { email: string }[];
  expect(quota).toMatchObject({ email: 'arthur@example.org' });
  await cancelRequest(app.ctx, id);
  await forgetUser(app.ctx, 'arthur');
});

test('an address that another user has as well stays with that one', async () => {
  await setQuota(app.ctx, { user: 'ford', size: 1n, email: 'group@example.org' });
  await setQuota(app.ctx, { user: 'prefect', size: 1n, email: 'group@example.org' });
  await forgetUser(app.ctx, 'ford');
  const [quota] = (await call(app, 'GET', '/quota/prefect')).body as object[];
  expect(quota).toMatchObject({ email: 'group@example.org' });
});

test('the doctor finds what was written of a person afterwards, and takes it away', async () => {
  await addQuota(app.ctx, 'marvin', 10n ** 9n);
  const id = await createRequest(app.ctx, { quota: 'marvin', pattern: '/a/' });
  await cancelRequest(app.ctx, id);
  const { pseudonym } = await forgetUser(app.ctx, 'marvin');
  await app.ctx.db.pool.query(`UPDATE request SET notify_on_last_file = 'marvin@example.org' WHERE id = $1`, [id]);
  const find = async (repair: boolean) => {
    const found: string[] = [];
    await examine(app.ctx, { repair, checksums: false, adopt: false }, ({ kind, thing }) =>
      found.push(`${kind} ${thing}`),
    );
    return found.filter((fault) => fault.startsWith('user-remains'));
  };
  const fault = `user-remains user ${pseudonym}`;
  expect([await find(false), await find(true), await find(false)]).toEqual([[fault], [fault], []]);
  expect((await readAll()).filter((row) => row.includes('marvin'))).toEqual([]);
});

test('every text of the schema says whether it may hold something of a person', () => {
  const schema = readFileSync(path.join(packageRoot, 'prisma/schema.prisma'), 'utf8');
  const texts = [...schema.matchAll(/^model (\w+) \{\n(.*?)^\}/gms)].flatMap(([, model, body = '']) =>
    [...body.matchAll(/^ {2}(\w+) +(String|Json)\b/gm)].map(([, field]) => `${model}.${field}`),
  );
  expect(texts.length).toBeGreaterThan(40);
  expect(Object.keys(personalData).sort()).toEqual(texts.sort());
});

// the last one: it takes the app's own token as well
test('tokens of the name are good no longer, of whatever role', async () => {
  const { ctx } = app;
  const roles = ['USER', 'SERVICE', 'VIEWER', 'OPERATOR'] as const;
  const made = await Promise.all(
    roles.map((role) => createToken(ctx, { name: 'kurt', role, quotas: role === 'SERVICE' ? ['lab'] : [] })),
  );
  const other = await createToken(ctx, { name: 'kurt2', role: 'OPERATOR' });
  await forgetUser(ctx, 'kurt');
  const statusOf = async (secret: string) =>
    (await call(app, 'GET', '/quota/lab', { headers: { Authorization: `Bearer ${secret}` } })).status;
  expect(await Promise.all(made.map(({ secret }) => statusOf(secret)))).toEqual([401, 401, 401, 401]);
  expect(await statusOf(other.secret)).toBe(200);
});
