/** Sends the bytes of a copy, and waits for slow clients. */
import type { Response } from 'express';
import type { ServedCopy } from '../../src/domain/disks/disk-copies.js';
import { HttpError } from '../../src/gateway/http/http-body.js';

/** Opens copies on restore disks for the WebDAV endpoint. */
export interface Copies {
  /** @param isPublic whether to open the copy only if all users on the host may read the copy */
  open(copy: ServedCopy, how: { isPublic: boolean }): Promise<OpenCopy | ClosedCopy>;
}

/** An open copy, which the caller must close. */
export interface OpenCopy {
  mtimeNs: bigint;
  /** @returns the number of bytes read; 0 at the end of the copy */
  read(buffer: Uint8Array, position: number): Promise<number>;
  isUnchanged(): Promise<boolean>;
  /** Closes the copy without waiting for a disk that hangs. */
  close(): void;
}

export interface ClosedCopy {
  closed: 'absent' | 'gone' | 'changed' | 'private' | 'busy';
  message: string;
}

export interface Range {
  start: number;
  length: number;
}

/**
 * Size in bytes of each of a response's two buffers. While one buffer is sent, the other buffer is filled from disk.
 */
const CHUNK = 512 * 1024;

/**
 * Sends the parts of a response, and ends the response. A part consists of a header text and a range of the copy's
 * bytes.
 * @throws Error if the client disconnects or the copy has changed; the caller must break the connection
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
      if (count === 0) throw new HttpError(415, 'the copy shrank while it was being read');
      sent += count;
      // check for changes before sending the last bytes, because a complete response must be correct
      if (sent === range.length && !(await copy.isUnchanged()))
        throw new HttpError(415, 'the copy was changed while it was being read');
      writer.write(count);
    }
  }
  for (const writer of writers) await writer.written();
  res.end(tail);
}

class Writer {
  readonly bytes: Buffer;
  private readonly res: Response;
  private isWriting = false;
  private wake: (() => void) | undefined;

  constructor(res: Response, size: number) {
    this.res = res;
    this.bytes = Buffer.allocUnsafeSlow(size);
    // add only one listener for each response, because each listener uses memory
    res.once('close', () => this.wake?.());
  }

  write(count: number): void {
    this.isWriting = true;
    this.res.write(this.bytes.subarray(0, count), () => {
      this.isWriting = false;
      this.wake?.();
    });
  }

  /** @throws Error if the client has disconnected */
  async written(): Promise<void> {
    if (this.isWriting && !this.isGone()) {
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
      this.wake = undefined;
    }
    if (this.isGone()) throw new Error('the client has disconnected');
  }

  private isGone(): boolean {
    return this.res.destroyed || this.res.closed;
  }
}
