/** Starts and stops test servers on free ports of this host. */
import { once } from 'node:events';
import type http from 'node:http';
import net, { type AddressInfo } from 'node:net';

/** Starts a server on 127.0.0.1, by default on a free port. @returns the port */
export async function listen(server: net.Server, port = 0): Promise<number> {
  await once(server.listen(port, '127.0.0.1'), 'listening');
  return (server.address() as AddressInfo).port;
}

/** Stops a server and closes its connections. */
export async function closeServer(server: http.Server): Promise<void> {
  server.closeAllConnections();
  await once(server.close(), 'close');
}

/** Occupies a free port until `letGo` is called. */
export async function takePort(): Promise<{ port: number; letGo(): Promise<void> }> {
  const server = net.createServer();
  const port = await listen(server);
  return { port, letGo: async () => void (await once(server.close(), 'close')) };
}

/** Returns a port that was free a moment ago. */
export async function findFreePort(): Promise<number> {
  const { port, letGo } = await takePort();
  await letGo();
  return port;
}
