/**
 * Measures how many requests end within their estimated range. Bursts of SEEDS (default 10) seeds run on two drives.
 * Each request's range is estimated on arrival, and compared with the request's real end under the later load.
 *
 * Usage: npm run compile && node dist/bench/ranges.js
 */
import { findMedium } from '../src/planner/media.js';
import { followEnds } from '../test/support/recorded-ends.js';
import { makeBursts } from './bursts.js';

const options = { drives: 2, medium: findMedium('lto-8') };
const seeds = Array.from({ length: Number(process.env.SEEDS ?? 10) }, (_, n) => n + 1);
const told = seeds.flatMap((seed) => followEnds(makeBursts(options.medium, { seed }), options));

const partOf = (count: number) => `${((100 * count) / told.length).toFixed(1)} %`;
const within = told.filter(({ range, end }) => range.earliest <= end && end <= range.latest);
const early = told.filter(({ range, end }) => end < range.earliest);
/** Real duration of each request divided by the planned duration, sorted. */
const parts = told.map(({ at, range, end }) => (end - at) / (range.planned - at)).sort((a, b) => a - b);
const widths = told.map(({ range }) => (range.latest - range.earliest) / 3600).sort((a, b) => a - b);
const quantile = (sorted: readonly number[], part: number) =>
  (sorted[Math.floor(part * (sorted.length - 1))] ?? 0).toFixed(2);

console.log(
  `${told.length} requests: ${partOf(within.length)} ended within the range, ${partOf(early.length)} before it`,
);
console.log(`the range is ${quantile(widths, 0.5)} h wide in the median, ${quantile(widths, 0.9)} h for nine of ten`);
console.log(
  `end against plan: ${[0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99].map((part) => `${quantile(parts, part)} (${part})`).join(', ')}`,
);
