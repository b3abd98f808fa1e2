/** Reads the environment of a server once, and reports all faults of it. The settings are in src/settings.ts. */
import type * as z from 'zod';
import { isLoopback } from './address-ranges.js';
import { ConfigError, describeFault, type Environment } from './environment.js';
import { bareHost, namesOfIssuer } from './issuer-urls.js';
import type { AuthMethod } from './setting-values.js';
import { listSettings, schema, variableOf } from './settings.js';
import { findTlsFaults } from './tls-files.js';

/** Settings without a default are undefined. */
type Explicit<T> = { [Key in keyof Required<T>]: T[Key] };
type Parsed = z.infer<typeof schema>;
type Settings = Explicit<Omit<Parsed, 'access' | 'door'>> & {
  access: Explicit<Parsed['access']>;
  door: Explicit<Parsed['door']>;
};

/** Limits that are not settings, because no honest user meets them; an error names those that it may report. */
const fixedLimits = {
  /** MB of bodies that are being read or processed; one caller may have three eighths of it. */
  bodiesMb: 256,
  /** Half of them for one address; fewer if the process may have fewer descriptors. */
  connections: 10_000,
  /** Of a caller, at once. */
  callerRequests: 500,
  /** Files that are read at once, each with a megabyte of memory; half of them by one caller. */
  downloads: 500,
  /** On a stream of single connection mode. */
  streamOperations: 100,
  /** Long lists that are read at once, each with a connection to the database. */
  longLists: 16,
  /** Paths that a request names. */
  requestPaths: 250_000,
  /** Active requests of a user: ten a second for the five days of the default retention. */
  openRequests: 5_000_000,
  /** Of these, requests by a pattern, and paths that the catalogue does not know yet. */
  standingPatterns: 10_000,
  awaitedPaths: 10_000_000,
  /** Recorded paths of a user that do not fit into the quota or a limit. */
  leftOutPaths: 100_000,
  /** Files that join a user's requests by their patterns during an import; the others join after it. */
  importJoins: 100_000,
  graphqlDepth: 12,
  graphqlBreadth: 200,
  graphqlComplexity: 100_000,
  /** Seconds for the header of an HTTP request, for all of it, and until an idle connection is closed. */
  headerSeconds: 20,
  requestSeconds: 3600,
  idleSeconds: 5,
  /** Whether unauthenticated callers of the gateway's own host are counted. */
  rateLocal: false,
};

/** Seconds after which a client that neither reads nor sends is disconnected. */
const READER_SECONDS = 60;

/** Threads of libuv by default. */
const THREADS = 4;

export type AccessConfig = Settings['access'];
export type BrowserConfig = Pick<Config, 'publicUrl' | 'allowedHosts' | 'corsOrigins' | 'tlsCert' | 'dashboard'>;
export type Limits = Settings['limits'] & typeof fixedLimits & { callerStreams: number; userMailRate: number };
/** `diskCalls`: calls on restore disks at once. Half of the threads stay free if a disk stalls. */
export type DoorConfig = Settings['door'] & { diskCalls: number };
export interface Config extends Omit<Settings, 'door' | 'limits' | 'pages'> {
  /** Whether browsers get the dashboard at `/`. */
  dashboard: boolean;
  /** Whether browsers get GraphiQL at `/graphql`. */
  graphiql: boolean;
  door: DoorConfig;
  limits: Limits;
  readerSeconds: number;
}

/**
 * Reads and checks the environment of a server. An empty variable counts as unset.
 * @param how.listens whether it is for a gateway. Other processes do not check how clients reach it
 * @throws ConfigError with all faults
 */
