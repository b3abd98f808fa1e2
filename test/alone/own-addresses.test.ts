/** Addresses that this host gets while the gateway runs, such as addresses of containers or a VPN. */
import type { IncomingMessage } from 'node:http';
import { networkInterfaces } from 'node:os';
import { expect, test, vi } from 'vitest';
import { createAddressRecorder, isProxied } from '../../src/gateway/http/address.js';

vi.mock('node:os', async (load) => ({ ...(await load<typeof import('node:os')>()), networkInterfaces: vi.fn() }));

const found = { family: 'IPv4', netmask: '', mac: '', internal: false, cidr: null } as const;

test('a listed address is no proxy as soon as it is one of this host, from which every local user can connect', () => {
  vi.mocked(networkInterfaces).mockReturnValue({});
  const note = createAddressRecorder({ proxies: { ranges: ['10.0.0.0/8'], sockets: [] }, proxySecret: undefined });
  const isTrusted = () => {
    const req = { socket: { remoteAddress: '10.77.0.1' }, headers: {} } as unknown as IncomingMessage;
    note(req, false);
    return isProxied(req);
  };
  expect(isTrusted()).toBe(true);
  vi.mocked(networkInterfaces).mockReturnValue({ docker0: [{ ...found, address: '10.77.0.1' }] });
  expect(isTrusted()).toBe(false);
});
