/**
 * From the queue to a drive's work: which volume it mounts, and in which order the files are read. Pure; the choice
 * among volumes is in schedule.ts, the order on a volume in order.ts.
 */
import type { QueuedRecall, QueueEntry } from '../operations/recall-queue.js';
import { secondsOf } from '../time.js';
import { findMedium, type Medium } from './media.js';
import { orderReads } from './order.js';
import type { Shares, UserQueue, VolumeQueue } from './schedule.js';

/** A volume with work, as the scheduler takes it. */
export interface WaitingVolume extends VolumeQueue {
  volumeId: number;
  isMounted: boolean;
}

export function groupByVolume(entries: readonly QueueEntry[]): WaitingVolume[] {
  const volumes = new Map<number, WaitingVolume & { users: UserQueue[] }>();
  for (const entry of entries) {
    const { volumeId, volume, isMounted } = entry;
    const known = volumes.get(volumeId) ?? { volumeId, volume, medium: findMedium(entry.medium), isMounted, users: [] };
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

/** Users whose turn comes about the same time are read in one sweep, so that fairness costs few locates. */
const SAME_TURN_SECONDS = 600;

/** The users of a volume who are to be read first, all of one turn. */
export function firstUsers(users: readonly UserQueue[], shares: Shares): string[] {
  const priority = Math.max(...users.map((entry) => entry.priority));
  const candidates = users.filter((entry) => entry.priority === priority).map((entry) => entry.user);
  const share = (user: string) => shares.get(user) ?? 0;
  const least = Math.min(...candidates.map(share));
  return candidates.filter((user) => share(user) <= least + SAME_TURN_SECONDS);
}

/** The files in the order in which they are read; `head` is the byte at which the drive stands. */
export function orderRecalls(medium: Medium, head: number, recalls: readonly QueuedRecall[]): QueuedRecall[] {
  const extents = recalls.map((recall) => ({ start: Number(recall.start), size: Number(recall.size) }));
  return orderReads(medium, head, extents).order.flatMap((index) => recalls[index] ?? []);
}

/** Files started together: enough small ones to share a transaction, and no more bytes than a drive reads in a second. */
const BATCH_FILES = 256;
const BATCH_BYTES = 256n * 1024n * 1024n;

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
