/** A user is forgotten, and others lose nothing: what stood in its requests may be theirs as well. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createToken } from '../../src/operations/access/tokens.js';
import { setQuota } from '../../src/operations/quotas/quotas.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { updateRequest } from '../../src/operations/requests/update.js';
import { suspend } from '../../src/operations/suspensions.js';
import { forgetUser } from '../../src/operations/users/forget.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData, type GraphqlAnswer, sendGraphql } from '../support/graphql.js';

let app: TestApp;

beforeAll(async () => {
  app = await startApp({});
  await addFiles(
    app.ctx,
    ['V00001', 'V00002'].map((volume) => ({ path: `/y/${volume}`, volume })),
  );
  for (const user of ['dora', 'eve']) await addQuota(app.ctx, user, 10n ** 9n);
});
afterAll(() => app.close());

const CREATE = `mutation ($input: CreateRequestInput!) { createRequest(input: $input) {
  ... on Request { requestId } ... on Failure { message } } }`;
const UPDATE = `mutation ($input: UpdateRequestInput!) { updateRequest(input: $input) {
  ... on Request { requestId } ... on Failure { message } } }`;

/** Asks as whoever has the token. @returns the id of the request */
async function change(secret: string, query: string, input: object): Promise<number> {
  const answer = await sendGraphql(
    app,
    { query, variables: { input } },
    { headers: { Authorization: `Bearer ${secret}` } },
  );
  const [result] = Object.values((answer.body as GraphqlAnswer & { data: Record<string, { requestId: number }> }).data);
  expect(result).toEqual({ requestId: expect.any(Number) });
  return (result as { requestId: number }).requestId;
}

async function tokenOf(name: string, quotas?: string[]): Promise<string> {
  return (await createToken(app.ctx, { name, role: quotas ? 'SERVICE' : 'USER', quotas: quotas ?? [] })).secret;
}

async function told(id: number): Promise<object> {
  const query = `{ request(id: ${id}) { state notifyOnFirstFile notifyOnLastFile } }`;
  return (await askData<{ request: object }>(app, query)).request;
}

/** Of the audit, in order: by whom, and what was given for mail. */
async function givenFor(id: number): Promise<object[]> {
  const { rows } = await app.ctx.db.pool.query(
    `SELECT who, given->>'notifyOnLastFile' AS last FROM audit WHERE kind = 'REQUEST' AND object = $1 AND given ? 'notifyOnLastFile' ORDER BY id`,
    [String(id)],
  );
  return rows;
}

async function forget(user: string): Promise<string> {
  const query = `mutation { forgetUser(user: "${user}") { ... on ForgottenUser { pseudonym } ... on Failure { message } } }`;
  const { forgetUser: result } = await askData<{ forgetUser: { pseudonym: string } }>(app, query);
  expect(result).toEqual({ pseudonym: expect.stringMatching(/^forgotten-/) });
  return result.pseudonym;
}

/** That nothing of the request is in the catalogue is mail at once, which nobody sends here. */
async function letterOf(id: number): Promise<object | undefined> {
  const { rows } = await app.ctx.db.pool.query(
    'SELECT recipient, state, body FROM notification WHERE request_id = $1',
    [id],
  );
  return rows[0];
}

test('what a portal names for all its users goes on being told of the others', async () => {
  const done = 'done@portal.example';
  await setQuota(app.ctx, { user: 'carol', size: 10n ** 9n });
  const portal = await tokenOf('portal', ['carol', 'eve']);
  const ofCarol = await change(portal, CREATE, { quota: 'carol', files: ['/x/3'], notifyOnLastFile: done });
  const ofEve = await change(portal, CREATE, { quota: 'eve', files: ['/x/4'], notifyOnLastFile: done });
  await suspend(app.ctx, { kind: 'VOLUME', name: 'V00001', mode: 'HELD', reason: `tell ${done}` });
  await cancelRequest(app.ctx, ofCarol);
  const pseudonym = await forget('carol');
  expect(await told(ofEve)).toEqual({ state: 'COMPLETED', notifyOnFirstFile: null, notifyOnLastFile: done });
  expect(await letterOf(ofEve)).toEqual({ recipient: done, state: 'PENDING', body: expect.stringContaining('/x/4') });
  expect(await givenFor(ofEve)).toEqual([{ who: 'portal', last: done }]);
  expect(await told(ofCarol)).toMatchObject({ notifyOnLastFile: null });
  expect(await letterOf(ofCarol)).toEqual({ recipient: pseudonym, state: 'REJECTED', body: '' });
  expect(await givenFor(ofCarol)).toEqual([{ who: 'portal', last: pseudonym }]);
  const { rows } = await app.ctx.db.pool.query(`SELECT reason FROM suspension WHERE name = 'V00001'`);
  expect(rows).toEqual([{ reason: `tell ${done}` }]);
});

