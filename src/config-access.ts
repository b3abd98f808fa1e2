/** The settings of who may come in. */
import { BlockList, isIPv4, isIPv6 } from 'node:net';
import type { Way } from './caller.js';

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

export interface AccessConfig {
  /** How callers are known. */
  auth: ReadonlySet<ConfigurableWay>;
}

/** What reads one setting each, and notes what is wrong with it. */
export interface Reader {
  parsed<T>(name: string, parse: (value: string) => T | undefined, expected: string): T | undefined;
  /** Notes a fault in words of its own. */
  refuse(fault: string): void;
}

/** @param host where the gateway listens */
export function readAccess({ parsed, refuse }: Reader, host: string): AccessConfig {
  const given = parsed('AUTH', parseWays, `a list of ${configurableWays.join(', ')}`);
  if (given === undefined && !isLoopback(host)) {
    refuse(
      `AUTH must be given where others reach the gateway, and HOST is ${JSON.stringify(host)}: token, oidc, proxy or certificate say who comes in, and open lets everybody in`,
    );
  }
  return { auth: given ?? new Set(['token', 'open']) };
}

function parseWays(text: string): ReadonlySet<ConfigurableWay> | undefined {
  const given = text.split(',').map((word) => word.trim());
  const known = configurableWays.filter((way) => given.includes(way));
  return known.length === new Set(given).size ? new Set(known) : undefined;
}

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8);
loopback.addAddress('::1', 'ipv6');

/** Does nobody but this host reach it? An address, or a name that always is this host. */
export function isLoopback(host: string): boolean {
  if (isIPv4(host)) return loopback.check(host);
  if (isIPv6(host)) return loopback.check(host, 'ipv6');
  return host === 'localhost';
}
