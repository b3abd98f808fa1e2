/**
 * Calls that wait for an import or for locked rows: the slots that such calls occupy, and the effect of a disconnect.
 */
import { afterEach, expect, test } from 'vitest';
import type { Limits } from '../../src/config/config.js';
import type { DatabaseOptions } from '../../src/db/pools.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { startBeside, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { ask, sendGraphql } from '../support/graphql.js';
import { send } from '../support/http.js';
import { AS_AN_IMPORT, whileLocked } from '../support/locks.js';
import { get, makeRequest, post, put } from '../support/rest.js';
import { emptyTables } from '../support/tables.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const first = useApp();
let app: TestApp;
afterEach(() => app.close());

async function start(limits: Partial<Limits>, database: Partial<DatabaseOptions> = {}): Promise<void> {
  await emptyTables(first.ctx);
  app = await startBeside(first, { limits, database });
  await addQuota(app.ctx, 'alice', 1000n);
}

const labels = async () =>
  (await app.ctx.db.pool.query<{ label: string }>('SELECT label FROM request ORDER BY id')).rows.map(
    ({ label }) => label,
  );

/** Returns whether the anonymous caller of these tests has a free slot. */
const hasSlot = async () => (await get(app, '/quota/alice')).status !== 429;

/** Waits until the gateway has handled its earlier input. */
const settle = () => send({ url: app.url }, '/health/live');

const byRest = (path: string, signal: AbortSignal) =>
  send({ url: app.url }, '/tape_control/api/v1/requests', { body: [{ quota: 'alice', files: [path] }], signal });

const MAKE =
  'mutation ($path: String!) { createRequest(input: { quota: "alice", files: [$path] }) { errors { message } } }';
const byGraphql = (path: string, signal: AbortSignal) =>
  sendGraphql({ url: app.url }, { query: MAKE, variables: { path } }, { signal });

const ways = [['REST', byRest] as const, ['GraphQL', byGraphql] as const];

test.each(ways)('a request that waits for an import is not made if its caller disconnects: %s', async (_name, make) => {
  await start({ callerRequests: 12 });
  const leaving = new AbortController();
  const { ended } = await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const all = Array.from({ length: 12 }, (_, n) => make(`/gone/${n}`, leaving.signal));
    const ended = Promise.allSettled(all);
    await waiters(2);
    await waitFor('all slots to be taken', async () => !(await hasSlot()));
    leaving.abort();
    // a call that has not begun releases its slot at once
    await waitFor('a slot', hasSlot);
    return { ended };
  });
  expect((await ended).map(({ status }) => status)).toEqual(Array(12).fill('rejected'));
  await makeRequest(app, { quota: 'alice', files: ['/here'] }); // the last call in the queue
  await waitFor('all to be over', async () => app.ctx.db.pool.idleCount === app.ctx.db.pool.totalCount);
  expect(await labels()).toEqual(['/here']);
});

test.each(ways)('a call that has begun keeps its slot after its caller has disconnected: %s', async (_name, make) => {
  await start({ callerRequests: 2 });
  const leaving = new AbortController();
  await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const all = [make('/gone/1', leaving.signal), make('/gone/2', leaving.signal)];
    const ended = Promise.allSettled(all);
    await waiters(2);
    leaving.abort();
    await ended;
    for (let n = 0; n < 3; n++) {
      await settle();
      expect(await hasSlot()).toBe(false);
    }
  });
  await waitFor('a slot', hasSlot);
  expect(await labels()).toEqual([]);
});

test('the body of a call that has begun counts after its sender has disconnected', async () => {
  await start({ bodiesMb: 3 });
  const leaving = new AbortController();
  const files = Array.from({ length: 10_000 }, (_, n) => `/large/${'x'.repeat(60)}${n}`);
  const body = [{ quota: 'alice', files }];
  const path = '/tape_control/api/v1/requests';
  await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const begun = send({ url: app.url }, path, { body, signal: leaving.signal }).catch(() => undefined);
    await waiters(1);
    leaving.abort();
    await begun;
    await settle();
    const second = await send({ url: app.url }, path, { body });
    expect([second.status, second.text]).toEqual([
      429,
      expect.stringContaining('the limit of 1179648 bytes of request bodies'),
    ]);
  });
});

test('many requests that are made or revived during an import leave connections to others, and all are done', async () => {
  await start({}, { poolSize: 9 });
  const ended = await makeRequest(app, { quota: 'alice', files: ['/a'] });
  await put(app, ended, { quota: 'alice', retention: '2020-01-01' });
  const { answers } = await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const revived = put(app, ended, { quota: 'alice', retention: '2999-01-01' });
    const made = Array.from({ length: 12 }, (_, n) => post(app, { quota: 'alice', files: [`/new/${n}`] }));
    await waiters(2);
    expect((await get(app, '/quota/alice')).status).toBe(200);
    expect(app.ctx.db.pool.waitingCount).toBe(0);
    return { answers: [revived, ...made] };
  });
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(Array(13).fill(200));
});

