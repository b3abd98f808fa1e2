/** Reads a server's settings from environment variables, and reports all invalid settings. */
import { readFileSync } from 'node:fs';
import type * as z from 'zod';
import { ConfigError, describeFault, type Environment } from '../core/environment.js';
import { messageOf } from '../core/errors.js';
import { isLocalRange, isLoopback } from '../core/net/address-ranges.js';
import { bareHost, namesOfIssuer } from '../core/net/issuer-urls.js';
import { readTrusted } from '../core/trusted-documents.js';
import type { AuthMethod, Proxies } from './setting-values.js';
import { listSettings, schema, variableOf } from './settings.js';
import { findTlsFaults } from './tls-files.js';

type Explicit<T> = { [Key in keyof Required<T>]: T[Key] };
type Parsed = z.infer<typeof schema>;
type Settings = Explicit<Omit<Parsed, 'access' | 'transfer'>> & {
  access: Explicit<Parsed['access']>;
  transfer: Explicit<Parsed['transfer']>;
};

/** Limits that a site cannot configure. Normal use of a site does not reach these limits. */
const fixedLimits = {
  /** Maximum total size of all HTTP request bodies in memory, in MB. */
  bodiesMb: 256,
  /**
   * Maximum number of open connections to the gateway. Clients at one address may together open half of this maximum.
   */
  connections: 10_000,
  /** Maximum number of concurrent HTTP requests per caller. */
  callerRequests: 500,
  /** Maximum number of concurrent downloads. Each download takes 1 MB of memory. */
  downloads: 500,
  /** Maximum number of operations in one event stream, in graphql-sse's single connection mode. */
  streamOperations: 100,
  longLists: 16,
  requestPaths: 250_000,
  /**
   * Maximum numbers of open patterns and of unresolved paths in a user's requests. Expired and cancelled requests do
   * not count. An open pattern also selects files that are added later. An unresolved path is not in the catalogue yet.
   */
  openPatterns: 1000,
  unresolvedPaths: 10_000_000,
  /**
   * Maximum number of unstaged paths in a user's stage requests. A path is unstaged if Tapegate could not create a
   * request for the path. Unstaged paths do not use up the user's quota.
   */
  unstagedPaths: 10_000_000,
  /**
   * Maximum number of excluded paths recorded per user. A path is excluded if its file exceeds the quota or another
   * limit.
   */
  excludedPaths: 100_000,
  /**
   * Maximum number of files that an import itself adds to a user's requests. Tapegate adds the remaining files later.
   */
  importJoins: 100_000,
  graphqlDepth: 12,
  graphqlBreadth: 200,
  graphqlComplexity: 100_000,
  /** Time limits in seconds for an HTTP request's header, for the whole request, and for an idle connection. */
  headerSeconds: 20,
  requestSeconds: 3600,
  idleSeconds: 5,
  /** Whether the rate limit also applies to unauthenticated callers on the gateway's own host. */
  rateLocal: false,
};

/** Seconds after which the gateway disconnects a client that neither reads nor sends data. */
const READER_SECONDS = 60;

const THREADS = 4;

export type AccessConfig = Settings['access'];
export type BrowserConfig = Pick<
  Config,
  'publicUrl' | 'allowedHosts' | 'corsOrigins' | 'corsExposedHeaders' | 'tlsCert' | 'dashboard'
>;
export type Limits = Settings['limits'] & typeof fixedLimits & { callerStreams: number; userMailRate: number };
/**
 * `diskCalls` is the maximum number of concurrent calls to restore disks. Because of this limit, calls to a stalled
 * disk cannot occupy all libuv threads.
 */
export type TransferConfig = Settings['transfer'] & { diskCalls: number };
export interface Config extends Omit<Settings, 'transfer' | 'limits' | 'pages'> {
  dashboard: boolean;
  graphiql: boolean;
  trustedOnly: boolean;
  transfer: TransferConfig;
  limits: Limits;
  readerSeconds: number;
}

/**
 * Reads and checks a server's environment. An empty variable counts as unset.
 * @param how.listens whether to check the gateway's settings, too
 * @throws ConfigError that lists all invalid settings
 */
export function readConfig(env: Environment, { listens = true } = {}): Config {
  const result = schema.safeParse(toInput(env));
  const issues = result.error?.issues ?? [];
  const faulty = new Set(issues.map(({ path }) => variableAt(path)));
  const faults = findUnknown(env);
  faults.push(
    ...issues.map((issue) => {
      const variable = variableAt(issue.path);
      const isExplained = issue.code === 'custom' && issue.params?.isExplained === true;
      return isExplained
        ? `${variable} must be ${issue.message}`
        : describeFault(variable, issue.message, env[variable] ?? '');
    }),
  );
  // replace invalid values with defaults, so that contradictions between the valid settings are also reported
  const settings = (result.data ?? schema.parse(toInput(env, faulty))) as Settings;
  faults.push(...findContradictions(settings));
  if (listens) faults.push(...findGatewayFaults(settings, env, faulty));
  if (faults.length > 0) throw new ConfigError(faults);
  return complete(settings, env);
}

