/**
 * The queue of recalls, the order in which a drive reads its files batch by batch, and how long files of staging libraries take to become ready.
 * Pure; schedule.ts chooses among volumes, order.ts orders a volume.
 *
 * The last of n files takes about as long as the longest of n earlier ones did. Files beyond the depth of the library are requested when earlier
 * ones have come, and so wait several times as long.
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

/** What is known of a library. Times are seconds. */
export interface StagedAhead {
  /** What files have taken, in order of length; or the least and the most, as the settings have it. Empty: nobody knows. */
  waits: readonly number[];
  /** What may be asked for at once; without a number of bytes the restore area is the only bound of these. */
  depth: { files: number; bytes: number | undefined };
  /** All that waits there, also what was asked for. */
  waiting: { files: number; bytes: number };
}

/** Files of one library. */
export interface StagedPart {
  state: 'unasked' | 'asked' | 'ready';
  files: number;
  bytes: number;
  /** Since the last of them was asked for. */
  askedSeconds: number;
}

interface WaitRange {
  earliest: number;
  planned: number;
  latest: number;
}

/** The part of requests that are done by the latest end that they are told. */
const KEPT_PART = 0.9;

/** @returns seconds from now; undefined where nobody knows */
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

/** What is left to those that have waited for so long already; what takes longer than any before may take as long again. */
function waitsAfter(waits: readonly number[], seconds: number): readonly number[] {
  if (waits.length === 0) return waits;
  const longer = waits.filter((wait) => wait > seconds).map((wait) => wait - seconds);
  return longer.length > 0 ? longer : [0, seconds];
}

/** @param sorted one at least @param part from 0 to 1 */
function quantile(sorted: readonly number[], part: number): number {
  const place = (sorted.length - 1) * part;
  const [below = 0, above = below] = [sorted[Math.floor(place)], sorted[Math.ceil(place)]];
  return below + (above - below) * (place - Math.floor(place));
}

/** Some of many waits, as they are spread: what one answer of a library has told is no more than that. */
export function sampleWaits(waits: readonly number[], most: number): number[] {
  const sorted = [...waits].sort((a, b) => a - b);
  if (sorted.length <= most) return sorted;
  return Array.from({ length: most }, (_, n) => quantile(sorted, n / (most - 1)));
}
