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

/** Looks whether users are counted rightly, of a database. */
interface Looks {
  /** How many have ended. */
  count: number;
  underWay: Map<string, Promise<void>>;
  /** The last one of each user: how many had ended by then, when, and what came of it. */
  last: Map<string, { number: number; at: string; wasRight: boolean }>;
}

const looksAt = new WeakMap<object, Looks>();

function looksOf({ db }: Context): Looks {
  const known = looksAt.get(db) ?? { count: 0, underWay: new Map(), last: new Map() };
  looksAt.set(db, known);
  return known;
}

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
 * Before a user is refused for what it has at once, that is counted anew, once for all who are to be refused just then.
 * @param work stores nothing where it throws, and is done again where the user has been looked at since it began
 * @throws LimitReachedError, and what else the work throws
 */
export async function asCounted<T>(ctx: Context, work: () => Promise<T>): Promise<T> {
  const begun = looksOf(ctx).count;
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof LimitReachedError) || !(await isLookedAt(ctx, error.user, begun))) throw error;
    return await work();
  }
}

/** @returns false where the user was counted rightly a moment ago, and before that */
async function isLookedAt(ctx: Context, user: string, begun: number): Promise<boolean> {
  const looks = looksOf(ctx);
  const last = looks.last.get(user);
  if (last && last.number > begun) return true;
  if (last?.wasRight && Math.abs(secondsBetween(last.at, ctx.now())) < PAUSE_SECONDS) return false;
  const look = looks.underWay.get(user) ?? lookAtCounts(ctx, user).finally(() => looks.underWay.delete(user));
  looks.underWay.set(user, look);
  await look;
  return true;
}

/** For all who wait for it, so that it goes on when the first of them has gone. */
async function lookAtCounts(ctx: Context, user: string): Promise<void> {
  const looks = looksOf(ctx);
  const wasRight = !(await takeTurn({ ...ctx, reader: undefined }, 'rows', () => mendCountsOf(ctx, user)));
  looks.last.set(user, { number: ++looks.count, at: ctx.now(), wasRight });
}

/** @returns false where the user is counted rightly */
async function mendCountsOf(ctx: Context, user: string): Promise<boolean> {
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
