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

/** @param host where the gateway listens */
export function readAccess(reader: Reader, host: string): AccessConfig {
  const { parsed, refuse } = reader;
  const given = parsed('AUTH', parseWays, `a list of ${configurableWays.join(', ')}`);
  if (given === undefined && !isLoopback(host)) {
    refuse(
      `AUTH must be given where others reach the gateway, and HOST is ${JSON.stringify(host)}: token, oidc, proxy or certificate say who comes in, and open lets everybody in`,
    );
  }
  const auth = given ?? new Set<ConfigurableWay>(['token', 'open']);
  return { auth, ...readWays(reader, auth) };
}

function parseWays(text: string): ReadonlySet<ConfigurableWay> | undefined {
  const given = text.split(',').map((word) => word.trim());
  const known = configurableWays.filter((way) => given.includes(way));
  return known.length === new Set(given).size ? new Set(known) : undefined;
}
