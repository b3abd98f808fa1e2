/** Suspends and retries libraries whose drives report that the library refuses work. */

import { isBefore } from '../../core/time.js';
import { sql } from '../../db/sql.js';
import type { Context } from '../context.js';
import { pauseOf } from './circuits.js';
import { suspendFailing } from './suspensions.js';

interface Refusal {
  problem: string;
  /** Time at which the drive began to use the volume. */
  since: string;
}

/**
 * Suspends a library that refuses work, until the next attempt. Ignores late reports from drives that mounted their
 * volume before the last pause ended. A drive can take minutes to unmount a volume.
 */
export async function suspendFailingLibrary(
  ctx: Context,
  { id, name }: { id: number; name: string },
  refusal: Refusal,
): Promise<void> {
  const retryAt = await countRefusal(ctx, id, refusal);
  if (isBefore(ctx.now(), retryAt))
    await suspendFailing(ctx, { kind: 'LIBRARY', name }, { problem: refusal.problem, retryAt });
}

/**
 * Counts a library's refusal at most once per pause, because several drives might report the same refusal.
 * @returns the end of the pause
 */
async function countRefusal(ctx: Context, libraryId: number, { problem, since }: Refusal): Promise<string> {
  const at = sql`${ctx.now()}::timestamp`;
  const isNew = sql`coalesce(y.read_rest_until <= ${since}::timestamp, true)`;
  const rows = await ctx.db.rows<{ until: string }>(
    sql`INSERT INTO stager AS y (library_id, read_failures, read_rest_until, read_problem)
        VALUES (${libraryId}, 1, ${at} + ${pauseOf(sql`0`)}, ${problem})
        ON CONFLICT (library_id) DO UPDATE SET read_problem = excluded.read_problem,
          read_failures = y.read_failures + CASE WHEN ${isNew} THEN 1 ELSE 0 END,
          read_rest_until = CASE WHEN ${isNew} THEN ${at} + ${pauseOf(sql`y.read_failures`)} ELSE y.read_rest_until END
        RETURNING read_rest_until AS until`,
  );
  return (rows[0] as { until: string }).until;
}
