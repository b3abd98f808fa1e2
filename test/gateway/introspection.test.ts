/** What a site may switch off: GraphiQL, and questions about the schema. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { type Answer, send } from '../support/http.js';

let app: TestApp;
let quiet: TestApp;
beforeAll(async () => {
  app = await startApp();
  quiet = await startApp({ config: { graphiql: false, introspection: false } });
});
afterAll(async () => {
  await app.close();
  await quiet.close();
});

const JSON_TYPE = { 'Content-Type': 'application/json' };
const EVENTS = { Accept: 'text/event-stream' };
const inAddress = (path: string, query: string) => `${path}?query=${encodeURIComponent(query)}`;

const ways: [name: string, ask: (gateway: TestApp, query: string) => Promise<Answer>][] = [
  ['POST', (gateway, query) => send(gateway, '/graphql', { headers: JSON_TYPE, body: { query } })],
  ['GET', (gateway, query) => send(gateway, inAddress('/graphql', query))],
  [
    'a plain stream',
    (gateway, query) => send(gateway, '/graphql', { headers: { ...JSON_TYPE, ...EVENTS }, body: { query } }),
  ],
  ['a plain stream by GET', (gateway, query) => send(gateway, inAddress('/graphql', query), { headers: EVENTS })],
  [
    'a stream',
    (gateway, query) => send(gateway, '/graphql/stream', { headers: { ...JSON_TYPE, ...EVENTS }, body: { query } }),
  ],
  ['a stream by GET', (gateway, query) => send(gateway, inAddress('/graphql/stream', query), { headers: EVENTS })],
  [
    'the stream of others',
    async (gateway, query) => {
      const token = (await send(gateway, '/graphql/stream', { method: 'PUT' })).text;
      const headers = { ...JSON_TYPE, 'X-GraphQL-Event-Stream-Token': token };
      return await send(gateway, '/graphql/stream', { headers, body: { query, extensions: { operationId: '1' } } });
    },
  ],
];

const QUESTIONS = [
  '{ __schema { queryType { name } } }',
  '{ __type(name: "Request") { name } }',
  '{ a: __schema { types { name } } b: __schema { directives { name } } }',
  '{ ...Asks } fragment Asks on Query { __type(name: "Quota") { fields { name } } }',
];
const SAYS = 'GraphQL introspection has been disabled, but the requested query contained the field \\"__';

describe.each(ways)('by %s', (name, ask) => {
  test.each(QUESTIONS)('%s is refused where introspection is off', async (query) => {
    const { text } = await ask(quiet, query);
    expect(text).toContain(SAYS);
    expect(text).not.toContain('"data"');
    expect((await ask(app, query)).text).not.toContain('introspection has been disabled');
  });

  test('__typename is answered all the same', async () => {
    const { status, text } = await ask(quiet, '{ __typename }');
    if (name === 'the stream of others') expect(status).toBe(202);
    else expect(text).toContain('{"data":{"__typename":"Query"}}');
  });
});

test('where GraphiQL is off a browser gets what everybody gets', async () => {
  const html = { Accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8' };
  const page = await send(app, '/graphql', { headers: html });
  expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8']);
  const none = await send(quiet, '/graphql', { headers: html });
  expect([none.status, none.body]).toEqual([
    400,
    { errors: [{ message: expect.stringMatching(/^the request must have a "query"/) }] },
  ]);
  const result = await send(quiet, inAddress('/graphql', '{ __typename }'), { headers: html });
  expect([result.status, result.body]).toEqual([200, { data: { __typename: 'Query' } }]);
  const other = await send(quiet, inAddress('/graphql', '{ __typename }'), { headers: { Accept: 'text/html' } });
  expect([other.status, other.text]).toEqual([406, expect.not.stringContaining('text/html')]);
});
