/** Event streams of slow, silent and vanished clients, with sources made for these tests. */
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import express from 'express';
import { buildSchema, type ExecutionArgs, execute, parse, subscribe as run, validate } from 'graphql';
import { createClient } from 'graphql-sse';
import { pino } from 'pino';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { createErrorMask } from '../../graphql/schema/errors.js';
import { createErrorHandler, readParams } from '../../graphql/server/http.js';
import { EventStreams, type Pipeline, type StreamLimits } from '../../graphql/subscriptions/event-streams.js';
import { UnavailableError } from '../../src/core/errors.js';
import { Shares } from '../../src/gateway/limits/limits.js';
import { drain, readEvents, subscribe, take } from '../support/streams.js';
import { waitFor } from '../support/wait.js';

const schema = buildSchema('type Query { ok: Boolean text: String } type Subscription { items: String }');

/** Creates an event source that counts its items and records whether it was closed. */
function createSource(next: (n: number) => Promise<string | undefined>) {
  const source = {
    asked: 0,
    ok: true,
    text: 'x'.repeat(512 * 1024),
    hasEnded: false,
    async *items() {
      try {
        for (;;) {
          const items = await next(source.asked++);
          if (items === undefined) return;
          yield { items };
        }
      } finally {
        source.hasEnded = true;
      }
    },
  };
  return source;
}

const never = () => new Promise<undefined>(() => {});
const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

async function serve(source: ReturnType<typeof createSource>, options: StreamLimits = {}): Promise<string> {
  const prepare: Pipeline['prepare'] = () => ({
    schema,
    parse,
    validate,
    contextFactory: () => ({}),
    execute: (args: ExecutionArgs) => execute({ ...args, rootValue: source }),
    subscribe: (args: ExecutionArgs) => run({ ...args, rootValue: source }) as never,
  });
  const mask = createErrorMask(pino({ level: 'silent' }));
  const maskError = (error: unknown) => (error instanceof UnavailableError ? mask(error) : new Error('masked'));
  const streams = new EventStreams({ readParams, prepare, maskError }, () => 'anybody', options);
  const app = express()
    .use((req, res) => streams.exchange(req, res))
    .use(createErrorHandler(pino({ level: 'silent' })));
  const server = http.createServer(app).listen(0, '127.0.0.1');
  await once(server, 'listening');
  closers.push(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

const ITEMS = { query: 'subscription { items }' };
const token = (value: string) => ({ 'X-GraphQL-Event-Stream-Token': value });

async function reserve(url: string): Promise<string> {
  const response = await fetch(url, { method: 'PUT' });
  expect(response.status).toBe(201);
  return await response.text();
}

async function connect(url: string, stream: string): Promise<Response> {
  return await fetch(url, { headers: { ...token(stream), Accept: 'text/event-stream' } });
}

/** Starts an operation on a stream. @returns the HTTP status */
async function begin(url: string, stream: string, operationId: string, operation: object = ITEMS): Promise<number> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { ...token(stream), 'Content-Type': 'application/json' },
    body: JSON.stringify({ ...operation, extensions: { operationId } }),
  });
  await response.arrayBuffer();
  return response.status;
}

test('a client that does not read makes the source wait, and misses no result', async () => {
  const total = 500; // half of the items, 16 MB, exceed the socket buffers
  const source = createSource(async (n) => (n < total ? `${n} `.padEnd(64 * 1024, 'x') : undefined));
  const url = await serve(source);
  const request = http.request(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'text/event-stream' },
  });
  request.end(JSON.stringify(ITEMS));
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  response.pause();
  // 200 turns of the event loop without a read mean that the handler no longer reads the source
  for (let turns = 0, asked = 0; turns < 200; turns++) {
    if (source.asked > asked) turns = 0;
    asked = source.asked;
    await setImmediate();
  }
  expect(source.asked).toBeLessThan(total / 2);
  const web = new Response(response as unknown as ReadableStream, { headers: { 'Content-Type': 'text/event-stream' } });
  let count = 0;
  for await (const { data } of readEvents<{ items: string }>(Promise.resolve(web))) {
    expect(data?.items.startsWith(`${count} x`)).toBe(true);
    count++;
  }
  expect(count).toBe(total);
});

