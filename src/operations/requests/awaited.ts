/**
 * What was left out of standing requests joins when there is room again: paths that are noted, and then what is not (left-out.ts).
 */
import type { Context } from '../../context.js';
import { lockCatalogue, lockRequests } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { isAllowedIn } from '../access/paths.js';
import { isLive, isOffered, isWithdrawn } from '../conditions.js';
import { joinFiles } from './joins.js';
import { smallestUnnoted, unnotedFiles } from './left-out.js';
import { mostFiles } from './limits.js';

/**
 * Quotas in which something may join that was left out, or is left out for another reason now: of each live request, the
 * first path that waits for the quota, and the first that waits for the limit. (What the catalogue did not know joins with
 * the import that brings it.)
 */
const movable = (ctx: Context) => sql`
  WITH first AS MATERIALIZED (
    SELECT r.id, r.quota_id, a.reason, f.size::numeric, (r.files_total >= ${mostFiles(ctx)} OR r.bytes_total + f.size::numeric > r.max_bytes) IS TRUE AS is_beyond
    FROM request r CROSS JOIN (VALUES ('LIMIT'::"AwaitedReason"), ('QUOTA_FULL')) AS k (reason) CROSS JOIN LATERAL (
      SELECT a.path, a.reason FROM awaited_path a WHERE a.request_id = r.id AND a.reason = k.reason ORDER BY a.path LIMIT 1
    ) a JOIN tape_file f ON f.path = a.path AND ${isOffered}
    WHERE ${isLive}
  ), next AS (
    SELECT DISTINCT ON (quota_id) quota_id, size FROM first
    WHERE reason = 'QUOTA_FULL' AND NOT is_beyond ORDER BY quota_id, id
  )
  SELECT quota_id FROM first WHERE reason = 'LIMIT' AND NOT is_beyond
  UNION SELECT n.quota_id FROM next n JOIN quota q ON q.id = n.quota_id WHERE q.used + n.size <= q.size
  UNION SELECT n.quota_id FROM first n JOIN quota q ON q.id = n.quota_id
    WHERE n.reason = 'QUOTA_FULL' AND n.is_beyond AND q.used + n.size <= q.size`;

/** Lets files join that were refused for a full quota or a limit, where there is room again; else it writes nothing. */
export async function joinAwaited(ctx: Context): Promise<void> {
  await joinNoted(ctx);
  const { rows } = await ctx.db.pool.query<{ id: number; pattern: string }>(searchable(ctx));
  for (const request of rows) await transaction(ctx.db.pool, 'joinAwaited', (tx) => joinUnnoted(ctx, tx, request));
}

/** Standing requests with room for what was left out of them without being noted. What is noted has gone before, as far as it has room. */
const searchable = (ctx: Context) => sql`
  SELECT r.id, r.pattern FROM request r JOIN quota q ON q.id = r.quota_id
  WHERE r.left_out_size IS NOT NULL AND ${isLive} AND r.retention > ${ctx.now()} AND q.used + r.left_out_size <= q.size
    AND r.files_total < ${mostFiles(ctx)} AND (r.bytes_total + r.left_out_size <= r.max_bytes) IS NOT FALSE
  ORDER BY r.id`;

/** Files that are looked for together. */
const SEARCHED = 10_000;

/** Each time something joins, or the size says that there is no room for anything. */
async function joinUnnoted(ctx: Context, tx: Transaction, request: { id: number; pattern: string }): Promise<void> {
  const which = sql`r.id = ${request.id}`;
  await lockCatalogue(tx, 'shared');
  await lockRequests(tx, which);
  // what alone is too large keeps nothing else out
  await tx.query(
    sql`CREATE TEMP TABLE matching ON COMMIT DROP AS
        SELECT f.id, f.size, row_number() OVER (ORDER BY f.path) AS n FROM ${unnotedFiles(request)}
          AND q.used + f.size <= q.size AND (r.bytes_total + f.size <= r.max_bytes) IS NOT FALSE
        ORDER BY f.path LIMIT ${SEARCHED + 1}`,
  );
  await joinFiles(ctx, tx, sql`SELECT id FROM matching WHERE n <= ${SEARCHED}`, { isNew: true, which });
  await tx.query(
    sql`UPDATE request r SET left_out_size = coalesce((SELECT size FROM matching WHERE n > ${SEARCHED}),
          ${smallestUnnoted(request)}) WHERE ${which}`,
  );
}

async function joinNoted(ctx: Context): Promise<void> {
  const { rows } = await ctx.db.pool.query<{ quota_id: number }>(movable(ctx));
  if (rows.length === 0) return;
  const which = sql`r.quota_id = ANY(${rows.map((row) => row.quota_id)}::int[])`;
  await transaction(ctx.db.pool, 'joinAwaited', async (tx) => {
    await lockCatalogue(tx, 'shared');
    const awaited = sql`SELECT f.id FROM awaited_path w JOIN tape_file f ON f.path = w.path AND ${isOffered} JOIN request r ON r.id = w.request_id
      WHERE ${isLive} AND ${which}`;
    await joinFiles(ctx, tx, awaited, { isNew: false, which });
  });
}

