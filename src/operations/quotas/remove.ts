/** Quotas are removed. Their rows stay, since the requests that have ended are history. */

import type { Context } from '../../context.js';
import { lockQuotaAlone } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InUseError, quote } from '../../errors.js';
import { plural } from '../../plural.js';
import { shownFolder } from '../access/path-rules.js';
import { audited } from '../audit/audited.js';
import { isLive } from '../conditions.js';
import { checkText } from '../input.js';
import { allow } from '../policy.js';
import { removeWebhooksOf } from '../webhooks/forget.js';
import { findQuota, type QuotaRow } from './charges.js';

export interface RemovedQuota {
  user: string;
  /** How many are good for less. */
  tokens: number;
  /** The users of the quotas that it was a member or a manager of, and is no longer. */
  memberOf: string[];
  /** Those with rules that name the user, for whoever has the name next: they stay. */
  ruledFolders: string[];
}

/**
 * Takes a user's allowance away: it is in no list any more, and no request is charged to it, until `setQuota` makes it
 * anew; nobody is a member of it any more, no webhook is told of it, its user is a member of no other, and no token stands for it. Requests that have ended are
 * still told by their ids.
 * @throws InvalidInputError; UnknownUserError; InUseError with the figures, while requests of the user live
 */
export async function removeQuota(ctx: Context, given: string): Promise<RemovedQuota> {
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
          `the quota of user ${quote(user)} has ${plural(live.count, 'live request')} with ${plural(live.files, 'file')} of ${plural(live.bytes, 'byte')}: cancel ${live.count === 1 ? 'it' : 'them'} first`,
        );
      }
      const [tokens, memberOf] = [await withdrawTokens(ctx, tx, user), await withdrawMembers(tx, quota)];
      await removeWebhooksOf(tx, user);
      const withdrawn = { ...(tokens > 0 ? { tokens } : {}), ...(memberOf.length > 0 ? { memberOf } : {}) };
      await tx.query(note({ given: withdrawn }));
      return { user, tokens, memberOf, ruledFolders: await findRuled(tx, user) };
    });
  });
}

/**
 * Whoever has the quota anew says anew who else uses it; and it may be another person of that name, who is no member of what the
 * first one was.
 * @returns the users of the quotas that the user was a member or a manager of
 */
async function withdrawMembers(tx: Transaction, { id, user }: QuotaRow): Promise<string[]> {
  const gone = await tx.query<{ id: number; user: string }>(
    sql`DELETE FROM quota_member m USING quota q
        WHERE q.id = m.quota_id AND (m.quota_id = ${id} OR (m.kind = 'USER' AND m.name = ${user})) RETURNING q.id, q."user"`,
  );
  if (gone.length > 0) await tx.query(sql`SELECT pg_notify('tapegate', 'rights')`);
  return gone.flatMap((quota) => (quota.id === id ? [] : quota.user)).sort();
}

/** Rules stay: where the only one of a folder went, everybody could see it. @returns the folders of those that name the user */
async function findRuled(tx: Transaction, user: string): Promise<string[]> {
  const names = [user, `user:${user}`];
  const rows = await tx.query<{ prefix: string }>(
    sql`SELECT DISTINCT p.prefix FROM path_rule p WHERE p.kind = 'USER' AND p.name = ANY(${names}::text[]) ORDER BY p.prefix`,
  );
  return rows.map(({ prefix }) => shownFolder(prefix));
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
