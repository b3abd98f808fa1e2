/** Anonymous access is for this host only: a request that came through a proxy is refused. */
import { once } from 'node:events';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { createToken, revokeToken } from '../../src/domain/access/tokens.js';
import { sendAsIs } from '../support/http.js';
import { errorBody } from '../support/rest.js';
import { useApp } from '../support/use-app.js';

const app = useApp();

const PATH = '/tape_control/api/v1/requests';
const refusal = (sign: string) =>
  errorBody(`requests through a proxy (${sign}) must be authenticated: only clients on this host may be anonymous`);

const signs = `Forwarded Forwarded-For X-Forwarded X-Forwarded-For X-Forwarded-Proto X-Forward-For Via X-Real-IP Client-IP
  X-Client-IP True-Client-IP X-Cluster-Client-IP WL-Proxy-Client-IP CF-Connecting-IP CF-Ray CDN-Loop Fastly-Client-IP
  Fly-Client-IP X-Azure-ClientIP X-Remote-Addr X-Envoy-External-Address X-Original-URL X-ARR-SSL X-Akamai-Edgescape X-Varnish
  X-Scheme Front-End-Https Surrogate-Capability X-Appengine-User-IP X-Remote-User Remote-Groups X-SSL-Client-S-DN X-Client-Cert`;

test.each(signs.split(/\s+/))('a request with %s came through a proxy', async (name) => {
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

test('a request like those of nginx came through a proxy', async () => {
  const [status, body] = await speak('HTTP/1.0\r\nHost: localhost\r\nConnection: close');
  expect([status, JSON.parse(body)]).toEqual([
    401,
    refusal('HTTP/1.0 with Connection: close, as nginx sends by default'),
  ]);
});

test('programs of this host that use HTTP/1.0 or close the connection are served', async () => {
  const heads = [
    'HTTP/1.0\r\nHost: localhost\r\nUser-Agent: curl/8.5.0\r\nAccept: */*',
    'HTTP/1.0\r\nHost: localhost\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*',
    'HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Request-ID: 1\r\nX-Amzn-Trace-Id: Root=1\r\ntraceparent: 00-1-1-00',
  ];
  for (const head of heads) expect([head, (await speak(head))[0]]).toEqual([head, 200]);
});

test('a caller can query how it is known, and so try a token before access is closed', async () => {
  const given = { name: 'ann', role: 'USER', isReadOnly: true, expiresAt: '2099-01-01' } as const;
  const { token, secret } = await createToken(app.ctx, given);
  const basic = (password: string) => `Basic ${Buffer.from(`ann:${password}`).toString('base64')}`;
  const query = encodeURIComponent('{ caller { name authentication roles isReadOnly expiresAt } }');
  const known = async (Authorization?: string) => {
    const headers = { Host: 'localhost', ...(Authorization && { Authorization }) };
    const { status, body } = await sendAsIs(app, `/graphql?query=${query}`, { headers });
    return status === 200 ? (body as { data: { caller: object } }).data.caller : status;
  };
  const ann = {
    name: 'ann',
    authentication: 'TOKEN',
    roles: ['USER'],
    isReadOnly: true,
    expiresAt: '2099-01-01T00:00:00Z',
  };
  const anybody = { name: 'anybody', authentication: 'OPEN', roles: ['USER'], isReadOnly: false, expiresAt: null };
  expect([await known(basic(secret)), await known(`Bearer ${secret}`)]).toEqual([ann, ann]);
  // the gateway ignores credentials of another system
  for (const shown of [undefined, basic('wrong'), 'Bearer other']) expect(await known(shown)).toEqual(anybody);
  expect(await known(basic(`${secret.slice(0, -1)}_`))).toBe(401);
  const rung = new Promise<void>((resolve) => app.ctx.events.onNotify('access', resolve));
  await revokeToken(app.ctx, token.id);
  await rung;
  expect(await known(basic(secret))).toBe(401);
});
