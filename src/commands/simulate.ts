/** `simulate`: Tapegate's planner and the ways of other systems on one work load, under a virtual clock. */
import { readFile } from 'node:fs/promises';
import { findMedium, media } from '../planner/media.js';
import { compareStrategies } from '../simulator/compare.js';
import { type Arrival, makeBatch, makeCrowd, parseTrace } from '../simulator/workload.js';
import { readNumber } from './arguments.js';
import { UsageError } from './failure.js';
import { type OutputOptions, printJson, printLine, printTable } from './output.js';

export interface SimulateOptions extends OutputOptions {
  medium: string;
  drives: string;
  files: string;
  volumes: string;
  size: string;
  seed: string;
  crowd?: boolean;
}

/** @param trace a CSV of arrivals; without one, a work load is generated */
export async function simulateLoad(trace: string | undefined, options: SimulateOptions): Promise<void> {
  if (!Object.hasOwn(media, options.medium)) {
    const known = Object.keys(media).join(', ');
    throw new UsageError(`--medium must be one of ${known}, not ${options.medium}`);
  }
  const medium = findMedium(options.medium);
  const load = {
    files: readCount('--files', options.files),
    volumes: readCount('--volumes', options.volumes),
    sizeBytes: readCount('--size', options.size),
    seed: readCount('--seed', options.seed),
  };
  let arrivals: Arrival[];
  if (trace !== undefined) arrivals = parseTrace(await readFile(trace, 'utf8'));
  else if (options.crowd) {
    const { heavy, others } = makeCrowd(medium, load);
    arrivals = [...heavy, ...others];
  } else arrivals = makeBatch(medium, { user: 'user', at: 0, ...load });
  const { rows, boundHours } = compareStrategies(arrivals, { drives: readCount('--drives', options.drives), medium });
  if (options.json) return printJson({ rows, boundHours });
  const hours = (value: number) => value.toFixed(2);
  printTable(
    ['STRATEGY', 'DRIVE HOURS', 'MOUNTS', 'SPAN H', 'MEDIAN WAIT H', 'P95', 'WORST'],
    rows.map((row) => [
      row.strategy,
      hours(row.driveHours),
      String(row.mounts),
      hours(row.spanHours),
      hours(row.wait.median),
      hours(row.wait.p95),
      hours(row.wait.worst),
    ]),
  );
  const users = new Set(rows.flatMap((row) => Object.keys(row.users)));
  if (users.size > 1) {
    printLine('');
    printTable(
      ['USER', 'STRATEGY', 'MEDIAN WAIT H', 'P95', 'WORST'],
      [...users]
        .sort()
        .flatMap((user) =>
          rows.flatMap(({ strategy, users: { [user]: wait } }) =>
            wait ? [[user, strategy, hours(wait.median), hours(wait.p95), hours(wait.worst)]] : [],
          ),
        ),
    );
  }
  if (boundHours !== undefined) printLine(`no order can be below ${hours(boundHours)} drive hours`);
}

function readCount(option: string, text: string): number {
  return readNumber(option, text, { from: 1, digits: 15, expected: 'a whole number from 1 on' });
}