test('what somebody else has put on a request of the user stays in its own, and in what it has asked for', async () => {
  const [home, before] = ['dora.home@private.example', 'dora.before@private.example'];
  await setQuota(app.ctx, { user: 'carl', size: 10n ** 9n });
  await askData(
    app,
    'mutation { setMember(input: { quota: "dora", kind: USER, name: "carl", isManager: false }) { __typename } }',
  );
  const [carl, dora] = [await tokenOf('carl'), await tokenOf('dora')];
  const ofCarl = await change(carl, CREATE, { quota: 'dora', files: ['/x/1'] });
  const ofDora = await change(dora, CREATE, { quota: 'dora', files: ['/x/2'], notifyOnLastFile: before });
  await change(dora, UPDATE, { id: ofDora, notifyOnLastFile: home });
  for (const notifyOnLastFile of [before, home]) await change(dora, UPDATE, { id: ofCarl, notifyOnLastFile });
  await cancelRequest(app.ctx, ofCarl);
  const pseudonym = await forget('carl');
  expect(await told(ofDora)).toMatchObject({ notifyOnLastFile: home });
  const given = [before, home].map((last) => ({ who: 'dora', last }));
  expect(await givenFor(ofDora)).toEqual(given);
  expect(await told(ofCarl)).toMatchObject({ notifyOnLastFile: null });
  expect(await givenFor(ofCarl)).toEqual(given.map((row) => ({ ...row, last: pseudonym })));
});

test("what the user has set for others' quotas is theirs", async () => {
  const { ctx } = app;
  const asBoss = { ...ctx, caller: { ...ctx.caller, name: 'boss', way: 'token' as const } };
  await setQuota(asBoss, { user: 'fred', size: 10n ** 9n, email: 'fred@old.example' });
  const id = await createRequest(ctx, { quota: 'fred', files: ['/x/5'], notifyOnLastFile: '' });
  await setQuota(ctx, { user: 'fred', size: 10n ** 9n, email: 'fred@new.example' });
  await forget('boss');
  expect(await told(id)).toMatchObject({ notifyOnLastFile: 'fred@old.example' });
  expect(await givenFor(id)).toEqual([{ who: 'system', last: '' }]);
});

test("what was the user's quota's goes wherever it is, and what nobody else uses from all that is told", async () => {
  const { ctx } = app;
  await setQuota(ctx, { user: 'gus', size: 10n ** 9n, email: 'gus@before.example' });
  await setQuota(ctx, { user: 'gus', size: 10n ** 9n, email: 'gus@now.example' });
  const own = await createRequest(ctx, { quota: 'gus', files: ['/x/6'], notifyOnLastFile: 'gus@home.example' });
  const ofEve = await createRequest(ctx, {
    quota: 'eve',
    files: ['/x/7'],
    notifyOnFirstFile: 'gus@before.example',
    notifyOnLastFile: 'gus@now.example',
  });
  await suspend(ctx, { kind: 'VOLUME', name: 'V00002', mode: 'HELD', reason: 'ask gus@home.example' });
  await cancelRequest(ctx, own);
  const pseudonym = await forget('gus');
  expect(await told(ofEve)).toEqual({ state: 'COMPLETED', notifyOnFirstFile: null, notifyOnLastFile: null });
  expect(await letterOf(ofEve)).toMatchObject({ recipient: pseudonym, state: 'REJECTED' });
  expect(await givenFor(ofEve)).toEqual([{ who: 'system', last: pseudonym }]);
  const { rows } = await ctx.db.pool.query(`SELECT reason FROM suspension WHERE name = 'V00002'`);
  expect(rows).toEqual([{ reason: `ask ${pseudonym}` }]);
});

test('what somebody else uses by the time that forgetting is tried again stays', async () => {
  const { ctx } = app;
  const site = 'ops@site.example';
  await setQuota(ctx, { user: 'hal', size: 10n ** 9n });
  const own = await createRequest(ctx, { quota: 'hal', files: ['/x/8'], notifyOnLastFile: site });
  const ofEve = await createRequest(ctx, { quota: 'eve', files: ['/x/9'] });
  await cancelRequest(ctx, own);
  // in the last transaction
  await ctx.db.pool.query(`CREATE FUNCTION fall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'it falls'; END $$;
    CREATE TRIGGER fall BEFORE UPDATE OF "user" ON quota FOR EACH ROW EXECUTE FUNCTION fall()`);
  try {
    await expect(forgetUser(ctx, 'hal')).rejects.toThrow('it falls');
  } finally {
    await ctx.db.pool.query(`DROP TRIGGER fall ON quota; DROP FUNCTION fall`);
  }
  await updateRequest(ctx, { id: ofEve, notifyOnLastFile: site });
  await forget('hal');
  expect(await told(ofEve)).toMatchObject({ notifyOnLastFile: site });
  expect(await givenFor(ofEve)).toEqual([{ who: 'system', last: site }]);
});
