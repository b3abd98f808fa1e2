/** Queries that cost much, of callers that ask for many at once: they wait for each other, and nobody else does. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { WorkTurns } from '../../graphql/work-turns.js';
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

/** Statements that wait for a lock. */
async function countBlocked(): Promise<number> {
  const { rows } = await app.ctx.db.pool.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
  );
  return rows[0]?.count ?? 0;
}

test('of large queries of one caller no more are run than its share, and all are answered', async () => {
  const [eve, ann] = [await as('eve'), await as('ann')];
  const { answers } = await whileLocked(app, 'LOCK TABLE tape_file IN ACCESS EXCLUSIVE MODE', async (waiters) => {
    const all = Array.from({ length: 8 }, () => sendGraphql(eve, { query: LARGE }));
    await waiters(1);
    expect((await sendGraphql(ann, { query: SMALL })).body).toEqual({ data: { caller: { name: 'ann' } } });
    const own = sendGraphql(ann, { query: LARGE }); // there is room for one of somebody else
    await waiters(2);
    expect(await countBlocked()).toBe(2);
    return { answers: [...all, own] };
  });
  for (const { status, body } of await Promise.all(answers)) {
    expect([status, body]).toEqual([200, { data: { tapeFiles: { edges: [{ node: { path: '/large/a' } }] } } }]);
  }
});

test('what changes something has turns of its own, and a query whose sender has gone takes none', async () => {
  const eve = await as('eve');
  await whileLocked(app, 'LOCK TABLE tape_file IN ACCESS EXCLUSIVE MODE', async (waiters) => {
    const gone = new AbortController();
    const ask = (signal?: AbortSignal) =>
      fetch(`${app.url}/graphql`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${eve.token}` },
        body: JSON.stringify({ query: LARGE }),
        ...(signal && { signal }),
      });
    const first = ask();
    await waiters(1);
    const second = ask(gone.signal).catch(() => 'gone');
    gone.abort();
    expect(await second).toBe('gone');
    const changed = await sendGraphql(eve, { query: 'mutation { cancelRequest(id: 999) { __typename } }' });
    expect(changed.body).toEqual({ data: { cancelRequest: { __typename: 'NotFound' } } });
    void first.catch(() => {});
  });
  expect((await sendGraphql(eve, { query: SMALL })).status).toBe(200);
});

test('callers take turns, each in its own order, and whoever gives up is passed over', async () => {
  const turns = new WorkTurns({ all: 10, one: 6 });
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const begin = (name: string, cost: number, wanted?: AbortSignal) =>
    turns
      .begin(name[0] ?? '', cost, () => wanted)
      .then((end) => {
        begun.push(name);
        ends.set(name, end);
      });
  const end = async (name: string) => {
    ends.get(name)?.();
    ends.get(name)?.(); // a second time is none
    await new Promise((resolve) => setImmediate(resolve));
    await new Promise((resolve) => setImmediate(resolve));
  };
  const gone = new AbortController();
  void begin('a1', 20); // more than there is: alone
  await Promise.resolve();
  const givenUp = begin('a2', 6, gone.signal);
  for (const name of ['a3', 'a4']) void begin(name, 4);
  for (const name of ['b1', 'b2']) void begin(name, 4);
  gone.abort();
  await expect(givenUp).rejects.toThrow('nobody waits for it any more');
  await expect(begin('c1', 1, gone.signal)).rejects.toThrow('nobody waits for it any more');
  expect(begun).toEqual(['a1']);
  await end('a1');
  expect(begun).toEqual(['a1', 'a3', 'b1']);
  await end('a3');
  expect(begun).toEqual(['a1', 'a3', 'b1', 'a4']);
  await end('b1');
  expect(begun).toEqual(['a1', 'a3', 'b1', 'a4', 'b2']);
  await end('a4');
  await end('b2');
  await begin('d1', 10);
  expect(begun.at(-1)).toBe('d1');
});
