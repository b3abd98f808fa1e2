/**
 * All settings of a server, as one schema: the variable of each, its type, default and description. `npm run docs` writes the
 * tables of docs/reference/settings.md from it. To add a setting, add a line here and run that.
 */
import { readFileSync, statSync } from 'node:fs';
import * as z from 'zod';
import { DEFAULT_PORT, expectedUrl, isUrl, LIBRARY_DIR, type UrlChoice } from '../core/environment.js';
import { messageOf, quote } from '../core/errors.js';
import { parseWebhookHosts } from '../core/webhook-targets.js';
import { normalizeUrl, splitHosts, sslModes } from './database-url.js';
import * as values from './setting-values.js';

/** The variable of a setting, and its default as the documents show it. */
export const variables = z.registry<{ variable: string; fallback: string }>();

/** A setting whose default is the value of `fallback`. */
const setting = <T>(variable: string, value: z.ZodType<T, string>, fallback: string) =>
  value.prefault(fallback).register(variables, { variable, fallback });

/** A setting without a default. */
const optional = <T>(variable: string, value: z.ZodType<T, string>) =>
  value.optional().register(variables, { variable, fallback: 'unset' });

/** A setting that is empty if it is unset. */
const listed = <T>(variable: string, value: z.ZodType<T, string>, empty: z.core.util.NoUndefined<T>) =>
  value.default(empty).register(variables, { variable, fallback: 'unset' });

/** An error message whose frame is `<variable> must be`, and that needs no value after it. */
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
const onOff = z.stringbool({ truthy: ['on'], falsy: ['off'], case: 'sensitive', error: 'one of on, off' });
const text = z.string();
const directory = parsed(values.parseDirectory, 'an absolute path without "." or ".."');
const days = (low: number) => integer(low, 36_500);
const seconds = integer(1, 86_400);

/** A URL. One of several servers names the host of each. */
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
  'a list of user=, viewer= or operator=, each followed by a group, or by user: and a name',
);

const legacy = z.string().transform((value, ctx): readonly values.LegacyRule[] => {
  if (value.trim() === 'none') return [];
  return value.split(',').flatMap((entry) => {
    const rules = values.parseLegacyEntry(entry.trim());
    if (typeof rules !== 'string') return rules;
    ctx.addIssue(explained(`none or a list: ${rules}`));
    return [];
  });
});

const certUsers = z.string().transform((file, ctx): Readonly<Record<string, string>> => {
  try {
    const users = values.parseCertUsers(readFileSync(file, 'utf8'));
    if (typeof users !== 'number') return users;
    ctx.addIssue(
      explained(`a file with a quoted subject and a user in each line; line ${users} of ${file} is different`),
    );
  } catch (error) {
    ctx.addIssue(explained(`a readable file: ${messageOf(error)}`));
  }
  return z.NEVER;
});

const LEAST_SECRET = 16;

