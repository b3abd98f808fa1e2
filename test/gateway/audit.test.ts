/** Who asked for which change: each one that is made has its row, in the same transaction, and what is refused is counted. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Context } from '../../src/context.js';
import { removeMember, setMember } from '../../src/operations/access/members.js';
import { removePathRule, setPathRule } from '../../src/operations/access/path-rules.js';
import { createToken, revokeToken } from '../../src/operations/access/tokens.js';
import { type Changing, isChanging } from '../../src/operations/audit/audited.js';
import { findUnknownOperation } from '../../src/operations/audit/names.js';
import { pruneAudit } from '../../src/operations/audit/prune.js';
import { forgetFiles } from '../../src/operations/catalogue/forgetting.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { setMedium } from '../../src/operations/catalogue/media.js';
import { renameFiles } from '../../src/operations/catalogue/renames.js';
import { reinstateVolume, retireVolume } from '../../src/operations/catalogue/retirements.js';
import { verifyAgain } from '../../src/operations/catalogue/verifications.js';
import { moveVolume } from '../../src/operations/catalogue/volume-moves.js';
import { reinstateFiles, withdrawFiles } from '../../src/operations/catalogue/withdrawals.js';
import { resizeDisk, setDisk } from '../../src/operations/disks/disks.js';
import { holdDisk } from '../../src/operations/disks/failing.js';
import { forgetDisk } from '../../src/operations/disks/remove.js';
import { repairFindings } from '../../src/operations/doctor/rows.js';
import { addLibrary } from '../../src/operations/libraries/add.js';
import { removeLibrary } from '../../src/operations/libraries/remove.js';
import { setLibrary } from '../../src/operations/libraries/set.js';
import { type Operation, policy } from '../../src/operations/policy.js';
import { setQuota } from '../../src/operations/quotas/quotas.js';
import { removeQuota } from '../../src/operations/quotas/remove.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { setPriority } from '../../src/operations/requests/priorities.js';
import { releaseFiles } from '../../src/operations/requests/releases.js';
import { retryRequest } from '../../src/operations/requests/retries.js';
import { updateRequest } from '../../src/operations/requests/update.js';
import { holdFailing, resume, suspend } from '../../src/operations/suspensions.js';
import { forgetUser } from '../../src/operations/users/forget.js';
import {
  createWebhook,
  removeWebhook,
  rotateWebhookSecret,
  setWebhook,
  testWebhook,
} from '../../src/operations/webhooks/webhooks.js';
import { packageRoot } from '../../src/package-root.js';
import { addSeconds } from '../../src/time.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota, buildRow } from '../support/factories.js';
import { ask, askData, type Connection } from '../support/graphql.js';
import { call } from '../support/rest.js';
import { dumpTables } from '../support/tables.js';

let app: TestApp;
let now: string | undefined;
let alice: { url: string; token: string; headers: { Authorization: string } };

beforeAll(async () => {
  app = await startApp({
    config: { access: { auth: new Set(['token']) } },
    now: () => now ?? app.ctx.db.clock.now(),
  });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/a/1' }, { path: '/a/2' }]);
  // nothing can be audited while there is a row in `refusing`
  await app.ctx.db.pool.query(`CREATE SCHEMA tests; CREATE TABLE tests.refusing (it bool);
    CREATE FUNCTION tests.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF EXISTS (SELECT FROM tests.refusing) THEN RAISE 'no room'; END IF; RETURN NEW; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION tests.refuse()`);
  const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  alice = { url: app.url, token: secret, headers: { Authorization: `Bearer ${secret}` } };
});
afterAll(() => app.close());

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

/** What was written since, oldest first; what is counted is written first. */
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

const make = () => createRequest(app.ctx, { quota: 'alice', pattern: '/a/' });
async function makeFailed(): Promise<number> {
  const id = await make();
  await app.ctx.db.pool.query(
    `UPDATE hold SET state = 'FAILED', error_class = 'MEDIA', error = 'torn' WHERE request_id = $1`,
    [id],
  );
  return id;
}
let serial = 0;
const unique = (word: string) => `${word}${++serial}`;

