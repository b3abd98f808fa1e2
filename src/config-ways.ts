/** The settings of the ways to know a caller: identity providers, proxies, and callers who show nothing. */
import { readFileSync } from 'node:fs';
import { type AddressRanges, isLoopback, parseRanges } from './address-ranges.js';
import type { Role, Way } from './caller.js';
import { type LegacyRule, parseLegacy, usualLegacy } from './config-legacy.js';
import { messageOf } from './errors.js';

/** The roles that a group or a name may bring: a service acts for named users, which a token says. */
const grantable = ['user', 'viewer', 'operator'] as const satisfies readonly Role[];

/** A role, and the group or the user that has it. */
export interface RoleRule {
  role: (typeof grantable)[number];
  kind: 'group' | 'user';
  name: string;
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
  /** The variable as it is: undefined where it is unset, and not where it is empty. */
  given(name: string): string | undefined;
  /** Notes a fault in words of its own. */
  refuse(fault: string): void;
}

const ROLES = `a list of ${grantable.join('=, ')}=, each followed by a group, or by user: and a name`;

/** Those of some ways alone, and of which. */
export const settingsOfWays = {
  OIDC_ISSUER: ['oidc'],
  OIDC_AUDIENCE: ['oidc'],
  OIDC_USER_CLAIM: ['oidc'],
  OIDC_GROUPS_CLAIM: ['oidc'],
  OIDC_ROLES: ['oidc'],
  OIDC_CLOCK_SKEW: ['oidc'],
  OIDC_CLIENT_ID: ['oidc'],
  PROXY_USER_HEADER: ['proxy'],
  PROXY_GROUPS_HEADER: ['proxy'],
  PROXY_CERT_HEADER: ['certificate'],
  PROXY_CERT_VERIFY_HEADER: ['certificate'],
  PROXY_CERT_USERS: ['certificate'],
  PROXY_ROLES: ['proxy', 'certificate'],
  LEGACY: ['legacy'],
} as const satisfies Record<string, readonly Way[]>;

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
    legacy:
      parsed('LEGACY', (value) => parseLegacy(value, refuse), 'a list') ?? (auth.has('legacy') ? usualLegacy : []),
  };
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
