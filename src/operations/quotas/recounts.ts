/**
 * What a user has at once, counted anew. Programs from before, which may run beside this one for days, do not count: what they end
 * stays counted. Engines mend that by and by; nobody is refused for it meanwhile.
 */
import type { Context } from '../../context.js';
import { lockQuotas } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { LimitReachedError } from '../../errors.js';
import { secondsBetween } from '../../time.js';
import { takeTurn } from '../turn.js';
import { countsOfQuota } from './counts.js';

/** To count a million requests takes long, and whoever is refused asks again and again. */
const PAUSE_SECONDS = 60;

/** By the database and the user: when it was found out last. */
const foundOut = new WeakMap<object, Map<string, string>>();

/** The quota `q` is not what `c` says, its counts as they should be. */
export const isCountedWrongly = sql`(c.requests, c.paths, c.patterns) <> (q.open_requests, q.awaited_paths, q.standing_patterns)`;

/** @param which a condition on the quota `q` */
export async function recountQuotas(ctx: Context, which: Sql): Promise<void> {
  await transaction(ctx.db.pool, 'repairQuotaCounts', async (tx) => {
    await lockQuotas(tx, which);
    await tx.query(
      sql`UPDATE quota q SET (open_requests, awaited_paths, standing_patterns) = (${countsOfQuota}) WHERE ${which}`,
    );
  });
}

/**
 * Before a user is refused for what it has at once, that is counted anew.
 * @param work stores nothing where it throws, and is done again where the user was counted wrongly
 * @throws LimitReachedError, and what else the work throws
 */
export async function asCounted<T>(ctx: Context, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof LimitReachedError) || !(await takeTurn(ctx, 'rows', () => mendCountsOf(ctx, error.user))))
      throw error;
    return await work();
  }
}

/** @returns false where the user is counted rightly, or that was found out just now */
async function mendCountsOf(ctx: Context, user: string): Promise<boolean> {
  const users = foundOut.get(ctx.db) ?? new Map<string, string>();
  foundOut.set(ctx.db, users);
  const [now, last] = [ctx.now(), users.get(user)];
  if (last !== undefined && Math.abs(secondsBetween(last, now)) < PAUSE_SECONDS) return false;
  users.set(user, now);
  const { rows } = await ctx.db.pool.query<{ id: number }>(
    sql`SELECT q.id FROM quota q CROSS JOIN LATERAL (${countsOfQuota}) c
        WHERE q."user" = ${user} AND q.removed_at IS NULL AND ${isCountedWrongly}`,
  );
  const [quota] = rows;
  if (!quota) return false;
  ctx.log.warn({ user }, 'a user was counted wrongly, and is counted anew');
  await recountQuotas(ctx, sql`q.id = ${quota.id}`);
  return true;
}
