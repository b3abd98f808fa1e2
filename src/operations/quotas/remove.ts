/** Quotas are removed. Their rows stay, since the requests that have ended are history. */
import type { Context } from '../../context.js';
import { lockQuotaAlone } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { InUseError, quote } from '../../errors.js';
import { audited } from '../audit/audited.js';
import { isLive } from '../conditions.js';
import { checkText } from '../input.js';
import { allow } from '../policy.js';
import { findQuota, type QuotaRow } from './charges.js';

/**
 * Takes a user's allowance away: it is in no list any more, and no request is charged to it, until `setQuota` makes it
 * anew; nobody is a member of it any more. Requests that have ended are still told by their ids.
 * @throws InvalidInputError; UnknownUserError; InUseError with the figures, while requests of the user live
 */
export async function removeQuota(ctx: Context, given: string): Promise<QuotaRow> {
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
      await tx.query(note());
      return quota;
    });
  });
}
