/**
 * Bad ids and parameters of queries and GET requests. The contract tests R06 and R07 cover unknown paths and methods.
 */
import { ask, type BadInput, mutate, mutateEach, rest, shorten } from './bad-input-forms.js';

const NO_REQUEST = /^there is no request /;

const ids: BadInput[] = [
  ...['0', '-1', '2147483648', '9223372036854775808', '1e9', '0x1', 'one', '1%00', "1'--"].map((id) =>
    rest(`GET of request ${id}`, NO_REQUEST, { method: 'GET', path: `/requests/${id}`, status: 404 }),
  ),
  rest('PUT of request 2147483648', NO_REQUEST, {
    ...{ method: 'PUT', path: '/requests/2147483648', status: 404, body: { quota: 'alice' } },
  }),
  ...[0, -1, 2147483647].map((id) => mutate('updateRequest', `of ${id}`, NO_REQUEST, { requestId: id, label: 'x' })),
  ...mutateEach('cancelRequest', 'requestId', NO_REQUEST, [0, -1, 2147483647]),
  ...[2 ** 31, 2 ** 63, -(2 ** 31) - 1, 1.5, 'one', '1', true].map((id) =>
    ask(`request ${id}`, /Int cannot represent/, 'query ($id: Int!) { request(requestId: $id) { label } }', { id }),
  ),
];

const get = (name: string, says: RegExp, path: string, status = 400) =>
  rest(name, says, { method: 'GET', path, status });
const NUL = /^match must not contain the character NUL/;
const TOO_LONG = /^match must have at most 2048/;

/**
 * Returns a row for a query of a field with one argument.
 * @param field with its argument and type, such as `directory(path: String!)`
 */
const askWith = (name: string, says: RegExp, field: string, value: unknown) => {
  const [, call = '', type = ''] = /^(\w+\(\w+: )(.+)\)$/.exec(field) ?? [];
  const selection = /^(tapeFiles|volumes|requests)\(/.test(call) ? 'totalCount edges { cursor }' : '__typename';
  return ask(name, says, `query ($value: ${type}) { ${call}$value) { ${selection} } }`, { value });
};

/** Returns a cursor as Pothos encodes it. */
const cursorOf = (key: string) => Buffer.from(`GPC:S:${key}`).toString('base64');

const queries: BadInput[] = [
  get('stages with an unknown letter', /^stages must be letters .*, not "X"$/, '/files?stages=TX'),
  get('stages with NUL', /^stages must be letters .*, not "\\u0000"$/, '/files?stages=%00'),
  get('match with NUL', NUL, '/files?match=%00'),
  get('match with a lone surrogate', /^the query must be valid UTF-8/, '/files?match=%ED%A0%80'),
  get('match that is not UTF-8', /^the query must be valid UTF-8/, '/files?match=%FF'),
  get('match that is too long', TOO_LONG, `/files?match=${'x'.repeat(2049)}`),
  get('spot-name maybe', /^spot-name must be true or false, not "maybe"$/, '/files?spot-name=maybe'),
  get('match twice', /^match must be given once, not 2 times$/, '/files?match=a&match=b'),
  get('a user with NUL', /^there is no user "\\u0000"$/, '/quota/%00', 404),
  get('a user with a lone surrogate', /^the path is not valid: /, '/quota/%ED%A0%80'),
  get('a bad percent-encoding', /^the path is not valid: /, '/quota/%zz'),
  get('a user that is too long', /^there is no user "x.*" \(8000 characters\)$/, `/quota/${'x'.repeat(8000)}`, 404),
  askWith('an unknown stage', /"X" does not exist in "Stage" enum/, 'tapeFiles(stages: [Stage!])', ['X']),
  askWith('match with NUL', NUL, 'tapeFiles(match: String)', '\0'),
  askWith('match with a lone surrogate', /^match must be valid Unicode/, 'tapeFiles(match: String)', '\ud800'),
  askWith('match that is too long', TOO_LONG, 'tapeFiles(match: String)', 'x'.repeat(2049)),
  askWith('a path with NUL', /^path must not contain the character NUL/, 'tapeFile(path: String!)', '\0'),
  askWith('a quota with NUL', /^quota must not contain the character NUL/, 'requests(quota: String)', '\0'),
  ask('an unknown field', /^Cannot query field "nothing"/, '{ nothing }'),
  ...['\0', 'a\0b'].flatMap((key) =>
    ['after', 'before'].flatMap((side) =>
      ['tapeFiles', 'volumes'].map((field) =>
        askWith(`${field} ${side} ${shorten(key)}`, /cursor/i, `${field}(${side}: String)`, cursorOf(key)),
      ),
    ),
  ),
  ...['', 'archive', '/a/../b', '/a//b', '/\0', `/${'x'.repeat(300)}`].map((path) =>
    askWith(`directory ${shorten(path)}`, /^path has a path that /, 'directory(path: String!)', path),
  ),
  ...['', 'yesterday', '2026-02-30', 7].map((since) =>
    askWith(`history since ${shorten(since)}`, /\$value/, 'history(since: DateTime!)', since),
  ),
  ask(
    'history that ends before it begins',
    /^until must not be earlier than since/,
    '{ history(since: "2026-02-01", until: "2026-01-01") { at } }',
  ),
];

export const badReads: BadInput[] = [...ids, ...queries];
