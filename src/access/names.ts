/** The names of callers, as those who know them give them: each is one person's, whoever gives it. */
import type { AccessConfig } from '../config.js';
import { quote } from '../errors.js';
import { namesOfIssuer } from '../issuer-urls.js';
import { isPlainName } from '../operations/input.js';
import { unauthenticated } from './credentials.js';

const MAX_NAME = 255;

/** @throws HttpError 401 */
export function checkName(name: string, source: string): string {
  if (name.length <= MAX_NAME && isPlainName(name)) return name;
  throw unauthenticated(
    `the user that ${source} names must have 1 to ${MAX_NAME} characters in normal form (NFC), none of them unseen, and no space at its ends`,
  );
}

/**
 * What an issuer calls a user or a group, as it is called here. Names are unique within an issuer: those of the first are as they are, and
 * those of any other end in its own.
 */
export function nameOfIssuer({ oidcIssuers }: AccessConfig, issuer: string, given: string): string {
  return issuer === oidcIssuers[0] ? given : `${given}@${namesOfIssuer(issuer)}`;
}

/**
 * Whoever else gives names may give none that an issuer's users and groups are called by, or one could be taken for the other.
 * @throws HttpError 401
 */
export function checkNoIssuers({ auth, oidcIssuers }: AccessConfig, names: readonly string[], source: string): void {
  if (!auth.has('oidc') || oidcIssuers.length < 2) return;
  const ends = new Set(oidcIssuers.slice(1).map(namesOfIssuer));
  // no end has an @ in it
  const taken = names.find((name) => name.includes('@') && ends.has(name.slice(name.lastIndexOf('@') + 1)));
  if (taken === undefined) return;
  throw unauthenticated(`${source} names ${quote(taken)}, as only a listed issuer (OIDC_ISSUER) may`);
}
