/** Bytes of a copy on their way to a reader, as fast as it takes them and no faster. */
import type { Response } from 'express';
import { HttpError } from '../../src/http-body.js';
import type { ServedCopy } from '../../src/operations/disks/copies.js';

/** Opens copies: this endpoint knows no disk itself. */
export interface Copies {
  /** @param isPublic only where everybody on the copy's host may read it */
  open(copy: ServedCopy, how: { isPublic: boolean }): Promise<OpenCopy | ClosedCopy>;
}

/** To be closed by whoever has it. */
export interface OpenCopy {
  mtimeNs: bigint;
  /** @returns bytes read, from the position on: as many as the buffer takes, or the copy still has */
  read(buffer: Uint8Array, position: number): Promise<number>;
  isUnchanged(): Promise<boolean>;
  /** Where the disk hangs, once it answers: nobody waits for that. */
  close(): void;
}

export interface ClosedCopy {
  closed: 'absent' | 'gone' | 'changed' | 'private' | 'busy';
  /** For operators. */
  message: string;
}

/** The first byte, and how many. */
export interface Range {
  start: number;
  length: number;
}

/** Of a buffer. One is filled while the other is on its way. */
const CHUNK = 512 * 1024;

/**
 * Sends parts of an answer, each some bytes as they are and then a range of the copy, and ends it.
 * @throws where the reader has gone, or the copy is not whole any more: the answer is to be broken off
 */
export async function sendParts(
  res: Response,
  copy: OpenCopy,
  { parts, tail }: { parts: readonly { head: string; range: Range }[]; tail: string },
): Promise<void> {
  const longest = Math.max(0, ...parts.map(({ range }) => range.length));
  const writers = [0, 1].map(() => new Writer(res, Math.min(longest, CHUNK)));
  let turn = 0;
  for (const { head, range } of parts) {
    if (head !== '') res.write(head);
    for (let sent = 0; sent < range.length; turn += 1) {
      const writer = writers[turn % 2] as Writer;
      await writer.written();
      const wanted = writer.bytes.subarray(0, Math.min(writer.bytes.length, range.length - sent));
      const count = await copy.read(wanted, range.start + sent);
      if (count === 0) throw new HttpError(409, 'the copy became shorter while it was read');
      sent += count;
      // what a reader takes for whole must be: the last bytes go out only then
      if (sent === range.length && !(await copy.isUnchanged()))
        throw new HttpError(409, 'the copy was changed while it was read');
      writer.write(count);
    }
  }
  for (const writer of writers) await writer.written();
  res.end(tail);
}

/** A buffer, and the way of what is in it. */
class Writer {
  readonly bytes: Buffer;
  private readonly res: Response;
  private isWriting = false;
  /** Of whoever waits for it, which is one at most. */
  private wake: (() => void) | undefined;

  constructor(res: Response, size: number) {
    this.res = res;
    this.bytes = Buffer.allocUnsafeSlow(size);
    // once for all that is sent: a promise that each wait is bound to would keep something of each
    res.once('close', () => this.wake?.());
  }

  write(count: number): void {
    this.isWriting = true;
    this.res.write(this.bytes.subarray(0, count), () => {
      this.isWriting = false;
      this.wake?.();
    });
  }

  /** When the bytes are no longer needed here. @throws Error where the reader has gone */
  async written(): Promise<void> {
    if (this.isWriting && !this.isGone()) {
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
      this.wake = undefined;
    }
    if (this.isGone()) throw new Error('the reader has gone');
  }

  private isGone(): boolean {
    return this.res.destroyed || this.res.closed;
  }
}
