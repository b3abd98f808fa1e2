/** Parses network addresses and ranges from the settings, and tests whether a range contains an address. */
import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';
import { remember } from '../remembered.js';

export type AddressRanges = readonly string[];

export function splitWords(text: string): string[] {
  return text.split(/[\s,]+/).filter((word) => word !== '');
}

export function isRange(text: string): boolean {
  const [, address = '', prefix] = /^([^/]*)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const family = isIP(address);
  return family !== 0 && Number(prefix ?? 0) <= (family === 4 ? 32 : 128) && !address.includes('%');
}

/** Returns a function that tests whether an address is in one of the ranges. The function caches its results. */
export function createRangeTest(ranges: AddressRanges): (address: string) => boolean {
  if (ranges.length === 0) return () => false;
  const list = new BlockList();
  for (const range of ranges) {
    const [address = '', prefix] = range.split('/');
    const family = isIPv4(address) ? 'ipv4' : 'ipv6';
    if (prefix === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(prefix), family);
  }
  return remember((address) => {
    if (isIPv4(address)) return list.check(address);
    return isIPv6(address) && list.check(address, 'ipv6');
  });
}

const isOfLoopback = createRangeTest(['127.0.0.0/8', '::1']);

export function isLoopback(host: string): boolean {
  return isOfLoopback(host) || host === 'localhost';
}

/**
 * Returns whether an address belongs to this host. Reads the network interfaces on each call, because the interfaces
 * can change.
 */
export function isOfThisHost(address: string): boolean {
  if (isOfLoopback(address)) return true;
  const own = Object.values(networkInterfaces()).flatMap((each = []) => each);
  return own.some((each) => each.address.replace(/%.*$/, '') === address);
}

/** Returns whether a range contains a loopback address, or is a single address of this host. */
export function isLocalRange(range: string): boolean {
  const [address = '', prefix] = range.split('/');
  const contains = createRangeTest([range]);
  if (isOfLoopback(normalAddress(address)) || contains('127.0.0.1') || contains('::1')) return true;
  return prefix === undefined && isOfThisHost(normalAddress(address));
}

/** Converts an IPv4 address in IPv6 form (`::ffff:192.0.2.1`) to IPv4, and any other address to lower case. */
export function normalAddress(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.\d+\.\d+\.\d+$)/i, '').toLowerCase();
}
