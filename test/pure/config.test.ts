import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { type Config, ConfigError, isDebug, readConfig, readServerUrl } from '../../src/config.js';
import { fixedLimits, limitRows, readLimits } from '../../src/config-limits.js';
import { settingsOfWays } from '../../src/config-ways.js';
import { packageRoot } from '../../src/package-root.js';
import { backendNames } from '../../src/tape/backend.js';
import { cleanUp, makeDataDir, runCli } from '../support/process.js';

afterAll(cleanUp);

/** Returns all settings of a configuration, without their groups. */
const flatten = ({ access, door, telemetry, limits, ...others }: Config) => ({
  ...others,
  ...access,
  ...door,
  ...telemetry,
  ...limits,
});
type Settings = ReturnType<typeof flatten>;

const read = (env: Record<string, string | undefined>): Settings => flatten(readConfig(env, backendNames));
const readAsEngine = (env: Record<string, string>): Settings =>
  flatten(readConfig(env, backendNames, { listens: false }));

const defaults: Settings = {
  ...{ port: 8080, host: '127.0.0.1', siteName: undefined, webdav: 'public', gateways: new Map(), diskCalls: 2 },
  ...{ databaseUrl: undefined, databaseReadUrl: undefined, readWaitMs: 200, dataDir: './data', demo: true },
  ...{ engine: true, drives: 2, engineWeight: 1, diskTimeout: 120, tapeTimeout: 900, tapeBackend: 'directory' },
  ...{ smtpUrl: undefined, mailFrom: 'tapegate@localhost', readerSeconds: 60, leaveSeconds: 0, webhookHosts: [] },
  ...{ eventDays: 30, requestDays: 30, auditDays: 400, expiryNoticeHours: 48 },
  ...{ metricsPort: undefined, metricsHost: '127.0.0.1', accessLog: false, traces: false, logLevel: 'info' },
  ...{ restoreMode: undefined, restoreGroup: undefined, linkRoot: undefined, publicUrl: undefined },
  ...{ allowedHosts: [], corsOrigins: [], dashboard: true, graphiql: true, introspection: true },
  ...{ trustedDocuments: undefined, trustedOnly: false, tlsCert: undefined, tlsKey: undefined },
  ...{ auth: new Set(['token', 'open']), legacy: [], oidcIssuers: [], oidcAudiences: [], oidcUserClaim: 'sub' },
  ...{ oidcGroupsClaims: ['wlcg.groups', 'groups'], oidcRoles: [], oidcClockSkew: 60, oidcClientId: undefined },
  ...{ proxyAddresses: [], proxyUserHeader: 'x-remote-user', proxyGroupsHeader: undefined, proxyRoles: [] },
  ...{ proxyCertHeader: 'x-ssl-client-s-dn', proxyCertVerifyHeader: 'x-ssl-client-verify', proxyCertUsers: {} },
  ...readLimits({
    integer: (_name, _low, _high, fallback) => fallback,
    oneOf: (_name, _values, fallback) => fallback,
    parsed: () => undefined,
  }),
};

const limits = Object.entries(limitRows);
const levels = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'];

/** Each variable that has one setting of its own, without the limits. */
const names =
  `ACCESS_LOG ALLOWED_HOSTS AUDIT_DAYS AUTH BYTES_GATEWAYS CORS_ORIGINS DASHBOARD DATABASE_READ_URL DATABASE_URL
  DATA_DIR DEMO DISK_TIMEOUT DRIVES ENGINE ENGINE_WEIGHT EVENT_DAYS EXPIRY_NOTICE_HOURS GRAPHIQL HOST INTROSPECTION LEAVE_SECONDS
  LEGACY LINK_ROOT LOG_LEVEL MAIL_FROM MAIL_TO METRICS_HOST METRICS_PORT OIDC_AUDIENCE OIDC_CLIENT_ID OIDC_CLOCK_SKEW
  OIDC_GROUPS_CLAIM OIDC_ISSUER OIDC_ROLES OIDC_USER_CLAIM OTEL_EXPORTER_OTLP_ENDPOINT PORT PROXY_ADDRESSES PROXY_CERT_HEADER
  PROXY_CERT_USERS PROXY_CERT_VERIFY_HEADER PROXY_GROUPS_HEADER PROXY_ROLES PROXY_USER_HEADER PUBLIC_URL RATE_LOCAL
  READER_SECONDS READ_WAIT_MS REQUEST_DAYS RESTORE_GROUP RESTORE_MODE SITE_NAME SMTP_URL TAPE_BACKEND TAPE_TIMEOUT TLS_CERT
  TLS_KEY TRUSTED_DOCUMENTS TRUSTED_ONLY UV_THREADPOOL_SIZE WEBDAV WEBHOOK_HOSTS`.split(/\s+/);

