/** The open way is for this host alone: what shows that it was passed on is refused, by whatever sign. */
import { once } from 'node:events';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createToken, revokeToken } from '../../src/operations/access/tokens.js';
import { startApp, type TestApp } from '../support/app.js';
import { sendAsIs } from '../support/http.js';
import { errorBody } from '../support/rest.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
});
afterAll(() => app.close());

const PATH = '/tape_control/api/v1/requests';
const refusal = (sign: string) =>
  errorBody(`who comes through a proxy (${sign}) must say who it is: the open way is for this host alone`);

test.each([
  ...['Forwarded', 'Forwarded-For', 'X-Forwarded', 'X-Forwarded-For', 'X-Forwarded-Proto', 'X-Forward-For', 'Via'],
  ...['X-Real-IP', 'Client-IP', 'X-Client-IP', 'True-Client-IP', 'X-Cluster-Client-IP', 'WL-Proxy-Client-IP'],
  ...[
    'CF-Connecting-IP',
    'CF-Ray',
    'CDN-Loop',
    'Fastly-Client-IP',
    'Fly-Client-IP',
    'X-Azure-ClientIP',
    'X-Remote-Addr',
  ],
  ...['X-Envoy-External-Address', 'X-Original-URL', 'X-ARR-SSL', 'X-Akamai-Edgescape', 'X-Varnish', 'X-Scheme'],
  ...['Front-End-Https', 'Surrogate-Capability', 'X-Appengine-User-IP'],
])('a request with %s came through a proxy', async (name) => {
  const { status, body } = await sendAsIs(app, PATH, { headers: { Host: 'localhost', [name]: 'any' } });
  expect([status, body]).toEqual([401, refusal(name.toLowerCase())]);
});

async function speak(head: string): Promise<[status: number, body: string]> {
  const socket = net.connect(Number(new URL(app.url).port), '127.0.0.1');
  await once(socket, 'connect');
  socket.write(`GET ${PATH} ${head}\r\n\r\n`);
  const [first = '', body = ''] = (await text(socket)).split('\r\n\r\n');
  return [Number(first.split(' ')[1]), body];
}

test('so did what asks as nginx does, which says nothing of its client', async () => {
  const [status, body] = await speak('HTTP/1.0\r\nHost: localhost\r\nConnection: close');
  expect([status, JSON.parse(body)]).toEqual([
    401,
    refusal('HTTP/1.0 with Connection: close, as nginx asks; programs of this host are served by HTTP/1.1'),
  ]);
});

test('programs of this host that speak HTTP/1.0, or close, are served', async () => {
  const heads = [
    'HTTP/1.0\r\nHost: localhost\r\nUser-Agent: curl/8.5.0\r\nAccept: */*',
    'HTTP/1.0\r\nHost: localhost\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*',
    'HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Request-ID: 1\r\nX-Amzn-Trace-Id: Root=1\r\ntraceparent: 00-1-1-00',
  ];
  for (const head of heads) expect([head, (await speak(head))[0]]).toEqual([head, 200]);
});

test('whoever asks is told as whom it is known, so that a token can be tried before the door is closed', async () => {
  const { token, secret } = await createToken(app.ctx, {
    name: 'ann',
    role: 'USER',
    isReadOnly: true,
    expiresAt: '2099-01-01',
  });
  const basic = (password: string) => `Basic ${Buffer.from(`ann:${password}`).toString('base64')}`;
  const known = async (Authorization?: string) => {
    const query = encodeURIComponent('{ caller { name way roles isReadOnly expiresAt } }');
    const headers = Authorization === undefined ? {} : { Authorization };
    const { status, text } = await sendAsIs(app, `/graphql?query=${query}`, {
      headers: { Host: 'localhost', ...headers },
    });
    return status === 200 ? JSON.parse(text).data.caller : status;
  };
  const ann = { name: 'ann', way: 'token', roles: ['user'], isReadOnly: true, expiresAt: '2099-01-01T00:00:00Z' };
  const anybody = { name: 'anybody', way: 'open', roles: ['user'], isReadOnly: false, expiresAt: null };
  expect([await known(basic(secret)), await known(`Bearer ${secret}`)]).toEqual([ann, ann]);
  // a script that shows what is meant for another system goes on
  expect([await known(), await known(basic('wrong')), await known('Bearer other')]).toEqual([
    anybody,
    anybody,
    anybody,
  ]);
  expect(await known(basic(`${secret.slice(0, -1)}_`))).toBe(401);
  const rung = new Promise<void>((resolve) => app.ctx.events.onRing('access', resolve));
  await revokeToken(app.ctx, token.id);
  await rung;
  expect(await known(basic(secret))).toBe(401);
});
