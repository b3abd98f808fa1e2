/**
 * A TCP relay between clients and a server whose address may change.
 * Tests can stall the relay, break all connections, and refuse new connections.
 */
import { once } from 'node:events';
import { connect, createServer, type NetConnectOpts, type Server, type Socket } from 'node:net';
import type { ClientConfig } from 'pg';
import { listen } from './ports.js';

export type TcpRelay = Awaited<ReturnType<typeof startTcpRelay>>;
export type DatabaseRelay = Awaited<ReturnType<typeof startDatabaseRelay>>;

type From = 'client' | 'server';

export async function startTcpRelay(to?: NetConnectOpts) {
  const sockets = new Set<Socket>();
  let target = to;
  let isFrozen = false;
  let look = (_bytes: Buffer, _from: From): void => {};
  const carry = (from: Socket, to: Socket, name: From) => {
    sockets.add(from);
    if (isFrozen) from.pause();
    from.on('data', (bytes: Buffer) => {
      if (!to.write(bytes)) from.pause();
      look(bytes, name);
    });
    to.on('drain', () => {
      if (!isFrozen) from.resume();
    });
    from.on('end', () => to.end());
    from.on('error', () => {}); // 'close' follows
    from.on('close', () => {
      sockets.delete(from);
      to.destroy();
    });
  };
  let server: Server;
  const accept = (port?: number): Promise<number> => {
    server = createServer((near) => {
      const far = connect(target ?? { port: 0 });
      carry(near, far, 'client');
      carry(far, near, 'server');
    });
    return listen(server, port);
  };
  const port = await accept();
  const freeze = (): void => {
    isFrozen = true;
    for (const socket of sockets) socket.pause();
  };
  const refuse = async (): Promise<void> => {
    const closed = once(server, 'close');
    server.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  return {
    /** Port for clients, which never changes. */
    port,
    /** Sets the server of later connections. */
    lead: (to: NetConnectOpts): void => {
      target = to;
    },
    /** Calls `watcher` with all bytes that the relay forwards. */
    watch: (watcher: typeof look): void => {
      look = watcher;
    },
    /** Stalls all connections without an error. */
    freeze,
    /** Ends the stall. */
    thaw: (): void => {
      isFrozen = false;
      for (const socket of sockets) socket.resume();
    },
    /** Breaks all connections, and refuses new connections until `accept` is called. */
    refuse,
    accept: async (): Promise<void> => void (server.listening || (await accept(port))),
    close: refuse,
  };
}

/** A COMMIT of the driver, and the server's answer, in PostgreSQL's protocol. */
const messages = { commit: Buffer.from('Q\0\0\0\x0bCOMMIT\0'), answer: Buffer.from('C\0\0\0\x0bCOMMIT\0') };

/** Starts a relay to a PostgreSQL server with a Unix socket. */
export async function startDatabaseRelay(database: ClientConfig) {
  const relay = await startTcpRelay({ path: `${database.host}/.s.PGSQL.${database.port}` });
  const sent: Buffer[] = [];
  let last: keyof typeof messages | undefined;
  relay.watch((bytes, from) => {
    if (from === 'client') sent.push(bytes);
    if (last === undefined || !bytes.includes(messages[last])) return;
    last = undefined;
    relay.freeze();
  });
  return {
    ...relay,
    /** Returns the settings of a connection to the same server through the relay. */
    through: (connection: ClientConfig): ClientConfig => ({ ...connection, host: '127.0.0.1', port: relay.port }),
    /**
     * Stalls all connections after the next COMMIT has reached the server, or after the server's answer has reached the
     * client.
     */
    freezeAfter: (what: keyof typeof messages): void => {
      last = what;
    },
    /** Returns how often clients have sent this text. */
    countOf: (text: string): number => Buffer.concat(sent).toString('latin1').split(text).length - 1,
  };
}
