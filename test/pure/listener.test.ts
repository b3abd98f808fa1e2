/** Which process on a local port may receive a command's token. */
import { once } from 'node:events';
import net from 'node:net';
import { hostname } from 'node:os';
import { expect, test } from 'vitest';
import { checkListener } from '../../src/cli/connection/listener.js';
import { listenAs, STRANGER } from '../support/listen-as.js';

test.skipIf(process.getuid?.() !== 0 || process.platform !== 'linux').each([
  ['127.0.0.1', '127.0.0.1'],
  ['0.0.0.0', '127.0.0.1'],
  ['::1', '[::1]'],
  ['::', '127.0.0.1'],
  ['127.0.0.1', 'localhost'],
  ['127.0.0.1', '0.0.0.0'],
  ['::1', '[::]'],
  ['0.0.0.0', hostname()],
])('no token goes to a port of another user at %s, also by the name %s', async (host, name) => {
  const port = await listenAs(STRANGER, host);
  const check = (url: string) => checkListener(url, {});
  await expect(check(`http://${name}:${port}`)).rejects.toThrow(
    `the program that listens there runs as user id ${STRANGER}, which is not trusted; expected your own user, root,`,
  );
  for (const url of [`https://${name}:${port}`, `http://192.0.2.1:${port}`]) await check(url);
});

test('a token goes to a port of the same user', async () => {
  const server = net.createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as net.AddressInfo;
  await checkListener(`http://127.0.0.1:${port}/tapes`, {});
  server.close();
});
