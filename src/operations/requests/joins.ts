/**
 * How files come into requests: those that the catalogue knows when the request is made, and those that appear later.
 * The first are charged together or not at all; the later ones are charged as they join, and stay out, visibly, when
 * the request's own limit or the quota leaves no room. What was released never joins again. All of it holds the
 * catalogue's lock (lockCatalogue in database/locks.ts), so that no file slips in between.
 */
import type { Context } from '../../context.js';
import { lockCatalogue, lockQuotas, lockRequests } from '../../database/locks.js';
import { empty, type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { isLive } from '../conditions.js';
import { likeSubstring } from '../match.js';
import { checkRoom, type QuotaRow } from '../quotas/charges.js';
import { settleRequests } from './holds.js';
import { checkWithin, type Limits } from './limits.js';
import { recountRequests } from './progress.js';

/** What a request asks for: a pattern, or a list of distinct paths. */
export interface Wish {
  pattern: string;
  files: readonly string[] | undefined;
}

/** A request that is being made: it holds nothing yet. */
export interface NewRequest {
  id: number;
  limits: Limits;
}

/**
 * Holds the listed files that the catalogue knows, and notes the other paths.
 * @returns the bytes to be charged for them
 * @throws InvalidInputError when they are beyond the limits
 */
export async function holdListed(tx: Transaction, request: NewRequest, files: readonly string[]): Promise<bigint> {
  // one statement, so that a path is either known or noted
  const [row] = await tx.query<{ files: number; bytes: string }>(
    sql`WITH listed AS (
       SELECT path, n FROM unnest(${files}::text[]) WITH ORDINALITY AS l (path, n)
     ), known AS (
       SELECT l.path, l.n, f.id, f.size FROM listed l JOIN tape_file f ON f.path = l.path
     ), held AS (
       INSERT INTO hold (request_id, file_id, ordinal, size) SELECT ${request.id}, id, n, size FROM known
     ), noted AS (
       INSERT INTO awaited_path (request_id, path, ordinal)
       SELECT ${request.id}, l.path, l.n FROM listed l WHERE NOT EXISTS (SELECT FROM known k WHERE k.path = l.path)
     )
     SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes FROM known`,
  );
  const bytes = BigInt(row?.bytes ?? 0);
  checkWithin(request.limits, { files: row?.files ?? 0, bytes });
  return bytes;
}

/**
 * Holds the files whose path holds the pattern.
 * @returns the bytes to be charged for them
 * @throws InvalidInputError when they are beyond the limits, QuotaExceededError; before anything is stored
 */
export async function holdMatching(
  tx: Transaction,
  request: NewRequest & { pattern: string; quota: QuotaRow },
): Promise<bigint> {
  const match = likeSubstring(request.pattern);
  const [sum] = await tx.query<{ files: number; bytes: string }>(
    sql`SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes FROM tape_file WHERE path LIKE ${match}`,
  );
  const bytes = BigInt(sum?.bytes ?? 0);
  checkWithin(request.limits, { files: sum?.files ?? 0, bytes });
  await checkRoom(tx, request.quota, bytes);
  const [held] = await tx.query<{ bytes: string }>(
    sql`WITH held AS (
       INSERT INTO hold (request_id, file_id, ordinal, size)
       SELECT ${request.id}, id, row_number() OVER (ORDER BY path), size FROM tape_file WHERE path LIKE ${match}
       RETURNING size
     ) SELECT coalesce(sum(size), 0) AS bytes FROM held`,
  );
  return BigInt(held?.bytes ?? 0);
}

/**
 * Lets files join the live requests that wait for them: by path, and (`isNew`) by pattern. In order of the paths, each
 * request takes what its limits allow, and of that, in order of the requests, each quota what fits; from the first that
 * does not fit, the rest stays out: of that request for a limit, of that quota for a quota.
 * @param files a query that gives the ids of the files
 * @param options only the request with `requestId`, when it is given
 * @returns the ids of the requests that have grown, which are to be settled
 */
async function joinFiles(
  ctx: Context,
  tx: Transaction,
  files: Sql,
  options: { isNew: boolean; requestId?: number },
): Promise<number[]> {
  await findJoining(ctx, tx, files, options);
  await lockRequests(tx, sql`r.id IN (SELECT request_id FROM joining)`);
  await lockQuotas(tx, sql`q.id IN (SELECT quota_id FROM joining)`);
  return await storeJoining(tx);
}

/** Makes the temporary table `joining`, of what may join: nothing is locked yet. */
export async function findJoining(
  ctx: Context,
  tx: Transaction,
  files: Sql,
  { isNew, requestId }: { isNew: boolean; requestId?: number },
): Promise<void> {
  const only = requestId === undefined ? empty : sql`AND r.id = ${requestId}`;
  const isOpen = sql`${isLive} AND r.retention > ${ctx.now()} ${only}`;
  const byPattern = sql`
    UNION ALL
    SELECT r.id, r.quota_id, f.id, f.path, f.size, NULL, true, false, false
    FROM request r JOIN tape_file f ON strpos(f.path, r.pattern) > 0
    WHERE r.pattern <> '' AND ${isOpen} AND f.id IN (${files})
      AND NOT EXISTS (SELECT FROM awaited_path a WHERE a.request_id = r.id AND a.path = f.path)
      AND NOT EXISTS (SELECT FROM hold h WHERE h.request_id = r.id AND h.file_id = f.id)`;
  await tx.query(
    sql`CREATE TEMP TABLE joining ON COMMIT DROP AS
        SELECT r.id AS request_id, r.quota_id, f.id AS file_id, f.path, f.size, a.ordinal,
          false AS is_matched, false AS is_beyond, false AS is_taken
        FROM awaited_path a JOIN tape_file f ON f.path = a.path JOIN request r ON r.id = a.request_id
        WHERE ${isOpen} AND f.id IN (${files}) ${isNew ? byPattern : empty}`,
  );
}

/** Lets join what may. The requests and the quotas of `joining` are locked. @returns the requests that have grown */
export async function storeJoining(tx: Transaction): Promise<number[]> {
  const grown = (await tx.query(sql`SELECT FROM joining LIMIT 1`)).length > 0 ? await takeJoining(tx) : [];
  await tx.query(sql`DROP TABLE joining`);
  return grown;
}

async function takeJoining(tx: Transaction): Promise<number[]> {
  // whoever had them locked before may have ended them, let the same files join, or released the paths
  await tx.query(
    sql`DELETE FROM joining j USING request r WHERE r.id = j.request_id AND (NOT (${isLive})
          OR EXISTS (SELECT FROM hold h WHERE h.request_id = j.request_id AND h.file_id = j.file_id)
          OR (NOT j.is_matched AND NOT EXISTS (
            SELECT FROM awaited_path a WHERE a.request_id = j.request_id AND a.path = j.path)))`,
  );
  await leaveOutBeyond(tx);
  await takeWhatFits(tx);
  await storeTaken(tx);
  const grown = await tx.query<{ id: number }>(
    sql`SELECT DISTINCT request_id AS id FROM joining WHERE is_taken ORDER BY 1`,
  );
  return grown.map((request) => request.id);
}

/** What is beyond the limits of a request, from the first of its files on, takes no room from other requests. */
async function leaveOutBeyond(tx: Transaction): Promise<void> {
  await tx.query(
    sql`UPDATE joining j SET is_beyond = true FROM (
       SELECT request_id, file_id, count(*) OVER in_order AS files, sum(size) OVER in_order AS bytes
       FROM joining WINDOW in_order AS (PARTITION BY request_id ORDER BY path, file_id)
     ) t JOIN request r ON r.id = t.request_id
     WHERE t.request_id = j.request_id AND t.file_id = j.file_id
       AND (r.files_total + t.files > r.max_files OR r.bytes_total + t.bytes > r.max_bytes)`,
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
    // materialized, so that what a request has is looked through once, not for each of its files
    sql`WITH last AS MATERIALIZED (
       SELECT request_id, greatest(
         (SELECT coalesce(max(ordinal), 0) FROM hold h WHERE h.request_id = o.request_id),
         (SELECT coalesce(max(ordinal), 0) FROM awaited_path a WHERE a.request_id = o.request_id)) AS ordinal
       FROM (SELECT DISTINCT request_id FROM joining WHERE ordinal IS NULL) o
     )
     UPDATE joining j SET ordinal = n.ordinal FROM (
       SELECT request_id, file_id, l.ordinal + row_number() OVER (PARTITION BY request_id ORDER BY path) AS ordinal
       FROM joining o JOIN last l USING (request_id) WHERE o.ordinal IS NULL
     ) n WHERE n.request_id = j.request_id AND n.file_id = j.file_id`,
  );
  await tx.query(
    sql`DELETE FROM awaited_path a USING joining j WHERE j.is_taken AND a.request_id = j.request_id AND a.path = j.path`,
  );
  await tx.query(
    sql`INSERT INTO hold (request_id, file_id, ordinal, size)
     SELECT request_id, file_id, ordinal, size FROM joining WHERE is_taken`,
  );
  await tx.query(
    sql`INSERT INTO awaited_path (request_id, path, ordinal, reason)
     SELECT request_id, path, ordinal, CASE WHEN is_beyond THEN 'LIMIT' ELSE 'QUOTA_FULL' END::"AwaitedReason"
     FROM joining WHERE NOT is_taken
     ON CONFLICT (request_id, path) DO UPDATE SET reason = excluded.reason WHERE awaited_path.reason <> excluded.reason`,
  );
}

/**
 * Lets the files join a request that it waits for by their paths, as far as there is room for them now.
 * @returns whether it has grown, and is to be settled
 */
export async function joinAwaitedOf(ctx: Context, tx: Transaction, requestId: number): Promise<boolean> {
  const awaited = sql`SELECT f.id FROM awaited_path w JOIN tape_file f ON f.path = w.path WHERE w.request_id = ${requestId}`;
  return (await joinFiles(ctx, tx, awaited, { isNew: false, requestId })).length > 0;
}

/**
 * Lets the files join a request that it waits for or that match its pattern, and that it does not hold. It is to be
 * settled afterwards.
 */
export async function joinRequest(
  ctx: Context,
  tx: Transaction,
  request: { id: number; pattern: string },
): Promise<void> {
  const hasGrown = await joinAwaitedOf(ctx, tx, request.id);
  if (request.pattern === '') return;
  if (hasGrown) await recountRequests(tx, [request.id], ctx.now()); // its limits are judged by its counts
  await tx.query(
    sql`CREATE TEMP TABLE matching ON COMMIT DROP AS
        SELECT id FROM tape_file WHERE path LIKE ${likeSubstring(request.pattern)}`,
  );
  await joinFiles(ctx, tx, sql`SELECT id FROM matching`, { isNew: true, requestId: request.id });
}

/** Lets files join that were refused for a full quota or a limit, now that there may be room again. */
export async function joinAwaited(ctx: Context): Promise<void> {
  const { rowCount } = await ctx.db.pool.query(
    sql`SELECT FROM awaited_path w JOIN tape_file f ON f.path = w.path JOIN request r ON r.id = w.request_id
        WHERE ${isLive} LIMIT 1`,
  );
  if (rowCount === 0) return;
  await transaction(ctx.db.pool, 'joinAwaited', async (tx) => {
    await lockCatalogue(tx, 'shared');
    const awaited = sql`SELECT f.id FROM awaited_path w JOIN tape_file f ON f.path = w.path`;
    await settleRequests(ctx, tx, await joinFiles(ctx, tx, awaited, { isNew: false }));
  });
}
