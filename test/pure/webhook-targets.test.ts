/** URLs that webhooks may call, and addresses to which their host names may resolve. */
import type { LookupAddress } from 'node:dns';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createTargets, findTargetProblem } from '../../src/core/net/webhook-targets.js';
import { postMessage } from '../../src/engine/notifications/sender.js';
import { makeCertificate } from '../support/certificate.js';
import { startReceiver, type WebhookReceiver } from '../support/webhook-receiver.js';

const none = createTargets([]);

const closed = [
  '127.0.0.1 127.8.9.1 0.0.0.0 10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254',
  '100.64.0.1 192.0.0.8 192.0.2.1 198.18.0.1 198.51.100.7 203.0.113.9 224.0.0.1 255.255.255.255',
  // other notations of an IPv4 address
  '2130706433 0x7f.1 017700000001 127.1 0 10.1 0xa9fea9fe',
  '[::1] [::] [fe80::1] [fc00::1] [fd12:3456::1] [ff02::1] [2001:db8::1] [3fff::1] [100::1]',
  // IPv6 addresses that contain an IPv4 address
  '[::ffff:127.0.0.1] [::ffff:7f00:1] [::ffff:8.8.8.8] [::127.0.0.1] [64:ff9b::7f00:1] [64:ff9b:1::7f00:1]',
  '[2002:7f00:1::] [2001:0:53aa::1] localhost LOCALHOST. a.localhost',
].flatMap((hosts) => hosts.split(' '));

describe('a URL', () => {
  test.each(closed)('of %s is refused', (host) => {
    expect(findTargetProblem(`https://${host}/`, none)).toMatch(/^must not point to a private network/);
  });

  test.each([
    'https://example.org',
    'https://8.8.8.8:8443/x?y=z',
    'https://[2606:4700::1111]/',
    'HTTPS://EXAMPLE.ORG/',
  ])('%s is accepted', (url) => {
    expect(findTargetProblem(url, none)).toBeUndefined();
  });

  test.each([
    ['http://example.org/', /^must begin with https/],
    ['ftp://example.org/', /^must begin with https/],
    ['file:///etc/passwd', /^must begin with https/],
    ['https://user@example.org/', /^must not contain a user or a password$/],
    ['https://:secret@example.org/', /^must not contain a user or a password$/],
    ['https://example.org/#', /^must not contain a fragment/],
    ['https://', /^must be a URL$/],
    ['example.org', /^must be a URL$/],
    ['', /^must be a URL$/],
  ])('%s is refused', (url, problem) => {
    expect(findTargetProblem(url, none)).toMatch(problem);
  });

  test('of a listed host may be private, and without TLS', () => {
    const targets = createTargets(['hooks.lan', '10.1.0.0/16', '::1', 'localhost']);
    for (const host of ['hooks.lan', '10.1.2.3', '[::1]', 'localhost'])
      expect(findTargetProblem(`http://${host}/`, targets)).toBeUndefined();
    for (const host of ['10.2.0.1', '127.0.0.1', 'nothooks.lan', 'hooks.lan.example.org', 'a.localhost'])
      expect(findTargetProblem(`http://${host}/`, targets)).toMatch(/^must /);
    // a listed name may resolve to any address
    expect(targets.mayCall('hooks.lan', '10.9.9.9')).toBe(true);
    expect(targets.mayCall('example.org', '10.9.9.9')).toBe(false);
    expect(targets.mayCall('example.org', '10.1.9.9')).toBe(true);
    expect(targets.mayCall('example.org', '::ffff:10.1.9.9')).toBe(true);
    expect(targets.mayCall('hooks.lan', 'nonsense')).toBe(false);
  });
});

test.each([
  ...['169.254.169.254', '169.254.0.1', '100.100.100.200', '192.0.0.192', 'fe80::1', 'fe80::1%1', 'fd00:ec2::254'],
  ...['::ffff:169.254.169.254', '::ffff:a9fe:a9fe', '::a9fe:a9fe', '64:ff9b::a9fe:a9fe', '64:ff9b:1::169.254.169.254'],
  '2002:a9fe:a9fe::1',
])('the metadata service or link-local address %s is never called, even if it or its name is listed', (address) => {
  const targets = createTargets(['hooks.lan', '0.0.0.0/0', '::/0', '169.254.169.254']);
  expect(targets.mayCall('hooks.lan', address)).toBe(false);
  expect(targets.mayCall(address, address)).toBe(false);
  const host = address.includes(':') ? `[${address.replace(/%.*$/, '')}]` : address;
  expect(findTargetProblem(`https://${host}/`, targets)).toMatch(
    /^must not point to a link-local address or a metadata/,
  );
});

