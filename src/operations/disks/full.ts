/**
 * Restore disks that refuse to take more, whatever they say to have free: no inodes are left, somebody's quota is reached, or
 * room is kept for snapshots. Nothing new is put on one for a while that grows with each refusal before a copy was put on it;
 * other disks take it, or it waits for room. The while ends early when a copy leaves the disk, and when an operator says so
 * (`disk add`, `resume`).
 */
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import { oneLine } from '../../errors.js';
import { MAX_REASON, pauseOf } from '../health/circuits.js';

/** The disk `k` takes nothing new now. */
export function isFull(ctx: Context): Sql {
  return sql`coalesce(k.full_until > ${ctx.now()}::timestamp, false)`;
}

/** Of a disk that takes nothing new; the next thing that is put on it shows whether that was true. */
export const takesAgain: Sql = sql`full_at = NULL, full_until = NULL, full_reason = NULL`;

/** What is told of a disk, by what it said. */
export function describeFull(reason: string): string {
  return `full: ${reason}`;
}

/** A disk has refused to take more. What runs on it refuses together, and counts once. */
export async function noteFull(ctx: Context, diskId: number, problem: string): Promise<void> {
  const [now, reason] = [ctx.now(), oneLine(problem, MAX_REASON)];
  const { rows } = await ctx.db.pool.query<{ mountpoint: string }>(
    sql`UPDATE restore_disk k SET fulls = k.fulls + 1, full_at = ${now}, full_until = ${now}::timestamp + ${pauseOf(sql`k.fulls`)}, full_reason = ${reason}
        WHERE k.id = ${diskId} AND NOT ${isFull(ctx)} RETURNING k.mountpoint`,
  );
  for (const { mountpoint } of rows) ctx.log.warn({ disk: mountpoint }, `restore disk ${describeFull(reason)}`);
}
