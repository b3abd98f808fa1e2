/**
 * Bursts: what several users ask for within hours on popular volumes, on two drives, for SEEDS (10) seeds: drive hours and
 * waits of Tapegate beside those of "grouped, nearest first" on the same load.
 *
 *   npm run compile && node dist/bench/bursts.js
 */
import { findMedium } from '../src/planner/media.js';
import { makeBursts } from '../src/simulator/bursts.js';
import { createPlanned } from '../src/simulator/planned.js';
import { type Outcome, simulate, summariseWaits } from '../src/simulator/simulate.js';
import { createGrouping, orders } from '../src/simulator/strategies.js';

const options = { drives: 2, medium: findMedium('lto-8') };
const seeds = Array.from({ length: Number(process.env.SEEDS ?? 10) }, (_, n) => n + 1);

function meanOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** By user: the mean wait. */
function waitsOf(outcome: Outcome): Map<string, number> {
  const users = new Map<string, number[]>();
  for (const { user, seconds } of outcome.waits) users.set(user, [...(users.get(user) ?? []), seconds]);
  return new Map([...users].map(([user, waits]) => [user, meanOf(waits)]));
}

const rows = seeds.map((seed) => {
  const arrivals = makeBursts(options.medium, { seed });
  const nearest = simulate(createGrouping(options.medium, orders.nearest), arrivals, options);
  const planned = simulate(createPlanned(options.medium), arrivals, options);
  const [before, after] = [waitsOf(nearest), waitsOf(planned)];
  const shorter = [...after].filter(([user, seconds]) => seconds <= (before.get(user) ?? 0)).length;
  const row = {
    hours: planned.driveHours / nearest.driveHours,
    p95: summariseWaits(planned.waits).p95 / summariseWaits(nearest.waits).p95,
    mean: meanOf([...after.values()]) / meanOf([...before.values()]),
    shorter: shorter / after.size,
  };
  console.log(
    `seed ${seed}: ${arrivals.length} files of ${after.size} users on ${new Set(arrivals.map((file) => file.volume)).size} volumes; drive hours ${row.hours.toFixed(3)} of ` +
      `${nearest.driveHours.toFixed(2)}, 95th percentile of waits ${row.p95.toFixed(2)}, mean wait of a user ` +
      `${row.mean.toFixed(2)}, shorter for ${(100 * row.shorter).toFixed(0)} % of users`,
  );
  return row;
});
console.log(
  `drive hours ${meanOf(rows.map((row) => row.hours)).toFixed(3)} of nearest first in the mean, ` +
    `${Math.max(...rows.map((row) => row.hours)).toFixed(3)} at most; 95th percentile of waits ` +
    `${meanOf(rows.map((row) => row.p95)).toFixed(2)} in the mean, ${Math.max(...rows.map((row) => row.p95)).toFixed(2)} at most`,
);
