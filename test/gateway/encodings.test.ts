/** Responses in gzip and br. */
import { once } from 'node:events';
import http from 'node:http';
import { buffer } from 'node:stream/consumers';
import zlib from 'node:zlib';
import { expect, test } from 'vitest';
import { addQuota } from '../support/factories.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const app = useApp({}, async () => {
  await addQuota(app.ctx, 'alice', 1_000_000n);
  await app.ctx.db.pool.query(
    `INSERT INTO tape_file (path, size, stage)
     SELECT '/long/' || repeat(md5(n::text), 60) || n, 1, 'ONTAPE'::"Stage" FROM generate_series(1, 4000) n -- 8 MB of JSON
     UNION ALL SELECT '/some/é🧲' || n, 1, 'ONTAPE' FROM generate_series(1, 300) n`,
  );
});

const REST = '/tape_control/api/v1';
const decoders: Record<string, (bytes: Buffer) => Buffer> = {
  gzip: zlib.gunzipSync,
  br: zlib.brotliDecompressSync,
};
const encodings = Object.keys(decoders);

interface Wanted {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
}

async function begin(path: string, { method = 'GET', headers = {}, body }: Wanted = {}): Promise<http.IncomingMessage> {
  const request = http.request(`${app.url}${path}`, { method, headers, agent: false });
  request.end(body);
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  return response;
}

async function ask(path: string, wanted: Wanted = {}) {
  const response = await begin(path, wanted);
  const bytes = await buffer(response);
  const { 'content-encoding': encoding, 'content-length': length, vary, etag } = response.headers;
  if (length !== undefined && wanted.method !== 'HEAD') expect(bytes.length).toBe(Number(length));
  const decoded = encoding === undefined || bytes.length === 0 ? bytes : decoders[encoding]?.(bytes);
  return { status: response.statusCode, encoding, length, vary, etag, bytes, text: decoded?.toString() };
}

const accepting = (encoding: string) => ({ headers: { 'Accept-Encoding': encoding } });

test.each([
  ['a long list', '/files?match=/long/'],
  ['a list of some files', '/files?match=/some/'],
])('%s has the same content in each encoding, and is smaller', async (_what, path) => {
  const plain = await ask(REST + path);
  expect([plain.status, plain.encoding, plain.vary]).toEqual([200, undefined, 'Accept, Accept-Encoding']);
  for (const each of encodings) {
    const answer = await ask(REST + path, accepting(each));
    expect([answer.status, answer.encoding, answer.vary]).toEqual([200, each, 'Accept, Accept-Encoding']);
    expect(answer.text === plain.text).toBe(true);
    expect(answer.bytes.length).toBeLessThan(plain.bytes.length / 3);
  }
});

test('short responses, errors, and those without Accept-Encoding are not encoded', async () => {
  const answers = [
    await ask(`${REST}/quota/alice`, accepting('gzip')),
    await ask(`${REST}/files?match=/none/`, accepting('gzip, br')),
    await ask(`${REST}/requests/77`, accepting('gzip')),
    await ask(`${REST}/files?match=/some/`, accepting('identity')),
    await ask(`${REST}/files?match=/some/`, accepting('gzip;q=0')),
  ];
  for (const { encoding, vary } of answers) expect([encoding, vary]).toEqual([undefined, 'Accept, Accept-Encoding']);
});

test('the encoding is one that the client accepts, br if it may be', async () => {
  const encodingOf = async (header: string) => (await ask(`${REST}/files?match=/some/`, accepting(header))).encoding;
  const headers = ['gzip, deflate, br, zstd', 'GZIP', '*', 'gzip;q=0.5', 'br;q=0, *', 'zstd', '*;q=0', ',;q=1,,gzip'];
  expect(await Promise.all(headers.map(encodingOf))).toEqual([
    ...['br', 'gzip', 'br', 'gzip', 'gzip', undefined, undefined, 'gzip'],
  ]);
});

