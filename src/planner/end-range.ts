/**
 * Estimates the time at which drives will have read all waiting files of a request.
 *
 * The planned end assumes that drives follow the current queue and the planner's rules. The earliest end assumes that
 * drives read only this request. For files at a staging library, the earliest end assumes the library's shortest wait
 * time, and the planned end assumes the usual wait time.
 *
 * If the drives' speed was measured, the range is narrow, unless other requests delay this request: later requests might
 * delay it, too. Without measurements, drives may be slower than the cost model, and the range is wide. bench/ranges.ts
 * measures how many requests end in their range.
 */
import { type Ahead, planAhead } from './ahead.js';
import { estimateReading, type Medium } from './media.js';
import { type StagedAhead, type StagedPart, waitOf } from './queue.js';
import { defaultPolicy } from './schedule.js';

/** Range of estimated end times, in seconds, on the same clock as `PlanAhead.now`. */
export interface EndRange {
  /** Time of the estimate. */
  at: number;
  earliest: number;
  planned: number;
  latest: number;
  /** Whether the speed of each library was measured. Otherwise, the estimate uses the figures of the cost model. */
  isMeasured: boolean;
}

/** Factors for the remaining time, and the number of sweeps by which other requests can delay a request. */
const FACTORS = { earliest: 0.8, latest: 1.58, crowded: 2, sweeps: 1.5 };
/** If the planned time exceeds the time without other requests by this factor, other requests delay the request. */
const CROWDED = 1.25;

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
  /** Whether `medium` has the measured speed of the library's drives. */
  isMeasured: boolean;
  /** State of the files if they are at a staging library; undefined if they are at a drive library. */
  staged: Pick<StagedPart, 'state' | 'askedSeconds'> | undefined;
}

interface PlanAhead {
  now: number;
  ahead: Ahead;
  /** Number of working drives in each drive library, and of readers in each staging library, keyed by library id. */
  drives: ReadonlyMap<number, number>;
  /** Ids of the volumes in drives. */
  mounted: ReadonlySet<number>;
  staged: ReadonlyMap<number, StagedAhead>;
}

/** The end of some files, in the current queue and without other requests. */
interface PartEnd {
  earliest: number;
  planned: number;
  latest: number;
}

/**
 * Returns the range of end times for a request. Returns undefined if no drive will read some of the files, or if a
 * library's wait time is unknown.
 * @param parts the request's waiting files on each volume
 */
export function rangeOf(plan: PlanAhead, user: string, parts: readonly PartAhead[]): EndRange | undefined {
  if (parts.length === 0 || parts.some(({ libraryId }) => !plan.drives.has(libraryId))) return undefined;
  const onDrives = parts.filter(({ staged }) => !staged);
  const ends: (PartEnd | undefined)[] = parts
    .filter(({ staged }) => staged)
    .map((part) => endAtLibrary(plan, part, parts));
  if (onDrives.length > 0) ends.push(endOnDrives(plan, user, onDrives));
  const range = { earliest: plan.now, planned: plan.now, latest: plan.now };
  for (const end of ends) {
    if (!end) return undefined;
    for (const key of ['earliest', 'planned', 'latest'] as const) range[key] = Math.max(range[key], end[key]);
  }
  return {
    at: plan.now,
    earliest: Math.min(range.earliest, range.planned),
    planned: range.planned,
    latest: Math.max(range.latest, range.planned),
    isMeasured: parts.every((part) => part.isMeasured),
  };
}

function endOnDrives(plan: PlanAhead, user: string, parts: readonly PartAhead[]): PartEnd | undefined {
  let planned = plan.now;
  for (const part of parts) {
    const end = endOnDrive(plan, user, part);
    if (end === undefined) return undefined;
    planned = Math.max(planned, end);
  }
  const ideal = idealSeconds(plan, parts);
  const alone = secondsAlone(plan, parts) ?? ideal;
  const isMeasured = parts.every((part) => part.isMeasured);
  const left = planned - plan.now;
  const isSlow = parts.some(({ medium }) => medium.mountSeconds > 1);
  const isDelayed = left > CROWDED * alone + (isSlow ? defaultPolicy.collectSeconds : 0);
  const margin = isSlow && (isDelayed || !isMeasured) ? FACTORS.sweeps * defaultPolicy.sweepSeconds : 0;
  return {
    earliest: plan.now + (isMeasured ? FACTORS.earliest * alone : ideal),
    planned,
    latest: planned + (isMeasured && !isDelayed ? FACTORS.latest - 1 : FACTORS.crowded - 1) * left + margin,
  };
}

