/** What the streams of graphql-sse owe to slow, silent and vanished clients; the sources are made for it. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import express from 'express';
import { buildSchema, type ExecutionArgs, execute, parse, subscribe as run, validate } from 'graphql';
import { createClient } from 'graphql-sse';
import { pino } from 'pino';
import { afterEach, expect, test } from 'vitest';
import { createErrorMask } from '../../graphql/errors.js';
import { createErrorHandler, readParams } from '../../graphql/http.js';
import { createStreamHandler, type StreamLimits } from '../../graphql/sse-handler.js';
import type { Pipeline } from '../../graphql/sse-operations.js';
import { Shares } from '../../src/access/limits/turns.js';
import { UnavailableError } from '../../src/errors.js';
import { drain, readEvents, subscribe, take } from '../support/streams.js';
import { createGate, waitFor } from '../support/wait.js';

const schema = buildSchema('type Query { ok: Boolean } type Subscription { items: String }');

/** A source that says how often it was asked, and whether it was told to end. */
function createSource(next: (n: number) => Promise<string | undefined>) {
  const source = {
    asked: 0,
    /** Queries that were run. */
    run: 0,
    ok() {
      source.run++;
      return true;
    },
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

async function serve(
  source: ReturnType<typeof createSource>,
  options: { contextFactory?: () => Promise<object> } & StreamLimits = {},
): Promise<string> {
  const prepare: Pipeline['prepare'] = () => ({
    schema,
    parse,
    validate,
    contextFactory: options.contextFactory ?? (() => ({})),
    execute: (args: ExecutionArgs) => execute({ ...args, rootValue: source }),
    subscribe: (args: ExecutionArgs) => run({ ...args, rootValue: source }) as never,
  });
  const mask = createErrorMask(pino({ level: 'silent' }));
  const maskError = (error: unknown) => (error instanceof UnavailableError ? mask(error) : new Error('masked'));
  const streams = createStreamHandler(
    { readParams, prepare, maskError },
    { ownerOf: () => 'anybody', rightsOf: () => undefined },
    options,
  );
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

/** Begins an operation on a reserved stream. */
async function begin(url: string, stream: string, operationId: string, wish: object = ITEMS): Promise<number> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { ...token(stream), 'Content-Type': 'application/json' },
    body: JSON.stringify({ ...wish, extensions: { operationId } }),
  });
  await response.arrayBuffer();
  return response.status;
}

test('a reader that does not read makes the source wait, and loses nothing', async () => {
  const total = 1200; // half of them, 39 MB, are more than the buffers of sockets take
  const source = createSource(async (n) => (n < total ? `${n} `.padEnd(64 * 1024, 'x') : undefined));
  const url = await serve(source);
  const request = http.request(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'text/event-stream' },
  });
  request.end(JSON.stringify(ITEMS));
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  response.pause();
  // a source that need not wait would have run to its end before the server comes to another request
  await (await fetch(url, { method: 'PUT' })).arrayBuffer();
  expect(source.asked).toBeLessThan(total / 2);
  const web = new Response(response as unknown as ReadableStream, { headers: { 'Content-Type': 'text/event-stream' } });
  let count = 0;
  for await (const { data } of readEvents<{ items: string }>(Promise.resolve(web))) {
    expect(data?.items.startsWith(`${count} x`)).toBe(true);
    count++;
  }
  expect(count).toBe(total);
});

test('a stream that is reserved and never opened is freed, with its operations', async () => {
  const source = createSource(async (n) => (n < 500 ? 'item' : never()));
  const url = await serve(source, { reservationMs: 2000 });
  const stream = await reserve(url);
  expect(await begin(url, stream, 'one')).toBe(202);
  await waitFor('the operation to be ended', async () => source.hasEnded);
  expect(source.asked).toBeLessThan(500); // nobody reads, so it waits
  expect(await begin(url, stream, 'two')).toBe(404);
});

test('a query on a reserved stream is run once somebody reads it, and not where it was dropped before', async () => {
  const source = createSource(never);
  const url = await serve(source);
  const stream = await reserve(url);
  const OK = { query: '{ ok }' };
  for (const id of ['one', 'two', 'three']) expect(await begin(url, stream, id, OK)).toBe(202);
  await drop(url, stream, 'two');
  expect(source.run).toBe(0);
  const next = await open(url, stream);
  const told = (id: string) => [
    `event: next\ndata: ${JSON.stringify({ id, payload: { data: { ok: true } } })}`,
    `event: complete\ndata: ${JSON.stringify({ id })}`,
  ];
  const messages = [await next(), await next(), await next(), await next()];
  expect(messages.sort()).toEqual([...told('one'), ...told('three')].sort());
  expect(source.run).toBe(2);
});

