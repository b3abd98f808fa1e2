/** A balancer of connections: each goes to the next server that takes it, and passes bytes both ways until both have ended. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

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
  let turn = 0;
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
    join(near, turn++ % ports.length, ports.length);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    taken,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
