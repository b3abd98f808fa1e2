/**
 * Figures of a benchmark: the rate or cost of Tapegate, and of a reference that did the same work in the same run. Each
 * benchmark prints its figures, and `npm run bench` makes a table of all figures.
 */
import { appendFileSync } from 'node:fs';
import { median } from './kit.js';

export interface Figure {
  /** Name of the measured work in the table. */
  work: string;
  /** Tapegate's rate or cost, in `unit`. A higher value is better, unless `isCost` is set. */
  ours: number;
  reference: number;
  /** Name of the reference. */
  beside: string;
  unit: string;
  /** Whether a lower value is better, as for seconds and bytes. */
  isCost?: boolean;
  /**
   * Required ratio of Tapegate to the reference: a minimum for a rate, a maximum for a cost; undefined if no ratio is
   * required.
   */
  bound?: number;
}

/** Returns Tapegate's value divided by the reference's value. */
export function ratioOf({ ours, reference }: Figure): number {
  return ours / reference;
}

export function isMet(figure: Figure): boolean {
  if (figure.bound === undefined) return true;
  return figure.isCost ? ratioOf(figure) <= figure.bound : ratioOf(figure) >= figure.bound;
}

/** Formats a value with three significant digits, or as an integer if it is 100 or more. */
export function digits(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}

export function describeBound({ bound, isCost }: Figure): string {
  return bound === undefined ? '' : `${isCost ? 'at most' : 'at least'} ${bound}`;
}

/** Prints a figure, and appends the figure to the file that the variable BENCH_FIGURES names, if any. */
export function tellFigure(figure: Figure): void {
  const { work, ours, reference, beside, unit } = figure;
  const bound = figure.bound === undefined ? '' : ` (${describeBound(figure)}${isMet(figure) ? '' : ': not met'})`;
  const ratio = `${ratioOf(figure).toFixed(2)}${bound}`;
  console.log(`${work}: ${digits(ours)} ${unit}, ${beside} ${digits(reference)} ${unit}: ${ratio}`);
  if (process.env.BENCH_FIGURES) appendFileSync(process.env.BENCH_FIGURES, `${JSON.stringify(figure)}\n`);
}

/**
 * Rounds that warm up the servers and are not measured. V8 compiles hot code first, and the gateway has more code than
 * a reference.
 */
export const WARM_ROUNDS = 3;

/**
 * Runs each function of `ways` `rounds` times. The order alternates, so that changes on the machine affect all
 * functions alike.
 * @returns the median and all results of each function
 */
export async function inTurns<Name extends string>(
  ways: Record<Name, () => Promise<number>>,
  rounds: number,
): Promise<Record<Name, { median: number; all: number[] }>> {
  const names = Object.keys(ways) as Name[];
  const given = new Map<Name, number[]>(names.map((name) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    for (const name of round % 2 === 0 ? names : names.toReversed()) given.get(name)?.push(await ways[name]());
  }
  const results = [...given].map(([name, all]) => [name, { median: median(all), all }]);
  return Object.fromEntries(results) as Record<Name, { median: number; all: number[] }>;
}
