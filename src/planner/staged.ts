/**
 * How long files take to come to the disk of a library that orders its tapes by itself: as long as earlier ones have taken, or as its settings
 * say. Pure.
 *
 * The last of n files takes about as long as the longest of n earlier ones did. What does not fit into the depth of the library is asked
 * for when what was asked for before has come, and so waits its time several times over.
 */

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

export interface WaitRange {
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
