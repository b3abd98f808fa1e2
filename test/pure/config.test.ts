/**
 * Settings from environment variables to the printed page. One file tests everything, because all settings are in one
 * table.
 */
import { chmodSync, existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { type Config, readConfig, settingsOfMethods } from '../../src/config/config.js';
import { listSettings, variableOf, variables } from '../../src/config/settings.js';
import { ConfigError, isDebug, readServerUrl } from '../../src/core/environment.js';
import { withSettings } from '../../src/db/session-settings.js';
import { cleanUp, makeDataDir, runCli } from '../support/process.js';
import { settingsOfProxy } from '../support/proxy.js';
import { makeTempDir } from '../support/temp-dir.js';

afterAll(cleanUp);

type Env = Record<string, string | undefined>;

/** Returns all settings of a configuration in one object, without groups. */
const flatten = ({ access, transfer, telemetry, limits, ...others }: Config) => ({
  ...others,
  ...access,
  ...transfer,
  ...telemetry,
  ...limits,
});
type Settings = ReturnType<typeof flatten>;

const read = (env: Env): Settings => flatten(readConfig(env));
const readAsEngine = (env: Env): Settings => flatten(readConfig(env, { listens: false }));

const defaults = read({});
const names = listSettings().map(({ field }) => variableOf(field));
const subjectHeader = 'x-ssl-client-s-dn';
const levels = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;

/** Returns the errors that a gateway reports for an environment. */
function faultsOf(env: Record<string, string>): string[] {
  try {
    read(env);
  } catch (error) {
    if (error instanceof ConfigError) return error.faults;
    throw error;
  }
  return [];
}

test('an empty environment gives the defaults, and an empty variable counts as unset, except TAPEGATE_AUTH', () => {
  expect(defaults).toMatchObject({
    ...{
      port: 8080,
      host: '127.0.0.1',
      databaseUrl: undefined,
      dataDir: './data',
      demo: true,
      engine: true,
      drives: 2,
    },
    ...{
      auth: new Set(['token', 'open']),
      legacy: [],
      oidcRoles: [],
      proxyRoles: [],
      proxies: { ranges: [], sockets: [] },
    },
    ...{ diskTimeout: 120, tapeTimeout: 900, smtpUrl: undefined, webhookHosts: [] },
    ...{ eventDays: 30, requestDays: 30, auditDays: 400, expiryNoticeHours: 48, readerSeconds: 60, diskCalls: 2 },
    ...{ dashboard: true, graphiql: true, introspection: true, trustedOnly: false, traces: false, corsOrigins: [] },
    ...{ corsExposedHeaders: [] },
    ...{ streams: 5000, callerStreams: 1000, mailRate: 120, userMailRate: 60, rateLimit: 60_000, webdav: 'public' },
    ...{ metrics: undefined, restoreMode: undefined, gateways: new Map(), rateLocal: false, longLists: 16 },
  });
  expect(defaults.proxyHeaders).toEqual({
    user: 'x-remote-user',
    subject: subjectHeader,
    verified: 'x-ssl-client-verify',
  });
  const empty = Object.fromEntries(names.map((name) => [name, '']));
  expect(read({ ...empty, TAPEGATE_AUTH: undefined })).toEqual(defaults);
  expect(faultsOf(empty)).toEqual([
    'TAPEGATE_AUTH must not be empty: if it is empty, the gateway is open to every caller',
  ]);
});

test('an unknown variable that begins with TAPEGATE_ is a fault, except those of commands and of Kubernetes', () => {
  const unknown = 'unknown setting TAPEGATE_RESTORE_MODUS: docs/reference/settings.md lists all settings';
  expect(faultsOf({ TAPEGATE_RESTORE_MODUS: '0640', PORT: 'x' })).toEqual([unknown, expect.stringMatching(/^PORT /)]);
  expect(faultsOf({ TAPEGATE_PORT: '8080' })).toHaveLength(1);
  const others = { TAPEGATE_URL: 'http://a', TAPEGATE_TOKEN: 'secret', RESTORE_MODUS: '0640' };
  const port = 'TAPEGATE_GATEWAY_PORT';
  const service = {
    TAPEGATE_SERVICE_HOST: '10.0.0.1',
    TAPEGATE_SERVICE_PORT_HTTP: '80',
    [`${port}_80_TCP_PROTO`]: 'tcp',
  };
  expect(read({ ...others, ...service, [port]: 'tcp://10.0.0.1:80' })).toEqual(defaults);
});

test('each default is the value of its text', () => {
  const given = listSettings().flatMap(({ field }) => {
    const { variable = '', fallback } = variables.get(field) ?? {};
    return fallback === 'unset' ? [] : [[variable, fallback]];
  });
  expect(readAsEngine(Object.fromEntries(given))).toEqual(defaults);
});

test.each<[name: string, value: string, changes: Partial<Settings>]>([
  ['HOST', '127.8.0.1', { host: '127.8.0.1' }],
  ['TAPEGATE_AUTH', 'token', { auth: new Set(['token']) }],
  [
    'TAPEGATE_PROXY_ADDRESSES',
    '192.0.2.7, 10.0.0.0/8',
    { proxies: { ranges: ['192.0.2.7', '10.0.0.0/8'], sockets: [] } },
  ],
  [
    'TAPEGATE_PROXY_HEADERS',
    'user=X-User, groups=X-Groups,verified=X-Ok',
    { proxyHeaders: { user: 'x-user', groups: 'x-groups', subject: subjectHeader, verified: 'x-ok' } },
  ],
  [
    'TAPEGATE_PROXY_ROLES',
    'operator=ops, viewer = user:bob',
    {
      proxyRoles: [
        { role: 'operator', kind: 'group', name: 'ops' },
        { role: 'viewer', kind: 'user', name: 'bob' },
      ],
    },
  ],
  ['TAPEGATE_LEGACY', 'none', {}],
  ['HOST', '::1', { host: '::1' }],
  ['DATABASE_URL', 'postgresql://u:p@db.example.org/tapes', { databaseUrl: 'postgresql://u:p@db.example.org/tapes' }],
  ['TAPEGATE_DATABASE_READ_URL', 'postgresql://u:p@a,b/tapes', { databaseReadUrl: 'postgresql://u:p@a,b/tapes' }],
  ['DATABASE_URL', 'postgresql:///tapes?host=/run', { databaseUrl: 'postgresql:///tapes?host=/run' }],
  ['DATA_DIR', '/srv/tapes and disks', { dataDir: '/srv/tapes and disks' }],
  ['DEMO', 'off', { demo: false }],
  ['ENGINE', 'off', { engine: false }],
  ['SMTP_URL', 'smtp://mail.example.org:2525', { smtpUrl: 'smtp://mail.example.org:2525' }],
  ['SMTP_URL', 'smtps://u:p@mail.example.org', { smtpUrl: 'smtps://u:p@mail.example.org' }],
  ['TAPEGATE_SITE_NAME', 'EXAMPLE-T1', { siteName: 'EXAMPLE-T1' }],
  ['TAPEGATE_WEBDAV', 'all', { webdav: 'all' }],
  [
    'TAPEGATE_BYTES_GATEWAYS',
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
  ['TAPEGATE_RESTORE_MODE', '0640', { restoreMode: 0o640 }],
  ['TAPEGATE_RESTORE_GROUP', '1234', { restoreGroup: 1234 }],
  ['TAPEGATE_RESTORE_GROUP', 'root', { restoreGroup: 0 }],
  ['TAPEGATE_LINK_ROOT', '/archive/', { linkRoot: '/archive' }],
  ['TAPEGATE_MAIL_FROM', 'Tapes <tapes@example.org>', { mailFrom: 'Tapes <tapes@example.org>' }],
  ['TAPEGATE_STREAMS', '4', { streams: 4, callerStreams: 1 }],
  ['TAPEGATE_MAIL_RATE', '1', { mailRate: 1, userMailRate: 1 }],
  ['TAPEGATE_MAIL_TO', 'quota', { mailTo: 'quota' }],
  ['TAPEGATE_MAIL_TO', 'Example.org, b.c', { mailTo: ['example.org', 'b.c'] }],
  ['TAPEGATE_WEBHOOK_HOSTS', 'Hooks.lan, 10.0.0.0/8 ::1', { webhookHosts: ['hooks.lan', '10.0.0.0/8', '::1'] }],
  ['TAPEGATE_METRICS_LISTEN', '0', { metrics: { host: '127.0.0.1', port: 0 } }],
  ['TAPEGATE_METRICS_LISTEN', '[::]:9464', { metrics: { host: '::', port: 9464 } }],
  ['TAPEGATE_METRICS_LISTEN', 'metrics.lan:9464', { metrics: { host: 'metrics.lan', port: 9464 } }],
  ['TAPEGATE_ACCESS_LOG', 'on', { accessLog: true }],
  ['OTEL_EXPORTER_OTLP_ENDPOINT', 'http://collector:4318', { traces: true }],
  ['TAPEGATE_PAGES', 'none', { dashboard: false, graphiql: false }],
  ['TAPEGATE_PAGES', 'graphiql', { dashboard: false }],
  ['TAPEGATE_INTROSPECTION', 'off', { introspection: false }],
  ['TAPEGATE_TRUSTED_DOCUMENTS', '/etc/documents.json', { trustedDocuments: '/etc/documents.json' }],
  ['TAPEGATE_PUBLIC_URL', 'https://Tapes.example.org:443/', { publicUrl: 'https://tapes.example.org' }],
  [
    'TAPEGATE_PUBLIC_URL',
    'https://archive.example.org/graphql-tapes',
    { publicUrl: 'https://archive.example.org/graphql-tapes' },
  ],
  [
    'TAPEGATE_ALLOWED_HOSTS',
    'Tapes.example.org , tape_gate,10.0.0.7,2001:DB8::7,[2001:db8::8]',
    { allowedHosts: ['tapes.example.org', 'tape_gate', '10.0.0.7', '[2001:db8::7]', '[2001:db8::8]'] },
  ],
  [
    'TAPEGATE_CORS_ORIGINS',
    'https://Portal.example.org:443/, http://localhost:5173,',
    { corsOrigins: ['https://portal.example.org', 'http://localhost:5173'] },
  ],
  [
    'TAPEGATE_CORS_EXPOSED_HEADERS',
    'X-Trace-Id, Server-Timing',
    { corsExposedHeaders: ['X-Trace-Id', 'Server-Timing'] },
  ],
  ...levels.map((level): [string, string, Partial<Settings>] => ['LOG_LEVEL', level, { logLevel: level }]),
])('%s=%s is accepted', (name, value, changes) => {
  expect(readAsEngine({ TAPEGATE_AUTH: 'token,open', [name]: value })).toEqual({ ...defaults, ...changes });
});

/** A valid value for each setting. */
const valuesOfMethods: Record<keyof typeof settingsOfMethods, string> = {
  TAPEGATE_OIDC_ISSUER: 'https://iam.example.org',
  TAPEGATE_OIDC_AUDIENCE: 'tapes',
  TAPEGATE_OIDC_USER_CLAIM: 'name',
  TAPEGATE_OIDC_GROUPS_CLAIM: 'groups',
  TAPEGATE_OIDC_ROLES: 'operator=ops',
  TAPEGATE_OIDC_CLIENT_ID: 'tapegate',
  TAPEGATE_PROXY_HEADERS: 'user=X-User',
  TAPEGATE_PROXY_CERT_USERS: '/dev/null',
  TAPEGATE_PROXY_ROLES: 'operator=ops',
  TAPEGATE_LEGACY: 'read',
};

const needed: Record<string, Record<string, string>> = {
  oidc: { TAPEGATE_OIDC_ISSUER: 'https://iam.example.org', TAPEGATE_OIDC_AUDIENCE: 'tapes' },
  proxy: { TAPEGATE_PROXY_ADDRESSES: '192.0.2.7' },
  certificate: { TAPEGATE_PROXY_ADDRESSES: '192.0.2.7' },
  legacy: {},
};

test.each(Object.entries(settingsOfMethods))(
  '%s is a fault unless TAPEGATE_AUTH contains one of %j',
  (name, methods) => {
    const given = { [name]: valuesOfMethods[name as keyof typeof settingsOfMethods] };
    const fault = `${name} has no effect unless TAPEGATE_AUTH contains ${methods.join(' or ')}`;
    expect(faultsOf({ TAPEGATE_AUTH: 'token', ...given })).toEqual([fault]);
    for (const method of methods) {
      expect(faultsOf({ TAPEGATE_AUTH: `token,${method}`, ...needed[method], ...given })).toEqual([]);
    }
    // engines may have all or some of the gateway's variables
    expect(() => readAsEngine(given)).not.toThrow();
  },
);

test.each(['127.0.0.1', '192.0.2.7 ::1', '0.0.0.0/0', 'unix:/run/tapegate/proxy.sock,127.0.0.1'])(
  'TAPEGATE_PROXY_ADDRESSES=%s needs a secret, because every local user can connect from there',
  (TAPEGATE_PROXY_ADDRESSES) => {
    const env = { TAPEGATE_AUTH: 'token,proxy', TAPEGATE_PROXY_ADDRESSES };
    expect(faultsOf(env)).toEqual([
      expect.stringMatching(
        /^TAPEGATE_PROXY_ADDRESSES contains "(127.0.0.1|::1|0.0.0.0\/0)", from which every user of this host could send the headers of a proxy: replace the address with a socket .* TAPEGATE_PROXY_SECRET_FILE$/,
      ),
    ]);
    expect(faultsOf({ ...env, ...settingsOfProxy(TAPEGATE_PROXY_ADDRESSES) })).toEqual([]);
  },
);

test.each<[content: string, mode: number, fault: string]>([
  [
    'short',
    0o600,
    'a file with a secret of at least 16 characters without spaces: create the secret with openssl rand -hex 32',
  ],
  [
    'a secret with some spaces',
    0o600,
    'a file with a secret of at least 16 characters without spaces: create the secret with openssl rand -hex 32',
  ],
  ['a-secret-of-the-proxy', 0o604, 'a file that other users cannot read: run chmod o= '],
])('TAPEGATE_PROXY_SECRET_FILE with %j and mode %o is a fault', (content, mode, fault) => {
  const file = path.join(makeTempDir(), 'secret');
  writeFileSync(file, content);
  chmodSync(file, mode);
  const [found = ''] = faultsOf({ TAPEGATE_AUTH: 'token', TAPEGATE_PROXY_SECRET_FILE: file });
  expect(found).toContain(`TAPEGATE_PROXY_SECRET_FILE must be ${fault}`);
});

test('with TAPEGATE_AUTH unset, the settings of a way to sign in are faults', () => {
  expect(faultsOf({ TAPEGATE_LEGACY: 'all', TAPEGATE_PROXY_ROLES: 'operator=ops' })).toEqual([
    'TAPEGATE_PROXY_ROLES has no effect unless TAPEGATE_AUTH contains proxy or certificate',
    'TAPEGATE_LEGACY has no effect unless TAPEGATE_AUTH contains legacy',
  ]);
});

test.each([
  ['TAPEGATE_AUTH', {}, 'the gateway is open to every caller'],
  ['TAPEGATE_AUTH', { HOST: '0.0.0.0' }, 'the gateway is open to every caller'],
  ['TAPEGATE_LEGACY', { TAPEGATE_AUTH: 'token,legacy' }, 'all read endpoints are open; set "none" to close them'],
  ['TAPEGATE_OIDC_ROLES', { TAPEGATE_AUTH: 'oidc', ...needed.oidc }, 'every authenticated caller has the role user'],
  ['TAPEGATE_PROXY_ROLES', { TAPEGATE_AUTH: 'proxy', ...needed.proxy }, 'every authenticated caller has the role user'],
])('an empty %s is a fault with %j', (name, env, effect) => {
  expect(faultsOf({ ...env, [name]: '' })).toEqual([`${name} must not be empty: if it is empty, ${effect}`]);
  expect(() => readAsEngine({ ...env, [name]: '' })).not.toThrow();
});

const list = 'TAPEGATE_LEGACY must be "none" or a list of endpoints:';
const all6 =
  'read, all, GET /requests, GET /requests/{id}, GET /files, GET /quota/{user}, POST /requests, PUT /requests/{id}';
const range = 'is not an address or a range such as 192.0.2.0/24 or 2001:db8::/32';

test.each([
  ['read, GET /request', [`${list} "GET /request" is not one of ${all6}`]],
  ['DELETE /requests,read', [`${list} "DELETE /requests" is not one of ${all6}`]],
  ['read from 192.0.2.300', [`${list} "192.0.2.300" in "read from 192.0.2.300" ${range}`]],
  ['all, read from 192.0.2.1 192.0.2.0/33', [`${list} "192.0.2.0/33" in "read from 192.0.2.1 192.0.2.0/33" ${range}`]],
  ['read from', [`${list} "read from" has no address after "from"`]],
  ['read from ::1 from ::2', [`${list} "read from ::1 from ::2" contains "from" 2 times, but only one is allowed`]],
  ['read,', [`${list} an entry is empty`]],
  [
    'get /requests/{id}, none',
    [`${list} "get /requests/{id}" is not one of ${all6}`, `${list} "none" must be the only entry`],
  ],
])('TAPEGATE_LEGACY=%s reports the wrong entry, and the possible ones', (value, faults) => {
  expect(faultsOf({ TAPEGATE_AUTH: 'token,legacy', TAPEGATE_LEGACY: value })).toEqual(faults);
});

test.each<[name: string, value: string, shown?: string]>([
  ...['0.0.0.0', '::', '192.0.2.1', 'tapes.example.org'].map((host): [string, string] => ['HOST', host]),
  ['TAPEGATE_PUBLIC_URL', 'https://tapes.example.org/tapes'],
  ['TAPEGATE_PUBLIC_URL', 'http://[2001:db8::7]:8080'],
  ['TAPEGATE_ALLOWED_HOSTS', 'localhost,tapes.example.org', 'tapes.example.org'],
  ['TAPEGATE_PROXY_ADDRESSES', '192.0.2.7'],
  ['TAPEGATE_PROXY_ADDRESSES', 'unix:/run/tapegate/proxy.sock'],
  ['TAPEGATE_OIDC_ISSUER', 'https://iam.example.org'],
])('%s=%s requires TAPEGATE_AUTH, because other hosts reach the gateway', (name, value, shown = value) => {
  expect(faultsOf({ [name]: value })).toEqual([
    expect.stringContaining(
      `TAPEGATE_AUTH must be set because other hosts reach the gateway (${name} is "${shown}"): use token, oidc,`,
    ),
  ]);
  const way = name === 'TAPEGATE_OIDC_ISSUER' ? 'oidc' : 'token';
  for (const TAPEGATE_AUTH of [way, `${way},open`]) {
    expect(faultsOf({ ...needed[way], [name]: value, TAPEGATE_AUTH })).toEqual([]);
  }
});

test.each([
  ['TAPEGATE_PUBLIC_URL', 'http://localhost:8080/tapes'],
  ['TAPEGATE_PUBLIC_URL', 'http://[::1]:8080'],
  ['TAPEGATE_ALLOWED_HOSTS', 'localhost,127.0.0.2,[::1]'],
  ['TAPEGATE_CORS_ORIGINS', 'https://portal.example.org'],
])('%s=%s concerns this host only, and leaves the gateway open', (name, value) => {
  expect(read({ [name]: value }).auth).toEqual(new Set(['token', 'open']));
});

test.each(['X-User', 'user=a b', 'user=a,user=b'])('TAPEGATE_PROXY_HEADERS=%s is refused', (value) => {
  const fault = 'TAPEGATE_PROXY_HEADERS must be a list such as user=X-Remote-User,groups=X-Remote-Groups';
  expect(faultsOf({ TAPEGATE_AUTH: 'proxy', ...needed.proxy, TAPEGATE_PROXY_HEADERS: value })).toEqual([
    `${fault}, not "${value}"`,
  ]);
});

test('TAPEGATE_PROXY_CERT_USERS must be a file with a quoted subject and a user on each line', () => {
  const file = path.join(makeTempDir(), 'users');
  const faultOf = () =>
    faultsOf({ TAPEGATE_AUTH: 'certificate', ...needed.certificate, TAPEGATE_PROXY_CERT_USERS: file });
  expect(faultOf()).toEqual([expect.stringMatching(/^TAPEGATE_PROXY_CERT_USERS must be a readable file: ENOENT/)]);
  writeFileSync(file, '# users\n"/CN=Ada" ada\n');
  expect(faultOf()).toEqual([]);
  writeFileSync(file, '"/CN=Ada" ada\n/CN=Bob bob\n');
  const line = `line 2 of ${file} does not`;
  expect(faultOf()).toEqual([
    `TAPEGATE_PROXY_CERT_USERS must be a file in which each line contains a quoted subject and a user; ${line}`,
  ]);
});

test.each<[name: string, low: number, high: number]>([
  ['PORT', 0, 65_535],
  ['DRIVES', 1, 256],
  ['TAPEGATE_ENGINE_WEIGHT', 1, 1000],
  ['TAPEGATE_DISK_TIMEOUT', 1, 86_400],
  ['TAPEGATE_RATE_LIMIT', 1, 999_999_999],
  ['TAPEGATE_PATTERN_LENGTH', 1, 2048],
  ['TAPEGATE_READ_WAIT_MS', 0, 60_000],
  ['TAPEGATE_LEAVE_SECONDS', 0, 3600],
  ['TAPEGATE_EVENT_DAYS', 1, 36_500],
  ['TAPEGATE_REQUEST_DAYS', 0, 36_500],
  ['TAPEGATE_AUDIT_DAYS', 1, 36_500],
  ['TAPEGATE_EXPIRY_NOTICE_HOURS', 0, 8760],
])('%s is a whole number from %i to %i', (name, low, high) => {
  for (const value of [low, high]) expect(faultsOf({ [name]: String(value) })).toEqual([]);
  for (const value of [`${low - 1}`, `${high + 1}`, '1.5', '1e1', '0x1', ' 1', 'two', '99999999999']) {
    const fault = `${name} must be a whole number from ${low} to ${high}, not ${JSON.stringify(value)}`;
    expect(faultsOf({ [name]: value })).toEqual([fault]);
  }
});

const url = (schemes: string) => `a URL that begins with ${schemes}`;
const [database, smtp] = [url('postgresql:// or postgres://'), url('smtp:// or smtps://')];
const publicUrl = `${url('http:// or https://')} and contains no user, no query and no path of a gateway endpoint such as /graphql`;

test.each<[name: string, must: string, values: string[]]>([
  ...['DEMO', 'TAPEGATE_INTROSPECTION', 'ENGINE', 'TAPEGATE_ACCESS_LOG'].map((name): [string, string, string[]] => [
    name,
    '"on" or "off"',
    ['On', 'true', '1'],
  ]),
  ['LOG_LEVEL', `one of ${levels.join(', ')}`, ['loud', 'toString']],
  ['TAPEGATE_WEBDAV', 'one of off, public, all', ['on']],
  ['TAPEGATE_SITE_NAME', 'a name without spaces', ['a b']],
  [
    'TAPEGATE_BYTES_GATEWAYS',
    'a list such as host1=https://host1.example.org:8443,host2=…',
    ['a', 'a=b', 'a=ftp://b', 'a=https://b?c', ','],
  ],
  [
    'TAPEGATE_WEBHOOK_HOSTS',
    'a list of host names, addresses and ranges',
    ['10.0.0.0/33', 'https://hooks.lan', 'hooks.lan:8443', ','],
  ],
  [
    'TAPEGATE_RESTORE_MODE',
    'three octal digits, with or without a leading 0, such as 640 or 0640',
    ['4755', '0888', '64', 'rw-r-----'],
  ],
  ...['TAPEGATE_LINK_ROOT', 'TAPEGATE_LIBRARY_DIR'].map((name): [string, string, string[]] => [
    name,
    'an absolute path without "." or ".."',
    ['archive', '/a/../b', '//a', '/a//', '/./a'],
  ]),
  ['TAPEGATE_RESTORE_GROUP', 'a group on this host, or its number', ['no-such-group', '-1', 'a b']],
  [
    'TAPEGATE_PUBLIC_URL',
    publicUrl,
    ['tapes.example.org', 'ftp://tapes', 'https://', 'https://archive/graphql', 'https://archive/tape_control/api/v1'],
  ],
  [
    'TAPEGATE_CORS_ORIGINS',
    'a list of origins such as https://example.org',
    ['*', 'null', 'portal.example.org', 'https://portal/app', 'https://u@portal', 'https://a b', ','],
  ],
  ['TAPEGATE_CORS_EXPOSED_HEADERS', 'a list of header names such as X-Trace-Id', ['X Trace', 'X-Trace:', ',']],
  [
    'TAPEGATE_ALLOWED_HOSTS',
    'a list of host names and addresses, without ports',
    ['*', 'tapes:8080', 'https://tapes', '.example.org:1', 'a/b', 'tapes,a/b', '[::1', ','],
  ],
  [
    'TAPEGATE_MAIL_TO',
    '"anywhere", "quota", or a list of domains such as example.org,example.com',
    ['a@b.c', 'nowhere', 'a.b,'],
  ],
  ['TAPEGATE_PAGES', '"none", "dashboard", "graphiql" or "dashboard,graphiql"', ['off', 'dashboard,none']],
  [
    'TAPEGATE_METRICS_LISTEN',
    'a port, or an address and a port such as 0.0.0.0:9464',
    ['65536', ':1', '::1:1', '[x]:1'],
  ],
  ['TAPEGATE_MAIL_FROM', 'an email address', ['nobody', 'a@b\r\nBcc: c@d']],
  ['DATABASE_URL', database, ['tapes', 'postgresql:tapes']],
  ['SMTP_URL', smtp, ['mail.example.org', 'smtp:mail.example.org', 'smtp://']],
])('%s must be %s', (name, must, values) => {
  for (const value of values) {
    expect(faultsOf({ [name]: value })).toEqual([`${name} must be ${must}, not ${JSON.stringify(value)}`]);
  }
});

const login = 'a URL whose user and password are percent-encoded';

test.each([
  ['TAPEGATE_DATABASE_READ_URL', 'http://u:secret@db', database, 'http://…@db'],
  ['DATABASE_URL', 'mysql://u:secret@db/tapes', database, 'mysql://…@db/tapes'],
  ['DATABASE_URL', 'postgresql://u:12/secret@db/tapes', login, 'postgresql://…@db/tapes'],
  ['SMTP_URL', 'smtp://u:12#secret@mail', login, 'smtp://…@mail'],
  ['SMTP_URL', 'http://u:secret@mail', smtp, 'http://…@mail'],
  ['TAPEGATE_PUBLIC_URL', 'https://tapes/?a=b', publicUrl, 'https://tapes/?…'],
  ['TAPEGATE_PUBLIC_URL', 'https://u:secret@tapes', publicUrl, 'https://…@tapes'],
])('%s=%s is refused without a secret in the message', (name, value, must, shown) => {
  expect(faultsOf({ [name]: value })).toEqual([`${name} must be ${must}, not "${shown}"`]);
});

const passwords = [
  'a@b',
  'se/cret',
  '1/secret',
  'se?cret',
  '1?secret',
  'se#cret',
  '1#secret',
  'x@se/cret',
  'x@1/secret',
];
const more = ['x@se?cret', 'x@se#cret', 'se cret', 'se[cret', 'se]cret', 'se\\cret', '%ff', '%', 'a:b', 'a+b', 'a%b'];

test.each([...passwords, ...more])(
  'the unencoded password %s is read as it is, or refused without a part of it',
  (password) => {
    const url = `postgresql://tapes:${password}@db.example.org/archive`;
    const faults = faultsOf({ DATABASE_URL: url });
    const shown = JSON.stringify('postgresql://…@db.example.org/archive');
    if (faults.length > 0) expect(faults).toEqual([`DATABASE_URL must be ${login}, not ${shown}`]);
    else expect(withSettings({ connectionString: url }).config).toMatchObject({ host: 'db.example.org', password });
  },
);

test('an unknown sslmode is refused', () => {
  expect(faultsOf({ DATABASE_URL: 'postgresql://u:secret@db/tapes?sslmode=on' })).toEqual([
    'DATABASE_URL must be a URL whose sslmode is one of disable, allow, prefer, require, verify-ca, verify-full, no-verify, not "on"',
  ]);
});

test('only: before TAPEGATE_TRUSTED_DOCUMENTS refuses all other documents', () => {
  const [all, only] = ['/a', 'only:/a'].map((value) => readAsEngine({ TAPEGATE_TRUSTED_DOCUMENTS: value }));
  expect(all).toMatchObject({ trustedDocuments: '/a', trustedOnly: false });
  expect(only).toMatchObject({ trustedDocuments: '/a', trustedOnly: true });
});

const faulty = {
  ...{ PORT: 'x', DEMO: 'x', ENGINE: 'x', DRIVES: 'x', SMTP_URL: 'x', DATABASE_URL: 'x' },
  ...{
    TAPEGATE_MAIL_FROM: 'x',
    LOG_LEVEL: 'x',
    TAPEGATE_PUBLIC_URL: 'x',
    TAPEGATE_WEBHOOK_HOSTS: '?',
    TAPEGATE_ALLOWED_HOSTS: '*',
  },
};

test('all faults are reported at once, one a line', () => {
  const faults = faultsOf(faulty);
  expect(faults.map((fault) => fault.split(' ')[0]).sort()).toEqual(Object.keys(faulty).sort());
  expect(new ConfigError(faults).message.split('\n')).toEqual([
    'invalid environment variables:',
    ...faults.map((fault) => `  ${fault}`),
  ]);
  expect(new ConfigError(['one']).message).toBe('invalid environment variable:\n  one');
});

test('a certificate needs its key, and a key its certificate', () => {
  const both = { TAPEGATE_TLS_CERT: '/etc/tapegate/cert.pem', TAPEGATE_TLS_KEY: '/etc/tapegate/key.pem' };
  expect(readAsEngine(both)).toEqual({ ...defaults, tlsCert: both.TAPEGATE_TLS_CERT, tlsKey: both.TAPEGATE_TLS_KEY });
  expect(faultsOf({ TAPEGATE_TLS_CERT: both.TAPEGATE_TLS_CERT })).toEqual([
    'TAPEGATE_TLS_CERT requires TAPEGATE_TLS_KEY, the key file',
  ]);
  expect(faultsOf({ TAPEGATE_TLS_KEY: both.TAPEGATE_TLS_KEY })).toEqual([
    'TAPEGATE_TLS_KEY requires TAPEGATE_TLS_CERT, the certificate file',
  ]);
});

test('a command with a faulty environment exits with 2 and reports every fault', async () => {
  const env = { ...faulty, DATA_DIR: `${makeDataDir()}/data` };
  const refused = { code: 2, stdout: '', stderr: `tapegate: ${new ConfigError(faultsOf(faulty)).message}\n` };
  for (const command of ['work', 'migrate']) expect(await runCli([command], { env })).toEqual(refused);
});

test('a gateway whose file of trusted documents is invalid exits with 2 and creates nothing', async () => {
  const DATA_DIR = `${makeDataDir()}/data`;
  for (const [value, problem] of [
    ['/nosuch', /: \/nosuch cannot be read: ENOENT/],
    ['only:/etc/passwd', /: \/etc\/passwd cannot be read: .*JSON/],
    ['only:', /cannot be read: ENOENT/],
  ] as const) {
    const env = { TAPEGATE_TRUSTED_DOCUMENTS: value, DATA_DIR };
    expect(await runCli(['start'], { env })).toEqual({ code: 2, stdout: '', stderr: expect.stringMatching(problem) });
    expect(() => readAsEngine(env)).not.toThrow();
  }
  expect(existsSync(DATA_DIR)).toBe(false);
});

test('commands that listen, and no others, refuse an environment that opens the gateway to other hosts', async () => {
  const env = { TAPEGATE_PUBLIC_URL: 'https://tapes.example.org/tapes', DATA_DIR: makeDataDir() };
  const fault = expect.stringContaining('TAPEGATE_AUTH must be set because other hosts reach the gateway');
  for (const command of ['start', 'serve']) {
    expect(await runCli([command], { env })).toEqual({ code: 2, stdout: '', stderr: fault });
  }
  expect(await runCli(['doctor'], { env })).toMatchObject({
    code: 1,
    stderr: expect.not.stringContaining('TAPEGATE_AUTH'),
  });
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
