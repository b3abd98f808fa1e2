/** What every answer says to browsers for the gateway's own sake, and that GraphiQL runs under it. */
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { type Answer, type Call, send, sendAsIs } from '../support/http.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
});
afterAll(() => app.close());

const API = '/tape_control/api/v1';
const JSON_TYPE = { 'Content-Type': 'application/json' };
const typename = JSON.stringify({ query: '{ __typename }' });

const answers: [name: string, target: string, status: number, call?: Call & { body?: string }][] = [
  ['a list of REST', `${API}/requests`, 200],
  ['an error of REST', `${API}/requests/77`, 404],
  ['a refused body of REST', `${API}/requests`, 400, { method: 'POST', body: '{' }],
  ['a host that is none', `${API}/requests`, 400, { headers: { Host: 'a b' } }],
  ['a host of others', '/graphql', 421, { headers: { Host: 'evil.example' } }],
  ['a page of others', '/graphql', 403, { headers: { Origin: 'https://evil.example' } }],
  ['a result', '/graphql', 200, { method: 'POST', headers: JSON_TYPE, body: typename }],
  ['a query at fault', '/graphql', 400],
  ['a stream', '/graphql/stream?query=%7B__typename%7D', 200, { headers: { Accept: 'text/event-stream' } }],
  ['a reservation', '/graphql/stream', 201, { method: 'PUT' }],
  ['GraphiQL', '/graphql', 200, { headers: { Accept: 'text/html' } }],
  ['health', '/health/live', 200],
  ['the schema', '/graphql/schema.graphql', 200],
  ['the contract', '/openapi.json', 200],
  ['the page of the contract', '/openapi', 200],
  ['nothing', '/nothing', 404],
];

/** The same for everybody, asked for again each time. */
const UNCHANGED = ['GraphiQL', 'a stream', 'the schema', 'the contract', 'the page of the contract'];

const NOTHING = "default-src 'none';frame-ancestors 'none';base-uri 'none';form-action 'none'";

const securityOf = ({ headers }: Answer) =>
  Object.fromEntries(
    [
      'x-content-type-options',
      'x-frame-options',
      'referrer-policy',
      'cross-origin-opener-policy',
      'cross-origin-resource-policy',
      'strict-transport-security',
      'x-powered-by',
    ].map((name) => [name, headers.get(name)]),
  );

const EXPECTED = {
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'strict-transport-security': null,
  'x-powered-by': null,
};

test.each(answers)('%s is framed by nobody, and taken for nothing else', async (name, target, status, call) => {
  const answer = await sendAsIs(app, target, call);
  expect([answer.status, securityOf(answer)]).toEqual([status, EXPECTED]);
  const policy = answer.headers.get('content-security-policy');
  if (['GraphiQL', 'the page of the contract'].includes(name)) expect(policy).toContain("frame-ancestors 'none'");
  else expect(policy).toBe(NOTHING);
});

test.each(answers)('%s is kept by no cache for anybody else', async (name, target, _status, call) => {
  const { headers } = await sendAsIs(app, target, call);
  expect(headers.get('cache-control')).toBe(UNCHANGED.includes(name) ? 'no-cache' : 'no-store');
});

test('what REST answers keeps its type and its Vary', async () => {
  const { headers } = await send(app, `${API}/requests`);
  expect([headers.get('content-type'), headers.get('vary')]).toEqual(['application/json', 'Accept, Accept-Encoding']);
});

test('GraphiQL has one script, which its policy knows by its hash, and nothing comes from other hosts', async () => {
  const { headers, text } = await send(app, '/graphql', { headers: { Accept: 'text/html' } });
  const scripts = text.match(/<script\b/g) ?? [];
  const inside = text.slice(text.indexOf('<script>') + '<script>'.length, text.lastIndexOf('</script>'));
  expect(scripts.length).toBeGreaterThan(0);
  // a parser of HTML ends the script at the first end tag
  expect(inside).not.toMatch(/<\/script/i);
  const hash = createHash('sha256').update(inside).digest('base64');
  const policy = Object.fromEntries(
    (headers.get('content-security-policy') ?? '').split('; ').map((directive) => {
      const [name = '', ...sources] = directive.split(' ');
      return [name, sources.join(' ')];
    }),
  );
  expect(policy).toEqual({
    'default-src': "'none'",
    'script-src': `'sha256-${hash}'`,
    'worker-src': 'blob:',
    'style-src': "'unsafe-inline'",
    'img-src': "'self' data:",
    'font-src': 'data:',
    'connect-src': "'self'",
    'frame-ancestors': "'none'",
    'base-uri': "'none'",
    'form-action': "'none'",
  });
});

test.each([
  ['https://tapes.example.org', 'max-age=15552000'],
  ['http://tapes.example.org', null],
])('browsers are held to TLS where users come by it: %s', async (publicUrl, expected) => {
  const other = await startApp({ config: { publicUrl } });
  try {
    for (const path of [`${API}/files`, '/graphql', '/health/live']) {
      expect((await send(other, path)).headers.get('strict-transport-security')).toBe(expected);
    }
  } finally {
    await other.close();
  }
});