test('HEAD returns the encoding of GET, without a length', async () => {
  for (const [match, headers, encoding] of [
    ['/long/', { 'Accept-Encoding': 'gzip' }, 'gzip'],
    ['/some/', { 'Accept-Encoding': 'br' }, 'br'],
    ['/long/', {}, undefined],
  ] as const) {
    const answer = await ask(`${REST}/files?match=${match}`, { method: 'HEAD', headers });
    expect([answer.status, answer.encoding, answer.bytes.length]).toEqual([200, encoding, 0]);
  }
});

test('results of GraphQL are encoded, except for mutations, which may contain a secret', async () => {
  const askGraphql = (query: string, encoding: string) => {
    const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${app.token}` };
    const body = JSON.stringify({ query });
    return ask('/graphql', { method: 'POST', headers: { ...headers, 'Accept-Encoding': encoding }, body });
  };
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
  const fields = Array.from(
    { length: 50 },
    (_, n) => `quotaOfUser${n}: setQuota(input: { user: "user${n}", size: "1" }) { quota { user } }`,
  );
  const mutation = await askGraphql(`mutation { ${fields.join(' ')} }`, 'gzip');
  expect(mutation.bytes.length).toBeGreaterThan(2048); // shorter responses are never compressed
  expect([mutation.status, mutation.encoding]).toEqual([200, undefined]);
});

test('event streams are not encoded', async () => {
  const query = 'subscription { stageChanges(match: "/some/") { path } }';
  const headers = {
    Accept: 'text/event-stream',
    'Content-Type': 'application/json',
    'Accept-Encoding': 'gzip, br',
  };
  const response = await begin('/graphql', { method: 'POST', headers, body: JSON.stringify({ query }) });
  expect([response.statusCode, response.headers['content-encoding']]).toEqual([200, 'none']);
  response.destroy();
});

test('GraphiQL is encoded, and not sent again to a browser that has it', async () => {
  const page = (headers: Record<string, string>) => ask('/graphql', { headers: { Accept: 'text/html', ...headers } });
  const plain = await page({});
  const encoded = await page({ 'Accept-Encoding': 'gzip' });
  expect([encoded.encoding, encoded.text === plain.text]).toEqual(['gzip', true]);
  expect(encoded.bytes.length).toBeLessThan(plain.bytes.length / 2);
  expect(encoded.etag).not.toBe(plain.etag);
  const again = await page({ 'Accept-Encoding': 'gzip', 'If-None-Match': `"other", W/${encoded.etag}` });
  expect([again.status, again.bytes.length, again.etag, again.encoding]).toEqual([304, 0, encoded.etag, undefined]);
  const other = await page({ 'If-None-Match': '"other"' });
  expect([other.status, other.bytes.length]).toEqual([200, plain.bytes.length]);
});

test.each(encodings)(
  'a client that leaves during a list in %s releases its connection to the database',
  async (encoding) => {
    const response = await begin(`${REST}/files?match=/long/`, accepting(encoding));
    await once(response, 'readable');
    response.destroy();
    await waitFor('the list to be closed', async () => {
      const { totalCount, idleCount } = app.ctx.db.streamPool;
      return totalCount === idleCount;
    });
  },
);

test('an encoded list whose database connection is lost is complete or breaks off', async () => {
  const read = async () => {
    const response = await begin(`${REST}/files?match=/long/`, accepting('gzip'));
    response.pause();
    await waitFor('the list to lose its connection', async () => {
      const { rows } = await app.ctx.db.pool.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND state = 'active' AND query LIKE 'COPY %'`,
      );
      return rows.length > 0;
    });
    return await buffer(response);
  };
  // if the connection is lost after the last row, the list is complete
  await waitFor('a list to break off', async () => {
    const bytes = await read().catch((error: Error) => error.message);
    if (bytes === 'aborted') return true;
    expect(JSON.parse(zlib.gunzipSync(bytes as Buffer).toString())).toHaveLength(4000);
    return false;
  });
});
