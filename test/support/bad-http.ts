/** Bad targets, hosts, methods, parameters and media types of the addresses of GraphQL. */
import { type BadHttp, type BadRest, http, rest } from './bad-input-forms.js';

const JSON_TYPE = { 'Content-Type': 'application/json' };
const STREAM = { Accept: 'text/event-stream' };
const QUERY = '%7B__typename%7D';
const body = JSON.stringify({ query: '{ __typename }' });
const PATHS = ['/graphql', '/graphql/stream'];

const parameters: BadHttp[] = PATHS.flatMap((path) => {
  const headers = path === '/graphql' ? {} : STREAM;
  const bad = (name: string, says: RegExp, query: string) =>
    http(`${name} at ${path}`, says, { target: `${path}?${query}`, headers });
  const both = [
    bad('extensions 5', /^extensions must be a JSON object, not a number$/, `query=${QUERY}&extensions=5`),
    bad(
      'variables that are a list',
      /^variables must be a JSON object, not a list$/,
      `query=${QUERY}&variables=%5B%5D`,
    ),
    bad('no query', /^the request must have a "query"/, ''),
  ];
  if (path !== '/graphql') return both;
  return [
    ...both,
    ...['%7B', 'nothing', '%7Ba:1%7D', `%22${'x'.repeat(100)}`].map((text) =>
      bad(
        `variables that are no JSON (${text.slice(0, 9)})`,
        /^variables must be a JSON object: /,
        `query=${QUERY}&variables=${text}`,
      ),
    ),
    bad(
      'variables that are endlessly deep',
      /^variables must be a JSON object: .*deep/,
      `query=${QUERY}&variables=%7B%22a%22:${'['.repeat(1000)}${']'.repeat(1000)}%7D`,
    ),
    ...['%22a%22', 'true'].map((text) =>
      bad(
        `variables ${text}`,
        /^variables must be a JSON object, not a (string|boolean)$/,
        `query=${QUERY}&variables=${text}`,
      ),
    ),
    bad('an empty query', /^the request must have a "query"/, 'query='),
  ];
});

const bodies: BadHttp[] = PATHS.flatMap((target) => {
  const headers = { ...JSON_TYPE, ...(target === '/graphql' ? {} : STREAM) };
  const bad = (name: string, says: RegExp, value: unknown) =>
    http(`${name} at ${target}`, says, { method: 'POST', target, headers, body: JSON.stringify(value) });
  return [
    bad('a body that is a list', /^the request must have a "query"/, [{ query: '{ __typename }' }]),
    bad('variables that are a list', /^variables must be a JSON object, not a list$/, {
      query: '{ a }',
      variables: [],
    }),
    bad('extensions that are text', /^extensions must be a JSON object, not a string$/, {
      query: '{ a }',
      extensions: 'x',
    }),
    bad('operationName 5', /^operationName must be a string, not a number$/, { query: '{ a }', operationName: 5 }),
    http(`a body that is no JSON at ${target}`, /^the body is not JSON: /, {
      method: 'POST',
      target,
      headers,
      body: '{',
    }),
    ...[
      'multipart/form-data; boundary=x',
      'application/x-www-form-urlencoded',
      'application/graphql',
      'text/plain',
      'x',
    ].map((type) =>
      http(`a body of the type ${type} at ${target}`, /^Content-Type must be application\/json, not "/, {
        method: 'POST',
        target,
        headers: { ...headers, 'Content-Type': type },
        body,
        status: 415,
      }),
    ),
    http(`a body without a type at ${target}`, /^Content-Type must be application\/json, and is missing$/, {
      method: 'POST',
      target,
      headers: target === '/graphql' ? {} : STREAM,
      body,
      status: 415,
    }),
  ];
});

const types: BadHttp[] = [
  ...[
    'text/plain',
    'multipart/mixed',
    'application/json;q=0',
    'application/json;q=0, text/plain',
    '*/*;q=0',
    'image/*',
  ].map((accept) =>
    http(`Accept ${accept}`, /^there is nothing here but application\/json, /, {
      method: 'POST',
      headers: { ...JSON_TYPE, Accept: accept },
      body,
      status: 406,
    }),
  ),
  http('a subscription as JSON', /^there is nothing here but application\/json, .*text\/event-stream, /, {
    method: 'POST',
    headers: { ...JSON_TYPE, Accept: 'application/json' },
    body: JSON.stringify({ query: 'subscription { stageChanges { path } }' }),
    status: 406,
  }),
  http('a reservation as JSON', /^there is nothing here but text\/plain, /, {
    method: 'PUT',
    target: '/graphql/stream',
    headers: { Accept: 'application/json' },
    status: 406,
  }),
  ...['text/event-stream;q=0', '*/*', 'application/json, text/event-stream; q=0.0'].map((accept) =>
    http(`an operation without a stream, with Accept ${accept}`, /^Stream not found$/, {
      target: `/graphql/stream?query=${QUERY}`,
      headers: { Accept: accept },
      status: 404,
    }),
  ),
];

const routes: BadHttp[] = [
  ...['/graphql/nothing', '/graphql/stream/', '/graphql//'].map((target) =>
    http(`GET of ${target}`, new RegExp(`^there is nothing at ${target}$`), { target, status: 404 }),
  ),
  ...['PUT', 'DELETE', 'PATCH', 'OPTIONS'].map((method) =>
    http(`${method} of /graphql`, / is not allowed here, only GET, POST$/, { method, allow: 'GET, POST', status: 405 }),
  ),
  ...['PATCH', 'OPTIONS'].map((method) =>
    http(`${method} of /graphql/stream`, / is not allowed here, only GET, POST, PUT, DELETE$/, {
      method,
      target: '/graphql/stream',
      allow: 'GET, POST, PUT, DELETE',
      status: 405,
    }),
  ),
  ...['POST', 'PUT', 'DELETE', 'OPTIONS'].map((method) =>
    http(`${method} of the schema`, / is not allowed here, only GET, HEAD$/, {
      method,
      target: '/graphql/schema.graphql',
      allow: 'GET, HEAD',
      status: 405,
    }),
  ),
  ...PATHS.map((path) =>
    http(`a mutation by GET of ${path}`, /mutation/, {
      target: `${path}?query=mutation%7BcancelRequest(id:1)%7B__typename%7D%7D`,
      headers: path === '/graphql' ? {} : STREAM,
      allow: 'POST',
      status: 405,
    }),
  ),
  http('the end of an operation without a stream', /^Stream not found$/, {
    method: 'DELETE',
    target: '/graphql/stream?operationId=1',
    status: 404,
  }),
];

const HOSTS = ['[', 'a b', 'a/b', 'a@b', 'a:b', '[::1', 'a:99999', '%zz%'];

const BAD_HOST = /^Host must be a name or an address, and a port, not "/;

const hosts: (BadHttp | BadRest)[] = [
  ...HOSTS.map((Host) => rest(`Host ${Host}`, BAD_HOST, { method: 'GET', path: '/requests', headers: { Host } })),
  ...[`/graphql?query=${QUERY}`, `/graphql/stream?query=${QUERY}`].map((target) =>
    http(`Host a/b for ${target}`, BAD_HOST, {
      target,
      headers: { Host: 'a/b', ...(target.includes('stream') && STREAM) },
    }),
  ),
];

export const badHttp: (BadHttp | BadRest)[] = [...parameters, ...bodies, ...types, ...routes, ...hosts];
