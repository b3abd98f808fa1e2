/**
 * The queue of recalls as the planner takes it, and a drive's work in the end: the order in which files are read, batch
 * by batch. Pure; the choice among volumes is in schedule.ts, the order on a volume in order.ts.
 */
import { secondsOf } from '../time.js';
import type { UserQueue, VolumeQueue } from './backlog.js';
import { findMedium, type Medium } from './media.js';
import { orderReads } from './order.js';

/** What one user waits for on one volume. */
export interface QueueEntry {
  volumeId: number;
  volume: string;
  /** Of the volume. */
  libraryId: number;
  medium: string;
  /** The volume is in a drive. */
  isMounted: boolean;
  user: string;
  files: number;
  bytes: bigint;
  /** When the oldest of them was asked for. */
  oldest: string;
  priority: number;
}

/** A file that waits on a volume. */
export interface QueuedRecall {
  fileId: bigint;
  /** Byte of the volume at which the file begins, as far as the catalogue knows what stands before it; null: nobody knows where it is. */
  start: bigint | null;
  size: bigint;
  user: string;
  priority: number;
}

/** A volume with work, as the scheduler takes it. */
export interface WaitingVolume extends VolumeQueue {
  volumeId: number;
  /** Only drives of that library come to it. */
  libraryId: number;
  isMounted: boolean;
}

export function groupByVolume(entries: readonly QueueEntry[]): WaitingVolume[] {
  const volumes = new Map<number, WaitingVolume & { users: UserQueue[] }>();
  for (const entry of entries) {
    const { volumeId, libraryId, volume, isMounted } = entry;
    const medium = findMedium(entry.medium);
    const known = volumes.get(volumeId) ?? { volumeId, libraryId, volume, medium, isMounted, users: [] };
    known.users.push({
      user: entry.user,
      files: entry.files,
      bytes: Number(entry.bytes),
      oldest: secondsOf(entry.oldest),
      priority: entry.priority,
    });
    volumes.set(volumeId, known);
  }
  return [...volumes.values()];
}

/**
 * The files in the order in which they are read; `head` is the byte at which the drive stands. Those of which nobody knows where they are
 * come last, in the order given: no order of places can be made for them.
 */
export function orderRecalls(medium: Medium, head: number, recalls: readonly QueuedRecall[]): QueuedRecall[] {
  const placed = recalls.filter(({ start }) => start !== null);
  const extents = placed.map(({ start, size }) => ({ start: Number(start), size: Number(size) }));
  const { order } = orderReads(medium, head, extents);
  return [...order.flatMap((index) => placed[index] ?? []), ...recalls.filter(({ start }) => start === null)];
}

/** Files started together: bytes that a drive reads in a second, and files that it reads in about as long. */
const BATCH_BYTES = 256n * 1024n * 1024n;
const BATCH_FILES = { first: 128, least: 16, most: 512 };
const BATCH_SECONDS = { short: 0.5, long: 2 };

/**
 * Files of the next batch, given how long the last one took: many small ones share a transaction where files are fast,
 * and where a locate takes seconds the order is planned anew in time.
 */
export function batchFilesAfter(files: number, seconds: number): number {
  if (seconds < BATCH_SECONDS.short) return Math.min(files * 2, BATCH_FILES.most);
  return seconds > BATCH_SECONDS.long ? Math.max(files / 2, BATCH_FILES.least) : files;
}

/** The first recalls of a queue that make up a batch; always at least one. */
export function takeBatch<R extends { size: bigint }>(queue: readonly R[], maxFiles: number = BATCH_FILES.first): R[] {
  let bytes = 0n;
  let count = 0;
  for (const recall of queue) {
    bytes += recall.size;
    if (count > 0 && (count === maxFiles || bytes > BATCH_BYTES)) break;
    count++;
  }
  return queue.slice(0, count);
}
