/**
 * Estimates the time at which drives will have read all waiting files of a request.
 *
 * The earliest end assumes that drives read only the request's waiting files, and that these files are contiguous. The
 * planned end assumes that drives follow the current queue and the planner's rules. For files at a staging library, the
 * earliest end assumes the library's shortest wait time, and the planned end assumes the usual wait time.
 *
 * The time until the latest end is twice the time until the planned end. If volumes must be mounted, the latest end is
 * later by the time for 1.5 sweeps, in which drives read other users' files. In simulations in which users make more
 * requests after the estimate, nine out of ten requests ended before their latest end (bench/ranges.ts).
 */
import type { Ahead } from './ahead.js';
import { estimateReading, findMedium, type Medium } from './media.js';
import { type StagedAhead, type StagedPart, waitOf } from './queue.js';
import { defaultPolicy } from './schedule.js';

/** Range of estimated end times, in seconds, on the same clock as `PlanAhead.now`. */
export interface EndRange {
  earliest: number;
  planned: number;
  latest: number;
}

const LATEST = { factor: 2, sweeps: 1.5 };

export interface PartAhead {
  volumeId: number;
  libraryId: number;
  medium: Medium;
  files: number;
  bytes: number;
  /** Whether a drive is already reading the files, so that the queue no longer contains them. */
  isReading: boolean;
  /** Earliest time of the next read attempt, in seconds; undefined if the files can be read immediately. */
  notBefore: number | undefined;
  /** State of the files if they are at a staging library; undefined if they are at a drive library. */
  staged: Pick<StagedPart, 'state' | 'askedSeconds'> | undefined;
}

interface PlanAhead {
  now: number;
  ahead: Ahead;
  /** Number of working drives in each drive library, and of readers in each staging library, keyed by library id. */
  drives: ReadonlyMap<number, number>;
  staged: ReadonlyMap<number, StagedAhead>;
}

/**
 * Returns the range of end times for a request. Returns undefined if no drive will read some of the files, or if a
 * library's wait time is unknown.
 * @param parts the request's waiting files on each volume
 */
export function rangeOf(plan: PlanAhead, user: string, parts: readonly PartAhead[]): EndRange | undefined {
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

function endOnDrive({ now, ahead }: PlanAhead, user: string, part: PartAhead): EndRange | undefined {
  const { volumeId, medium, files, bytes, isReading, notBefore } = part;
  const reading = estimateReading(medium, files, bytes);
  const end = isReading ? now + reading : ahead.turnOf(volumeId, user)?.end;
  if (end === undefined) return undefined;
  return { earliest: now, planned: Math.max(end, notBefore === undefined ? 0 : notBefore + reading), latest: now };
}

const LINEAR = findMedium('linear');

/**
 * Returns the range of end times for files at a staging library. The end is the time at which the library has staged
 * the files to its disk, plus the time to read them.
 */
function endAtLibrary(plan: PlanAhead, part: PartAhead, totals: ReadonlyMap<number, number>): EndRange | undefined {
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