/** Returns the seconds to stream the files if all drives of a library share its files evenly. */
function idealSeconds({ drives }: PlanAhead, parts: readonly PartAhead[]): number {
  const totals = new Map<number, number>();
  let longest = 0;
  for (const { libraryId, medium, bytes } of parts) {
    const seconds = bytes / medium.streamBytesPerSecond;
    totals.set(libraryId, (totals.get(libraryId) ?? 0) + seconds / (drives.get(libraryId) ?? 1));
    longest = Math.max(longest, seconds);
  }
  return Math.max(longest, ...totals.values());
}

/** Returns the seconds until the files are read if no other files wait. */
function secondsAlone({ drives, mounted }: PlanAhead, parts: readonly PartAhead[]): number | undefined {
  const waiting = joinVolumes(parts.filter(({ isReading }) => !isReading));
  const reading = joinVolumes(parts.filter(({ isReading }) => isReading));
  const queues = waiting.map(({ volumeId, libraryId, medium, files, bytes }) => ({
    ...{ volumeId, libraryId, volume: String(volumeId), medium, measured: medium, isMounted: mounted.has(volumeId) },
    users: [{ user: '', files, bytes, oldest: Number.NEGATIVE_INFINITY, priority: 0 }],
  }));
  const idle = [...drives].flatMap(([libraryId, count]) => {
    const own = waiting.filter((part) => part.libraryId === libraryId && mounted.has(part.volumeId));
    return Array.from({ length: count }, (_, n) => ({
      ...{ name: `${libraryId} ${n}`, libraryId, running: { files: 0, bytes: 0 } },
      ...{ volumeId: own[n]?.volumeId ?? null, mounted: own[n]?.medium },
    }));
  });
  const ahead = planAhead({ queues, drives: idle, shares: new Map(), now: 0, policy: defaultPolicy });
  const ends = waiting.map(({ volumeId }) => ahead.turnOf(volumeId, '')?.end);
  if (ends.includes(undefined)) return undefined;
  const seconds = reading.map(({ medium, files, bytes }) => estimateReading(medium, files, bytes));
  return Math.max(...(ends as number[]), ...seconds);
}

/** Joins parts on the same volume, such as waiting files and files that wait for a retry. */
function joinVolumes(parts: readonly PartAhead[]): PartAhead[] {
  const joined = new Map<number, PartAhead>();
  for (const part of parts) {
    const { files, bytes } = joined.get(part.volumeId) ?? { files: 0, bytes: 0 };
    joined.set(part.volumeId, { ...part, files: part.files + files, bytes: part.bytes + bytes });
  }
  return [...joined.values()];
}

function endOnDrive({ now, ahead }: PlanAhead, user: string, part: PartAhead): number | undefined {
  const { volumeId, medium, files, bytes, isReading, notBefore } = part;
  const reading = estimateReading(medium, files, bytes);
  const end = isReading ? now + reading : ahead.turnOf(volumeId, user)?.end;
  return end && Math.max(end, notBefore === undefined ? 0 : notBefore + reading);
}

/**
 * Returns the range of end times for files at a staging library. The end is the time at which the library has staged
 * the files to its disk, plus the time to read them.
 */
function endAtLibrary(plan: PlanAhead, part: PartAhead, parts: readonly PartAhead[]): PartEnd | undefined {
  const { libraryId, medium, files, bytes, isReading, notBefore = plan.now, staged } = part;
  const library = plan.staged.get(libraryId);
  if (!library || !staged) return undefined;
  const state = isReading ? 'ready' : staged.state;
  const wait = waitOf(library, { ...staged, state, files, bytes });
  if (!wait) return undefined;
  const from = Math.max(plan.now, notBefore);
  const own = parts.filter((each) => each.libraryId === libraryId);
  const reading = Math.max(idealSeconds(plan, own), estimateReading(medium, 1, bytes / Math.max(files, 1)));
  return {
    earliest: from + wait.earliest + bytes / medium.streamBytesPerSecond / (plan.drives.get(libraryId) ?? 1),
    planned: from + wait.planned + reading,
    latest: Math.max(
      from + wait.latest + reading * FACTORS.crowded,
      plan.now + FACTORS.crowded * (from + wait.planned + reading - plan.now),
    ),
  };
}
