/**
 * Requests that pages of this origin and of other origins may send to each endpoint, with headers that only browsers
 * set.
 */
import { networkInterfaces } from 'node:os';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { type Answer, sendAsIs } from '../support/http.js';
import { openStream } from '../support/streams.js';

const LISTED = 'https://portal.example.org';
const PUBLIC = 'https://tapes.example.org';
const EVIL = 'https://evil.example';

let app: TestApp;
/** A gateway without TAPEGATE_CORS_ORIGINS, TAPEGATE_PUBLIC_URL and TAPEGATE_ALLOWED_HOSTS. */
let closed: TestApp;
beforeAll(async () => {
  app = await startApp({
    config: {
      corsOrigins: [LISTED],
      corsExposedHeaders: ['X-Trace-Id'],
      publicUrl: `${PUBLIC}/below`,
      allowedHosts: ['tape_gate', '[2001:db8::7]'],
    },
  });
  closed = await startBeside(app, {
    config: { host: '0.0.0.0', corsOrigins: [], publicUrl: undefined, allowedHosts: [] },
  });
  await addQuota(app.ctx, 'alice', 1_000_000n);
});
afterAll(async () => {
  await closed.close();
  await app.close();
});

const JSON_TYPE = { 'Content-Type': 'application/json' };
const EVENTS = { Accept: 'text/event-stream' };
const REST = '/tape_control/api/v1';
const request = JSON.stringify({ quota: 'alice', patterns: '/browsers/', label: 'a page' });
const mutation = `mutation { createRequest(input: { quota: "alice", pattern: "/browsers/" }) { errors { message } } }`;
const query = JSON.stringify({ query: '{ __typename }' });
const subscription = encodeURIComponent('subscription { requestProgress(requestId: 2147483647) { state } }');

interface Endpoint {
  method: string;
  target: string;
  headers: Record<string, string>;
  body: string | undefined;
  /** HTTP status for an allowed caller. */
  status: number;
}

const endpoint = (
  method: string,
  target: string,
  status = 200,
  headers: Record<string, string> = {},
  body?: string,
): Endpoint => ({ method, target, headers, body, status });

/** Requests that change something or run long, which no page of another origin may send. */
const writes: Endpoint[] = [
  ...['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'application/json'].map(
    (type) => endpoint('POST', `${REST}/requests`, 200, { 'Content-Type': type }, request),
  ),
  endpoint('PUT', `${REST}/requests/2147483647`, 404, {}, request),
  endpoint('DELETE', `${REST}/requests/1`, 405),
  endpoint('POST', '/graphql', 200, JSON_TYPE, query),
  endpoint('POST', '/graphql', 200, JSON_TYPE, JSON.stringify({ query: mutation })),
  endpoint('POST', '/graphql/stream', 200, { ...JSON_TYPE, ...EVENTS }, query),
  endpoint('PUT', '/graphql/stream', 201),
  endpoint('DELETE', '/graphql/stream?operationId=1', 404),
  endpoint('POST', '/nothing', 404),
];

const reads: Endpoint[] = [
  endpoint('GET', `${REST}/requests`),
  endpoint('GET', `${REST}/requests/2147483647`, 404),
  endpoint('GET', `${REST}/files?match=/browsers/`),
  endpoint('GET', `${REST}/quota/alice`),
  endpoint('GET', '/graphql?query=%7B__typename%7D'),
  endpoint('GET', `/graphql?query=${subscription}`, 200, EVENTS),
  endpoint('GET', `/graphql/stream?query=${subscription}`, 200, EVENTS),
  endpoint('GET', '/graphql', 200, { Accept: 'text/html' }),
  endpoint('GET', '/nothing', 404),
];

const send = ({ target, method, body, headers }: Endpoint, more: Record<string, string>) =>
  sendAsIs(app, target, { method, headers: { ...headers, ...more }, body });

async function expectAnswer(endpoint: Endpoint, headers: Record<string, string>): Promise<void> {
  expect([headers, (await send(endpoint, headers)).status]).toEqual([headers, endpoint.status]);
}

function expectRefusal({ target }: Endpoint, answer: Answer, status: number, says: RegExp): void {
  const message = expect.stringMatching(says);
  const isRest = target.includes(REST);
  const others = target.startsWith('/graphql') ? { errors: [{ message }] } : { error: message };
  expect([answer.status, answer.body]).toEqual([status, isRest ? [{ error: message, error_msg: message }] : others]);
  if (!isRest) return;
  expect(answer.headers.get('content-type')).toBe('application/json');
  expect(answer.headers.get('vary')).toMatch(/^Accept\b/);
}

