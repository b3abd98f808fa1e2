/**
 * Measures how many requests end within their estimated range, if the drives are as fast as their medium, 10 times
 * slower, or 10 times faster. The estimates use the simulated times of the files read so far, and begin after 50 files.
 * In the last part, one drive is 4 times slower than the other.
 *
 * - Single requests: 500 requests for 1 to 60 files each, which keep two drives busy for 5, 20 and 40 % of the time.
 * - Bursts: SEEDS (default 10) seeds of many users who request parts of the same volumes within hours. Later requests
 *   delay earlier ones, so that no estimate can be narrow.
 *
 * Usage: npm run compile && node dist/bench/ranges.js
 */
import { findMedium } from '../src/planner/media.js';
import { type Arrival, createRandom } from '../src/simulator/workload.js';
import { followEnds } from '../test/support/recorded-ends.js';
import { makeBursts } from './bursts.js';

const medium = findMedium('lto-8');
const DRIVES = 2;
/** Number of files that drives must have read before the first estimate. */
const LEARNS_FROM = 50;
const REQUESTS = 500;
const MOST_FILES = 60;
const VOLUMES = 12;
const USERS = 7;
/** Log-normal distribution of file sizes in bytes. */
const SIZE = { median: 0.8e9, sigma: 1 };
/** Approximate drive seconds of a request on drives that are as fast as the medium. */
const REQUEST_SECONDS = 600;

/** @param gap mean seconds between requests */
function makeRequests(seed: number, gap: number): Arrival[] {
  const random = createRandom(seed);
  const drawNormal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  let at = 0;
  return Array.from({ length: REQUESTS }, (_, request) => {
    at += -Math.log(1 - random()) * gap;
    const common = {
      at: Math.floor(at),
      user: `user-${request % USERS}`,
      volume: `V${Math.floor(random() * VOLUMES)}`,
    };
    let start = Math.floor(random() * 0.8 * medium.capacityBytes);
    return Array.from({ length: 1 + Math.floor(random() * MOST_FILES) }, (): Arrival => {
      const file = { ...common, start, size: Math.round(SIZE.median * Math.exp(SIZE.sigma * drawNormal())) };
      start += file.size * (random() < 0.5 ? 1 : 5);
      return file;
    });
  }).flat();
}

const quantile = (sorted: readonly number[], part: number) =>
  (sorted[Math.floor(part * (sorted.length - 1))] ?? 0).toFixed(2);
const percent = (part: number) => `${(100 * part).toFixed(1)} %`;

function report(name: string, loads: readonly (readonly Arrival[])[], slowness: readonly number[]): void {
  const options = { drives: DRIVES, medium, slowness, learnsFrom: LEARNS_FROM };
  const told = loads.flatMap((arrivals) => followEnds(arrivals, options));
  const within = told.filter(({ range, end }) => range.earliest <= end && end <= range.latest).length;
  const widths = told.map(({ at, range }) => (range.latest - at) / (range.earliest - at)).sort((a, b) => a - b);
  const parts = told.map(({ at, range, end }) => (end - at) / (range.planned - at)).sort((a, b) => a - b);
  const ends = [0.1, 0.5, 0.9].map((part) => `${quantile(parts, part)} (${part})`).join(', ');
  console.log(
    `${name}, ${slowness.join(' and ')} times the medium's seconds: ${percent(within / told.length)} of ${told.length} within the range; ` +
      `latest / earliest ${quantile(widths, 0.5)} in the median; end / planned end ${ends}`,
  );
}

const seeds = Array.from({ length: Number(process.env.SEEDS ?? 10) }, (_, n) => n + 1);
const speeds = [
  [1, 1],
  [10, 10],
  [0.1, 0.1],
  [1, 4],
];
for (const slowness of speeds) {
  const mean = slowness.reduce((sum, each) => sum + each, 0) / slowness.length;
  for (const load of [0.05, 0.2, 0.4]) {
    const gap = (mean * REQUEST_SECONDS) / (DRIVES * load);
    report(`single requests, drives busy ${percent(load)}`, [makeRequests(1, gap)], slowness);
  }
  report(
    'bursts',
    seeds.map((seed) => makeBursts(medium, { seed })),
    slowness,
  );
}
