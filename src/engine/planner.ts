/** What to do next. Pure: the queue in, the choice out; no clock, no database. */
import type { QueueSummary } from '../operations/recall-queue.js';

/**
 * The volume that a free drive mounts next: the one whose oldest recall waits longest, and of equals the one with the
 * most to read, so that a mount pays.
 */
export function chooseVolume(queues: readonly QueueSummary[]): QueueSummary | undefined {
  let best: QueueSummary | undefined;
  for (const queue of queues) {
    if (!best || queue.oldest < best.oldest || (queue.oldest === best.oldest && queue.bytes > best.bytes)) best = queue;
  }
  return best;
}

/** Files started together: enough small ones to share a transaction, and no more bytes than a drive reads in a second. */
export const BATCH_FILES = 256;
export const BATCH_BYTES = 256n * 1024n * 1024n;

/** The first recalls of a queue that make up a batch; always at least one. */
export function takeBatch<R extends { size: bigint }>(queue: readonly R[]): R[] {
  let bytes = 0n;
  let count = 0;
  for (const recall of queue) {
    bytes += recall.size;
    if (count > 0 && (count === BATCH_FILES || bytes > BATCH_BYTES)) break;
    count++;
  }
  return queue.slice(0, count);
}
