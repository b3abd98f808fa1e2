/** What is past the audit's own retention goes, in small steps: each is a transaction of its own, and the next pass goes on. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { addSeconds } from '../../time.js';

const DAY_SECONDS = 24 * 3600;
/** Rows of a step. */
const STEP = 5000;

/** Deletes the rows that are older than `AUDIT_DAYS`. Any number of engines may do so at once. */
export async function pruneAudit(ctx: Context, stop: AbortSignal): Promise<void> {
  const before = addSeconds(ctx.now(), -ctx.config.auditDays * DAY_SECONDS);
  while (!stop.aborted) {
    const { rows } = await ctx.db.pool.query<{ pruned: number }>(
      sql`SELECT prune_audit(${before}::timestamp, ${STEP}::int) AS pruned`,
    );
    if ((rows[0]?.pruned ?? 0) === 0) return;
  }
}