/** Environment variables that commands read, but servers do not. */
const OF_COMMANDS = ['TAPEGATE_URL', 'TAPEGATE_TOKEN'];

/** Matches environment variables that Kubernetes sets for a service with a name such as `tapegate`. */
const OF_SERVICE = /_SERVICE_(HOST|PORT)(_|$)|_PORT_\d+_/;
const ADDRESS = /^(tcp|udp|sctp):\/\//;

function findUnknown(env: Environment): string[] {
  const known = new Set([...OF_COMMANDS, ...listSettings().map(({ field }) => variableOf(field))]);
  const unknown = Object.entries(env).filter(
    ([variable, value = '']) =>
      variable.startsWith('TAPEGATE_') && !known.has(variable) && !OF_SERVICE.test(variable) && !ADDRESS.test(value),
  );
  return unknown.map(([variable]) => `unknown setting ${variable}: docs/reference/settings.md lists all settings`);
}

function toInput(env: Environment, except: ReadonlySet<string> = new Set()): object {
  const input: Record<string, Record<string, unknown> | string | undefined> = {};
  for (const { path, field } of listSettings()) {
    const variable = variableOf(field);
    const value = except.has(variable) ? undefined : env[variable] || undefined;
    const [first = '', second] = path;
    if (second === undefined) input[first] = value;
    else input[first] = { ...(input[first] as object), [second]: value };
  }
  return input;
}

function variableAt(path: PropertyKey[]): string {
  const found = listSettings().find((each) => each.path.every((key, index) => key === path[index]));
  return found === undefined ? '' : variableOf(found.field);
}

function complete(settings: Settings, env: Environment): Config {
  const { access, transfer, limits, pages, trustedDocuments, ...others } = settings;
  const threads = Number(env.UV_THREADPOOL_SIZE) || THREADS;
  return {
    ...others,
    dashboard: pages.has('dashboard'),
    graphiql: pages.has('graphiql'),
    trustedDocuments: trustedDocuments && fileOfDocuments(trustedDocuments),
    trustedOnly: trustedDocuments?.startsWith('only:') ?? false,
    access: { ...access, legacy: access.auth.has('legacy') ? access.legacy : [] },
    transfer: { ...transfer, diskCalls: Math.max(1, Math.floor(threads / 2)) },
    limits: {
      ...limits,
      ...fixedLimits,
      callerStreams: Math.max(1, Math.floor(limits.streams / 5)),
      userMailRate: Math.max(1, Math.floor(limits.mailRate / 2)),
    },
    readerSeconds: READER_SECONDS,
  };
}

function findContradictions({ access, tlsCert, tlsKey }: Settings): string[] {
  const { auth, oidcIssuers, oidcAudiences, proxies } = access;
  const names = oidcIssuers.map(namesOfIssuer);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  const checks: [isWrong: boolean, fault: string][] = [
    [!tlsCert && tlsKey !== undefined, 'TAPEGATE_TLS_KEY requires TAPEGATE_TLS_CERT, the certificate file'],
    [!tlsKey && tlsCert !== undefined, 'TAPEGATE_TLS_CERT requires TAPEGATE_TLS_KEY, the key file'],
    [
      auth.has('oidc') && (oidcIssuers.length === 0 || oidcAudiences.length === 0),
      'TAPEGATE_AUTH contains oidc, which requires TAPEGATE_OIDC_ISSUER and TAPEGATE_OIDC_AUDIENCE: set TAPEGATE_OIDC_AUDIENCE to the audience of the tokens for this gateway',
    ],
    [
      twice !== undefined,
      `TAPEGATE_OIDC_ISSUER contains several issuers with the address ${twice}: keep one of them, because Tapegate could not distinguish their users`,
    ],
    [
      (auth.has('proxy') || auth.has('certificate')) && listProxies(proxies).length === 0,
      'TAPEGATE_AUTH contains proxy or certificate, which require TAPEGATE_PROXY_ADDRESSES: set it to the addresses of the proxies whose headers the gateway trusts',
    ],
  ];
  return checks.flatMap(([isWrong, fault]) => (isWrong ? [fault] : []));
}

/** Settings that have an effect only with some authentication methods. */
export const settingsOfMethods = {
  TAPEGATE_OIDC_ISSUER: ['oidc'],
  TAPEGATE_OIDC_AUDIENCE: ['oidc'],
  TAPEGATE_OIDC_USER_CLAIM: ['oidc'],
  TAPEGATE_OIDC_GROUPS_CLAIM: ['oidc'],
  TAPEGATE_OIDC_ROLES: ['oidc'],
  TAPEGATE_OIDC_CLIENT_ID: ['oidc'],
  TAPEGATE_PROXY_HEADERS: ['proxy', 'certificate'],
  TAPEGATE_PROXY_CERT_USERS: ['certificate'],
  TAPEGATE_PROXY_ROLES: ['proxy', 'certificate'],
  TAPEGATE_LEGACY: ['legacy'],
} as const satisfies Record<string, readonly AuthMethod[]>;

