/** Collects a response body into blocks (src/blocks.ts). TLS delivers 16 kB pieces, and each chunk costs CPU time. */
import type { IncomingHttpHeaders } from 'node:http';
import { BLOCK_BYTES, cutChunk, giveBack, takeBlock } from '../../blocks.js';
import { messageOf } from '../../errors.js';
import { LibraryError } from '../backend.js';

export interface ResponseHead {
  readonly statusCode: number;
  readonly statusMessage: string;
  /** Names in lower case. */
  readonly headers: IncomingHttpHeaders;
  /** Closes the connection unless the body is complete. */
  destroy(): void;
}

/** A response. The caller must read or destroy its body. */
export interface Answer {
  response: ResponseHead;
  /** For error messages. */
  name: string;
  /**
   * Yields the body; may be called once. Closes the connection if the reader stops early.
   * @throws LibraryError if the body breaks off; SilentServerError if nothing arrives in time; the signal's reason
   */
  read(signal: AbortSignal): AsyncGenerator<Buffer>;
}

export class SilentServerError extends LibraryError {
  constructor(message: string) {
    super('TRANSIENT', message);
  }
}

/** The part of undici's controller that `Body` uses. */
interface Source {
  pause(): void;
  resume(): void;
  abort(reason: Error): void;
}

/** Full blocks that wait for the reader. Beyond this, the kernel buffers data, and then the sender waits. */
const MAX_READY = 4;

/** Time that a reader waits for a block to fill. A fast network fills one sooner. */
const FILL_MS = 5;

/**
 * Buffers a body between undici, which adds pieces, and one reader.
 *
 * | state            | next                                              |
 * |------------------|---------------------------------------------------|
 * | ARRIVES          | COMPLETE at the end, FAILED on an error, CLOSED by the reader |
 * | COMPLETE, FAILED | CLOSED by the reader, after the bytes that arrived |
 * | CLOSED           | final                                             |
 */
export class Body {
  private readonly name: string;
  private readonly silenceMs: number;
  private readonly source: Source;
  private state: 'ARRIVES' | 'COMPLETE' | 'FAILED' | 'CLOSED' = 'ARRIVES';
  private failure: unknown;
  private readonly ready: Buffer[] = [];
  private block: Buffer | undefined;
  private filled = 0;
  private wake: () => void = () => {};

  constructor({ name, silenceMs, source }: { name: string; silenceMs: number; source: Source }) {
    this.name = name;
    this.silenceMs = silenceMs;
    this.source = source;
  }

  /** Copies the piece; pauses the source if enough blocks are waiting. */
  add(piece: Buffer): void {
    if (this.state !== 'ARRIVES') return;
    for (let taken = 0; taken < piece.length; ) {
      this.block ??= takeBlock();
      const count = piece.copy(this.block, this.filled, taken);
      taken += count;
      this.filled += count;
      if (this.filled === BLOCK_BYTES) this.ready.push(this.cut(this.block));
    }
    if (this.ready.length >= MAX_READY) this.source.pause();
    this.wake();
  }

  complete(): void {
    if (this.state === 'ARRIVES') this.state = 'COMPLETE';
    this.wake();
  }

  fail(error: unknown): void {
    if (this.state === 'ARRIVES') {
      this.state = 'FAILED';
      this.failure = error;
    }
    this.wake();
  }

  close(): void {
    const isUnread = this.state === 'ARRIVES';
    this.state = 'CLOSED';
    for (const block of this.ready.splice(0)) giveBack(block);
    if (this.block) giveBack(this.block);
    this.block = undefined;
    if (isUnread) this.source.abort(new Error('the reader has stopped'));
  }

  async *read(signal: AbortSignal): AsyncGenerator<Buffer> {
    const onAbort = () => this.wake();
    signal.addEventListener('abort', onAbort);
    try {
      for (;;) {
        const chunk = await this.nextChunk(signal);
        signal.throwIfAborted();
        if (!chunk) break;
        yield chunk;
        signal.throwIfAborted();
      }
      if (this.state !== 'FAILED') return;
      throw new LibraryError('TRANSIENT', `${this.name} broke off: ${messageOf(this.failure)}`, {
        cause: this.failure,
      });
    } finally {
      signal.removeEventListener('abort', onAbort);
      this.close();
    }
  }

  /** @returns undefined after the last byte, or if the signal aborts */
  private async nextChunk(signal: AbortSignal): Promise<Buffer | undefined> {
    const isOver = () => this.state !== 'ARRIVES' || signal.aborted;
    // only this wait counts as silence; the reader's own time does not
    await this.waitFor(() => isOver() || this.ready.length > 0 || this.filled > 0, this.silenceMs);
    const isSilent = !isOver() && this.ready.length === 0 && this.filled === 0;
    if (isSilent) throw new SilentServerError(`${this.name} sent nothing for ${this.silenceMs / 1000} s`);
    await this.waitFor(() => isOver() || this.ready.length > 0, FILL_MS);
    const chunk = this.ready.shift() ?? (this.block && this.cut(this.block));
    if (this.state === 'ARRIVES' && this.ready.length <= MAX_READY / 2) this.source.resume();
    return chunk;
  }

  private cut(block: Buffer): Buffer {
    const chunk = cutChunk(block, 0, this.filled);
    this.block = undefined;
    this.filled = 0;
    return chunk;
  }

  private async waitFor(isThere: () => boolean, ms: number): Promise<void> {
    if (isThere()) return;
    await new Promise<void>((resolve) => {
      const end = () => {
        clearTimeout(timer);
        this.wake = () => {};
        resolve();
      };
      const timer = setTimeout(end, ms);
      this.wake = () => isThere() && end();
    });
  }
}

/** Reads the rest of an unneeded body, if it is short, so that the connection can be reused. */
export async function discard(answer: Answer, signal: AbortSignal): Promise<void> {
  await readText(answer, { maxBytes: 64 * 1024, signal }).catch(() => signal.throwIfAborted());
}

/** @throws LibraryError if the body is longer than `maxBytes`; the errors of `Answer.read` */
export async function readText(
  answer: Answer,
  { maxBytes, signal }: { maxBytes: number; signal: AbortSignal },
): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of answer.read(signal)) {
    bytes += chunk.length;
    if (bytes > maxBytes)
      throw new LibraryError('TRANSIENT', `${answer.name} answers with more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}
