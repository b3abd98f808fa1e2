/** Provides workloads for the simulator: generates a workload, or reads it from a trace of requests. */
import type { Medium } from '../planner/media.js';

export interface Arrival {
  /** Time of the request, in seconds from the start of the trace. */
  at: number;
  user: string;
  volume: string;
  /** The file's position on the volume, in bytes. */
  start: number;
  size: number;
}

interface BatchOptions {
  user: string;
  at: number;
  files: number;
  volumes: number;
  sizeBytes: number;
  seed: number;
}

/** Creates simultaneous requests for files of equal size, spread uniformly over volumes. */
export function makeBatch(medium: Medium, options: BatchOptions): Arrival[] {
  const random = createRandom(options.seed);
  return Array.from({ length: options.files }, () => ({
    at: options.at,
    user: options.user,
    volume: `V${String(Math.floor(random() * options.volumes)).padStart(4, '0')}`,
    start: Math.floor(random() * (medium.capacityBytes - options.sizeBytes)),
    size: options.sizeBytes,
  }));
}

/** Returns a generator of reproducible random numbers (Mulberry32). */
export function createRandom(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const COLUMNS = 'at,user,volume,start,size';

/**
 * Parses a trace in CSV format, with the columns in `COLUMNS`.
 * @throws Error with the line number if a line is invalid
 */
export function parseTrace(text: string): Arrival[] {
  const [header, ...lines] = text.split(/\r?\n/);
  if (header?.trim() !== COLUMNS)
    throw new Error(`line 1: the header must be ${COLUMNS}, not ${JSON.stringify(header)}`);
  const arrivals = lines.flatMap((line, index) => {
    if (line === '') return [];
    const [at, user, volume, start, size, ...more] = line.split(',');
    const numbers = [at, start, size].map((field) => (field?.trim() ? Number(field) : Number.NaN));
    if (!user || !volume || more.length > 0 || numbers.some((n) => !(n >= 0))) {
      throw new Error(
        `line ${index + 2}: expected ${COLUMNS}, where at, start and size are at least 0, but found ${JSON.stringify(line)}`,
      );
    }
    return { at: numbers[0] as number, user, volume, start: numbers[1] as number, size: numbers[2] as number };
  });
  return arrivals.sort((a, b) => a.at - b.at);
}
