/**
 * Fair share: one user asks for FILES (100,000) files of 2.5 GB on VOLUMES (50) LTO-8 volumes, and an hour later ten
 * others ask for ten each. How long the others wait, with fair share, without, and alone; and how near the longest wait
 * of each user comes to the bound of src/planner/bound.ts.
 *
 *   npm run compile && node dist/bench/fairness.js
 */
import { findMedium } from '../src/planner/media.js';
import { findLongestPart } from '../src/simulator/bound.js';
import { createPlanned, type PlannedOptions } from '../src/simulator/planned.js';
import { simulate } from '../src/simulator/simulate.js';
import { type Arrival, makeCrowd } from '../src/simulator/workload.js';

const options = { drives: 2, medium: findMedium('lto-8') };
const load = { files: Number(process.env.FILES ?? 100_000), volumes: Number(process.env.VOLUMES ?? 50) };
const { heavy, others } = makeCrowd(options.medium, { ...load, sizeBytes: 2.5e9, seed: 7 });

function run(name: string, arrivals: Arrival[], planned: PlannedOptions): void {
  const start = performance.now();
  const outcome = simulate(createPlanned(options.medium, planned), arrivals, options);
  const seconds = (performance.now() - start) / 1000;
  const waits = outcome.waits.filter((wait) => wait.user !== 'heavy').map((wait) => wait.seconds / 3600);
  const mean = waits.reduce((sum, wait) => sum + wait, 0) / waits.length;
  const part = findLongestPart(outcome, options);
  console.log(
    `${name.padEnd(20)} others wait ${mean.toFixed(2)} h, at worst ${Math.max(...waits).toFixed(2)} h; ` +
      `all done after ${outcome.spanHours.toFixed(1)} h, ${outcome.mounts} mounts; ` +
      `longest wait ${(part * 100).toFixed(0)} % of its bound (${seconds.toFixed(1)} s)`,
  );
}

run('with fair share', [...heavy, ...others], {});
run('without', [...heavy, ...others], { isFair: false });
run('the others alone', others, {});
