/** Checks the URLs of identity providers, and derives suffixes for user names from the URLs. */
import { isLoopback } from './address-ranges.js';

/**
 * Returns whether a URL is protected against tampering by other hosts. The URL must use https, or http on this host,
 * and must not contain a user or a query.
 */
export function isTrustworthyUrl(text: string): boolean {
  if (!URL.canParse(text) || /[?#]/.test(text)) return false;
  const { protocol, hostname, username, password } = new URL(text);
  if (username !== '' || password !== '') return false;
  return protocol === 'https:' || (protocol === 'http:' && isLoopback(bareHost(hostname)));
}

/**
 * Returns the suffix that distinguishes an issuer's user names from those of other issuers. The suffix is the issuer's
 * URL without its scheme, with each at sign escaped as `%40`.
 */
export function namesOfIssuer(issuer: string): string {
  const { host, pathname } = new URL(issuer);
  return `${host}${pathname.replace(/\/+$/, '')}`.replaceAll('@', '%40');
}

/** Removes the brackets around an IPv6 address in a URL. */
export function bareHost(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '');
}
