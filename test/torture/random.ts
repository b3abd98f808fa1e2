/** Random choices that a seed repeats. The timing between processes is not repeatable. */
import { createHash, randomBytes } from 'node:crypto';

export interface Random {
  /** Returns a number from 0 to below 1. */
  next(): number;
  /** Returns an integer from `low` to `high`. The result may be `low` or `high`. */
  integer(low: number, high: number): number;
  chance(probability: number): boolean;
  /** @throws Error if there are no items */
  pick<T>(items: readonly T[]): T;
  /** Returns `count` random items, or all items if there are fewer. */
  sample<T>(items: readonly T[], count: number): T[];
  /** Creates an independent generator. */
  fork(): Random;
}

/** Returns a Mulberry32 generator, which is small and good enough for choices. */
export function createRandom(seed: number): Random {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const random: Random = {
    next,
    integer: (low, high) => low + Math.floor(next() * (high - low + 1)),
    chance: (probability) => next() < probability,
    pick: <T>(items: readonly T[]) => {
      if (items.length === 0) throw new Error('nothing to pick from');
      return items[Math.floor(next() * items.length)] as T;
    },
    sample: <T>(items: readonly T[], count: number) => {
      const left = [...items];
      const taken: T[] = [];
      while (taken.length < count && left.length > 0) {
        taken.push(...left.splice(Math.floor(next() * left.length), 1));
      }
      return taken;
    },
    fork: () => createRandom(random.integer(0, 2 ** 32 - 1)),
  };
  return random;
}

export type Weighted<T> = readonly (readonly [weight: number, choice: T])[];

/** Picks a choice with a probability in proportion to its weight. */
export function pickWeighted<T>(random: Random, choices: Weighted<T>): T {
  let left = random.next() * choices.reduce((sum, [weight]) => sum + weight, 0);
  for (const [weight, choice] of choices) {
    left -= weight;
    if (left < 0) return choice;
  }
  return random.pick(choices)[1];
}

/** Reads a number from an environment variable. */
export function numberOf(environment: Record<string, string | undefined>, name: string, fallback: number): number {
  const value = Number(environment[name] || fallback);
  if (Number.isFinite(value) && value >= 0) return value;
  throw new Error(`${name} must be a number of at least 0, not ${JSON.stringify(environment[name])}`);
}

export interface Source {
  size: bigint;
  sha256: string;
}

const MIN_BYTES = 1000;

/** Creates a file of random bytes. Small files are more frequent than large files. */
export function randomFile(random: Random, maxBytes: number): Source & { bytes: Buffer } {
  const bytes = randomBytes(Math.round(MIN_BYTES * (maxBytes / MIN_BYTES) ** random.next()));
  return { bytes, size: BigInt(bytes.length), sha256: createHash('sha256').update(bytes).digest('hex') };
}
