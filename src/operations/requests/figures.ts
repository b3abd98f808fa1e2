/** Figures of many requests at once, for lists. */

import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { mayPath } from '../access/paths.js';
import { diskOfCopy, isAtPrimaryPlace } from '../conditions.js';

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
    sql`SELECT request_id AS id, count(*) FILTER (WHERE reason = 'UNKNOWN')::int AS unknown,
       count(*) FILTER (WHERE reason = 'QUOTA_FULL')::int AS refused,
       count(*) FILTER (WHERE reason = 'LIMIT')::int AS "overLimit"
     FROM any_awaited_path WHERE request_id = ANY(${requestIds}::int[]) GROUP BY request_id`,
  );
  return new Map(rows.map(({ id, ...counts }) => [id, counts]));
}

/** How many files requests let go early, by the ids of the requests; those that let none go are left out. */
export async function countReleased(ctx: Context, requestIds: readonly number[]): Promise<Map<number, number>> {
  const { rows } = await ctx.db.pool.query<{ id: number; released: number }>(
    sql`SELECT request_id AS id, count(*)::int AS released FROM any_hold
     WHERE request_id = ANY(${requestIds}::int[]) AND state = 'RELEASED' GROUP BY request_id`,
  );
  return new Map(rows.map(({ id, released }) => [id, released]));
}

/** How many files of requests are at their primary place, by the ids of the requests; those without any are left out. */
export async function countAtPrimaryPlace(ctx: Context, requestIds: readonly number[]): Promise<Map<number, number>> {
  const { rows } = await ctx.db.pool.query<{ id: number; files: number }>(
    sql`SELECT h.request_id AS id, count(*)::int AS files FROM any_hold h JOIN tape_file f ON f.id = h.file_id
        WHERE h.request_id = ANY(${requestIds}::int[]) AND h.state = 'ON_DISK' AND ${isAtPrimaryPlace} GROUP BY h.request_id`,
  );
  return new Map(rows.map(({ id, files }) => [id, files]));
}

/**
 * Mount points of the restore disks that have files of requests, by the ids of the requests; those without are left out, and those of which a file
 * is at another place than its path.
 */
export async function readMountpoints(ctx: Context, requestIds: readonly number[]): Promise<Map<number, string[]>> {
  const { rows } = await ctx.db.pool.query<{ id: number; mountpoints: string[] }>(
    sql`SELECT h.request_id AS id, array_agg(DISTINCT k.mountpoint ORDER BY k.mountpoint) AS mountpoints
        FROM any_hold h JOIN tape_file f ON f.id = h.file_id
          JOIN restore_disk k ON k.id = ${diskOfCopy}
        WHERE h.request_id = ANY(${requestIds}::int[]) AND h.state = 'ON_DISK' AND ${mayPath(ctx, 'FETCH')}
        GROUP BY h.request_id HAVING bool_and(f.disk_path IS NULL)`,
  );
  return new Map(rows.map(({ id, mountpoints }) => [id, mountpoints]));
}

/** Requests of quotas, ended ones too, by the ids of the quotas. */
export async function countRequestsOf(ctx: Context, quotaIds: readonly number[]): Promise<Map<number, number>> {
  const { rows } = await ctx.db.pool.query<{ id: number; count: number }>(
    sql`SELECT quota_id AS id, count(*)::int FROM request WHERE quota_id = ANY(${quotaIds}::int[]) GROUP BY quota_id`,
  );
  return new Map(rows.map(({ id, count }) => [id, count]));
}
