/** When what a user waits for may be done, by the plan that was read. */
import { type AwaitedPart, type EndRange, rangeOf } from '../../planner/end-range.js';
import { findMedium } from '../../planner/media.js';
import { waitOf } from '../../planner/staged.js';
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
  /** They are on disk at a library that orders its tapes by itself. */
  isStaged: boolean;
  /** When it was asked for the last of them; null where it was not, or nothing is asked of the library. */
  askedAt: string | null;
}

/** @returns undefined when a part of it is on no drive's way, or nobody knows how long its library takes */
export function endOfParts(plan: Plan, user: string, parts: readonly Part[]): EndRange | undefined {
  const drives = new Map<number, number>();
  for (const { libraryId } of plan.drives.filter(isWorking)) drives.set(libraryId, (drives.get(libraryId) ?? 0) + 1);
  const { now, ahead, staged } = plan;
  return rangeOf(
    { now, ahead, drives, staged },
    user,
    parts.map((part) => toAwaited(plan, part)),
  );
}

/**
 * Why nobody can tell, where that is because of a library that orders its tapes by itself; for people.
 * @returns undefined where it is for another reason
 */
export function whyNoEnd(plan: Plan, parts: readonly Part[]): string | undefined {
  for (const part of parts) {
    const { staged, isReading, ...awaited } = toAwaited(plan, part);
    const library = plan.staged.get(awaited.libraryId);
    if (!library || !staged || isReading || waitOf(library, { ...staged, ...awaited })) continue;
    if (library.isAway) return `library ${library.name} could not answer lately`;
    return `library ${library.name} has brought no file yet, and its settings do not say how long it takes`;
  }
  return undefined;
}

function toAwaited(plan: Plan, part: Part): AwaitedPart {
  const { volumeId, libraryId, medium, files, bytes, isReading, nextTry, isStaged, askedAt } = part;
  const askedSeconds = askedAt === null ? 0 : Math.max(plan.now - secondsOf(askedAt), 0);
  const state = isStaged ? 'ready' : askedAt === null ? 'unasked' : 'asked';
  return {
    volumeId: volumeId ?? 0,
    libraryId: libraryId ?? 0,
    medium: findMedium(medium),
    files,
    bytes: Number(bytes),
    isReading,
    notBefore: nextTry === null ? undefined : secondsOf(nextTry),
    staged: plan.staged.has(libraryId ?? 0) ? { state, askedSeconds } : undefined,
  };
}
