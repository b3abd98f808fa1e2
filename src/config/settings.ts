/**
 * The schema of all server settings. To add a setting, add a line to the schema and run `npm run docs`, which updates
 * docs/reference/settings.md.
 */
import { readFileSync, statSync } from 'node:fs';
import * as z from 'zod';
import { DEFAULT_PORT, expectedUrl, isUrl, LIBRARY_DIR, type UrlChoice } from '../core/environment.js';
import { messageOf, quote } from '../core/errors.js';
import { parseWebhookHosts } from '../core/net/webhook-targets.js';
import { normalizeUrl, splitHosts, sslModes } from './database-url.js';
import * as values from './setting-values.js';

/** The environment variable of each setting, and the default value that the documentation shows for the setting. */
export const variables = z.registry<{ variable: string; fallback: string }>();

const setting = <T>(variable: string, value: z.ZodType<T, string>, fallback: string) =>
  value.prefault(fallback).register(variables, { variable, fallback });

const optional = <T>(variable: string, value: z.ZodType<T, string>) =>
  value.optional().register(variables, { variable, fallback: 'unset' });

const listed = <T>(variable: string, value: z.ZodType<T, string>, empty: z.core.util.NoUndefined<T>) =>
  value.default(empty).register(variables, { variable, fallback: 'unset' });

/**
 * Returns a Zod issue whose error message is `<variable> must be <message>`. The error message does not contain the
 * invalid value.
 */
const explained = (message: string) => ({ code: 'custom', message, params: { isExplained: true } }) as const;

const parsed = <T>(parse: (text: string) => T | undefined, expected: string): z.ZodType<T, string> =>
  z.string().transform((text, ctx) => {
    const value = parse(text);
    if (value === undefined) ctx.addIssue(expected);
    return value === undefined ? z.NEVER : value;
  });

function integer(low: number, high: number): z.ZodType<number, string> {
  const expected = `a whole number from ${low} to ${high}`;
  const digits = z.string().regex(/^\d{1,9}$/, expected);
  return digits.transform(Number).pipe(z.number().min(low, expected).max(high, expected));
}

const parsedParts = <T>(parse: (part: string) => T | undefined, expected: string) =>
  parsed((text) => values.parseParts(text, parse), expected);

const oneOf = <const Word extends string>(...words: Word[]) => z.enum(words, `one of ${words.join(', ')}`);
const onOff = z.stringbool({ truthy: ['on'], falsy: ['off'], case: 'sensitive', error: '"on" or "off"' });
const text = z.string();
const directory = parsed(values.parseDirectory, 'an absolute path without "." or ".."');
const days = (low: number) => integer(low, 36_500);
const seconds = integer(1, 86_400);

/** A URL. If the URL lists several servers, each of them must have a host. */
const url = (choice: UrlChoice): z.ZodType<string, string> =>
  z.string().superRefine((value, ctx) => {
    const urls = splitHosts(value);
    const needsHost = choice.needsHost || urls.length > 1;
    if (!urls.every((each) => isUrl(each, { ...choice, needsHost }))) ctx.addIssue(expectedUrl(value, choice));
  });

