/** Compares recall strategies on one workload. */
import type { Medium } from '../planner/media.js';
import { PlannedStrategy } from './planned.js';
import {
  lowerBoundHours,
  type SimulationResult,
  type Strategy,
  simulate,
  summariseWaits,
  type Wait,
} from './simulate.js';
import { createArrivalOrder, createGrouping, createRandomSlots, orders } from './strategies.js';
import type { Arrival } from './workload.js';

export interface Comparison {
  strategy: string;
  driveHours: number;
  mounts: number;
  spanHours: number;
  wait: WaitHours;
  users: Record<string, WaitHours>;
}

export interface WaitHours {
  median: number;
  p95: number;
  worst: number;
}

const SEED = 7;

function createStrategies(medium: Medium): Record<string, () => Strategy> {
  return {
    'arrival order': () => createArrivalOrder(),
    'random slots': () => createRandomSlots(SEED),
    'grouped by volume': () => createGrouping(medium, orders.arrival),
    'grouped, by position': () => createGrouping(medium, orders.position),
    'grouped, nearest first': () => createGrouping(medium, orders.nearest),
    tapegate: () => new PlannedStrategy(medium),
  };
}

export function compareStrategies(
  arrivals: readonly Arrival[],
  options: { drives: number; medium: Medium },
): { rows: Comparison[]; boundHours: number | undefined } {
  const rows = Object.entries(createStrategies(options.medium)).map(([strategy, create]) =>
    present(strategy, simulate(create(), arrivals, options)),
  );
  return { rows, boundHours: lowerBoundHours(arrivals, options.medium) };
}

function present(strategy: string, outcome: SimulationResult): Comparison {
  const byUser = new Map<string, Wait[]>();
  for (const wait of outcome.waits) {
    const known = byUser.get(wait.user);
    if (known) known.push(wait);
    else byUser.set(wait.user, [wait]);
  }
  const { driveHours, mounts, spanHours, waits } = outcome;
  const users = Object.fromEntries([...byUser].map(([user, own]) => [user, toHours(own)]));
  return { strategy, driveHours, mounts, spanHours, wait: toHours(waits), users };
}

function toHours(waits: readonly Wait[]): WaitHours {
  const { median, p95, worst } = summariseWaits(waits);
  return { median: median / 3600, p95: p95 / 3600, worst: worst / 3600 };
}
