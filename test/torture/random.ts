/** Choices that a seed repeats. When they fall, among processes that run at the same time, no seed can repeat. */

export interface Random {
  /** From 0, below 1. */
  next(): number;
  /** Both ends included. */
  integer(low: number, high: number): number;
  chance(probability: number): boolean;
  /** @throws Error when there is nothing to pick from */
  pick<T>(items: readonly T[]): T;
  /** As many of the items as asked for, or all of them. */
  sample<T>(items: readonly T[], count: number): T[];
  /** A generator of its own, so that whoever else draws from this one changes nothing. */
  fork(): Random;
}

/** Mulberry32: small, and good enough to choose by. */
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
      if (items.length === 0) throw new Error('there is nothing to pick from');
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

/** One of several things, as often as its weight says. */
export function pickWeighted<T>(random: Random, choices: readonly (readonly [weight: number, choice: T])[]): T {
  let left = random.next() * choices.reduce((sum, [weight]) => sum + weight, 0);
  for (const [weight, choice] of choices) {
    left -= weight;
    if (left < 0) return choice;
  }
  return random.pick(choices)[1];
}
