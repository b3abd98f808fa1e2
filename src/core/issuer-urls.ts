/** URLs of identity providers. */
import { isLoopback } from './address-ranges.js';

/** Returns whether another host cannot change the answers of a URL: it is https, or http of this host, without a user or a query. */
export function isTrustworthyUrl(text: string): boolean {
  if (!URL.canParse(text) || /[?#]/.test(text)) return false;
  const { protocol, hostname, username, password } = new URL(text);
  if (username !== '' || password !== '') return false;
  return protocol === 'https:' || (protocol === 'http:' && isLoopback(bareHost(hostname)));
}

/** Returns the suffix that distinguishes the users of an issuer from the users of other issuers: its address without a scheme and without an @. */
export function namesOfIssuer(issuer: string): string {
  const { host, pathname } = new URL(issuer);
  return `${host}${pathname.replace(/\/+$/, '')}`.replaceAll('@', '%40');
}

/** Removes the brackets that an IPv6 address has in URLs. */
export function bareHost(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '');
}
