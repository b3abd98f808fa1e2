/** GraphQL over HTTP: targets, methods, media types, and what server-sent events say beside their data. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createRequest } from '../../src/operations/requests/create.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { type Call, request, send, sendAsIs } from '../support/http.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp({ config: { allowedHosts: ['example.org', 'tape.example.org', 'tape_gate'] } });
  await addQuota(app.ctx, 'alice', 1_000_000n);
});
afterAll(() => app.close());

const EVENTS = { Accept: 'text/event-stream' };
const JSON_TYPE = { 'Content-Type': 'application/json' };
const TYPENAME = { query: '{ __typename }' };
const RESULT = { data: { __typename: 'Query' } };
const encode = encodeURIComponent;

/** The messages of an event stream, but for the comments. */
function messagesOf(text: string): string[] {
  return text.split('\n\n').filter((message) => message !== '' && message !== ':');
}

test('a target that is a whole URL is taken as its path is', async () => {
  const query = `query=${encode(TYPENAME.query)}`;
  const targets = ['http://example.org', 'HTTP://example.org:1', `${app.url}`];
  for (const base of targets) {
    const json = await sendAsIs(app, `${base}/graphql?${query}`);
    expect([json.status, json.body]).toEqual([200, RESULT]);
    const stream = await sendAsIs(app, `${base}/graphql/stream?${query}`, { headers: EVENTS });
    expect(messagesOf(stream.text)).toEqual([`event: next\ndata: ${JSON.stringify(RESULT)}`, 'event: complete\ndata:']);
    const rest = await sendAsIs(app, `${base}/tape_control/api/v1/quota/alice`);
    expect([rest.status, rest.body]).toMatchObject([200, [{ user: 'alice' }]]);
    expect((await sendAsIs(app, `${base}/health/live`)).status).toBe(200);
  }
});

test('what goes wrong outside of REST and GraphQL is told without the inside', async () => {
  const { status, body } = await sendAsIs(app, '/health/live', { headers: { Host: 'a b' } });
  expect([status, body]).toEqual([400, { error: 'Host must be a name or an address, and a port, not "a b"' }]);
  expect(await sendAsIs(app, '/%zz')).toMatchObject({ status: 404, body: { error: 'there is nothing at /%zz' } });
  expect(await sendAsIs(app, '*', { method: 'OPTIONS' })).toMatchObject({ status: 404 });
});

test.each(['127.0.0.1', 'localhost:8080', 'tape.example.org', '[::1]:80', 'tape_gate', ''])(
  'the host %j is one',
  async (Host) => {
    const { status, body } = await sendAsIs(app, '/graphql', {
      method: 'POST',
      headers: { ...JSON_TYPE, Host },
      body: JSON.stringify(TYPENAME),
    });
    expect([status, body]).toEqual([200, RESULT]);
  },
);

test.each(['/graphql', '/graphql/stream'])('HEAD of %s is answered, with what is allowed', async (path) => {
  const target = `${path}?query=${encode('subscription { stageChanges { path } }')}`;
  for (const headers of [{}, EVENTS, { Accept: '*/*' }]) {
    const { status, text, headers: answered } = await sendAsIs(app, target, { method: 'HEAD', headers });
    expect([status, text, answered.get('allow')]).toEqual([405, '', expect.stringContaining('GET, POST')]);
  }
});

const RESPONSE = 'application/graphql-response+json';

