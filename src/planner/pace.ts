/**
 * Learns how fast a drive is, compared with the cost model of its media. All functions are pure.
 *
 * The time to read a file is modelled as overhead + streaming: the time to locate the file and to prepare its copy, and
 * the time to transfer its bytes. A drive's pace scales both terms. The scales are fitted to the measured times of earlier files by
 * least squares. Recent files count more than earlier ones. The cost model itself counts as one file, so that few
 * measurements change the estimate little. A single slow file, for example because the restore disk was busy, counts as
 * at most `MOST_TIMES` the expected time.
 */
import { locatingSeconds, type Medium } from './media.js';

/** Number of files after which a measurement counts half as much. */
const HALF_LIFE_FILES = 200;
/** Number of files and of mounts as which the cost model counts. */
const MODEL_WEIGHT = 1;
/** Neither scale is less than this part of the measured time divided by the modelled time of all files. */
const LEAST_PART = 0.1;
const MOST_TIMES = 4;
const LEAST_SCALE = 1e-4;

/** Sums over the files that a drive has read, weighted by age. The database stores the sums in this order. */
const SUMS = ['files', 'modelled', 'measured', 'oo', 'os', 'ss', 'ot', 'st', 'mounts', 'mountSeconds'] as const;

export type PaceSums = Readonly<Record<(typeof SUMS)[number], number>>;

/** Returns empty sums if the given sums are not valid, for example because another version has stored them. */
export function parsePace(sums: readonly number[]): PaceSums {
  const isValid = sums.length === SUMS.length && sums.every((sum) => Number.isFinite(sum) && sum >= 0);
  return Object.fromEntries(SUMS.map((name, n) => [name, isValid ? sums[n] : 0])) as unknown as PaceSums;
}

export const formatPace = (sums: PaceSums): number[] => SUMS.map((name) => sums[name]);

/** Adds the sums of several drives. */
export const joinPaces = (all: readonly PaceSums[]): PaceSums =>
  parsePace(SUMS.map((name) => all.reduce((sum, each) => sum + each[name], 0)));

/**
 * Adds a file to the sums.
 * @param files number of files that waited on the volume. The model's time to locate each file depends on this number
 * @param seconds measured time to locate and read the file
 */
export function addFile(
  sums: PaceSums,
  { medium, files, bytes, seconds: measured }: { medium: Medium; files: number; bytes: number; seconds: number },
): PaceSums {
  const overhead = locatingSeconds(medium, files);
  const streaming = bytes / medium.streamBytesPerSecond;
  const modelled = Math.max(overhead + streaming, 1e-9);
  const scales = fitScales(sums);
  const expected = scales.overhead * overhead + scales.streaming * streaming;
  const seconds = isMeasured(sums) ? Math.min(measured, MOST_TIMES * expected) : measured;
  const weight = 1 / modelled; // gives small and large files the same weight
  const keep = 0.5 ** (1 / HALF_LIFE_FILES);
  return {
    ...sums,
    files: sums.files * keep + 1,
    modelled: sums.modelled * keep + modelled,
    measured: sums.measured * keep + seconds,
    oo: sums.oo * keep + weight * overhead * overhead,
    os: sums.os * keep + weight * overhead * streaming,
    ss: sums.ss * keep + weight * streaming * streaming,
    ot: sums.ot * keep + weight * overhead * seconds,
    st: sums.st * keep + weight * streaming * seconds,
  };
}

const HALF_LIFE_MOUNTS = 20;

/** Adds a mount to the sums. @param seconds measured time to mount and unmount the volume */
export function addMount(sums: PaceSums, seconds: number): PaceSums {
  const keep = 0.5 ** (1 / HALF_LIFE_MOUNTS);
  return { ...sums, mounts: sums.mounts * keep + 1, mountSeconds: sums.mountSeconds * keep + seconds };
}

/** Number of measured files, weighted by age, from which an estimate counts as measured. */
const ENOUGH_FILES = 4.5;

export const isMeasured = ({ files }: PaceSums): boolean => files >= ENOUGH_FILES;

/** Number of measured files, weighted by age, from which the speed of a single drive is used. */
const ENOUGH_OF_DRIVE = 20;
/** Factor by which a drive must be faster or slower than the drives of its library on average. */
const DIFFERENCE = 1.25;

/**
 * Returns a function that returns a medium with the speed of one drive. Returns undefined if the drive has read too few
 * files, or if it is about as fast as all drives of the library together: their measurements are more reliable.
 */
export function measureOwn(own: PaceSums, ofLibrary: PaceSums): ((medium: Medium) => Medium) | undefined {
  if (own.files < ENOUGH_OF_DRIVE) return undefined;
  const part = own.measured / own.modelled / (ofLibrary.measured / ofLibrary.modelled);
  return Math.max(part, 1 / part) > DIFFERENCE ? (medium) => measuredMedium(medium, own) : undefined;
}

/** Returns the medium with the speed that drives have shown. */
export function measuredMedium(medium: Medium, sums: PaceSums): Medium {
  const { overhead, streaming } = fitScales(sums);
  const modelled = medium.mountSeconds + medium.unmountSeconds;
  const swapSeconds = (MODEL_WEIGHT * modelled + sums.mountSeconds) / (MODEL_WEIGHT + sums.mounts);
  const mountSeconds = modelled > 0 ? (swapSeconds * medium.mountSeconds) / modelled : swapSeconds;
  return {
    ...medium,
    streamBytesPerSecond: medium.streamBytesPerSecond / streaming,
    locateScale: overhead,
    mountSeconds,
    unmountSeconds: swapSeconds - mountSeconds,
  };
}

/** Minimizes the weighted squares of overhead × o + streaming × s − t, with both scales drawn towards 1. */
function fitScales({ files, modelled, measured, oo, os, ss, ot, st }: PaceSums): Scales {
  if (files <= 0 || modelled <= 0) return { overhead: 1, streaming: 1 };
  const pull = (MODEL_WEIGHT * (oo + 2 * os + ss)) / files;
  const [a, d, x, y] = [oo + pull, ss + pull, ot + pull, st + pull];
  const determinant = a * d - os * os;
  if (!(determinant > 0)) return { overhead: 1, streaming: 1 };
  const overhead = (x * d - y * os) / determinant;
  const streaming = (y * a - x * os) / determinant;
  const least = Math.max((LEAST_PART * measured) / modelled, LEAST_SCALE);
  if (overhead < least) return { overhead: least, streaming: Math.max((y - os * least) / d, least) };
  if (streaming < least) return { overhead: Math.max((x - os * least) / a, least), streaming: least };
  return { overhead, streaming };
}

interface Scales {
  overhead: number;
  streaming: number;
}
