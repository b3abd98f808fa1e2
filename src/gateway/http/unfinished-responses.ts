/**
 * Tracks unfinished responses, and stops the gateway with as few failed requests as possible. While the gateway is
 * stopping, each response closes its connection, so that clients and load balancers connect to another gateway. A
 * request that arrives while the gateway closes idle connections is lost.
 */
import { once, setMaxListeners } from 'node:events';
import type { Server, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { RequestHandler } from 'express';

/**
 * Milliseconds for which a stopping gateway with open connections continues to listen after all event streams have
 * ended.
 */
const LINGER_MS = 1000;

const ANSWER_MS = 5000;

/**
 * Maximum number of event listeners on one response. Each limit adds a listener, and so does the code that sends the
 * response.
 */
const LISTENERS = 30;

export class UnfinishedResponses {
  private readonly open = new Set<ServerResponse>();
  private isOver = false;
  private onEnd: () => void = () => {};

  get isStopping(): boolean {
    return this.isOver;
  }

  get number(): number {
    return this.open.size;
  }

  readonly handler: RequestHandler = (_req, res, next) => {
    res.setMaxListeners(LISTENERS);
    this.open.add(res);
    if (this.isOver) res.setHeader('Connection', 'close');
    res.once('close', () => {
      this.open.delete(res);
      this.onEnd();
    });
    next();
  };

  /**
   * Stops a gateway's servers. Returns when all connections are closed.
   * @param how.leaveMs milliseconds to wait, so that load balancers notice that the gateway is stopping
   * @param how.endStreams ends all streams, so that clients reconnect to another gateway
   */
  async finish(servers: readonly Server[], how: { leaveMs: number; endStreams: () => void }): Promise<void> {
    this.isOver = true;
    for (const res of this.open) if (!res.headersSent) res.setHeader('Connection', 'close');
    await sleep(how.leaveMs);
    how.endStreams();
    // wait, because clients immediately reconnect over idle connections after their streams end
    const connections = await Promise.all(servers.map((server) => promisify(server.getConnections.bind(server))()));
    if (connections.some((count) => count > 0)) await sleep(LINGER_MS);
    const closed = Promise.all(servers.map((server) => once(server, 'close')));
    this.onEnd = () => {
      for (const server of servers) server.closeIdleConnections();
    };
    for (const server of servers) server.close();
    await Promise.race([closed, sleep(ANSWER_MS, undefined, { ref: false })]);
    for (const server of servers) server.closeAllConnections();
    await closed;
  }
}

const disconnectSignals = new WeakMap<ServerResponse, AbortSignal>();

/**
 * Returns a signal, shared by all work for a response, that aborts if the client disconnects before the response ends.
 */
export function disconnectSignalOf(res: ServerResponse): AbortSignal {
  const known = disconnectSignals.get(res);
  if (known) return known;
  const disconnected = new AbortController();
  setMaxListeners(0, disconnected.signal);
  const abort = () => {
    if (!res.writableFinished) disconnected.abort(new Error('the client has disconnected'));
  };
  if (res.destroyed) abort();
  else res.once('close', abort);
  disconnectSignals.set(res, disconnected.signal);
  return disconnected.signal;
}
