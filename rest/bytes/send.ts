/** Bytes of a copy on their way to a reader, as fast as it takes them and no faster. */
import type { Response } from 'express';
import type { OpenCopy } from './copies.js';
import type { Range } from './ranges.js';

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
  const buffers = [0, 1].map(() => ({
    bytes: Buffer.allocUnsafeSlow(Math.min(longest, CHUNK)),
    written: Promise.resolve(),
  }));
  const gone = goneOf(res);
  let turn = 0;
  for (const { head, range } of parts) {
    if (head !== '') res.write(head);
    for (let sent = 0; sent < range.length; turn += 1) {
      const buffer = buffers[turn % 2] as (typeof buffers)[number];
      await Promise.race([buffer.written, gone]);
      const wanted = buffer.bytes.subarray(0, Math.min(buffer.bytes.length, range.length - sent));
      const count = await copy.read(wanted, range.start + sent);
      if (count === 0) throw new Error('a copy became shorter while it was read');
      sent += count;
      // what a reader takes for whole must be: the last bytes go out only then
      if (sent === range.length && !(await copy.isUnchanged())) throw new Error('a copy was changed while it was read');
      buffer.written = write(res, wanted.subarray(0, count));
      buffer.written.catch(() => {}); // told where it is waited for
    }
  }
  await Promise.race([Promise.all(buffers.map(({ written }) => written)), gone]);
  res.end(tail);
}

/** @returns when the bytes are no longer needed here */
function write(res: Response, bytes: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    res.write(bytes, (error) => (error ? reject(error) : resolve()));
  });
}

/** Rejects when the reader goes. */
function goneOf(res: Response): Promise<never> {
  const gone = new Promise<never>((_resolve, reject) => {
    const leave = () => reject(new Error('the reader has gone'));
    if (res.destroyed || res.closed) leave();
    else res.once('close', leave);
  });
  gone.catch(() => {});
  return gone;
}
