/**
 * Tracks unfinished responses, and stops the gateway without failing requests. For `TAPEGATE_LEAVE_SECONDS`, and a
 * second after its streams have ended, the gateway closes each connection after its response. Balancers and clients then
 * use another gateway. At last it stops listening and closes idle connections: a request that arrives at that moment is
 * lost.
 */
import { once, setMaxListeners } from 'node:events';
import type { Server, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { RequestHandler } from 'express';

/** Minimum time in which clients of open connections can receive a response that closes them. */
const LINGER_MS = 1000;

/** Time for unfinished responses after the gateway has stopped listening. */
const ANSWER_MS = 5000;

/** Listeners for the end of a response: one for each limit, and its sender. */
const LISTENERS = 30;

export class UnfinishedResponses {
  private readonly open = new Set<ServerResponse>();
  private isOver = false;
  private onEnd: () => void = () => {};

  get isStopping(): boolean {
    return this.isOver;
  }

  /** Number of responses that have not ended. */
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
   * Stops the servers of a gateway. Returns when all their connections are closed.
   * @param how.leaveMs time for balancers to see that the gateway stops
   * @param how.endStreams ends streams, whose clients reconnect to another gateway
   */
  async finish(servers: readonly Server[], how: { leaveMs: number; endStreams: () => void }): Promise<void> {
    this.isOver = true;
    for (const res of this.open) if (!res.headersSent) res.setHeader('Connection', 'close');
    await sleep(how.leaveMs);
    how.endStreams();
    // clients of streams reconnect at once, over connections that were idle until now
    const connections = await Promise.all(servers.map((server) => promisify(server.getConnections.bind(server))()));
    if (connections.some((count) => count > 0)) await sleep(LINGER_MS);
    const closed = Promise.all(servers.map((server) => once(server, 'close')));
    this.onEnd = () => {
      for (const server of servers) server.closeIdleConnections(); // also of a response whose header was sent before
    };
    for (const server of servers) server.close();
    await Promise.race([closed, sleep(ANSWER_MS, undefined, { ref: false })]);
    for (const server of servers) server.closeAllConnections();
    await closed;
  }
}

const disconnectSignals = new WeakMap<ServerResponse, AbortSignal>();

/** Aborts when the client disconnects without its response. One signal for all work for it. */
export function disconnectSignalOf(res: ServerResponse): AbortSignal {
  const known = disconnectSignals.get(res);
  if (known) return known;
  const disconnected = new AbortController();
  setMaxListeners(0, disconnected.signal); // each field of an operation may wait for a slot
  const abort = () => {
    if (!res.writableFinished) disconnected.abort(new Error('the client has disconnected'));
  };
  if (res.destroyed) abort();
  else res.once('close', abort);
  disconnectSignals.set(res, disconnected.signal);
  return disconnected.signal;
}
