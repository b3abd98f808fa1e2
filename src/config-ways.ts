/** The settings of the ways to know a caller: identity providers, proxies, and callers who show nothing. */
import { readFileSync } from 'node:fs';
import { type AddressRanges, isLoopback, parseRanges } from './address-ranges.js';
import type { Role, Way } from './caller.js';
import { messageOf } from './errors.js';

/** The roles that a group or a name may bring: a service acts for named users, which a token says. */
const grantable = ['user', 'viewer', 'operator'] as const satisfies readonly Role[];

/** A role, and the group or the user that has it. */
export interface RoleRule {
  role: (typeof grantable)[number];
  kind: 'group' | 'user';
  name: string;
}

/** The endpoints of the REST contract. */
export const endpoints = [
  'GET /requests',
  'GET /requests/{id}',
  'GET /files',
  'GET /quota/{user}',
  'POST /requests',
  'PUT /requests/{id}',
] as const;
export type Endpoint = (typeof endpoints)[number];

/** An endpoint that is open to callers who show nothing; from anywhere unless `ranges` says from where. */
export interface LegacyRule {
  endpoint: Endpoint;
  ranges?: AddressRanges;
}

/** A setting each, of a variable of the environment. */
export interface WaysConfig {
  /** URLs of the issuers whose bearer tokens are taken. */
  oidcIssuers: readonly string[];
  /** A token must be for one of these. */
  oidcAudiences: readonly string[];
  /** Which claim is the user's name. */
  oidcUserClaim: string;
  /** The first of these that a token has holds its groups. */
  oidcGroupsClaims: readonly string[];
  oidcRoles: readonly RoleRule[];
  /** Seconds by which an issuer's clock may be off. */
  oidcClockSkew: number;
  /** Of the command line, where an issuer knows it. */
  oidcClientId: string | undefined;
  /** Whose word on the client is taken. */
  proxyAddresses: AddressRanges;
  /** Names of headers, in small letters. */
  proxyUserHeader: string;
  proxyGroupsHeader: string | undefined;
  proxyCertHeader: string;
  proxyCertVerifyHeader: string;
  proxyRoles: readonly RoleRule[];
  /** Users by the subject of their certificate. */
  proxyCertUsers: Readonly<Record<string, string>>;
  legacy: readonly LegacyRule[];
}

/** What reads one setting each, and notes what is wrong with it. */
export interface Reader {
  parsed<T>(name: string, parse: (value: string) => T | undefined, expected: string): T | undefined;
  /** Notes a fault in words of its own. */
  refuse(fault: string): void;
}

const ROLES = `a list of ${grantable.join('=, ')}=, each followed by a group, or by user: and a name`;
const LEGACY = `none, or a list of read, all or endpoints of the REST contract, each with "from" and addresses where not everybody has it`;

/** @param auth the ways that are configured */
export function readWays({ parsed, refuse }: Reader, auth: ReadonlySet<Way>): WaysConfig {
  const header = (name: string) => parsed(name, parseHeaderName, 'the name of a header');
  const config: WaysConfig = {
    oidcIssuers:
      parsed('OIDC_ISSUER', parseIssuers, 'URLs that begin with https://, without a query; http:// of this host') ?? [],
    oidcAudiences: parsed('OIDC_AUDIENCE', parseList, 'a list of names or URLs') ?? [],
    oidcUserClaim: parsed('OIDC_USER_CLAIM', parseWord, 'the name of a claim') ?? 'sub',
    oidcGroupsClaims: parsed('OIDC_GROUPS_CLAIM', parseList, 'a list of claims') ?? ['wlcg.groups', 'groups'],
    oidcRoles: parsed('OIDC_ROLES', parseRoles, ROLES) ?? [],
    oidcClockSkew: parsed('OIDC_CLOCK_SKEW', parseSkew, 'a whole number of seconds from 0 to 600') ?? 60,
    oidcClientId: parsed('OIDC_CLIENT_ID', parseWord, 'the id of a client'),
    proxyAddresses: parsed('PROXY_ADDRESSES', parseRanges, 'a list of addresses and ranges such as 192.0.2.0/24') ?? [],
    proxyUserHeader: header('PROXY_USER_HEADER') ?? 'x-remote-user',
    proxyGroupsHeader: header('PROXY_GROUPS_HEADER'),
    proxyCertHeader: header('PROXY_CERT_HEADER') ?? 'x-ssl-client-s-dn',
    proxyCertVerifyHeader: header('PROXY_CERT_VERIFY_HEADER') ?? 'x-ssl-client-verify',
    proxyRoles: parsed('PROXY_ROLES', parseRoles, ROLES) ?? [],
    proxyCertUsers: parsed('PROXY_CERT_USERS', (file) => readCertUsers(file, refuse), 'a file') ?? {},
    legacy: parsed('LEGACY', parseLegacy, LEGACY) ?? (auth.has('legacy') ? findEndpoints('read').map(anywhere) : []),
  };
  if (config.legacy.length > 0 && !auth.has('legacy')) refuse('LEGACY opens nothing unless AUTH has legacy');
  if (auth.has('oidc') && (config.oidcIssuers.length === 0 || config.oidcAudiences.length === 0)) {
    refuse(
      'AUTH has oidc, which needs OIDC_ISSUER, and OIDC_AUDIENCE that says which of its tokens are for this gateway',
    );
  }
  checkIssuerNames(config.oidcIssuers, refuse);
  if ((auth.has('proxy') || auth.has('certificate')) && config.proxyAddresses.length === 0) {
    refuse('AUTH has proxy or certificate, which need PROXY_ADDRESSES: nobody else is believed');
  }
  return config;
}

