/** A relay to a PostgreSQL server that can stall without an error, or refuse connections. */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { ClientConfig } from 'pg';
import { listen } from './ports.js';

export type DatabaseRelay = Awaited<ReturnType<typeof startDatabaseRelay>>;

/** A commit as the driver sends it, and as the server confirms it. */
const messages = { commit: Buffer.from('Q\0\0\0\x0bCOMMIT\0'), answer: Buffer.from('C\0\0\0\x0bCOMMIT\0') };

/** @param target a server with a Unix socket */
export async function startDatabaseRelay(target: ClientConfig) {
  const sockets = new Set<Socket>();
  let isFrozen = false;
  const sent: Buffer[] = [];
  let last: keyof typeof messages | undefined;
  const freeze = (): void => {
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
  const accept = (port?: number): Promise<number> => {
    server = createServer(join);
    return listen(server, port);
  };
  const port = await accept();
  const stop = async (): Promise<void> => {
    const closed = once(server, 'close');
    server.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  return {
    /** Returns the connection to the same server through the relay. */
    through: (connection: ClientConfig): ClientConfig => ({ ...connection, host: '127.0.0.1', port }),
    /** Stalls all connections. */
    freeze,
    /** Stalls all connections after the next commit has reached the server, or after its answer has come back. */
    freezeAfter: (what: keyof typeof messages): void => {
      last = what;
    },
    /** Ends the stall. */
    thaw: (): void => {
      isFrozen = false;
      for (const socket of sockets) socket.resume();
    },
    /** Returns how often clients have sent this text. */
    countOf: (text: string): number => Buffer.concat(sent).toString('latin1').split(text).length - 1,
    /** Breaks all connections, and refuses new ones until `accept`. */
    refuse: stop,
    accept: async (): Promise<void> => void (await accept(port)),
    close: stop,
  };
}
