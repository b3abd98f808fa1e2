/**
 * Reads individual environment variables, for code that needs only a few variables, or runs before config/config.ts.
 */
import { createHider, showValue } from './secrets.js';

export type Environment = Record<string, string | undefined>;

export const environment: Environment = process.env;

export const hideSecrets = createHider(environment);

export class ConfigError extends Error {
  readonly faults: string[];

  constructor(faults: string[]) {
    super(`invalid environment variable${faults.length === 1 ? '' : 's'}:\n${faults.map((f) => `  ${f}`).join('\n')}`);
    this.faults = faults;
  }
}

/** Returns whether to print an error's stack trace. */
export function isDebug(env: Environment): boolean {
  return env.LOG_LEVEL === 'debug' || env.LOG_LEVEL === 'trace';
}

/** Returns the directory for this host's data, such as the embedded database (DATA_DIR). */
export function readDataDir(env: Environment): string {
  return env.DATA_DIR || './data';
}

/**
 * Returns the directory for a user's configuration files (XDG Base Directory Specification). Ignores XDG_CONFIG_HOME if
 * it is a relative path.
 */
export function readConfigDir(env: Environment, home: string): string {
  return env.XDG_CONFIG_HOME?.startsWith('/') ? env.XDG_CONFIG_HOME : `${env.HOME || home}/.config`;
}

/** Default for TAPEGATE_LIBRARY_DIR, the directory with the programs and secrets of tape libraries. */
export const LIBRARY_DIR = '/etc/tapegate/libraries';

export const DEFAULT_PORT = 8080;

export const defaultServerUrl = `http://127.0.0.1:${DEFAULT_PORT}`;

/**
 * Returns the URL of the server that commands call (TAPEGATE_URL), without a trailing slash.
 * @throws ConfigError if the URL is invalid
 */
export function readServerUrl(env: Environment, name = 'TAPEGATE_URL'): string {
  const url = env.TAPEGATE_URL || defaultServerUrl;
  const choice = { protocols: ['http:', 'https:'], needsHost: true };
  if (!isUrl(url, choice)) throw new ConfigError([describeFault(name, expectedUrl(url, choice), url)]);
  return url.replace(/\/+$/, '');
}

export interface UrlChoice {
  protocols: string[];
  /** Whether the URL must contain a host. A URL without a host names a Unix socket. */
  needsHost: boolean;
}

export function isUrl(value: string, { protocols, needsHost }: UrlChoice): boolean {
  if (!URL.canParse(value)) return false;
  const { protocol, hostname } = new URL(value);
  if (!protocols.includes(protocol) || !value.includes('://')) return false;
  return !isLoginCutShort(value) && (hostname !== '' || !needsHost);
}

/**
 * Returns whether the user or password in a URL is incorrectly percent-encoded. Error messages must not show the path
 * of such a URL, because the path might contain part of the password.
 */
function isLoginCutShort(value: string): boolean {
  const withoutQuery = value.replace(/\?[\w.]+=.*$/s, '');
  const [, login = '', rest = ''] = /^[^:]+:\/\/(?:([^/?#]*)@)?(.*)$/s.exec(withoutQuery) ?? [];
  if (rest.includes('@')) return true;
  try {
    decodeURIComponent(login.replace(/%(?![0-9a-f]{2})/gi, '%25'));
    return false;
  } catch {
    return true;
  }
}

export function expectedUrl(value: string, { protocols }: UrlChoice): string {
  const beginnings = protocols.map((protocol) => `${protocol}//`);
  const isLogin = value.includes('@') && beginnings.some((beginning) => value.startsWith(beginning));
  return isLogin
    ? 'a URL whose user and password are percent-encoded'
    : `a URL that begins with ${beginnings.join(' or ')}`;
}

/** Describes an environment variable with an invalid value for an error message, without showing secrets. */
export function describeFault(name: string, expected: string, value: string): string {
  return `${name} must be ${expected}, not ${JSON.stringify(showValue(name, value))}`;
}