/**
 * What waits for room waits for files that nobody has any more: a list of paths does so as for one that is not known, a pattern no longer. Who
 * calls it counts what is unknown then.
 * @param which requests `r`, which are locked @returns how many paths have become unknown, by the quota
 */
export async function leaveWithdrawn(tx: Transaction, which: Sql): Promise<{ quotaId: number; paths: number }[]> {
  const isLeftOut = sql`a.request_id = r.id AND ${which} AND a.reason <> 'UNKNOWN' AND f.path = a.path AND ${isWithdrawn}`;
  await tx.query(sql`DELETE FROM awaited_path a USING tape_file f, request r WHERE ${isLeftOut} AND r.pattern <> ''`);
  return await tx.query(
    sql`WITH unknown AS (UPDATE awaited_path a SET reason = 'UNKNOWN' FROM tape_file f, request r WHERE ${isLeftOut} RETURNING r.quota_id)
        SELECT quota_id AS "quotaId", count(*)::int AS paths FROM unknown GROUP BY 1`,
  );
}

/**
 * The same of a request that is revived: while it was over, files may have been withdrawn, renamed and forgotten, and nobody has followed that.
 * It is locked, and what is unknown then is counted with it.
 */
export async function leaveMissing(tx: Transaction, requestId: number): Promise<void> {
  const isMissing = sql`a.request_id = ${requestId} AND a.reason <> 'UNKNOWN'
    AND NOT EXISTS (SELECT FROM tape_file f WHERE f.path = a.path AND ${isOffered})`;
  await tx.query(
    sql`DELETE FROM awaited_path a USING request r WHERE ${isMissing} AND r.id = a.request_id AND r.pattern <> ''`,
  );
  await tx.query(sql`UPDATE awaited_path a SET reason = 'UNKNOWN' WHERE ${isMissing}`);
}

/**
 * Files of the temporary table `leaving` get other paths: what waits for room waits for the file, whatever it is called, unless the rules of its
 * new folder keep it from the request, which is not told of that. The requests and their quotas are locked.
 */
export async function followRenames(tx: Transaction, requestIds: readonly number[]): Promise<void> {
  const isLeftOut = sql`a.request_id = ANY(${requestIds}::int[]) AND a.path = l.path AND a.reason <> 'UNKNOWN'`;
  await leaveKept(tx, requestIds);
  // its own wish for that path says the same
  await tx.query(
    sql`DELETE FROM awaited_path a USING leaving l WHERE ${isLeftOut}
          AND EXISTS (SELECT FROM awaited_path o WHERE o.request_id = a.request_id AND o.path = l.new_path)`,
  );
  await tx.query(sql`UPDATE awaited_path a SET path = l.new_path FROM leaving l WHERE ${isLeftOut}`);
}

/** What a request may not ask for under its new name it waits for no more; by a list, for the name that it has asked for. */
async function leaveKept(tx: Transaction, requestIds: readonly number[]): Promise<void> {
  const isKept = sql`a.request_id = ANY(${requestIds}::int[]) AND a.path = f.old_path AND a.reason <> 'UNKNOWN'
    AND r.id = a.request_id AND NOT ${isAllowedIn('REQUEST')}`;
  const renamed = sql`(SELECT l.path AS old_path, l.new_path AS path FROM leaving l) f`;
  await tx.query(sql`DELETE FROM awaited_path a USING ${renamed}, request r WHERE ${isKept} AND r.pattern <> ''`);
  await tx.query(
    sql`WITH unknown AS (UPDATE awaited_path a SET reason = 'UNKNOWN' FROM ${renamed}, request r WHERE ${isKept} RETURNING r.quota_id)
        UPDATE quota q SET awaited_paths = q.awaited_paths + u.paths
        FROM (SELECT quota_id, count(*) AS paths FROM unknown GROUP BY 1) u WHERE q.id = u.quota_id`,
  );
}

/** What a request has, or has let go, under the name of before, it waits for no more. The requests and their quotas are locked. */
export async function unawaitHeld(tx: Transaction, requestIds: readonly number[]): Promise<void> {
  await tx.query(
    sql`WITH met AS (
          DELETE FROM awaited_path a USING leaving l WHERE a.request_id = ANY(${requestIds}::int[]) AND a.path = l.new_path
            AND EXISTS (SELECT FROM hold h WHERE h.request_id = a.request_id AND h.file_id = l.id)
          RETURNING a.request_id, a.reason
        )
        UPDATE quota q SET awaited_paths = q.awaited_paths - m.paths FROM (
          SELECT r.quota_id, count(*) AS paths FROM met JOIN request r ON r.id = met.request_id WHERE met.reason = 'UNKNOWN' GROUP BY 1) m
        WHERE q.id = m.quota_id`,
  );
}
