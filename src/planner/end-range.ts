/**
 * When something that waits may be done: a range, since the plan knows neither what breaks nor who comes next. Pure.
 *
 * - Earliest: the drives of each library do nothing else, and the files lie one after another.
 * - Planned: as the queue is now, by the rules of the planner.
 * - Latest: twice the time of the plan, and where a mount costs time a sweep and a half that others get before: what nine of ten
 *   requests kept in bursts, with all that came after them (bench/ranges.ts).
 */
import type { Ahead } from './ahead.js';
import { estimateReading, type Medium } from './media.js';
import { defaultPolicy } from './schedule.js';

/** Seconds, of the same clock as the plan's. */
export interface EndRange {
  earliest: number;
  planned: number;
  latest: number;
}

const LATEST = { factor: 2, sweeps: 1.5 };

/** Files of one user on one volume. */
export interface AwaitedPart {
  volumeId: number;
  /** Of the volume. */
  libraryId: number;
  medium: Medium;
  files: number;
  bytes: number;
  /** They are in no queue any more. */
  isReading: boolean;
  /** Seconds; not tried again before. */
  notBefore: number | undefined;
}

/** @param plan.drives how many work, by library @returns undefined when a part of it is on no drive's way */
export function rangeOf(
  plan: { now: number; ahead: Ahead; drives: ReadonlyMap<number, number> },
  user: string,
  parts: readonly AwaitedPart[],
): EndRange | undefined {
  if (parts.length === 0) return undefined;
  let [planned, longest] = [plan.now, 0];
  const totals = new Map<number, number>();
  for (const { volumeId, libraryId, medium, files, bytes, isReading, notBefore } of parts) {
    const drives = plan.drives.get(libraryId);
    if (drives === undefined) return undefined;
    const reading = estimateReading(medium, files, bytes);
    const end = isReading ? plan.now + reading : plan.ahead.turnOf(volumeId, user)?.end;
    if (end === undefined) return undefined;
    planned = Math.max(planned, end, notBefore === undefined ? 0 : notBefore + reading);
    const seconds = bytes / medium.streamBytesPerSecond;
    totals.set(libraryId, (totals.get(libraryId) ?? 0) + seconds / drives);
    longest = Math.max(longest, seconds);
  }
  const earliest = plan.now + Math.max(longest, ...totals.values());
  const isSlow = parts.some(({ medium }) => medium.mountSeconds > 0);
  const margin = isSlow ? LATEST.sweeps * defaultPolicy.sweepSeconds : 0;
  return {
    earliest: Math.min(earliest, planned),
    planned,
    latest: plan.now + LATEST.factor * (planned - plan.now) + margin,
  };
}
