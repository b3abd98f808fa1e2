/** Security headers of responses, and GraphiQL under their policy. */
import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { startBeside } from '../support/app.js';
import { type Call, send, sendAsIs } from '../support/http.js';
import { useApp } from '../support/use-app.js';

const app = useApp();

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
  ['nothing', '/nothing', 404],
];

/** Responses that are the same for all callers, and that a browser revalidates before each use. */
const UNCHANGED = ['GraphiQL', 'a stream', 'the schema', 'the contract'];

const NOTHING = "default-src 'none';frame-ancestors 'none';base-uri 'none';form-action 'none'";

const EXPECTED: Record<string, string | null> = {
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'strict-transport-security': null,
  'x-powered-by': null,
};

test.each(answers)(
  '%s has the security headers, and is cached only if it is the same for all callers',
  async (name, target, status, call) => {
    const answer = await sendAsIs(app, target, call);
    const found = Object.keys(EXPECTED).map((header) => [header, answer.headers.get(header)]);
    expect([answer.status, Object.fromEntries(found)]).toEqual([status, EXPECTED]);
    const policy = answer.headers.get('content-security-policy');
    if (name === 'GraphiQL') expect(policy).toContain("frame-ancestors 'none'");
    else expect(policy).toBe(NOTHING);
    expect(answer.headers.get('cache-control')).toBe(UNCHANGED.includes(name) ? 'no-cache' : 'no-store');
  },
);

test('GraphiQL has one script, which its policy allows by hash, and loads nothing from other hosts', async () => {
  const { headers, text } = await send(app, '/graphql', { headers: { Accept: 'text/html' } });
  const inside = text.slice(text.indexOf('<script>') + '<script>'.length, text.lastIndexOf('</script>'));
  expect(inside).not.toBe('');
  // HTML ends a script at the first end tag
  expect(inside).not.toMatch(/<\/script/i);
  const hash = createHash('sha256').update(inside).digest('base64');
  const policy = headers.get('content-security-policy')?.split('; ');
  expect(new Set(policy)).toEqual(
    new Set([
      "default-src 'none'",
      `script-src 'sha256-${hash}'`,
      'worker-src blob:',
      "style-src 'unsafe-inline'",
      "img-src 'self' data:",
      'font-src data:',
      "connect-src 'self'",
      "frame-ancestors 'none'",
      "base-uri 'none'",
      "form-action 'none'",
    ]),
  );
});

test('Strict-Transport-Security is sent if the public URL is https, and not if it is http', async () => {
  for (const [publicUrl, expected] of [
    ['https://tapes.example.org', 'max-age=15552000'],
    ['http://tapes.example.org', null],
  ] as const) {
    const other = await startBeside(app, { config: { publicUrl } });
    try {
      for (const path of [`${API}/files`, '/graphql', '/health/live'])
        expect((await send(other, path)).headers.get('strict-transport-security')).toBe(expected);
    } finally {
      await other.close();
    }
  }
});