/** @param result the field of the payload with the result */
const mutationOf = (field: string, result: string) =>
  `mutation { payload: ${field} { ${result} { __typename } errors { message } } }`;

/** Response to a mutation that succeeds. */
const done = (result: string) => ({ data: { payload: { [result]: { __typename: expect.any(String) }, errors: [] } } });

/** Mutations of a request of alice, or of her quota. */
const changes: [name: string, mutation: (id: number) => string, result: string][] = [
  ['updateRequest', (id) => `updateRequest(input: { requestId: ${id}, label: "other" })`, 'request'],
  ['releaseFiles', (id) => `releaseFiles(input: { requestId: ${id}, match: "/" })`, 'request'],
  ['retryRequest', (id) => `retryRequest(input: { requestId: ${id} })`, 'request'],
  ['setRequestPriority', (id) => `setRequestPriority(input: { requestId: ${id}, priority: 7 })`, 'request'],
  ['setQuota', () => 'setQuota(input: { user: "alice", size: 1000 })', 'quota'],
  [
    'setQuotaMember',
    (id) => `setQuotaMember(input: { quota: "alice", kind: USER, name: "m${id}", isManager: true })`,
    'member',
  ],
  ['cancelRequest', (id) => `cancelRequest(input: { requestId: ${id} })`, 'request'],
];

test('many changes of locked rows do not delay readers', async () => {
  await start({}, { poolSize: 15 }); // five connections serve calls that wait for rows, and three serve setQuotaMember
  const make = (n: number) => makeRequest(app, { quota: 'alice', files: [`/${n}`] });
  const ids = await Promise.all(Array.from({ length: 8 }, (_, n) => make(n)));
  for (const [name, mutation, result] of changes) {
    const asked = await whileLocked(app, 'SELECT FROM request r, quota q FOR UPDATE', async (waiters) => {
      const all = Promise.all(ids.map((id) => ask(app, mutationOf(mutation(id), result))));
      await waiters(2);
      for (const path of ['/requests', '/quota/alice', `/requests/${ids[0]}`])
        expect([name, (await get(app, path)).status]).toEqual([name, 200]);
      expect([name, app.ctx.db.pool.waitingCount]).toEqual([name, 0]);
      return { all };
    });
    expect([name, await asked.all]).toEqual([name, ids.map(() => done(result))]);
  }
});

const LIBRARY = 'kind: LIBRARY, name: "directory"';
const RULE = 'prefix: "/closed", action: REQUEST, kind: EVERYBODY';
const MEMBER = 'quota: "alice", kind: USER, name: "bob"';

/** Mutations that do not wait for locks of users' calls. */
const unblocked: [mutation: string, result: string][] = [
  [`suspend(input: { ${LIBRARY}, mode: IMMEDIATE, reason: "fire" })`, 'suspension'],
  [`resume(input: { ${LIBRARY} })`, 'suspension'],
  ['suspend(input: { kind: USER, name: "alice", mode: IMMEDIATE })', 'suspension'],
  ['suspend(input: { kind: VOLUME, name: "V1", mode: IMMEDIATE })', 'suspension'],
  ['suspend(input: { kind: DISK, name: "/mnt/a", mode: IMMEDIATE })', 'suspension'],
  [`addPathRule(input: { ${RULE} })`, 'pathRule'],
  [`removePathRule(input: { ${RULE} })`, 'pathRule'],
  [`setQuotaMember(input: { ${MEMBER}, isManager: true })`, 'member'],
  [`removeQuotaMember(input: { ${MEMBER} })`, 'member'],
  ['resizeRestoreDisk(input: { mountpoint: "/mnt/a", size: 2 })', 'restoreDisk'],
  ['removeRestoreDisk(input: { mountpoint: "/mnt/a" })', 'removed'],
];

test('operators can suspend and change access while all connections for calls that wait for rows are in use', async () => {
  await start({}, { poolSize: 5 }); // one connection serves calls that wait for rows
  await setDisk(app.ctx, { mountpoint: '/mnt/a', size: 1n });
  await app.ctx.db.pool.query(`INSERT INTO volume (name) VALUES ('V1')`);
  const ids: number[] = [];
  for (const path of ['/1', '/2']) ids.push(await makeRequest(app, { quota: 'alice', files: [path] }));
  const asked = await whileLocked(app, 'SELECT FROM request r, quota q FOR NO KEY UPDATE', async (waiters) => {
    const cancelled = (id: number) => mutationOf(`cancelRequest(input: { requestId: ${id} })`, 'request');
    const both = ids.map((id) => ask(app, cancelled(id)));
    await waiters(1);
    for (const [mutation, result] of unblocked)
      expect(await ask(app, mutationOf(mutation, result))).toEqual(done(result));
    return { both };
  });
  expect(await Promise.all(asked.both)).toEqual([done('request'), done('request')]);
});
