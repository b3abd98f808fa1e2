/**
 * A balancer of connections: each goes to the next server that is ready and takes it, and passes bytes both ways until both have ended. Whether they are
 * ready it asks over and over.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** Between two looks at a server. */
const LOOK_MS = 100;

export interface Balancer {
  /** `http://127.0.0.1:port` */
  url: string;
  /** How many connections each server has had, in their order. */
  taken: number[];
  close(): Promise<void>;
}

/** @param ports of servers of this host, which come and go */
export async function startBalancer(ports: readonly number[]): Promise<Balancer> {
  const sockets = new Set<Socket>();
  const taken = ports.map(() => 0);
  const isReady = ports.map(() => true);
  let turn = 0;
  const closed = new AbortController();
  const look = async (index: number) => {
    while (!closed.signal.aborted) {
      isReady[index] = await saysReady(ports[index] ?? 0);
      await sleep(LOOK_MS, undefined, { signal: closed.signal }).catch(() => {});
    }
  };
  const looks = ports.map((_, index) => look(index));
  /** Where none is ready, whose turn it is: it may be so again. */
  const next = (): number => {
    const order = ports.map((_, n) => (turn + n) % ports.length);
    const chosen = order.find((index) => isReady[index]) ?? turn % ports.length;
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
      if (isJoined) return void near.destroy();
      if (tries > 1) join(near, (index + 1) % ports.length, tries - 1);
      else near.destroy();
    });
  };
  const server = createServer({ allowHalfOpen: true }, (near) => {
    keep(near);
    join(near, next(), ports.length);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    taken,
    close: async () => {
      closed.abort();
      await Promise.all(looks);
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

async function saysReady(port: number): Promise<boolean> {
  try {
    const answer = await fetch(`http://127.0.0.1:${port}/health/ready`, { headers: { Connection: 'close' } });
    await answer.text();
    return answer.ok;
  } catch {
    return false; // nobody listens
  }
}
