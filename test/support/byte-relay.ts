/** A line between a client and a server that moves: it carries bytes, of TLS as well, can stand still, and break. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export interface ByteRelay {
  /** Where clients come; it stays. */
  port: number;
  /** Sets where the server is from now on. Without one, all connections break, and new ones are refused. */
  lead(port: number | undefined): void;
  /** Once so many more bytes have come from the server, no more do, on any connection. @returns when that is */
  standStillAfter(bytes: number): Promise<void>;
  /** They come again. */
  goOn(): void;
  close(): Promise<void>;
}

export async function startByteRelay(): Promise<ByteRelay> {
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
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    lead: (port) => {
      target = port;
      if (port === undefined) for (const socket of sockets) socket.destroy();
    },
    standStillAfter: (bytes) => {
      limit = carried + bytes;
      return new Promise((resolve) => {
        reached = resolve;
      });
    },
    goOn: () => {
      limit = Number.POSITIVE_INFINITY;
      for (const socket of servers) socket.resume();
    },
    close: async () => {
      const closed = once(server, 'close');
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
