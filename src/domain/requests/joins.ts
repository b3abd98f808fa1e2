/**
 * Adds files to existing requests and charges them. A file stays out, with a recorded reason, if a limit of the request
 * or the quota has no room. Released files never join again. All functions hold the catalogue lock, so that no file is
 * missed. New requests are in create.ts.
 */

import { lockCatalogue, lockQuotas, lockRequests } from '../../db/locks.js';
import { empty, type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import { isAllowedIn } from '../access/paths.js';
import { isLive, isOffered, isWithdrawn } from '../conditions.js';
import type { Context } from '../context.js';
import { holdsText } from '../match.js';
import {
  findMatched,
  forgetMatched,
  leaveUnnoted,
  markPassedOver,
  smallestUnnoted,
  unnotedFiles,
} from './excluded-paths.js';
import { mostFiles } from './limits.js';
import { settleRequestFiles } from './request-files.js';

/**
 * Adds files to the live requests that await their paths and, with `isNew`, to those whose pattern matches. Each
 * request takes files in order of their paths up to its first file over a limit. Each quota does so in order of its
 * requests up to the first file without room.
 * @param files a query that returns the ids of the files
 * @param options.which limits the requests `r`
 */
async function joinFiles(
  ctx: Context,
  tx: Transaction,
  files: Sql,
  options: { isNew: boolean; which?: Sql; isSettled?: boolean },
): Promise<boolean> {
  await findJoining(ctx, tx, files, options);
  await lockRequests(tx, sql`r.id IN (SELECT request_id FROM joining)`);
  await lockQuotas(tx, sql`q.id IN (SELECT quota_id FROM joining)`);
  return await storeJoining(ctx, tx, options);
}

const isOpenAt = ({ now }: Pick<Context, 'now'>): Sql => sql`${isLive} AND r.retention > ${now()}`;

/**
 * Compares files with the open patterns before the catalogue is locked: 1,000 patterns and 100,000 files take 7 s, in
 * which no request can be created. `findJoining` of the same transaction then searches only the other requests, under
 * the lock. So each file meets each pattern:
 * - A request that was live before is searched here. `findJoining` checks again that it is live and may have the file.
 * - A request that is created or revived meanwhile cannot see files that are not committed. The lock waits for its
 *   commit, and `findJoining` searches it.
 * - A request that is created or revived later waits for the lock, and sees the files.
 */
export async function matchEarly(ctx: Context, tx: Transaction, files: Sql, as: Sql): Promise<void> {
  await findMatched(ctx, tx, { files, as }, isOpenAt(ctx));
}

/**
 * Creates the temporary table `joining` of files that may join. Nothing is locked yet.
 * @param options.as a table with the future `id`, `path` and `size` of the files, if they differ from `tape_file`
 */
export async function findJoining(
  ctx: Context,
  tx: Transaction,
  files: Sql,
  { isNew, which, as = sql`tape_file` }: { isNew: boolean; which?: Sql; as?: Sql },
): Promise<void> {
  const isOpenPattern = sql`${isOpenAt(ctx)} AND ${which ?? sql`true`}`;
  const isOpen = sql`${isOpenPattern} AND ${isAllowedIn('REQUEST')}`;
  const isMatched = isNew && which === undefined;
  if (isMatched) await findMatched(ctx, tx, { files, as }, isOpenPattern);
  const isOver = isMatched ? sql`m.is_over` : sql`false`;
  const isAllowed = isAllowedIn('REQUEST');
  // a rule may exclude the file that marks the request as passed over: then size 0 makes joinUnnoted search it; `matched`
  // has only files of the query, and IN below OR would compare each row with all of them
  const byPattern = sql`
    UNION ALL
    SELECT r.id, r.quota_id, f.id, f.path, CASE WHEN ${isOver} AND NOT ${isAllowed} AND r.excluded_size IS NULL THEN 0 ELSE f.size END, NULL, true, false, false, ${isOver}
    FROM ${isMatched ? sql`matched m JOIN request r ON r.id = m.request_id JOIN ${as} f ON f.id = m.file_id` : sql`request r JOIN ${as} f ON f.id IN (${files}) AND strpos(f.path, r.pattern) > 0`}
    WHERE r.pattern <> '' AND ${isOpenPattern} AND (${isOver} OR (${isAllowed}
      AND NOT EXISTS (SELECT FROM unresolved_path a WHERE a.request_id = r.id AND a.path = f.path)
      AND NOT EXISTS (SELECT FROM request_file h WHERE h.request_id = r.id AND h.file_id = f.id)))`;
  await tx.query(
    sql`CREATE TEMP TABLE joining ON COMMIT DROP AS
        SELECT r.id AS request_id, r.quota_id, f.id AS file_id, f.path, f.size, a.ordinal,
          false AS is_matched, false AS is_beyond, false AS is_taken, false AS is_over
        FROM unresolved_path a JOIN ${as} f ON f.path = a.path JOIN request r ON r.id = a.request_id
        WHERE ${isOpen} AND f.id IN (${files}) ${isNew ? byPattern : empty}`,
  );
  if (isMatched) await forgetMatched(tx);
}

/**
 * Adds the files of `joining` that fit, and settles only those if `isSettled`. Requests and quotas are locked. @returns
 * whether any has joined
 */
export async function storeJoining(
  ctx: Context,
  tx: Transaction,
  { isSettled = true }: { isSettled?: boolean } = {},
): Promise<boolean> {
  const grown = (await tx.query(sql`SELECT FROM joining LIMIT 1`)).length > 0 ? await takeJoining(ctx, tx) : [];
  const joined = sql`(h.request_id, h.file_id) IN (SELECT request_id, file_id FROM joining WHERE is_taken)`;
  if (isSettled) await settleRequestFiles(ctx, tx, grown, joined);
  await tx.query(sql`DROP TABLE joining`);
  return grown.length > 0;
}

async function takeJoining(ctx: Context, tx: Transaction): Promise<number[]> {
  await markPassedOver(tx);
  await tx.query(sql`ANALYZE joining`);
  // another transaction may have ended the requests, added the same files, or released the paths before the lock
  await tx.query(
    sql`DELETE FROM joining j USING request r WHERE r.id = j.request_id AND (NOT (${isLive})
          OR EXISTS (SELECT FROM request_file h WHERE h.request_id = j.request_id AND h.file_id = j.file_id)
          OR (NOT j.is_matched AND NOT EXISTS (
            SELECT FROM unresolved_path a WHERE a.request_id = j.request_id AND a.path = j.path)))`,
  );
  await countMet(tx);
  await leaveOutBeyond(ctx, tx);
  await takeWhatFits(tx);
  await leaveUnnoted(ctx, tx);
  await storeTaken(tx);
  const grown = await tx.query<{ id: number }>(
    sql`UPDATE request r SET files_total = r.files_total + t.files, bytes_total = r.bytes_total + t.bytes
        FROM (SELECT request_id, count(*) AS files, sum(size) AS bytes FROM joining WHERE is_taken GROUP BY 1) t
        WHERE r.id = t.request_id RETURNING r.id`,
  );
  return grown.map((request) => request.id);
}

/** Subtracts paths that the catalogue now knows from the unknown paths of their quotas. */
async function countMet(tx: Transaction): Promise<void> {
  await tx.query(
    sql`UPDATE quota q SET unresolved_paths = q.unresolved_paths - m.paths FROM (
       SELECT j.quota_id, count(*) AS paths
       FROM joining j JOIN unresolved_path a ON a.request_id = j.request_id AND a.path = j.path AND a.reason = 'UNKNOWN'
       WHERE NOT j.is_matched GROUP BY j.quota_id
     ) m WHERE q.id = m.quota_id`,
  );
}

/** Marks files over a limit of their request, so that they use no room of the quota. */
async function leaveOutBeyond(ctx: Context, tx: Transaction): Promise<void> {
  await tx.query(
    sql`UPDATE joining j SET is_beyond = true FROM (
       SELECT request_id, file_id, count(*) OVER in_order AS files, sum(size) OVER in_order AS bytes
       FROM joining WINDOW in_order AS (PARTITION BY request_id ORDER BY path, file_id)
     ) t JOIN request r ON r.id = t.request_id
     WHERE t.request_id = j.request_id AND t.file_id = j.file_id
       AND (r.files_total + t.files > ${mostFiles(ctx)} OR r.bytes_total + t.bytes > r.max_bytes)`,
  );
}

async function takeWhatFits(tx: Transaction): Promise<void> {
  await tx.query(
    sql`UPDATE joining j SET is_taken = true FROM (
       SELECT request_id, file_id, quota_id,
         sum(size) OVER (PARTITION BY quota_id ORDER BY request_id, path, file_id) AS total
       FROM joining WHERE NOT is_beyond
     ) t JOIN quota q ON q.id = t.quota_id
     WHERE t.request_id = j.request_id AND t.file_id = j.file_id AND q.used + t.total <= q.size`,
  );
  await tx.query(
    sql`UPDATE quota q SET used = q.used + t.bytes
     FROM (SELECT quota_id, sum(size) AS bytes FROM joining WHERE is_taken GROUP BY quota_id) t WHERE q.id = t.quota_id`,
  );
}

async function storeTaken(tx: Transaction): Promise<void> {
  await tx.query(
    // materialized, so that each request is searched once, not once for each of its files
    sql`WITH last AS MATERIALIZED (
       SELECT request_id, greatest(
         (SELECT coalesce(max(ordinal), 0) FROM request_file h WHERE h.request_id = o.request_id AND h.ordinal > 0),
         (SELECT coalesce(max(ordinal), 0) FROM unresolved_path a WHERE a.request_id = o.request_id)) AS ordinal
       FROM (SELECT DISTINCT request_id FROM joining WHERE ordinal IS NULL) o
     )
     UPDATE joining j SET ordinal = n.ordinal FROM (
       SELECT request_id, file_id, l.ordinal + row_number() OVER (PARTITION BY request_id ORDER BY path) AS ordinal
       FROM joining o JOIN last l USING (request_id) WHERE o.ordinal IS NULL
     ) n WHERE n.request_id = j.request_id AND n.file_id = j.file_id`,
  );
  await tx.query(
    sql`DELETE FROM unresolved_path a USING joining j WHERE j.is_taken AND a.request_id = j.request_id AND a.path = j.path`,
  );
  await tx.query(
    sql`INSERT INTO request_file (request_id, file_id, ordinal, size)
     SELECT request_id, file_id, ordinal, size FROM joining WHERE is_taken`,
  );
  await recordExcluded(tx);
}

/** Records LIMIT if a request has reached a limit with the files that it takes, or QUOTA_FULL if its quota stops it. */
async function recordExcluded(tx: Transaction): Promise<void> {
  await tx.query(
    sql`INSERT INTO unresolved_path (request_id, path, ordinal, reason)
        SELECT j.request_id, j.path, j.ordinal, t.reason FROM joining j LEFT JOIN (
          SELECT request_id FROM joining WHERE NOT is_taken AND NOT is_beyond GROUP BY request_id
        ) s ON s.request_id = j.request_id CROSS JOIN LATERAL (
          SELECT CASE WHEN s.request_id IS NULL THEN 'LIMIT' ELSE 'QUOTA_FULL' END::"UnresolvedReason" AS reason
        ) t
        WHERE NOT j.is_taken AND NOT EXISTS (
          SELECT FROM unresolved_path a WHERE a.request_id = j.request_id AND a.path = j.path AND a.reason = t.reason)
        ON CONFLICT (request_id, path) DO UPDATE SET reason = excluded.reason`,
  );
}

/** Adds the awaited files of a request for which there is room now. @returns whether any has joined */
export async function joinUnresolvedOf(
  ctx: Context,
  tx: Transaction,
  requestId: number,
  options: { isSettled?: boolean } = {},
): Promise<boolean> {
  const unresolved = sql`SELECT f.id FROM unresolved_path w JOIN tape_file f ON f.path = w.path AND ${isOffered} WHERE w.request_id = ${requestId}`;
  return await joinFiles(ctx, tx, unresolved, { ...options, isNew: false, which: sql`r.id = ${requestId}` });
}

/** Adds the files that a request awaits, and those that match its pattern. The caller settles the request. */
export async function joinRequest(
  ctx: Context,
  tx: Transaction,
  request: { id: number; pattern: string },
): Promise<void> {
  await joinUnresolvedOf(ctx, tx, request.id, { isSettled: false });
  if (request.pattern === '') return;
  await tx.query(
    sql`CREATE TEMP TABLE matching ON COMMIT DROP AS
        SELECT f.id FROM tape_file f WHERE ${holdsText(request.pattern)} AND ${isOffered}`,
  );
  await joinFiles(ctx, tx, sql`SELECT id FROM matching`, {
    isNew: true,
    which: sql`r.id = ${request.id}`,
    isSettled: false,
  });
}

/**
 * Quotas in which a left-out file may join, or has another reason now: by the first path of each live request that
 * waits for the quota, and the first that waits for a limit. Unknown paths join with their import.
 */
const movable = (ctx: Context) => sql`
  WITH first AS MATERIALIZED (
    SELECT r.id, r.quota_id, a.reason, f.size::numeric, (r.files_total >= ${mostFiles(ctx)} OR r.bytes_total + f.size::numeric > r.max_bytes) IS TRUE AS is_beyond
    FROM request r CROSS JOIN (VALUES ('LIMIT'::"UnresolvedReason"), ('QUOTA_FULL')) AS k (reason) CROSS JOIN LATERAL (
      SELECT a.path, a.reason FROM unresolved_path a WHERE a.request_id = r.id AND a.reason = k.reason ORDER BY a.path LIMIT 1
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

/** Adds files that were left out for a full quota or a limit, if there is room now. Otherwise it writes nothing. */
export async function joinUnresolved(ctx: Context): Promise<void> {
  await joinNoted(ctx);
  const rows = await ctx.db.rows<{ id: number; pattern: string }>(searchable(ctx));
  for (const request of rows) await transaction(ctx.db.pool, 'joinUnresolved', (tx) => joinUnnoted(ctx, tx, request));
}

/** Live requests with room for left-out files without a recorded path. Recorded paths have joined before. */
const searchable = (ctx: Context) => sql`
  SELECT r.id, r.pattern FROM request r JOIN quota q ON q.id = r.quota_id
  WHERE r.excluded_size IS NOT NULL AND ${isLive} AND r.retention > ${ctx.now()} AND q.used + r.excluded_size <= q.size
    AND r.files_total < ${mostFiles(ctx)} AND (r.bytes_total + r.excluded_size <= r.max_bytes) IS NOT FALSE
  ORDER BY r.id`;

const SEARCHED = 10_000;

/** Each call adds a file, or updates `excluded_size` so that the request is not searched again. */
async function joinUnnoted(ctx: Context, tx: Transaction, request: { id: number; pattern: string }): Promise<void> {
  const which = sql`r.id = ${request.id}`;
  await lockCatalogue(tx, 'shared');
  await lockRequests(tx, which);
  // a file that is larger than all of the room keeps no other file out
  await tx.query(
    sql`CREATE TEMP TABLE matching ON COMMIT DROP AS
        SELECT f.id, f.size, row_number() OVER (ORDER BY f.path) AS n FROM ${unnotedFiles(request)}
          AND q.used + f.size <= q.size AND (r.bytes_total + f.size <= r.max_bytes) IS NOT FALSE
        ORDER BY f.path LIMIT ${SEARCHED + 1}`,
  );
  await joinFiles(ctx, tx, sql`SELECT id FROM matching WHERE n <= ${SEARCHED}`, { isNew: true, which });
  await tx.query(
    sql`UPDATE request r SET excluded_size = coalesce((SELECT size FROM matching WHERE n > ${SEARCHED}),
          ${smallestUnnoted(request)}) WHERE ${which}`,
  );
}

async function joinNoted(ctx: Context): Promise<void> {
  const rows = await ctx.db.rows<{ quota_id: number }>(movable(ctx));
  if (rows.length === 0) return;
  const which = sql`r.quota_id = ANY(${rows.map((row) => row.quota_id)}::int[])`;
  await transaction(ctx.db.pool, 'joinUnresolved', async (tx) => {
    await lockCatalogue(tx, 'shared');
    const unresolved = sql`SELECT f.id FROM unresolved_path w JOIN tape_file f ON f.path = w.path AND ${isOffered} JOIN request r ON r.id = w.request_id
      WHERE ${isLive} AND ${which}`;
    await joinFiles(ctx, tx, unresolved, { isNew: false, which });
  });
}

/**
 * Updates left-out paths whose files were withdrawn: they become UNKNOWN in a request of listed paths, and are deleted
 * in one of a pattern. The caller updates the counts of unknown paths.
 * @param which a condition on requests `r`, which are locked
 * @returns the number of paths that have become unknown, by quota
 */
export async function leaveWithdrawn(tx: Transaction, which: Sql): Promise<{ quotaId: number; paths: number }[]> {
  const isExcluded = sql`a.request_id = r.id AND ${which} AND a.reason <> 'UNKNOWN' AND f.path = a.path AND ${isWithdrawn}`;
  await tx.query(
    sql`DELETE FROM unresolved_path a USING tape_file f, request r WHERE ${isExcluded} AND r.pattern <> ''`,
  );
  return await tx.query(
    sql`WITH unknown AS (UPDATE unresolved_path a SET reason = 'UNKNOWN' FROM tape_file f, request r WHERE ${isExcluded} RETURNING r.quota_id)
        SELECT quota_id AS "quotaId", count(*)::int AS paths FROM unknown GROUP BY 1`,
  );
}

/**
 * Does the same for a request that is revived, since files may have been withdrawn, renamed or purged while it was
 * over. The request is locked, and the caller counts its unknown paths.
 */
export async function leaveMissing(tx: Transaction, requestId: number): Promise<void> {
  const isMissing = sql`a.request_id = ${requestId} AND a.reason <> 'UNKNOWN'
    AND NOT EXISTS (SELECT FROM tape_file f WHERE f.path = a.path AND ${isOffered})`;
  await tx.query(
    sql`DELETE FROM unresolved_path a USING request r WHERE ${isMissing} AND r.id = a.request_id AND r.pattern <> ''`,
  );
  await tx.query(sql`UPDATE unresolved_path a SET reason = 'UNKNOWN' WHERE ${isMissing}`);
}

/**
 * Renames left-out paths with the files of the temporary table `leaving`, unless the path rules of the new directory
 * exclude them from the request. The requests and their quotas are locked.
 */
export async function followRenames(tx: Transaction, requestIds: readonly number[]): Promise<void> {
  const isExcluded = sql`a.request_id = ANY(${requestIds}::int[]) AND a.path = l.path AND a.reason <> 'UNKNOWN'`;
  await leaveKept(tx, requestIds);
  // the request awaits the new path already
  await tx.query(
    sql`DELETE FROM unresolved_path a USING leaving l WHERE ${isExcluded}
          AND EXISTS (SELECT FROM unresolved_path o WHERE o.request_id = a.request_id AND o.path = l.new_path)`,
  );
  await tx.query(sql`UPDATE unresolved_path a SET path = l.new_path FROM leaving l WHERE ${isExcluded}`);
}

/** Excludes files by the rules for their new names: a pattern forgets them, a list awaits the old path as UNKNOWN. */
async function leaveKept(tx: Transaction, requestIds: readonly number[]): Promise<void> {
  const isKept = sql`a.request_id = ANY(${requestIds}::int[]) AND a.path = f.old_path AND a.reason <> 'UNKNOWN'
    AND r.id = a.request_id AND NOT ${isAllowedIn('REQUEST')}`;
  const renamed = sql`(SELECT l.path AS old_path, l.new_path AS path FROM leaving l) f`;
  await tx.query(sql`DELETE FROM unresolved_path a USING ${renamed}, request r WHERE ${isKept} AND r.pattern <> ''`);
  await tx.query(
    sql`WITH unknown AS (UPDATE unresolved_path a SET reason = 'UNKNOWN' FROM ${renamed}, request r WHERE ${isKept} RETURNING r.quota_id)
        UPDATE quota q SET unresolved_paths = q.unresolved_paths + u.paths
        FROM (SELECT quota_id, count(*) AS paths FROM unknown GROUP BY 1) u WHERE q.id = u.quota_id`,
  );
}

/** Deletes unresolved paths of files that the request contains or has released. Requests and quotas are locked. */
export async function resolveContained(tx: Transaction, requestIds: readonly number[]): Promise<void> {
  await tx.query(
    sql`WITH met AS (
          DELETE FROM unresolved_path a USING leaving l WHERE a.request_id = ANY(${requestIds}::int[]) AND a.path = l.new_path
            AND EXISTS (SELECT FROM request_file h WHERE h.request_id = a.request_id AND h.file_id = l.id)
          RETURNING a.request_id, a.reason
        )
        UPDATE quota q SET unresolved_paths = q.unresolved_paths - m.paths FROM (
          SELECT r.quota_id, count(*) AS paths FROM met JOIN request r ON r.id = met.request_id WHERE met.reason = 'UNKNOWN' GROUP BY 1) m
        WHERE q.id = m.quota_id`,
  );
}