export function readConfig(env: Environment, { listens = true } = {}): Config {
  const result = schema.safeParse(toInput(env));
  const issues = result.error?.issues ?? [];
  const faulty = new Set(issues.map(({ path }) => variableAt(path)));
  const faults = issues.map((issue) => {
    const variable = variableAt(issue.path);
    const isExplained = issue.code === 'custom' && issue.params?.isExplained === true;
    return isExplained
      ? `${variable} must be ${issue.message}`
      : describeFault(variable, issue.message, env[variable] ?? '');
  });
  // settings that contradict each other are reported in addition to those that have a wrong value
  const settings = (result.data ?? schema.parse(toInput(env, faulty))) as Settings;
  faults.push(...findOldNames(env), ...findContradictions(settings));
  if (listens) faults.push(...findGatewayFaults(settings, env, faulty));
  if (faults.length > 0) throw new ConfigError(faults);
  return complete(settings, env);
}

/** Returns the input of the schema, without the variables `except`. */
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

/** Settings of older versions that are part of another one. A setting of the same name got a prefix. */
const mergedSettings = {
  TAPEGATE_PROXY_HEADERS: 'PROXY_USER_HEADER PROXY_GROUPS_HEADER PROXY_CERT_HEADER PROXY_CERT_VERIFY_HEADER',
  TAPEGATE_METRICS_LISTEN: 'METRICS_PORT METRICS_HOST',
  TAPEGATE_PAGES: 'DASHBOARD GRAPHIQL',
  TAPEGATE_STREAMS: 'CALLER_STREAMS',
  TAPEGATE_MAIL_RATE: 'USER_MAIL_RATE',
  'a constant (see "Limits" in src/commands/README.md)': `BODIES_MB CONNECTIONS CALLER_REQUESTS DOWNLOADS STREAM_OPERATIONS LONG_LISTS
    REQUEST_PATHS OPEN_REQUESTS STANDING_PATTERNS AWAITED_PATHS LEFT_OUT_PATHS IMPORT_JOINS STATEMENT_SECONDS GRAPHQL_DEPTH
    GRAPHQL_BREADTH GRAPHQL_COMPLEXITY READER_SECONDS OIDC_CLOCK_SKEW RATE_LOCAL`,
};

/** Reports settings that still have the name of an older version, so that none is ignored. */
function findOldNames(env: Environment): string[] {
  const prefix = 'TAPEGATE_';
  const prefixed = listSettings().flatMap(({ field }) => {
    const name = variableOf(field);
    return name.startsWith(prefix) ? [[name.slice(prefix.length), name]] : [];
  });
  const merged = Object.entries(mergedSettings).flatMap(([name, old]) => old.split(/\s+/).map((each) => [each, name]));
  return [...prefixed, ...merged].flatMap(([old = '', name]) =>
    env[old] === undefined ? [] : [`${old} is now ${name}`],
  );
}

function complete(settings: Settings, env: Environment): Config {
  const { access, door, limits, pages, ...others } = settings;
  const threads = Number(env.UV_THREADPOOL_SIZE) || THREADS;
  return {
    ...others,
    dashboard: pages.has('dashboard'),
    graphiql: pages.has('graphiql'),
    access: { ...access, legacy: access.auth.has('legacy') ? access.legacy : [] },
    door: { ...door, diskCalls: Math.max(1, Math.floor(threads / 2)) },
    limits: {
      ...limits,
      ...fixedLimits,
      callerStreams: Math.max(1, Math.floor(limits.streams / 5)),
      userMailRate: Math.max(1, Math.floor(limits.mailRate / 2)),
    },
    readerSeconds: READER_SECONDS,
  };
}