/**
 * Settings that grant many rights if their variables are empty. A setting's variable can be empty by mistake, for
 * example if a Docker Compose file refers to an unset variable.
 */
const grantsIfEmpty: { variable: string; methods: readonly AuthMethod[]; effect: string }[] = [
  { variable: 'TAPEGATE_LEGACY', methods: ['legacy'], effect: 'all read endpoints are open; set "none" to close them' },
  { variable: 'TAPEGATE_OIDC_ROLES', methods: ['oidc'], effect: 'every authenticated caller has the role user' },
  {
    variable: 'TAPEGATE_PROXY_ROLES',
    methods: ['proxy', 'certificate'],
    effect: 'every authenticated caller has the role user',
  },
];

function findGatewayFaults(settings: Settings, env: Environment, faulty: ReadonlySet<string>): string[] {
  const { access, tlsCert, tlsKey } = settings;
  const faults: string[] = [];
  if (tlsCert !== undefined && tlsKey !== undefined) {
    const files = { cert: tlsCert, key: tlsKey };
    faults.push(...findTlsFaults(files, { cert: tryRead(tlsCert), key: tryRead(tlsKey) }));
  }
  faults.push(...findDocumentFaults(settings));
  for (const { variable, methods, effect } of grantsIfEmpty) {
    if (env[variable] === '' && methods.some((method) => access.auth.has(method)))
      faults.push(`${variable} must not be empty: if it is empty, ${effect}`);
  }
  const local = access.proxies.ranges.find(isLocalRange);
  if (local !== undefined && access.proxySecret === undefined) faults.push(describeLocalProxy(local));
  if (env.TAPEGATE_AUTH === '')
    return [...faults, 'TAPEGATE_AUTH must not be empty: if it is empty, the gateway is open to every caller'];
  const sign = env.TAPEGATE_AUTH === undefined || faulty.has('TAPEGATE_AUTH') ? findOtherHosts(settings) : undefined;
  if (sign) {
    const [variable, value] = sign;
    return [
      ...faults,
      `TAPEGATE_AUTH must be set because other hosts reach the gateway (${variable} is ${JSON.stringify(value)}): use token, oidc, proxy or certificate to authenticate callers, or open to accept every caller`,
    ];
  }
  for (const [variable, methods] of Object.entries(settingsOfMethods)) {
    const isUsed =
      methods.some((method) => access.auth.has(method)) ||
      (variable === 'TAPEGATE_LEGACY' && access.legacy.length === 0);
    if (env[variable] && !isUsed)
      faults.push(`${variable} has no effect unless TAPEGATE_AUTH contains ${methods.join(' or ')}`);
  }
  return faults;
}

function findDocumentFaults({ trustedDocuments }: Settings): string[] {
  try {
    if (trustedDocuments !== undefined) readTrusted(fileOfDocuments(trustedDocuments));
    return [];
  } catch (error) {
    return [messageOf(error)];
  }
}

const fileOfDocuments = (setting: string): string => setting.replace(/^only:/, '');

const describeLocalProxy = (range: string): string =>
  `TAPEGATE_PROXY_ADDRESSES contains ${JSON.stringify(range)}, from which every user of this host could send the headers of a proxy: replace the address with a socket that only the proxy can open, such as unix:/run/tapegate/proxy.sock:www-data, or have the proxy send the secret in TAPEGATE_PROXY_SECRET_FILE`;

const listProxies = ({ ranges, sockets }: Proxies): string[] => [
  ...ranges,
  ...sockets.map(({ path }) => `unix:${path}`),
];

function tryRead(file: string): unknown {
  try {
    return readFileSync(file);
  } catch (error) {
    return error;
  }
}

/**
 * Finds a setting that lets other hosts reach the gateway, and returns the setting's name and value. Does not consider
 * callers' addresses, because behind a proxy, all callers appear to be on this host.
 */
function findOtherHosts({ host, publicUrl, allowedHosts, access }: Settings): [string, string] | undefined {
  if (!isLoopback(host)) return ['HOST', host];
  if (publicUrl !== undefined && !isLoopback(bareHost(new URL(publicUrl).hostname)))
    return ['TAPEGATE_PUBLIC_URL', publicUrl];
  const name = allowedHosts.find((each) => !isLoopback(bareHost(each)));
  if (name !== undefined) return ['TAPEGATE_ALLOWED_HOSTS', name];
  const proxies = listProxies(access.proxies);
  if (proxies.length > 0) return ['TAPEGATE_PROXY_ADDRESSES', proxies.join(',')];
  return access.oidcIssuers.length > 0 ? ['TAPEGATE_OIDC_ISSUER', access.oidcIssuers.join(' ')] : undefined;
}
