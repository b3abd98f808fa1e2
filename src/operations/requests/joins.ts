/**
 * How files come into requests: those that the catalogue knows when the request is made, and those that appear later.
 * The first are charged together or not at all; the later ones are charged as they join, and stay out, visibly, when
 * the request's own limit or the quota leaves no room. What was released never joins again. All of it holds the
 * catalogue's lock (see lockCatalogue), so that no file slips in between.
 */
import type { Context } from '../../context.js';
import { lockCatalogue, type Transaction, transaction } from '../../database/transaction.js';
import { IS_LIVE } from '../conditions.js';
import { likeSubstring } from '../match.js';
import { checkRoom, type QuotaRow } from '../quotas/charges.js';
import { settleRequests } from './holds.js';
import { checkWithin, type Limits } from './limits.js';

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
    `WITH listed AS (
       SELECT path, n FROM unnest($2::text[]) WITH ORDINALITY AS l (path, n)
     ), known AS (
       SELECT l.path, l.n, f.id, f.size FROM listed l JOIN tape_file f ON f.path = l.path
     ), held AS (
       INSERT INTO hold (request_id, file_id, ordinal, size) SELECT $1, id, n, size FROM known
     ), noted AS (
       INSERT INTO awaited_path (request_id, path, ordinal)
       SELECT $1, l.path, l.n FROM listed l WHERE NOT EXISTS (SELECT FROM known k WHERE k.path = l.path)
     )
     SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes FROM known`,
    [request.id, files],
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
    'SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes FROM tape_file WHERE path LIKE $1',
    [match],
  );
  const bytes = BigInt(sum?.bytes ?? 0);
  checkWithin(request.limits, { files: sum?.files ?? 0, bytes });
  await checkRoom(tx, request.quota, bytes);
  const [held] = await tx.query<{ bytes: string }>(
    `WITH held AS (
       INSERT INTO hold (request_id, file_id, ordinal, size)
       SELECT $1, id, row_number() OVER (ORDER BY path), size FROM tape_file WHERE path LIKE $2
       RETURNING size
     ) SELECT coalesce(sum(size), 0) AS bytes FROM held`,
    [request.id, match],
  );
  return BigInt(held?.bytes ?? 0);
}

/**
 * Lets files join the live requests that wait for them: by path, and (`isNew`) by pattern. In order of the paths, each
 * request takes what its limits allow, and of that, in order of the requests, each quota what fits; from the first that
 * does not fit, the rest stays out: of that request for a limit, of that quota for a quota.
 * @param files SQL that gives the ids of the files
 * @param options only the request with `requestId`, when it is given
 */
export async function joinFiles(
  ctx: Context,
  tx: Transaction,
  files: string,
  { isNew, requestId }: { isNew: boolean; requestId?: number },
): Promise<void> {
  const only = requestId === undefined ? '' : `AND r.id = ${requestId}`;
  const byPattern = `
    UNION ALL
    SELECT r.id, r.quota_id, f.id, f.path, f.size, NULL, true, false, false FROM request r JOIN tape_file f ON strpos(f.path, r.pattern) > 0
    WHERE r.pattern <> '' AND ${IS_LIVE} AND r.retention > $1 ${only} AND f.id IN (${files})
      AND NOT EXISTS (SELECT FROM awaited_path a WHERE a.request_id = r.id AND a.path = f.path)
      AND NOT EXISTS (SELECT FROM hold h WHERE h.request_id = r.id AND h.file_id = f.id)`;
  await tx.query(
    `CREATE TEMP TABLE joining ON COMMIT DROP AS
     SELECT r.id AS request_id, r.quota_id, f.id AS file_id, f.path, f.size, a.ordinal,
       false AS is_matched, false AS is_beyond, false AS is_taken
     FROM awaited_path a JOIN tape_file f ON f.path = a.path JOIN request r ON r.id = a.request_id
     WHERE ${IS_LIVE} AND r.retention > $1 ${only} AND f.id IN (${files}) ${isNew ? byPattern : ''}`,
    [ctx.now()],
  );
  const locked = await tx.query(
    `SELECT r.id FROM request r WHERE r.id IN (SELECT request_id FROM joining) ORDER BY r.id FOR NO KEY UPDATE`,
  );
  if (locked.length > 0) {
    // whoever had them locked before may have ended them, let the same files join, or released the paths
    await tx.query(
      `DELETE FROM joining j USING request r WHERE r.id = j.request_id AND (NOT (${IS_LIVE})
         OR EXISTS (SELECT FROM hold h WHERE h.request_id = j.request_id AND h.file_id = j.file_id)
         OR (NOT j.is_matched AND NOT EXISTS (
           SELECT FROM awaited_path a WHERE a.request_id = j.request_id AND a.path = j.path)))`,
    );
    await leaveOutBeyond(tx);
    await takeWhatFits(tx);
    await storeJoined(tx);
    const grown = await tx.query<{ id: number }>('SELECT DISTINCT request_id AS id FROM joining WHERE is_taken');
    await settleRequests(
      ctx,
      tx,
      grown.map((request) => request.id),
    );
  }
  await tx.query('DROP TABLE joining');
}

