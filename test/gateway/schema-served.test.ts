/** The schema as a file of the gateway, and what GraphiQL opens with. */
import { buildSchema, Kind, parse, validate } from 'graphql';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { START_QUERY } from '../../graphql/graphiql-start.js';
import { printSorted } from '../../graphql/printed.js';
import { schema } from '../../graphql/schema.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { send, sendAsIs } from '../support/http.js';

const PLACE = '/graphql/schema.graphql';

let app: TestApp;
let quiet: TestApp;
let closed: TestApp;
beforeAll(async () => {
  app = await startApp();
  quiet = await startApp({ config: { introspection: false } });
  closed = await startApp({ config: { access: { auth: new Set(['token']) } } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/demo/ocean/2024/a.nc' }]);
}, 120_000);
afterAll(async () => {
  for (const each of [app, quiet, closed]) await each?.close();
});

test('the schema is read as text, and again only when it has changed', async () => {
  const answer = await sendAsIs(app, PLACE);
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'text/plain; charset=utf-8']);
  expect(answer.text).toBe(printSorted(schema));
  expect(() => buildSchema(answer.text)).not.toThrow();
  const tag = { 'If-None-Match': answer.headers.get('etag') ?? '' };
  expect((await sendAsIs(app, PLACE, { headers: tag })).status).toBe(304);
  const head = await sendAsIs(app, PLACE, { method: 'HEAD' });
  expect([head.status, head.text]).toEqual([200, '']);
});

test('where questions about the schema are refused, it is not there', async () => {
  const { status, text } = await sendAsIs(quiet, PLACE);
  expect([status, text]).toEqual([404, expect.stringContaining(`there is nothing at ${PLACE}`)]);
});

test('where the door is closed it is for those who are known', async () => {
  expect((await sendAsIs(closed, PLACE)).status).toBe(401);
  const headers = { Authorization: `Bearer ${closed.token}` };
  expect((await sendAsIs(closed, PLACE, { headers })).status).toBe(200);
});

const operations = parse(START_QUERY).definitions.filter(({ kind }) => kind === Kind.OPERATION_DEFINITION);

test('GraphiQL opens with operations that are valid, one of each kind', async () => {
  expect(validate(schema, parse(START_QUERY)).map(String)).toEqual([]);
  expect(new Set(operations.map((each) => 'operation' in each && each.operation))).toEqual(
    new Set(['query', 'mutation', 'subscription']),
  );
  const { text } = await send(app, '/graphql', { headers: { Accept: 'text/html' } });
  expect(text).toContain(JSON.stringify(START_QUERY).slice(1, 60));
});

test.each(
  operations.flatMap((each) => ('operation' in each && each.operation !== 'subscription' ? [each.name?.value] : [])),
)('GraphiQL has %s answered as it stands, on the demo archive', async (operationName) => {
  const body = { query: START_QUERY, operationName };
  const answer = await send(app, '/graphql', { body, headers: { 'Content-Type': 'application/json' } });
  expect(answer.body).toEqual({ data: expect.anything() });
  expect(answer.text).not.toMatch(/"__typename":"(InvalidInput|UnknownUser|Forbidden|QuotaExceeded)"/);
});
