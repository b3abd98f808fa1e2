/**
 * Implements circuit breakers. After a volume, library or disk has failed, engines pause before they use it again. Each
 * further failure makes the pause longer. All engines share the failures and pauses, which are stored in the database.
 */

import { oneLine } from '../../core/errors.js';
import { empty, raw, type Sql, sql } from '../../db/sql.js';
import type { Context } from '../context.js';

export const MAX_REASON = 1000;

const PAUSE_SECONDS = { first: 5, factor: 4, most: 600 };

/** Returns how many seconds engines pause after a failure. `before` is the number of consecutive failures before it. */
export function trialSeconds(before: number): number {
  const { first, factor, most } = PAUSE_SECONDS;
  return Math.min(first * factor ** Math.min(before, 10), most);
}

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
  since?: string;
}

const circuits = {
  /**
   * Failures that occur while a drive uses a volume. Failures to mount the volume are not counted, nor are failures
   * that a file or a restore disk caused.
   */
  volume: {
    table: 'volume',
    id: 'id',
    failures: 'failures',
    until: 'retry_at',
    problem: 'problem',
    since: 'failing_since',
  },
  calls: { table: 'stager', id: 'library_id', failures: 'failures', until: 'rest_until', problem: 'problem' },
  reads: {
    table: 'stager',
    id: 'library_id',
    failures: 'read_failures',
    until: 'read_rest_until',
    problem: 'read_problem',
  },
} satisfies Record<string, Columns>;

interface Circuit {
  of: keyof typeof circuits;
  id: number;
}

export async function countFailures(ctx: Context, { of, id }: Circuit): Promise<number> {
  const { table, id: key, failures } = circuits[of];
  const rows = await ctx.db.rows<{ failures: number }>(
    sql`SELECT ${raw(failures)} AS failures FROM ${raw(table)} WHERE ${raw(key)} = ${id}`,
  );
  return rows[0]?.failures ?? 0;
}

/**
 * Records a failure of a volume or library, which begins a pause. If `isCounted` is false, the failure does not make
 * later pauses longer.
 */
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

export async function closeCircuit(ctx: Context, { of, id }: Circuit): Promise<void> {
  const { table, id: key, problem } = circuits[of];
  await ctx.db.pool.query(
    sql`UPDATE ${raw(table)} SET ${resetOf(of)} WHERE ${raw(key)} = ${id} AND ${raw(problem)} IS NOT NULL`,
  );
}

export function resetOf(of: Circuit['of']): Sql {
  const { failures, until, problem, since }: Columns = circuits[of];
  const first = since === undefined ? empty : sql`, ${raw(since)} = NULL`;
  return sql`${raw(failures)} = 0, ${raw(until)} = NULL, ${raw(problem)} = NULL${first}`;
}

export function isFull(ctx: Context): Sql {
  return sql`coalesce(k.full_until > ${ctx.now()}::timestamp, false)`;
}

export const takesAgain: Sql = sql`full_at = NULL, full_until = NULL, full_reason = NULL`;

export function describeFull(reason: string): string {
  return `full: ${reason}`;
}

/**
 * Records that a disk rejects data, although the disk might report free space. Engines do not put new files on the disk
 * during a pause. The pause ends early if a copy leaves the disk, or if an operator runs `disk add` or `resume`. If
 * several running recalls report that the disk is full, only the first report starts a pause.
 */
export async function recordFullDisk(ctx: Context, diskId: number, problem: string): Promise<void> {
  const [now, reason] = [ctx.now(), oneLine(problem, MAX_REASON)];
  const rows = await ctx.db.rows<{ mountpoint: string }>(
    sql`UPDATE restore_disk k SET fulls = k.fulls + 1, full_at = ${now}, full_until = ${now}::timestamp + ${pauseOf(sql`k.fulls`)}, full_reason = ${reason}
        WHERE k.id = ${diskId} AND NOT ${isFull(ctx)} RETURNING k.mountpoint`,
  );
  for (const { mountpoint } of rows) ctx.log.warn({ disk: mountpoint }, `restore disk ${describeFull(reason)}`);
}
