/** The one place that reads the environment. Every option has a type, a default and a line in src/commands/README.md. */
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { type AccessConfig, readAccess } from './config-access.js';
import { type BrowserConfig, readBrowserConfig } from './config-browsers.js';
import { type DoorConfig, readDoorConfig } from './config-door.js';
import { type Limits, readLimits } from './config-limits.js';
import type { ConfigReader } from './config-reader.js';
import { readTelemetryConfig, type TelemetryConfig } from './config-telemetry.js';
import { splitHosts } from './database-url.js';
import { ConfigError, type Environment } from './environment.js';
import { showValue } from './secrets.js';
import { parseWebhookHosts, type WebhookHosts } from './webhook-targets.js';

export { ConfigError, type Environment, environment, hideSecrets, isDebug } from './environment.js';

export interface Config extends BrowserConfig {
  access: AccessConfig;
  door: DoorConfig;
  telemetry: TelemetryConfig;
  port: number;
  host: string;
  /** Unset: an embedded PostgreSQL under `dataDir`. */
  databaseUrl: string | undefined;
  /** Standbys of that database, which lists may be read from. */
  databaseReadUrl: string | undefined;
  /** Milliseconds that a list waits for a standby that is behind. */
  readWaitMs: number;
  dataDir: string;
  /** Make a small demo archive on an empty embedded database. */
  demo: boolean;
  /** Run the engine in the process of `start`. */
  engine: boolean;
  /** Drives that may work at the same time. */
  drives: number;
  /** Of this engine, among others that share the drives. */
  engineWeight: number;
  /** Seconds without progress after which a call counts as hung, on a restore disk and on tape. */
  diskTimeout: number;
  tapeTimeout: number;
  tapeBackend: string;
  /** Unset: mail is written to the log and kept in the outbox. */
  smtpUrl: string | undefined;
  mailFrom: string;
  /** Seconds after which a reader that takes nothing of its answer is dropped. */
  readerSeconds: number;
  /** Seconds for which a gateway that stops goes on, so that balancers leave it. */
  leaveSeconds: number;
  /** Days for which events are kept: who comes back later begins with the present state. */
  eventDays: number;
  /** Days after their end for which requests are kept as they were; then they are kept in a compact form. */
  requestDays: number;
  /** Days for which the audit is kept. */
  auditDays: number;
  /** A mail goes so long before a request expires; 0: none does. */
  expiryNoticeHours: number;
  /** Of one's own network, to which webhooks may go. */
  webhookHosts: WebhookHosts;
  logLevel: string;
  /** Permission bits of restored files; unset: those of the original. */
  restoreMode: number | undefined;
  /** Number of the group of restored files; unset: that of the original. */
  restoreGroup: number | undefined;
  /** Restored files appear at their archive paths below this folder; unset: nowhere. */
  linkRoot: string | undefined;
  limits: Limits;
}

const logLevels = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'];

const DEFAULT_PORT = 8080;

/**
 * Reads and checks the whole environment of a server. An empty variable counts as unset.
 * @param backends names that TAPE_BACKEND may have
 * @param how.listens is it for a gateway? For what listens nowhere it does not matter how it would be reached
 * @throws ConfigError with all faults
 */