const postgresql = z
  .string()
  .transform(normalizeUrl)
  .pipe(url({ protocols: ['postgresql:', 'postgres:'], needsHost: false }))
  .superRefine((value, ctx) => {
    const mode = /[?&]sslmode=([^&#]*)/.exec(value)?.[1];
    if (mode !== undefined && !sslModes.includes(mode))
      ctx.addIssue(explained(`a URL whose sslmode is one of ${sslModes.join(', ')}, not ${quote(mode)}`));
  });
const collector = parsed<boolean>(
  (value) => (/^https?:\/\/[^\s/]/.test(value) && URL.canParse(value)) || undefined,
  'a URL that begins with http:// or https://',
);
const words = parsed(values.parseList, 'a list of names or URLs');
const word = z.string().regex(/^\S+$/, 'a name without spaces');
const roles = parsed(
  values.parseRoles,
  'a list of roles, each with a group or a user, such as operator=/tapes/ops,viewer=user:ada',
);

const legacy = z.string().transform((value, ctx): readonly values.LegacyRule[] => {
  if (value.trim() === 'none') return [];
  return value.split(',').flatMap((entry) => {
    const rules = values.parseLegacyEntry(entry.trim());
    if (typeof rules !== 'string') return rules;
    ctx.addIssue(explained(`"none" or a list of endpoints: ${rules}`));
    return [];
  });
});

const certUsers = z.string().transform((file, ctx): Readonly<Record<string, string>> => {
  try {
    const users = values.parseCertUsers(readFileSync(file, 'utf8'));
    if (typeof users !== 'number') return users;
    ctx.addIssue(
      explained(`a file in which each line contains a quoted subject and a user; line ${users} of ${file} does not`),
    );
  } catch (error) {
    ctx.addIssue(explained(`a readable file: ${messageOf(error)}`));
  }
  return z.NEVER;
});

const LEAST_SECRET = 16;

const secretFile = z.string().transform((file, ctx): string => {
  try {
    if ((statSync(file).mode & 0o007) !== 0) {
      ctx.addIssue(explained(`a file that other users cannot read: run chmod o= ${file}`));
      return z.NEVER;
    }
    const secret = readFileSync(file, 'utf8').trim();
    if (secret.length >= LEAST_SECRET && /^[\x21-\x7e]+$/.test(secret)) return secret;
    ctx.addIssue(
      explained(
        `a file with a secret of at least ${LEAST_SECRET} characters without spaces: create the secret with openssl rand -hex 32`,
      ),
    );
  } catch (error) {
    ctx.addIssue(explained(`a readable file: ${messageOf(error)}`));
  }
  return z.NEVER;
});

const access = z.object({
  auth: setting(
    'TAPEGATE_AUTH',
    parsed((value) => values.parseWords(value, values.authMethods), `a list of ${values.authMethods.join(', ')}`),
    'token,open',
  ).describe(
    "list of authentication methods: `token` (API tokens), `oidc` (tokens of an identity provider), `proxy` (user name from a reverse proxy), `certificate` (client certificate that a reverse proxy verified), `legacy` (no credentials, some REST endpoints only), `open` (every caller, all rights except an operator's). Required if other hosts can reach the gateway. See [Access](../operators/access.md)",
  ),
  oidcIssuers: listed(
    'TAPEGATE_OIDC_ISSUER',
    parsed(
      values.parseIssuers,
      'a list of URLs that begin with https:// (or with http:// if the issuer runs on this host) and contain no query',
    ),
    [],
  ).describe(
    '`oidc`: list of the URLs of accepted issuers. Each URL must begin with `https://` (or with `http://` if the issuer runs on this host)',
  ),
  oidcAudiences: listed('TAPEGATE_OIDC_AUDIENCE', words, []).describe('`oidc`: list of accepted audiences'),
  oidcUserClaim: setting('TAPEGATE_OIDC_USER_CLAIM', word, 'sub').describe('`oidc`: claim that contains the user name'),
  oidcGroupsClaims: setting('TAPEGATE_OIDC_GROUPS_CLAIM', words, 'wlcg.groups,groups').describe(
    '`oidc`: claims that may contain groups of the user. The gateway uses the first of these claims that the token contains',
  ),
  oidcRoles: listed('TAPEGATE_OIDC_ROLES', roles, []).describe(
    '`oidc`: list of roles (`user`, `viewer`, `operator`), each with the group or the user that has the role, such as `operator=/tapes/ops,viewer=user:ada`. If the list contains no entry that begins with `user=`, every authenticated caller has the role `user`',
  ),
  oidcClientId: optional('TAPEGATE_OIDC_CLIENT_ID', word).describe(
    "`oidc`: id of the public client that `tapegate login` (device flow, RFC 8628) and the dashboard (code flow with PKCE) use. For the dashboard, register `TAPEGATE_PUBLIC_URL` with a trailing slash as the redirect URI. If there are several issuers, append `?issuer=` and the percent-encoded URL of the issuer to the redirect URI. The issuer must allow requests from the dashboard's origin. The token endpoint of the issuer must have the same origin as the issuer",
  ),
  proxies: listed(
    'TAPEGATE_PROXY_ADDRESSES',
    parsed(
      values.parseProxies,
      'a list of addresses, ranges such as 192.0.2.0/24, and sockets such as unix:/run/tapegate/proxy.sock:www-data, whose group must exist',
    ),
    { ranges: [], sockets: [] },
  ).describe(
    'list of reverse proxies: addresses, ranges, and Unix sockets on which the gateway listens, such as `unix:/run/tapegate/proxy.sock`. With `unix:/run/tapegate/proxy.sock:www-data`, members of the group `www-data` can also connect to the socket. The gateway accepts the headers for the client address (`X-Forwarded-For`), TLS (`X-Forwarded-Proto`) and the user only from these proxies. An address of this host requires `TAPEGATE_PROXY_SECRET_FILE`, because every local user can connect from that address',
  ),
  proxySecret: optional('TAPEGATE_PROXY_SECRET_FILE', secretFile).describe(
    'file with the secret that a proxy sends in each request as `X-Tapegate-Proxy-Secret`. The gateway reads the file when it starts. A proxy on a Unix socket needs no secret',
  ),
  proxyHeaders: setting(
    'TAPEGATE_PROXY_HEADERS',
    parsed(values.parseProxyHeaders, 'a list such as user=X-Remote-User,groups=X-Remote-Groups'),
    'user=X-Remote-User,subject=X-SSL-Client-S-DN,verified=X-SSL-Client-Verify',
  ).describe(
    'names of the headers that the proxy sets. With `proxy`, the gateway reads the headers for `user` and for `groups` (optional; commas separate the groups). With `certificate`, it reads the headers for `subject` and for `verified`, whose value must be `SUCCESS`. A header that the list omits keeps its default name',
  ),
  proxyCertUsers: listed('TAPEGATE_PROXY_CERT_USERS', certUsers, {}).describe(
    "`certificate`: file in which each line contains a quoted certificate subject and its user. If the file does not contain a certificate's subject, the subject's common name is the user name",
  ),
  proxyRoles: listed('TAPEGATE_PROXY_ROLES', roles, []).describe(
    '`proxy` and `certificate`: list of roles, in the same format as `TAPEGATE_OIDC_ROLES`',
  ),
  legacy: setting('TAPEGATE_LEGACY', legacy, 'read').describe(
    '`legacy`: list of REST endpoints that callers without credentials may use. An entry is `read`, `all`, or an endpoint such as `POST /requests`. `from` limits an entry to callers from the addresses that follow, such as `read, POST /requests from 192.0.2.0/24 192.0.3.7`. `none` closes all endpoints',
  ),
});

const telemetry = z.object({
  accessLog: setting('TAPEGATE_ACCESS_LOG', onOff, 'off').describe(
    '`on`: log each response of a gateway at level `info` ([Monitoring](../operators/monitoring.md#logs))',
  ),
  traces: listed('OTEL_EXPORTER_OTLP_ENDPOINT', collector, false).describe(
    'collector to which gateways and engines send traces (OTLP over HTTP), such as `http://127.0.0.1:4318` ([Monitoring](../operators/monitoring.md#traces))',
  ),
  metrics: optional(
    'TAPEGATE_METRICS_LISTEN',
    parsed(values.parseListener, 'a port, or an address and a port such as 0.0.0.0:9464'),
  ).describe(
    'additional port on which the gateway serves metrics without authentication: a port on 127.0.0.1, or an address and a port such as `0.0.0.0:9464`. With port 0, the gateway takes a free port and logs the number of the port ([Metrics](metrics.md))',
  ),
});

const MOST = 999_999_999;

const limits = z.object({
  rateLimit: setting('TAPEGATE_RATE_LIMIT', integer(1, MOST), '60000').describe(
    'maximum number of requests per minute from one caller (status 429 above the maximum). The headers `RateLimit` and `RateLimit-Policy` report how many requests are left. All requests of a user count together, regardless of the token or the address. Each gateway counts separately, and does not limit unauthenticated callers on its own host',
  ),
  streams: setting('TAPEGATE_STREAMS', integer(1, MOST), '5000').describe(
    'maximum number of open event streams (status 503 above the maximum). One caller may open at most a fifth of this number (status 429 above that)',
  ),
  requestFiles: setting('TAPEGATE_REQUEST_FILES', integer(1, MOST), String(MOST)).describe(
    'maximum number of files in a request (status 400 above the maximum). Tapegate adds no further files to a request that has reached the maximum. Set the same limit for engines',
  ),
  patternLength: setting('TAPEGATE_PATTERN_LENGTH', integer(1, 2048), '1').describe(
    'minimum number of characters in a pattern. The gateway rejects shorter patterns (status 400)',
  ),
  mailTo: setting(
    'TAPEGATE_MAIL_TO',
    parsed(values.parseMailTo, '"anywhere", "quota", or a list of domains such as example.org,example.com'),
    'anywhere',
  ).describe(
    "addresses to which users may send emails (status 400 for other addresses). `anywhere`: all addresses. `quota`: only the quota's own address. A list of domains such as `example.org,example.com`: the quota's own address, and addresses in these domains",
  ),
  mailRate: setting('TAPEGATE_MAIL_RATE', integer(1, MOST), '120').describe(
    "maximum number of emails per minute, at most half of them for one user's quota. Tapegate delays further emails, and then sends one email for each user in turn (`tapegate mail` lists delayed emails)",
  ),
});

export const schema = z.object({
  port: setting('PORT', integer(0, 65_535), String(DEFAULT_PORT)).describe(
    'port of the gateway. With 0, the gateway takes a free port',
  ),
  host: setting('HOST', text, '127.0.0.1').describe('address on which the gateway listens'),
  access,
  databaseUrl: optional('DATABASE_URL', postgresql).describe(
    'URL of a PostgreSQL server, version 15 or newer ([database](../operators/database.md)). If the URL names several servers, Tapegate uses the server that accepts writes. Unset: an embedded database in `DATA_DIR`, which `start` creates',
  ),
  databaseReadUrl: optional('TAPEGATE_DATABASE_READ_URL', postgresql).describe(
    'URL of one or more standbys, from which a gateway reads lists ([standbys](../operators/database.md#read-lists-from-standbys))',
  ),
  readWaitMs: setting('TAPEGATE_READ_WAIT_MS', integer(0, 60_000), '200').describe(
    'milliseconds for which the gateway waits for a standby to replay recent changes. After that, the gateway reads lists from the primary',
  ),
  dataDir: setting('DATA_DIR', text, './data').describe(
    'directory that contains the embedded database, the directory library and the default restore disk',
  ),
  demo: setting('DEMO', onOff, 'on').describe('`off`: do not create a demo archive in an empty embedded database'),
  engine: setting('ENGINE', onOff, 'on').describe('`off`: `start` runs only the gateway'),
  drives: setting('DRIVES', integer(1, 256), '2').describe(
    'number of drives of the first library, for all engines together. For other libraries, use `library add`',
  ),
  engineWeight: setting('TAPEGATE_ENGINE_WEIGHT', integer(1, 1000), '1').describe(
    'share of the drives if engines compete: an engine with weight 2 gets twice as many drives as an engine with weight 1',
  ),
  diskTimeout: setting('TAPEGATE_DISK_TIMEOUT', seconds, '120').describe(
    'seconds without progress after which an operation on a restore disk counts as stalled',
  ),
  libraryDir: setting('TAPEGATE_LIBRARY_DIR', directory, LIBRARY_DIR).describe(
    "engines: directory with the subdirectories `programs`, for programs that libraries may run, and `secrets`, for secrets that libraries may send. Allow only the host's administrator to add files ([Libraries](../operators/libraries/README.md#programs-and-secrets))",
  ),
  tapeTimeout: setting('TAPEGATE_TAPE_TIMEOUT', seconds, '900').describe(
    "seconds without progress after which an operation on a tape drive or staging library counts as stalled. A longer time in the library's settings (`mountSeconds`, `seconds`, `callSeconds`) takes precedence",
  ),
  smtpUrl: optional('SMTP_URL', url({ protocols: ['smtp:', 'smtps:'], needsHost: true })).describe(
    'URL of the mail server, in the form `smtp://user:password@host:port` or `smtps://…`. Tapegate sends a password only to a mail server on the same host, or over TLS with a valid certificate (`NODE_EXTRA_CA_CERTS` adds a certificate authority). An engine without `SMTP_URL` does not send emails. If an engine with `SMTP_URL` has run in the last 7 days, the emails wait for such an engine. If no engine with `SMTP_URL` has run in the last 7 days, the engine only logs the emails',
  ),
  mailFrom: setting(
    'TAPEGATE_MAIL_FROM',
    parsed(values.parseSender, 'an email address'),
    'tapegate@localhost',
  ).describe('sender address of emails'),
  leaveSeconds: setting('TAPEGATE_LEAVE_SECONDS', integer(0, 3600), '0').describe(
    'seconds for which a stopping gateway still accepts requests while `/health/ready` returns 503, so that load balancers remove the gateway. Set slightly more than two health check intervals of the load balancer',
  ),
  eventDays: setting('TAPEGATE_EVENT_DAYS', days(1), '30').describe(
    'days for which events are stored. A client that resumes after an event that is no longer stored gets the error `EVENTS_GONE`',
  ),
  requestDays: setting('TAPEGATE_REQUEST_DAYS', days(0), '30').describe(
    'days for which Tapegate stores the emails and the WLCG stage request of an ended request',
  ),
  expiryNoticeHours: setting('TAPEGATE_EXPIRY_NOTICE_HOURS', integer(0, 8760), '48').describe(
    "engines: how many hours before a request expires Tapegate sends an email. The email goes to the request's last-file address or, if the request has none, to its first-file address. 0: no email. Tapegate sends no email for a request with a shorter retention",
  ),
  webhookHosts: listed(
    'TAPEGATE_WEBHOOK_HOSTS',
    parsed(parseWebhookHosts, 'a list of host names, addresses and ranges'),
    [],
  ).describe(
    'host names, addresses and ranges of the private network to which Tapegate may send [webhooks](webhooks.md), even without TLS, such as `hooks.example.org 10.1.0.0/16`. All other webhooks must have a public address and use TLS. Set the same list for engines',
  ),
  auditDays: setting('TAPEGATE_AUDIT_DAYS', days(1), '400').describe(
    'days for which the audit log stores changes and their callers (`tapegate audit` shows the log)',
  ),
  logLevel: setting('LOG_LEVEL', oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'), 'info').describe(
    'log level: `fatal`, `error`, `warn`, `info`, `debug`, `trace` or `silent`. Logs are JSON lines on standard error',
  ),
  telemetry,
  restoreMode: optional(
    'TAPEGATE_RESTORE_MODE',
    parsed(values.parsePermissions, 'three octal digits, with or without a leading 0, such as 640 or 0640'),
  ).describe(
    'permissions of restored files, such as 0640. Directories also get the execute bit for each read bit. Unset: the permissions of the original. If these are unknown, files get 0644 and directories get 0750',
  ),
  restoreGroup: optional(
    'TAPEGATE_RESTORE_GROUP',
    parsed(values.findGroup, 'a group on this host, or its number'),
  ).describe(
    'group of restored files, as a name or number. The group may also [write on restore disks](../operators/restore-disks.md#other-users-of-the-host). Unset: the group of the original file',
  ),
  linkRoot: optional('TAPEGATE_LINK_ROOT', directory).describe(
    'absolute path of a directory in which each restored file also appears at its archive path, as a link ([Restore disks](../operators/restore-disks.md#links-at-archive-paths)). The directory may be `/`. Set the same directory for all engines',
  ),
  publicUrl: optional(
    'TAPEGATE_PUBLIC_URL',
    parsed(
      values.parsePublicUrl,
      'a URL that begins with http:// or https:// and contains no user, no query and no path of a gateway endpoint such as /graphql',
    ),
  ).describe(
    'URL of the gateway for users, if it differs from the listening address, such as `https://archive.example.org/tapes`. The gateway uses this URL as its own origin, and in links in emails. Set the same URL for engines',
  ),
  allowedHosts: listed(
    'TAPEGATE_ALLOWED_HOSTS',
    parsedParts(values.parseHost, 'a list of host names and addresses, without ports'),
    [],
  ).describe(
    'further host names and addresses of the gateway, without ports, such as `tapes.example.org,tapes`. `HOST`, the host in `TAPEGATE_PUBLIC_URL` and the names of this host are always allowed',
  ),
  corsOrigins: listed(
    'TAPEGATE_CORS_ORIGINS',
    parsedParts(values.parseOrigin, 'a list of origins such as https://example.org'),
    [],
  ).describe(
    'web origins whose pages may send requests to the gateway, such as `https://portal.example.org,http://localhost:5173`',
  ),
  corsExposedHeaders: listed(
    'TAPEGATE_CORS_EXPOSED_HEADERS',
    parsedParts(values.parseHeaderName, 'a list of header names such as X-Trace-Id'),
    [],
  ).describe(
    'further response headers, for example of a proxy, that the pages of the origins in `TAPEGATE_CORS_ORIGINS` may read, such as `X-Trace-Id,Server-Timing`. These pages may always read `Retry-After`, `RateLimit`, `X-Request-Id` and `traceparent`, and send any request header',
  ),
  tlsCert: optional('TAPEGATE_TLS_CERT', text).describe(
    "PEM file with the gateway's certificate and intermediate certificates. If `TAPEGATE_TLS_KEY` is also set, the gateway uses TLS",
  ),
  tlsKey: optional('TAPEGATE_TLS_KEY', text).describe(
    'PEM file with the private key for the certificate. The key must not have a passphrase',
  ),
  pages: setting(
    'TAPEGATE_PAGES',
    parsed(
      (value) =>
        value === 'none' ? new Set<'dashboard' | 'graphiql'>() : values.parseWords(value, ['dashboard', 'graphiql']),
      '"none", "dashboard", "graphiql" or "dashboard,graphiql"',
    ),
    'dashboard,graphiql',
  ).describe(
    'list of pages that the gateway serves to browsers: `dashboard` (at `/`) and `graphiql` (at `/graphql`), or `none`',
  ),
  introspection: setting('TAPEGATE_INTROSPECTION', onOff, 'on').describe(
    '`off`: reject introspection of the GraphQL schema. [schema.graphql](../../graphql/schema.graphql) contains the schema',
  ),
  trustedDocuments: optional('TAPEGATE_TRUSTED_DOCUMENTS', text).describe(
    'JSON file with GraphQL documents by id ([persisted documents](graphql.md#persisted-documents)). With `only:` before the path, the gateway rejects a document that is not in the file (status 403). Authenticated operators may send any document',
  ),
  transfer: z.object({
    siteName: optional(
      'TAPEGATE_SITE_NAME',
      z.string().regex(/^[\x21-\x7e]{1,100}$/, 'a name without spaces'),
    ).describe(
      'name of this site for transfer tools ([transfer tools](rest.md#transfer-tools)). Unset: the host name of the gateway',
    ),
    webdav: setting('TAPEGATE_WEBDAV', oneOf('off', 'public', 'all'), 'public').describe(
      'files that the gateway serves at `/webdav`: `public` for files that every user of the host may read, `all` for all files, or `off` for no files',
    ),
    gateways: listed(
      'TAPEGATE_BYTES_GATEWAYS',
      parsedParts(values.parseGateway, 'a list such as host1=https://host1.example.org:8443,host2=…').transform(
        (found): ReadonlyMap<string, string> => new Map(found),
      ),
      new Map(),
    ).describe(
      'URLs of the gateways on other hosts. For a file on the disk of another host, the gateway redirects the client to the gateway of that host: `host1=https://host1.example.org:8443,host2=…`',
    ),
  }),
  limits,
});

type Field = z.ZodType & { description?: string | undefined };

/** Lists the settings in a part of the schema, each with its path in the schema. */
export function listSettings(part: z.ZodObject = schema, above: string[] = []): { path: string[]; field: Field }[] {
  return Object.entries(part.shape).flatMap(([key, field]) =>
    field instanceof z.ZodObject
      ? listSettings(field, [...above, key])
      : [{ path: [...above, key], field: field as Field }],
  );
}

export function variableOf(field: Field): string {
  return variables.get(field)?.variable ?? '';
}
