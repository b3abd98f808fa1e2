/** Ways to send operations: POST and GET, with results as JSON and as event streams, by both modes of graphql-sse. */
import fc, { type Arbitrary } from 'fast-check';
import { type Operation, operation, subscription } from './graphql-operations.js';
import type { ExchangeInput, HttpInput } from './input.js';
import { anyJson, authorization, choose, eventMark, oddText, operatorsMostly, pick } from './texts.js';

const JSON_TYPES = ['application/json', 'application/json; charset=utf-8'];
const ODD_TYPES = [
  'text/plain',
  'multipart/form-data; boundary=x',
  'application/x-www-form-urlencoded',
  'application/graphql',
  '',
];
const STREAM = 'text/event-stream';

const contentType = choose([30, pick(...JSON_TYPES)], [1, pick(...ODD_TYPES)]);
const resultType = choose(
  [8, pick('application/json', 'application/graphql-response+json', '*/*', '')],
  [1, pick('text/html', 'application/json;q=0', 'image/png', 'application/graphql-response+json; charset=latin1', 'x')],
);
const cut = choose<'body' | 'sent' | undefined>([50, fc.constant(undefined)], [1, pick('body', 'sent')]);

/** The text of a body. Members that the standard knows, at times of other types, and some that nobody knows. */
function bodyOf({ query, variables }: Operation, extra: string): string {
  return `{"query":${JSON.stringify(query)},"variables":${variables}${extra}}`;
}

const extra = choose(
  [20, pick('')],
  [
    1,
    fc
      .tuple(pick('operationName', 'variables', 'extensions', 'query', '__proto__', 'id'), anyJson)
      .map(([name, value]) => `,"${name}":${value}`),
  ],
  [1, oddText.map((name) => `,"operationName":${JSON.stringify(name)}`)],
);

const postBody = choose(
  [
    30,
    fc
      .tuple(operation, extra)
      .map(([each, more]) => ({ query: each.query as string | undefined, body: bodyOf(each, more) })),
  ],
  [1, anyJson.map((body) => ({ query: undefined as string | undefined, body }))],
  [
    1,
    fc
      .tuple(operation, fc.nat(120))
      .map(([each, at]) => ({ query: undefined as string | undefined, body: bodyOf(each, '').slice(0, at) })),
  ],
);

const post: Arbitrary<HttpInput> = fc
  .tuple(postBody, contentType, resultType, cut, authorization, operatorsMostly)
  .map(([{ query, body }, type, accept, away, anybody, operator]) => ({
    kind: 'http',
    door: 'graphql',
    method: 'POST',
    target: '/graphql',
    headers: {
      'Content-Type': type,
      ...(accept && { Accept: accept }),
      ...(query?.startsWith('mutation') ? operator : anybody),
    },
    body,
    cut: away,
    listenMs: LISTEN_MS,
    query,
  }));

/** What a result is not, may be a stream: a client that asked for one goes away after this. */
const LISTEN_MS = 40;
const wellFormed = (text: string): string => encodeURIComponent(text.toWellFormed());

const get: Arbitrary<HttpInput> = fc
  .tuple(operation, resultType, pick('GET', 'GET', 'GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS'), authorization)
  .map(([each, accept, method, shown]) => ({
    kind: 'http',
    door: accept.includes('html') ? 'any' : 'graphql',
    method,
    target: `/graphql?query=${wellFormed(each.query)}&variables=${wellFormed(each.variables)}`.slice(0, 12_000),
    headers: { ...(accept && { Accept: accept }), ...shown },
    listenMs: LISTEN_MS,
    query: each.query,
  }));

export const graphqlInput: Arbitrary<HttpInput> = choose([5, post], [1, get]);

const lastEventId = choose<Record<string, string>>(
  [6, fc.constant({})],
  [2, eventMark.map((id) => ({ 'Last-Event-ID': id }))],
  [1, pick({ 'Last-Event-ID': 'x' }, { 'Last-Event-ID': '-1' }, { 'Last-Event-ID': '99999999999999999999' })],
);
const listen = pick(0, 5, 20, 40, 80);
const stays = choose<'read' | 'unread' | undefined>([4, fc.constant(undefined)], [1, pick('read', 'unread')]);

/** One operation on a stream of its own. */
const alone: Arbitrary<HttpInput> = fc
  .tuple(
    subscription,
    pick('/graphql', '/graphql/stream'),
    pick('GET', 'POST'),
    lastEventId,
    fc.record({ listenMs: listen, stays, cut }),
    authorization,
  )
  .map(([each, at, method, resumed, leaves, shown]): HttpInput => {
    const isGet = method === 'GET';
    const query = `?query=${wellFormed(each.query)}&variables=${wellFormed(each.variables)}`.slice(0, 12_000);
    return {
      kind: 'http',
      door: 'graphql',
      method,
      target: isGet ? at + query : at,
      headers: { Accept: STREAM, ...resumed, ...shown, ...(isGet ? {} : { 'Content-Type': 'application/json' }) },
      body: isGet ? undefined : bodyOf(each, ''),
      ...leaves,
      query: each.query,
    };
  });

const operationId = choose([6, pick('a', 'b', 'c')], [1, oddText]);

/** Several on one stream. */
const together: Arbitrary<ExchangeInput> = fc
  .tuple(
    fc.array(fc.tuple(operationId, subscription), { maxLength: 4 }),
    fc.array(operationId, { maxLength: 2 }),
    pick<'first' | 'last' | 'never'>('first', 'first', 'last', 'never'),
    listen,
    authorization,
    choose<Record<string, string> | undefined>([12, fc.constant(undefined)], [1, authorization]),
  )
  .map(([operations, drops, opens, listenMs, headers, others]) => ({
    kind: 'exchange',
    operations: operations.map(([id, each]) => ({
      id,
      body: bodyOf(each, `,"extensions":{"operationId":${JSON.stringify(id)}}`),
    })),
    drops,
    opens,
    listenMs,
    headers,
    shown: others ?? headers,
  }));

/** Tokens and methods that nobody has. */
const astray: Arbitrary<HttpInput> = fc
  .tuple(
    pick('PUT', 'DELETE', 'POST', 'GET', 'PATCH'),
    pick('', '?token=x', '?token=x&operationId=a', '?operationId=a'),
    pick(STREAM, '*/*', 'text/plain', 'application/json'),
    authorization,
  )
  .map(([method, search, accept, shown]) => ({
    kind: 'http',
    door: 'any',
    method,
    target: `/graphql/stream${search}`,
    headers: { Accept: accept, 'Content-Type': 'application/json', ...shown },
    body: method === 'POST' ? '{"query":"{ __typename }"}' : undefined,
    listenMs: 20,
  }));

export const streamInput: Arbitrary<HttpInput | ExchangeInput> = choose<HttpInput | ExchangeInput>(
  [6, alone],
  [3, together],
  [1, astray],
);
