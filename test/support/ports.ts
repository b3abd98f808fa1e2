/** Free ports. */
import { once } from 'node:events';
import net from 'node:net';

/** Takes a free port until `letGo`. */
export async function takePort(): Promise<{ port: number; letGo(): Promise<void> }> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  return { port, letGo: () => new Promise((resolve) => server.close(() => resolve())) };
}

/** Returns a port that was free a moment ago. */
export async function findFreePort(): Promise<number> {
  const { port, letGo } = await takePort();
  await letGo();
  return port;
}
