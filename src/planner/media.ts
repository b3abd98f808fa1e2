/**
 * How long a drive takes with a medium: the cost model of the planner and of the simulator. Pure.
 *
 * A serpentine tape runs to and fro over its length on one wrap after another. The formula of a locate, and its
 * parameters, are those of CTA's recommended access order (taped/rao/CTACostHeuristic.cpp), measured on LTO; load,
 * unload and rewind times are IBM's figures for full-height LTO-8 and LTO-9 drives. It serves to compare orders and to
 * estimate, not to promise.
 */

/** Times in seconds, rates in bytes a second. */
export interface Medium {
  name: string;
  capacityBytes: number;
  streamBytesPerSecond: number;
  /** Robot and load, until the drive is ready at the load point. */
  mountSeconds: number;
  /** Rewind, unload and robot. */
  unmountSeconds: number;
  /** Absent: a plain medium, on which a locate takes `seekSeconds` and no order is much better than another. */
  serpentine?: Serpentine;
  seekSeconds: number;
}

interface Serpentine {
  wraps: number;
  bands: number;
  /** Longitudinal positions of the first and the last block of a wrap. */
  firstLpos: number;
  lastLpos: number;
}

const LTO = { bands: 4, firstLpos: 2696, lastLpos: 171_097 };
const ROBOT_SECONDS = 12;

export const media: Record<string, Medium> = {
  'lto-8': {
    name: 'lto-8',
    capacityBytes: 12e12,
    streamBytesPerSecond: 360e6,
    mountSeconds: ROBOT_SECONDS + 15,
    unmountSeconds: 59 + 24 + ROBOT_SECONDS,
    serpentine: { ...LTO, wraps: 208 },
    seekSeconds: 0,
  },
  'lto-9': {
    name: 'lto-9',
    capacityBytes: 18e12,
    streamBytesPerSecond: 400e6,
    mountSeconds: ROBOT_SECONDS + 17,
    unmountSeconds: 55 + 30 + ROBOT_SECONDS,
    serpentine: { ...LTO, wraps: 280 },
    seekSeconds: 0,
  },
  /** Disks, and whatever is not known better. */
  linear: {
    name: 'linear',
    capacityBytes: 2 ** 53,
    streamBytesPerSecond: 200e6,
    mountSeconds: 0,
    unmountSeconds: 0,
    seekSeconds: 0.0005,
  },
};

/** A place on a tape: its wrap, and how far along the tape it is. */
export interface Point {
  wrap: number;
  lpos: number;
}

/** Where a byte of the volume is. The load point is byte 0. */
export function pointAt(medium: Medium, byte: number): Point {
  if (!medium.serpentine) return { wrap: 0, lpos: byte };
  const { wraps, firstLpos, lastLpos } = medium.serpentine;
  const wrapBytes = medium.capacityBytes / wraps;
  const wrap = Math.min(Math.floor(byte / wrapBytes), wraps - 1);
  const part = Math.min(byte / wrapBytes - wrap, 1) * (lastLpos - firstLpos);
  // even wraps run away from the load point, odd ones back
  return { wrap, lpos: wrap % 2 === 0 ? firstLpos + part : lastLpos - part };
}

/** Seconds from a place to another one. */
export function locateSeconds(medium: Medium, from: Point, to: Point): number {
  if (!medium.serpentine) return from.lpos === to.lpos ? 0 : medium.seekSeconds;
  const { wraps, bands, firstLpos, lastLpos } = medium.serpentine;
  const distance = to.lpos - from.lpos;
  if (distance === 0 && from.wrap === to.wrap) return 0; // the tape is there already and streams on
  let seconds = 4.29 + 0.0006192 * Math.abs(distance);
  const middle = (firstLpos + lastLpos) / 2;
  if (from.lpos < middle !== to.lpos < middle) seconds -= 6.04;
  if (from.wrap === to.wrap) {
    const isBehind = from.wrap % 2 === 0 ? distance < 0 : distance > 0;
    return isBehind ? seconds + 11.32 : seconds;
  }
  seconds += 6.69;
  const wrapsPerBand = wraps / bands;
  if (Math.floor(from.wrap / wrapsPerBand) !== Math.floor(to.wrap / wrapsPerBand)) seconds += 3.2;
  if (from.wrap % 2 !== to.wrap % 2) seconds += 5.22;
  return seconds;
}

/**
 * Seconds a file that a locate takes in a good order, by the number of files that are spread over the volume. A fit to
 * orders of src/planner/order.ts on LTO-8 (1 file 66 s, 10 files 25 s, 100 files 14.3 s, 1,000 files 11.3 s).
 */
function typicalLocateSeconds(medium: Medium, files: number): number {
  return medium.serpentine ? 10 + 56 / Math.max(files, 1) ** 0.58 : medium.seekSeconds;
}

/** About how long a drive is busy with files that wait on a volume, mount and unmount included. */
export function estimateSeconds(medium: Medium, files: number, bytes: number): number {
  return medium.mountSeconds + medium.unmountSeconds + estimateReading(medium, files, bytes);
}

/** About how long it reads them, once the volume is mounted. */
export function estimateReading(medium: Medium, files: number, bytes: number): number {
  return bytes / medium.streamBytesPerSecond + files * typicalLocateSeconds(medium, files);
}

/** A medium by its name; one that is not known is treated as linear. */
export function findMedium(name: string): Medium {
  return media[name] ?? (media.linear as Medium);
}