test('what a subscription says is bounded, since it is kept', async () => {
  const url = await serve(createSource(never));
  const stream = await reserve(url);
  const long = (bytes: number) => ({ ...ITEMS, variables: { unused: 'x'.repeat(bytes) } });
  expect(await begin(url, stream, 'one', long(10_000))).toBe(202);
  expect(await begin(url, stream, 'two', long(20_000))).toBe(413);
});

test('what the subscriptions of a caller say is bounded together, until they end', async () => {
  const shares = new Shares('characters', { all: 25_000, one: 25_000 });
  const url = await serve(createSource(never), { keep: (_req, characters) => shares.take('one', characters) });
  const isFree = async () => {
    try {
      shares.take('one', 25_000)();
      return true;
    } catch {
      return false;
    }
  };
  const long = { ...ITEMS, variables: { unused: 'x'.repeat(10_000) } };
  const stream = await reserve(url);
  expect([await begin(url, stream, 'one', long), await begin(url, stream, 'two', long)]).toEqual([202, 202]);
  expect(await begin(url, stream, 'three', long)).toBe(429);
  const drop = (id: string) => fetch(`${url}?operationId=${id}`, { method: 'DELETE', headers: token(stream) });
  await drop('one');
  expect(await begin(url, stream, 'three', long)).toBe(202);
  for (const id of ['two', 'three']) await drop(id);
  await waitFor('what was kept of those to be free', isFree);

  const alone = new AbortController();
  const headers = { 'Content-Type': 'application/json', Accept: 'text/event-stream' };
  const open = () => fetch(url, { method: 'POST', headers, body: JSON.stringify(long), signal: alone.signal });
  expect([(await open()).status, (await open()).status, (await open()).status]).toEqual([200, 200, 429]);
  const query = { query: '{ ok }', variables: { unused: 'x'.repeat(100_000) } };
  expect((await fetch(url, { method: 'POST', headers, body: JSON.stringify(query) })).status).toBe(200);
  alone.abort();
  await waitFor('what was kept of streams to be free', isFree);
});

test('a stream that was opened in time stays', async () => {
  const gate = createGate();
  const source = createSource(async (n) => {
    if (n === 1) await gate.opened;
    return n < 2 ? `item ${n}` : never();
  });
  const url = await serve(source, { reservationMs: 500 });
  const client = createClient({ url, singleConnection: true, retryAttempts: 0 });
  const results = subscribe<{ items: string }>(client, ITEMS);
  expect(await take(results, 1)).toEqual([{ items: 'item 0' }]);
  const later = await reserve(url);
  await waitFor('a later reservation to have gone', async () => (await begin(url, later, randomUUID())) === 404);
  gate.open();
  expect(await take(results, 1)).toEqual([{ items: 'item 1' }]);
  client.dispose();
});

test('an operation whose stream goes away while it is prepared is ended', async () => {
  const gate = createGate();
  let isPreparing = false;
  const source = createSource(async (n) => (n === 0 ? 'item' : never()));
  const url = await serve(source, {
    contextFactory: async () => {
      isPreparing = true;
      await gate.opened;
      return {};
    },
  });
  const stream = await reserve(url);
  const controller = new AbortController();
  const opened = await fetch(url, {
    headers: { ...token(stream), Accept: 'text/event-stream' },
    signal: controller.signal,
  });
  expect(opened.status).toBe(200);
  const beginning = begin(url, stream, 'one');
  await waitFor('the operation to be prepared', async () => isPreparing);
  controller.abort();
  await waitFor('the stream to be gone', async () => (await begin(url, stream, 'two')) === 404);
  gate.open();
  await beginning;
  expect(source.asked).toBe(0); // ended before it was begun
});

/** Ends an operation of a reserved stream. */
async function drop(url: string, stream: string, operationId: string): Promise<void> {
  const response = await fetch(`${url}?operationId=${operationId}`, { method: 'DELETE', headers: token(stream) });
  expect(response.status).toBe(200);
}

