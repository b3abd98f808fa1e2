/** What of a quota is in use. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { isLive } from '../conditions.js';

/**
 * Bytes of quotas in use now, by the ids of the quotas: requests past their retention no longer count, even where
 * nobody has ended them yet.
 */
export async function readUsedOf(ctx: Context, quotaIds: readonly number[]): Promise<Map<number, bigint>> {
  const { rows } = await ctx.db.pool.query<{ id: number; used: bigint }>(
    sql`SELECT q.id, (q.used - (SELECT coalesce(sum(r.bytes_total), 0) FROM request r
          WHERE r.quota_id = q.id AND ${isLive} AND r.retention <= ${ctx.now()}))::bigint AS used
        FROM quota q WHERE q.id = ANY(${quotaIds}::int[])`,
  );
  return new Map(rows.map((row) => [row.id, row.used]));
}

/** The same of one. */
export async function readUsed(ctx: Context, quota: { id: number }): Promise<bigint> {
  return (await readUsedOf(ctx, [quota.id])).get(quota.id) ?? 0n;
}