/** Returns the faults of an environment, as a gateway reads it. */
function faultsOf(env: Record<string, string>): string[] {
  try {
    read(env);
  } catch (error) {
    if (error instanceof ConfigError) return error.faults;
    throw error;
  }
  return [];
}

test('an empty environment gives the defaults, and an empty variable counts as unset, except AUTH', () => {
  expect(read({})).toEqual(defaults);
  const empty = Object.fromEntries(names.map((name) => [name, '']));
  expect(read({ ...empty, AUTH: undefined })).toEqual(defaults);
  expect(faultsOf(empty)).toEqual(['AUTH must not be empty: unset, it opens the gateway to whoever asks']);
  expect(Object.keys(defaults)).toHaveLength(names.length + limits.length + Object.keys(fixedLimits).length);
});

test.each<[name: string, value: string, changes: Partial<Settings>]>([
  ['PORT', '0', { port: 0 }],
  ['PORT', '65535', { port: 65_535 }],
  ['HOST', '127.8.0.1', { host: '127.8.0.1' }],
  ['AUTH', 'token', { auth: new Set(['token']) }],
  ['AUTH', ' open, token', {}],
  ['PROXY_ADDRESSES', '192.0.2.7, 10.0.0.0/8', { proxyAddresses: ['192.0.2.7', '10.0.0.0/8'] }],
  ['PROXY_USER_HEADER', 'X-User', { proxyUserHeader: 'x-user' }],
  [
    'PROXY_ROLES',
    'operator=ops, viewer = user:bob',
    {
      proxyRoles: [
        { role: 'operator', kind: 'group', name: 'ops' },
        { role: 'viewer', kind: 'user', name: 'bob' },
      ],
    },
  ],
  ['OIDC_CLOCK_SKEW', '0', { oidcClockSkew: 0 }],
  ['LEGACY', 'none', {}],
  ['HOST', '::1', { host: '::1' }],
  ['DATABASE_URL', 'postgresql://u:p@db.example.org/tapes', { databaseUrl: 'postgresql://u:p@db.example.org/tapes' }],
  ['DATABASE_URL', 'postgresql://db/tapes?user=a@b', { databaseUrl: 'postgresql://db/tapes?user=a@b' }],
  ['DATABASE_URL', 'postgres://db', { databaseUrl: 'postgres://db' }],
  ['DATABASE_READ_URL', 'postgresql://u:p@a,b/tapes', { databaseReadUrl: 'postgresql://u:p@a,b/tapes' }],
  ['READ_WAIT_MS', '0', { readWaitMs: 0 }],
  ['DATABASE_URL', 'postgresql:///tapes?host=/run', { databaseUrl: 'postgresql:///tapes?host=/run' }],
  ['DATA_DIR', '/srv/tapes and disks', { dataDir: '/srv/tapes and disks' }],
  ['DEMO', 'off', { demo: false }],
  ['ENGINE', 'off', { engine: false }],
  ['DRIVES', '1', { drives: 1 }],
  ['DRIVES', '256', { drives: 256 }],
  ['ENGINE_WEIGHT', '1000', { engineWeight: 1000 }],
  ['TAPE_BACKEND', 'memory', { tapeBackend: 'memory' }],
  ['SMTP_URL', 'smtp://mail.example.org:2525', { smtpUrl: 'smtp://mail.example.org:2525' }],
  ['SMTP_URL', 'smtps://u:p@mail.example.org', { smtpUrl: 'smtps://u:p@mail.example.org' }],
  ['SITE_NAME', 'EXAMPLE-T1', { siteName: 'EXAMPLE-T1' }],
  ['WEBDAV', 'all', { webdav: 'all' }],
  [
    'BYTES_GATEWAYS',
    'a=https://a.example.org:8443/, b-2=http://b/tapes',
    {
      gateways: new Map([
        ['a', 'https://a.example.org:8443'],
        ['b-2', 'http://b/tapes'],
      ]),
    },
  ],
  ['UV_THREADPOOL_SIZE', '16', { diskCalls: 8 }],
  ['UV_THREADPOOL_SIZE', '1', { diskCalls: 1 }],
  ['RESTORE_MODE', '0640', { restoreMode: 0o640 }],
  ['RESTORE_MODE', '777', { restoreMode: 0o777 }],
  ['RESTORE_GROUP', '1234', { restoreGroup: 1234 }],
  ['RESTORE_GROUP', 'root', { restoreGroup: 0 }],
  ['LINK_ROOT', '/', { linkRoot: '/' }],
  ['LINK_ROOT', '/archive/', { linkRoot: '/archive' }],
  ['MAIL_FROM', 'Tapes <tapes@example.org>', { mailFrom: 'Tapes <tapes@example.org>' }],
  ['READER_SECONDS', '3600', { readerSeconds: 3600 }],
  ['LEAVE_SECONDS', '15', { leaveSeconds: 15 }],
  ['RATE_LOCAL', 'on', { rateLocal: true }],
  ['MAIL_TO', 'quota', { mailTo: 'quota' }],
  ['MAIL_TO', 'Example.org, b.c', { mailTo: ['example.org', 'b.c'] }],
  ['EVENT_DAYS', '7', { eventDays: 7 }],
  ['REQUEST_DAYS', '0', { requestDays: 0 }],
  ['AUDIT_DAYS', '1', { auditDays: 1 }],
  ['EXPIRY_NOTICE_HOURS', '0', { expiryNoticeHours: 0 }],
  ['WEBHOOK_HOSTS', 'Hooks.lan, 10.0.0.0/8 ::1', { webhookHosts: ['hooks.lan', '10.0.0.0/8', '::1'] }],
  ['METRICS_PORT', '0', { metricsPort: 0 }],
  ['METRICS_HOST', '::', { metricsHost: '::' }],
  ['ACCESS_LOG', 'on', { accessLog: true }],
  ['OTEL_EXPORTER_OTLP_ENDPOINT', 'http://collector:4318', { traces: true }],
  ['DASHBOARD', 'off', { dashboard: false }],
  ['GRAPHIQL', 'off', { graphiql: false }],
  ['INTROSPECTION', 'off', { introspection: false }],
  ['TRUSTED_DOCUMENTS', '/etc/documents.json', { trustedDocuments: '/etc/documents.json' }],
  ['PUBLIC_URL', 'https://Tapes.example.org:443/', { publicUrl: 'https://tapes.example.org' }],
  ['PUBLIC_URL', 'http://archive.example.org:8080/tapes//', { publicUrl: 'http://archive.example.org:8080/tapes' }],
  [
    'PUBLIC_URL',
    'https://archive.example.org/graphql-tapes',
    { publicUrl: 'https://archive.example.org/graphql-tapes' },
  ],
  [
    'ALLOWED_HOSTS',
    'Tapes.example.org , tape_gate,10.0.0.7,2001:DB8::7,[2001:db8::8]',
    { allowedHosts: ['tapes.example.org', 'tape_gate', '10.0.0.7', '[2001:db8::7]', '[2001:db8::8]'] },
  ],
  [
    'CORS_ORIGINS',
    'https://Portal.example.org:443/, http://localhost:5173,',
    { corsOrigins: ['https://portal.example.org', 'http://localhost:5173'] },
  ],
  ...levels.map((level): [string, string, Partial<Settings>] => ['LOG_LEVEL', level, { logLevel: level }]),
])('%s=%s is accepted', (name, value, changes) => {
  expect(readAsEngine({ AUTH: 'token,open', [name]: value })).toEqual({ ...defaults, ...changes });
});