/** With nothing on it. */
async function makeVolume(): Promise<string> {
  const name = unique('EMPTY');
  await app.ctx.db.pool.query('INSERT INTO volume (name) VALUES ($1)', [name]);
  return name;
}

async function makeWebhook(): Promise<number> {
  await app.ctx.db.pool.query('DELETE FROM webhook');
  return (await createWebhook(app.ctx, { quota: 'alice', url: 'https://example.org/' })).webhook.id;
}

/** How each operation is prepared, and called with what that gives. */
interface Try<Given = never> {
  prepare?: () => Promise<Given>;
  run: (ctx: Context, given: Given) => Promise<unknown>;
}
const attempt = <Given>(it: Try<Given>) => it as unknown as Try;

const changes: Record<Changing, Try> & Record<string, Try> = {
  createRequest: attempt({ run: (ctx) => createRequest(ctx, { quota: 'alice', pattern: '/a/' }) }),
  updateRequest: attempt({ prepare: make, run: (ctx, id) => updateRequest(ctx, { id, label: 'x' }) }),
  cancelRequest: attempt({ prepare: make, run: (ctx, id) => cancelRequest(ctx, id) }),
  releaseFiles: attempt({ prepare: make, run: (ctx, id) => releaseFiles(ctx, { id, match: '/a/1' }) }),
  retryRequest: attempt({ prepare: makeFailed, run: (ctx, id) => retryRequest(ctx, { id }) }),
  setPriority: attempt({ prepare: make, run: (ctx, id) => setPriority(ctx, { id, priority: 7 }) }),
  suspend: attempt({ run: (ctx) => suspend(ctx, { kind: 'VOLUME', name: 'V00001', mode: 'HELD', reason: 'worn' }) }),
  resume: attempt({
    prepare: async () => {
      await suspend(app.ctx, { kind: 'VOLUME', name: 'V00001', mode: 'HELD', reason: 'worn' });
    },
    run: (ctx) => resume(ctx, { kind: 'VOLUME', name: 'V00001' }),
  }),
  verifyAgain: attempt({
    prepare: async () => {
      const path = `/bad/${unique('file')}`;
      await addFiles(app.ctx, [{ path, stage: 'UNVERIFIED', verified: null }]);
      await app.ctx.db.pool.query(
        `INSERT INTO verification (file_id, attempts, error_class, error, at) SELECT id, 1, 'MEDIA', 'bad', now() FROM tape_file WHERE path = $1`,
        [path],
      );
      return path;
    },
    run: (ctx, match) => verifyAgain(ctx, { match }),
  }),
  withdrawFiles: attempt({
    prepare: async () => {
      const path = `/w/${unique('file')}`;
      await addFiles(app.ctx, [{ path }]);
      return path;
    },
    run: (ctx, path) => withdrawFiles(ctx, { path }),
  }),
  reinstateFiles: attempt({
    prepare: async () => {
      const path = `/w/${unique('file')}`;
      await addFiles(app.ctx, [{ path }]);
      await withdrawFiles(app.ctx, { path });
      return path;
    },
    run: (ctx, path) => reinstateFiles(ctx, { path }),
  }),
  renameFiles: attempt({
    prepare: async () => {
      const path = `/w/${unique('file')}`;
      await addFiles(app.ctx, [{ path }]);
      return path;
    },
    run: (ctx, path) => renameFiles(ctx, { from: path, to: `${path}.new` }),
  }),
  forgetFiles: attempt({
    prepare: async () => {
      const path = `/w/${unique('file')}`;
      await addFiles(app.ctx, [{ path }]);
      await withdrawFiles(app.ctx, { path });
      return path;
    },
    run: (ctx, path) => forgetFiles(ctx, { path }),
  }),
  moveVolume: attempt({
    prepare: async () => {
      const from = unique('VOLUME');
      await addFiles(app.ctx, [{ path: `/w/${from}`, volume: from }]);
      return from;
    },
    run: (ctx, from) => moveVolume(ctx, { from, to: `${from}B` }),
  }),
  retireVolume: attempt({ prepare: makeVolume, run: (ctx, name) => retireVolume(ctx, { name }) }),
  reinstateVolume: attempt({
    prepare: async () => {
      const name = await makeVolume();
      await retireVolume(app.ctx, { name });
      return name;
    },
    run: (ctx, name) => reinstateVolume(ctx, name),
  }),
  createToken: attempt({ run: (ctx) => createToken(ctx, { name: 'bob', role: 'USER' }) }),
  revokeToken: attempt({
    prepare: async () => (await createToken(app.ctx, { name: 'bob', role: 'USER' })).token.id,
    run: (ctx, id) => revokeToken(ctx, id),
  }),
  setMember: attempt({
    run: (ctx) => setMember(ctx, { quota: 'alice', kind: 'USER', name: unique('member'), isManager: false }),
  }),
  removeMember: attempt({
    prepare: async () => {
      const name = unique('member');
      await setMember(app.ctx, { quota: 'alice', kind: 'USER', name, isManager: true });
      return name;
    },
    run: (ctx, name) => removeMember(ctx, { quota: 'alice', kind: 'USER', name }),
  }),
  setPathRule: attempt({
    run: (ctx) => setPathRule(ctx, { prefix: `/${unique('rule')}`, action: 'LIST', kind: 'EVERYBODY' }),
  }),
  removePathRule: attempt({
    prepare: async () => {
      const prefix = `/${unique('rule')}`;
      await setPathRule(app.ctx, { prefix, action: 'LIST', kind: 'EVERYBODY' });
      return prefix;
    },
    run: (ctx, prefix) => removePathRule(ctx, { prefix, action: 'LIST', kind: 'EVERYBODY' }),
  }),
  forgetUser: attempt({
    prepare: async () => (await setQuota(app.ctx, { user: unique('user'), size: 5n })).user,
    run: (ctx, user) => forgetUser(ctx, user),
  }),
  // what operators do with the database opened
  setQuota: attempt({ run: (ctx) => setQuota(ctx, { user: unique('user'), size: 5n }) }),
  removeQuota: attempt({
    prepare: async () => (await setQuota(app.ctx, { user: unique('user'), size: 5n })).user,
    run: (ctx, user) => removeQuota(ctx, user),
  }),
  setDisk: attempt({ run: (ctx) => setDisk(ctx, { mountpoint: `/mnt/${unique('disk')}`, size: 10n }) }),
  resizeDisk: attempt({
    prepare: async () => (await setDisk(app.ctx, { mountpoint: `/mnt/${unique('disk')}`, size: 10n })).mountpoint,
    run: (ctx, mountpoint) => resizeDisk(ctx, { mountpoint, size: 20n }),
  }),
  forgetDisk: attempt({
    prepare: async () => (await setDisk(app.ctx, { mountpoint: `/mnt/${unique('disk')}`, size: 10n })).mountpoint,
    run: (ctx, mountpoint) => forgetDisk(ctx, mountpoint),
  }),
  setMedium: attempt({
    run: (ctx) => setMedium(ctx, { medium: serial++ % 2 ? 'linear' : 'lto-8', names: ['V00001'] }),
  }),
  addLibrary: attempt({
    run: (ctx) => addLibrary(ctx, { name: unique('library'), kind: 'directory', settings: { folder: '/tapes' } }),
  }),
  setLibrary: attempt({
    prepare: async () => {
      const given = { name: unique('library'), kind: 'directory', settings: { folder: '/tapes' } };
      return (await addLibrary(app.ctx, given)).name;
    },
    run: (ctx, name) => setLibrary(ctx, { name, drives: 3 }),
  }),
  removeLibrary: attempt({
    prepare: async () => {
      const given = { name: unique('library'), kind: 'directory', settings: { folder: '/tapes' } };
      return (await addLibrary(app.ctx, given)).name;
    },
    run: (ctx, name) => removeLibrary(ctx, name),
  }),
  // the quota stays wrong where it could not be audited, and is mended by the next one
  repairFindings: attempt({
    prepare: () => app.ctx.db.pool.query(`UPDATE quota SET used = 77 WHERE "user" = 'alice'`),
    run: (ctx) => repairFindings(ctx, { limit: 500 }),
  }),
  createWebhook: attempt({
    prepare: async () => void (await app.ctx.db.pool.query('DELETE FROM webhook')),
    run: (ctx) => createWebhook(ctx, { quota: 'alice', url: 'https://example.org/a?token=hidden' }),
  }),
  setWebhook: attempt({ prepare: makeWebhook, run: (ctx, id) => setWebhook(ctx, { id, isEnabled: false }) }),
  rotateWebhookSecret: attempt({ prepare: makeWebhook, run: (ctx, id) => rotateWebhookSecret(ctx, id) }),
  testWebhook: attempt({ prepare: makeWebhook, run: (ctx, id) => testWebhook(ctx, id) }),
  removeWebhook: attempt({ prepare: makeWebhook, run: (ctx, id) => removeWebhook(ctx, id) }),
  importRows: attempt({ run: (ctx) => importRows(ctx, [buildRow({ path: `/i/${unique('file')}` })]) }),
};

