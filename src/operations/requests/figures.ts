/** Figures of many quotas or requests at once, for lists. */
import type { Context } from '../../context.js';
import { IS_LIVE } from '../conditions.js';

/**
 * Bytes of quotas in use now, by the ids of the quotas: requests past their retention no longer count, even where
 * nobody has ended them yet.
 */
export async function readUsedOf(ctx: Context, quotaIds: readonly number[]): Promise<Map<number, bigint>> {
  const { rows } = await ctx.db.pool.query<{ id: number; used: bigint }>(
    `SELECT q.id, (q.used - (SELECT coalesce(sum(r.bytes_total), 0) FROM request r
       WHERE r.quota_id = q.id AND ${IS_LIVE} AND r.retention <= $2))::bigint AS used
     FROM quota q WHERE q.id = ANY($1::int[])`,
    [quotaIds, ctx.now()],
  );
  return new Map(rows.map((row) => [row.id, row.used]));
}

export interface AwaitedCounts {
  /** Paths that the catalogue does not know. */
  unknown: number;
  /** Files without room in the quota. */
  refused: number;
  /** Files beyond the request's own limits. */
  overLimit: number;
}

/** How many paths requests wait for, by the ids of the requests; those that wait for none are left out. */
export async function countAwaited(ctx: Context, requestIds: readonly number[]): Promise<Map<number, AwaitedCounts>> {
  const { rows } = await ctx.db.pool.query<AwaitedCounts & { id: number }>(
    `SELECT request_id AS id, count(*) FILTER (WHERE reason = 'UNKNOWN')::int AS unknown,
       count(*) FILTER (WHERE reason = 'QUOTA_FULL')::int AS refused,
       count(*) FILTER (WHERE reason = 'LIMIT')::int AS "overLimit"
     FROM awaited_path WHERE request_id = ANY($1::int[]) GROUP BY request_id`,
    [requestIds],
  );
  return new Map(rows.map(({ id, ...counts }) => [id, counts]));
}

/** How many files requests let go early, by the ids of the requests; those that let none go are left out. */
export async function countReleased(ctx: Context, requestIds: readonly number[]): Promise<Map<number, number>> {
  const { rows } = await ctx.db.pool.query<{ id: number; released: number }>(
    `SELECT request_id AS id, count(*)::int AS released FROM hold
     WHERE request_id = ANY($1::int[]) AND state = 'RELEASED' GROUP BY request_id`,
    [requestIds],
  );
  return new Map(rows.map(({ id, released }) => [id, released]));
}
