/** The settings of who may come in. */
import { isLoopback } from './address-ranges.js';
import type { Way } from './caller.js';
import { type Reader, readWays, settingsOfWays, type WaysConfig } from './config-ways.js';

/** The ways that may be configured, in the order in which they are tried. */
export const configurableWays = [
  'token',
  'oidc',
  'proxy',
  'certificate',
  'legacy',
  'open',
] as const satisfies readonly Way[];
export type ConfigurableWay = (typeof configurableWays)[number];

export interface AccessConfig extends WaysConfig {
  /** How callers are known. */
  auth: ReadonlySet<ConfigurableWay>;
}

/** Where a gateway listens, and by which names it is found there. */
interface Place {
  host: string;
  publicUrl: string | undefined;
  allowedHosts: readonly string[];
}

/** @param place of a gateway; undefined for what does not listen, and so opens nothing */
export function readAccess(reader: Reader, place: Place | undefined): AccessConfig {
  const given = reader.parsed('AUTH', parseWays, `a list of ${configurableWays.join(', ')}`);
  const auth = given ?? new Set<ConfigurableWay>(['token', 'open']);
  const ways = readWays(reader, auth);
  if (place) checkDoor(reader, place, { auth, isGiven: given !== undefined, ways });
  return { auth, ...ways };
}

/** What an empty variable, as compose files leave where another one is unset, would open without a word. */
const emptyDoors: { name: string; of: readonly ConfigurableWay[]; unset: string }[] = [
  { name: 'LEGACY', of: ['legacy'], unset: 'it opens all that is read, and none closes all' },
  { name: 'OIDC_ROLES', of: ['oidc'], unset: 'it makes everybody a user who is known' },
  { name: 'PROXY_ROLES', of: ['proxy', 'certificate'], unset: 'it makes everybody a user who is known' },
];

interface Door {
  auth: AccessConfig['auth'];
  /** Does AUTH say so? */
  isGiven: boolean;
  ways: WaysConfig;
}

/** A gateway is open as far as somebody has said, and who has said more than holds is told. */
function checkDoor({ given, refuse }: Reader, place: Place, { auth, isGiven, ways }: Door): void {
  for (const { name, of, unset } of emptyDoors) {
    if (given(name) === '' && of.some((way) => auth.has(way))) refuse(`${name} must not be empty: unset, ${unset}`);
  }
  if (given('AUTH') === '') {
    refuse('AUTH must not be empty: unset, it opens the gateway to whoever asks');
    return;
  }
  const sign = isGiven ? undefined : findSignOfOthers(place, ways);
  if (sign) {
    const [name, value] = sign;
    refuse(
      `AUTH must be given where others reach the gateway, and ${name} is ${JSON.stringify(value)}: token, oidc, proxy or certificate say who comes in, and open lets everybody in`,
    );
    return;
  }
  for (const [name, of] of Object.entries(settingsOfWays)) {
    const isUsed = of.some((way) => auth.has(way)) || (name === 'LEGACY' && ways.legacy.length === 0);
    if (given(name) && !isUsed) refuse(`${name} does nothing unless AUTH has ${of.join(' or ')}`);
  }
}

/**
 * A gateway that listens on loopback is reached by others through what is in front of it, a proxy or a tunnel, and sees them all as
 * local. Nobody sets any of these for a gateway of this host alone.
 * @returns a variable that says so, and its value
 */
function findSignOfOthers(
  { host, publicUrl, allowedHosts }: Place,
  { proxyAddresses, oidcIssuers }: WaysConfig,
): [string, string] | undefined {
  if (!isLoopback(host)) return ['HOST', host];
  if (publicUrl !== undefined && !isLoopback(bare(new URL(publicUrl).hostname))) return ['PUBLIC_URL', publicUrl];
  const name = allowedHosts.find((each) => !isLoopback(bare(each)));
  if (name !== undefined) return ['ALLOWED_HOSTS', name];
  if (proxyAddresses.length > 0) return ['PROXY_ADDRESSES', proxyAddresses.join(',')];
  return oidcIssuers.length > 0 ? ['OIDC_ISSUER', oidcIssuers.join(' ')] : undefined;
}

/** In URLs an address of IPv6 has brackets. */
const bare = (hostname: string): string => hostname.replace(/^\[|\]$/g, '');

function parseWays(text: string): ReadonlySet<ConfigurableWay> | undefined {
  const given = text.split(',').map((word) => word.trim());
  const known = configurableWays.filter((way) => given.includes(way));
  return known.length === new Set(given).size ? new Set(known) : undefined;
}
