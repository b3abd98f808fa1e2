/**
 * Orders the recall queue, divides it into batches, and estimates how long staging libraries take to stage files. All
 * functions are pure.
 *
 * At a staging library, the slowest of n files is assumed to take as long as the slowest of n earlier files. If more
 * files wait than the library can stage concurrently, the files are assumed to arrive in several rounds.
 */
import { secondsOf } from '../core/time.js';
import type { UserQueue, VolumeQueue } from './backlog.js';
import { findMedium, type Medium } from './media.js';
import { orderReads } from './order.js';

export interface QueueEntry {
  volumeId: number;
  volume: string;
  libraryId: number;
  medium: string;
  isMounted: boolean;
  user: string;
  files: number;
  bytes: bigint;
  oldest: string;
  priority: number;
}

export interface QueuedRecall {
  fileId: bigint;
  /**
   * The file's byte position on the volume, computed from the sizes of the files before it in the catalogue; null if
   * unknown.
   */
  start: bigint | null;
  size: bigint;
  user: string;
  priority: number;
}

export interface WaitingVolume extends VolumeQueue {
  volumeId: number;
  libraryId: number;
  isMounted: boolean;
  /**
   * The medium with the measured speed of the library's drives, for estimated times. Engines choose volumes by the cost
   * model (`medium`), so an estimate must do so, too.
   */
  measured: Medium;
}

/** @param measure function that returns a medium with the measured speed of a library's drives */
export function groupByVolume(
  entries: readonly QueueEntry[],
  measure: (medium: Medium, libraryId: number) => Medium = (medium) => medium,
): WaitingVolume[] {
  const volumes = new Map<number, WaitingVolume & { users: UserQueue[] }>();
  for (const entry of entries) {
    const { volumeId, libraryId, volume, isMounted } = entry;
    const medium = findMedium(entry.medium);
    const measured = measure(medium, libraryId);
    const known = volumes.get(volumeId) ?? { volumeId, libraryId, volume, medium, measured, isMounted, users: [] };
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
 * Returns files in the order in which a drive at byte `head` reads them. Files without a known position come last, in
 * their original order.
 */
export function orderRecalls(medium: Medium, head: number, recalls: readonly QueuedRecall[]): QueuedRecall[] {
  const placed = recalls.filter(({ start }) => start !== null);
  const extents = placed.map(({ start, size }) => ({ start: Number(start), size: Number(size) }));
  const { order } = orderReads(medium, head, extents);
  return [...order.flatMap((index) => placed[index] ?? []), ...recalls.filter(({ start }) => start === null)];
}

/** Maximum bytes in a batch. A drive reads this many bytes in about a second. */
const BATCH_BYTES = 256n * 1024n * 1024n;
const BATCH_FILES = { first: 128, least: 16, most: 512 };
const BATCH_SECONDS = { short: 0.5, long: 2 };

/**
 * Returns the number of files for the next batch. After a fast batch, the next batch has more files, so that small
 * files share a transaction. After a slow batch, the next batch has fewer files, so that the engine replans sooner.
 */
export function batchFilesAfter(files: number, seconds: number): number {
  if (seconds < BATCH_SECONDS.short) return Math.min(files * 2, BATCH_FILES.most);
  return seconds > BATCH_SECONDS.long ? Math.max(files / 2, BATCH_FILES.least) : files;
}

/**
 * Returns the first recalls in the queue, up to the limits for a batch. Returns at least one recall if the queue is not
 * empty.
 */
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

export interface StagedAhead {
  /**
   * Sorted wait times of earlier files at the library, or the minimum and maximum wait time from the settings; empty if
   * unknown.
   */
  waits: readonly number[];
  /**
   * Maximum numbers of files and bytes that are requested from the library at the same time. If `bytes` is undefined,
   * only the space in the restore area limits the bytes.
   */
  depth: { files: number; bytes: number | undefined };
  waiting: { files: number; bytes: number };
}

export interface StagedPart {
  state: 'unasked' | 'asked' | 'ready';
  files: number;
  bytes: number;
  /** Seconds since the files were requested from the library; 0 if the files have not been requested. */
  askedSeconds: number;
}

interface WaitRange {
  earliest: number;
  planned: number;
  latest: number;
}

/** Fraction of requests that should end before their estimated latest end time. */
const KEPT_PART = 0.9;

/** Returns the expected remaining wait for files at a staging library, in seconds; undefined if unknown. */
export function waitOf({ waits, depth, waiting }: StagedAhead, part: StagedPart): WaitRange | undefined {
  if (part.state === 'ready') return { earliest: 0, planned: 0, latest: 0 };
  const ahead = part.state === 'asked' ? waitsAfter(waits, part.askedSeconds) : waits;
  if (ahead.length === 0) return undefined;
  const turns = ({ files, bytes }: { files: number; bytes: number }) =>
    part.state === 'asked'
      ? 1
      : Math.max(Math.ceil(files / depth.files), Math.ceil(bytes / (depth.bytes ?? Infinity)), 1);
  const files = Math.max(part.files, 1);
  return {
    earliest: quantile(ahead, 0) * turns(part),
    planned: quantile(ahead, files / (files + 1)) * turns(waiting),
    latest: quantile(ahead, KEPT_PART ** (1 / files)) * turns(waiting),
  };
}

/**
 * Returns the possible remaining waits for a file that has waited `seconds`, derived from the earlier files that waited
 * longer. If no earlier file waited longer, assumes that the remaining wait is between 0 and `seconds`.
 */
function waitsAfter(waits: readonly number[], seconds: number): readonly number[] {
  if (waits.length === 0) return waits;
  const longer = waits.filter((wait) => wait > seconds).map((wait) => wait - seconds);
  return longer.length > 0 ? longer : [0, seconds];
}

/** @param sorted at least one value @param part the quantile to return, from 0 to 1 */
function quantile(sorted: readonly number[], part: number): number {
  const index = (sorted.length - 1) * part;
  const [below = 0, above = below] = [sorted[Math.floor(index)], sorted[Math.ceil(index)]];
  return below + (above - below) * (index - Math.floor(index));
}

/** Sorts wait times. If there are more than `most` wait times, returns `most` evenly spaced quantiles instead. */
export function sampleWaits(waits: readonly number[], most: number): number[] {
  const sorted = [...waits].sort((a, b) => a - b);
  if (sorted.length <= most) return sorted;
  return Array.from({ length: most }, (_, n) => quantile(sorted, n / (most - 1)));
}