function findContradictions({ access, tlsCert, tlsKey, trustedOnly, trustedDocuments }: Settings): string[] {
  const { auth, oidcIssuers, oidcAudiences, proxyAddresses } = access;
  const names = oidcIssuers.map(namesOfIssuer);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  const checks: [isWrong: boolean, fault: string][] = [
    [!tlsCert && tlsKey !== undefined, 'TAPEGATE_TLS_KEY requires TAPEGATE_TLS_CERT, the file of its certificate'],
    [!tlsKey && tlsCert !== undefined, 'TAPEGATE_TLS_CERT requires TAPEGATE_TLS_KEY, the file of its key'],
    [
      trustedOnly && trustedDocuments === undefined,
      'TAPEGATE_TRUSTED_ONLY requires TAPEGATE_TRUSTED_DOCUMENTS, the file of the documents',
    ],
    [
      auth.has('oidc') && (oidcIssuers.length === 0 || oidcAudiences.length === 0),
      'TAPEGATE_AUTH contains oidc, which requires TAPEGATE_OIDC_ISSUER, and TAPEGATE_OIDC_AUDIENCE, the audience of the tokens for this gateway',
    ],
    [
      twice !== undefined,
      `TAPEGATE_OIDC_ISSUER contains several issuers with the address ${twice}: their users could not be distinguished`,
    ],
    [
      (auth.has('proxy') || auth.has('certificate')) && proxyAddresses.length === 0,
      'TAPEGATE_AUTH contains proxy or certificate, which require TAPEGATE_PROXY_ADDRESSES, the only addresses whose headers are trusted',
    ],
  ];
  return checks.flatMap(([isWrong, fault]) => (isWrong ? [fault] : []));
}

/** Settings that have an effect with some methods of authentication only. */
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

/** Settings that grant more than an operator may mean if they are empty, as in a compose file with an unset variable. */
const grantsIfEmpty: { variable: string; methods: readonly AuthMethod[]; effect: string }[] = [
  { variable: 'TAPEGATE_LEGACY', methods: ['legacy'], effect: 'all endpoints that read are open; none closes them' },
  { variable: 'TAPEGATE_OIDC_ROLES', methods: ['oidc'], effect: 'every authenticated caller is a user' },
  {
    variable: 'TAPEGATE_PROXY_ROLES',
    methods: ['proxy', 'certificate'],
    effect: 'every authenticated caller is a user',
  },
];

/** Returns the faults of a gateway: its certificate, and access that nobody has configured. */
function findGatewayFaults(settings: Settings, env: Environment, faulty: ReadonlySet<string>): string[] {
  const { access, tlsCert, tlsKey } = settings;
  const faults = tlsCert !== undefined && tlsKey !== undefined ? findTlsFaults({ cert: tlsCert, key: tlsKey }) : [];
  for (const { variable, methods, effect } of grantsIfEmpty) {
    if (env[variable] === '' && methods.some((method) => access.auth.has(method)))
      faults.push(`${variable} must not be empty: without it, ${effect}`);
  }
  if (env.TAPEGATE_AUTH === '')
    return [...faults, 'TAPEGATE_AUTH must not be empty: without it, the gateway is open to every caller'];
  const sign = env.TAPEGATE_AUTH === undefined || faulty.has('TAPEGATE_AUTH') ? findOtherHosts(settings) : undefined;
  if (sign) {
    const [variable, value] = sign;
    return [
      ...faults,
      `TAPEGATE_AUTH must be set because other hosts reach the gateway (${variable} is ${JSON.stringify(value)}): token, oidc, proxy and certificate authenticate callers, open accepts every caller`,
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

/**
 * Returns a setting that shows that other hosts reach the gateway, and its value. Behind a proxy or a tunnel, all callers seem to be of
 * this host. A gateway for this host only has none of these settings.
 */
function findOtherHosts({ host, publicUrl, allowedHosts, access }: Settings): [string, string] | undefined {
  if (!isLoopback(host)) return ['HOST', host];
  if (publicUrl !== undefined && !isLoopback(bareHost(new URL(publicUrl).hostname)))
    return ['TAPEGATE_PUBLIC_URL', publicUrl];
  const name = allowedHosts.find((each) => !isLoopback(bareHost(each)));
  if (name !== undefined) return ['TAPEGATE_ALLOWED_HOSTS', name];
  if (access.proxyAddresses.length > 0) return ['TAPEGATE_PROXY_ADDRESSES', access.proxyAddresses.join(',')];
  return access.oidcIssuers.length > 0 ? ['TAPEGATE_OIDC_ISSUER', access.oidcIssuers.join(' ')] : undefined;
}
