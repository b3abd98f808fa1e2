/** Callers who wait for an import, or for what others have locked: what that keeps of the gateway, and what becomes of it when they go. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { Limits } from '../../src/config-limits.js';
import type { DatabaseOptions } from '../../src/database/client.js';
import { ADVISORY_SPACE, advisoryKeys } from '../../src/database/locks.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { ask } from '../support/graphql.js';
import { type Call, request, send } from '../support/http.js';
import { whileLocked } from '../support/locks.js';
import { get, makeRequest } from '../support/rest.js';
import { emptyTables } from '../support/tables.js';
import { waitFor } from '../support/wait.js';

const AS_AN_IMPORT = `SELECT pg_advisory_xact_lock(${ADVISORY_SPACE}, ${advisoryKeys.catalogue})`;

let first: TestApp;
let app: TestApp;
beforeAll(async () => {
  first = await startApp();
});
afterEach(() => app.close());
afterAll(() => first.close());

async function start(limits: Partial<Limits>, database: Partial<DatabaseOptions> = {}): Promise<void> {
  await emptyTables(first.ctx);
  app = await startBeside(first, { limits, database });
  await addQuota(app.ctx, 'alice', 1000n);
}

const labels = async () =>
  (await app.ctx.db.pool.query<{ label: string }>('SELECT label FROM request ORDER BY id')).rows.map(
    ({ label }) => label,
  );

/** Of the caller who shows nothing, as which the tests ask. */
const hasTurn = async () => (await get(app, '/quota/alice')).status !== 429;

/** What the gateway has been told by now it has heard of. */
const heardOf = () => send({ url: app.url }, '/health/live');

type Make = (path: string, signal: AbortSignal) => Promise<unknown>;

const byRest: Make = (path, signal) =>
  send({ url: app.url }, '/tape_control/api/v1/requests', { body: [{ quota: 'alice', files: [path] }], signal });

const MAKE = 'mutation ($path: String!) { createRequest(input: { quota: "alice", files: [$path] }) { __typename } }';

const byGraphql: Make = (path, signal) =>
  send({ url: app.url }, '/graphql', {
    headers: { 'Content-Type': 'application/json' },
    body: { query: MAKE, variables: { path } },
    signal,
  });

/** Each step again where others have all turns just now. */
const byStream: Make = async (path, signal) => {
  const exchange = (call: Call) =>
    waitFor('a turn for it', async () => {
      const answer = await request({ url: app.url }, '/graphql/stream', call);
      return answer.status !== 429 && answer;
    });
  const headers = { 'X-GraphQL-Event-Stream-Token': await (await exchange({ method: 'PUT' })).text() };
  const stream = await exchange({ headers: { ...headers, Accept: 'text/event-stream' }, signal });
  await exchange({
    headers: { ...headers, 'Content-Type': 'application/json' },
    body: { query: MAKE, variables: { path }, extensions: { operationId: 'make' } },
  });
  await stream.text();
};

const ways: [name: string, make: Make][] = [
  ['REST', byRest],
  ['GraphQL', byGraphql],
  ['a stream that others share', byStream],
];

test.each(ways)('what waits for an import is not made once its caller has gone: %s', async (_name, make) => {
  await start({ callerRequests: 12 });
  const leaving = new AbortController();
  const asked = await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const all = Array.from({ length: 12 }, (_, n) => make(`/gone/${n}`, leaving.signal));
    const ended = Promise.allSettled(all);
    await waiters(2);
    await waitFor('all turns to be taken', async () => !(await hasTurn()));
    leaving.abort();
    // what has not begun is given up at once, with its turn
    await waitFor('a turn', hasTurn);
    return { ended };
  });
  expect((await asked.ended).map(({ status }) => status)).toEqual(Array(12).fill('rejected'));
  await makeRequest(app, { quota: 'alice', files: ['/here'] }); // which comes last where all wait in line
  await waitFor('all to be over', async () => app.ctx.db.pool.idleCount === app.ctx.db.pool.totalCount);
  expect(await labels()).toEqual(['/here']);
});

test.each(ways)('what has begun keeps the turn of its caller, also when that has gone: %s', async (_name, make) => {
  await start({ callerRequests: 2 });
  const leaving = new AbortController();
  await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const all = [make('/gone/1', leaving.signal), make('/gone/2', leaving.signal)];
    const ended = Promise.allSettled(all);
    await waiters(2);
    leaving.abort();
    await ended;
    for (let n = 0; n < 3; n++) {
      await heardOf();
      expect(await hasTurn()).toBe(false);
    }
  });
  await waitFor('a turn', hasTurn);
  expect(await labels()).toEqual([]);
});

