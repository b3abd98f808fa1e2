/** When what a user waits for may be done, by the plan that was read. */
import { type EndRange, rangeOf } from '../../planner/end-range.js';
import { findMedium } from '../../planner/media.js';
import { secondsOf } from '../../time.js';
import { isWorking, type Plan } from './plan.js';

export type { EndRange };

/** Files of one user on one volume. */
export interface Part {
  volumeId: number | null;
  /** Of the volume; null where there is none. */
  libraryId: number | null;
  medium: string;
  files: number;
  bytes: bigint;
  /** They are in no queue any more. */
  isReading: boolean;
  nextTry: string | null;
}

/** @returns undefined when a part of it is on no drive's way */
export function endOfParts(plan: Plan, user: string, parts: readonly Part[]): EndRange | undefined {
  const drives = new Map<number, number>();
  for (const { libraryId } of plan.drives.filter(isWorking)) drives.set(libraryId, (drives.get(libraryId) ?? 0) + 1);
  const awaited = parts.map(({ volumeId, libraryId, medium, files, bytes, isReading, nextTry }) => ({
    volumeId: volumeId ?? 0,
    libraryId: libraryId ?? 0,
    medium: findMedium(medium),
    files,
    bytes: Number(bytes),
    isReading,
    notBefore: nextTry === null ? undefined : secondsOf(nextTry),
  }));
  return rangeOf({ now: plan.now, ahead: plan.ahead, drives }, user, awaited);
}