/** Runs `work`, which must not create a request. */
async function whileUnchanged(work: () => Promise<unknown>): Promise<void> {
  const count = async () => (await app.ctx.db.pool.query('SELECT count(*) AS n FROM request')).rows;
  const before = await count();
  await work();
  expect(await count()).toEqual(before);
}

const foreign: Record<string, string>[] = [
  { Origin: EVIL },
  { Origin: 'null' },
  { Origin: '' },
  { Origin: `${EVIL}, ${LISTED}` },
  { Origin: `${LISTED}.evil.example` },
  { Origin: `${LISTED}:444` },
  { Origin: 'http://portal.example.org' },
  { Origin: `${PUBLIC}/below` },
  { Origin: 'http://127.0.0.1' }, // another port
  { Origin: 'chrome-extension://abcdefghijklmnop' },
  { Origin: EVIL, 'Sec-Fetch-Site': 'same-origin' },
  { 'Sec-Fetch-Site': 'cross-site' },
  { 'Sec-Fetch-Site': 'same-site' },
  { 'Sec-Fetch-Site': 'same-origin, cross-site' },
  { 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'no-cors', 'Sec-Fetch-Dest': 'image' },
  { 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'navigate', 'Sec-Fetch-Dest': 'iframe' },
];

const own: Record<string, string>[] = [
  {},
  { 'Sec-Fetch-Site': 'same-origin' },
  { 'Sec-Fetch-Site': 'none' },
  { Origin: PUBLIC, 'Sec-Fetch-Site': 'cross-site' },
  { Origin: LISTED, 'Sec-Fetch-Site': 'cross-site' },
  { Origin: LISTED },
];
const link = { 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'navigate', 'Sec-Fetch-Dest': 'document' };
const BY_ORIGIN = /^requests from pages of another origin are not allowed \((Origin|Sec-)/;
const BY_HOST = /^unknown host ".*": use the host in TAPEGATE_PUBLIC_URL or a host in TAPEGATE_ALLOWED_HOSTS$/;
/** The headers that a page sends after DNS rebinding. */
const reboundTo = (Host: string) => ({ Host, Origin: `http://${Host}`, 'Sec-Fetch-Site': 'same-origin' });

/** A write and a read, for checks that do not depend on the endpoint. */
const [write, read] = [writes[0], reads[4]] as [Endpoint, Endpoint];

test.each(foreign)('a page of another origin is refused: %j', async (headers) => {
  await whileUnchanged(async () => {
    for (const endpoint of [write, read]) expectRefusal(endpoint, await send(endpoint, headers), 403, BY_ORIGIN);
  });
});

test('other clients, own pages and listed pages are served', async () => {
  for (const headers of [...own, { Origin: app.url }, { Origin: app.url, 'Sec-Fetch-Site': 'same-origin' }]) {
    for (const endpoint of [write, read]) await expectAnswer(endpoint, headers);
  }
});

test.each([
  'evil.example',
  'evil.example:8080',
  '127.0.0.1.evil.example',
  'localhost.evil.example',
  '192.0.2.1',
  '[2001:db8::1]',
])('a foreign host is refused: %s', async (Host) => {
  for (const endpoint of [write, read])
    for (const headers of [reboundTo(Host), { Host }])
      expectRefusal(endpoint, await send(endpoint, headers), 421, BY_HOST);
});

test.each([
  ...['localhost', 'LOCALHOST:99', 'localhost.', 'tapes.localhost:8080', '127.0.0.1:1', '127.9.9.9', '127.1', '[::1]'],
  ...['[::ffff:127.0.0.1]:80', 'tapes.example.org', 'tapes.example.org:444', 'Tape_Gate', '[2001:DB8::7]:80', ''],
])('the host %j is accepted', async (Host) => {
  for (const endpoint of [write, read]) await expectAnswer(endpoint, { Host });
});

test.each([...writes, ...reads])('$method $target serves own pages only', async (endpoint) => {
  await whileUnchanged(async () => {
    const refused: Record<string, string>[] = [{ Origin: EVIL }, { 'Sec-Fetch-Site': 'cross-site' }];
    // a link from another origin may be followed, but a form must not be submitted
    if (writes.includes(endpoint)) refused.push(link, { ...link, Origin: EVIL });
    for (const headers of refused) expectRefusal(endpoint, await send(endpoint, headers), 403, BY_ORIGIN);
    expectRefusal(endpoint, await send(endpoint, reboundTo('evil.example')), 421, BY_HOST);
  });
  await expectAnswer(endpoint, {});
  await expectAnswer(endpoint, { Origin: LISTED, 'Sec-Fetch-Site': 'cross-site' });
  if (reads.includes(endpoint)) await expectAnswer(endpoint, link);
});

test('the host of an absolute target takes precedence over the header', async () => {
  const list = endpoint('GET', `${REST}/requests`);
  const ask = (base: string, Host: string) => send({ ...list, target: base + list.target }, { Host });
  expect((await ask('http://localhost', 'evil.example')).status).toBe(200);
  expectRefusal(list, await ask('http://evil.example', 'localhost'), 421, /^unknown host "evil.example"/);
});

test('a gateway that listens on all addresses accepts each of them as host, and no name', async () => {
  const statusOf = async (Host: string) => (await sendAsIs(closed, `${REST}/files`, { headers: { Host } })).status;
  const hosts = ['0.0.0.0', '127.0.0.1', '192.0.2.1', 'evil.example'];
  expect(await Promise.all(hosts.map(statusOf))).toEqual([200, 200, 421, 421]);
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const outer = all.find(({ family, internal }) => family === 'IPv4' && !internal);
  if (!outer) return; // this machine has only loopback addresses
  const url = closed.url.replace('0.0.0.0', outer.address);
  expect((await sendAsIs({ url }, `${REST}/files`)).status).toBe(200);
});

test('if each caller must authenticate, any host is accepted', async () => {
  const strict = await startBeside(app, { config: { access: { auth: new Set(['token']) } } });
  try {
    const headers = { Host: 'evil.example', Authorization: `Bearer ${strict.token}` };
    expect((await sendAsIs(strict, `${REST}/requests`, { headers })).status).toBe(200);
    expect((await sendAsIs(strict, `${REST}/requests`, { headers: { Host: 'evil.example' } })).status).toBe(401);
  } finally {
    await strict.close();
  }
});

test('R145 a request for another host returns 421', async () => {
  const answer = await sendAsIs(app, `${REST}/requests`, { headers: { Host: 'evil.example' } });
  const message =
    'unknown host "evil.example": use the host in TAPEGATE_PUBLIC_URL or a host in TAPEGATE_ALLOWED_HOSTS';
  expect([answer.status, answer.text]).toEqual([421, JSON.stringify([{ error: message, error_msg: message }])]);
});

test('R144 a request from a page of another origin returns 403 and stores nothing', async () => {
  const headers = { Origin: EVIL, 'Content-Type': 'text/plain' };
  await whileUnchanged(async () => {
    const answer = await sendAsIs(app, `${REST}/requests`, { method: 'POST', headers, body: request });
    const message = `requests from pages of another origin are not allowed (Origin: "${EVIL}"): use the URL in TAPEGATE_PUBLIC_URL, or add the origin to TAPEGATE_CORS_ORIGINS`;
    expect([answer.status, answer.body]).toEqual([403, [{ error: message, error_msg: message }]]);
  });
});

test.each(['/health/live', '/health/ready'])('%s is public', async (path) => {
  for (const headers of [...foreign, { Host: 'evil.example' }])
    expect((await sendAsIs(app, path, { headers })).status).toBe(200);
});

test.each([
  ['a result', '/graphql?', { Accept: 'application/json' }],
  ['an event stream', '/graphql?', EVENTS],
  ['a stream', '/graphql/stream?', EVENTS],
  ['a stream in single connection mode', `/graphql/stream?extensions=%7B%22operationId%22%3A%221%22%7D&`, {}],
])('a mutation by GET is refused: %s', async (name, path, headers) => {
  const isSingle = name.includes('single');
  const stream = isSingle ? await openStream({ url: app.url }) : undefined;
  await whileUnchanged(async () => {
    const target = `${path}query=${encodeURIComponent(mutation)}${stream ? `&token=${stream.token}` : ''}`;
    const answer = await sendAsIs(app, target, { headers });
    expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'POST']);
  });
});

