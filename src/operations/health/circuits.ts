/**
 * Circuit breakers: a thing that fails is left alone for a while that grows with each failure, and is tried again then. Failures, the time
 * of the next try and the last error are columns of its row, for all engines.
 */
import type { Context } from '../../context.js';
import { empty, raw, type Sql, sql } from '../../database/sql.js';

/** Characters of an error that are kept. */
export const MAX_REASON = 1000;

const PAUSE_SECONDS = { first: 5, factor: 4, most: 600 };

/** Returns the seconds until the next try. @param before failures before the last one, one after another */
export function trialSeconds(before: number): number {
  const { first, factor, most } = PAUSE_SECONDS;
  return Math.min(first * factor ** Math.min(before, 10), most);
}

/** Returns the same pause as an interval. */
export function pauseOf(before: Sql): Sql {
  const { first, factor, most } = PAUSE_SECONDS;
  return sql`make_interval(secs => least(${first}::float8 * ${factor}::float8 ^ least(${before}, 10), ${most}::float8))`;
}

interface Columns {
  table: string;
  id: string;
  failures: string;
  until: string;
  problem: string;
  /** When the first of the failures was. */
  since?: string;
}

const circuits = {
  /** Visits of drives that ended with an error for which no file, disk or mount is to blame. */
  volume: {
    table: 'volume',
    id: 'id',
    failures: 'failures',
    until: 'retry_at',
    problem: 'problem',
    since: 'failing_since',
  },
  /** Calls of a staging library that it could not answer. */
  calls: { table: 'stager', id: 'library_id', failures: 'failures', until: 'rest_until', problem: 'problem' },
  /** Reads from a staging library that failed. */
  reads: {
    table: 'stager',
    id: 'library_id',
    failures: 'read_failures',
    until: 'read_rest_until',
    problem: 'read_problem',
  },
} satisfies Record<string, Columns>;

export interface Circuit {
  of: keyof typeof circuits;
  /** Of the volume or the library. */
  id: number;
}

/** Returns how often it has failed, one time after another. */
export async function countFailures(ctx: Context, { of, id }: Circuit): Promise<number> {
  const { table, id: key, failures } = circuits[of];
  const { rows } = await ctx.db.pool.query<{ failures: number }>(
    sql`SELECT ${raw(failures)} AS failures FROM ${raw(table)} WHERE ${raw(key)} = ${id}`,
  );
  return rows[0]?.failures ?? 0;
}

/** Records a failure. @param failure.isCounted false if the pause of the next failure is not to grow */
export async function openCircuit(
  ctx: Context,
  { of, id }: Circuit,
  failure: { until: string; problem: string; isCounted?: boolean },
): Promise<void> {
  const { table, id: key, failures, until, problem, since }: Columns = circuits[of];
  const more = failure.isCounted === false ? 0 : 1;
  const first = since === undefined ? empty : sql`, ${raw(since)} = coalesce(${raw(since)}, ${ctx.now()})`;
  await ctx.db.pool.query(
    sql`UPDATE ${raw(table)} SET ${raw(failures)} = ${raw(failures)} + ${more}::int, ${raw(until)} = ${failure.until},
          ${raw(problem)} = ${failure.problem}${first} WHERE ${raw(key)} = ${id}`,
  );
}

/** Records that it works. */
export async function closeCircuit(ctx: Context, { of, id }: Circuit): Promise<void> {
  const { table, id: key, problem } = circuits[of];
  await ctx.db.pool.query(
    sql`UPDATE ${raw(table)} SET ${resetOf(of)} WHERE ${raw(key)} = ${id} AND ${raw(problem)} IS NOT NULL`,
  );
}

/** The columns as those of a thing that works, for a SET. */
export function resetOf(of: Circuit['of']): Sql {
  const { failures, until, problem, since }: Columns = circuits[of];
  const first = since === undefined ? empty : sql`, ${raw(since)} = NULL`;
  return sql`${raw(failures)} = 0, ${raw(until)} = NULL, ${raw(problem)} = NULL${first}`;
}
