/**
 * A connection pooler like PgBouncer, in front of a PostgreSQL server with a Unix socket.
 * The pooler speaks only the part of the protocol that its pool modes need.
 */
import { connect, createServer, type Socket } from 'node:net';
import type { ClientConfig } from 'pg';
import { listen } from './ports.js';

type Mode = 'session' | 'transaction' | 'statement';

const READY = Buffer.from('Z\0\0\0\x05I', 'latin1');
const WELCOME = Buffer.concat([Buffer.from('R\0\0\0\x08\0\0\0\0', 'latin1'), READY]);
/** Startup parameters that PgBouncer forwards or accepts. */
const KNOWN = ['user', 'database', 'client_encoding', 'application_name', 'DateStyle', 'TimeZone'];

/**
 * Splits the bytes from a socket into messages. @param isStart whether the first message has no type, as from a client
 */
function onMessages(socket: Socket, isStart: boolean, take: (message: Buffer) => void): void {
  let rest = Buffer.alloc(0);
  let offset = isStart ? 0 : 1;
  socket.on('data', (bytes) => {
    rest = Buffer.concat([rest, bytes]);
    while (rest.length >= offset + 4) {
      const length = offset + rest.readInt32BE(offset);
      if (rest.length < length) return;
      const message = rest.subarray(0, length);
      rest = rest.subarray(length);
      offset = 1;
      take(message);
    }
  });
  socket.on('error', () => socket.destroy());
}

function errorMessage(text: string): Buffer {
  const fields = Buffer.from(`SFATAL\0VFATAL\0C08P01\0M${text}\0\0`);
  const head = Buffer.from('E\0\0\0\0', 'latin1');
  head.writeInt32BE(fields.length + 4, 1);
  return Buffer.concat([head, fields]);
}

interface Server {
  socket: Socket;
  /** Client that the server answers, and the number of answers that the server still owes. */
  client: Socket | undefined;
  due: number;
}

/** @param isRound whether a client gets the connection that was used longest ago, instead of the last one used */
export async function startPooler(database: ClientConfig, mode: Mode, isRound = false) {
  const path = `${database.host}/.s.PGSQL.${database.port}`;
  const idle: Server[] = [];
  const sockets = new Set<Socket>();
  const keep = (socket: Socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    return socket;
  };

  function openServer(startup: Buffer): Promise<Server> {
    return new Promise((resolve) => {
      const server: Server = { socket: keep(connect({ path })), client: undefined, due: 1 };
      server.socket.write(startup);
      onMessages(server.socket, false, (message) => {
        server.client?.write(message);
        if (message[0] !== READY[0]) return;
        server.due--;
        if (server.client === undefined) return resolve(server);
        const isDone = server.due === 0 && message[5] === READY[5];
        if (!isDone || mode === 'session') return;
        server.client = undefined;
        idle.push(server);
      });
    });
  }

  const pooler = createServer((client) => {
    keep(client);
    let startup: Buffer | undefined;
    let server: Server | undefined;
    let last = Promise.resolve();
    const forward = async (message: Buffer) => {
      if (server === undefined || server.client !== client) {
        server = (isRound ? idle.shift() : idle.pop()) ?? (await openServer(startup as Buffer));
        server.client = client;
      }
      if (message[0] === 'Q'.charCodeAt(0) || message[0] === 'S'.charCodeAt(0)) server.due++;
      server.socket.write(message);
    };
    onMessages(client, true, (message) => {
      if (startup === undefined) {
        startup = Buffer.from(message);
        const parameters = message
          .toString('utf8', 8)
          .split('\0')
          .filter((_text, n) => n % 2 === 0);
        const unknown = parameters.find((name) => name !== '' && !KNOWN.includes(name));
        if (unknown === undefined) client.write(WELCOME);
        else client.end(errorMessage(`unsupported startup parameter: ${unknown}`));
      } else if (message[0] === 'X'.charCodeAt(0)) client.end();
      else if (mode === 'statement' && message.includes('BEGIN'))
        client.end(errorMessage('transaction blocks not allowed in statement pooling mode'));
      else last = last.then(() => forward(message));
    });
    client.on('close', () => {
      if (server?.client === client) server.socket.destroy();
    });
  });
  const port = await listen(pooler);
  return {
    url: `postgresql://${database.user}@127.0.0.1:${port}/${database.database}`,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => pooler.close(resolve));
    },
  };
}
