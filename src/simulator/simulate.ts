/** Simulates a recall strategy with a virtual clock and the cost model in src/planner/media.ts. */
import { locateSeconds, type Medium, pointAt } from '../planner/media.js';
import { orderReads } from '../planner/order.js';
import type { Arrival } from './workload.js';

export interface Drive {
  index: number;
  volume: string | undefined;
  /** The drive's position on the volume, in bytes. */
  head: number;
  mountedAt: number;
}

export interface Strategy {
  arrive(file: Arrival): void;
  /**
   * Chooses the next file for a drive, removes it from the waiting files, and returns it.
   * @param mounted the volumes in other drives
   */
  next(drive: Drive, now: number, mounted: ReadonlySet<string>): Arrival | undefined;
  /**
   * Returns the latest time, in seconds, at which the simulator must call `next` again. The simulator calls `next`
   * earlier if a request arrives or a drive becomes free.
   */
  wakeAt?(now: number): number | undefined;
  charge?(user: string, seconds: number, now: number): void;
}

export interface SimulationResult {
  driveHours: number;
  mounts: number;
  /** Hours from the start of the simulation until the last file has been read. */
  spanHours: number;
  waits: Wait[];
}

export interface Wait {
  user: string;
  /** Time of the request, in seconds. */
  at: number;
  /** Seconds from the request until the file has been read. */
  seconds: number;
  driveSeconds: number;
}

interface SimulateOptions {
  drives: number;
  medium: Medium;
  /** Called after users request files, and before any drive starts to read another file. */
  onAsked?(files: readonly Arrival[], now: number, drives: readonly BusyDrive[]): void;
  /** Called after each file, with the seconds for a mount (0 without a mount) and for the read. */
  onRead?(file: Arrival, seconds: { mount: number; read: number }, drive: Drive): void;
  /** Factors by which the drives are slower than their medium, by the drive's index. Default: 1. */
  slowness?: readonly number[];
}

export interface BusyDrive {
  drive: Drive;
  /** Time, in seconds, at which the drive finishes reading its current file. */
  freeAt: number;
}

export function simulate(strategy: Strategy, arrivals: readonly Arrival[], options: SimulateOptions): SimulationResult {
  const { medium } = options;
  const drives: BusyDrive[] = Array.from({ length: options.drives }, (_, index) => ({
    drive: { index, volume: undefined, head: 0, mountedAt: 0 },
    freeAt: 0,
  }));
  const outcome: SimulationResult = { driveHours: 0, mounts: 0, spanHours: 0, waits: [] };
  let busySeconds = 0;
  let now = 0;
  let coming = 0;
  for (;;) {
    const asked: Arrival[] = [];
    for (; coming < arrivals.length && (arrivals[coming] as Arrival).at <= now; coming++) {
      asked.push(arrivals[coming] as Arrival);
    }
    for (const file of asked) strategy.arrive(file);
    if (asked.length > 0) options.onAsked?.(asked, now, drives);
    for (const state of drives) {
      if (state.freeAt > now) continue;
      const mounted = new Set(drives.flatMap((d) => (d !== state && d.drive.volume ? [d.drive.volume] : [])));
      const file = strategy.next(state.drive, now, mounted);
      if (!file) continue;
      const slowness = options.slowness?.[state.drive.index] ?? 1;
      const { mount, read } = serve(medium, state.drive, file, { now, outcome, slowness });
      options.onRead?.(file, { mount, read }, state.drive);
      const seconds = mount + read;
      strategy.charge?.(file.user, seconds, now);
      busySeconds += seconds;
      state.freeAt = now + seconds;
      outcome.waits.push({ user: file.user, at: file.at, seconds: state.freeAt - file.at, driveSeconds: seconds });
      outcome.spanHours = Math.max(outcome.spanHours, state.freeAt / 3600);
    }
    const later = [
      ...drives.map((state) => state.freeAt),
      arrivals[coming]?.at ?? Number.POSITIVE_INFINITY,
      strategy.wakeAt?.(now) ?? Number.POSITIVE_INFINITY,
    ].filter((time) => time > now);
    const next = Math.min(...later);
    if (next === Number.POSITIVE_INFINITY) break;
    now = next;
  }
  for (const { drive } of drives) if (drive.volume !== undefined) busySeconds += medium.unmountSeconds;
  outcome.driveHours = busySeconds / 3600;
  return outcome;
}

/** @returns the drive time in seconds for unmounting and mounting, and for reading */
function serve(
  medium: Medium,
  drive: Drive,
  file: Arrival,
  { now, outcome, slowness }: { now: number; outcome: SimulationResult; slowness: number },
): { mount: number; read: number } {
  let mount = 0;
  if (drive.volume !== file.volume) {
    if (drive.volume !== undefined) mount += medium.unmountSeconds;
    mount = (mount + medium.mountSeconds) * slowness;
    Object.assign(drive, { volume: file.volume, head: 0, mountedAt: now + mount });
    outcome.mounts++;
  }
  const locate = locateSeconds(medium, pointAt(medium, drive.head), pointAt(medium, file.start));
  drive.head = file.start + file.size;
  return { mount, read: (locate + file.size / medium.streamBytesPerSecond) * slowness };
}

/**
 * Returns the minimum number of drive hours for reading the files, if users request all files at the start. Assumes
 * that drives mount each volume once, and read files at streaming speed. Returns undefined if a volume has too many
 * files for `orderReads` to compute a bound.
 */
export function lowerBoundHours(arrivals: readonly Arrival[], medium: Medium): number | undefined {
  let seconds = 0;
  const volumes = new Map<string, Arrival[]>();
  for (const file of arrivals) volumes.set(file.volume, [...(volumes.get(file.volume) ?? []), file]);
  for (const files of volumes.values()) {
    const { boundSeconds } = orderReads(medium, 0, files);
    if (boundSeconds === undefined) return undefined;
    seconds += medium.mountSeconds + medium.unmountSeconds + boundSeconds;
    for (const file of files) seconds += file.size / medium.streamBytesPerSecond;
  }
  return seconds / 3600;
}

/** Returns the median, 95th percentile and maximum of the waiting times, in seconds. */
export function summariseWaits(waits: readonly { seconds: number }[]): { median: number; p95: number; worst: number } {
  const sorted = waits.map((wait) => wait.seconds).sort((a, b) => a - b);
  const at = (part: number) => sorted[Math.min(Math.floor(part * sorted.length), sorted.length - 1)] ?? 0;
  return { median: at(0.5), p95: at(0.95), worst: sorted.at(-1) ?? 0 };
}
