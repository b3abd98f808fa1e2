/**
 * TCP load balancer for gateways. Polls each gateway's readiness, and connects clients to the next ready gateway in
 * turn.
 */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { listen } from './ports.js';

const POLL_MS = 100;

export type Balancer = Awaited<ReturnType<typeof startBalancer>>;

/** @param ports of servers on this host, which may start and stop */
export async function startBalancer(ports: readonly number[]) {
  const sockets = new Set<Socket>();
  /** Number of connections of each server. */
  const taken = ports.map(() => 0);
  const ready = ports.map(() => true);
  let turn = 0;
  const closed = new AbortController();
  const polls = ports.map(async (port, index) => {
    while (!closed.signal.aborted) {
      ready[index] = await isReady(port);
      await sleep(POLL_MS, undefined, { signal: closed.signal }).catch(() => {});
    }
  });
  /** Returns the index of the next ready server in turn, or of the next server if no server is ready. */
  const next = (): number => {
    const order = ports.map((_, n) => (turn + n) % ports.length);
    const chosen = order.find((index) => ready[index]) ?? turn % ports.length;
    turn = chosen + 1;
    return chosen;
  };
  const keep = (socket: Socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => {}); // 'close' follows
  };
  const join = (near: Socket, index: number, tries: number) => {
    const far = connect({ port: ports[index] ?? 0, host: '127.0.0.1', allowHalfOpen: true });
    keep(far);
    let isJoined = false;
    far.once('connect', () => {
      isJoined = true;
      taken[index] = (taken[index] ?? 0) + 1;
      near.pipe(far).pipe(near);
      near.once('close', () => far.destroy());
      far.once('close', () => near.destroySoon());
    });
    far.once('error', () => {
      if (!isJoined && tries > 1) join(near, (index + 1) % ports.length, tries - 1);
      else near.destroy();
    });
  };
  const server = createServer({ allowHalfOpen: true }, (near) => {
    keep(near);
    join(near, next(), ports.length);
  });
  const port = await listen(server);
  return {
    /** `http://127.0.0.1:port` */
    url: `http://127.0.0.1:${port}`,
    taken,
    close: async (): Promise<void> => {
      closed.abort();
      await Promise.all(polls);
      for (const socket of sockets) socket.destroy();
      await once(server.close(), 'close');
    },
  };
}

async function isReady(port: number): Promise<boolean> {
  try {
    const answer = await fetch(`http://127.0.0.1:${port}/health/ready`, { headers: { Connection: 'close' } });
    await answer.text();
    return answer.ok;
  } catch {
    return false; // the server is not listening
  }
}
