/** Bad targets, hosts, methods, parameters and media types of GraphQL over HTTP. */
import { type BadHttp, type BadRest, http, rest } from './bad-input-forms.js';

const JSON_TYPE = { 'Content-Type': 'application/json' };
const STREAM = { Accept: 'text/event-stream' };
const QUERY = '%7B__typename%7D';
const body = JSON.stringify({ query: '{ __typename }' });
const NO_QUERY = /^the request must contain a "query"/;

/** The two GraphQL endpoints, each with the headers that the endpoint requires. */
const endpoints = [
  { path: '/graphql', accept: {} },
  { path: '/graphql/stream', accept: STREAM },
];

const parameters: BadHttp[] = [
  ...endpoints.flatMap(({ path, accept }) => {
    const bad = (name: string, says: RegExp, query: string) =>
      http(`${name} at ${path}`, says, { target: `${path}?${query}`, headers: accept });
    return [
      bad('extensions 5', /^extensions must be a JSON object, not a number$/, `query=${QUERY}&extensions=5`),
      bad('a list of variables', /^variables must be a JSON object, not a list$/, `query=${QUERY}&variables=%5B%5D`),
      bad('no query', NO_QUERY, ''),
    ];
  }),
  ...(
    [
      ['%7B', /^variables must be a JSON object: /],
      ['nothing', /^variables must be a JSON object: /],
      ['%7Ba:1%7D', /^variables must be a JSON object: /],
      [`%22${'x'.repeat(100)}`, /^variables must be a JSON object: /],
      [`%7B%22a%22:${'['.repeat(1000)}${']'.repeat(1000)}%7D`, /^variables must be a JSON object: .*deep/],
      ['%22a%22', /^variables must be a JSON object, not a string$/],
      ['true', /^variables must be a JSON object, not a boolean$/],
    ] as const
  ).map(([text, says]) =>
    http(`the variables ${text.slice(0, 12)}`, says, { target: `/graphql?query=${QUERY}&variables=${text}` }),
  ),
  http('an empty query', NO_QUERY, { target: '/graphql?query=' }),
];

const bodies: BadHttp[] = endpoints.flatMap(({ path: target, accept }) => {
  const post = { method: 'POST', target, headers: { ...JSON_TYPE, ...accept } };
  const bad = (name: string, says: RegExp, value: unknown) =>
    http(`${name} at ${target}`, says, { ...post, body: JSON.stringify(value) });
  const untyped = { ...post, headers: accept, body, status: 415 };
  return [
    bad('a list of variables', /^variables must be a JSON object, not a list$/, { query: '{ a }', variables: [] }),
    bad('a text of extensions', /^extensions must be a JSON object, not a string$/, {
      query: '{ a }',
      extensions: 'x',
    }),
    bad('operationName 5', /^operationName must be a string, not a number$/, { query: '{ a }', operationName: 5 }),
    http(`no JSON at ${target}`, /^the body is not JSON: /, { ...post, body: '{' }),
    http(`a body without a type at ${target}`, /^Content-Type must be application\/json, and is missing$/, untyped),
  ];
});

const types: BadHttp[] = [
  ...[
    ...[
      'text/plain',
      'multipart/mixed',
      'application/json;q=0',
      'application/json;q=0, text/plain',
      '*/*;q=0',
      'image/*',
    ],
  ].map((Accept) =>
    http(`Accept ${Accept}`, /^the Accept header must allow application\/json or /, {
      ...{ method: 'POST', headers: { ...JSON_TYPE, Accept }, body, status: 406 },
    }),
  ),
  http('a reservation as JSON', /^the Accept header must allow text\/plain$/, {
    ...{ method: 'PUT', target: '/graphql/stream', headers: { Accept: 'application/json' }, status: 406 },
  }),
  ...['text/event-stream;q=0', '*/*', 'application/json, text/event-stream; q=0.0'].map((Accept) =>
    http(`an operation without a stream, with Accept ${Accept}`, /^\/graphql\/stream returns an event stream: send /, {
      ...{ target: `/graphql/stream?query=${QUERY}`, headers: { Accept }, status: 406 },
    }),
  ),
];

const notAllowed = (target: string, allow: string, methods: string[]) =>
  methods.map((method) =>
    http(`${method} of ${target}`, new RegExp(` is not allowed here, only ${allow}$`), {
      ...{ method, target, allow, status: 405 },
    }),
  );

const routes: BadHttp[] = [
  ...['/graphql/nothing', '/graphql/stream/', '/graphql//'].map((target) =>
    http(`GET of ${target}`, new RegExp(`^there is nothing at ${target}$`), { target, status: 404 }),
  ),
  ...notAllowed('/graphql', 'GET, POST', ['PUT', 'DELETE', 'PATCH', 'OPTIONS']),
  ...notAllowed('/graphql/stream', 'GET, POST, PUT, DELETE', ['PATCH', 'OPTIONS']),
  ...notAllowed('/graphql/schema.graphql', 'GET, HEAD', ['POST', 'PUT', 'DELETE', 'OPTIONS']),
  http('the end of an operation without a stream', /^Stream not found$/, {
    ...{ method: 'DELETE', target: '/graphql/stream?operationId=1', status: 404 },
  }),
];

const BAD_HOST = /^Host must be a name or an address, and a port, not "/;

const hosts: (BadHttp | BadRest)[] = [
  ...['[', 'a b', 'a/b', 'a@b', 'a:b', '[::1', 'a:99999', '%zz%'].map((Host) =>
    rest(`Host ${Host}`, BAD_HOST, { method: 'GET', path: '/requests', headers: { Host } }),
  ),
  ...endpoints.map(({ path, accept }) =>
    http(`Host a/b for ${path}`, BAD_HOST, { target: `${path}?query=${QUERY}`, headers: { Host: 'a/b', ...accept } }),
  ),
];

export const badHttp: (BadHttp | BadRest)[] = [...parameters, ...bodies, ...types, ...routes, ...hosts];