describe('what Accept weighs decides the form of an answer', () => {
  test.each([
    ['*/*', 'application/json'],
    ['application/json;q=0.1, text/event-stream;q=0.9', 'text/event-stream'],
    ['application/json;q=0.9, text/event-stream;q=0.1', 'application/json'],
    ['application/json; q=0, text/event-stream', 'text/event-stream'],
    ['text/event-stream; q=0, */*', 'application/json'],
    ['text/event-stream, */*;q=0.1', 'text/event-stream'],
    [`application/json;q=0.5, ${RESPONSE};q=0.8`, RESPONSE],
    [`${RESPONSE}; charset=utf-8, application/json; charset=utf-8`, RESPONSE],
    [`application/json; charset=utf-8, ${RESPONSE}; charset=utf-8`, 'application/json'],
    ['APPLICATION/JSON', 'application/json'],
    ['application/*;q=0.5, text/*', 'text/event-stream'],
    ['text/html, application/json;q=0.5', 'application/json'],
  ])('%s: %s', async (accept, type) => {
    const answer = await send(app, '/graphql', { headers: { ...JSON_TYPE, Accept: accept }, body: TYPENAME });
    expect([answer.status, answer.headers.get('content-type')?.split(';')[0]]).toEqual([200, type]);
    expect(answer.text).toContain(JSON.stringify(RESULT));
  });

  test.each([
    ['text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', 'text/html'],
    ['text/html;q=0, */*', 'application/json'],
    ['text/html;q=0.1, application/json', 'application/json'],
  ])('by GET, %s: %s', async (accept, type) => {
    const answer = await send(app, `/graphql?query=${encode(TYPENAME.query)}`, { headers: { Accept: accept } });
    expect([answer.status, answer.headers.get('content-type')?.split(';')[0]]).toEqual([200, type]);
  });

  test.each(['application/json, text/event-stream', 'application/json, text/event-stream;q=0.1', '*/*'])(
    'a subscription is an event stream wherever that is acceptable: %s',
    async (accept) => {
      const body = { query: 'subscription { requestProgress(id: 2147483647) { state } }' };
      const { headers, text } = await send(app, '/graphql', { headers: { ...JSON_TYPE, Accept: accept }, body });
      expect(headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
      expect(messagesOf(text)).toHaveLength(2);
    },
  );

  test.each(['text/event-stream;q=0.5', 'text/event-stream; q=1.0', 'text/plain;q=0.9, TEXT/event-stream'])(
    'at /graphql/stream: %s',
    async (accept) => {
      const { text } = await send(app, '/graphql/stream', {
        headers: { ...JSON_TYPE, Accept: accept },
        body: TYPENAME,
      });
      expect(messagesOf(text)).toEqual([`event: next\ndata: ${JSON.stringify(RESULT)}`, 'event: complete\ndata:']);
    },
  );
});

test('integers of variables in an address are exact', async () => {
  await addFiles(app.ctx, [{ path: '/exact/1', stage: 'ONDISK' }]);
  const id = await createRequest(app.ctx, { quota: 'alice', files: ['/exact/1'] });
  const query = 'subscription ($id: Int!, $after: BigInt) { requestProgress(id: $id, after: $after) { state } }';
  const target = `/graphql?query=${encode(query)}&variables=${encode(`{"id":${id},"after":9007199254740993}`)}`;
  const { text } = await send(app, target, { headers: EVENTS });
  expect(text).toContain('not 9007199254740993');
});

const INVALID = [
  ['a query that cannot be parsed', { query: '{' }, /^Syntax Error/],
  ['a query that is not valid', { query: '{ nothing }' }, /^Cannot query field "nothing"/],
  ['a subscription that is not valid', { query: 'subscription { requestProgress { state } }' }, /argument "id"/],
  ['no operation of that name', { query: 'query A { __typename }', operationName: 'B' }, /what operation/],
  [
    'a variable of another type',
    { query: 'subscription ($id: Int!) { requestProgress(id: $id) { state } }', variables: { id: 'x' } },
    /Int cannot represent/,
  ],
  ...[
    '{ stageChanges(match: "/a/") @skip(if: true) { path } }',
    '{ requestProgress(id: 1) @include(if: false) { state } }',
    '{ ... @skip(if: true) { stageChanges { path } } }',
    '{ ...F @include(if: false) } fragment F on Subscription { stageChanges { path } }',
    '{ ...F } fragment F on Subscription { stageChanges @skip(if: true) { path } }',
  ].map(
    (body) =>
      [`the subscription ${body}`, { query: `subscription ${body}` }, /^@(skip|include) is not allowed on /] as const,
  ),
  ['a variable that is missing', { query: 'query ($id: Int!) { request(id: $id) { state } }' }, /"\$id"/],
] as const;

test.each(['{', '{ 1a }', '[', '{ a(b: '])(
  'the query %j is refused with 400, whoever has asked it before',
  async (query) => {
    const ask = (accept: string) =>
      send(app, '/graphql', { headers: { ...JSON_TYPE, Accept: accept }, body: { query } });
    const errors = [expect.objectContaining({ extensions: { code: 'GRAPHQL_PARSE_FAILED' } })];
    expect((await ask('text/event-stream')).status).toBe(200);
    for (const status of [400, 400]) expect(await ask(RESPONSE)).toMatchObject({ status, body: { errors } });
    expect(await ask('application/json')).toMatchObject({ status: 200, body: { errors } });
  },
);

describe.each(INVALID)('%s', (_name, body, says) => {
  const errors = [expect.objectContaining({ message: expect.stringMatching(says) })];

  test.each(['/graphql', '/graphql/stream'])(
    'is a result with errors and no data, on an event stream of %s',
    async (path) => {
      const { status, text } = await send(app, path, { headers: { ...JSON_TYPE, ...EVENTS }, body });
      const [next = '', complete, ...more] = messagesOf(text);
      const data = /^event: next\ndata: (.*)$/.exec(next)?.[1] ?? '{}';
      expect([status, JSON.parse(data), complete, more]).toEqual([200, { errors }, 'event: complete\ndata:', []]);
    },
  );

  test('is refused with 400 where the stream is another connection', async () => {
    const token = (await send(app, '/graphql/stream', { method: 'PUT' })).text;
    const post = (operation: object): Call => ({
      headers: { ...JSON_TYPE, 'X-GraphQL-Event-Stream-Token': token },
      body: { ...operation, extensions: { operationId: 'one' } },
    });
    const refused = await send(app, '/graphql/stream', post(body));
    expect([refused.status, refused.body]).toEqual([400, { errors }]);
    // and the operation id is free
    expect((await send(app, '/graphql/stream', post(TYPENAME))).status).toBe(202);
  });
});

test('an error of the source has no data either', async () => {
  const query = 'subscription { requestProgress(id: 2147483647) { state } }';
  const { text } = await send(app, '/graphql/stream', { headers: { ...JSON_TYPE, ...EVENTS }, body: { query } });
  expect(messagesOf(text)[0]).toMatch(/^event: next\ndata: \{"errors":\[/);
  expect(text).not.toContain('"data"');
});

describe('the place of an event', () => {
  const PROGRESS = 'subscription ($id: Int!, $after: BigInt) { requestProgress(id: $id, after: $after) { state } }';

  /** A request with three events, and their ids. */
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
    const { text } = await send(app, path, {
      headers: { ...JSON_TYPE, ...EVENTS, ...headers },
      body: { query: PROGRESS, variables },
    });
    return messagesOf(text).flatMap((message) => /^event: next\nid: (\d+)\ndata:/.exec(message)?.[1] ?? []);
  }

  test.each(['/graphql', '/graphql/stream'])(
    'is told by an `id:` line and understood as Last-Event-ID at %s',
    async (path) => {
      const { id, eventIds } = await addRequest(path);
      expect(eventIds.length).toBeGreaterThan(1);
      expect(await idsOf(path, { id, after: 0 })).toEqual(eventIds);
      expect(await idsOf(path, { id })).toHaveLength(1);
      const [first = '', ...others] = eventIds;
      expect(await idsOf(path, { id }, { 'Last-Event-ID': first })).toEqual(others);
      // a browser comes back to the same address, with what it has seen since
      expect(await idsOf(path, { id, after: 0 }, { 'Last-Event-ID': first })).toEqual(others);
      expect(await idsOf(path, { id }, { 'Last-Event-ID': '' })).toHaveLength(1);
    },
  );

  test.each(['x', '-1', '1.5', '99999999999999999999'])('is refused as %s', async (place) => {
    const { id } = await addRequest(`bad${place}`);
    const { text } = await send(app, '/graphql/stream', {
      headers: { ...JSON_TYPE, ...EVENTS, 'Last-Event-ID': place },
      body: { query: PROGRESS, variables: { id } },
    });
    expect(text).toContain('Last-Event-ID must be the id of an event, not ');
    expect(text).toContain('INVALID_INPUT');
  });

  test('is not told where some of the present stages are still to come, and on a stream of several operations', async () => {
    await addFiles(app.ctx, [{ path: '/present/1' }, { path: '/present/2' }]);
    const controller = new AbortController();
    const query = encode('subscription { stageChanges(match: "/present/") { path } }');
    const response = await fetch(`${app.url}/graphql/stream?query=${query}`, {
      headers: EVENTS,
      signal: controller.signal,
    });
    let text = '';
    for await (const bytes of response.body as unknown as AsyncIterable<Uint8Array>) {
      text += new TextDecoder().decode(bytes);
      if (text.includes('/present/2')) break;
    }
    controller.abort();
    expect(text).not.toContain('id:');
    const { id } = await addRequest('several');
    const token = (await send(app, '/graphql/stream', { method: 'PUT' })).text;
    const headers = { 'X-GraphQL-Event-Stream-Token': token };
    await send(app, '/graphql/stream', {
      headers: { ...headers, ...JSON_TYPE },
      body: { query: PROGRESS, variables: { id }, extensions: { operationId: 'one' } },
    });
    const single = await request(app, '/graphql/stream', { headers: { ...headers, ...EVENTS } });
    let told = '';
    for await (const bytes of single.body as unknown as AsyncIterable<Uint8Array>) {
      told += new TextDecoder().decode(bytes);
      if (told.includes('event: complete')) break;
    }
    expect(messagesOf(told)).toEqual([
      expect.stringMatching(/^event: next\ndata: \{"id":"one","payload":\{"data":/),
      'event: complete\ndata: {"id":"one"}',
    ]);
  });
});
