/** The limit on concurrent queries: per caller, in total, and how long a query waits for a slot. */
import { buildSchema, execute, parse } from 'graphql';
import { expect, test } from 'vitest';
import { limitQueries } from '../../graphql/server.js';
import { LongReads } from '../../src/db/lists/long-reads.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { addFiles } from '../support/factories.js';
import { sendGraphql } from '../support/graphql.js';
import type { Gateway } from '../support/http.js';
import { whileLocked } from '../support/locks.js';
import { useApp } from '../support/use-app.js';
import { createGate, waitFor } from '../support/wait.js';

const schema = buildSchema('type Query { ok: Boolean } type Mutation { ok: Boolean }');

/** Returns a substitute for the context's database that contains only the query limiter. */
function openSlots({ slots, waitMs }: { slots: number; waitMs: number }) {
  const least = { windowMs: 60_000, bytesPerSecond: 1 };
  return { queries: new LongReads({ slots, waitMs, least, what: 'queries' }) };
}

/** Returns a function that executes an operation as a caller, the number of operations that wait for `gate`, and the gate. */
function open(options: { slots: number; waitMs: number }) {
  const db = openSlots(options);
  const gate = createGate();
  const active = { count: 0 };
  const ok = async () => {
    active.count++;
    await gate.opened;
    active.count--;
    return true;
  };
  const run = async (share: string | undefined, text = '{ ok }', reader?: AbortSignal) =>
    await limitQueries(execute)({
      ...{ schema, document: parse(text), rootValue: { ok } },
      contextValue: { db, share, reader },
    });
  return { run, active, gate };
}

const OK = { data: { ok: true } };

test('a caller gets half of the slots, and another caller finds one free', async () => {
  const { run, active, gate } = open({ slots: 4, waitMs: 60_000 });
  const eve = Array.from({ length: 5 }, () => run('eve'));
  await waitFor('two queries of eve', async () => active.count === 2);
  const ann = run('ann');
  await waitFor('the query of ann', async () => active.count === 3);
  gate.open();
  expect(await Promise.all([...eve, ann])).toEqual(Array(6).fill(OK));
  expect(await run('eve')).toEqual(OK); // each slot is free again
});

test('a query that waits for too long gets 503 with Retry-After, and its slot is not lost', async () => {
  const { run, active, gate } = open({ slots: 2, waitMs: 30 });
  const first = run('eve');
  await waitFor('the first query', async () => active.count === 1);
  const { errors } = await run('eve');
  const http = { status: 503, headers: { 'Retry-After': '5' } };
  expect(errors?.[0]?.extensions).toEqual({ code: 'UNAVAILABLE', retryAfterSeconds: 5, http });
  gate.open();
  expect(await first).toEqual(OK);
  expect(await run('eve')).toEqual(OK);
});

test('mutations, and queries of the program itself, are not limited', async () => {
  const { run, active, gate } = open({ slots: 1, waitMs: 30 });
  const all = [run('eve'), run('eve', 'mutation { ok }'), run(undefined), run(undefined)];
  await waitFor('all four', async () => active.count === 4);
  gate.open();
  expect(await Promise.all(all)).toEqual(Array(4).fill(OK));
});

test('a query whose execution fails gives its slot back', async () => {
  const contextValue = { db: openSlots({ slots: 2, waitMs: 30 }), share: 'eve' };
  const args = { schema, document: parse('{ ok }'), rootValue: { ok: true }, contextValue };
  const fails = () => Promise.reject(new Error('broken'));
  for (let time = 0; time < 3; time++) await expect(limitQueries(fails)(args)).rejects.toThrow('broken');
  expect(await limitQueries(execute)(args)).toEqual(OK);
});

const app = useApp({ config: { access: { auth: new Set(['token']) } } });

test('a query of a disconnected caller takes no slot, and other callers are answered meanwhile', async () => {
  const as = async (name: string) =>
    ({ url: app.url, token: (await createToken(app.ctx, { name, role: 'USER' })).secret }) as Gateway;
  const [eve, ann] = [await as('eve'), await as('ann')];
  await addFiles(app.ctx, [{ path: '/large/a' }]);
  const query = '{ tapeFiles(first: 1000) { edges { node { path } } } }';
  const { answers } = await whileLocked(app, 'LOCK TABLE tape_file IN ACCESS EXCLUSIVE MODE', async (waiters) => {
    const answers = Array.from({ length: 8 }, () => sendGraphql(eve, { query }));
    await waiters(1);
    const gone = new AbortController();
    const left = sendGraphql(eve, { query }, { signal: gone.signal }).catch(() => 'gone');
    gone.abort();
    expect(await left).toBe('gone');
    const small = { query: '{ caller { name } }' };
    expect((await sendGraphql(ann, small)).body).toEqual({ data: { caller: { name: 'ann' } } });
    return { answers };
  });
  for (const { status, body } of await Promise.all(answers)) {
    expect([status, body]).toEqual([200, { data: { tapeFiles: { edges: [{ node: { path: '/large/a' } }] } } }]);
  }
});
