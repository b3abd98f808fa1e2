/** Answers in gzip, br and zstd: the same bytes for whoever asks, and what is encoded for whom. */
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import zlib from 'node:zlib';
import express from 'express';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openBody } from '../../src/encodings.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { waitFor } from '../support/wait.js';

/** A list of some 8 MB. */
const FILES = 4000;

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 1_000_000n);
  await app.ctx.db.pool.query(
    `INSERT INTO tape_file (path, size, stage)
     SELECT '/long/' || repeat(md5(n::text), 60) || n, 1, 'ONTAPE'::"Stage" FROM generate_series(1, $1::int) n
     UNION ALL SELECT '/some/é🧲' || n, 1, 'ONTAPE' FROM generate_series(1, 300) n`,
    [FILES],
  );
});
afterAll(() => app.close());

const REST = '/tape_control/api/v1';
const decoders: Record<string, (bytes: Buffer) => Buffer> = {
  gzip: zlib.gunzipSync,
  br: zlib.brotliDecompressSync,
  ...('zstdDecompressSync' in zlib && { zstd: zlib.zstdDecompressSync as (bytes: Buffer) => Buffer }),
};
const encodings = Object.keys(decoders);

interface Wish {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
}

async function begin(path: string, { method = 'GET', headers = {}, body }: Wish = {}): Promise<http.IncomingMessage> {
  const request = http.request(`${app.url}${path}`, { method, headers, agent: false });
  request.end(body);
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  return response;
}

async function ask(path: string, wish: Wish = {}) {
  const response = await begin(path, wish);
  const bytes = await buffer(response);
  const { 'content-encoding': encoding, 'content-length': length, vary, etag } = response.headers;
  if (length !== undefined && wish.method !== 'HEAD') expect(bytes.length).toBe(Number(length));
  const decoded = encoding === undefined || bytes.length === 0 ? bytes : decoders[encoding]?.(bytes);
  return { status: response.statusCode, encoding, length, vary, etag, bytes, text: decoded?.toString() };
}

const accepting = (encoding: string) => ({ headers: { 'Accept-Encoding': encoding } });

test.each([
  ['a long list', '/files?match=/long/'],
  ['a list of some files', '/files?match=/some/'],
])('%s has the same bytes in each encoding, and fewer on their way', async (_what, path) => {
  const plain = await ask(REST + path);
  expect([plain.status, plain.encoding, plain.vary]).toEqual([200, undefined, 'Accept, Accept-Encoding']);
  for (const each of encodings) {
    const answer = await ask(REST + path, accepting(each));
    expect([answer.status, answer.encoding, answer.vary]).toEqual([200, each, 'Accept, Accept-Encoding']);
    expect(answer.text === plain.text).toBe(true);
    expect(answer.bytes.length).toBeLessThan(plain.bytes.length / 3);
  }
});

test('what is short, an error, and what nobody asks to have encoded stay plain, and say what they go by', async () => {
  const answers = [
    await ask(`${REST}/quota/alice`, accepting('gzip')),
    await ask(`${REST}/files?match=/none/`, accepting('gzip, br, zstd')),
    await ask(`${REST}/requests/77`, accepting('gzip')),
    await ask(`${REST}/files?match=/some/`, accepting('identity')),
    await ask(`${REST}/files?match=/some/`, accepting('gzip;q=0')),
  ];
  for (const { encoding, vary } of answers) expect([encoding, vary]).toEqual([undefined, 'Accept, Accept-Encoding']);
});

test('HEAD tells of an encoded answer what GET does, but its length, and reads no list to its end', async () => {
  const list = await ask(`${REST}/files?match=/long/`, { method: 'HEAD', ...accepting('gzip') });
  expect([list.status, list.encoding, list.bytes.length]).toEqual([200, 'gzip', 0]);
  const some = await ask(`${REST}/files?match=/some/`, { method: 'HEAD', ...accepting('br') });
  expect([some.status, some.encoding, some.bytes.length]).toEqual([200, 'br', 0]);
  const plain = await ask(`${REST}/files?match=/long/`, { method: 'HEAD' });
  expect([plain.status, plain.encoding, plain.bytes.length]).toEqual([200, undefined, 0]);
});

