/** GraphQL over HTTP: targets, methods, media types, and the ids of server-sent events. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { request, send, sendAsIs } from '../support/http.js';
import { openStream, sendReserved } from '../support/streams.js';

let app: TestApp;
/** A gateway without GraphiQL and introspection. */
let quiet: TestApp;
beforeAll(async () => {
  app = await startApp({ config: { allowedHosts: ['example.org'] } });
  quiet = await startBeside(app, { config: { graphiql: false, introspection: false } });
  await addQuota(app.ctx, 'alice', 1_000_000n);
});
afterAll(async () => {
  await quiet.close();
  await app.close();
});

const EVENTS = { Accept: 'text/event-stream' };
const JSON_TYPE = { 'Content-Type': 'application/json' };
const TYPENAME = { query: '{ __typename }' };
const RESULT = { data: { __typename: 'Query' } };
const COMPLETE = [`event: next\ndata: ${JSON.stringify(RESULT)}`, 'event: complete\ndata:'];
const encode = encodeURIComponent;

/** Returns the messages of an event stream without comments. */
function messagesOf(text: string): string[] {
  return text.split('\n\n').filter((message) => message !== '' && message !== ':');
}

test('an absolute target is served like its path', async () => {
  const query = `query=${encode(TYPENAME.query)}`;
  const targets = ['http://example.org', 'HTTP://example.org:1', `${app.url}`];
  for (const base of targets) {
    const json = await sendAsIs(app, `${base}/graphql?${query}`);
    expect([json.status, json.body]).toEqual([200, RESULT]);
    const stream = await sendAsIs(app, `${base}/graphql/stream?${query}`, { headers: EVENTS });
    expect(messagesOf(stream.text)).toEqual(COMPLETE);
    const rest = await sendAsIs(app, `${base}/tape_control/api/v1/quota/alice`);
    expect([rest.status, rest.body]).toMatchObject([200, [{ user: 'alice' }]]);
    expect((await sendAsIs(app, `${base}/health/live`)).status).toBe(200);
  }
});

test('errors outside of REST and GraphQL reveal nothing internal', async () => {
  const { status, body } = await sendAsIs(app, '/health/live', { headers: { Host: 'a b' } });
  expect([status, body]).toEqual([400, { error: 'Host must be a name or an address, and a port, not "a b"' }]);
  expect(await sendAsIs(app, '/%zz')).toMatchObject({ status: 404, body: { error: 'there is nothing at /%zz' } });
  expect(await sendAsIs(app, '*', { method: 'OPTIONS' })).toMatchObject({ status: 404 });
});

test.each(['/graphql', '/graphql/stream'])('HEAD of %s returns 405 with the allowed methods', async (path) => {
  const target = `${path}?query=${encode('subscription { stageChanges { path } }')}`;
  for (const headers of [{}, EVENTS, { Accept: '*/*' }]) {
    const { status, text, headers: answered } = await sendAsIs(app, target, { method: 'HEAD', headers });
    expect([status, text, answered.get('allow')]).toEqual([405, '', expect.stringContaining('GET, POST')]);
  }
});

const RESPONSE = 'application/graphql-response+json';

const post = (path: string, body: object, headers: Record<string, string> = {}) =>
  send(app, path, { headers: { ...JSON_TYPE, ...headers }, body });

test.each([
  ['*/*', 'application/json'],
  ['application/json;q=0.1, text/event-stream;q=0.9', 'text/event-stream'],
  ['application/json;q=0.9, text/event-stream;q=0.1', 'application/json'],
  ['application/json; q=0, text/event-stream', 'text/event-stream'],
  ['text/event-stream; q=0, */*', 'application/json'],
  ['text/event-stream, */*;q=0.1', 'text/event-stream'],
  [`application/json;q=0.5, ${RESPONSE};q=0.8`, RESPONSE],
  [`application/json; charset=utf-8, ${RESPONSE}; charset=utf-8`, 'application/json'],
  ['APPLICATION/JSON', 'application/json'],
  ['application/*;q=0.5, text/*', 'text/event-stream'],
])('Accept: %s returns %s', async (Accept, type) => {
  const answer = await post('/graphql', TYPENAME, { Accept });
  expect([answer.status, answer.headers.get('content-type')?.split(';')[0]]).toEqual([200, type]);
  expect(answer.text).toContain(JSON.stringify(RESULT));
});

test.each([
  ['text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', 'text/html'],
  ['text/html;q=0, */*', 'application/json'],
  ['text/html;q=0.1, application/json', 'application/json'],
])('by GET, Accept: %s returns %s', async (Accept, type) => {
  const answer = await send(app, `/graphql?query=${encode(TYPENAME.query)}`, { headers: { Accept } });
  expect([answer.status, answer.headers.get('content-type')?.split(';')[0]]).toEqual([200, type]);
});