test('the body of what has begun keeps its room, also when its sender has gone', async () => {
  await start({ callerBodiesMb: 1 });
  const leaving = new AbortController();
  const files = Array.from({ length: 10_000 }, (_, n) => `/large/${'x'.repeat(60)}${n}`);
  const large = () => ({ body: [{ quota: 'alice', files }], signal: leaving.signal });
  const path = '/tape_control/api/v1/requests';
  await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const begun = send({ url: app.url }, path, large()).catch(() => undefined);
    await waiters(1);
    leaving.abort();
    await begun;
    await heardOf();
    const second = await send({ url: app.url }, path, { ...large(), signal: new AbortController().signal });
    expect([second.status, second.text]).toEqual([429, expect.stringContaining('more than 1 MB')]);
  });
});

/** What changes a request of alice, and her quota. */
const changes: [name: string, mutation: (id: number | undefined) => string, type: string][] = [
  ['cancelRequest', (id) => `cancelRequest(id: ${id})`, 'Request'],
  ['updateRequest', (id) => `updateRequest(input: { id: ${id}, label: "other" })`, 'Request'],
  ['releaseFiles', (id) => `releaseFiles(input: { id: ${id}, match: "/" })`, 'Request'],
  ['retryRequest', (id) => `retryRequest(input: { id: ${id} })`, 'Request'],
  ['setPriority', (id) => `setPriority(id: ${id}, priority: 7)`, 'Request'],
  ['setQuota', () => 'setQuota(input: { user: "alice", size: 1000 })', 'Quota'],
  [
    'setMember',
    (id) => `setMember(input: { quota: "alice", kind: USER, name: "member-${id}", isManager: false })`,
    'QuotaMember',
  ],
];

test.each(changes)(
  'who makes many changes of what somebody has locked keeps no reader waiting: %s',
  async (_name, mutation, type) => {
    await start({}, { poolSize: 15 }); // five of them for those who wait for rows, and three for those who set a member
    const make = (n: number) => makeRequest(app, { quota: 'alice', files: [`/${n}`] });
    const ids = await Promise.all(Array.from({ length: 8 }, (_, n) => make(n)));
    const asked = await whileLocked(app, 'SELECT FROM request r, quota q FOR UPDATE', async (waiters) => {
      const all = Promise.all(ids.map((id) => ask(app, `mutation { result: ${mutation(id)} { __typename } }`)));
      await waiters(2);
      for (const path of ['/requests', '/quota/alice', `/requests/${ids[0]}`]) {
        expect((await get(app, path)).status).toBe(200);
      }
      expect(app.ctx.db.pool.waitingCount).toBe(0);
      return { all };
    });
    expect(await asked.all).toEqual(ids.map(() => ({ data: { result: { __typename: type } } })));
  },
);

const BACK_END = 'kind: BACKEND, name: "directory"';
const RULE = 'prefix: "/closed", action: REQUEST, kind: EVERYBODY';
const MEMBER = 'quota: "alice", kind: USER, name: "bob"';

/** What nobody keeps locked. */
const deeds: [mutation: string, type: string][] = [
  [`suspend(input: { ${BACK_END}, mode: HELD, reason: "fire" })`, 'Suspension'],
  [`resume(input: { ${BACK_END} })`, 'Suspension'],
  ['suspend(input: { kind: USER, name: "alice", mode: HELD })', 'Suspension'],
  ['suspend(input: { kind: VOLUME, name: "V1", mode: HELD })', 'Suspension'],
  ['suspend(input: { kind: DISK, name: "/mnt/a", mode: HELD })', 'Suspension'],
  [`setPathRule(input: { ${RULE} })`, 'PathRule'],
  [`removePathRule(input: { ${RULE} })`, 'PathRule'],
  [`setMember(input: { ${MEMBER}, isManager: true })`, 'QuotaMember'],
  [`removeMember(input: { ${MEMBER} })`, 'QuotaMember'],
  ['resizeDisk(input: { mountpoint: "/mnt/a", size: 2 })', 'RestoreDisk'],
  ['removeDisk(mountpoint: "/mnt/a")', 'RemovedDisk'],
];

test('what is to be stopped is stopped, also while those who wait for rows have all of their places', async () => {
  await start({}, { poolSize: 5 }); // one of them for those who wait for rows
  await setDisk(app.ctx, { mountpoint: '/mnt/a', size: 1n });
  await app.ctx.db.pool.query(`INSERT INTO volume (name) VALUES ('V1')`);
  const [first, second] = [
    await makeRequest(app, { quota: 'alice', files: ['/1'] }),
    await makeRequest(app, { quota: 'alice', files: ['/2'] }),
  ];
  const cancel = (id: number) => ask(app, `mutation { result: cancelRequest(id: ${id}) { __typename } }`);
  const asked = await whileLocked(app, 'SELECT FROM request r, quota q FOR NO KEY UPDATE', async (waiters) => {
    const both = Promise.all([cancel(first), cancel(second)]);
    await waiters(1);
    for (const [mutation, type] of deeds) {
      const answer = await ask(app, `mutation { result: ${mutation} { __typename } }`);
      expect(answer).toEqual({ data: { result: { __typename: type } } });
    }
    return { both };
  });
  const done = { data: { result: { __typename: 'Request' } } };
  expect(await asked.both).toEqual([done, done]);
});
