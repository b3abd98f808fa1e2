/**
 * Counts the seconds that drives spend mounting volumes and reading files for each quota. The count decays with a
 * half-life of one day.
 */

import { locking } from '../../db/locks.js';
import { byKeys } from '../../db/planning.js';
import { type Sql, sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import { HALF_LIFE_SECONDS } from '../../planner/schedule.js';
import type { Context } from '../context.js';

function decayedAt(now: string): Sql {
  const age = sql`greatest(coalesce(extract(epoch FROM ${now}::timestamp - q.drive_seconds_at), 0), 0)`;
  return sql`q.drive_seconds * 0.5 ^ (${age} / ${HALF_LIFE_SECONDS}::int)`;
}

/** Returns each user's decayed drive seconds divided by the user's weight. Omits users without drive seconds. */
export async function readShares(ctx: Context): Promise<Map<string, number>> {
  const rows = await ctx.db.rows<{ user: string; share: number }>(
    sql`SELECT q."user", ${decayedAt(ctx.now())} / q.weight AS share FROM quota q WHERE q.drive_seconds > 0`,
  );
  return new Map(rows.map((row) => [row.user, row.share]));
}

export async function readDriveSecondsOf(ctx: Context, quotaIds: readonly number[]): Promise<Map<number, number>> {
  const rows = await ctx.db.rows<{ id: number; seconds: number }>(
    sql`SELECT q.id, ${decayedAt(ctx.now())} AS seconds FROM quota q WHERE q.id = ANY(${quotaIds}::int[])`,
  );
  return new Map(rows.map((row) => [row.id, row.seconds]));
}

/**
 * Charges the drive time spent on files to the quotas whose requests contain the files. Drive time is split among files
 * by size. Each file's time is split evenly among the quotas.
 */
export async function chargeDriveTime(
  ctx: Context,
  charge: { fileIds: readonly bigint[]; seconds: number },
): Promise<void> {
  await transaction(ctx.db.pool, 'chargeDriveTime', async (tx) => {
    const now = ctx.now();
    await byKeys(tx).query(
      sql`WITH part AS (
            SELECT DISTINCT h.quota_id, f.id, f.size::numeric + 1 AS bytes FROM tape_file f JOIN live_request_file h ON h.file_id = f.id
            WHERE f.id = ANY(${charge.fileIds}::bigint[])
          ), weighted AS (
            SELECT quota_id, bytes::float8 / count(*) OVER (PARTITION BY id) AS bytes FROM part
          ), share AS (
            SELECT quota_id, sum(bytes) / (SELECT sum(bytes) FROM weighted) AS part FROM weighted GROUP BY quota_id
          ), locked AS (
            SELECT q.id FROM quota q WHERE q.id IN (SELECT quota_id FROM share) ORDER BY q.id ${locking.quota}
          )
          UPDATE quota q SET drive_seconds = ${decayedAt(now)} + s.part * ${charge.seconds}::float8,
            drive_seconds_at = ${now}::timestamp
          FROM share s, locked l WHERE q.id = s.quota_id AND l.id = q.id`,
    );
  });
}
