/** The settings of who may come in. */
import { isLoopback } from './address-ranges.js';
import type { Way } from './caller.js';
import { type Reader, readWays, type WaysConfig } from './config-ways.js';

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
  const { parsed, refuse } = reader;
  const given = parsed('AUTH', parseWays, `a list of ${configurableWays.join(', ')}`);
  const auth = given ?? new Set<ConfigurableWay>(['token', 'open']);
  const ways = readWays(reader, auth);
  const sign = given === undefined && place ? findSignOfOthers(place, ways) : undefined;
  if (sign) {
    const [name, value] = sign;
    refuse(
      `AUTH must be given where others reach the gateway, and ${name} is ${JSON.stringify(value)}: token, oidc, proxy or certificate say who comes in, and open lets everybody in`,
    );
  }
  return { auth, ...ways };
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
