/**
 * One event stream, from when it is reserved or opened until it has ended, and the operations that it carries. A slow
 * reader makes its operations wait, so that it costs a bounded number of messages, and loses none.
 */
import type { Response } from 'express';
import type { Results } from './sse-operations.js';

/** A comment, so that a connection that has died is noticed. Some browsers wait for a first one. */
const PING = ':\n\n';
const PING_MS = 12_000;

const HEADERS = {
  Connection: 'keep-alive',
  'Cache-Control': 'no-cache',
  'Content-Encoding': 'none',
  'Content-Type': 'text/event-stream; charset=utf-8',
};

export class EventStream {
  /** The stream has ended: nothing is sent on it any more. */
  isOver = false;
  private res: Response | undefined;
  private ping: NodeJS.Timeout | undefined;
  /** What is being prepared, which has nothing to stop yet, and what goes on. */
  private readonly operations = new Map<string, Results | undefined>();
  private readonly onEnd: () => void;
  private waiters: (() => void)[] = [];

  constructor(onEnd: () => void) {
    this.onEnd = onEnd;
  }

  get isOpen(): boolean {
    return this.res !== undefined;
  }

  open(res: Response): void {
    this.res = res;
    res.writeHead(200, HEADERS);
    res.write(PING);
    this.ping = setInterval(() => {
      // one that is not taken would only make the connection look alive
      if (res.writableLength === 0) res.write(PING);
    }, PING_MS);
    res.on('drain', () => this.wake());
    res.on('error', () => {}); // a write to a client that went away; 'close' follows
    res.once('close', () => this.end());
    if (res.closed) this.end();
    this.wake();
  }

  /** Keeps an id for an operation. @returns whether it was free */
  reserve(id: string): boolean {
    if (this.operations.has(id)) return false;
    this.operations.set(id, undefined);
    return true;
  }

  /** Ends an operation, whatever has become of it so far, without a word. */
  drop(id: string): void {
    this.operations.get(id)?.stop();
    this.operations.delete(id);
  }

  has(id: string): boolean {
    return !this.isOver && this.operations.has(id);
  }

  /**
   * Tells what an operation says, and that it is complete; the operation has been reserved.
   * @param id none on a stream that carries this operation alone
   */
  async tell(results: Results, id = ''): Promise<void> {
    if (!this.has(id)) return results.stop();
    this.operations.set(id, results);
    for (;;) {
      const next = await results.next();
      if (!(await this.hasRoom()) || !this.has(id)) return results.stop();
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
    for (const results of this.operations.values()) results?.stop();
    this.operations.clear();
    this.wake();
    this.res?.end();
    this.onEnd();
  }

  /** Waits until somebody reads, and may be sent one more message. @returns false when the stream has ended instead */
  private async hasRoom(): Promise<boolean> {
    while (!this.isOver && (!this.res || this.res.writableNeedDrain)) {
      await new Promise<void>((resolve) => this.waiters.push(resolve));
    }
    return !this.isOver && !this.res?.destroyed;
  }

  private wake(): void {
    for (const resolve of this.waiters.splice(0)) resolve();
  }
}
