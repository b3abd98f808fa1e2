/**
 * One event stream, from when it is reserved or opened until it has ended, and the operations that it carries. A slow
 * reader makes its operations wait, so that it costs a bounded number of messages, and loses none.
 */
import type { Response } from 'express';
import type { Results } from './sse-operations.js';

/** A comment, so that a connection that has died is noticed. Some browsers wait for a first one. */
export const PING = ':\n\n';
export const PING_MS = 12_000;

export const HEADERS = {
  Connection: 'keep-alive',
  'Cache-Control': 'no-cache',
  'Content-Encoding': 'none',
  'Content-Type': 'text/event-stream; charset=utf-8',
};

/** An operation of a stream. Its id may be used again as soon as it has ended; what it does is for itself alone. */
export interface Operation {
  /** Empty on a stream that carries this operation alone. */
  readonly id: string;
  /** Aborts when it is not to be told any more, and has not been told. */
  readonly gone: AbortController;
  /** What it says; undefined while it is prepared, when there is nothing to stop yet. */
  results?: Results;
}

export class EventStream {
  /** The stream has ended: nothing is sent on it any more. */
  isOver = false;
  private res: Response | undefined;
  private ping: NodeJS.Timeout | undefined;
  private readonly operations = new Map<string, Operation>();
  private readonly onEnd: () => void;
  private waiters: (() => void)[] = [];

  constructor(onEnd: () => void) {
    this.onEnd = onEnd;
  }

  get isOpen(): boolean {
    return this.res !== undefined;
  }

  /** Operations that it carries. */
  get size(): number {
    return this.operations.size;
  }

  open(res: Response): void {
    this.res = res;
    res.locals.isStream = true; // whoever follows callers ends it when they may see something else (access/open-answers.ts)
    res.writeHead(200, HEADERS);
    res.write(PING);
    this.ping = setInterval(() => {
      // one that is not taken would only make the connection look alive
      if (res.writableLength === 0) res.write(PING);
    }, PING_MS);
    res.on('drain', () => this.wake());
    res.on('error', () => {}); // a write to a client that went away; 'close' follows
    res.once('close', () => this.end());
    if (res.locals.isStale) res.destroy();
    if (res.closed) this.end();
    this.wake();
  }

  /** Keeps an id for an operation. @returns undefined where another one has it */
  reserve(id: string): Operation | undefined {
    if (this.operations.has(id)) return undefined;
    const operation = { id, gone: new AbortController() };
    this.operations.set(id, operation);
    return operation;
  }

  /** The operation that has an id now. */
  find(id: string): Operation | undefined {
    return this.operations.get(id);
  }

  /** Ends an operation, whatever has become of it so far, without a word. One that has ended has nothing to end. */
  drop(operation: Operation): void {
    stop(operation);
    if (this.operations.get(operation.id) === operation) this.operations.delete(operation.id);
    this.wake();
  }

  /** Is it still to be told? Whoever has its id by now is another one. */
  has(operation: Operation): boolean {
    return !this.isOver && this.operations.get(operation.id) === operation;
  }

  /**
   * Waits until somebody reads, and may be sent one more message.
   * @returns false where the operation is not to be told any more
   */
  async awaitReader(operation: Operation): Promise<boolean> {
    while (this.has(operation) && (!this.res || this.res.writableNeedDrain)) {
      await new Promise<void>((resolve) => this.waiters.push(resolve));
    }
    return this.has(operation) && !this.res?.destroyed;
  }

  /** Tells what a reserved operation says, and that it is complete. */
  async tell(operation: Operation, results: Results): Promise<void> {
    if (!this.has(operation)) return results.stop();
    operation.results = results;
    const { id } = operation;
    for (;;) {
      const next = await results.next();
      if (!(await this.awaitReader(operation))) return results.stop();
      if (next?.isBroken) return this.end();
      const { result, eventId } = next ?? {};
      const payload = id === '' ? result : { id, ...(next && { payload: result }) };
      // ids grow along one operation; of several on one stream the last one says nothing
      const place = id === '' && eventId !== undefined ? `id: ${eventId}\n` : '';
      const data = payload ? ` ${JSON.stringify(payload)}` : '';
      this.res?.write(`event: ${next ? 'next' : 'complete'}\n${place}data:${data}\n\n`);
      if (!next) break;
    }
    this.operations.delete(id);
  }

  /**
   * Ends the stream where it is, and all that goes on with it. No operation is told to be complete: its client sees that
   * the connection has gone, and comes back.
   */
  end(): void {
    if (this.isOver) return;
    this.isOver = true;
    clearInterval(this.ping);
    for (const operation of this.operations.values()) stop(operation);
    this.operations.clear();
    this.wake();
    this.res?.end();
    this.onEnd();
  }

  private wake(): void {
    for (const resolve of this.waiters.splice(0)) resolve();
  }
}

function stop({ results, gone }: Operation): void {
  gone.abort(new Error('nobody is told any more'));
  results?.stop();
}
