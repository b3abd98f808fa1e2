/**
 * Determines a client's address, even behind the listed proxies (TAPEGATE_PROXY_ADDRESSES), and whether the client used
 * TLS or is on this host.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { ipKeyGenerator } from 'express-rate-limit';
import type { AccessConfig } from '../../config/config.js';
import { createRangeTest, isLoopback, isOfThisHost, normalAddress } from '../../core/net/address-ranges.js';
import { remember } from '../../core/remembered.js';

interface Origin {
  /** Client's address; undefined if the connection has ended, or a proxy does not report the client. */
  address: string | undefined;
  isProxied: boolean;
}

const origins = new WeakMap<IncomingMessage, Origin>();

function originOf(req: IncomingMessage): Origin {
  const origin = origins.get(req);
  if (!origin) throw new Error('the client address of the request was not recorded');
  return origin;
}

export const SECRET_HEADER = 'x-tapegate-proxy-secret';

/**
 * @returns a function that records the client's address for a request. The returned function must be called before
 *   `addressOf`
 */
export function createAddressRecorder({
  proxies,
  proxySecret,
}: Pick<AccessConfig, 'proxies' | 'proxySecret'>): (req: IncomingMessage, isOfSocket: boolean) => void {
  const isProxy = createRangeTest(proxies.ranges);
  const local = new WeakMap<Socket, boolean>();
  const isLocal = (socket: Socket, peer: string): boolean => {
    const found = local.get(socket) ?? isOfThisHost(peer);
    local.set(socket, found);
    return found;
  };
  const isSecret = proxySecret === undefined ? undefined : createSecretTest(proxySecret);
  const isTrusted = (req: IncomingMessage): boolean => {
    const peer = peerOf(req);
    if (peer === undefined || !isProxy(peer)) return false;
    // without a proxy secret, do not trust a proxy on this host, because every local user can connect from the same
    // address
    return isSecret ? isSecret(req.headersDistinct[SECRET_HEADER]) : !isLocal(req.socket, peer);
  };
  return (req, isOfSocket) => {
    const isProxied = isOfSocket || isTrusted(req);
    origins.set(req, { address: isProxied ? findClient(req, isProxy) : peerOf(req), isProxied });
  };
}

/**
 * Returns a function that checks a proxy's secret. Compares hashes, so that the comparison time does not reveal how
 * much of a guessed secret is correct.
 */
function createSecretTest(secret: string): (given: string[] | undefined) => boolean {
  const hash = (text: string) => createHash('sha256').update(text, 'latin1').digest();
  const expected = hash(secret);
  return ([given = '', ...others] = []) => others.length === 0 && timingSafeEqual(hash(given), expected);
}

/**
 * Finds the client's address in X-Forwarded-For: the last address that does not belong to a listed proxy. Earlier
 * addresses are not trusted, because the client might have invented them. If all addresses belong to listed proxies,
 * the first address is the client's, because a client might run on a proxy's host. Returns undefined if a listed proxy
 * does not report a valid address.
 */
function findClient(req: IncomingMessage, isProxy: (address: string) => boolean): string | undefined {
  const chain = String(req.headers['x-forwarded-for'] ?? '').split(',');
  let address = readAddress(chain.pop() ?? '');
  while (address !== undefined && isProxy(address) && chain.length > 0) address = readAddress(chain.pop() ?? '');
  return address;
}

function peerOf({ socket }: IncomingMessage): string | undefined {
  return socket.remoteAddress === undefined ? undefined : normalAddress(socket.remoteAddress);
}

const isAddress = createRangeTest(['0.0.0.0/0', '::/0']);

function readAddress(text: string): string | undefined {
  const trimmed = text.trim();
  const [, bracketed] = /^\[([^\]]*)\](?::\d+)?$/.exec(trimmed) ?? [];
  const [, dotted] = /^(\d+\.\d+\.\d+\.\d+):\d+$/.exec(trimmed) ?? [];
  const address = normalAddress(bracketed ?? dotted ?? trimmed);
  return isAddress(address) ? address : undefined;
}

export function addressOf(req: IncomingMessage): string | undefined {
  return originOf(req).address;
}

/** Returns whether a listed proxy sent the request. Tapegate trusts a listed proxy to report the client's address. */
export function isProxied(req: IncomingMessage): boolean {
  return originOf(req).isProxied;
}

/** Headers in which proxies, load balancers and content delivery networks describe their clients or themselves. */
const FORWARDED = [
  /^(x-)?forward(ed)?(-.*)?$/,
  /^(via|x-bluecoat-via|cdn-loop|surrogate-capability|front-end-https|x-varnish|x-nginx-proxy|x-proxied-.*|x-rewrite-url|x-(url-)?scheme)$/,
  /^(x-original|x-tapegate-proxy|x-envoy|x-arr|x-akamai|akamai|x-azure|x-appengine|x-vercel|wl-proxy|cf|fly|fastly|incap)-./,
  /^(x-)?(remote-(user|name|email|groups?)|auth-request-.+|webauth-.+|ssl-client-.+|client-(cert|verify|dn).*)$/,
  /(^|-)(client|connecting|real|remote|user|originating|external)-?(ip|addr|address)$/,
];

const isForwarding = remember((name) => FORWARDED.some((form) => form.test(name)));

/**
 * Evidence that a proxy such as nginx forwarded a request. By default, nginx uses HTTP/1.0 and adds no forwarding
 * header.
 */
const OLD_HOP = 'HTTP/1.0 with Connection: close, as nginx sends by default';

/** Returns the evidence, usually a header, that a proxy forwarded the request; undefined if there is no evidence. */
export function findForwarded(req: IncomingMessage): string | undefined {
  const header = Object.keys(req.headers).find(isForwarding);
  if (header !== undefined) return header;
  const isOldHop = req.httpVersion === '1.0' && /^\s*close\s*$/i.test(req.headers.connection ?? '');
  // check only connections from this host, because old programs on other hosts might use HTTP/1.0 without a proxy
  return isOldHop && isLoopback(peerOf(req) ?? '') ? OLD_HOP : undefined;
}

/**
 * Returns whether the client sent the request over TLS or from this host. Tapegate trusts a listed proxy to report TLS.
 */
export function isConfidential(req: IncomingMessage): boolean {
  if (isProxied(req)) {
    const schemes = String(req.headers['x-forwarded-proto'] ?? '').split(',');
    return schemes.every((scheme) => scheme.trim().toLowerCase() === 'https');
  }
  if ((req.socket as TLSSocket).encrypted === true) return true;
  // an unlisted proxy on this host might forward requests from anywhere
  return isLoopback(peerOf(req) ?? '') && findForwarded(req) === undefined;
}

/**
 * Prefix length of IPv6 networks. All addresses in a network share one rate-limit key, because a client usually
 * controls the whole network.
 */
const IPV6_NETWORK_BITS = 56;

/** @param address the client's address; undefined if the connection has ended */
export function addressKey(address: string | undefined): string {
  const plain = (address ?? '').replace(/^::ffff:(?=\d+\.)/, '');
  return plain.includes(':') ? ipKeyGenerator(plain, IPV6_NETWORK_BITS) : plain;
}