test('every operation that changes something is tried here', () => {
  const known = Object.keys(policy).filter((operation) => isChanging(operation as Operation));
  expect(known.filter((operation) => !(operation in changes))).toEqual([]);
  expect(known.length).toBeGreaterThan(10);
});

describe.each(Object.entries(changes))('%s', (operation, { prepare, run }) => {
  test('what is done has one row, which says who asked', async () => {
    const given = (await prepare?.()) as never;
    const { token } = await createToken(app.ctx, { name: 'carol', role: 'OPERATOR' });
    const before = await newestId();
    const caller = { ...app.ctx.caller, name: 'carol', way: 'token' as const, tokenId: token.id, address: '192.0.2.7' };
    await run({ ...app.ctx, caller }, given);
    const rows = await rowsAfter(before);
    // what is one transaction after another says when it begins, too
    const results = ['repairFindings', 'forgetUser'].includes(operation) ? ['BEGUN', 'DONE'] : ['DONE'];
    expect(rows.map(({ operation: name, result }) => [name, result])).toEqual(results.map((each) => [operation, each]));
    expect(rows[0]).toMatchObject({ who: 'carol', way: 'token', tokenId: token.id, address: '192.0.2.7', count: 1 });
    expect(rows[0]?.object === '').toBe(['importRows', 'repairFindings'].includes(operation));
  });

  test.skipIf(['revokeToken', 'removeQuota', 'forgetUser', 'repairFindings'].includes(operation))(
    'by a token that was revoked meanwhile it is not done, and refused',
    async () => {
      const given = (await prepare?.()) as never;
      const { token } = await createToken(app.ctx, { name: 'carol', role: 'OPERATOR' });
      await revokeToken(app.ctx, token.id);
      const before = await dumpTables(app.ctx);
      const caller = {
        ...app.ctx.caller,
        name: 'carol',
        way: 'token' as const,
        tokenId: token.id,
        address: '192.0.2.7',
      };
      await expect(run({ ...app.ctx, caller }, given)).rejects.toThrow('by a token that is good no longer');
      expect(await dumpTables(app.ctx)).toEqual(before);
    },
  );

  test('what cannot be audited is not done', async () => {
    const given = (await prepare?.()) as never;
    const { pool } = app.ctx.db;
    await pool.query('INSERT INTO tests.refusing VALUES (true)');
    try {
      const before = await dumpTables(app.ctx);
      const tokens = async () => (await pool.query('SELECT * FROM api_token ORDER BY id')).rows;
      const known = await tokens();
      await expect(run(app.ctx, given)).rejects.toThrow('no room');
      expect(await dumpTables(app.ctx)).toEqual(before);
      expect(await tokens()).toEqual(known);
    } finally {
      await pool.query('DELETE FROM tests.refusing');
    }
  });
});