/** A valid value of each. */
const ofWays: Record<keyof typeof settingsOfWays, string> = {
  OIDC_ISSUER: 'https://iam.example.org',
  OIDC_AUDIENCE: 'tapes',
  OIDC_USER_CLAIM: 'name',
  OIDC_GROUPS_CLAIM: 'groups',
  OIDC_ROLES: 'operator=ops',
  OIDC_CLOCK_SKEW: '30',
  OIDC_CLIENT_ID: 'tapegate',
  PROXY_USER_HEADER: 'X-User',
  PROXY_GROUPS_HEADER: 'X-Groups',
  PROXY_CERT_HEADER: 'X-Subject',
  PROXY_CERT_VERIFY_HEADER: 'X-Verified',
  PROXY_CERT_USERS: '/dev/null',
  PROXY_ROLES: 'operator=ops',
  LEGACY: 'read',
};

const needed: Record<string, Record<string, string>> = {
  oidc: { OIDC_ISSUER: 'https://iam.example.org', OIDC_AUDIENCE: 'tapes' },
  proxy: { PROXY_ADDRESSES: '127.0.0.1' },
  certificate: { PROXY_ADDRESSES: '127.0.0.1' },
  legacy: {},
};

test.each(Object.entries(settingsOfWays))('%s is a fault unless AUTH has one of %j', (name, ways) => {
  const given = { [name]: ofWays[name as keyof typeof settingsOfWays] };
  const fault = `${name} does nothing unless AUTH has ${ways.join(' or ')}`;
  expect(faultsOf({ AUTH: 'token', ...given })).toEqual([fault]);
  for (const way of ways) expect(faultsOf({ AUTH: `token,${way}`, ...needed[way], ...given })).toEqual([]);
  // engines may have the environment of the gateway, or a part of it
  expect(() => readAsEngine(given)).not.toThrow();
});

