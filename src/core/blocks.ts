/**
 * A pool of buffers, called blocks, for file data in flight. Without a buffer pool, garbage collection made engines
 * four times slower. Each block has one owner. Only the owner may return the block to the pool.
 */

/** Size of a block in bytes. A block is small enough for a processor's cache. */
export const BLOCK_BYTES = 256 * 1024;

/**
 * Minimum chunk size in bytes. Chunks smaller than this minimum are copied to new buffers. Otherwise, a chunk of a few
 * bytes would occupy a whole block, but memory limits would count only the few bytes.
 */
const LEAST_BYTES = BLOCK_BYTES / 4;

const MOST_FREE = 128;

const free: Buffer[] = [];
const lent = new WeakSet<Uint8Array>();

/** Takes a block from the pool. The block can still contain bytes from an earlier owner. */
export function takeBlock(): Buffer {
  const block = free.pop() ?? Buffer.allocUnsafeSlow(BLOCK_BYTES);
  lent.add(block);
  return block;
}

/**
 * Returns the bytes from `start` to `end` of a block. After the call, only the owner of the returned chunk may use the
 * block.
 */
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

/** Returns a chunk's block to the pool. Ignores chunks that were already returned or are not from the pool. */
export function giveBack(chunk: Uint8Array): void {
  if (lent.delete(chunk) && free.length < MOST_FREE) free.push(Buffer.from(chunk.buffer));
}

/**
 * Milliseconds after which `joinPieces` yields an incomplete chunk, so that readers of a slow HTTP body see progress.
 */
const MOST_MS = 1000;

/**
 * Joins the pieces of an HTTP body into chunks of up to `BLOCK_BYTES`, because many small chunks would cost more CPU
 * time. If the connection fails, yields the bytes received so far, then throws the error.
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