function parseList(text: string): string[] | undefined {
  const words = text.split(/[\s,]+/).filter((word) => word !== '');
  return words.length > 0 ? words : undefined;
}

function parseWord(text: string): string | undefined {
  return /^\S+$/.test(text) ? text : undefined;
}

function parseSkew(text: string): number | undefined {
  return /^\d{1,3}$/.test(text) && Number(text) <= 600 ? Number(text) : undefined;
}

function parseHeaderName(text: string): string | undefined {
  return /^[\w!#$%&'*+.^`|~-]+$/.test(text) ? text.toLowerCase() : undefined;
}

function parseIssuers(text: string): string[] | undefined {
  return parseList(text)?.every(isTrustworthyUrl) ? parseList(text) : undefined;
}

/** By which the names of an issuer's users are told from those of others: without its scheme, and without an @. */
export function namesOfIssuer(issuer: string): string {
  const { host, pathname } = new URL(issuer);
  return `${host}${pathname.replace(/\/+$/, '')}`.replaceAll('@', '%40');
}

function checkIssuerNames(issuers: readonly string[], refuse: Reader['refuse']): void {
  const names = issuers.map(namesOfIssuer);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice === undefined) return;
  refuse(`OIDC_ISSUER has several issuers with the address ${twice}: users of one would be taken for those of another`);
}

/** Nobody on the way can change what it says: an issuer's address, and all that an issuer says of itself. */
export function isTrustworthyUrl(text: string): boolean {
  if (!URL.canParse(text) || /[?#]/.test(text)) return false;
  const { protocol, hostname, username, password } = new URL(text);
  if (username !== '' || password !== '') return false;
  return protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname.replace(/^\[|\]$/g, '')));
}

function parseRoles(text: string): RoleRule[] | undefined {
  const rules = text.split(',').map((entry): RoleRule | undefined => {
    const [, word, prefix, name = ''] = /^\s*(\w+)\s*=\s*(user:)?(.*?)\s*$/s.exec(entry) ?? [];
    const role = grantable.find((each) => each === word);
    return role && name !== '' ? { role, kind: prefix === undefined ? 'group' : 'user', name } : undefined;
  });
  const known = rules.filter((rule) => rule !== undefined);
  return known.length === rules.length ? known : undefined;
}

/** `read, POST /requests from 192.0.2.0/24 192.0.2.7`; `none` closes all. */
function parseLegacy(text: string): LegacyRule[] | undefined {
  if (text.trim() === 'none') return [];
  const rules: LegacyRule[] = [];
  for (const entry of text.split(',')) {
    const [what = '', from, ...others] = entry.trim().split(/\s+from\s+/);
    const ranges = from === undefined ? undefined : parseRanges(from);
    const named = findEndpoints(what);
    if (named.length === 0 || others.length > 0 || (from !== undefined && !ranges)) return undefined;
    rules.push(...named.map((endpoint) => ({ endpoint, ...(ranges && { ranges }) })));
  }
  return rules;
}

const anywhere = (endpoint: Endpoint): LegacyRule => ({ endpoint });

function findEndpoints(what: string): readonly Endpoint[] {
  if (what === 'all') return endpoints;
  if (what === 'read') return endpoints.filter((endpoint) => endpoint.startsWith('GET '));
  return endpoints.filter((endpoint) => endpoint === what.replace(/\s+/, ' '));
}

/** A line each, as grid-mapfiles have them: the subject in quotes, and its user. */
const CERT_USER = /^"(.+)"\s+(\S+)$/;

function readCertUsers(file: string, refuse: Reader['refuse']): Record<string, string> {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    refuse(`PROXY_CERT_USERS cannot be read: ${messageOf(error)}`);
    return {};
  }
  const lines = text.split('\n').map((line, index) => ({ line: line.trim(), number: index + 1 }));
  const entries = lines.filter(({ line }) => line !== '' && !line.startsWith('#'));
  const wrong = entries.find(({ line }) => !CERT_USER.test(line));
  if (wrong)
    refuse(
      `PROXY_CERT_USERS must have a subject in quotes and a user in each line, not in line ${wrong.number} of ${file}`,
    );
  return Object.fromEntries(
    entries.flatMap(({ line }) => {
      const [, subject, user] = CERT_USER.exec(line) ?? [];
      return subject !== undefined && user !== undefined ? [[subject, user]] : [];
    }),
  );
}
