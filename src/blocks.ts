/**
 * Memory for bytes on their way, which is used again. What is made for each chunk of a file has to be collected: V8 looks through all that a process
 * has for every few megabytes of such memory, which took an engine four times as long as the bytes themselves.
 *
 * A block has one owner at a time. Whoever is done with the bytes for good gives it back; one that is not given back is collected as anything else. It is
 * known by the very object that was handed on, and by that once: of what somebody has cut it into, the first piece says nothing of the others.
 */

/** What TLS and the kernel give is joined up to this: it fits the caches of a processor, and makes what each chunk costs small. */
export const BLOCK_BYTES = 256 * 1024;

/** A chunk that is smaller is copied: a block that is waiting for a disk with little in it would keep memory that nobody counts. */
const LEAST_BYTES = BLOCK_BYTES / 4;

/** What is kept for the next one at most: as much as is read ahead, and waits to be written. */
const MOST_FREE = 128;

const free: Buffer[] = [];
const lent = new WeakSet<Uint8Array>();

/** Whatever was in it before is in it still. */
export function takeBlock(): Buffer {
  const block = free.pop() ?? Buffer.allocUnsafeSlow(BLOCK_BYTES);
  lent.add(block);
  return block;
}

/** The bytes of a block from one place to another, as a chunk that belongs to its reader; the block is not to be used any more. */
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

/** Nobody uses the chunk any more. What is of no block, is a part of one, or was given back, is left alone. */
export function giveBack(chunk: Uint8Array): void {
  if (lent.delete(chunk) && free.length < MOST_FREE) free.push(Buffer.from(chunk.buffer));
}
