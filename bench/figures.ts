/**
 * Figures of a benchmark: what Tapegate does in a second (or takes of memory) beside a reference that did the same work in the same run, in turns.
 * Printed for whoever runs one benchmark, and kept for `npm run bench`, which makes a table of all of them.
 */
import { appendFileSync } from 'node:fs';
import { median } from './kit.js';

export interface Figure {
  /** What was done, as the table has it. */
  work: string;
  /** Of Tapegate, in `unit`; more is better, unless `isCost`. */
  ours: number;
  reference: number;
  /** What the reference is. */
  beside: string;
  unit: string;
  /** Less is better: seconds, bytes. */
  isCost?: boolean;
  /** The ratio that is to be met: at least so much of a rate, at most so much of a cost; undefined where none is claimed. */
  bound?: number;
}

/** Above 1 Tapegate does more than the reference, or takes more. */
export function ratioOf({ ours, reference }: Figure): number {
  return ours / reference;
}

export function isMet(figure: Figure): boolean {
  if (figure.bound === undefined) return true;
  return figure.isCost ? ratioOf(figure) <= figure.bound : ratioOf(figure) >= figure.bound;
}

/** Three digits that count, and no more than one behind the point where there are two before it. */
export function digits(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}

export function describeBound({ bound, isCost }: Figure): string {
  return bound === undefined ? '' : `${isCost ? 'at most' : 'at least'} ${bound}`;
}

/** Prints a figure, and adds it to the file BENCH_FIGURES where `npm run bench` has named one. */
export function tellFigure(figure: Figure): void {
  const { work, ours, reference, beside, unit } = figure;
  const bound = figure.bound === undefined ? '' : ` (${describeBound(figure)}${isMet(figure) ? '' : ': not met'})`;
  const ratio = `${ratioOf(figure).toFixed(2)}${bound}`;
  console.log(`${work}: ${digits(ours)} ${unit}, ${beside} ${digits(reference)} ${unit}: ${ratio}`);
  if (process.env.BENCH_FIGURES) appendFileSync(process.env.BENCH_FIGURES, `${JSON.stringify(figure)}\n`);
}

/** Turns that are not counted, for servers: what is compiled is what has been seen often, and a gateway is more than what stands beside it. */
export const WARM_ROUNDS = 3;

/**
 * Does each of the ways `rounds` times, in turns whose order alternates, so that what changes on the machine meanwhile meets all alike.
 * @returns the median of what each way gave, and all of it
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
