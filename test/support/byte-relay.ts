/** A TCP relay between clients and a server that moves. It can stall and break. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { listen } from './ports.js';

export type ByteRelay = Awaited<ReturnType<typeof startByteRelay>>;

export async function startByteRelay() {
  const sockets = new Set<Socket>();
  const servers = new Set<Socket>();
  let target: number | undefined;
  let carried = 0;
  let limit = Number.POSITIVE_INFINITY;
  let reached = () => {};
  const keep = (socket: Socket, other: Socket) => {
    sockets.add(socket);
    socket.on('error', () => {}); // 'close' follows
    socket.on('close', () => {
      sockets.delete(socket);
      servers.delete(socket);
      other.destroy();
    });
  };
  const server = createServer((near) => {
    if (target === undefined) return void near.destroy();
    const far = connect(target, '127.0.0.1');
    keep(near, far);
    keep(far, near);
    servers.add(far);
    near.pipe(far);
    if (carried >= limit) far.pause();
    far.on('data', (bytes: Buffer) => {
      carried += bytes.length;
      if (!near.write(bytes)) far.pause();
      if (carried < limit) return;
      for (const socket of servers) socket.pause();
      reached();
    });
    near.on('drain', () => {
      if (carried < limit) far.resume();
    });
    far.on('end', () => near.end());
  });
  return {
    /** The port for clients, which stays the same. */
    port: await listen(server),
    /** Sets the port of the server. Without one, all connections break and new ones are refused. */
    lead: (port: number | undefined): void => {
      target = port;
      if (port === undefined) for (const socket of sockets) socket.destroy();
    },
    /** Stalls all connections after so many more bytes of the server. @returns when that is */
    standStillAfter: (bytes: number): Promise<void> => {
      limit = carried + bytes;
      return new Promise((resolve) => {
        reached = resolve;
      });
    },
    /** Ends the stall. */
    goOn: (): void => {
      limit = Number.POSITIVE_INFINITY;
      for (const socket of servers) socket.resume();
    },
    close: async (): Promise<void> => {
      const closed = once(server, 'close');
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
