/** When what a user waits for may be done, by the plan that was read. */
import { type EndRange, rangeOf } from '../../planner/end-range.js';
import { findMedium } from '../../planner/media.js';
import { secondsOf } from '../../time.js';
import type { Plan } from './plan.js';

export type { EndRange };

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
export function endOfParts(plan: Plan, user: string, parts: readonly Part[]): EndRange | undefined {
  const drives = plan.drives.filter((drive) => drive.isClaimed && drive.isOpen).length;
  const awaited = parts.map(({ volumeId, medium, files, bytes, isReading, nextTry }) => ({
    volumeId: volumeId ?? 0,
    medium: findMedium(medium),
    files,
    bytes: Number(bytes),
    isReading,
    notBefore: nextTry === null ? undefined : secondsOf(nextTry),
  }));
  return rangeOf({ now: plan.now, ahead: plan.ahead, drives }, user, awaited);
}
