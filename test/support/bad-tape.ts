/** Bad input of the WLCG Tape REST API. */

export interface BadTape {
  protocol: 'Tape REST';
  name: string;
  method: string;
  path: string;
  /** Body to send. Strings are sent unchanged, other values as JSON. */
  body?: unknown;
  status: number;
  says: RegExp;
  allow?: string;
}

const bad = (name: string, says: RegExp, call: Partial<BadTape>): BadTape => ({
  ...{ protocol: 'Tape REST', name: `Tape REST: ${name}`, method: 'POST', path: '/stage', status: 400, says },
  ...call,
});

/** Returns a row for a stage request with these files. */
const stage = (name: string, says: RegExp, files: unknown, status = 400) =>
  bad(name, says, { body: { files }, status });

/** Returns `count` files with different paths. `build` returns the other fields of the file with a number. */
const many = (count: number, build: (n: number) => object) =>
  Array.from({ length: count }, (_, n) => ({ path: `/a/${n}`, ...build(n) }));

const ofQuota = (quota: string) => ({ targetedMetadata: { default: { quota } } });
const ONE = { path: '/a/one.nc' };
const NO_ID = '/stage/00000000-0000-4000-8000-000000000000';

const stages: BadTape[] = [
  bad('a body that is no JSON', /^the body is not JSON: /, { body: '{' }),
  bad('a body that is a list', /^the body must be an object, not an array of one element$/, { body: [{}] }),
  bad('no files', /^files must be a list, not missing$/, { body: {} }),
  stage('files that are an object', /^files must be a list, not an object$/, {}),
  stage('an empty list of files', /^files must not be empty$/, []),
  stage('a file that is a path', /^files\[0\] must be an object, not a string$/, ['/a/one.nc']),
  stage('many files that are numbers', /^files\[0\] must be an object, not a number$/, Array(1000).fill(5)),
  stage('a file without a path', /^files\[1\]\.path must be a string, not missing$/, [{ path: '/a' }, {}]),
  stage('a path that is null', /^files\[0\]\.path must be a string, not null$/, [{ path: null }]),
  stage('a path that is a number', /^files\[0\]\.path must be a string, not a number$/, [{ path: 5 }]),
  stage('a path that is a list', /^files\[0\]\.path must be a string, not an array of 0 elements$/, [{ path: [] }]),
  stage('an empty path', /^files\[0\]\.path must not be empty$/, [{ path: '' }]),
  stage('a path with NUL', /^files\[0\]\.path must be Unicode text without NUL characters, not /, [{ path: '/a/\0' }]),
  bad('half a character', /^files\[0\]\.path must be Unicode text without NUL characters, not /, {
    body: '{"files":[{"path":"/a/\\ud800"}]}',
  }),
  stage('a path that is too long', /^files\[1\]\.path must have at most 8192 characters, not 8193$/, [
    ...[ONE, { path: `/${'/'.repeat(8191)}a` }],
  ]),
  ...['1D', 'P', 'PT', 'P1', 'P-1D', 'P0D', 'PT0S', 'P1000Y', '', '2026-01-01', `P${'1'.repeat(200)}D`].map(
    (diskLifetime) =>
      stage(`the lifetime ${diskLifetime.slice(0, 20)}`, /^files\[0\]\.diskLifetime must /, [{ ...ONE, diskLifetime }]),
  ),
  stage('a lifetime that is a number', /^files\[0\]\.diskLifetime must be a string, not a number$/, [
    { ...ONE, diskLifetime: 5 },
  ]),
  stage(
    'too many lifetimes',
    /^diskLifetime must have at most 100 different values in a request, not 101$/,
    many(101, (n) => ({ diskLifetime: `PT${n + 1}S`, ...ofQuota('alice') })),
  ),
  stage('two quotas', /\.quota must name the same quota for all files of a request, not "alice" and "bob"$/, [
    ...['alice', 'bob'].map((quota) => ({ ...ONE, ...ofQuota(quota) })),
  ]),
  stage(
    'a thousand quotas',
    / not "0" and "1" and "2" and 997 more$/,
    many(1000, (n) => ofQuota(String(n))),
  ),
  stage('no quota', /\.quota must name the quota to charge; you are allowed to charge any quota$/, [ONE]),
  stage('an unknown quota', /there is no quota for user "nobody"/, [{ ...ONE, ...ofQuota('nobody') }], 403),
];

const paths: BadTape[] = ['/archiveinfo', '/release/x', `${NO_ID}/cancel`].flatMap((path) => [
  bad(`no paths at ${path}`, /^paths must be a list, not missing$/, { path, body: {} }),
  bad(`an empty list at ${path}`, /^paths must not be empty$/, { path, body: { paths: [] } }),
  bad(`a path that is an object at ${path}`, /^paths\[0\] must be a string, not an object$/, {
    ...{ path, body: { paths: [{}] } },
  }),
  bad(`many paths that are numbers at ${path}`, /^paths\[0\] must be a string, not a number$/, {
    ...{ path, body: { paths: Array(1000).fill(5) } },
  }),
  bad(`no JSON at ${path}`, /^the body is not JSON: /, { path, body: 'x' }),
]);

const routes: BadTape[] = [
  ...['/', '/nothing', '/stage/x/y', '/release'].map((path) =>
    bad(`GET of ${path}`, /^there is nothing at /, { method: 'GET', path, status: 404 }),
  ),
  bad('GET of /stage', / is not allowed here, only POST$/, { method: 'GET', allow: 'POST', status: 405 }),
  bad('PUT of a stage request', / is not allowed here, only GET, DELETE, HEAD$/, {
    ...{ method: 'PUT', path: NO_ID, allow: 'GET, DELETE, HEAD', status: 405 },
  }),
  ...['x', '1', NO_ID.slice(7), NO_ID.slice(7).toUpperCase(), '%00', '%C3%A9'].flatMap((id) =>
    ['GET', 'DELETE'].map((method) =>
      bad(`${method} of the stage request ${id}`, /^there is no stage request "/, {
        ...{ method, path: `/stage/${id}`, status: 404 },
      }),
    ),
  ),
  bad('an id that is no UTF-8', /^the path is not valid: /, { method: 'GET', path: '/stage/%ff' }),
  ...[`${NO_ID}/cancel`, '/release/x'].map((path) =>
    bad(`POST to ${path}`, /^there is no stage request "/, { path, body: { paths: ['/a/one.nc'] }, status: 404 }),
  ),
];

export const badTape = [...stages, ...paths, ...routes];