describe('a host name', () => {
  let receiver: WebhookReceiver;
  let port: string;
  beforeEach(async () => {
    receiver = await startReceiver();
    port = new URL(receiver.url).port;
  });
  afterEach(() => receiver.close());

  const message = {
    messageId: 'msg_1',
    body: '{"type":"webhook.test"}',
    secrets: [`whsec_${Buffer.alloc(32, 7).toString('base64')}`],
  };
  const post = (url: string, answers: LookupAddress[][], hosts: string[] = [], fail?: () => Promise<never>) => {
    let asked = 0;
    const resolve = fail ?? (async () => answers[Math.min(asked++, answers.length - 1)] ?? []);
    const signal = AbortSignal.timeout(5000);
    const options = { targets: createTargets(hosts), signal, now: 1_700_000_000, userAgent: 'Tapegate/test', resolve };
    return { result: postMessage({ ...message, url }, options), asked: () => asked };
  };
  const local = (address: string, family = 4) => ({ address, family });

  test.each([
    [[local('127.0.0.1')]],
    [[local('::1', 6)]],
    [[local('::ffff:127.0.0.1', 6)]],
    [[local('10.0.0.1'), local('fe80::1', 6)]],
    [[]],
  ])('with the addresses %j is not called', async (addresses) => {
    const { result } = post(`https://rebinding.example:${port}/`, [addresses]);
    expect(await result).toMatchObject({
      state: 'FAILED',
      error: expect.stringContaining('has no address that webhooks may use'),
    });
    expect(receiver.messages).toEqual([]);
  });

  test('in a private network and an unknown one have the same error', async () => {
    const fail = async () => {
      throw Object.assign(new Error('getaddrinfo ENOTFOUND rebinding.example'), { code: 'ENOTFOUND' });
    };
    const closed = await post('https://rebinding.example/', [[local('10.0.0.1')]]).result;
    const unknown = await post('https://rebinding.example/', [], [], fail).result;
    expect(unknown).toEqual(closed);
  });

  test('is resolved once, and the address that was checked is called', async () => {
    // the first lookup returns a public address, the second lookup an address of this host
    const rebinding = post(`https://rebinding.example:${port}/`, [[local('192.0.2.1')], [local('127.0.0.1')]]);
    expect(await rebinding.result).toMatchObject({ state: 'FAILED' });
    expect(rebinding.asked()).toBe(1);
    expect(receiver.messages).toEqual([]);
    const listed = post(`http://hooks.lan:${port}/`, [[local('127.0.0.1')]], ['hooks.lan']);
    expect(await listed.result).toEqual({ state: 'SENT' });
    expect(listed.asked()).toBe(1);
    expect(receiver.messages[0]?.headers.host).toBe(`hooks.lan:${port}`);
  });

  test('is called by its allowed addresses only', () => {
    const targets = createTargets(['127.0.0.1']);
    const allowed = ['10.0.0.1', '127.0.0.1'].filter((address) => targets.mayCall('hooks.example', address));
    expect(allowed).toEqual(['127.0.0.1']);
  });

  test('with an untrusted certificate gets no message', async () => {
    const secure = await startReceiver(makeCertificate());
    const { result } = post(`https://localhost:${new URL(secure.url).port}/`, [[local('127.0.0.1')]], ['localhost']);
    expect(await result).toMatchObject({
      state: 'FAILED',
      error: expect.stringMatching(/SELF_SIGNED|self-signed|certificate/),
    });
    expect(secure.messages).toEqual([]);
    await secure.close();
  });

  test('of a receiver that sends an endless body counts by its status', async () => {
    receiver.answer = (_message, response) => {
      response.writeHead(200);
      const more = () => {
        if (!response.destroyed && response.write('x'.repeat(65_536))) setImmediate(more);
      };
      response.on('drain', more);
      more();
    };
    const { result } = post(`${receiver.url}/`, [], ['127.0.0.1']);
    expect(await result).toEqual({ state: 'SENT' });
  });
});