async function askGraphql(query: string, encoding: string) {
  const headers = {
    'Content-Type': 'application/json',
    Authorization: `Bearer ${app.token}`,
    'Accept-Encoding': encoding,
  };
  return await ask('/graphql', { method: 'POST', headers, body: JSON.stringify({ query }) });
}

test('results of GraphQL are encoded, but for those of mutations, which may hold a secret', async () => {
  const query = '{ tapeFiles(match: "/some/", first: 100) { edges { node { path stage size } } } }';
  const plain = await askGraphql(query, 'identity');
  expect(plain.encoding).toBeUndefined();
  for (const each of encodings) {
    const answer = await askGraphql(query, each);
    expect([answer.encoding, answer.text === plain.text, answer.vary]).toEqual([
      each,
      true,
      expect.stringContaining('Accept-Encoding'),
    ]);
  }
  const names = Array.from(
    { length: 40 },
    (_, n) => `q${n}: setQuota(input: { user: "user${n}", size: "1" }) { __typename }`,
  );
  const mutation = await askGraphql(`mutation { ${names.join(' ')} }`, 'gzip');
  expect([mutation.status, mutation.encoding]).toEqual([200, undefined]);
});

test('an event stream is sent as it is, however it is asked for', async () => {
  const query = 'subscription { stageChanges(match: "/some/") { path } }';
  const headers = {
    Accept: 'text/event-stream',
    'Content-Type': 'application/json',
    'Accept-Encoding': 'gzip, br, zstd',
  };
  const response = await begin('/graphql', { method: 'POST', headers, body: JSON.stringify({ query }) });
  expect([response.statusCode, response.headers['content-encoding']]).toEqual([200, 'none']);
  response.destroy();
});

test('the page of GraphiQL is encoded once, and not sent to who has it', async () => {
  const encodings = ['gzip']; // five megabytes, of which br takes seconds
  const page = (headers: Record<string, string>) => ask('/graphql', { headers: { Accept: 'text/html', ...headers } });
  const plain = await page({});
  expect(plain.bytes.length).toBeGreaterThan(5_000_000);
  const tags = new Set([plain.etag]);
  for (const each of encodings) {
    const encoded = await page({ 'Accept-Encoding': each });
    expect([encoded.encoding, encoded.text === plain.text]).toEqual([each, true]);
    expect(encoded.bytes.length).toBeLessThan(plain.bytes.length / 2);
    tags.add(encoded.etag);
    const again = await page({ 'Accept-Encoding': each, 'If-None-Match': `"other", W/${encoded.etag}` });
    expect([again.status, again.bytes.length, again.etag, again.encoding]).toEqual([304, 0, encoded.etag, undefined]);
  }
  expect(tags.size).toBe(encodings.length + 1);
  const other = await page({ 'If-None-Match': '"other"' });
  expect([other.status, other.bytes.length]).toEqual([200, plain.bytes.length]);
});

test.each(encodings)('a reader of a list in %s that goes away leaves nothing behind', async (encoding) => {
  const response = await begin(`${REST}/files?match=/long/`, accepting(encoding));
  await once(response, 'readable');
  response.destroy();
  await waitFor('the list to be closed', async () => {
    const { totalCount, idleCount } = app.ctx.db.streamPool;
    return totalCount === idleCount;
  });
});

test('an encoded list whose database goes breaks off, rather than ending as if it were whole', async () => {
  const response = await begin(`${REST}/files?match=/long/`, accepting('gzip'));
  response.pause();
  await waitFor('the list to wait for its reader', async () => {
    const { rows } = await app.ctx.db.pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND state = 'idle in transaction'`,
    );
    return rows.length > 0;
  });
  const read = buffer(response);
  await expect(read).rejects.toThrow('aborted');
  expect(response.complete).toBe(false);
});

test.each(encodings)(
  'what fails before %s has bytes of a list is no answer of its own in that encoding',
  async (encoding) => {
    const server = express()
      .get('/', (_req, res) => {
        openBody(res).write('[');
        if (res.headersSent) res.destroy();
        else res.status(503).send('plain');
      })
      .listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const answer = http.get({ port, host: '127.0.0.1', agent: false, ...accepting(encoding) });
    const whole = once(answer, 'response').then(([response]) => buffer(response as http.IncomingMessage));
    await expect(whole).rejects.toThrow();
    server.close();
  },
);
