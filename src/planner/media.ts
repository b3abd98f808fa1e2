/**
 * The cost model for media, used by the planner and the simulator. All functions are pure.
 *
 * The formula for locate times comes from CTA (taped/rao/CTACostHeuristic.cpp). Its parameters were measured on LTO
 * drives. The times to load, unload and rewind are IBM's figures for full-height LTO-8 and LTO-9 drives.
 */
import { type MediumName, mediumNameOf } from '../core/medium-names.js';

/** A storage medium, such as LTO-8 tape. Times are in seconds, and rates are in bytes per second. */
export interface Medium {
  name: string;
  capacityBytes: number;
  streamBytesPerSecond: number;
  /** Seconds that the robot and the drive need to load a volume and wind the tape to the load point. */
  mountSeconds: number;
  /** Seconds that the drive and the robot need to rewind, unload and store a volume. */
  unmountSeconds: number;
  /** Geometry of a serpentine tape; undefined if a locate on the medium always takes `seekSeconds`. */
  serpentine?: Serpentine;
  seekSeconds: number;
  /** Measured time of locates, divided by the modelled time (src/planner/pace.ts). Default: 1. */
  locateScale?: number;
}

interface Serpentine {
  wraps: number;
  bands: number;
  /** Longitudinal positions of a wrap's first and last blocks. */
  firstLpos: number;
  lastLpos: number;
}

const LTO = { bands: 4, firstLpos: 2696, lastLpos: 171_097 };
const ROBOT_SECONDS = 12;

export const media: Record<MediumName, Medium> = {
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
  /** The medium for volumes on disk, and for unknown media. */
  linear: {
    name: 'linear',
    capacityBytes: 2 ** 53,
    streamBytesPerSecond: 200e6,
    mountSeconds: 0,
    unmountSeconds: 0,
    seekSeconds: 0.0005,
  },
};

export interface Point {
  wrap: number;
  lpos: number;
}

/** Converts a byte position on a volume to a point on the tape. The load point is byte 0. */
export function pointAt(medium: Medium, byte: number): Point {
  if (!medium.serpentine) return { wrap: 0, lpos: byte };
  const { wraps, firstLpos, lastLpos } = medium.serpentine;
  const wrapBytes = medium.capacityBytes / wraps;
  const wrap = Math.min(Math.floor(byte / wrapBytes), wraps - 1);
  const part = Math.min(byte / wrapBytes - wrap, 1) * (lastLpos - firstLpos);
  // on even wraps, the tape is read away from the load point; on odd wraps, it is read towards the load point
  return { wrap, lpos: wrap % 2 === 0 ? firstLpos + part : lastLpos - part };
}

export function locateSeconds(medium: Medium, from: Point, to: Point): number {
  if (!medium.serpentine) return from.lpos === to.lpos ? 0 : medium.seekSeconds;
  const { wraps, bands, firstLpos, lastLpos } = medium.serpentine;
  const distance = to.lpos - from.lpos;
  // a locate to the current position takes no time, because the drive continues to read without a stop
  if (distance === 0 && from.wrap === to.wrap) return 0;
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
 * Returns the average seconds per locate for files that are spread over a volume and read in an optimised order. The
 * formula is fitted to the read orders that src/planner/order.ts computes for LTO-8.
 */
export function locatingSeconds(medium: Medium, files: number): number {
  const seconds = medium.serpentine ? 10 + 56 / Math.max(files, 1) ** 0.58 : medium.seekSeconds;
  return seconds * (medium.locateScale ?? 1);
}

/** Estimates the seconds that a drive needs to mount a volume, read its waiting files and unmount it. */
export function estimateSeconds(medium: Medium, files: number, bytes: number): number {
  return medium.mountSeconds + medium.unmountSeconds + estimateReading(medium, files, bytes);
}

export function estimateReading(medium: Medium, files: number, bytes: number): number {
  return bytes / medium.streamBytesPerSecond + files * locatingSeconds(medium, files);
}

/** Returns the medium with the given name, or the medium `linear` if the name is unknown. */
export function findMedium(name: string): Medium {
  return media[mediumNameOf(name)];
}