test('with AUTH unset, the settings of a way to sign in are faults', () => {
  expect(faultsOf({ LEGACY: 'all', PROXY_ROLES: 'operator=ops' })).toEqual([
    'PROXY_ROLES does nothing unless AUTH has proxy or certificate',
    'LEGACY does nothing unless AUTH has legacy',
  ]);
});

test.each([
  ['AUTH', {}, 'it opens the gateway to whoever asks'],
  ['AUTH', { HOST: '0.0.0.0' }, 'it opens the gateway to whoever asks'],
  ['LEGACY', { AUTH: 'token,legacy' }, 'it opens all that is read, and none closes all'],
  ['OIDC_ROLES', { AUTH: 'oidc', ...needed.oidc }, 'it makes everybody a user who is known'],
  ['PROXY_ROLES', { AUTH: 'proxy', ...needed.proxy }, 'it makes everybody a user who is known'],
])('an empty %s is a fault with %j', (name, env, unset) => {
  expect(faultsOf({ ...env, [name]: '' })).toEqual([`${name} must not be empty: unset, ${unset}`]);
  expect(() => readAsEngine({ ...env, [name]: '' })).not.toThrow();
});

const list = 'LEGACY must be none, or a list:';
const all6 =
  'read, all, GET /requests, GET /requests/{id}, GET /files, GET /quota/{user}, POST /requests, PUT /requests/{id}';
const range = 'is no address, and no range such as 192.0.2.0/24 or 2001:db8::/32';

test.each([
  ['read, GET /request', [`${list} "GET /request" is none of ${all6}`]],
  ['DELETE /requests,read', [`${list} "DELETE /requests" is none of ${all6}`]],
  ['read from 192.0.2.300', [`${list} "192.0.2.300" in "read from 192.0.2.300" ${range}`]],
  ['all, read from 192.0.2.1 192.0.2.0/33', [`${list} "192.0.2.0/33" in "read from 192.0.2.1 192.0.2.0/33" ${range}`]],
  ['read from', [`${list} "read from" names no address after "from"`]],
  ['read from ::1 from ::2', [`${list} "read from ::1 from ::2" has "from" 2 times`]],
  ['read,', [`${list} one of its entries is empty`]],
  [
    'get /requests/{id}, none',
    [`${list} "get /requests/{id}" is none of ${all6}`, `${list} "none" stands alone, where all is closed`],
  ],
])('LEGACY=%s reports the wrong entry, and the possible ones', (value, faults) => {
  expect(faultsOf({ AUTH: 'token,legacy', LEGACY: value })).toEqual(faults);
});