/** What is beyond the limits of a request, from the first of its files on, takes no room from other requests. */
async function leaveOutBeyond(tx: Transaction): Promise<void> {
  await tx.query(
    `UPDATE joining j SET is_beyond = true FROM (
       SELECT request_id, file_id, count(*) OVER in_order AS files, sum(size) OVER in_order AS bytes
       FROM joining WINDOW in_order AS (PARTITION BY request_id ORDER BY path, file_id)
     ) t JOIN request r ON r.id = t.request_id
     WHERE t.request_id = j.request_id AND t.file_id = j.file_id
       AND (r.files_total + t.files > r.max_files OR r.bytes_total + t.bytes > r.max_bytes)`,
  );
}

async function takeWhatFits(tx: Transaction): Promise<void> {
  await tx.query(
    `SELECT count(*) FROM (
       SELECT FROM quota WHERE id IN (SELECT quota_id FROM joining) ORDER BY id FOR NO KEY UPDATE) locked`,
  );
  await tx.query(
    `UPDATE joining j SET is_taken = true FROM (
       SELECT request_id, file_id, quota_id,
         sum(size) OVER (PARTITION BY quota_id ORDER BY request_id, path, file_id) AS total
       FROM joining WHERE NOT is_beyond
     ) t JOIN quota q ON q.id = t.quota_id
     WHERE t.request_id = j.request_id AND t.file_id = j.file_id AND q.used + t.total <= q.size`,
  );
  await tx.query(
    `UPDATE quota q SET used = q.used + t.bytes
     FROM (SELECT quota_id, sum(size) AS bytes FROM joining WHERE is_taken GROUP BY quota_id) t WHERE q.id = t.quota_id`,
  );
}

async function storeJoined(tx: Transaction): Promise<void> {
  await tx.query(
    // materialized, so that what a request has is looked through once, not for each of its files
    `WITH last AS MATERIALIZED (
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
    `DELETE FROM awaited_path a USING joining j WHERE j.is_taken AND a.request_id = j.request_id AND a.path = j.path`,
  );
  await tx.query(
    `INSERT INTO hold (request_id, file_id, ordinal, size)
     SELECT request_id, file_id, ordinal, size FROM joining WHERE is_taken`,
  );
  await tx.query(
    `INSERT INTO awaited_path (request_id, path, ordinal, reason)
     SELECT request_id, path, ordinal, CASE WHEN is_beyond THEN 'LIMIT' ELSE 'QUOTA_FULL' END::"AwaitedReason"
     FROM joining WHERE NOT is_taken
     ON CONFLICT (request_id, path) DO UPDATE SET reason = excluded.reason WHERE awaited_path.reason <> excluded.reason`,
  );
}

/** Lets the files join a request that it waits for by their paths, as far as there is room for them now. */
export async function joinAwaitedOf(ctx: Context, tx: Transaction, requestId: number): Promise<void> {
  const awaited = `SELECT f.id FROM awaited_path w JOIN tape_file f ON f.path = w.path WHERE w.request_id = ${requestId}`;
  await joinFiles(ctx, tx, awaited, { isNew: false, requestId });
}

/** Lets the files join a request that it waits for or that match its pattern, and that it does not hold. */
export async function joinRequest(
  ctx: Context,
  tx: Transaction,
  request: { id: number; pattern: string },
): Promise<void> {
  await joinAwaitedOf(ctx, tx, request.id);
  if (request.pattern === '') return;
  await tx.query('CREATE TEMP TABLE matching ON COMMIT DROP AS SELECT id FROM tape_file WHERE path LIKE $1', [
    likeSubstring(request.pattern),
  ]);
  await joinFiles(ctx, tx, 'SELECT id FROM matching', { isNew: true, requestId: request.id });
}

/** Lets files join that were refused for a full quota or a limit, now that there may be room again. */
export async function joinAwaited(ctx: Context): Promise<void> {
  const { rowCount } = await ctx.db.pool.query(
    `SELECT FROM awaited_path w JOIN tape_file f ON f.path = w.path JOIN request r ON r.id = w.request_id
     WHERE ${IS_LIVE} LIMIT 1`,
  );
  if (rowCount === 0) return;
  await transaction(ctx.db.pool, async (tx) => {
    await lockCatalogue(tx, 'shared');
    await joinFiles(ctx, tx, 'SELECT f.id FROM awaited_path w JOIN tape_file f ON f.path = w.path', { isNew: false });
  });
}
