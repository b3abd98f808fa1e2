/**
 * When something that waits may be done: a range, since the cost model knows neither what breaks nor who comes next.
 *
 * - Earliest: the drives do nothing else, and need no locates but those of a good order.
 * - Planned: as the queue is now, by the rules of the planner.
 * - Latest: twice the time of the plan. CERN measured half the gain that the model of the locates promises
 *   (CERN-IT-Note-2020-001).
 */
import { estimateReading, findMedium } from '../../planner/media.js';
import { secondsOf } from '../../time.js';
import type { Plan } from './plan.js';

/** Seconds since 1970. */
export interface EndRange {
  earliest: number;
  planned: number;
  latest: number;
}

const LATEST_FACTOR = 2;

/** Files of one user on one volume. */
export interface Part {
  volumeId: number | null;
  medium: string;
  files: number;
  bytes: bigint;
  /** They are in no queue any more. */
  isReading: boolean;
  nextTry: string | null;
}

/** @returns undefined when a part of it is on no drive's way */
export function rangeOf(plan: Plan, user: string, parts: readonly Part[]): EndRange | undefined {
  const drives = plan.drives.filter((drive) => drive.isClaimed && drive.isOpen).length;
  if (drives === 0 || parts.length === 0) return undefined;
  let [planned, total, longest] = [plan.now, 0, 0];
  for (const part of parts) {
    const medium = findMedium(part.medium);
    const reading = estimateReading(medium, part.files, Number(part.bytes));
    const end = part.isReading ? plan.now + reading : plan.ahead.turnOf(part.volumeId ?? 0, user)?.end;
    if (end === undefined) return undefined;
    planned = Math.max(planned, end, part.nextTry ? secondsOf(part.nextTry) + reading : 0);
    const seconds = part.isReading ? reading : medium.mountSeconds + reading;
    total += seconds;
    longest = Math.max(longest, seconds);
  }
  const earliest = plan.now + Math.max(longest, total / drives);
  return {
    earliest: Math.min(earliest, planned),
    planned,
    latest: plan.now + LATEST_FACTOR * (planned - plan.now),
  };
}
