/**
 * The answers that a gateway has not finished, and its stop without a failed call. For `TAPEGATE_LEAVE_SECONDS`, and for a second after its streams have
 * ended, it goes on and ends each connection with its answer, so that balancers and clients ask another gateway next. Then it listens no more, and
 * Node.js closes connections without a request: a request that arrives at that moment is lost.
 */
import { once, setMaxListeners } from 'node:events';
import type { Server, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { RequestHandler } from 'express';

/** Minimum time in which clients of open connections can receive an answer that closes them. */
const REST_MS = 1000;

/** Time for unfinished answers after the gateway has stopped listening. */
const ANSWER_MS = 5000;

/** Who waits for the end of an answer: each limit that it counts for, and what sends it. */
const LISTENERS = 30;

export class AnswersInHand {
  private readonly open = new Set<ServerResponse>();
  private isOver = false;
  private onEnd: () => void = () => {};

  get isStopping(): boolean {
    return this.isOver;
  }

  /** Answers that have begun, or wait, and have not ended. */
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
   * Stops a server. Returns when all of its connections are closed.
   * @param how.leaveMs the time that balancers have to see that the gateway stops
   * @param how.endStreams ends what would go on: its clients come back elsewhere
   */
  async finish(server: Server, how: { leaveMs: number; endStreams: () => void }): Promise<void> {
    this.isOver = true;
    for (const res of this.open) if (!res.headersSent) res.setHeader('Connection', 'close');
    await sleep(how.leaveMs);
    how.endStreams();
    // clients of streams reconnect at once, over connections that were idle until now
    const connections = await promisify(server.getConnections.bind(server))();
    if (connections > 0) await sleep(REST_MS);
    const closed = once(server, 'close');
    this.onEnd = () => server.closeIdleConnections(); // also of an answer whose header was sent before
    server.close();
    await Promise.race([closed, sleep(ANSWER_MS, undefined, { ref: false })]);
    server.closeAllConnections();
    await closed;
  }
}

const readers = new WeakMap<ServerResponse, AbortSignal>();

/** Aborts when the reader has gone without its answer. One for all that works for it. */
export function readerOf(res: ServerResponse): AbortSignal {
  const known = readers.get(res);
  if (known) return known;
  const gone = new AbortController();
  setMaxListeners(0, gone.signal); // each field of an operation may wait for a place
  const leave = () => {
    if (!res.writableFinished) gone.abort(new Error('the reader has gone'));
  };
  if (res.destroyed) leave();
  else res.once('close', leave);
  readers.set(res, gone.signal);
  return gone.signal;
}
