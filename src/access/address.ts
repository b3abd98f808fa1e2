/**
 * Where a request comes from: the client's own address, also behind the proxies that are listed (TAPEGATE_PROXY_ADDRESSES), and
 * whether anybody on the way could read it. The word of nobody else is taken.
 */
import type { IncomingMessage } from 'node:http';
import type { TLSSocket } from 'node:tls';
import { ipKeyGenerator } from 'express-rate-limit';
import { type AddressRanges, createRangeTest, isLoopback, normalAddress } from '../address-ranges.js';
import { remember } from '../remembered.js';

interface Origin {
  /** Of the client; undefined where its connection has gone already, or a proxy does not tell it. */
  address: string | undefined;
  /** It came through a proxy that is listed. */
  isProxied: boolean;
}

const origins = new WeakMap<IncomingMessage, Origin>();

function originOf(req: IncomingMessage): Origin {
  const origin = origins.get(req);
  if (!origin) throw new Error('nobody has asked where the request comes from');
  return origin;
}

/** @returns what notes where a request comes from, before everything that asks `addressOf` */
export function createAddressNote(proxies: AddressRanges): (req: IncomingMessage) => void {
  const isProxy = createRangeTest(proxies);
  return (req) => void origins.set(req, findOrigin(req, isProxy));
}

/**
 * The last address of the chain that no listed proxy has: what stands before it, the client may have made up. Where all of them are
 * listed, the first is the client's: whoever asks through a proxy on its own host, say. Where a listed proxy tells none, or none that
 * can be read, nobody knows it: the proxy's own is not the client's.
 */
function findOrigin(req: IncomingMessage, isProxy: (address: string) => boolean): Origin {
  let address = peerOf(req);
  const isProxied = address !== undefined && isProxy(address);
  const chain = String(req.headers['x-forwarded-for'] ?? '').split(',');
  while (address !== undefined && isProxy(address) && chain.length > 0) address = readAddress(chain.pop() ?? '');
  return { address, isProxied };
}

function peerOf({ socket }: IncomingMessage): string | undefined {
  return socket.remoteAddress === undefined ? undefined : normalAddress(socket.remoteAddress);
}

const isAddress = createRangeTest(['0.0.0.0/0', '::/0']);

/** Some proxies write the port as well. */
function readAddress(text: string): string | undefined {
  const trimmed = text.trim();
  const [, bracketed] = /^\[([^\]]*)\](?::\d+)?$/.exec(trimmed) ?? [];
  const [, dotted] = /^(\d+\.\d+\.\d+\.\d+):\d+$/.exec(trimmed) ?? [];
  const address = normalAddress(bracketed ?? dotted ?? trimmed);
  return isAddress(address) ? address : undefined;
}

/** Of whoever has sent a request, for rules, limits and records. */
export function addressOf(req: IncomingMessage): string | undefined {
  return originOf(req).address;
}

/** Did it come through a proxy that is listed? Only then is what a proxy says of its client believed. */
export function isProxied(req: IncomingMessage): boolean {
  return originOf(req).isProxied;
}

/** Of proxies, load balancers and content networks: what they say of whom they speak for, and of themselves. */
const FORWARDED = [
  /^(x-)?forward(ed)?(-.*)?$/,
  /^(via|x-bluecoat-via|cdn-loop|surrogate-capability|front-end-https|x-varnish|x-nginx-proxy|x-proxied-.*|x-rewrite-url|x-(url-)?scheme)$/,
  /^(x-original|x-envoy|x-arr|x-akamai|akamai|x-azure|x-appengine|x-vercel|wl-proxy|cf|fly|fastly|incap)-./,
  /(^|-)(client|connecting|real|remote|user|originating|external)-?(ip|addr|address)$/,
];

const isForwarding = remember((name) => FORWARDED.some((form) => form.test(name)));

/** What only some proxies do: nginx, unless it is told otherwise, says nothing of its client but asks like this. */
const OLD_HOP = 'HTTP/1.0 with Connection: close, as nginx asks; programs of this host are served by HTTP/1.1';

/** By which a request shows that it came through a proxy, listed or not: a header, mostly. */
export function findForwarded(req: IncomingMessage): string | undefined {
  const header = Object.keys(req.headers).find(isForwarding);
  if (header !== undefined) return header;
  const isOldHop = req.httpVersion === '1.0' && /^\s*close\s*$/i.test(req.headers.connection ?? '');
  // old programs elsewhere may be served by their address; on this host they would rather not close (curl, ab)
  return isOldHop && isLoopback(peerOf(req) ?? '') ? OLD_HOP : undefined;
}

/** Nobody on the way reads what it says: it came over TLS, or from this host. Of a listed proxy its word is taken. */
export function isConfidential(req: IncomingMessage): boolean {
  if (isProxied(req)) {
    const schemes = String(req.headers['x-forwarded-proto'] ?? '').split(',');
    return schemes.every((scheme) => scheme.trim().toLowerCase() === 'https');
  }
  if ((req.socket as TLSSocket).encrypted === true) return true;
  // a proxy on this host that is not listed may have had it from anywhere
  return isLoopback(peerOf(req) ?? '') && findForwarded(req) === undefined;
}

/** Who has an IPv6 address mostly has all of its network: those count together. */
const IPV6_NETWORK_BITS = 56;

/** @param address of a connection; one that has ended has none */
export function addressKey(address: string | undefined): string {
  const plain = (address ?? '').replace(/^::ffff:(?=\d+\.)/, '');
  return plain.includes(':') ? ipKeyGenerator(plain, IPV6_NETWORK_BITS) : plain;
}