test('subscriptions and /graphql/stream return an event stream if it is acceptable', async () => {
  const subscription = { query: 'subscription { requestProgress(requestId: 2147483647) { state } }' };
  for (const Accept of ['application/json, text/event-stream', 'application/json, text/event-stream;q=0.1', '*/*']) {
    const { headers, text } = await post('/graphql', subscription, { Accept });
    expect(headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    expect(messagesOf(text)).toHaveLength(2);
  }
  for (const Accept of ['text/event-stream;q=0.5', 'text/event-stream; q=1.0', 'text/plain;q=0.9, TEXT/event-stream'])
    expect(messagesOf((await post('/graphql/stream', TYPENAME, { Accept })).text)).toEqual(COMPLETE);
});

test('a BigInt variable beyond 2^53 must be a string', async () => {
  await addFiles(app.ctx, [{ path: '/exact/1', stage: 'ONDISK' }]);
  const id = await createRequest(app.ctx, { quota: 'alice', files: ['/exact/1'] });
  const query = 'subscription ($id: Int!, $after: BigInt) { requestProgress(requestId: $id, after: $after) { state } }';
  const watch = async (after: string) => {
    const target = `/graphql?query=${encode(query)}&variables=${encode(`{"id":${id},"after":${after}}`)}`;
    return (await send(app, target, { headers: EVENTS })).text;
  };
  expect(await watch('9007199254740993')).toContain('BigInt beyond 2^53 must be a string');
  expect(await watch('"9007199254740993"')).toContain('not 9007199254740993');
});

const INVALID = [
  ['a query that cannot be parsed', { query: '{' }, /^Syntax Error/],
  ['a query that is not valid', { query: '{ nothing }' }, /^Cannot query field "nothing"/],
  ['a subscription that is not valid', { query: 'subscription { requestProgress { state } }' }, /argument "requestId"/],
  ['no operation of that name', { query: 'query A { __typename }', operationName: 'B' }, /what operation/],
  [
    'a variable of another type',
    { query: 'subscription ($id: Int!) { requestProgress(requestId: $id) { state } }', variables: { id: 'x' } },
    /Int cannot represent/,
  ],
  ...[
    '{ stageChanges(match: "/a/") @skip(if: true) { path } }',
    '{ ...F @include(if: false) } fragment F on Subscription { stageChanges { path } }',
  ].map(
    (body) =>
      [`the subscription ${body}`, { query: `subscription ${body}` }, /^@(skip|include) is not allowed on /] as const,
  ),
  ['a variable that is missing', { query: 'query ($id: Int!) { request(requestId: $id) { state } }' }, /"\$id"/],
] as const;

test.each(['{', '{ 1a }', '['])('the query %j is refused with 400, the first time and again', async (query) => {
  const errors = [expect.objectContaining({ extensions: { code: 'GRAPHQL_PARSE_FAILED' } })];
  expect((await post('/graphql', { query }, EVENTS)).status).toBe(200);
  for (const status of [400, 400])
    expect(await post('/graphql', { query }, { Accept: RESPONSE })).toMatchObject({ status, body: { errors } });
  expect(await post('/graphql', { query })).toMatchObject({ status: 200, body: { errors } });
});

test.each(INVALID)('%s returns errors and no data on each stream', async (_name, body, says) => {
  const errors = [expect.objectContaining({ message: expect.stringMatching(says) })];
  for (const path of ['/graphql', '/graphql/stream']) {
    const { status, text } = await post(path, body, EVENTS);
    const [next = '', ...rest] = messagesOf(text);
    const data = /^event: next\ndata: (.*)$/.exec(next)?.[1] ?? '{}';
    expect([status, JSON.parse(data), rest]).toEqual([200, { errors }, ['event: complete\ndata:']]);
  }
  const { token, close } = await openStream(app);
  const refused = await sendReserved(app, token, body);
  expect([refused.status, refused.body]).toEqual([400, { errors }]);
  // the operation id is free, because the operation was refused
  expect((await sendReserved(app, token, TYPENAME)).status).toBe(202);
  close();
});

test('an error of a subscription source has no data', async () => {
  const query = 'subscription { requestProgress(requestId: 2147483647) { state } }';
  const { text } = await post('/graphql/stream', { query }, EVENTS);
  expect(messagesOf(text)[0]).toMatch(/^event: next\ndata: \{"errors":\[/);
  expect(text).not.toContain('"data"');
});

describe('the id of an event', () => {
  const PROGRESS =
    'subscription ($id: Int!, $after: BigInt) { requestProgress(requestId: $id, after: $after) { state } }';

  /** Adds a request with three events, and returns their ids. */
  async function addRequest(name: string): Promise<{ id: number; eventIds: string[] }> {
    const path = `/place/${name.replaceAll('/', '-')}`;
    await addFiles(app.ctx, [{ path, stage: 'ONDISK' }]);
    const id = await createRequest(app.ctx, { quota: 'alice', files: [path] });
    await cancelRequest(app.ctx, id);
    const { rows } = await app.ctx.db.pool.query<{ id: bigint }>(
      'SELECT id FROM event WHERE request_id = $1 ORDER BY id',
      [id],
    );
    return { id, eventIds: rows.map((row) => String(row.id)) };
  }

  async function idsOf(path: string, variables: object, headers: Record<string, string> = {}): Promise<string[]> {
    const { text } = await post(path, { query: PROGRESS, variables }, { ...EVENTS, ...headers });
    return messagesOf(text).flatMap((message) => /^event: next\nid: (\d+)\ndata:/.exec(message)?.[1] ?? []);
  }

  test.each(['/graphql', '/graphql/stream'])(
    'is sent as an `id:` line, and accepted as Last-Event-ID at %s',
    async (path) => {
      const { id, eventIds } = await addRequest(path);
      expect(eventIds.length).toBeGreaterThan(1);
      expect(await idsOf(path, { id, after: 0 })).toEqual(eventIds);
      expect(await idsOf(path, { id })).toHaveLength(1);
      const [first = '', ...others] = eventIds;
      expect(await idsOf(path, { id }, { 'Last-Event-ID': first })).toEqual(others);
      // a browser reconnects to the same URL and adds the last event id
      expect(await idsOf(path, { id, after: 0 }, { 'Last-Event-ID': first })).toEqual(others);
      expect(await idsOf(path, { id }, { 'Last-Event-ID': '' })).toHaveLength(1);
    },
  );

  test.each(['x', '-1', '1.5', '99999999999999999999'])('is refused if it is %s', async (place) => {
    const { id } = await addRequest(`bad${place}`);
    const headers = { ...EVENTS, 'Last-Event-ID': place };
    const { text } = await post('/graphql/stream', { query: PROGRESS, variables: { id } }, headers);
    expect(text).toContain('Last-Event-ID must be an event id, not ');
    expect(text).toContain('INVALID_INPUT');
  });

  test('is not sent during the initial state, and in single connection mode', async () => {
    await addFiles(app.ctx, [{ path: '/present/1' }, { path: '/present/2' }]);
    const readUntil = async (response: Response, end: string) => {
      let text = '';
      for await (const bytes of response.body as unknown as AsyncIterable<Uint8Array>) {
        text += new TextDecoder().decode(bytes);
        if (text.includes(end)) break;
      }
      return text;
    };
    const query = encode('subscription { stageChanges(match: "/present/") { path } }');
    const alone = await request(app, `/graphql/stream?query=${query}`, { headers: EVENTS });
    expect(await readUntil(alone, '/present/2')).not.toContain('id:');
    const { id } = await addRequest('several');
    const { token, response } = await openStream(app);
    await sendReserved(app, token, { query: PROGRESS, variables: { id } });
    expect(messagesOf(await readUntil(response, 'event: complete'))).toEqual([
      expect.stringMatching(/^event: next\ndata: \{"id":"1","payload":\{"data":/),
      'event: complete\ndata: {"id":"1"}',
    ]);
  });
});

const inUrl = (path: string, query: string) => `${path}?query=${encode(query)}`;

const ways = {
  '/graphql': (gateway: TestApp, query: string) => send(gateway, '/graphql', { headers: JSON_TYPE, body: { query } }),
  '/graphql/stream': (gateway: TestApp, query: string) =>
    send(gateway, '/graphql/stream', { headers: { ...JSON_TYPE, ...EVENTS }, body: { query } }),
  'single connection mode': async (gateway: TestApp, query: string) => {
    const { token, close } = await openStream(gateway);
    const answer = await sendReserved(gateway, token, { query });
    close();
    return answer;
  },
};

test.each(Object.entries(ways))('introspection is refused by %s, but __typename is not', async (_name, ask) => {
  const query = '{ ...Asks } fragment Asks on Query { a: __schema { types { name } } }';
  const { text } = await ask(quiet, query);
  expect(text).toContain('GraphQL introspection has been disabled');
  expect(text).not.toContain('"data"');
  expect((await ask(app, query)).text).not.toContain('introspection has been disabled');
  expect((await ask(quiet, '{ __typename }')).status).toBeLessThan(300);
});

test('without GraphiQL a browser gets the response of other clients', async () => {
  const html = { Accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8' };
  const page = await send(app, '/graphql', { headers: html });
  expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8']);
  const none = await send(quiet, '/graphql', { headers: html });
  expect([none.status, none.body]).toEqual([
    400,
    { errors: [{ message: expect.stringMatching(/^the request must contain a "query"/) }] },
  ]);
  const result = await send(quiet, inUrl('/graphql', '{ __typename }'), { headers: html });
  expect([result.status, result.body]).toEqual([200, { data: { __typename: 'Query' } }]);
  const other = await send(quiet, inUrl('/graphql', '{ __typename }'), { headers: { Accept: 'text/html' } });
  expect([other.status, other.text]).toEqual([406, expect.not.stringContaining('text/html')]);
});
