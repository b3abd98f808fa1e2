/** As what an address counts where something is limited for each. */
import { ipKeyGenerator } from 'express-rate-limit';

/** Who has an IPv6 address mostly has all of its network: those count together. */
const IPV6_NETWORK_BITS = 56;

/** @param address of a connection; one that has ended has none */
export function addressKey(address: string | undefined): string {
  const plain = (address ?? '').replace(/^::ffff:(?=\d+\.)/, '');
  return plain.includes(':') ? ipKeyGenerator(plain, IPV6_NETWORK_BITS) : plain;
}
