/** Addresses of the network, and ranges of them, as the configuration names them. */
import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';
import { remember } from './remembered.js';

/** Addresses, and ranges such as 192.0.2.0/24 and 2001:db8::/32, in the order in which they were given. */
export type AddressRanges = readonly string[];

/** Separated by commas or spaces; undefined where one of them is neither an address nor a range. */
export function parseRanges(text: string): AddressRanges | undefined {
  const ranges = splitRanges(text);
  return ranges.length > 0 && ranges.every(isRange) ? ranges : undefined;
}

/** As they are written, be they ranges or not. */
export function splitRanges(text: string): string[] {
  return text.split(/[\s,]+/).filter((range) => range !== '');
}

export function isRange(text: string): boolean {
  const [, address = '', prefix] = /^([^/]*)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const family = isIP(address);
  return family !== 0 && Number(prefix ?? 0) <= (family === 4 ? 32 : 128) && !address.includes('%');
}

/** @returns whether an address is in one of them; what is no address is in none. A look at the list makes an object of the address. */
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

/** Does nobody but this host reach it? An address, or a name that always is this host. */
export function isLoopback(host: string): boolean {
  return isOfLoopback(host) || host === 'localhost';
}

/** As people write it: an address of IPv4 that came in by IPv6 is one of IPv4. */
export function normalAddress(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.\d+\.\d+\.\d+$)/i, '').toLowerCase();
}
