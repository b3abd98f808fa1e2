/** Bulks whose requests have all ended are kept for as long as these are kept as they were. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { addSeconds } from '../../time.js';
import { isLive } from '../conditions.js';

const DAY_SECONDS = 24 * 3600;
/** No bulk goes sooner after it was made: it may still be being made, and whoever made it has yet to hear what became of it. */
const LEAST_DAYS = 1;
/** Of a statement: some tens of thousands of rows with their files. */
const STEP = 1000;

/** May be killed at any line; any number of engines may do so at once. */
export async function pruneBulks(ctx: Context, stop: AbortSignal): Promise<void> {
  const { requestDays } = ctx.config;
  const now = ctx.now();
  const before = addSeconds(now, -requestDays * DAY_SECONDS);
  const madeBefore = addSeconds(now, -Math.max(requestDays, LEAST_DAYS) * DAY_SECONDS);
  while (!stop.aborted) {
    const { rowCount } = await ctx.db.pool.query(
      sql`DELETE FROM bulk WHERE id IN (
            SELECT b.id FROM bulk b WHERE b.made_at <= ${madeBefore}::timestamp AND NOT EXISTS (
              SELECT FROM bulk_file f JOIN request r ON r.id = f.request_id
              WHERE f.bulk_id = b.id AND (${isLive} OR r.retention > ${before}::timestamp)) LIMIT ${STEP})`,
    );
    if ((rowCount ?? 0) < STEP) return;
  }
}
