/**
 * The command `simulate` simulates a workload with a virtual clock, and compares Tapegate's planner with the strategies
 * of other systems.
 */
import { readFile } from 'node:fs/promises';
import { type Command, Option } from 'commander';
import type { Medium } from '../planner/media.js';
import type { Comparison } from '../simulator/compare.js';
import type { Arrival } from '../simulator/workload.js';
import { toNumber } from './terminal/arguments.js';
import { type OutputOptions, printJson, printLine, printTable } from './terminal/output.js';

export function register(program: Command): void {
  program
    .command('simulate [trace]')
    .addOption(
      new Option('--medium <name>', 'cost model of the drives and tapes')
        .choices(['lto-8', 'lto-9', 'linear'])
        .default('lto-8'),
    )
    .option('--drives <n>', 'number of drives', toCount('--drives'), 2)
    .option('--files <n>', 'number of generated files', toCount('--files'), 2000)
    .option('--volumes <n>', 'number of volumes that contain the files', toCount('--volumes'), 20)
    .option('--size <bytes>', 'size of each file', toCount('--size'), 2_500_000_000)
    .option('--seed <n>', 'random seed for the positions of the files', toCount('--seed'), 7)
    .action((trace, options) => simulateLoad(trace, options));
}

interface SimulateOptions extends OutputOptions {
  medium: string;
  drives: number;
  files: number;
  volumes: number;
  size: number;
  seed: number;
}

/** @param trace path of a CSV file with request arrivals; if undefined, the simulator generates arrivals */
async function simulateLoad(trace: string | undefined, options: SimulateOptions): Promise<void> {
  const { compareStrategies } = await import('../simulator/compare.js');
  const { findMedium } = await import('../planner/media.js');
  const medium = findMedium(options.medium);
  const arrivals = await readArrivals(medium, trace, options);
  const { rows, boundHours } = compareStrategies(arrivals, { drives: options.drives, medium });
  if (options.json) return printJson({ rows, boundHours });
  printStrategies(rows);
  printUsers(rows);
  if (boundHours !== undefined)
    printLine(`in any order, the reads take at least ${formatHours(boundHours)} drive hours`);
}

async function readArrivals(medium: Medium, trace: string | undefined, options: SimulateOptions): Promise<Arrival[]> {
  const { makeBatch, parseTrace } = await import('../simulator/workload.js');
  if (trace !== undefined) return parseTrace(await readFile(trace, 'utf8'));
  const { files, volumes, size: sizeBytes, seed } = options;
  return makeBatch(medium, { user: 'user', at: 0, files, volumes, sizeBytes, seed });
}

function toCount(option: string): (text: string) => number {
  return toNumber(option, { from: 1, digits: 15, expected: 'a whole number of at least 1' });
}

function printStrategies(rows: Comparison[]): void {
  printTable(
    ['STRATEGY', 'DRIVE HOURS', 'MOUNTS', 'SPAN H', 'MEDIAN WAIT H', 'P95', 'WORST'],
    rows.map((row) => [
      row.strategy,
      formatHours(row.driveHours),
      String(row.mounts),
      formatHours(row.spanHours),
      formatHours(row.wait.median),
      formatHours(row.wait.p95),
      formatHours(row.wait.worst),
    ]),
  );
}

function printUsers(rows: Comparison[]): void {
  const users = new Set(rows.flatMap((row) => Object.keys(row.users)));
  if (users.size <= 1) return;
  printLine('');
  printTable(
    ['USER', 'STRATEGY', 'MEDIAN WAIT H', 'P95', 'WORST'],
    [...users]
      .sort()
      .flatMap((user) =>
        rows.flatMap(({ strategy, users: { [user]: wait } }) =>
          wait ? [[user, strategy, formatHours(wait.median), formatHours(wait.p95), formatHours(wait.worst)]] : [],
        ),
      ),
  );
}

function formatHours(hours: number): string {
  return hours.toFixed(2);
}
