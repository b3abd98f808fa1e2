/**
 * Decides which addresses webhooks may call. Engines inside the site's network send webhooks to URLs that users choose.
 * Private addresses are therefore allowed only if TAPEGATE_WEBHOOK_HOSTS lists them.
 */
import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import { createRangeTest, isLoopback, isRange, normalAddress, splitWords } from './address-ranges.js';

/** Host names, addresses and ranges in the site's network that webhooks may call, even without TLS. */
export type WebhookHosts = readonly string[];

export function parseWebhookHosts(text: string): WebhookHosts | undefined {
  const hosts = splitWords(text);
  const isKnown = (host: string) => isRange(host) || (!host.includes('/') && /^[a-z\d]([\w.-]*[a-z\d])?$/i.test(host));
  return hosts.length > 0 && hosts.every(isKnown) ? hosts.map((host) => host.toLowerCase()) : undefined;
}

const isSpecial4 = createRangeTest([
  ...['0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12', '192.0.0.0/24'],
  ...['192.0.2.0/24', '192.88.99.0/24', '192.168.0.0/16', '198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24'],
  ...['224.0.0.0/4', '240.0.0.0/4'],
]);
// exclude IPv6 addresses that might contain a private IPv4 address (mapped, NAT64, 6to4, Teredo)
const isGlobal6 = createRangeTest(['2000::/3']);
const isSpecial6 = createRangeTest(['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20']);

function isOwn(address: string): boolean {
  return Object.values(networkInterfaces()).some((own) => own?.some((each) => each.address === address));
}

function isPublic(address: string): boolean {
  if (isOwn(address)) return false;
  if (isIP(address) === 4) return !isSpecial4(address);
  return isIP(address) === 6 && isGlobal6(address) && !isSpecial6(address);
}

/**
 * Link-local addresses, and addresses of cloud metadata services, which give credentials to any caller. Webhooks never
 * call these addresses, even if the site lists them.
 */
const FORBIDDEN_4 = ['169.254.0.0/16', '100.100.100.200', '192.0.0.192', '168.63.129.16'];
const isForbidden4 = createRangeTest(FORBIDDEN_4);
const isForbidden6 = createRangeTest(['fe80::/10', 'fec0::/10', 'fd00:ec2::254', 'fd20:ce::254', 'fd00:42::42']);

/**
 * IPv6 prefixes of addresses that contain an IPv4 address. `at` is the index of the 16-bit group at which the IPv4
 * address begins.
 */
const CONTAINING: [prefix: string, at: number][] = [
  ['::/96', 6], // IPv4-compatible addresses
  ['::ffff:0:0/96', 6], // IPv4-mapped addresses
  ['::ffff:0:0:0/96', 6], // IPv4-translated addresses
  ['64:ff9b::/96', 6], // NAT64 addresses
  ['64:ff9b:1::/48', 6],
  ['2002::/16', 1], // 6to4 addresses
];
const containing = CONTAINING.map(([prefix, at]) => ({ isIn: createRangeTest([prefix]), at }));

function isForbidden(given: string): boolean {
  const address = given.replace(/%.*$/, '');
  if (isIP(address) === 4) return isForbidden4(address);
  if (isForbidden6(address)) return true;
  return containing.some(({ isIn, at }) => isIn(address) && isForbidden4(readIpv4(address, at)));
}

function readIpv4(address: string, at: number): string {
  // `URL` converts an embedded IPv4 address to two 16-bit groups
  const { hostname } = new URL(`http://[${address.replace(/%.*$/, '')}]/`);
  const [head = '', tail = ''] = hostname.slice(1, -1).split('::');
  const [before, after] = [head, tail].map((part) => (part === '' ? [] : part.split(':'))) as [string[], string[]];
  const groups = [...before, ...Array(8 - before.length - after.length).fill('0'), ...after];
  return [groups[at], groups[at + 1]]
    .flatMap((group) => [Number.parseInt(group, 16) >> 8, Number.parseInt(group, 16) & 255])
    .join('.');
}

export interface WebhookTargets {
  isListed(host: string): boolean;
  mayCall(host: string, address: string): boolean;
}

export function createTargets(hosts: WebhookHosts): WebhookTargets {
  const names = new Set(hosts);
  const isListedAddress = createRangeTest(hosts.filter(isRange));
  const isListed = (host: string) => names.has(host) || isListedAddress(normalAddress(host));
  return {
    isListed,
    mayCall: (host, given) => {
      const address = normalAddress(given);
      return isIP(address) !== 0 && !isForbidden(address) && (isListed(host) || isListed(address) || isPublic(address));
    },
  };
}

export function hostOf({ hostname }: URL): string {
  return hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '');
}

/** Returns why a webhook URL is invalid, as a phrase that follows the URL in an error message. */
export function findTargetProblem(text: string, targets: WebhookTargets): string | undefined {
  if (!URL.canParse(text)) return 'must be a URL';
  const url = new URL(text);
  const host = hostOf(url);
  if (url.protocol !== 'https:' && url.protocol !== 'http:') return 'must begin with https://';
  if (url.username !== '' || url.password !== '') return 'must not contain a user or a password';
  if (url.hash !== '' || text.includes('#')) return 'must not contain a fragment (#)';
  const isClosed = isIP(host) === 0 ? isLoopback(host) || host.endsWith('.localhost') : !targets.mayCall(host, host);
  if (isClosed && !targets.isListed(host)) {
    return 'must not point to a private network, unless TAPEGATE_WEBHOOK_HOSTS contains the host of the URL';
  }
  if (isIP(host) !== 0 && isForbidden(normalAddress(host)))
    return 'must not point to a link-local address or a metadata service, even if TAPEGATE_WEBHOOK_HOSTS contains the address';
  if (url.protocol === 'http:' && !targets.isListed(host)) {
    return 'must begin with https://, unless TAPEGATE_WEBHOOK_HOSTS contains the host of the URL';
  }
  return undefined;
}
