/** How Tapegate finds a client's address in the X-Forwarded-For headers of trusted proxies. */
import type { IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { parseProxies } from '../../src/config/setting-values.js';
import { isLocalRange, isLoopback } from '../../src/core/net/address-ranges.js';
import { addressOf, createAddressRecorder, isProxied } from '../../src/gateway/http/address.js';
import { OF_PROXY, PROXY_SECRET } from '../support/proxy.js';

/**
 * Returns a client's address, and whether the request came through a trusted proxy. `peer` is the address of the
 * connection.
 */
function find(
  peer: string | undefined,
  forwarded: string | undefined,
  { ranges = ['127.0.0.1', '10.0.0.0/8', '2001:db8::/32'], sent = [PROXY_SECRET], isOfSocket = false } = {},
) {
  const headers = forwarded === undefined ? {} : { 'x-forwarded-for': forwarded };
  const [name = ''] = Object.keys(OF_PROXY);
  const headersDistinct = { [name.toLowerCase()]: sent };
  const req = { socket: { remoteAddress: peer }, headers, headersDistinct } as unknown as IncomingMessage;
  createAddressRecorder({ proxies: { ranges, sockets: [] }, proxySecret: PROXY_SECRET })(req, isOfSocket);
  return [addressOf(req), isProxied(req)];
}

test.each<[peer: string, forwarded: string | undefined, address: string | undefined, proxied: boolean]>([
  ['192.0.2.1', undefined, '192.0.2.1', false],
  ['::ffff:192.0.2.1', undefined, '192.0.2.1', false],
  ['192.0.2.1', '203.0.113.9', '192.0.2.1', false],
  ['127.0.0.1', undefined, undefined, true],
  ['::ffff:127.0.0.1', '203.0.113.9', '203.0.113.9', true],
  ['127.0.0.1', '198.51.100.1, 203.0.113.9', '203.0.113.9', true],
  ['127.0.0.1', '203.0.113.9, 10.1.2.3', '203.0.113.9', true],
  ['127.0.0.1', '203.0.113.9,nonsense', undefined, true],
  ['127.0.0.1', 'unknown', undefined, true],
  ['127.0.0.1', '203.0.113.9, nonsense, 10.1.2.3', undefined, true],
  ['127.0.0.1', '203.0.113.9:4711', '203.0.113.9', true],
  ['2001:DB8::1', '[2001:4860::8]:443, 10.0.0.1', '2001:4860::8', true],
  ['127.0.0.1', '::ffff:203.0.113.9', '203.0.113.9', true],
  ['127.0.0.1', '', undefined, true],
  ['127.0.0.1', '10.0.0.1', '10.0.0.1', true],
  ['127.0.0.1', '127.0.0.1', '127.0.0.1', true],
  ['127.0.0.1', '127.0.0.1, 10.0.0.5', '127.0.0.1', true],
  ['10.0.0.5', '10.7.7.7, 10.0.0.6, 127.0.0.1', '10.7.7.7', true],
  ['127.0.0.1', 'nonsense, 10.0.0.1', undefined, true],
  ['127.0.0.1', ', 10.0.0.1', undefined, true],
])('a request from %s with X-Forwarded-For %j comes from %s', (peer, forwarded, address, proxied) => {
  expect(find(peer, forwarded)).toEqual([address, proxied]);
});

test('without trusted proxies, X-Forwarded-For is ignored', () => {
  expect(find('127.0.0.1', '203.0.113.9', { ranges: [] })).toEqual(['127.0.0.1', false]);
});

test.each([[[]], [['']], [['a-secret-of-the-prox']], [[PROXY_SECRET, PROXY_SECRET]], [[`${PROXY_SECRET} `]]])(
  'a listed address with the secret %j is no proxy',
  (sent) => {
    expect(find('127.0.0.1', '203.0.113.9', { sent })).toEqual(['127.0.0.1', false]);
    expect(find('10.0.0.5', '203.0.113.9', { sent })).toEqual(['10.0.0.5', false]);
  },
);

test('a socket of proxies needs no secret and no address', () => {
  expect(find(undefined, '203.0.113.9, 10.1.2.3', { sent: [], isOfSocket: true })).toEqual(['203.0.113.9', true]);
  expect(find(undefined, undefined, { sent: [], isOfSocket: true })).toEqual([undefined, true]);
});

test.each([
  ...['127.0.0.1', '127.9.0.0/16', '::1', '::ffff:127.0.0.1', '::ffff:7f00:2', '0.0.0.0/0', '::/0', '::ffff:0:0/96'],
  ...['127.0.0.0/7', '::/127'],
])('%s contains an address of this host', (range) => {
  expect(isLocalRange(range)).toBe(true);
});

test.each(['192.0.2.7', '10.0.0.0/8', '2001:db8::/32', '128.0.0.0/8'])('%s contains none', (range) => {
  expect(isLocalRange(range)).toBe(false);
});

test('ranges are addresses with or without a prefix length; loopback addresses are recognized', () => {
  expect(parseProxies('192.0.2.1, 10.0.0.0/8 ::1 unix:/run/a.sock unix:/b:12')).toEqual({
    ranges: ['192.0.2.1', '10.0.0.0/8', '::1'],
    sockets: [
      { path: '/run/a.sock', group: undefined },
      { path: '/b', group: 12 },
    ],
  });
  for (const text of ['unix:', 'unix:a.sock', 'unix:/a:', 'unix:/a:no-such-group-here', 'unix:/a:1:2', '::1,unix:b']) {
    expect([text, parseProxies(text)]).toEqual([text, undefined]);
  }
  for (const text of ['', ' ', '10.0.0.0/33', '10.0.0/8', '::/129', 'host', '10.0.0.1/', '10.0.0.0/8/8', 'fe80::1%1']) {
    expect([text, parseProxies(text)]).toEqual([text, undefined]);
  }
  const hosts = ['127.8.0.1', '::1', 'localhost', '128.0.0.1', 'localhost.example'];
  expect(hosts.filter(isLoopback)).toEqual(['127.8.0.1', '::1', 'localhost']);
});
