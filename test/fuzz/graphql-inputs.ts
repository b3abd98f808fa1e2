/** Ways to send GraphQL operations: POST and GET, JSON and event streams, and both modes of graphql-sse. */
import fc, { type Arbitrary } from 'fast-check';
import { type Operation, operation, subscription } from './graphql-operations.js';
import { cut } from './http-inputs.js';
import type { ExchangeInput, HttpInput } from './inputs.js';
import {
  among,
  anyJson,
  asHeader,
  authorization,
  choose,
  eventMark,
  type Headers,
  oddText,
  operatorsMostly,
  pick,
  rarely,
} from './values.js';

const contentType = choose(
  [30, 'application/json | application/json; charset=utf-8'],
  [
    1,
    ['text/plain', 'multipart/form-data; boundary=x', 'application/x-www-form-urlencoded', 'application/graphql', ''],
  ],
);
const resultType = choose(
  [8, ['application/json', 'application/graphql-response+json', '*/*', '']],
  [1, 'text/html | application/json;q=0 | image/png | application/graphql-response+json; charset=latin1 | x'],
);
/** Time after which the client closes a stream, because any result may be a stream. */
const LISTEN_MS = 40;

const bodyOf = ({ query, variables }: Operation, extra = ''): string =>
  `{"query":${JSON.stringify(query)},"variables":${variables}${extra}}`;
/**
 * Member after `query` and `variables` in the JSON body: usually none, sometimes a known member of any type or an
 * unknown member.
 */
const extra = choose(
  [20, ['']],
  [
    1,
    fc
      .tuple(among('operationName | variables | extensions | query | __proto__ | id'), anyJson)
      .map(([name, value]) => `,"${name}":${value}`),
  ],
  [1, oddText.map((name) => `,"operationName":${JSON.stringify(name)}`)],
);

const postBody: Arbitrary<Pick<HttpInput, 'query' | 'body'>> = choose<Pick<HttpInput, 'query' | 'body'>>(
  [30, fc.tuple(operation, extra).map(([each, more]) => ({ query: each.query, body: bodyOf(each, more) }))],
  [1, anyJson.map((body) => ({ body }))],
  [1, fc.tuple(operation, fc.nat(120)).map(([each, at]) => ({ body: bodyOf(each).slice(0, at) }))],
);

const post: Arbitrary<HttpInput> = fc
  .record({
    what: postBody,
    type: contentType,
    accept: resultType,
    cut,
    anyone: authorization,
    operator: operatorsMostly,
  })
  .map(({ what, type, accept, cut, anyone, operator }) => {
    const shown = what.query?.startsWith('mutation') ? operator : anyone;
    const headers = { 'Content-Type': type, ...(accept && { Accept: accept }), ...shown };
    return {
      kind: 'http',
      api: 'graphql',
      method: 'POST',
      target: '/graphql',
      headers,
      cut,
      listenMs: LISTEN_MS,
      ...what,
    };
  });

const searchOf = ({ query, variables }: Operation): string =>
  `?${Object.entries({ query, variables })
    .map(([name, text]) => `${name}=${encodeURIComponent(text.toWellFormed())}`)
    .join('&')}`.slice(0, 12_000);

const get: Arbitrary<HttpInput> = fc
  .record({
    each: operation,
    accept: resultType,
    method: among('GET | GET | GET | HEAD | PUT | DELETE | OPTIONS'),
    shown: authorization,
  })
  .map(({ each, accept, method, shown }) => ({
    ...{ kind: 'http', api: accept.includes('html') ? 'any' : 'graphql', method, target: `/graphql${searchOf(each)}` },
    ...{ headers: { ...(accept && { Accept: accept }), ...shown }, listenMs: LISTEN_MS, query: each.query },
  }));

export const graphqlInput: Arbitrary<HttpInput> = choose([5, post], [1, get]);

const listenMs = pick(0, 5, 20, 40, 80);
const lastEventId = choose<Headers>(
  [6, fc.constant({})],
  [3, asHeader('Last-Event-ID', choose([2, eventMark], [1, 'x | -1 | 99999999999999999999']))],
);

/** A subscription with its own stream. */
const single: Arbitrary<HttpInput> = fc
  .record({
    each: subscription,
    path: among('/graphql | /graphql/stream'),
    method: among('GET | POST'),
    resumed: lastEventId,
    leaves: fc.record({ listenMs, stays: rarely(pick<'read' | 'unread'>('read', 'unread'), 4), cut }),
    shown: authorization,
  })
  .map(({ each, path, method, resumed, leaves, shown }) => {
    const headers = { Accept: 'text/event-stream', ...resumed, ...shown };
    const input = { kind: 'http', api: 'graphql', method, query: each.query, ...leaves } as const;
    if (method === 'GET') return { ...input, target: path + searchOf(each), headers };
    return { ...input, target: path, headers: { ...headers, 'Content-Type': 'application/json' }, body: bodyOf(each) };
  });

const operationId = choose([6, ['a', 'b', 'c']], [1, oddText]);

/** Several subscriptions on one stream. */
const shared: Arbitrary<ExchangeInput> = fc
  .record({
    operations: fc.array(fc.tuple(operationId, subscription), { maxLength: 4 }),
    drops: fc.array(operationId, { maxLength: 2 }),
    opens: pick<ExchangeInput['opens']>('first', 'first', 'last', 'never'),
    listenMs,
    headers: authorization,
    others: rarely(authorization, 12),
  })
  .map(({ operations, headers, others = headers, ...more }) => ({
    kind: 'exchange',
    operations: operations.map(([id, each]) => {
      return { id, body: bodyOf(each, `,"extensions":{"operationId":${JSON.stringify(id)}}`) };
    }),
    ...{ headers, shown: others, ...more },
  }));

/** Requests with unknown tokens, and with methods that the endpoint does not support. */
const misplaced: Arbitrary<HttpInput> = fc
  .record({
    method: among('PUT | DELETE | POST | GET | PATCH'),
    search: pick('', '?token=x', '?token=x&operationId=a', '?operationId=a'),
    accept: among('text/event-stream | */* | text/plain | application/json'),
    shown: authorization,
  })
  .map(({ method, search, accept, shown }) => {
    const headers = { Accept: accept, 'Content-Type': 'application/json', ...shown };
    const body = method === 'POST' ? '{"query":"{ __typename }"}' : undefined;
    return { kind: 'http', api: 'any', method, target: `/graphql/stream${search}`, headers, body, listenMs: 20 };
  });

export const streamInput: Arbitrary<HttpInput | ExchangeInput> = choose<HttpInput | ExchangeInput>(
  [6, single],
  [3, shared],
  [1, misplaced],
);