test.each<[name: string, value: string, shown?: string]>([
  ...['0.0.0.0', '::', '192.0.2.1', 'tapes.example.org'].map((host): [string, string] => ['HOST', host]),
  ['PUBLIC_URL', 'https://tapes.example.org/tapes'],
  ['PUBLIC_URL', 'http://[2001:db8::7]:8080'],
  ['ALLOWED_HOSTS', 'localhost,tapes.example.org', 'tapes.example.org'],
  ['PROXY_ADDRESSES', '127.0.0.1'],
  ['OIDC_ISSUER', 'https://iam.example.org'],
])('%s=%s requires AUTH, because other hosts reach the gateway', (name, value, shown = value) => {
  expect(faultsOf({ [name]: value })).toEqual([
    expect.stringContaining(
      `AUTH must be given where others reach the gateway, and ${name} is "${shown}": token, oidc,`,
    ),
  ]);
  const way = name === 'OIDC_ISSUER' ? 'oidc' : 'token';
  for (const AUTH of [way, `${way},open`]) {
    expect(faultsOf({ ...needed[way], [name]: value, AUTH })).toEqual([]);
  }
});

test.each([
  ['PUBLIC_URL', 'http://localhost:8080/tapes'],
  ['PUBLIC_URL', 'http://[::1]:8080'],
  ['ALLOWED_HOSTS', 'localhost,127.0.0.2,[::1]'],
  ['CORS_ORIGINS', 'https://portal.example.org'],
])('%s=%s concerns this host only, and leaves the gateway open', (name, value) => {
  expect(read({ [name]: value }).auth).toEqual(new Set(['token', 'open']));
});

test.each(limits)('the limit %s is the value of its variable within its bounds, and is documented', (key, row) => {
  const [name, low, high, fallback] = row;
  for (const value of [low, high]) {
    expect(read({ [name]: String(value) })).toEqual({ ...defaults, [key]: value });
  }
  expect([fallback >= low && fallback <= high, faultsOf({ [name]: 'x' })]).toEqual([
    true,
    [`${name} must be a whole number from ${low} to ${high}, not "x"`],
  ]);
  const table = readFileSync(path.join(packageRoot, 'src/commands/README.md'), 'utf8');
  expect(table).toMatch(new RegExp(`^\\| \`${name}\` \\| ${fallback} \\| `, 'm'));
});

test.each<[name: string, low: number, high: number]>([
  ['PORT', 0, 65_535],
  ['UV_THREADPOOL_SIZE', 1, 1024],
  ['DRIVES', 1, 256],
  ['ENGINE_WEIGHT', 1, 1000],
  ['READER_SECONDS', 1, 86_400],
  ['LEAVE_SECONDS', 0, 3600],
  ['EVENT_DAYS', 1, 36_500],
  ['REQUEST_DAYS', 0, 36_500],
  ['AUDIT_DAYS', 1, 36_500],
  ['EXPIRY_NOTICE_HOURS', 0, 8760],
])('%s is a whole number from %i to %i', (name, low, high) => {
  for (const value of [low, high]) expect(faultsOf({ [name]: String(value) })).toEqual([]);
  for (const value of [`${low - 1}`, `${high + 1}`, '1.5', '1e1', '0x1', ' 1', 'two', '99999999999']) {
    const fault = `${name} must be a whole number from ${low} to ${high}, not ${JSON.stringify(value)}`;
    expect(faultsOf({ [name]: value })).toEqual([fault]);
  }
});

const url = (schemes: string) => `a URL that begins with ${schemes}`;
const [database, smtp] = [url('postgresql:// or postgres://'), url('smtp:// or smtps://')];
const publicUrl = `${url('http:// or https://')}, without user, query, or a path of the gateway`;

