/** The client address of a request, by the X-Forwarded-For of trusted proxies. */
import type { IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { addressOf, createAddressNote, isProxied } from '../../src/access/address.js';
import { isLoopback, parseRanges } from '../../src/address-ranges.js';

/** Returns the address of a request from `peer`, and whether it came through a trusted proxy. */
function find(peer: string, forwarded: string | undefined, proxies = ['127.0.0.1', '10.0.0.0/8', '2001:db8::/32']) {
  const headers = forwarded === undefined ? {} : { 'x-forwarded-for': forwarded };
  const req = { socket: { remoteAddress: peer }, headers } as unknown as IncomingMessage;
  createAddressNote(proxies)(req as never);
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
  expect(find('127.0.0.1', '203.0.113.9', [])).toEqual(['127.0.0.1', false]);
});

test('ranges are addresses with or without a prefix length; loopback addresses are recognized', () => {
  expect(parseRanges('192.0.2.1, 10.0.0.0/8 ::1')).toEqual(['192.0.2.1', '10.0.0.0/8', '::1']);
  for (const text of ['', ' ', '10.0.0.0/33', '10.0.0/8', '::/129', 'host', '10.0.0.1/', '10.0.0.0/8/8', 'fe80::1%1']) {
    expect([text, parseRanges(text)]).toEqual([text, undefined]);
  }
  const hosts = ['127.8.0.1', '::1', 'localhost', '128.0.0.1', 'localhost.example'];
  expect(hosts.filter(isLoopback)).toEqual(['127.8.0.1', '::1', 'localhost']);
});
