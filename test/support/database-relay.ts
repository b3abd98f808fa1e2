/** A way to a PostgreSQL server that can be blocked: what is sent is lost to either side, or nobody is there. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import type { ClientConfig } from 'pg';

export interface DatabaseRelay {
  /** The same server by this way. */
  through(connection: ClientConfig): ClientConfig;
  /** Nothing passes any more, and nobody is told. */
  freeze(): void;
  /** The same from the next commit on, which still reaches the server, or from its answer on, which still comes back. */
  freezeAfter(what: 'commit' | 'answer'): void;
  /** What was held up passes. */
  thaw(): void;
  /** How often clients have sent this text so far. */
  countOf(text: string): number;
  /** All connections break, and new ones are refused. */
  refuse(): Promise<void>;
  accept(): Promise<void>;
  close(): Promise<void>;
}

/** A query as the driver sends it, and what a server says of one that is done. */
const messages = { commit: Buffer.from('\0COMMIT\0\0\0'), answer: Buffer.from('C\0\0\0\x0bCOMMIT\0') };

/** @param target a server with a Unix socket */
export async function startDatabaseRelay(target: ClientConfig): Promise<DatabaseRelay> {
  const sockets = new Set<Socket>();
  let isFrozen = false;
  const sent: Buffer[] = [];
  let last: keyof typeof messages | undefined;
  const freeze = () => {
    isFrozen = true;
    for (const socket of sockets) socket.pause();
  };
  const keep = (socket: Socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => {}); // 'close' follows
    if (isFrozen) socket.pause();
  };
  const join = (near: Socket) => {
    const far = connect(`${target.host}/.s.PGSQL.${target.port}`);
    for (const [from, to] of [[near, far] as const, [far, near] as const]) {
      from.on('data', (bytes: Buffer) => {
        to.write(bytes);
        if (from === near) sent.push(bytes);
        if (last === undefined || !bytes.includes(messages[last])) return;
        last = undefined;
        freeze();
      });
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
    freeze,
    freezeAfter: (what) => {
      last = what;
    },
    thaw: () => {
      isFrozen = false;
      for (const socket of sockets) socket.resume();
    },
    countOf: (text) => Buffer.concat(sent).toString('latin1').split(text).length - 1,
    refuse: stop,
    accept: async () => void (await listen(port)),
    close: stop,
  };
}