export function readConfig(env: Environment, backends: readonly string[], { listens = true } = {}): Config {
  const faults: string[] = [];
  const text = (name: string) => env[name] || undefined;
  const fault = (name: string, expected: string) => faults.push(refusalOf(name, expected, env));

  const integer = (name: string, low: number, high: number, fallback: number): number => {
    const value = text(name);
    if (value === undefined) return fallback;
    const number = /^\d{1,9}$/.test(value) ? Number(value) : Number.NaN;
    if (number >= low && number <= high) return number;
    fault(name, `a whole number from ${low} to ${high}`);
    return fallback;
  };
  const oneOf = (name: string, values: readonly string[], fallback: string): string => {
    const value = text(name) ?? fallback;
    if (!values.includes(value)) fault(name, `one of ${values.join(', ')}`);
    return value;
  };
  const url = (name: string, choice: UrlChoice): string | undefined => {
    const value = text(name);
    if (value !== undefined && !areUrls(value, choice)) fault(name, expectedUrl(value, choice));
    return value;
  };
  const parsed = <T>(name: string, parse: (value: string) => T | undefined, expected: string): T | undefined => {
    const value = text(name);
    const found = value === undefined ? undefined : parse(value);
    if (value !== undefined && found === undefined) fault(name, expected);
    return found;
  };

  const host = text('HOST') ?? '127.0.0.1';
  const reader = { text, oneOf, parsed, fault, refuse: (problem: string) => void faults.push(problem) };
  const families = { ...readBrowserConfig(reader, listens), ...readFamilies(reader) };
  const config: Config = {
    access: readAccess({ ...reader, given: (name) => env[name] }, listens ? { host, ...families } : undefined),
    port: integer('PORT', 0, 65_535, DEFAULT_PORT),
    host,
    ...readDatabase(url, integer),
    dataDir: readDataDir(env),
    demo: oneOf('DEMO', ['on', 'off'], 'on') === 'on',
    engine: oneOf('ENGINE', ['on', 'off'], 'on') === 'on',
    drives: integer('DRIVES', 1, 256, 2),
    engineWeight: integer('ENGINE_WEIGHT', 1, 1000, 1),
    diskTimeout: integer('DISK_TIMEOUT', 1, 86_400, 120),
    tapeTimeout: integer('TAPE_TIMEOUT', 1, 86_400, 900),
    tapeBackend: oneOf('TAPE_BACKEND', backends, 'directory'),
    smtpUrl: url('SMTP_URL', { protocols: ['smtp:', 'smtps:'], needsHost: true }),
    mailFrom: parsed('MAIL_FROM', parseSender, 'an e-mail address') ?? 'tapegate@localhost',
    readerSeconds: integer('READER_SECONDS', 1, 86_400, 60),
    leaveSeconds: integer('LEAVE_SECONDS', 0, 3600, 0),
    ...readRetentions(integer),
    logLevel: oneOf('LOG_LEVEL', logLevels, 'info'),
    ...readRestored(reader),
    ...families,
    limits: readLimits({ integer, oneOf, parsed }),
  };
  if (faults.length > 0) throw new ConfigError(faults);
  return config;
}

function readFamilies(reader: ConfigReader): Pick<Config, 'door' | 'telemetry' | 'webhookHosts'> {
  const webhookHosts = reader.parsed('WEBHOOK_HOSTS', parseWebhookHosts, 'a list of names, addresses and ranges') ?? [];
  return { door: readDoorConfig(reader), telemetry: readTelemetryConfig(reader), webhookHosts };
}

function readRestored({ parsed }: ConfigReader): Pick<Config, 'restoreMode' | 'restoreGroup' | 'linkRoot'> {
  return {
    restoreMode: parsed('RESTORE_MODE', parsePermissions, 'three octal digits such as 0640, without set-id bits'),
    restoreGroup: parsed('RESTORE_GROUP', findGroup, 'a group of this host, or its number'),
    linkRoot: parsed('LINK_ROOT', parseFolder, 'an absolute path without "." or ".."'),
  };
}

/** An address, with or without a name. */
function parseSender(text: string): string | undefined {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not get into a header
  return text.includes('@') && !/[\u0000-\u001f\u007f]/.test(text) ? text : undefined;
}

/** Reads a whole number within bounds. */
type ReadInteger = (name: string, low: number, high: number, fallback: number) => number;

function readDatabase(url: (name: string, choice: UrlChoice) => string | undefined, integer: ReadInteger) {
  return {
    databaseUrl: url('DATABASE_URL', POSTGRESQL),
    databaseReadUrl: url('DATABASE_READ_URL', POSTGRESQL),
    readWaitMs: integer('READ_WAIT_MS', 0, 60_000, 200),
  };
}

