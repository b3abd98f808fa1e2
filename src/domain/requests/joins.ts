/**
 * Adds files to existing requests, and charges the requests' quotas. A file that exceeds a limit of the request, or
 * does not fit into the quota, is recorded as excluded. A released file is never added to the request again. Callers
 * hold the catalogue lock, so that no file of a concurrent import is missed.
 */

import { lockCatalogue, lockQuotas, lockRequests } from '../../db/locks.js';
import { empty, type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import { isAllowedIn } from '../access/paths.js';
import { isLive, isOffered, isWithdrawn } from '../conditions.js';
import type { Context } from '../context.js';
import { holdsText } from '../match.js';
import {
  dropUnrecorded,
  findMatched,
  recordSkipped,
  resetMatched,
  smallestUnrecorded,
  unrecordedFiles,
} from './excluded-paths.js';
import { mostFiles } from './limits.js';
import { settleRequestFiles } from './request-files.js';

/**
 * Adds files to live requests whose unresolved paths include the files' paths. If the files are new (`isNew`), also
 * adds the files to requests whose pattern matches. Files are added to a request in path order until a file exceeds a
 * limit or does not fit into the quota.
 * @param files a query that returns the files' ids
 * @param options.which SQL condition that selects requests (`r`)
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

const isOpenNow = ({ now }: Pick<Context, 'now'>): Sql => sql`${isLive} AND r.retention > ${now()}`;

/**
 * Compares files with the patterns of live requests before the transaction locks the catalogue. The comparison is slow
 * (7 s for 1,000 patterns and 100,000 files), and would block new requests if the catalogue were locked.
 *
 * Requests that are created or revived during the comparison also get their files. After the transaction has locked the
 * catalogue, `findJoining` compares the files with the patterns of these requests. Later requests wait for the lock,
 * and then see the committed files.
 */
export async function matchEarly(ctx: Context, tx: Transaction, files: Sql, as: Sql): Promise<void> {
  await findMatched(ctx, tx, { files, as }, isOpenNow(ctx));
}

/**
 * Creates the temporary table `joining`, which contains the files that might be added to requests. Does not lock
 * requests or quotas.
 * @param options.as a table with the files' new ids, paths and sizes, if the catalogue does not contain the files yet
 */
export async function findJoining(
  ctx: Context,
  tx: Transaction,
  files: Sql,
  { isNew, which, as = sql`tape_file` }: { isNew: boolean; which?: Sql; as?: Sql },
): Promise<void> {
  const isOpenPattern = sql`${isOpenNow(ctx)} AND ${which ?? sql`true`}`;
  const isOpen = sql`${isOpenPattern} AND ${isAllowedIn('REQUEST')}`;
  const isMatched = isNew && which === undefined;
  if (isMatched) await findMatched(ctx, tx, { files, as }, isOpenPattern);
  const isOver = isMatched ? sql`m.is_over` : sql`false`;
  const isAllowed = isAllowedIn('REQUEST');
  // do not test again whether a row is in `files`, because an IN condition inside an OR would compare each row with all
  // files. If path rules exclude the smallest unrecorded file, store size 0, so that `joinUnrecorded` searches for the
  // request's pattern
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
  if (isMatched) await resetMatched(tx);
}

/**
 * Adds the files in the temporary table `joining` to their requests, if limits and quotas allow it. If `isSettled` is
 * true, also queues recalls and updates counts. The caller must have locked the requests and quotas.
 * @returns whether any file was added
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
  await recordSkipped(tx);
  await tx.query(sql`ANALYZE joining`);
  // before this transaction locked the requests, another transaction might have ended the requests, added the files, or
  // released the paths
  await tx.query(
    sql`DELETE FROM joining j USING request r WHERE r.id = j.request_id AND (NOT (${isLive})
          OR EXISTS (SELECT FROM request_file h WHERE h.request_id = j.request_id AND h.file_id = j.file_id)
          OR (NOT j.is_matched AND NOT EXISTS (
            SELECT FROM unresolved_path a WHERE a.request_id = j.request_id AND a.path = j.path)))`,
  );
  await subtractResolved(tx);
  await excludeBeyondLimits(ctx, tx);
  await takeFitting(tx);
  await dropUnrecorded(ctx, tx);
  await storeTaken(tx);
  const grown = await tx.query<{ id: number }>(
    sql`UPDATE request r SET files_total = r.files_total + t.files, bytes_total = r.bytes_total + t.bytes
        FROM (SELECT request_id, count(*) AS files, sum(size) AS bytes FROM joining WHERE is_taken GROUP BY 1) t
        WHERE r.id = t.request_id RETURNING r.id`,
  );
  return grown.map((request) => request.id);
}

async function subtractResolved(tx: Transaction): Promise<void> {
  await tx.query(
    sql`UPDATE quota q SET unresolved_paths = q.unresolved_paths - m.paths FROM (
       SELECT j.quota_id, count(*) AS paths
       FROM joining j JOIN unresolved_path a ON a.request_id = j.request_id AND a.path = j.path AND a.reason = 'UNKNOWN'
       WHERE NOT j.is_matched GROUP BY j.quota_id
     ) m WHERE q.id = m.quota_id`,
  );
}

async function excludeBeyondLimits(ctx: Context, tx: Transaction): Promise<void> {
  await tx.query(
    sql`UPDATE joining j SET is_beyond = true FROM (
       SELECT request_id, file_id, count(*) OVER in_order AS files, sum(size) OVER in_order AS bytes
       FROM joining WINDOW in_order AS (PARTITION BY request_id ORDER BY path, file_id)
     ) t JOIN request r ON r.id = t.request_id
     WHERE t.request_id = j.request_id AND t.file_id = j.file_id
       AND (r.files_total + t.files > ${mostFiles(ctx)} OR r.bytes_total + t.bytes > r.max_bytes)`,
  );
}

async function takeFitting(tx: Transaction): Promise<void> {
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
    // the query `last` is materialized, so that PostgreSQL searches for the last ordinal once for each request, not
    // once for each file
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

/**
 * Records excluded files. The reason is QUOTA_FULL if at least one file of the request does not fit into the quota, and
 * LIMIT otherwise.
 */
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

/**
 * Adds the files at a request's unresolved paths to the request, if the request's limits and the quota now allow it.
 */
export async function joinUnresolvedOf(
  ctx: Context,
  tx: Transaction,
  requestId: number,
  options: { isSettled?: boolean } = {},
): Promise<boolean> {
  const unresolved = sql`SELECT f.id FROM unresolved_path w JOIN tape_file f ON f.path = w.path AND ${isOffered} WHERE w.request_id = ${requestId}`;
  return await joinFiles(ctx, tx, unresolved, { ...options, isNew: false, which: sql`r.id = ${requestId}` });
}

/**
 * Adds files to a request: files at the request's unresolved paths, and files that match its pattern. Afterwards, the
 * caller must queue recalls and update counts (`settleRequests`).
 */
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
 * Selects quotas with an excluded file that can now join its request, or that is now excluded for a different reason.
 * Checks two paths of each live request: the first path excluded by the quota, and the first path excluded by a limit.
 */
const retryableQuotas = (ctx: Context) => sql`
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

/** Adds files to live requests if the files were excluded because of a full quota or a limit, and now fit. */
export async function joinUnresolved(ctx: Context): Promise<void> {
  await joinRecorded(ctx);
  const rows = await ctx.db.rows<{ id: number; pattern: string }>(searchable(ctx));
  for (const request of rows)
    await transaction(ctx.db.pool, 'joinUnresolved', (tx) => joinUnrecorded(ctx, tx, request));
}

const searchable = (ctx: Context) => sql`
  SELECT r.id, r.pattern FROM request r JOIN quota q ON q.id = r.quota_id
  WHERE r.excluded_size IS NOT NULL AND ${isLive} AND r.retention > ${ctx.now()} AND q.used + r.excluded_size <= q.size
    AND r.files_total < ${mostFiles(ctx)} AND (r.bytes_total + r.excluded_size <= r.max_bytes) IS NOT FALSE
  ORDER BY r.id`;

const MAX_SEARCHED = 10_000;

async function joinUnrecorded(ctx: Context, tx: Transaction, request: { id: number; pattern: string }): Promise<void> {
  const which = sql`r.id = ${request.id}`;
  await lockCatalogue(tx, 'shared');
  await lockRequests(tx, which);
  // skip each file that is larger than the free room in the quota or the request, so that smaller files can still be
  // added
  await tx.query(
    sql`CREATE TEMP TABLE matching ON COMMIT DROP AS
        SELECT f.id, f.size, row_number() OVER (ORDER BY f.path) AS n FROM ${unrecordedFiles(request)}
          AND q.used + f.size <= q.size AND (r.bytes_total + f.size <= r.max_bytes) IS NOT FALSE
        ORDER BY f.path LIMIT ${MAX_SEARCHED + 1}`,
  );
  await joinFiles(ctx, tx, sql`SELECT id FROM matching WHERE n <= ${MAX_SEARCHED}`, { isNew: true, which });
  await tx.query(
    sql`UPDATE request r SET excluded_size = coalesce((SELECT size FROM matching WHERE n > ${MAX_SEARCHED}),
          ${smallestUnrecorded(request)}) WHERE ${which}`,
  );
}

async function joinRecorded(ctx: Context): Promise<void> {
  const rows = await ctx.db.rows<{ quota_id: number }>(retryableQuotas(ctx));
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
 * Updates excluded paths whose files were withdrawn. In a request with a pattern, deletes the path. In a request that
 * lists paths, marks the path UNKNOWN. The caller must update the counts of unknown paths.
 * @param which SQL condition that selects locked requests (`r`)
 * @returns the number of paths that have become unknown, by quota
 */
export async function resetWithdrawnPaths(tx: Transaction, which: Sql): Promise<{ quotaId: number; paths: number }[]> {
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
 * Updates a revived request's excluded paths if their files were withdrawn, renamed or purged after the request ended.
 * The caller must have locked the request, and must count its unknown paths afterwards.
 */
export async function resetMissingPaths(tx: Transaction, requestId: number): Promise<void> {
  const isMissing = sql`a.request_id = ${requestId} AND a.reason <> 'UNKNOWN'
    AND NOT EXISTS (SELECT FROM tape_file f WHERE f.path = a.path AND ${isOffered})`;
  await tx.query(
    sql`DELETE FROM unresolved_path a USING request r WHERE ${isMissing} AND r.id = a.request_id AND r.pattern <> ''`,
  );
  await tx.query(sql`UPDATE unresolved_path a SET reason = 'UNKNOWN' WHERE ${isMissing}`);
}

/**
 * Renames the excluded paths of files in the temporary table `leaving`, unless path rules exclude the new path. The
 * caller must have locked the requests and their quotas.
 */
export async function renameExcludedPaths(tx: Transaction, requestIds: readonly number[]): Promise<void> {
  const isExcluded = sql`a.request_id = ANY(${requestIds}::int[]) AND a.path = l.path AND a.reason <> 'UNKNOWN'`;
  await excludeByRules(tx, requestIds);
  await tx.query(
    sql`DELETE FROM unresolved_path a USING leaving l WHERE ${isExcluded}
          AND EXISTS (SELECT FROM unresolved_path o WHERE o.request_id = a.request_id AND o.path = l.new_path)`,
  );
  await tx.query(sql`UPDATE unresolved_path a SET path = l.new_path FROM leaving l WHERE ${isExcluded}`);
}

async function excludeByRules(tx: Transaction, requestIds: readonly number[]): Promise<void> {
  const isExcludedByRule = sql`a.request_id = ANY(${requestIds}::int[]) AND a.path = f.old_path AND a.reason <> 'UNKNOWN'
    AND r.id = a.request_id AND NOT ${isAllowedIn('REQUEST')}`;
  const renamed = sql`(SELECT l.path AS old_path, l.new_path AS path FROM leaving l) f`;
  await tx.query(
    sql`DELETE FROM unresolved_path a USING ${renamed}, request r WHERE ${isExcludedByRule} AND r.pattern <> ''`,
  );
  await tx.query(
    sql`WITH unknown AS (UPDATE unresolved_path a SET reason = 'UNKNOWN' FROM ${renamed}, request r WHERE ${isExcludedByRule} RETURNING r.quota_id)
        UPDATE quota q SET unresolved_paths = q.unresolved_paths + u.paths
        FROM (SELECT quota_id, count(*) AS paths FROM unknown GROUP BY 1) u WHERE q.id = u.quota_id`,
  );
}

/**
 * Removes a renamed file's new path from the unresolved paths of each request that contains the file. The caller must
 * have locked the requests and their quotas.
 */
export async function resolveContained(tx: Transaction, requestIds: readonly number[]): Promise<void> {
  await tx.query(
    sql`WITH resolved AS (
          DELETE FROM unresolved_path a USING leaving l WHERE a.request_id = ANY(${requestIds}::int[]) AND a.path = l.new_path
            AND EXISTS (SELECT FROM request_file h WHERE h.request_id = a.request_id AND h.file_id = l.id)
          RETURNING a.request_id, a.reason
        )
        UPDATE quota q SET unresolved_paths = q.unresolved_paths - m.paths FROM (
          SELECT r.quota_id, count(*) AS paths FROM resolved JOIN request r ON r.id = resolved.request_id WHERE resolved.reason = 'UNKNOWN' GROUP BY 1) m
        WHERE q.id = m.quota_id`,
  );
}
