/** Parses setting values. Most functions return undefined for invalid text. */
import { execFileSync } from 'node:child_process';
import { isIPv6 } from 'node:net';
import path from 'node:path';
import type { Role, Way } from '../core/caller.js';
import { quote } from '../core/errors.js';
import { type AddressRanges, isRange, splitWords } from '../core/net/address-ranges.js';
import { isTrustworthyUrl } from '../core/net/issuer-urls.js';

/** The authentication methods that TAPEGATE_AUTH may list, in the order in which the gateway tries them. */
export const authMethods = [
  'token',
  'oidc',
  'proxy',
  'certificate',
  'legacy',
  'open',
] as const satisfies readonly Way[];
export type AuthMethod = (typeof authMethods)[number];

/**
 * Roles that a role setting may grant to a group or a user. The service role is missing here, because only tokens can
 * grant it.
 */
const grantable = ['user', 'viewer', 'operator'] as const satisfies readonly Role[];

export interface RoleRule {
  role: (typeof grantable)[number];
  kind: 'group' | 'user';
  name: string;
}

/**
 * A Unix socket on which the gateway listens for a proxy. Only the socket's owner and members of `group` can connect.
 */
export interface ProxySocket {
  path: string;
  group: number | undefined;
}

export interface Proxies {
  ranges: AddressRanges;
  sockets: readonly ProxySocket[];
}

/** Endpoints that the REST contract defines. */
export const endpoints = [
  'GET /requests',
  'GET /requests/{id}',
  'GET /files',
  'GET /quota/{user}',
  'POST /requests',
  'PUT /requests/{id}',
] as const;
export type Endpoint = (typeof endpoints)[number];

/**
 * An endpoint that clients may call without credentials. If `ranges` is set, the client's address must be in one of the
 * ranges.
 */
export interface LegacyRule {
  endpoint: Endpoint;
  ranges?: AddressRanges;
}

type MailTo = 'anywhere' | 'quota' | readonly string[];

/** Names, in lower case, of the HTTP headers in which a reverse proxy sends the caller's identity. */
interface ProxyHeaders {
  user: string;
  groups: string | undefined;
  subject: string;
  verified: string;
}

export function parseWords<Word extends string>(text: string, known: readonly Word[]): ReadonlySet<Word> | undefined {
  const given = text.split(',').map((word) => word.trim());
  const found = known.filter((word) => given.includes(word));
  return found.length === new Set(given).size ? new Set(found) : undefined;
}

/** Parses a comma-separated list. Returns undefined if any part of the list is invalid. */
export function parseParts<T>(text: string, parse: (part: string) => T | undefined): readonly T[] | undefined {
  const parts = text.split(',').flatMap((part) => part.trim() || []);
  const values = parts.map(parse).filter((value) => value !== undefined);
  return parts.length > 0 && values.length === parts.length ? values : undefined;
}

/** Splits text at commas and spaces. Returns undefined if there are no words. */
export function parseList(text: string): readonly string[] | undefined {
  const words = splitWords(text);
  return words.length > 0 ? words : undefined;
}

export function parseIssuers(text: string): readonly string[] | undefined {
  return parseList(text)?.every(isTrustworthyUrl) ? parseList(text) : undefined;
}

export function parseRoles(text: string): readonly RoleRule[] | undefined {
  const rules = text.split(',').map((entry): RoleRule | undefined => {
    const [, word, prefix, name = ''] = /^\s*(\w+)\s*=\s*(user:)?(.*?)\s*$/s.exec(entry) ?? [];
    const role = grantable.find((each) => each === word);
    return role && name !== '' ? { role, kind: prefix === undefined ? 'group' : 'user', name } : undefined;
  });
  const known = rules.filter((rule) => rule !== undefined);
  return known.length === rules.length ? known : undefined;
}

/**
 * Parses a list of reverse proxies: addresses, ranges, and sockets such as `unix:/run/tapegate/proxy.sock:www-data`.
 */
