/**
 * Identifies callers whom a proxy has authenticated, by a header that contains the user's name or certificate subject.
 * Rejects a request with an identity header if the sender is not a listed proxy.
 */
import type { IncomingMessage } from 'node:http';
import type { AccessConfig } from '../../config/config.js';
import type { RoleRule } from '../../config/setting-values.js';
import type { Role } from '../../core/caller.js';
import { quote } from '../../core/errors.js';
import { addressOf, isProxied, SECRET_HEADER } from '../http/address.js';
import { checkName, checkNoIssuers, type Identity } from './callers.js';
import { unauthenticated } from './credentials.js';

/**
 * Returns the identity from the header that contains the user's name; undefined if the header is absent.
 * @throws HttpError 401
 */
export function readProxyUser(access: AccessConfig, req: IncomingMessage): Identity | undefined {
  const { proxyHeaders, proxyRoles } = access;
  const user = readHeader(access, req, proxyHeaders.user);
  const groups = proxyHeaders.groups === undefined ? undefined : readHeader(access, req, proxyHeaders.groups);
  if (user === undefined && groups === undefined) return undefined;
  if (user === undefined)
    throw unauthenticated(`the request has the header ${proxyHeaders.groups}, but not the header ${proxyHeaders.user}`);
  const name = checkName(user, `the header ${proxyHeaders.user}`);
  const named = (groups ?? '').split(/[,;]/).map((group) => group.replace(/^ +| +$/g, ''));
  const own = named.filter((group) => group !== '');
  checkNoIssuers(access, [name, ...own], 'the proxy');
  return { name, way: 'proxy', roles: rolesOf(proxyRoles, name, own), groups: own };
}

/**
 * Returns the identity from the header that contains a verified client certificate's subject; undefined if the header
 * is absent.
 * @throws HttpError 401
 */
export function readCertificateUser(access: AccessConfig, req: IncomingMessage): Identity | undefined {
  const { proxyHeaders, proxyRoles } = access;
  const subject = readHeader(access, req, proxyHeaders.subject);
  const verified = readHeader(access, req, proxyHeaders.verified);
  if (subject === undefined || verified === 'NONE') return undefined;
  if (verified !== 'SUCCESS') {
    throw unauthenticated(
      `the proxy has not verified the client certificate: the header ${proxyHeaders.verified} must be SUCCESS`,
    );
  }
  const name = checkName(userOfSubject(access, subject), 'the client certificate');
  return { name, way: 'certificate', roles: rolesOf(proxyRoles, name, []), groups: [] };
}

function userOfSubject(access: AccessConfig, subject: string): string {
  const { proxyCertUsers } = access;
  if (Object.hasOwn(proxyCertUsers, subject)) return proxyCertUsers[subject] ?? '';
  const user = readCommonName(subject);
  if (user !== undefined) {
    checkNoIssuers(access, [user], 'the client certificate');
    return user;
  }
  throw unauthenticated(
    `the client certificate of ${quote(subject)} does not map to a user: the certificate must have exactly one common name`,
  );
}

/**
 * Returns the roles that the site's rules assign to a user or to one of the user's groups. All authenticated callers
 * have the role `user`, unless a rule assigns this role to certain callers.
 */
export function rolesOf(rules: readonly RoleRule[], name: string, groups: readonly string[]): ReadonlySet<Role> {
  const matches = ({ kind, name: wanted }: RoleRule) => (kind === 'user' ? wanted === name : groups.includes(wanted));
  const given: Role[] = rules.filter(matches).map(({ role }) => role);
  return new Set(rules.some(({ role }) => role === 'user') ? given : ['user', ...given]);
}

/**
 * Returns the value that a proxy has set for a header; undefined if the header is absent or empty.
 * @throws HttpError 401 if the sender is not a listed proxy, or if the header occurs twice
 */
function readHeader({ proxySecret }: AccessConfig, req: IncomingMessage, name: string): string | undefined {
  const values = req.headersDistinct[name] ?? [];
  if (values.length === 0) return undefined;
  if (!isProxied(req)) {
    const reason =
      proxySecret !== undefined ? `but the request has no valid ${SECRET_HEADER}` : `not from ${addressOf(req)}`;
    throw unauthenticated(`the header ${name} is accepted only from a proxy in TAPEGATE_PROXY_ADDRESSES, ${reason}`);
  }
  if (values.length > 1) throw unauthenticated(`the header ${name} must be sent once, not ${values.length} times`);
  // do not trim the value: any remaining white space is part of the user name
  const value = Buffer.from(values[0] ?? '', 'latin1').toString('utf8');
  return value === '' || value === '(null)' ? undefined : value;
}

const TYPE = /^(?:[A-Za-z][A-Za-z0-9-]*|\d+(?:\.\d+)*)$/;

/** Splits a certificate's subject into escapes, special characters and text. Runs in linear time. */
const PARTS = /\\[\s\S]|[^\\",+;<>]+|[\s\S]/g;

/**
 * @returns the common name in a subject; undefined if the subject has no common name, or several. Ignores names in
 * subjects like `/O=Example/CN=Ada`, in which a `/` inside a value is not escaped
 */
function readCommonName(subject: string): string | undefined {
  const attributes = [''];
  for (const part of subject.match(PARTS) ?? []) {
    if (/^[,+;]$/.test(part)) attributes.push('');
    else if (/^[\\"<>]$/.test(part)) return undefined;
    else attributes.push(attributes.pop() + part);
  }
  if (attributes.at(-1) === '') attributes.pop();
  const names: string[] = [];
  for (const attribute of attributes) {
    const at = attribute.indexOf('=');
    const [type, value] = [attribute.slice(0, Math.max(at, 0)).trim(), attribute.slice(at + 1).trimStart()];
    if (!TYPE.test(type) || value.startsWith('#')) return undefined;
    if (/^(cn|2\.5\.4\.3)$/i.test(type)) names.push(unescapeValue(trimValue(value)));
  }
  return names.length === 1 && names[0] !== '' ? names[0] : undefined;
}

function trimValue(value: string): string {
  let end = value.length;
  while (value[end - 1] === ' ' && value[end - 2] !== '\\') end--;
  return value.slice(0, end);
}

/**
 * Decodes escapes in a certificate subject. An escape like `\2C` is a byte of UTF-8; any other backslash escapes the
 * next character.
 */
function unescapeValue(text: string): string {
  const bytes = text.match(/\\[0-9A-Fa-f]{2}|\\?[\s\S]/gu) ?? [];
  const parts = bytes.map((part) => {
    if (/^\\[0-9A-Fa-f]{2}$/.test(part)) return Buffer.from(part.slice(1), 'hex');
    return Buffer.from(part.length > 1 && part.startsWith('\\') ? part.slice(1) : part);
  });
  return Buffer.concat(parts).toString('utf8');
}
