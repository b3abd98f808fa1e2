/** Quotas are removed. Their rows stay, since the requests that have ended are history. */
import type { Context } from '../../context.js';
import { lockQuotaAlone } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InUseError, quote } from '../../errors.js';
import { audited } from '../audit/audited.js';
import { isLive } from '../conditions.js';
import { checkText } from '../input.js';
import { allow } from '../policy.js';
import { findQuota, type QuotaRow } from './charges.js';

/**
 * Takes a user's allowance away: it is in no list any more, and no request is charged to it, until `setQuota` makes it
 * anew; nobody is a member of it any more, and no token stands for it. Requests that have ended are still told by their ids.
 * @throws InvalidInputError; UnknownUserError; InUseError with the figures, while requests of the user live
 */
export async function removeQuota(ctx: Context, given: string): Promise<QuotaRow & { tokens: number }> {
  return await audited(ctx, { operation: 'removeQuota', kind: 'QUOTA', object: given }, async (note) => {
    allow(ctx, 'removeQuota');
    const user = checkText('user', given);
    return await transaction(ctx.db.pool, 'removeQuota', async (tx) => {
      await lockQuotaAlone(tx, sql`q."user" = ${user}`);
      const quota = await findQuota(tx, user);
      // a size of nothing keeps programs out that do not know of quotas that were removed
      await tx.query(sql`UPDATE quota SET removed_at = ${ctx.now()}, size = 0 WHERE id = ${quota.id}`);
      const [live] = await tx.query<{ count: number; files: number; bytes: bigint }>(
        sql`SELECT count(*)::int AS count, coalesce(sum(r.files_total), 0)::int AS files,
            coalesce(sum(r.bytes_total), 0) AS bytes
          FROM request r WHERE r.quota_id = ${quota.id} AND ${isLive} AND r.retention > ${ctx.now()}`,
      );
      if (live && live.count > 0) {
        throw new InUseError(
          `the quota of user ${quote(user)} has ${live.count} live requests with ${live.files} files of ${live.bytes} bytes: cancel them first`,
        );
      }
      // whoever has the quota anew says anew who else uses it
      await tx.query(
        sql`WITH gone AS (DELETE FROM quota_member WHERE quota_id = ${quota.id} RETURNING quota_id)
            SELECT pg_notify('tapegate', 'rights') FROM gone LIMIT 1`,
      );
      const tokens = await withdrawTokens(ctx, tx, user);
      await tx.query(note(tokens > 0 ? { given: { tokens } } : {}));
      return { ...quota, tokens };
    });
  });
}

/**
 * Whoever has the quota anew may be another person of that name: the user's tokens are revoked, and services act for the user no longer;
 * one that acted for nobody else is revoked, too.
 * @returns how many tokens are good for less
 */
async function withdrawTokens(ctx: Context, tx: Transaction, user: string): Promise<number> {
  const left = sql`array_remove(t.quotas, ${user})`;
  const rows = await tx.query(
    sql`UPDATE api_token t SET revoked_at = CASE WHEN ${left} = '{}' THEN ${ctx.now()}::timestamp END,
          quotas = CASE WHEN ${left} = '{}' THEN t.quotas ELSE ${left} END
        WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > ${ctx.now()})
          AND ((t.role = 'USER' AND t.name = ${user}) OR (t.role = 'SERVICE' AND ${user} = ANY(t.quotas))) RETURNING t.id`,
  );
  if (rows.length > 0) await tx.query(sql`SELECT pg_notify('tapegate', 'access')`);
  return rows.length;
}
