/** Bad ids, parameters, paths and methods. */
import { ask, type BadInput, rest, UPDATE } from './bad-input-forms.js';

const ids: BadInput[] = [
  ...['0', '-1', '2147483648', '9223372036854775808', '1e9', '0x1', 'one', '1%00', "1'--"].flatMap((id) =>
    (id === '2147483648' ? ['GET', 'PUT'] : ['GET']).map((method) =>
      rest(`${method} of request ${id}`, /^there is no request with id /, {
        method,
        path: `/requests/${id}`,
        status: 404,
        ...(method === 'PUT' && { body: { quota: 'alice' } }),
      }),
    ),
  ),
  ...[0, -1, 2147483647].flatMap((id) => [
    ask(`updateRequest of ${id}`, /^there is no request with id /, UPDATE, { input: { id, label: 'x' } }),
    ask(
      `cancelRequest of ${id}`,
      /^there is no request with id /,
      `mutation { cancelRequest(id: ${id}) { ... on Failure { message } } }`,
    ),
  ]),
  ...[2 ** 31, 2 ** 63, -(2 ** 31) - 1, 1.5, 'one', '1', true].map((id) =>
    ask(`request ${id}`, /Int cannot represent/, 'query ($id: Int!) { request(id: $id) { label } }', { id }, 400),
  ),
];

/** As Pothos makes it. */
const cursorOf = (key: string) => Buffer.from(`GPC:S:${key}`).toString('base64');

const PREFIX = '/tape_control/api/v1';

const queries: BadInput[] = [
  rest('stages with an unknown letter', /^stages must be letters .*, not "X"$/, {
    method: 'GET',
    path: '/files?stages=TX',
  }),
  rest('stages with NUL', /^stages must be letters .*, not "\\u0000"$/, { method: 'GET', path: '/files?stages=%00' }),
  rest('match with NUL', /^match must not hold the character NUL/, { method: 'GET', path: '/files?match=%00' }),
  rest('match with a lone surrogate', /^the query must be valid UTF-8/, {
    method: 'GET',
    path: '/files?match=%ED%A0%80',
  }),
  rest('match that is not UTF-8', /^the query must be valid UTF-8/, { method: 'GET', path: '/files?match=%FF' }),
  rest('match that is too long', /^match must have at most 2048/, {
    method: 'GET',
    path: `/files?match=${'x'.repeat(2049)}`,
  }),
  rest('spot-name maybe', /^spot-name must be true or false, not "maybe"$/, {
    method: 'GET',
    path: '/files?spot-name=maybe',
  }),
  rest('match twice', /^match must be given once, not 2 times$/, { method: 'GET', path: '/files?match=a&match=b' }),
  rest('a user with NUL', /^there is no user "\\u0000"$/, { method: 'GET', path: '/quota/%00', status: 404 }),
  rest('a user with a lone surrogate', /^the path is not valid: /, { method: 'GET', path: '/quota/%ED%A0%80' }),
  rest('a bad percent-encoding', /^the path is not valid: /, { method: 'GET', path: '/quota/%zz' }),
  rest('a user that is too long', /^there is no user "x.*" \(8000 characters\)$/, {
    method: 'GET',
    path: `/quota/${'x'.repeat(8000)}`,
    status: 404,
  }),
  ask(
    'an unknown stage',
    /"X" does not exist in "Stage" enum/,
    'query ($s: [Stage!]) { tapeFiles(stages: $s) { totalCount } }',
    { s: ['X'] },
    400,
  ),
  ask(
    'match with NUL',
    /^match must not hold the character NUL/,
    'query ($m: String) { tapeFiles(match: $m) { totalCount } }',
    { m: '\0' },
  ),
  ask(
    'match with a lone surrogate',
    /^match must be valid Unicode/,
    'query ($m: String) { tapeFiles(match: $m) { totalCount } }',
    { m: '\ud800' },
  ),
  ask(
    'match that is too long',
    /^match must have at most 2048/,
    'query ($m: String) { tapeFiles(match: $m) { totalCount } }',
    { m: 'x'.repeat(2049) },
  ),
  ask(
    'a path with NUL',
    /^path must not hold the character NUL/,
    'query ($p: String!) { tapeFile(path: $p) { path } }',
    { p: '\0' },
  ),
  ask(
    'requests of a user with NUL',
    /^quota must not hold the character NUL/,
    'query ($q: String) { requests(quota: $q) { totalCount } }',
    { q: '\0' },
  ),
  ask('an unknown field', /^Cannot query field "nothing"/, '{ nothing }'),
  ...['\0', 'a\0b'].flatMap((key) =>
    ['after', 'before'].flatMap((side) => [
      ask(
        `${side} with ${JSON.stringify(key)}`,
        /cursor/i,
        `query ($c: String) { tapeFiles(${side}: $c) { edges { cursor } } volumes(${side}: $c) { edges { cursor } } }`,
        { c: cursorOf(key) },
      ),
    ]),
  ),
];

const HISTORY = 'query ($since: DateTime!, $until: DateTime) { history(since: $since, until: $until) { at } }';

const histories: BadInput[] = [
  ...['', 'yesterday', '2026-02-30', 7].map((since) =>
    ask(`history since ${JSON.stringify(since)}`, /\$since/, HISTORY, { since }, 400),
  ),
  ask('history that ends before it begins', /^until must not be before since/, HISTORY, {
    since: '2026-02-01',
    until: '2026-01-01',
  }),
];

const FOLDER = 'query ($path: String!) { folder(path: $path) { path } }';

const folders: BadInput[] = ['', 'archive', '/a/../b', '/a//b', '/\0', `/${'x'.repeat(300)}`].map((path) =>
  ask(`folder ${JSON.stringify(path.slice(0, 20))}`, /^path has a path that /, FOLDER, { path }),
);

const routes: BadInput[] = [
  ...['', '/', '/nothing', '/requests/1/files', '/quota', '/Requests'].map((path) =>
    rest(`GET of ${path}`, new RegExp(`^there is nothing at ${PREFIX}${path}$`), { method: 'GET', path, status: 404 }),
  ),
  ...[
    ['/requests', 'GET, POST, HEAD', 'PUT DELETE PATCH OPTIONS'] as const,
    ['/requests/1', 'GET, PUT, HEAD', 'POST DELETE PATCH OPTIONS'] as const,
    ['/files', 'GET, HEAD', 'POST PUT DELETE PATCH OPTIONS'] as const,
    ['/quota/alice', 'GET, HEAD', 'POST PUT DELETE PATCH OPTIONS'] as const,
  ].flatMap(([path, allow, methods]) =>
    methods
      .split(' ')
      .map((method) =>
        rest(`${method} of ${path}`, / is not allowed here, only GET/, { method, path, allow, status: 405 }),
      ),
  ),
];

export const badReads: BadInput[] = [...ids, ...queries, ...histories, ...folders, ...routes];
