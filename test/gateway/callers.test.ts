/** Limits of one caller, and the resources that remain for other callers. */
import { once } from 'node:events';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { Config, Limits } from '../../src/config/config.js';
import { setQuotaMember } from '../../src/domain/access/members.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { countConnections } from '../../src/gateway/limits/limits.js';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { sendGraphql } from '../support/graphql.js';
import { request, send } from '../support/http.js';
import { whileLocked } from '../support/locks.js';
import { OF_PROXY, PROXY_SECRET } from '../support/proxy.js';
import { errorBody, get, post } from '../support/rest.js';
import { openStream, reserveStream, sendReserved } from '../support/streams.js';
import { waitFor, whenClosed } from '../support/wait.js';

const open: { destroy(): unknown }[] = [];
let first: TestApp;
let app: TestApp | undefined;
beforeAll(async () => {
  first = await startApp();
  for (const user of ['alice', 'bob', 'lab']) await addQuota(first.ctx, user, 1_000_000n);
});

async function start(limits: Partial<Limits>, access: Partial<Config['access']> = {}): Promise<TestApp> {
  app = await startBeside(first, { limits, config: { access } });
  return app;
}

const end = async () => {
  for (const each of open.splice(0)) each.destroy();
  await app?.close();
  app = undefined;
};
afterEach(end);
afterAll(async () => {
  await end();
  await first.close();
});

/** A gateway called without a token. */
const anonymous = ({ url }: TestApp) => ({ url });

/** Opens a connection from a local address and sends nothing. */
async function connect({ url }: TestApp, localAddress: string): Promise<net.Socket> {
  const socket = net.connect({ host: '127.0.0.1', port: Number(new URL(url).port), localAddress });
  socket.on('error', () => {});
  open.push(socket);
  await once(socket, 'connect');
  return socket;
}

const EVENTS = { 'Content-Type': 'application/json', Accept: 'text/event-stream' };
const CHANGES = 'subscription { stageChanges(match: "/a/") { path } }';
const GET = 'GET /tape_control/api/v1/requests HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n';

