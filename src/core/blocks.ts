/**
 * A pool of buffers for bytes in flight: a new buffer for each chunk made an engine four times slower (garbage
 * collection). A block has one owner, which returns the same object to the pool, or leaves it to garbage collection.
 */

/** Chunks of TLS and the kernel are joined up to this size, which fits processor caches. */
export const BLOCK_BYTES = 256 * 1024;

/** Smaller chunks are copied: a nearly empty block in a queue would waste uncounted memory. */
const LEAST_BYTES = BLOCK_BYTES / 4;

const MOST_FREE = 128;

const free: Buffer[] = [];
const lent = new WeakSet<Uint8Array>();

/** The block still contains old bytes. */
export function takeBlock(): Buffer {
  const block = free.pop() ?? Buffer.allocUnsafeSlow(BLOCK_BYTES);
  lent.add(block);
  return block;
}

/** Returns bytes of a block as a chunk owned by its reader. Do not use the block afterwards. */
export function cutChunk(block: Buffer, start: number, end: number): Buffer {
  const chunk = block.subarray(start, end);
  if (chunk.length < LEAST_BYTES) {
    const copy = Buffer.from(chunk);
    giveBack(block);
    return copy;
  }
  if (lent.delete(block)) lent.add(chunk);
  return chunk;
}

/** Returns a chunk to the pool. Other objects and second calls are ignored. */
export function giveBack(chunk: Uint8Array): void {
  if (lent.delete(chunk) && free.length < MOST_FREE) free.push(Buffer.from(chunk.buffer));
}

/** A slow body is passed on in smaller chunks, so that its reader sees that it arrives. */
const MOST_MS = 1000;

/**
 * Joins the pieces of a body into chunks of up to `BLOCK_BYTES`: TLS delivers 16 kB, and each chunk costs CPU time. If
 * the connection fails, yields the bytes received so far before it throws the error.
 */
export async function* joinPieces(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  let block: Buffer | undefined;
  let [filled, since] = [0, 0];
  const isDue = () => filled === BLOCK_BYTES || (filled >= LEAST_BYTES && performance.now() - since > MOST_MS);
  try {
    for await (const piece of pieces) {
      for (let rest = piece; rest.length > 0; ) {
        if (!block) [block, filled, since] = [takeBlock(), 0, performance.now()];
        const part = rest.subarray(0, BLOCK_BYTES - filled);
        block.set(part, filled);
        filled += part.length;
        rest = rest.subarray(part.length);
        if (!isDue()) continue;
        const full = block;
        block = undefined;
        yield cutChunk(full, 0, filled);
      }
    }
  } catch (error) {
    if (block) yield cutChunk(block, 0, filled);
    throw error;
  }
  if (block) yield cutChunk(block, 0, filled);
}
