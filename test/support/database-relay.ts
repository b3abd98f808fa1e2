/** A way to a PostgreSQL server that can be blocked: what is sent is lost to either side, or nobody is there. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import type { ClientConfig } from 'pg';

export interface DatabaseRelay {
  /** The same server by this way. */
  through(connection: ClientConfig): ClientConfig;
  /** Nothing passes any more, and nobody is told. */
  freeze(): void;
  /** What was held up passes. */
  thaw(): void;
  /** All connections break, and new ones are refused. */
  refuse(): Promise<void>;
  accept(): Promise<void>;
  close(): Promise<void>;
}

/** @param target a server with a Unix socket */
export async function startDatabaseRelay(target: ClientConfig): Promise<DatabaseRelay> {
  const sockets = new Set<Socket>();
  let isFrozen = false;
  const keep = (socket: Socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => {}); // 'close' follows
    if (isFrozen) socket.pause();
  };
  const join = (near: Socket) => {
    const far = connect(`${target.host}/.s.PGSQL.${target.port}`);
    for (const [from, to] of [[near, far] as const, [far, near] as const]) {
      from.on('data', (bytes) => to.write(bytes));
      from.on('close', () => to.destroy());
      keep(from);
    }
  };
  let server: Server;
  const listen = async (port: number) => {
    server = createServer(join).listen(port, '127.0.0.1');
    await once(server, 'listening');
    return (server.address() as AddressInfo).port;
  };
  const port = await listen(0);
  const stop = async () => {
    const closed = once(server, 'close');
    server.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  return {
    through: (connection) => ({ ...connection, host: '127.0.0.1', port }),
    freeze: () => {
      isFrozen = true;
      for (const socket of sockets) socket.pause();
    },
    thaw: () => {
      isFrozen = false;
      for (const socket of sockets) socket.resume();
    },
    refuse: stop,
    accept: async () => void (await listen(port)),
    close: stop,
  };
}