test('queries of a stream that is not read wait for its reader', async () => {
  const total = 60; // half of the items, 15 MB, exceed the socket buffers
  const url = await serve(createSource(never));
  const stream = await reserve(url);
  const request = http.get(url, { headers: { ...token(stream), Accept: 'text/event-stream' } });
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  response.pause();
  let answered = 0;
  const all = Array.from({ length: total }, async (_, n) => {
    const status = await begin(url, stream, String(n), { query: '{ text }' });
    answered++;
    return status;
  });
  for (let turns = 0, before = 0; turns < 500; turns++) {
    if (answered > before) turns = 0;
    before = answered;
    await setImmediate();
  }
  expect(answered).toBeLessThan(total / 2);
  response.resume();
  expect(await Promise.all(all)).toEqual(Array(total).fill(202));
});

test('a token opens one stream at a time, within a minute', async () => {
  const url = await serve(createSource(never));
  const stream = await reserve(url);
  expect(await begin(url, stream, 'one')).toBe(404);
  expect((await connect(url, stream)).status).toBe(200);
  expect((await connect(url, stream)).status).toBe(409);
  expect([await begin(url, stream, 'one'), await begin(url, stream, 'one')]).toEqual([202, 409]);
  const clock = vi.spyOn(Date, 'now');
  try {
    const late = await reserve(url);
    const now = clock.getMockImplementation() ?? (() => performance.timeOrigin + performance.now());
    clock.mockImplementation(() => now() + 60_001);
    expect((await connect(url, late)).status).toBe(400);
  } finally {
    clock.mockRestore();
  }
});

test('the operations of a stream end with it', async () => {
  const source = createSource(async (n) => `item ${n}`);
  const url = await serve(source);
  const client = createClient({ url, singleConnection: true, retryAttempts: 0 });
  await take(subscribe<{ items: string }>(client, ITEMS), 2);
  client.dispose();
  await waitFor('the source to be ended', async () => source.hasEnded);
});

test('the text of a subscription is limited, and that of all subscriptions of a caller until they end', async () => {
  const shares = new Shares('characters', { all: 25_000, one: 25_000 });
  const url = await serve(createSource(never), { keep: (_req, characters) => shares.take('one', characters) });
  const stream = await reserve(url);
  await connect(url, stream);
  const long = (bytes: number) => ({ ...ITEMS, variables: { unused: 'x'.repeat(bytes) } });
  expect(await begin(url, stream, 'one', long(20_000))).toBe(413);
  for (const id of ['one', 'two']) expect(await begin(url, stream, id, long(10_000))).toBe(202);
  expect(await begin(url, stream, 'three', long(10_000))).toBe(429);
  await fetch(`${url}?operationId=one`, { method: 'DELETE', headers: token(stream) });
  expect(await begin(url, stream, 'three', long(10_000))).toBe(202);
});

describe.each([true, false])('single connection: %s', (singleConnection) => {
  test('a source that throws ends its operation with the masked error', async () => {
    const source = createSource(async (n) => {
      if (n === 1) throw new Error('secret');
      return 'item';
    });
    const client = createClient({ url: await serve(source), singleConnection, retryAttempts: 0 });
    const results = await drain(subscribe<{ items: string }>(client, ITEMS));
    expect(results).toEqual([{ data: { items: 'item' } }, { errors: [{ message: 'masked' }] }]);
    expect(await drain(subscribe(client, { query: '{ ok }' }))).toEqual([{ data: { ok: true } }]);
    client.dispose();
  });

  test('an unavailable source ends the stream without a result, and the client reconnects', async () => {
    const source = createSource(async (n) => {
      if (n === 1) throw new UnavailableError('away', 'the database does not answer');
      return n < 3 ? `item ${n}` : undefined;
    });
    const client = createClient({ url: await serve(source), singleConnection, retry: async () => {} });
    const results = await drain(subscribe<{ items: string }>(client, ITEMS));
    expect(results).toEqual([{ data: { items: 'item 0' } }, { data: { items: 'item 2' } }]);
    client.dispose();
  });
});

test('a client can neither choose nor change the token of a stream', async () => {
  const url = await serve(createSource(never));
  const response = await fetch(url, { method: 'PUT', headers: token('__proto__') });
  expect(response.status).toBe(201);
  const given = await response.text();
  const [expires = '', random, signature] = given.split('.');
  const longer = (Number.parseInt(expires, 36) + 1000).toString(36);
  for (const other of ['__proto__', 'constructor', `${longer}.${random}.${signature}`, `${expires}.${random}.`]) {
    expect((await connect(url, other)).status).toBe(400);
    expect(await begin(url, other, 'one')).toBe(404);
  }
  expect((await connect(url, given)).status).toBe(200);
});
