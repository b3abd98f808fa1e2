/**
 * When something that waits may be done: a range, since the plan knows neither what breaks nor who comes next. Pure.
 *
 * - Earliest: the drives of each library do nothing else, and the files lie one after another; a library that orders its tapes by itself
 *   is as quick as it ever was.
 * - Planned: as the queue is now, by the rules of the planner, or as long as such a library takes.
 * - Latest: twice the time of the plan, and where a mount costs time a sweep and a half that others get before: what nine of ten
 *   requests kept in bursts, with all that came after them (bench/ranges.ts).
 */
import type { Ahead } from './ahead.js';
import { estimateReading, findMedium, type Medium } from './media.js';
import { type StagedAhead, type StagedPart, waitOf } from './queue.js';
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
  /** Of a library that orders its tapes by itself; undefined: drives come to the volume. */
  staged: Pick<StagedPart, 'state' | 'askedSeconds'> | undefined;
}

export interface PlanAhead {
  now: number;
  ahead: Ahead;
  /** How many work, by library; of one that orders its tapes by itself, what reads from it. */
  drives: ReadonlyMap<number, number>;
  /** Those that order their tapes by themselves. */
  staged: ReadonlyMap<number, StagedAhead>;
}

/** @returns undefined when a part of it is on no drive's way, or nobody knows how long its library takes */
export function rangeOf(plan: PlanAhead, user: string, parts: readonly AwaitedPart[]): EndRange | undefined {
  if (parts.length === 0) return undefined;
  let longest = 0;
  const totals = new Map<number, number>();
  for (const { libraryId, medium, bytes } of parts) {
    const drives = plan.drives.get(libraryId);
    if (drives === undefined) return undefined;
    const seconds = bytes / medium.streamBytesPerSecond;
    totals.set(libraryId, (totals.get(libraryId) ?? 0) + seconds / drives);
    longest = Math.max(longest, seconds);
  }
  const range = { earliest: plan.now + Math.max(longest, ...totals.values()), planned: plan.now, latest: plan.now };
  for (const part of parts) {
    const end = part.staged ? endAtLibrary(plan, part, totals) : endOnDrive(plan, user, part);
    if (!end) return undefined;
    for (const key of ['earliest', 'planned', 'latest'] as const) range[key] = Math.max(range[key], end[key]);
  }
  const isSlow = parts.some(({ medium, staged }) => !staged && medium.mountSeconds > 0);
  const margin = isSlow ? LATEST.sweeps * defaultPolicy.sweepSeconds : 0;
  return {
    earliest: Math.min(range.earliest, range.planned),
    planned: range.planned,
    latest: Math.max(range.latest, plan.now + LATEST.factor * (range.planned - plan.now) + margin),
  };
}

function endOnDrive({ now, ahead }: PlanAhead, user: string, part: AwaitedPart): EndRange | undefined {
  const { volumeId, medium, files, bytes, isReading, notBefore } = part;
  const reading = estimateReading(medium, files, bytes);
  const end = isReading ? now + reading : ahead.turnOf(volumeId, user)?.end;
  if (end === undefined) return undefined;
  return { earliest: now, planned: Math.max(end, notBefore === undefined ? 0 : notBefore + reading), latest: now };
}

const LINEAR = findMedium('linear');

/** It comes to the disk of the library, and is read with all else of its library then. */
function endAtLibrary(plan: PlanAhead, part: AwaitedPart, totals: ReadonlyMap<number, number>): EndRange | undefined {
  const { libraryId, files, bytes, isReading, notBefore = plan.now, staged } = part;
  const library = plan.staged.get(libraryId);
  if (!library || !staged) return undefined;
  const state = isReading ? 'ready' : staged.state;
  const wait = waitOf(library, { ...staged, state, files, bytes });
  if (!wait) return undefined;
  const from = Math.max(plan.now, notBefore);
  const reading = Math.max(totals.get(libraryId) ?? 0, estimateReading(LINEAR, 1, bytes / Math.max(files, 1)));
  return {
    earliest: from + wait.earliest + bytes / LINEAR.streamBytesPerSecond / (plan.drives.get(libraryId) ?? 1),
    planned: from + wait.planned + reading,
    latest: from + wait.latest + reading * LATEST.factor,
  };
}
