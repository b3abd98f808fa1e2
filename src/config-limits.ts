/**
 * Limits that no honest user meets: each is a variable with a default that is far beyond a script that asks ten times a second,
 * and a line in src/commands/README.md.
 */

/** Variable, lowest and highest value, default. */
type Row = readonly [variable: string, low: number, high: number, fallback: number];

const MOST = 999_999_999;

export const limitRows = {
  /** Of bodies that are being read or worked on, all together, and of one caller. */
  bodiesMb: ['BODIES_MB', 32, MOST, 256],
  callerBodiesMb: ['CALLER_BODIES_MB', 32, MOST, 96],
  /** In this time a body must bring 64 kB, or its end. */
  bodySeconds: ['BODY_SECONDS', 1, 3600, 30],
  /** Fields within each other, and in all; what they may cost is in graphql/README.md. */
  graphqlDepth: ['GRAPHQL_DEPTH', 1, MOST, 12],
  graphqlBreadth: ['GRAPHQL_BREADTH', 1, MOST, 200],
  graphqlComplexity: ['GRAPHQL_COMPLEXITY', 1, MOST, 100_000],
} as const satisfies Record<string, Row>;

export type Limits = Record<keyof typeof limitRows, number>;

/** @param integer reads a variable, and notes where it is at fault */
export function readLimits(integer: (...row: Row) => number): Limits {
  const rows: [string, Row][] = Object.entries(limitRows);
  return Object.fromEntries(rows.map(([name, row]) => [name, integer(...row)])) as Limits;
}