test('GraphQL reads a body only if its type is application/json', async () => {
  for (const type of ['application/json', 'application/json; charset=utf-8', 'Application/JSON;charset="UTF-8"']) {
    expect((await send(endpoint('POST', '/graphql', 200, { 'Content-Type': type }, query), {})).body).toEqual({
      data: { __typename: 'Query' },
    });
  }
  for (const type of [
    ...['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'application/graphql'],
    ...[
      'application/json-seq',
      'application/vnd.api+json',
      'text/plain; application/json',
      'text/plain, application/json',
    ],
  ]) {
    for (const target of ['/graphql', '/graphql/stream']) {
      const other = endpoint('POST', target, 415, { ...EVENTS, 'Content-Type': type }, query);
      expectRefusal(other, await send(other, {}), 415, /^Content-Type must be application\/json, not "/);
    }
  }
});

/** Returns the CORS headers of a response. */
const corsOf = ({ headers }: Answer) =>
  Object.fromEntries([...headers].filter(([name]) => name.startsWith('access-control-')));

/** Request headers of Apollo Client, urql, graphql-sse, browsers and tracing libraries. */
const CLIENT_HEADERS = [
  ...['apollo-require-preflight', 'apollographql-client-name', 'apollographql-client-version', 'authorization'],
  ...['baggage', 'content-type', 'graphql-cost', 'graphql-preflight', 'idempotency-key', 'last-event-id'],
  ...['traceparent', 'tracestate', 'x-apollo-operation-name', 'x-graphql-event-stream-token', 'x-request-id'],
].join(',');

const preflight = (Origin: string): Record<string, string> => ({
  Origin,
  'Access-Control-Request-Method': 'POST',
  'Access-Control-Request-Headers': CLIENT_HEADERS,
  'Sec-Fetch-Site': 'cross-site',
  'Sec-Fetch-Mode': 'cors',
});

const READABLE = 'Allow,RateLimit,RateLimit-Policy,Retry-After,WWW-Authenticate,X-Request-Id,traceparent,X-Trace-Id';

describe.each([
  ...[`${REST}/requests`, `${REST}/requests/1`, `${REST}/files`, `${REST}/quota/alice`],
  ...['/graphql', '/graphql/stream'],
])('CORS of %s', (path) => {
  test('a preflight of a listed origin returns what it may send', async () => {
    const answer = await sendAsIs(app, path, { method: 'OPTIONS', headers: preflight(LISTED) });
    expect([answer.status, answer.text, answer.headers.get('vary')]).toEqual([
      ...[204, ''],
      'Accept, Origin, Access-Control-Request-Headers',
    ]);
    expect(corsOf(answer)).toEqual({
      'access-control-allow-origin': LISTED,
      'access-control-allow-methods': 'GET,HEAD,PUT,PATCH,POST,DELETE',
      'access-control-allow-headers': preflight(LISTED)['Access-Control-Request-Headers'],
      'access-control-expose-headers': READABLE,
      'access-control-max-age': '600',
    });
  });

  test('a preflight of another origin returns 405 without CORS headers', async () => {
    const plain = await sendAsIs(closed, path, { method: 'OPTIONS' });
    expect([plain.status, plain.headers.get('allow')]).toEqual([405, expect.stringContaining('GET')]);
    for (const [gateway, origin] of [
      [app, EVIL],
      [app, 'null'],
      [closed, LISTED],
    ] as const) {
      const answer = await sendAsIs(gateway, path, { method: 'OPTIONS', headers: preflight(origin) });
      expect([answer.status, answer.body, corsOf(answer)]).toEqual([405, plain.body, {}]);
      expect(answer.headers.get('allow')).toBe(plain.headers.get('allow'));
    }
  });

  test('a listed page may read responses and errors, and no other page may', async () => {
    for (const method of ['GET', 'PATCH']) {
      const listed = await sendAsIs(app, path, { method, headers: { ...preflight(LISTED) } });
      expect(corsOf(listed)).toEqual({
        'access-control-allow-origin': LISTED,
        'access-control-expose-headers': READABLE,
      });
      const other = await sendAsIs(app, path, { method, headers: { ...preflight(EVIL) } });
      expect([other.status, corsOf(other)]).toEqual([403, {}]);
      // a cache must not reuse the response for another origin or for a request without an origin
      for (const { headers } of [listed, other, await sendAsIs(app, path, { method })])
        expect(headers.get('vary')).toMatch(/^Accept, Origin\b/);
    }
  });
});

test('an event stream has CORS headers', async () => {
  const answer = await sendAsIs(app, `/graphql/stream?query=${subscription}`, {
    headers: { ...EVENTS, Origin: LISTED },
  });
  expect(answer.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
  expect(corsOf(answer)['access-control-allow-origin']).toBe(LISTED);
});

test('without listed origins no response mentions origins', async () => {
  const { headers } = await sendAsIs(closed, `${REST}/requests`, { headers: { Origin: closed.url } });
  expect([headers.get('vary'), headers.get('access-control-allow-origin')]).toEqual(['Accept, Accept-Encoding', null]);
});