test.each<[name: string, must: string, values: string[]]>([
  ...['DEMO', 'DASHBOARD', 'GRAPHIQL', 'TRUSTED_ONLY', 'INTROSPECTION', 'ENGINE'].map(
    (name): [string, string, string[]] => [name, 'one of on, off', ['On', 'true', '1']],
  ),
  ['TAPE_BACKEND', `one of ${backendNames.join(', ')}`, ['lto']],
  ['LOG_LEVEL', `one of ${levels.join(', ')}`, ['loud', 'toString']],
  ['WEBDAV', 'one of off, public, all', ['on']],
  ['SITE_NAME', 'a name without spaces', ['a b']],
  [
    'BYTES_GATEWAYS',
    'a list such as host1=https://host1.example.org:8443,host2=…',
    ['a', 'a=b', 'a=ftp://b', 'a=https://b?c', ','],
  ],
  [
    'WEBHOOK_HOSTS',
    'a list of names, addresses and ranges',
    ['10.0.0.0/33', 'https://hooks.lan', 'hooks.lan:8443', ','],
  ],
  ['RESTORE_MODE', 'three octal digits such as 0640, without set-id bits', ['4755', '0888', '64', 'rw-r-----']],
  ['LINK_ROOT', 'an absolute path without "." or ".."', ['archive', '/a/../b', '//a', '/a//', '/./a']],
  ['RESTORE_GROUP', 'a group of this host, or its number', ['no-such-group', '-1', 'a b']],
  [
    'PUBLIC_URL',
    publicUrl,
    ['tapes.example.org', 'ftp://tapes', 'https://', 'https://archive/graphql', 'https://archive/tape_control/api/v1'],
  ],
  [
    'CORS_ORIGINS',
    'a list of origins such as https://example.org',
    ['*', 'null', 'portal.example.org', 'https://portal/app', 'https://u@portal', 'https://a b', ','],
  ],
  [
    'ALLOWED_HOSTS',
    'a list of names and addresses, without ports',
    ['*', 'tapes:8080', 'https://tapes', '.example.org:1', 'a/b', '[::1', ','],
  ],
  ['MAIL_TO', 'anywhere, quota, or a list of domains such as example.org,example.com', ['a@b.c', 'nowhere', 'a.b,']],
  ['MAIL_FROM', 'an e-mail address', ['nobody', 'a@b\r\nBcc: c@d']],
  ['DATABASE_URL', database, ['tapes', 'postgresql:tapes']],
  ['SMTP_URL', smtp, ['mail.example.org', 'smtp:mail.example.org', 'smtp://']],
])('%s must be %s', (name, must, values) => {
  for (const value of values) {
    expect(faultsOf({ [name]: value })).toEqual([`${name} must be ${must}, not ${JSON.stringify(value)}`]);
  }
});

const login = 'a URL whose user and password are percent-encoded';

test.each([
  ['DATABASE_READ_URL', 'http://u:secret@db', database, 'http://…@db'],
  ['DATABASE_URL', 'mysql://u:secret@db/tapes', database, 'mysql://…@db/tapes'],
  ['DATABASE_URL', 'mysql://db/tapes?password=secret', database, 'mysql://db/tapes?…'],
  ['DATABASE_URL', 'postgresql://u:12/secret@db/tapes', login, 'postgresql://…@db/tapes'],
  ['DATABASE_URL', 'postgresql://u:12?secret@db/tapes', login, 'postgresql://…@db/tapes'],
  ['DATABASE_URL', 'postgresql://u:sec/ret@db/tapes', login, 'postgresql://…@db/tapes'],
  ['DATABASE_URL', 'postgresql://u:secret', database, 'postgresql://u:…'],
  ['SMTP_URL', 'smtp://u:12#secret@mail', login, 'smtp://…@mail'],
  ['SMTP_URL', 'http://u:secret@mail', smtp, 'http://…@mail'],
  ['PUBLIC_URL', 'https://tapes/?a=b', publicUrl, 'https://tapes/?…'],
  ['PUBLIC_URL', 'https://tapes/#a', publicUrl, 'https://tapes/#…'],
  ['PUBLIC_URL', 'https://u:secret@tapes', publicUrl, 'https://…@tapes'],
])('%s=%s is refused without a secret in the message', (name, value, must, shown) => {
  expect(faultsOf({ [name]: value })).toEqual([`${name} must be ${must}, not "${shown}"`]);
});