test.each(Object.keys(policy).filter((operation) => isChanging(operation as Operation)))(
  '%s: who may not is in the audit, once and with the number of the repeats',
  async (operation) => {
    const { prepare, run } = changes[operation as Changing];
    const given = (await prepare?.()) as never;
    const before = await newestId();
    const caller = { ...app.ctx.caller, name: 'mallory', roles: new Set<never>(), address: '192.0.2.9' };
    for (let n = 0; n < 5; n++) {
      await expect(run({ ...app.ctx, caller }, given)).rejects.toMatchObject({ code: 'FORBIDDEN' });
    }
    const rows = await rowsAfter(before);
    expect(rows).toMatchObject([
      { who: 'mallory', address: '192.0.2.9', operation, result: 'FORBIDDEN', count: 1 },
      { who: 'mallory', operation, object: '', result: 'FORBIDDEN', count: 4 },
    ]);
  },
);

test('what is asked over both protocols says who, from where, what and with what result', async () => {
  const before = await newestId();
  const body = { quota: 'alice', patterns: '/a/', label: 'mine' };
  const { body: made } = await call(alice, 'POST', '/requests', { headers: alice.headers, body });
  const id = (made as [{ req_id: number }])[0].req_id;
  await askData(alice, `mutation { cancelRequest(id: ${id}) { __typename } }`);
  await call(alice, 'POST', '/requests', { headers: alice.headers, body: { ...body, quota: 'bob' } });
  await ask(alice, 'mutation { suspend(input: { kind: VOLUME, name: "V00001", mode: HELD }) { __typename } }');
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

test('who is not known is counted by where it asks from, and nothing of what it shows is kept', async () => {
  const before = await newestId();
  for (let n = 0; n < 50; n++) {
    const headers = { Authorization: `Bearer tapegate_guess${n}` };
    expect((await call(app, 'GET', '/quota/alice', { headers })).status).toBe(401);
  }
  const rows = await rowsAfter(before);
  expect(rows.map(({ operation, way, result, address, count }) => [operation, way, result, address, count])).toEqual([
    ['identify', 'unknown', 'UNAUTHENTICATED', '127.0.0.1', 1],
    ['identify', 'unknown', 'UNAUTHENTICATED', '127.0.0.1', 49],
  ]);
  expect(JSON.stringify(rows.map(({ given }) => given))).not.toContain('guess');
});

test('whoever asks without showing anything is refused from where it asks, and stands for nobody else', async () => {
  const before = await newestId();
  for (let n = 0; n < 24; n++) {
    const caller = { ...app.ctx.caller, name: 'anybody', way: 'legacy', roles: new Set<never>() } as const;
    const address = `192.0.2.${n % 12}`;
    await expect(cancelRequest({ ...app.ctx, caller: { ...caller, address } }, 1)).rejects.toThrow();
  }
  const rows = await rowsAfter(before);
  const counts = new Map<string | null, number>();
  for (const { address, count } of rows) counts.set(address, (counts.get(address) ?? 0) + count);
  expect([...counts.values()]).toEqual(Array(12).fill(2));
});

test('refusals of hundreds who are not known within a minute are few rows, and none is lost from their number', async () => {
  const before = await newestId();
  for (let n = 0; n < 300; n++) {
    const address = `192.0.${n >> 8}.${n & 255}`;
    const caller = { ...app.ctx.caller, name: '', way: 'open', address, roles: new Set<never>() } as const;
    await expect(cancelRequest({ ...app.ctx, caller }, 1)).rejects.toThrow();
  }
  const rows = await rowsAfter(before);
  expect(rows.length).toBeLessThan(50);
  expect(rows.reduce((sum, { count }) => sum + count, 0)).toBe(300);
});

test('what changes nothing is not kept, however often it is asked for', async () => {
  const { ctx } = app;
  const id = await make();
  const member = { quota: 'alice', kind: 'USER', name: unique('member'), isManager: false } as const;
  await setMember(ctx, member);
  await updateRequest(ctx, { id, label: 'same' });
  const before = await newestId();
  await setMember(ctx, member);
  await updateRequest(ctx, { id, label: 'same' });
  await retryRequest(ctx, { id });
  expect(await rowsAfter(before)).toEqual([]);
  await setMember(ctx, { ...member, isManager: true });
  await releaseFiles(ctx, { id, match: '/a/1' });
  await releaseFiles(ctx, { id, match: '/a/1' });
  await cancelRequest(ctx, id);
  await cancelRequest(ctx, id);
  await releaseFiles(ctx, { id, paths: ['/a/1'] }, { mayHaveEnded: true });
  const operations = (await rowsAfter(before)).map(({ operation }) => operation);
  expect(operations).toEqual(['setMember', 'releaseFiles', 'cancelRequest']);
});

test('nobody who is refused in many ways hides who else is', async () => {
  const before = await newestId();
  const asker = (name: string) => ({ name, way: 'token', tokenId: undefined, address: '192.0.2.1' }) as const;
  const operations = Object.keys(policy) as (keyof typeof policy)[];
  for (const operation of operations) {
    app.ctx.refusals.note(asker('mallory'), { operation, kind: 'NONE', object: '' }, 'FORBIDDEN');
  }
  app.ctx.refusals.note(asker('carol'), { operation: 'suspend', kind: 'NONE', object: 'V1' }, 'FORBIDDEN');
  const rows = await rowsAfter(before);
  expect(rows.filter(({ who }) => who === 'carol')).toMatchObject([
    { operation: 'suspend', object: 'V1', address: '192.0.2.1' },
  ]);
  const hers = rows.filter(({ who }) => who === 'mallory');
  expect(hers.reduce((sum, { count }) => sum + count, 0)).toBe(operations.length);
});

test('what was given is cut, and takes no text that a database refuses', async () => {
  const before = await newestId();
  const files = Array.from({ length: 2000 }, (_, n) => `/long/${'x'.repeat(200)}${n}`);
  await createRequest(app.ctx, { quota: 'alice', files, label: 'many' });
  await expect(createRequest(app.ctx, { quota: 'alice', pattern: 'a\0b\ud800' })).rejects.toThrow();
  const rows = await rowsAfter(before);
  expect(rows.map(({ result }) => result)).toEqual(['DONE', 'INVALID_INPUT']);
  expect(rows[0]?.given.length).toBeLessThan(10_000);
  expect(JSON.parse(rows[0]?.given ?? '')).toMatchObject({ label: 'many', files: { count: 2000 } });
});

test('what the engine takes out of service is audited once, and what it finds held already is not', async () => {
  const { mountpoint } = await setDisk(app.ctx, { mountpoint: '/mnt/failing', size: 10n });
  const before = await newestId();
  await holdFailing(app.ctx, { kind: 'VOLUME', name: 'V00009' }, 'torn');
  await holdFailing(app.ctx, { kind: 'VOLUME', name: 'V00009' }, 'torn again');
  await holdDisk(app.ctx, mountpoint, 'gone');
  await holdDisk(app.ctx, mountpoint, 'gone');
  const held = { who: 'system', way: 'system', operation: 'suspend', result: 'DONE' };
  expect(await rowsAfter(before)).toMatchObject([
    { ...held, kind: 'VOLUME', object: 'V00009' },
    { ...held, kind: 'DISK', object: mountpoint },
  ]);
});

test('the audit is append-only', async () => {
  const { pool } = app.ctx.db;
  for (const statement of ["UPDATE audit SET who = 'x'", 'DELETE FROM audit', 'TRUNCATE audit']) {
    await expect(pool.query(statement)).rejects.toThrow('audit is append-only');
  }
});

test('what is older than AUDIT_DAYS goes, in steps, and nothing else', async () => {
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

test('operators read it by GraphQL, page by page, of whom and what they ask for', async () => {
  const before = await newestId();
  const since = app.ctx.db.clock.now();
  const id = await make();
  for (let n = 0; n < 5; n++)
    await setPriority({ ...app.ctx, caller: { ...app.ctx.caller, name: 'dave' } }, { id, priority: n });
  const mine = `objectKind: REQUEST, object: "${id}", who: "dave", operation: "setPriority", since: "${since}Z"`;
  const read = async (page: string) => {
    const query = `{ audit(${mine}, ${page}) { totalCount edges { node { who object given result } } pageInfo { hasNextPage endCursor } } }`;
    return (await askData<{ audit: Connection<{ given: string }> }>(app, query)).audit;
  };
  const first = await read('first: 3');
  const second = await read(`first: 3, after: "${first.pageInfo.endCursor}"`);
  expect([first.totalCount, first.pageInfo.hasNextPage, second.pageInfo.hasNextPage]).toEqual([5, true, false]);
  const given = [...first.edges, ...second.edges].map(({ node }) => JSON.parse(node.given).priority);
  expect(given).toEqual([0, 1, 2, 3, 4]);
  const none = await askData<{ audit: Connection<object> }>(
    app,
    `{ audit(until: "2000-01-01", object: "${id}") { totalCount } }`,
  );
  expect(none.audit.totalCount).toBe(0);
  expect((await ask(alice, '{ audit { totalCount } }')).errors?.[0]?.extensions?.code).toBe('FORBIDDEN');
  // who reads is not what is audited, but who may not is
  expect((await rowsAfter(before)).at(-1)).toMatchObject({ who: 'alice', operation: 'listAudit', result: 'FORBIDDEN' });
});

test('a rule is found in the audit by its folder, however that was written', async () => {
  const before = await newestId();
  const rule = { action: 'LIST', kind: 'EVERYBODY' } as const;
  await setPathRule(app.ctx, { ...rule, prefix: '/kept/so/' });
  await removePathRule(app.ctx, { ...rule, prefix: '/kept/so/' });
  await expect(removePathRule(app.ctx, { ...rule, prefix: '/kept/so/' })).rejects.toThrow('"/kept/so"');
  await setPathRule(app.ctx, { ...rule, prefix: '/' });
  await removePathRule(app.ctx, { ...rule, prefix: '/' });
  await expect(setPathRule(app.ctx, { ...rule, prefix: '' })).rejects.toThrow(
    'prefix must not be empty: / is everything',
  );
  const rows = (await rowsAfter(before)).map(({ operation, object, result }) => [operation, object, result]);
  expect(rows).toEqual([
    ['setPathRule', '/kept/so', 'DONE'],
    ['removePathRule', '/kept/so', 'DONE'],
    ['removePathRule', '/kept/so', 'NOT_FOUND'],
    ['setPathRule', '/', 'DONE'],
    ['removePathRule', '/', 'DONE'],
    ['setPathRule', '/', 'INVALID_INPUT'],
  ]);
});

test('a name that nothing has, and a time that ends before it begins, are told and not answered with nothing', async () => {
  const refusalOf = async (args: string) => (await ask(app, `{ audit(${args}) { totalCount } }`)).errors;
  const told = (message: string, field: string) => [{ message, extensions: { code: 'INVALID_INPUT', field } }];
  const unknown = (name: string, hint: string) =>
    told(`operation "${name}" is the name of nothing that is asked for: ${hint}`, 'operation');
  expect(await refusalOf('operation: "creatRequest"')).toMatchObject(unknown('creatRequest', 'is it createRequest?'));
  expect(await refusalOf('operation: "PathRule"')).toMatchObject(
    unknown('PathRule', 'is it listPathRules or setPathRule or removePathRule?'),
  );
  const [whole] = (await refusalOf('operation: "nosuch"')) ?? [];
  expect(whole?.message).toMatch(
    /asked for: there are addLibrary, adopt, archive, cancelRequest, .*, identify, .*, verifyAgain/,
  );
  expect(await refusalOf('since: "2026-02-01", until: "2026-01-01"')).toMatchObject(
    told('until must be later than where it begins, 2026-02-01T00:00:00, and is 2026-01-01T00:00:00', 'until'),
  );
  await askData(app, '{ audit(operation: "identify", since: "2026-01-01", until: "2026-01-02") { totalCount } }');
});

test('all that the program writes of has a name that the audit knows', () => {
  const folder = path.join(packageRoot, 'src');
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(
    (file) => file.endsWith('.ts') && !file.startsWith('generated'),
  );
  const names = files.flatMap((file) => [
    ...readFileSync(path.join(folder, file), 'utf8').matchAll(/\boperation: '(\w+)'/g),
  ]);
  expect(names.length).toBeGreaterThan(20);
  expect(names.filter(([, name = '']) => findUnknownOperation(name) !== undefined)).toEqual([]);
});