/** Opens a reserved stream and gives what it says, one message after another. */
async function open(url: string, stream: string): Promise<() => Promise<string>> {
  const opened = await fetch(url, { headers: { ...token(stream), Accept: 'text/event-stream' } });
  expect(opened.status).toBe(200);
  const reader = opened.body?.pipeThrough(new TextDecoderStream()).getReader();
  closers.push(() => void reader?.cancel());
  let [messages, rest]: [string[], string] = [[], ''];
  return async () => {
    while (messages.length === 0) {
      const { done, value } = (await reader?.read()) ?? { done: true };
      if (done) throw new Error('the stream ended');
      messages = `${rest}${value}`.split('\n\n');
      rest = messages.pop() ?? '';
      messages = messages.filter((message) => !message.startsWith(':'));
    }
    return messages.shift() ?? '';
  };
}

const tells = (id: string, items: string) =>
  `event: next\ndata: ${JSON.stringify({ id, payload: { data: { items } } })}`;

test.each([
  ['a result', 'old'],
  ['its end', undefined],
])('an id that is used again tells nothing of the operation before, which has %s to tell', async (_, last) => {
  const gate = createGate();
  const source = createSource(async (n) => {
    if (n === 0) return last;
    if (n === 2) await gate.opened;
    return n < 3 ? `new ${n}` : never();
  });
  const url = await serve(source);
  const stream = await reserve(url);
  expect(await begin(url, stream, 'one')).toBe(202);
  await waitFor('the first to have something to tell', async () => source.asked === 1);
  await drop(url, stream, 'one');
  expect(await begin(url, stream, 'one')).toBe(202);
  await waitFor('the second to have something to tell', async () => source.asked === 2);
  const next = await open(url, stream);
  expect(await next()).toBe(tells('one', 'new 1'));
  gate.open();
  expect(await next()).toBe(tells('one', 'new 2'));
});

test.each([
  ['comes to its beginning', 204],
  ['fails', 400],
])('an operation that was ended and then %s leaves alone the next one of its id', async (becomes, status) => {
  const gate = createGate();
  let prepared = 0;
  const source = createSource(async (n) => (n === 0 ? 'new' : never()));
  const url = await serve(source, {
    contextFactory: async () => {
      if (prepared++ === 0) {
        await gate.opened;
        if (becomes === 'fails') throw new Error('secret');
      }
      return {};
    },
  });
  const stream = await reserve(url);
  const beginning = begin(url, stream, 'one');
  await waitFor('the first to be prepared', async () => prepared === 1);
  await drop(url, stream, 'one');
  expect(await begin(url, stream, 'one')).toBe(202);
  gate.open();
  expect(await beginning).toBe(status);
  const next = await open(url, stream);
  expect(await next()).toBe(tells('one', 'new'));
  expect(source.asked).toBe(2); // by the second alone, which waits for more
  expect(await begin(url, stream, 'one')).toBe(409);
});

test.each([true, false])(
  'a source that throws ends its own operation with the masked error (single: %s)',
  async (single) => {
    const source = createSource(async (n) => {
      if (n === 1) throw new Error('secret');
      return 'item';
    });
    const url = await serve(source);
    const client = createClient({ url, singleConnection: single, retryAttempts: 0 });
    const results = await drain(subscribe<{ items: string }>(client, ITEMS));
    expect(results).toEqual([{ data: { items: 'item' } }, { errors: [{ message: 'masked' }] }]);
    const query = await drain(subscribe(client, { query: '{ ok }' }));
    expect(query).toEqual([{ data: { ok: true } }]);
    client.dispose();
  },
);

test.each([true, false])(
  'a source that is away just ends the stream, so that its client comes back (single: %s)',
  async (single) => {
    const source = createSource(async (n) => {
      if (n === 1) throw new UnavailableError('away', 'the database does not answer');
      return n < 3 ? `item ${n}` : undefined;
    });
    const url = await serve(source);
    const client = createClient({ url, singleConnection: single, retry: async () => {} });
    const results = await drain(subscribe<{ items: string }>(client, ITEMS));
    expect(results).toEqual([{ data: { items: 'item 0' } }, { data: { items: 'item 2' } }]);
    client.dispose();
  },
);

test('a client cannot choose the token of a stream', async () => {
  const url = await serve(createSource(never));
  const response = await fetch(url, { method: 'PUT', headers: token('__proto__') });
  expect(response.status).toBe(201);
  expect(await response.text()).toMatch(/^[0-9a-f-]{36}$/);
  expect(await begin(url, '__proto__', 'one')).toBe(404);
  expect(await begin(url, 'constructor', 'one')).toBe(404);
});
