/**
 * The answers that a gateway has in hand, and its stop without a failed call: it listens no more, what is in hand is answered, and each
 * answer from then on says that its connection ends with it, so that who has one left open asks another gateway next.
 *
 * A connection on which nothing is asked can be told nothing (RFC 9112, 9.6): what is asked at the moment at which it is closed is lost. So
 * connections in use are left for a second, in which who asks that often has had an answer that closes, and only those that rest are closed.
 *
 * Nor is there a way to listen no more without a moment in which the system accepts what nobody takes. A balancer that asks whether the gateway is
 * ready has left before that, where it is given the time (LEAVE_SECONDS).
 */
import { once } from 'node:events';
import type { Server, ServerResponse } from 'node:http';
import { Server as HttpsServer } from 'node:https';
import { Server as NetServer, type Socket } from 'node:net';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { RequestHandler } from 'express';

/** For connections that rest. */
const REST_MS = 1000;

/** For answers in hand, after that, and for the first request on a connection that was made before. */
const ANSWER_MS = 5000;

/** Who waits for the end of an answer: each limit that it has a place in, and what sends it. */
const LISTENERS = 30;

/** So many turns at most wait for another connection to be accepted: what the system has accepted by then is lost when nobody listens. */
const TURNS = 1000;

export class AnswersInHand {
  /** Node counts a connection that has not sent a request yet as busy; this knows better. */
  private readonly open = new Set<ServerResponse>();
  /** Connections on which nothing was asked yet. */
  private readonly unused = new Set<Socket>();
  private accepted = 0;
  private onEnd: () => void = () => {};
  private isOver = false;

  /** The gateway stops: others are to be asked. */
  get isStopping(): boolean {
    return this.isOver;
  }

  /** Answers that have begun, or wait, and have not ended. */
  get number(): number {
    return this.open.size;
  }

  /** From its first connection on. */
  watch(server: Server): void {
    server.on(server instanceof HttpsServer ? 'secureConnection' : 'connection', (socket: Socket) => {
      this.accepted++;
      this.unused.add(socket);
      socket.once('close', () => {
        this.unused.delete(socket);
        this.lookForEnd();
      });
    });
  }

  readonly handler: RequestHandler = (req, res, next) => {
    res.setMaxListeners(LISTENERS);
    this.open.add(res);
    this.unused.delete(req.socket);
    if (this.isOver) res.shouldKeepAlive = false;
    res.once('close', () => {
      this.open.delete(res);
      this.lookForEnd();
    });
    next();
  };

  /**
   * @param how.leaveMs so long balancers have to see that they are to leave, before nobody listens any more
   * @param how.endStreams ends what would go on: its clients come back elsewhere
   * @returns when all connections are closed
   */
  async finish(server: Server, { leaveMs, endStreams }: { leaveMs: number; endStreams: () => void }): Promise<void> {
    this.isOver = true;
    for (const res of this.open) if (!res.headersSent) res.shouldKeepAlive = false;
    if (leaveMs > 0) await sleep(leaveMs);
    endStreams();
    await this.acceptAll();
    const closed = once(server, 'close');
    NetServer.prototype.close.call(server); // that of http would close connections that rest at once
    await Promise.race([closed, sleep(REST_MS, undefined, { ref: false })]);
    server.closeIdleConnections();
    await Promise.race([this.ended(), sleep(ANSWER_MS, undefined, { ref: false })]);
    server.closeAllConnections();
    await closed;
    server.close(() => {}); // ends what http does beside listening
  }

  /** Whoever has connected so far. */
  private async acceptAll(): Promise<void> {
    for (let before = -1, turn = 0; before !== this.accepted && turn < TURNS; turn++) {
      before = this.accepted;
      await nextTurn();
      await nextTurn(); // one of both has asked the system
    }
  }

  private lookForEnd(): void {
    if (this.open.size === 0 && this.unused.size === 0) this.onEnd();
  }

  private async ended(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.onEnd = resolve;
      this.lookForEnd();
    });
  }
}