/** The content of a file that other users cannot read. */
const secretFile = z.string().transform((file, ctx): string => {
  try {
    if ((statSync(file).mode & 0o007) !== 0) {
      ctx.addIssue(explained(`a file that other users cannot read: run chmod o= ${file}`));
      return z.NEVER;
    }
    const secret = readFileSync(file, 'utf8').trim();
    if (secret.length >= LEAST_SECRET && /^[\x21-\x7e]+$/.test(secret)) return secret;
    ctx.addIssue(
      explained(`a file with a secret of at least ${LEAST_SECRET} characters without spaces: openssl rand -hex 32`),
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
    'how callers are authenticated, a list: `token`, an API token; `oidc`, a token of an identity provider; `proxy`, the user name that a reverse proxy sends; `certificate`, a client certificate that it has verified; `legacy`, callers without credentials, for some endpoints of the REST contract; `open`, every caller, with all rights except the rights of an operator. `start` and `serve` require it if other hosts reach the gateway: if `HOST` is not a loopback address, or `TAPEGATE_PUBLIC_URL`, `TAPEGATE_ALLOWED_HOSTS`, `TAPEGATE_PROXY_ADDRESSES` or `TAPEGATE_OIDC_ISSUER` names another host. [Access](../operators/access.md) shows how to set up each method',
  ),
  oidcIssuers: listed(
    'TAPEGATE_OIDC_ISSUER',
    parsed(values.parseIssuers, 'URLs that begin with https://, without a query; http:// of this host'),
    [],
  ).describe('for `oidc`: URLs of the issuers whose tokens are accepted, a list; `https://`, or a port of this host'),
  oidcAudiences: listed('TAPEGATE_OIDC_AUDIENCE', words, []).describe(
    'for `oidc`: accepted audiences of a token, a list',
  ),
  oidcUserClaim: setting('TAPEGATE_OIDC_USER_CLAIM', word, 'sub').describe('the claim that contains the user name'),
  oidcGroupsClaims: setting('TAPEGATE_OIDC_GROUPS_CLAIM', words, 'wlcg.groups,groups').describe(
    'claims that may contain the groups; the first one that a token has is used',
  ),
  oidcRoles: listed('TAPEGATE_OIDC_ROLES', roles, []).describe(
    'which users get more rights: `operator=/tapes/ops,viewer=user:ada`, a list of roles (`user`, `viewer`, `operator`) with a group, or with `user:` and a name. Each authenticated caller is a user, unless the list contains `user=`',
  ),
  oidcClientId: optional('TAPEGATE_OIDC_CLIENT_ID', word).describe(
    'the public client with which `tapegate login` requests tokens from the first issuer that supports the device flow (RFC 8628); `/.well-known/oauth-protected-resource` publishes it. The dashboard uses the same client with a code and PKCE: the issuer must allow the address of the page (`TAPEGATE_PUBLIC_URL` and a slash; of several issuers, each has its own: `?issuer=` and the encoded URL of the issuer after it) as redirect URI, and requests from its origin; its token endpoint must be at the origin of the issuer',
  ),
  proxies: listed(
    'TAPEGATE_PROXY_ADDRESSES',
    parsed(
      values.parseProxies,
      'a list of addresses, ranges such as 192.0.2.0/24, and sockets such as unix:/run/tapegate/proxy.sock:www-data with an existing group',
    ),
    { ranges: [], sockets: [] },
  ).describe(
    'reverse proxies, a list of addresses, ranges and Unix sockets. The gateway accepts the client address (`X-Forwarded-For`), TLS (`X-Forwarded-Proto`) and, with `proxy` and `certificate`, the user from them only. It listens on `unix:/run/tapegate/proxy.sock` for its own account, and on `unix:/run/tapegate/proxy.sock:www-data` for a group as well. An address of this host requires `TAPEGATE_PROXY_SECRET_FILE`: every local user could connect from it',
  ),
  proxySecret: optional('TAPEGATE_PROXY_SECRET_FILE', secretFile).describe(
    'a file with a secret, read at the start, that proxies with an address send in each request as `X-Tapegate-Proxy-Secret`; a request without it does not count as one of a proxy. Proxies on a Unix socket need none',
  ),
  proxyHeaders: setting(
    'TAPEGATE_PROXY_HEADERS',
    parsed(values.parseProxyHeaders, 'a list such as user=X-Remote-User,groups=X-Remote-Groups'),
    'user=X-Remote-User,subject=X-SSL-Client-S-DN,verified=X-SSL-Client-Verify',
  ).describe(
    'headers of the proxy. For `proxy`: `user`, and `groups`, separated by commas (unset unless given). For `certificate`: `subject`, and `verified`, which must say `SUCCESS`. A header that is not listed keeps its default',
  ),
  proxyCertUsers: listed('TAPEGATE_PROXY_CERT_USERS', certUsers, {}).describe(
    'for `certificate`: a file with a quoted subject and its user in each line; the user of any other subject is its common name',
  ),
  proxyRoles: listed('TAPEGATE_PROXY_ROLES', roles, []).describe(
    'for `proxy` and `certificate`: as `TAPEGATE_OIDC_ROLES`',
  ),
  legacy: setting('TAPEGATE_LEGACY', legacy, 'read').describe(
    'for `legacy`: endpoints for callers without credentials, a list of `read`, `all` or endpoints, each with the addresses from which it is open, if not from everywhere: `read, POST /requests from 192.0.2.0/24 192.0.3.7`; `none` closes all',
  ),
});

const telemetry = z.object({
  accessLog: setting('TAPEGATE_ACCESS_LOG', onOff, 'off').describe(
    '`on`: log a line at `info` for each response of a gateway ([Monitoring](../operators/monitoring.md#logs))',
  ),
  traces: listed('OTEL_EXPORTER_OTLP_ENDPOINT', collector, false).describe(
    'a collector to which gateways and engines send traces by OTLP over HTTP, such as `http://127.0.0.1:4318` ([Monitoring](../operators/monitoring.md#traces))',
  ),
  metrics: optional(
    'TAPEGATE_METRICS_LISTEN',
    parsed(values.parseListener, 'a port, or an address and a port such as 0.0.0.0:9464'),
  ).describe(
    'a port for metrics only, of `start`, `serve` and `work`, on 127.0.0.1 unless an address is given, as in `0.0.0.0:9464` or `[::]:9464`; port 0 takes a free one, and the log names it. Each client that reaches it can read metrics without credentials. Unset: a gateway has metrics at its own `/metrics`, and an engine alone has none ([Metrics](metrics.md))',
  ),
});

const MOST = 999_999_999;

const limits = z.object({
  rateLimit: setting('TAPEGATE_RATE_LIMIT', integer(1, MOST), '60000').describe(
    'requests of a caller in a minute (429), at once or evenly; `RateLimit` and `RateLimit-Policy` show how many are left. An authenticated caller counts by name, with all its tokens and addresses. Each gateway counts on its own, and does not count unauthenticated callers of its own host',
  ),
  streams: setting('TAPEGATE_STREAMS', integer(1, MOST), '5000').describe(
    'open event streams (503); one caller may have a fifth of them (429)',
  ),
  requestFiles: setting('TAPEGATE_REQUEST_FILES', integer(1, MOST), String(MOST)).describe(
    'files of a request, by a list or a pattern (400); files that appear later do not join it. Set it for engines, too',
  ),
  patternLength: setting('TAPEGATE_PATTERN_LENGTH', integer(1, 2048), '1').describe(
    'characters that a pattern must have (400); the contract allows one',
  ),
  mailTo: setting(
    'TAPEGATE_MAIL_TO',
    parsed(values.parseMailTo, 'anywhere, quota, or a list of domains such as example.org,example.com'),
    'anywhere',
  ).describe(
    'addresses to which emails of a request may be sent: `anywhere`; `quota`: only the address of the quota; a list of domains such as `example.org,example.com`: also addresses of these domains (400)',
  ),
  mailRate: setting('TAPEGATE_MAIL_RATE', integer(1, MOST), '120').describe(
    'emails in a minute; half of that for the quota of one user. Emails over the limit are sent later, in turn for each user (`tapegate mail` lists them), and say so if the request has ended by then',
  ),
});

export const schema = z.object({
  port: setting('PORT', integer(0, 65_535), String(DEFAULT_PORT)).describe('port of the gateway; 0 takes a free one'),
  host: setting('HOST', text, '127.0.0.1').describe('address of the gateway'),
  access,
  databaseUrl: optional('DATABASE_URL', postgresql).describe(
    'a PostgreSQL 15 or newer; of several servers (`postgresql://user@a,b:5433/tapes`) the one that accepts writes; sockets, `sslmode` and poolers: [Use your own PostgreSQL](../operators/database.md). Unset: an embedded one in `DATA_DIR`, which `start` creates. Connections have a `work_mem` of 64 MB, or the one of `?options=-c%20work_mem%3D32MB`',
  ),
  databaseReadUrl: optional('TAPEGATE_DATABASE_READ_URL', postgresql).describe(
    'standbys of that database, one or several, from which a gateway reads lists ([standbys](../operators/database.md#read-lists-from-standbys))',
  ),
  readWaitMs: setting('TAPEGATE_READ_WAIT_MS', integer(0, 60_000), '200').describe(
    'milliseconds that a list waits for a standby that has not replayed everything, before it is read from the primary',
  ),
  dataDir: setting('DATA_DIR', text, './data').describe(
    'directory of the embedded database, the directory library and the default restore disk',
  ),
  demo: setting('DEMO', onOff, 'on').describe('`off`: no demo archive on an empty embedded database'),
  engine: setting('ENGINE', onOff, 'on').describe('`off`: `start` runs the gateway only'),
  drives: setting('DRIVES', integer(1, 256), '2').describe(
    'drives of the first library that all engines together use at the same time; `library add` sets the drives of other libraries',
  ),
  engineWeight: setting('TAPEGATE_ENGINE_WEIGHT', integer(1, 1000), '1').describe(
    'share of this engine if engines want more drives than there are: an engine of weight 2 has twice as many as one of weight 1',
  ),
  diskTimeout: setting('TAPEGATE_DISK_TIMEOUT', seconds, '120').describe(
    'seconds without progress after which a call on a restore disk counts as stalled',
  ),
  libraryDir: setting('TAPEGATE_LIBRARY_DIR', directory, LIBRARY_DIR).describe(
    'for engines: a directory of the administrator of the host with `programs`, which libraries may run, and `secrets`, which they may send. Settings of a library contain the names of these files ([Libraries](../operators/libraries/README.md#programs-and-secrets))',
  ),
  tapeTimeout: setting('TAPEGATE_TAPE_TIMEOUT', seconds, '900').describe(
    'the same for a drive (mount, locate, read, unmount) and for calls to a staging library. A longer time in the settings of a library (`mountSeconds`, `seconds`, `callSeconds`) takes precedence',
  ),
  smtpUrl: optional('SMTP_URL', url({ protocols: ['smtp:', 'smtps:'], needsHost: true })).describe(
    '`smtp://user:password@host:port` or `smtps://…`. A password is sent only over TLS (STARTTLS) with a valid certificate (`NODE_EXTRA_CA_CERTS` names an authority of the site), or to this host; otherwise mail waits. Unset: mail waits for an engine with `SMTP_URL`, if one was seen in the last 7 days. Otherwise it is written to the log and never sent',
  ),
  mailFrom: setting(
    'TAPEGATE_MAIL_FROM',
    parsed(values.parseSender, 'an email address'),
    'tapegate@localhost',
  ).describe('sender of mail'),
  leaveSeconds: setting('TAPEGATE_LEAVE_SECONDS', integer(0, 3600), '0').describe(
    'seconds for which a stopping gateway still answers, but returns 503 at `/health/ready` and closes each connection after its response, so that load balancers leave it: a little longer than two of their checks',
  ),
  eventDays: setting('TAPEGATE_EVENT_DAYS', days(1), '30').describe(
    'days for which events are kept; a client that resumes after an older one gets `EVENTS_GONE`, and starts again',
  ),
  requestDays: setting('TAPEGATE_REQUEST_DAYS', days(0), '30').describe(
    'days after the end of a request for which the text of its emails, and WLCG stage requests, are kept',
  ),
  expiryNoticeHours: setting('TAPEGATE_EXPIRY_NOTICE_HOURS', integer(0, 8760), '48').describe(
    'hours before a request expires at which an email announces it, once for each retention, with the command that extends it; 0: none. It is sent to the last-file address of the request, or else to the first-file address; a request with a shorter retention gets none. For engines',
  ),
  webhookHosts: listed(
    'TAPEGATE_WEBHOOK_HOSTS',
    parsed(parseWebhookHosts, 'a list of names, addresses and ranges'),
    [],
  ).describe(
    'names, addresses and ranges of the private network to which [webhooks](webhooks.md) may be sent, also without TLS, such as `hooks.example.org 10.1.0.0/16`; all others must have a public address. For gateways and engines',
  ),
  auditDays: setting('TAPEGATE_AUDIT_DAYS', days(1), '400').describe(
    'days for which the audit keeps changes and their callers (`audit`)',
  ),
  logLevel: setting('LOG_LEVEL', oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'), 'info').describe(
    '`fatal`, `error`, `warn`, `info`, `debug`, `trace` or `silent`; JSON lines on standard error',
  ),
  telemetry,
  restoreMode: optional(
    'TAPEGATE_RESTORE_MODE',
    parsed(values.parsePermissions, 'three octal digits such as 0640, without set-id bits'),
  ).describe(
    'permissions of restored files, such as 0640; their directories also get the right to enter for each right to read. Unset: the permissions of the originals, or 0644 and 0750 if they are unknown',
  ),
  restoreGroup: optional(
    'TAPEGATE_RESTORE_GROUP',
    parsed(values.findGroup, 'a group of this host, or its number'),
  ).describe(
    'group of restored files, by name or number; unset: the group of the original. This group may also [write on restore disks](../operators/restore-disks.md#other-users-of-the-host)',
  ),
  linkRoot: optional('TAPEGATE_LINK_ROOT', directory).describe(
    'an absolute directory, `/` for the root, in which each restored file also appears at its archive path, as a link ([Restore disks](../operators/restore-disks.md#links-at-archive-paths)). The same for all engines',
  ),
  publicUrl: optional(
    'TAPEGATE_PUBLIC_URL',
    parsed(
      values.parsePublicUrl,
      'a URL that begins with http:// or https://, without user, query, or a path of the gateway',
    ),
  ).describe(
    'URL of the gateway for users, if it differs from the address on which it listens, such as `https://archive.example.org/tapes`: pages of that origin are its own, and mail contains links to requests. A proxy may remove its path or keep it. Set it for engines, too',
  ),
  allowedHosts: listed(
    'TAPEGATE_ALLOWED_HOSTS',
    parsedParts(values.parseHost, 'a list of names and addresses, without ports'),
    [],
  ).describe(
    'names and addresses of the gateway, without ports, in addition to `TAPEGATE_PUBLIC_URL`, `HOST` and this host, such as `tapes.example.org,tapes`',
  ),
  corsOrigins: listed(
    'TAPEGATE_CORS_ORIGINS',
    parsedParts(values.parseOrigin, 'a list of origins such as https://example.org'),
    [],
  ).describe('origins whose pages may send requests, such as `https://portal.example.org,http://localhost:5173`'),
  tlsCert: optional('TAPEGATE_TLS_CERT', text).describe(
    'PEM file with the certificate of the gateway and its intermediate certificates: with `TAPEGATE_TLS_KEY`, the gateway speaks TLS (https)',
  ),
  tlsKey: optional('TAPEGATE_TLS_KEY', text).describe('PEM file with its key, without a passphrase'),
  pages: setting(
    'TAPEGATE_PAGES',
    parsed(
      (value) =>
        value === 'none' ? new Set<'dashboard' | 'graphiql'>() : values.parseWords(value, ['dashboard', 'graphiql']),
      'none, or a list of dashboard, graphiql',
    ),
    'dashboard,graphiql',
  ).describe('pages for browsers, a list: `dashboard` at `/`, and `graphiql` at `/graphql`; `none`'),
  introspection: setting('TAPEGATE_INTROSPECTION', onOff, 'on').describe(
    '`off`: introspection of the GraphQL schema is refused to all callers; the schema is in [schema.graphql](../../graphql/schema.graphql)',
  ),
  trustedDocuments: optional('TAPEGATE_TRUSTED_DOCUMENTS', text).describe(
    'a file that is read at the start: a JSON object of GraphQL documents by their ids, as code generators of clients write it ([persisted documents](graphql.md#persisted-documents)). With `only:` before its path, all other documents are refused (403), except to authenticated operators; commands of users, such as `tapegate ls`, send documents of their own',
  ),
  door: z.object({
    siteName: optional(
      'TAPEGATE_SITE_NAME',
      z.string().regex(/^[\x21-\x7e]{1,100}$/, 'a name without spaces'),
    ).describe(
      'the name of this site in metadata for transfer tools; unset: the host name of the gateway ([transfer tools](rest.md#transfer-tools))',
    ),
    webdav: setting('TAPEGATE_WEBDAV', oneOf('off', 'public', 'all'), 'public').describe(
      'files that are served at `/webdav`: `public`, copies that every user of their host may read; `all`; `off`',
    ),
    gateways: listed(
      'TAPEGATE_BYTES_GATEWAYS',
      parsedParts(values.parseGateway, 'a list such as host1=https://host1.example.org:8443,host2=…').transform(
        (found): ReadonlyMap<string, string> => new Map(found),
      ),
      new Map(),
    ).describe(
      'gateways on other hosts that serve files of disks that this one does not have: `host1=https://host1.example.org:8443,host2=…`',
    ),
  }),
  limits,
});

type Field = z.ZodType & { description?: string | undefined };

/** Returns the settings of a part of the schema with the path of each, in their order. */
export function listSettings(part: z.ZodObject = schema, above: string[] = []): { path: string[]; field: Field }[] {
  return Object.entries(part.shape).flatMap(([key, field]) =>
    field instanceof z.ZodObject
      ? listSettings(field, [...above, key])
      : [{ path: [...above, key], field: field as Field }],
  );
}

/** Returns the variable of a setting. */
export function variableOf(field: Field): string {
  return variables.get(field)?.variable ?? '';
}
