/** Strategies side by side on one work load. */
import type { Medium } from '../planner/media.js';
import { createPlanned } from './planned.js';
import { lowerBoundHours, type Outcome, type Strategy, simulate, summariseWaits } from './simulate.js';
import { createArrivalOrder, createGrouping, createRandomSlots, orders } from './strategies.js';
import type { Arrival } from './workload.js';

export interface Comparison {
  strategy: string;
  driveHours: number;
  mounts: number;
  spanHours: number;
  /** Hours. */
  wait: { median: number; p95: number; worst: number };
  /** Mean hours by user. */
  users: Record<string, number>;
}

const SEED = 7;

export function createStrategies(medium: Medium): Record<string, () => Strategy> {
  return {
    'arrival order': () => createArrivalOrder(),
    'random slots': () => createRandomSlots(SEED),
    'grouped by volume': () => createGrouping(medium, orders.arrival),
    'grouped, by position': () => createGrouping(medium, orders.position),
    'grouped, nearest first': () => createGrouping(medium, orders.nearest),
    tapegate: () => createPlanned(medium),
  };
}

/** Runs every strategy on the same arrivals. */
export function compareStrategies(
  arrivals: readonly Arrival[],
  options: { drives: number; medium: Medium },
): { rows: Comparison[]; boundHours: number | undefined } {
  const rows = Object.entries(createStrategies(options.medium)).map(([strategy, create]) =>
    present(strategy, simulate(create(), arrivals, options)),
  );
  return { rows, boundHours: lowerBoundHours(arrivals, options.medium) };
}

export function present(strategy: string, outcome: Outcome): Comparison {
  const { median, p95, worst } = summariseWaits(outcome.waits);
  const sums = new Map<string, { seconds: number; files: number }>();
  for (const { user, seconds } of outcome.waits) {
    const sum = sums.get(user) ?? { seconds: 0, files: 0 };
    sums.set(user, { seconds: sum.seconds + seconds, files: sum.files + 1 });
  }
  const users = [...sums].map(([user, sum]) => [user, sum.seconds / sum.files / 3600] as const);
  return {
    strategy,
    driveHours: outcome.driveHours,
    mounts: outcome.mounts,
    spanHours: outcome.spanHours,
    wait: { median: median / 3600, p95: p95 / 3600, worst: worst / 3600 },
    users: Object.fromEntries(users),
  };
}
