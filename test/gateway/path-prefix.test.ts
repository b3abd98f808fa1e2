/** A gateway whose URL has a path prefix. The request path contains the prefix, unless a proxy has removed it. */
import { describe, expect, test } from 'vitest';
import { addQuota } from '../support/factories.js';
import { send, sendAsIs } from '../support/http.js';
import { useApp } from '../support/use-app.js';

const app = useApp({ config: { publicUrl: 'https://archive.example/tapes/one' } }, async () => {
  await addQuota(app.ctx, 'alice', 1_000_000n);
});

const JSON_TYPE = { 'Content-Type': 'application/json' };

describe.each(['', '/tapes/one', 'http://localhost', 'http://archive.example/tapes/one'])('below %j', (prefix) => {
  test('everything is where it is', async () => {
    const ask = (target: string, call = {}) => sendAsIs(app, `${prefix}${target}`, call);
    expect((await ask('/tape_control/api/v1/quota/alice')).body).toMatchObject([{ user: 'alice' }]);
    expect((await ask('/graphql?query=%7B__typename%7D')).body).toEqual({ data: { __typename: 'Query' } });
    const body = '{"query":"{__typename}"}';
    expect((await ask('/graphql', { method: 'POST', headers: JSON_TYPE, body })).status).toBe(200);
    expect((await ask('/graphql/stream', { method: 'PUT' })).status).toBe(201);
    expect((await ask('/health/ready')).body).toEqual({ status: 'ready' });
    expect((await ask('/nothing')).body).toEqual({ error: 'there is nothing at /nothing' });
    if (prefix !== '') expect((await ask('?a=b')).status).toBe(200);
  });
});

test.each([
  '/tapes/one2/graphql',
  '/tapes/graphql',
  '/one/graphql',
  '/tapes/onegraphql',
  '/tapes/one/tapes/one/graphql',
])('there is nothing below another path: %s', async (target) => {
  expect((await sendAsIs(app, `${target}?query=%7B__typename%7D`)).status).toBe(404);
});

test('GraphiQL asks below the prefix', async () => {
  const { text } = await send(app, '/tapes/one/graphql', { headers: { Accept: 'text/html' } });
  expect(text.slice(text.indexOf('{"title":"Tapegate"'))).toMatch(
    /^\{"title":"Tapegate","endpoint":"\/tapes\/one\/graphql",/,
  );
});
