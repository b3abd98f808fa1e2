/** Expensive queries of callers that send many at once wait for each other, and other calls do not wait for them. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createToken } from '../../src/operations/access/tokens.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { sendGraphql } from '../support/graphql.js';
import type { Gateway } from '../support/http.js';
import { whileLocked } from '../support/locks.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp({
    config: { access: { auth: new Set(['token']) } },
    limits: { graphqlWork: 5000, callerGraphqlWork: 3000 },
  });
  for (const user of ['eve', 'ann']) await addQuota(app.ctx, user, 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/large/a' }]);
});
afterAll(() => app.close());

async function as(name: string): Promise<Gateway> {
  return { url: app.url, token: (await createToken(app.ctx, { name, role: 'USER' })).secret } as Gateway;
}

/** Costs 2101, and reads the catalogue. */
const LARGE = '{ tapeFiles(first: 1000) { edges { node { path } } } }';
const SMALL = '{ caller { name } }';

test('expensive queries of one caller run within its share, and all of them are answered', async () => {
  const [eve, ann] = [await as('eve'), await as('ann')];
  const { answers } = await whileLocked(app, 'LOCK TABLE tape_file IN ACCESS EXCLUSIVE MODE', async (waiters) => {
    const all = Array.from({ length: 8 }, () => sendGraphql(eve, { query: LARGE }));
    await waiters(1);
    expect((await sendGraphql(ann, { query: SMALL })).body).toEqual({ data: { caller: { name: 'ann' } } });
    const own = sendGraphql(ann, { query: LARGE }); // there is room for one query of another caller
    await waiters(2);
    const { rowCount } = await app.ctx.db.pool.query(
      `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    );
    expect(rowCount).toBe(2);
    return { answers: [...all, own] };
  });
  for (const { status, body } of await Promise.all(answers)) {
    expect([status, body]).toEqual([200, { data: { tapeFiles: { edges: [{ node: { path: '/large/a' } }] } } }]);
  }
});

test('a mutation does not wait for expensive queries, and a query of a disconnected caller takes no slot', async () => {
  const eve = await as('eve');
  await whileLocked(app, 'LOCK TABLE tape_file IN ACCESS EXCLUSIVE MODE', async (waiters) => {
    const gone = new AbortController();
    const ask = (call: { signal?: AbortSignal } = {}) => sendGraphql(eve, { query: LARGE }, call);
    const first = ask();
    await waiters(1);
    const second = ask({ signal: gone.signal }).catch(() => 'gone');
    gone.abort();
    expect(await second).toBe('gone');
    const changed = await sendGraphql(eve, { query: 'mutation { cancelRequest(id: 999) { __typename } }' });
    expect(changed.body).toEqual({ data: { cancelRequest: { __typename: 'NotFound' } } });
    void first.catch(() => {});
  });
  expect((await sendGraphql(eve, { query: SMALL })).status).toBe(200);
});