test('TRUSTED_ONLY needs TRUSTED_DOCUMENTS', () => {
  const fault = 'TRUSTED_ONLY needs TRUSTED_DOCUMENTS, the file of the documents that are trusted';
  expect(faultsOf({ TRUSTED_ONLY: 'on' })).toEqual([fault]);
});

const faulty = {
  ...{ PORT: 'x', DEMO: 'x', ENGINE: 'x', DRIVES: 'x', TAPE_BACKEND: 'x', SMTP_URL: 'x', DATABASE_URL: 'x' },
  ...{ MAIL_FROM: 'x', LOG_LEVEL: 'x', PUBLIC_URL: 'x', WEBHOOK_HOSTS: '?', ALLOWED_HOSTS: '*' },
};

test('all faults are reported at once, one a line', () => {
  const faults = faultsOf(faulty);
  expect(faults.map((fault) => fault.split(' ')[0]).sort()).toEqual(Object.keys(faulty).sort());
  expect(new ConfigError(faults).message.split('\n')).toEqual([
    'the environment has 12 faults:',
    ...faults.map((fault) => `  ${fault}`),
  ]);
  expect(new ConfigError(['one']).message).toBe('the environment has a fault:\n  one');
});

test('a certificate needs its key, and a key its certificate', () => {
  const both = { TLS_CERT: '/etc/tapegate/cert.pem', TLS_KEY: '/etc/tapegate/key.pem' };
  expect(readAsEngine(both)).toEqual({ ...defaults, tlsCert: both.TLS_CERT, tlsKey: both.TLS_KEY });
  expect(faultsOf({ TLS_CERT: both.TLS_CERT })).toEqual(["TLS_CERT needs TLS_KEY, the file of the certificate's key"]);
  expect(faultsOf({ TLS_KEY: both.TLS_KEY })).toEqual(['TLS_KEY needs TLS_CERT, the file of its certificate']);
});

test('a command with a faulty environment exits with 2 and reports every fault', async () => {
  const env = { ...faulty, DATA_DIR: `${makeDataDir()}/data` };
  const refused = { code: 2, stdout: '', stderr: `tapegate: ${new ConfigError(faultsOf(faulty)).message}\n` };
  for (const command of ['work', 'migrate']) expect(await runCli([command], { env })).toEqual(refused);
});

test('commands that listen, and no others, refuse an environment that opens the gateway to other hosts', async () => {
  const env = { PUBLIC_URL: 'https://tapes.example.org/tapes', DATA_DIR: makeDataDir() };
  const fault = expect.stringContaining('AUTH must be given where others reach the gateway');
  for (const command of ['start', 'serve']) {
    expect(await runCli([command], { env })).toEqual({ code: 2, stdout: '', stderr: fault });
  }
  expect(await runCli(['doctor'], { env })).toMatchObject({ code: 1, stderr: expect.not.stringContaining('AUTH') });
});

test('TAPEGATE_URL defaults to the address on which start listens by default', () => {
  expect(readServerUrl({})).toBe('http://127.0.0.1:8080');
  expect(readServerUrl({ TAPEGATE_URL: '' })).toBe(`http://${defaults.host}:${defaults.port}`);
  expect(readServerUrl({ TAPEGATE_URL: 'https://tapes.example.org/below//' })).toBe('https://tapes.example.org/below');
  for (const TAPEGATE_URL of ['tapes', 'localhost:8080', 'ftp://tapes', 'http://', 'http:tapes']) {
    expect(() => readServerUrl({ TAPEGATE_URL })).toThrow(
      `TAPEGATE_URL must be a URL that begins with http:// or https://, not ${JSON.stringify(TAPEGATE_URL)}`,
    );
  }
});

test('the log levels debug and trace show stacks', () => {
  const given = ['debug', 'trace', 'info', '', undefined];
  expect(given.map((level) => isDebug({ LOG_LEVEL: level }))).toEqual([true, true, false, false, false]);
});
