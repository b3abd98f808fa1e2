/**
 * Drives and libraries that cannot be used: held by the engine with the reason and the time of the next try, as restore disks are
 * (disks/failing.ts). When it has come they are in service again, and what fails then is held anew, for longer.
 */
import type { Context } from '../context.js';
import { sql } from '../database/sql.js';
import { oneLine } from '../errors.js';
import { auditHold, MAX_REASON, type SuspensionKey } from './suspensions.js';

/** As of restore disks. */
const PAUSE_SECONDS = { first: 5, most: 600 };

/** Until the next try. @param before how often it had failed before, one time after another */
export function trialSeconds(before: number): number {
  return Math.min(PAUSE_SECONDS.first * 4 ** Math.min(before, 10), PAUSE_SECONDS.most);
}

/**
 * What is out of service already stays as it is.
 * @param retryAt null: until somebody resumes it
 */
export async function holdUntil(
  ctx: Context,
  { kind, name }: SuspensionKey,
  { problem, retryAt }: { problem: string; retryAt: string | null },
): Promise<void> {
  const reason = oneLine(problem, MAX_REASON);
  const what = kind === 'BACKEND' ? 'library' : kind.toLowerCase();
  ctx.log.error({ [what]: name, retryAt }, `${what} held: ${reason}`);
  await ctx.db.pool.query(
    sql`WITH held AS (
          INSERT INTO suspension (kind, name, mode, reason, since, retry_at) VALUES (${kind}, ${name}, 'HELD', ${reason}, ${ctx.now()}, ${retryAt})
          ON CONFLICT (kind, name) DO NOTHING RETURNING name
        ), ${auditHold(ctx, kind, reason)} SELECT`,
  );
}

/** @returns whether the time of its next try has come: it is in service again then */
export async function beginTrial(ctx: Context, { kind, name }: SuspensionKey): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`DELETE FROM suspension WHERE kind = ${kind} AND name = ${name} AND retry_at <= ${ctx.now()}`,
  );
  return rowCount === 1;
}