export function parseProxies(text: string): Proxies | undefined {
  const words = splitWords(text);
  const ranges = words.filter((word) => !word.startsWith(UNIX));
  const sockets = words.filter((word) => word.startsWith(UNIX)).map(parseSocket);
  const known = sockets.filter((socket) => socket !== undefined);
  const isValid = words.length > 0 && ranges.every(isRange) && known.length === sockets.length;
  return isValid ? { ranges, sockets: known } : undefined;
}

const UNIX = 'unix:';

function parseSocket(text: string): ProxySocket | undefined {
  const [, path = '', name] = /^unix:(\/[^:]+)(?::([^:]+))?$/.exec(text) ?? [];
  const group = name === undefined ? undefined : findGroup(name);
  return path === '' || (name !== undefined && group === undefined) ? undefined : { path, group };
}

/**
 * Parses the names of a proxy's headers, such as `user=X-User,groups=X-Groups`. Headers that are not listed keep their
 * default names.
 */
export function parseProxyHeaders(text: string): ProxyHeaders | undefined {
  const named = parseParts(
    text,
    (part) => /^(user|groups|subject|verified)=([\w!#$%&'*+.^`|~-]+)$/.exec(part) ?? undefined,
  );
  if (named === undefined || new Set(named.map(([, word]) => word)).size < named.length) return undefined;
  return {
    user: 'x-remote-user',
    groups: undefined,
    subject: 'x-ssl-client-s-dn',
    verified: 'x-ssl-client-verify',
    ...Object.fromEntries(named.map(([, word, header = '']) => [word, header.toLowerCase()])),
  };
}

/**
 * Parses the text of a grid-mapfile. Each line contains a quoted certificate subject and its user.
 * @returns a map from certificate subjects to users, or the number of the first invalid line
 */
export function parseCertUsers(text: string): Record<string, string> | number {
  const users: Record<string, string> = {};
  for (const [index, line] of text.split('\n').entries()) {
    if (line.trim() === '' || line.trim().startsWith('#')) continue;
    const [, subject, user] = /^"(.+)"\s+(\S+)$/.exec(line.trim()) ?? [];
    if (subject === undefined || user === undefined) return index + 1;
    users[subject] = user;
  }
  return users;
}

/**
 * Parses an entry of TAPEGATE_LEGACY, such as `POST /requests from 192.0.2.0/24 192.0.2.7`.
 * @returns the entry's rules, or an error message if the entry is invalid
 */
export function parseLegacyEntry(entry: string): LegacyRule[] | string {
  if (entry === '') return 'an entry is empty';
  const [what = '', from, ...others] = entry.split(/\s+from(?:\s+|$)/);
  const named = findEndpoints(what);
  if (what === 'none') return '"none" must be the only entry';
  if (named.length === 0) return `${quote(what)} is not one of read, all, ${endpoints.join(', ')}`;
  if (from === undefined) return named.map((endpoint) => ({ endpoint }));
  if (others.length > 0) return `${quote(entry)} contains "from" ${others.length + 1} times, but only one is allowed`;
  const ranges = splitWords(from);
  const wrong = ranges.find((range) => !isRange(range));
  if (wrong !== undefined)
    return `${quote(wrong)} in ${quote(entry)} is not an address or a range such as 192.0.2.0/24 or 2001:db8::/32`;
  if (ranges.length === 0) return `${quote(entry)} has no address after "from"`;
  return named.map((endpoint) => ({ endpoint, ranges }));
}

function findEndpoints(what: string): readonly Endpoint[] {
  if (what === 'all') return endpoints;
  if (what === 'read') return endpoints.filter((endpoint) => endpoint.startsWith('GET '));
  return endpoints.filter((endpoint) => endpoint === what.replace(/\s+/, ' '));
}

/**
 * Matches a path that begins with one of the gateway's own paths, such as `/graphql`. The public URL must not contain
 * such a path.
 */
const OWN_PATH = /^\/(graphql|health|metrics|tape_control|tape_rest|webdav)(\/|$)/i;

export function parsePublicUrl(text: string): string | undefined {
  if (!/^https?:\/\//i.test(text) || !URL.canParse(text)) return undefined;
  const { origin, pathname, search, hash, username, password } = new URL(text);
  if (search + hash + username + password !== '' || OWN_PATH.test(pathname)) return undefined;
  return (origin + pathname).replace(/\/+$/, '');
}

/**
 * Parses a web origin. Rejects `*`, because any website could then send requests from a user's browser and use up
 * quotas.
 */
export function parseOrigin(text: string): string | undefined {
  if (!/^https?:\/\/[^/?#@]+\/?$/i.test(text) || !URL.canParse(text)) return undefined;
  return new URL(text).origin;
}

export function parseHeaderName(text: string): string | undefined {
  return /^[\w!#$%&'*+.^`|~-]+$/.test(text) ? text : undefined;
}

export function parseHost(text: string): string | undefined {
  const host = isIPv6(text) ? `[${text}]` : text;
  const isHost = (/^[\w.-]+$/.test(host) || host.startsWith('[')) && URL.canParse(`http://${host}/`);
  return isHost ? new URL(`http://${host}/`).hostname : undefined;
}

/** Parses a host and its gateway's URL, such as `host1=https://host1.example.org:8443`. */
export function parseGateway(part: string): [host: string, url: string] | undefined {
  const [, host, url = ''] = /^([\w.-]+)=(https?:\/\/[^\s,]+?)\/*$/.exec(part) ?? [];
  if (host === undefined || !URL.canParse(url)) return undefined;
  const { search, hash, username, password } = new URL(url);
  return search + hash + username + password === '' ? [host, url] : undefined;
}

/**
 * Parses a port, with or without an address: `9464`, `0.0.0.0:9464` or `[::]:9464`. The default address is 127.0.0.1.
 */
export function parseListener(text: string): { host: string; port: number } | undefined {
  const [, bracketed, bare, digits = ''] = /^(?:(?:\[([^\]]+)\]|([\w.-]+)):)?(\d{1,5})$/.exec(text) ?? [];
  const port = digits === '' ? Number.NaN : Number(digits);
  return port <= 65_535 && (bracketed === undefined || isIPv6(bracketed))
    ? { host: bracketed ?? bare ?? '127.0.0.1', port }
    : undefined;
}

export function parseSender(text: string): string | undefined {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters must not get into a header
  return text.includes('@') && !/[\u0000-\u001f\u007f]/.test(text) ? text : undefined;
}

export function parseMailTo(text: string): MailTo | undefined {
  if (text === 'anywhere' || text === 'quota') return text;
  const domains = text.split(',').map((domain) => domain.trim().toLowerCase());
  return domains.every((domain) => /^[^\s@.,]+(\.[^\s@.,]+)+$/.test(domain)) ? domains : undefined;
}

/** Parses a directory's absolute path, and removes a trailing slash. */
export function parseDirectory(text: string): string | undefined {
  const directory = path.posix.normalize(text);
  const bare = directory === '/' ? directory : directory.replace(/\/$/, '');
  return text.startsWith('/') && [bare, `${bare}/`].includes(text) && !text.includes('\0') ? bare : undefined;
}

export function parsePermissions(text: string): number | undefined {
  return /^0?[0-7]{3}$/.test(text) ? Number.parseInt(text, 8) : undefined;
}

/** Returns the gid of a group. Runs `getent`, which also finds groups in a directory service such as LDAP. */
export function findGroup(name: string): number | undefined {
  if (/^\d{1,9}$/.test(name)) return Number(name);
  if (!/^[\w.][\w.@-]*$/.test(name)) return undefined;
  try {
    const line = execFileSync('getent', ['group', name], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    return Number(line.split(':')[2]);
  } catch {
    return undefined;
  }
}