function readRetentions(integer: ReadInteger) {
  return {
    eventDays: integer('EVENT_DAYS', 1, 36_500, 30),
    requestDays: integer('REQUEST_DAYS', 0, 36_500, 30),
    auditDays: integer('AUDIT_DAYS', 1, 36_500, 400),
    expiryNoticeHours: integer('EXPIRY_NOTICE_HOURS', 0, 8760, 48),
  };
}

/** Where an embedded database, and what belongs to this host, is kept. */
export function readDataDir(env: Environment): string {
  return env.DATA_DIR || './data';
}

/** Where a user's own configuration is (XDG Base Directory Specification): a path that is not absolute counts as unset. */
export function readConfigDir(env: Environment, home: string): string {
  return env.XDG_CONFIG_HOME?.startsWith('/') ? env.XDG_CONFIG_HOME : `${env.HOME || home}/.config`;
}

/** One way to write a folder, so that two processes mean the same by it. */
function parseFolder(text: string): string | undefined {
  const folder = path.posix.normalize(text);
  const bare = folder === '/' ? folder : folder.replace(/\/$/, '');
  return text.startsWith('/') && [bare, `${bare}/`].includes(text) && !text.includes('\0') ? bare : undefined;
}

function parsePermissions(text: string): number | undefined {
  return /^0?[0-7]{3}$/.test(text) ? Number.parseInt(text, 8) : undefined;
}

/** The number of a group, which may be in a directory service; undefined when there is none of that name. */
function findGroup(name: string): number | undefined {
  if (/^\d{1,9}$/.test(name)) return Number(name);
  if (!/^[\w.][\w.@-]*$/.test(name)) return undefined;
  try {
    const line = execFileSync('getent', ['group', name], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    return Number(line.split(':')[2]);
  } catch {
    return undefined; // there is no such group, or nothing that knows groups
  }
}

/**
 * Where the commands of users find a server: TAPEGATE_URL, without a slash at its end.
 * @throws ConfigError
 */
export function readServerUrl(env: Environment, name = 'TAPEGATE_URL'): string {
  const url = env.TAPEGATE_URL || defaultServerUrl;
  const choice = { protocols: ['http:', 'https:'], needsHost: true };
  if (!isUrl(url, choice)) {
    throw new ConfigError([refusalOf(name, expectedUrl(url, choice), { [name]: env.TAPEGATE_URL })]);
  }
  return url.replace(/\/+$/, '');
}

export const defaultServerUrl = `http://127.0.0.1:${DEFAULT_PORT}`;

interface UrlChoice {
  protocols: string[];
  /** A Unix socket has none. */
  needsHost: boolean;
}

const POSTGRESQL: UrlChoice = { protocols: ['postgresql:', 'postgres:'], needsHost: false };

/** A URL of several servers has a host for each of them. */
function areUrls(value: string, choice: UrlChoice): boolean {
  const urls = splitHosts(value);
  return urls.every((url) => isUrl(url, { ...choice, needsHost: choice.needsHost || urls.length > 1 }));
}

function isUrl(value: string, { protocols, needsHost }: UrlChoice): boolean {
  if (!URL.canParse(value)) return false;
  const { protocol, hostname, username } = new URL(value);
  if (!protocols.includes(protocol) || !value.includes('://')) return false;
  // what follows a `/`, `?` or `#` of a password would count as a place, and be shown as one
  const isCutShort = hostname !== '' && username === '' && value.replace(/\?[\w.]+=.*$/s, '').includes('@');
  return !isCutShort && (hostname !== '' || !needsHost);
}

function expectedUrl(value: string, { protocols }: UrlChoice): string {
  const beginnings = protocols.map((protocol) => `${protocol}//`);
  const isLogin = value.includes('@') && beginnings.some((beginning) => value.startsWith(beginning));
  return isLogin
    ? 'a URL whose user and password are percent-encoded'
    : `a URL that begins with ${beginnings.join(' or ')}`;
}

function refusalOf(name: string, expected: string, env: Environment): string {
  return `${name} must be ${expected}, not ${JSON.stringify(showValue(name, env[name] ?? ''))}`;
}