/** Sends a request and returns the status, `Retry-After` and body of the response. */
async function askOn(socket: net.Socket): Promise<[status: number, retryAfter: string | undefined, body: unknown]> {
  socket.write(GET.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
  const answer = await text(socket);
  const [head = '', body = ''] = answer.split('\r\n\r\n');
  const json = body.slice(body.indexOf('['), body.lastIndexOf(']') + 1);
  return [Number(head.split(' ')[1]), /^retry-after: (.*)$/im.exec(head)?.[1], JSON.parse(json)];
}

test('an address over its half of all connections is cut off, and others are served', async () => {
  const narrow = await start({ connections: 16 });
  const held = await Promise.all(Array.from({ length: 12 }, () => connect(narrow, '127.0.0.2')));
  await waitFor('connections over the half to be closed', async () => {
    const closed = held.filter((socket) => socket.destroyed || socket.readableEnded);
    return closed.length === 4;
  });
  expect((await askOn(await connect(narrow, '127.0.0.3')))[0]).toBe(200);
  open.splice(0).map((each) => each.destroy());
  await waitFor('an answer', async () => {
    // fails until the gateway has closed the other connections
    const [status] = await askOn(await connect(narrow, '127.0.0.2')).catch(() => []);
    return status === 200;
  });
});

test('beyond the limit of all connections a new one is closed, until others end', async () => {
  const narrow = await start({ connections: 16 });
  for (let n = 0; n < 16; n++) await connect(narrow, `127.0.0.${10 + n}`);
  const beyond = await connect(narrow, '127.0.0.3');
  await whenClosed(beyond.resume());
  open.shift()?.destroy();
  await waitFor('an answer', async () => {
    const [status] = await askOn(await connect(narrow, '127.0.0.3')).catch(() => []);
    return status === 200;
  });
});

test('1,000 idle connections of one address do not keep others out', async () => {
  const usual = await start({});
  await Promise.all(Array.from({ length: 1000 }, () => connect(usual, '127.0.0.2')));
  expect((await askOn(await connect(usual, '127.0.0.2')))[0]).toBe(200);
  expect((await askOn(await connect(usual, '127.0.0.3')))[0]).toBe(200);
});

test('connections leave file descriptors for the database and the drives', () => {
  const limits = { connections: 10_000, longLists: 16 } as Limits;
  const most = (drives: number, descriptors?: number) => countConnections({ drives, limits }, descriptors);
  expect([most(2, 320), most(20, 320), most(2, 1024), most(2, 100_000), most(2, 50), most(2)]).toEqual([
    196, 124, 900, 10_000, 16, 10_000,
  ]);
});

test('a connection whose request header or body does not arrive in time gets 408', async () => {
  const impatient = await start({ headerSeconds: 1, requestSeconds: 1 });
  const open = () => connect(impatient, '127.0.0.1');
  const [silent, slowHeader, slowBody] = [await open(), await open(), await open()];
  slowHeader.write('GET /tape_control/api/v1/requests HTTP/1.1\r\nHost: 127.0');
  slowBody.write('POST /tape_control/api/v1/requests HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n');
  const trickle = setInterval(() => slowBody.write(' '), 50);
  try {
    const sockets = [silent, slowHeader, slowBody];
    const answers = await Promise.all(sockets.map(async (socket) => (await text(socket)).split(' ')[1]));
    expect(answers).toEqual(['408', '408', '408']);
  } finally {
    clearInterval(trickle);
  }
});

test('a connection without requests is closed after its last answer', async () => {
  const impatient = await start({ idleSeconds: 1 });
  const idle = await connect(impatient, '127.0.0.1');
  idle.write(GET);
  expect((await text(idle)).split(' ')[1]).toBe('200');
});

test('responses report the rate limit, and beyond it return 429 in the form of the protocol', async () => {
  const narrow = await start({ rateLimit: 3, rateLocal: true });
  const first = await get(narrow, '/requests');
  expect([first.status, first.headers.get('ratelimit-policy'), first.headers.get('ratelimit')]).toEqual([
    200,
    expect.stringMatching(/^"caller"; q=3; w=60; pk=/),
    expect.stringMatching(/^"caller"; r=2; t=\d+$/),
  ]);
  await get(narrow, '/quota/alice');
  expect((await sendGraphql(anonymous(narrow), { query: '{ __typename }' })).status).toBe(200);
  const message = 'more than 3 requests in a minute: try again later';
  const refused = await post(narrow, { quota: 'alice', patterns: '/a/' });
  expect([refused.status, refused.headers.get('retry-after'), refused.body]).toEqual([
    429,
    expect.stringMatching(/^\d+$/),
    errorBody(message),
  ]);
  const asked = await sendGraphql(anonymous(narrow), { query: '{ __typename }' });
  expect([asked.status, asked.body]).toEqual([
    429,
    { errors: [{ message, extensions: { code: 'TOO_MANY_REQUESTS' } }] },
  ]);
  expect((await send(narrow, '/health/ready')).status).toBe(200);
  expect((await askOn(await connect(narrow, '127.0.0.2')))[0]).toBe(200);
});

test('requests from this host have no rate limit', async () => {
  const usual = await start({ rateLimit: 10 });
  const answers = await Promise.all(Array.from({ length: 12 }, () => get(usual, '/quota/alice')));
  expect(answers.map(({ status }) => status)).toEqual(Array(12).fill(200));
});

test('a caller over its limit of simultaneous requests gets 429', async () => {
  const narrow = await start({ callerRequests: 3 });
  const { answers } = await whileLocked(narrow, 'LOCK TABLE quota IN ACCESS EXCLUSIVE MODE', async () => {
    const answers = Array.from({ length: 3 }, () => get(narrow, '/quota/alice'));
    await waitFor('the fourth to be refused', async () => (await get(narrow, '/requests')).status === 429);
    const refused = await get(narrow, '/requests');
    expect([refused.headers.get('retry-after'), refused.body]).toEqual([
      '5',
      errorBody('the limit of 3 concurrent requests per caller is reached: try again later'),
    ]);
    expect((await send(narrow, '/health/live')).status).toBe(200);
    return { answers };
  });
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([200, 200, 200]);
});

test('streams have their own limits, and release their slots when they end', async () => {
  const narrow = await start({ callerStreams: 3, streams: 5, callerRequests: 2 });
  const leaving = new AbortController();
  const watch = async (path: string, { signal } = leaving) =>
    await request(narrow, path, { headers: EVENTS, body: { query: CHANGES }, signal });
  expect((await watch('/graphql')).status).toBe(200);
  expect((await watch('/graphql/stream')).status).toBe(200);
  const open = async () => {
    const headers = { ...EVENTS, 'X-GraphQL-Event-Stream-Token': await reserveStream(narrow) };
    return await request(narrow, '/graphql/stream', { headers, signal: leaving.signal });
  };
  expect((await open()).status).toBe(200);
  const message = 'the limit of 3 streams per caller is reached: try again later';
  const errors = [{ message, extensions: { code: 'TOO_MANY_REQUESTS' } }];
  for (const answer of [await watch('/graphql'), await open()]) {
    expect([answer.status, answer.headers.get('retry-after'), await answer.json()]).toEqual([429, '5', { errors }]);
  }
  leaving.abort();
  await waitFor('a slot to be released', async () => {
    const controller = new AbortController();
    const answer = await watch('/graphql', controller);
    controller.abort();
    return answer.status === 200;
  });
});

test('tokens of streams take no slots of streams, and an operation waits for no stream that is not open', async () => {
  const narrow = await start({ streams: 1 });
  const tokens = await Promise.all(Array.from({ length: 10 }, () => reserveStream(narrow)));
  expect(new Set(tokens).size).toBe(10);
  expect((await sendReserved(narrow, tokens[0] ?? '', { query: CHANGES })).status).toBe(404);
  const leaving = new AbortController();
  const call = { headers: EVENTS, body: { query: CHANGES }, signal: leaving.signal };
  expect((await request(anonymous(narrow), '/graphql', call)).status).toBe(200);
  leaving.abort();
});

test('a stream in single connection mode has a limit of operations', async () => {
  const narrow = await start({ streamOperations: 2 });
  const { token, close } = await openStream(narrow);
  const begin = (operationId: string) => sendReserved(narrow, token, { query: CHANGES }, operationId);
  const answers = [await begin('a'), await begin('b'), await begin('c')];
  expect(answers.map(({ status }) => status)).toEqual([202, 202, 429]);
  expect(answers[2]?.body).toMatchObject({
    errors: [
      { message: 'the stream already has 2 operations, which is the maximum: try again when one of them has ended' },
    ],
  });
  const headers = { 'X-GraphQL-Event-Stream-Token': token };
  await send(narrow, '/graphql/stream?operationId=a', { method: 'DELETE', headers });
  expect((await begin('c')).status).toBe(202);
  close();
});

test('a query in single connection mode keeps the room of its body until it ends, also without its POST', async () => {
  const narrow = await start({ bodiesMb: 1 });
  const { token, close } = await openStream(narrow);
  const leaving = new AbortController();
  const headers = { 'Content-Type': 'application/json', 'X-GraphQL-Event-Stream-Token': token };
  const padded = (query: string) => JSON.stringify({ query, extensions: { operationId: '1' } }).padEnd(300_000);
  const ask = async () => (await sendGraphql(narrow, padded('{ __typename }'))).status;
  await whileLocked(narrow, 'LOCK TABLE quota IN ACCESS EXCLUSIVE MODE', async (waiters) => {
    const call = { headers, body: padded('{ quotas { edges { node { user } } } }'), signal: leaving.signal };
    const abandoned = request(narrow, '/graphql/stream', call).catch(() => {});
    await waiters(1);
    leaving.abort();
    await abandoned;
    // the gateway notices the disconnect during these requests
    for (let n = 0; n < 5; n++) expect(await ask()).toBe(429);
  });
  await waitFor('the query to end', async () => (await ask()) === 200);
  close();
});

const behindProxy = { proxies: { ranges: ['127.0.0.1'], sockets: [] }, proxySecret: PROXY_SECRET };

test('the rate-limit key of a user is its name, whatever its token, address and rights', async () => {
  const access = { auth: new Set(['token', 'proxy'] as const), ...behindProxy };
  const narrow = await start({ rateLimit: 2 }, access);
  const tokenOf = async (name: string) => (await createToken(narrow.ctx, { name, role: 'USER' })).secret;
  const ask = async (headers: Record<string, string>, client = '192.0.2.1') => {
    const all = { ...OF_PROXY, 'X-Forwarded-For': client, 'X-Forwarded-Proto': 'https', ...headers };
    const { status } = await send({ url: narrow.url }, '/tape_control/api/v1/requests', { headers: all });
    return status;
  };
  const bearer = (secret: string) => ({ Authorization: `Bearer ${secret}` });
  const [one, other, bobs] = [await tokenOf('alice'), await tokenOf('alice'), await tokenOf('bob')];
  expect([await ask(bearer(one)), await ask(bearer(other), '192.0.2.9')]).toEqual([200, 200]);
  expect([await ask(bearer(one)), await ask(bearer(other)), await ask({ 'X-Remote-User': 'alice' })]).toEqual([
    429, 429, 429,
  ]);
  const rung = new Promise<void>((resolve) => narrow.ctx.events.onNotify('rights', resolve));
  await setQuotaMember(narrow.ctx, { quota: 'lab', kind: 'USER', name: 'alice', isManager: false });
  await rung;
  expect(await ask(bearer(one))).toBe(429);
  expect([await ask(bearer(bobs)), await ask({ 'X-Remote-User': 'dora' })]).toEqual([200, 200]);
});

test('the rate-limit key of an anonymous client behind a listed proxy is its own address, and the proxy has no limit of connections', async () => {
  const legacy = [{ endpoint: 'GET /requests' }] as const;
  const access = { auth: new Set(['token', 'legacy'] as const), legacy, ...behindProxy };
  const narrow = await start({ rateLimit: 1, connections: 16 }, access);
  const from = async (client: string) => {
    const headers = { ...OF_PROXY, 'X-Forwarded-For': client };
    return (await send({ url: narrow.url }, '/tape_control/api/v1/requests', { headers })).status;
  };
  expect([await from('192.0.2.1'), await from('192.0.2.1'), await from('192.0.2.2')]).toEqual([200, 429, 200]);
  for (let n = 0; n < 10; n++) await connect(narrow, '127.0.0.1');
  expect(await from('192.0.2.3')).toBe(200);
});
