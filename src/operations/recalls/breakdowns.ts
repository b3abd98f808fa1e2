/**
 * Visits of drives to volumes that have ended with an error that nothing else accounts for: no file, disk or mount is to
 * blame, so that nothing of it would change by itself. They are counted with the volume, for all engines, and nobody
 * turns to it for a while that grows; whatever waits on it, and whatever comes to wait, says why.
 */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';

/** One more. @param retryAtOf when to turn to it again, by how many there were before */
export async function noteBreakdown(
  ctx: Context,
  volumeId: number,
  problem: string,
  retryAtOf: (before: number) => string,
): Promise<void> {
  const { rows } = await ctx.db.pool.query<{ failures: number }>(
    sql`UPDATE volume SET failures = failures + 1, failing_since = coalesce(failing_since, ${ctx.now()}), problem = ${problem}
        WHERE id = ${volumeId} RETURNING failures`,
  );
  const before = Math.max((rows[0]?.failures ?? 1) - 1, 0);
  await ctx.db.pool.query(sql`UPDATE volume SET retry_at = ${retryAtOf(before)} WHERE id = ${volumeId}`);
}

/** A visit has ended well. */
export async function forgetBreakdowns(ctx: Context, volumeId: number): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE volume SET failures = 0, failing_since = NULL, retry_at = NULL, problem = NULL
        WHERE id = ${volumeId} AND failures > 0`,
  );
}
