/** What pages of other origins are told: nothing, unless theirs is listed. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { type Answer, send, sendAsIs } from '../support/http.js';

const LISTED = 'https://portal.example.org';
const OTHER = 'https://other.example.org';

let open: TestApp;
let closed: TestApp;
beforeAll(async () => {
  open = await startApp({ config: { corsOrigins: [LISTED, 'http://localhost:5173'] } });
  closed = await startApp();
  await addQuota(open.ctx, 'alice', 1_000_000n);
});
afterAll(async () => {
  await open.close();
  await closed.close();
});

const API = '/tape_control/api/v1';
const PATHS = [
  `${API}/requests`,
  `${API}/requests/1`,
  `${API}/files`,
  `${API}/quota/alice`,
  '/graphql',
  '/graphql/stream',
];

/** What an answer says of other origins. */
const corsOf = ({ headers }: Answer) =>
  Object.fromEntries([...headers].filter(([name]) => name.startsWith('access-control-')));

const preflight = (Origin: string, method: string): Record<string, string> => ({
  Origin,
  'Access-Control-Request-Method': method,
  'Access-Control-Request-Headers': 'authorization,content-type,last-event-id,x-graphql-event-stream-token',
  'Sec-Fetch-Site': 'cross-site',
  'Sec-Fetch-Mode': 'cors',
});

const READABLE = 'Allow,RateLimit,RateLimit-Policy,Retry-After,WWW-Authenticate';

describe.each(PATHS)('%s', (path) => {
  test.each([LISTED, 'http://localhost:5173'])('tells %s what it may send', async (origin) => {
    for (const method of ['GET', 'POST', 'PUT', 'DELETE']) {
      const answer = await sendAsIs(open, path, { method: 'OPTIONS', headers: preflight(origin, method) });
      expect([answer.status, answer.text, answer.headers.get('vary')]).toEqual([204, '', 'Accept, Origin']);
      expect(corsOf(answer)).toEqual({
        'access-control-allow-origin': origin,
        'access-control-allow-methods': 'GET,HEAD,POST,PUT,DELETE',
        'access-control-allow-headers':
          'Accept,Authorization,Content-Type,Last-Event-ID,X-GraphQL-Event-Stream-Token,X-Requested-With',
        'access-control-expose-headers': READABLE,
        'access-control-max-age': '600',
      });
    }
  });

  test('says nothing of CORS to others, and answers OPTIONS as it does without', async () => {
    const plain = await sendAsIs(closed, path, { method: 'OPTIONS' });
    expect([plain.status, plain.headers.get('allow')]).toEqual([405, expect.stringContaining('GET')]);
    for (const [app, origin] of [
      [open, OTHER],
      [open, 'null'],
      [closed, LISTED],
    ] as const) {
      const answer = await sendAsIs(app, path, { method: 'OPTIONS', headers: preflight(origin, 'POST') });
      expect([answer.status, answer.body, corsOf(answer)]).toEqual([405, plain.body, {}]);
      expect(answer.headers.get('allow')).toBe(plain.headers.get('allow'));
    }
  });

  test('is read by a listed page, errors as well, and by no other', async () => {
    const page = { 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'cors' };
    for (const method of ['GET', 'PATCH']) {
      const listed = await sendAsIs(open, path, { method, headers: { ...page, Origin: LISTED } });
      expect(corsOf(listed)).toEqual({
        'access-control-allow-origin': LISTED,
        'access-control-expose-headers': READABLE,
      });
      expect(listed.headers.get('vary')).toMatch(/^Accept, Origin\b/);
      const other = await sendAsIs(open, path, { method, headers: { ...page, Origin: OTHER } });
      expect([other.status, corsOf(other)]).toEqual([403, {}]);
      expect(other.headers.get('vary')).toMatch(/^Accept, Origin\b/);
    }
    // what is kept for whoever is no page must not be given to a page
    expect((await sendAsIs(open, path)).headers.get('vary')).toMatch(/^Accept, Origin\b/);
  });
});

test('a listed page does what scripts do', async () => {
  const headers = { Origin: LISTED, 'Content-Type': 'application/json' };
  const body = [{ quota: 'alice', patterns: '/cors/' }];
  const made = await send(open, `${API}/requests`, { headers, body });
  expect([made.status, made.headers.get('content-type')]).toEqual([200, 'application/json']);
  const token = await send(open, '/graphql/stream', { method: 'PUT', headers });
  expect([token.status, corsOf(token)['access-control-allow-origin']]).toEqual([201, LISTED]);
  const query = encodeURIComponent('subscription { requestProgress(id: 2147483647) { state } }');
  const stream = await send(open, `/graphql/stream?query=${query}`, {
    headers: { ...headers, Accept: 'text/event-stream' },
  });
  expect([stream.headers.get('content-type'), corsOf(stream)['access-control-allow-origin']]).toEqual([
    'text/event-stream; charset=utf-8',
    LISTED,
  ]);
});

test('without a listed origin nothing is said of origins at all', async () => {
  const { headers } = await sendAsIs(closed, `${API}/requests`, { headers: { Origin: closed.url } });
  expect([headers.get('vary'), headers.get('access-control-allow-origin')]).toEqual(['Accept, Accept-Encoding', null]);
});
