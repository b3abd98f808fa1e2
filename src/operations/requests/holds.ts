/**
 * Holds: which files a request claims, and how far each of them is.
 *
 * Everything here works on sets inside the caller's transaction. A request that is being made and an engine that moves
 * the same files must not miss each other; so whoever changes a file locks its row first and looks at the holds in a
 * later statement, and whoever adds holds locks the files that are anywhere but on tape before looking at their stage.
 */
import type { Context } from '../../context.js';
import type { Transaction } from '../../database/transaction.js';
import { recordProgress } from '../../events.js';
import { onDiskStages } from '../../stages.js';
import { IS_LIVE } from '../conditions.js';
import { queueMail } from '../mail/notifications.js';

/**
 * Brings the holds of requests in line with where their files are: satisfied where the file is on disk, with a recall
 * where it is on tape. Counts, states and mail follow. Calling twice is safe.
 */
export async function settleRequests(ctx: Context, tx: Transaction, requestIds: readonly number[]): Promise<void> {
  if (requestIds.length === 0) return;
  const now = ctx.now();
  await tx.query(
    `SELECT count(*) FROM (
       SELECT FROM tape_file f JOIN hold h ON h.file_id = f.id
       WHERE h.request_id = ANY($1::int[]) AND h.state = 'WAITING' AND f.stage <> 'ONTAPE' ORDER BY f.id FOR SHARE OF f
     ) locked`,
    [requestIds],
  );
  await tx.query(
    `UPDATE hold h SET state = 'ON_DISK' FROM tape_file f
     WHERE h.request_id = ANY($1::int[]) AND h.state = 'WAITING' AND f.id = h.file_id AND f.stage = ANY($2::"Stage"[])`,
    [requestIds, onDiskStages],
  );
  // An existing recall is locked by the update, also a running one: whoever is about to end it sees the new holds.
  await tx.query(
    `INSERT INTO recall (file_id, volume_id, position, size, created_at)
     SELECT DISTINCT ON (f.id) f.id, f.volume_id, f.position, f.size, $2::timestamp
     FROM hold h JOIN tape_file f ON f.id = h.file_id
     WHERE h.request_id = ANY($1::int[]) AND h.state = 'WAITING'
     ORDER BY f.id
     ON CONFLICT (file_id) DO UPDATE SET created_at = recall.created_at`,
    [requestIds, now],
  );
  // a recall of one of the files may have begun before this request was made
  await tx.query(
    `UPDATE request r SET tapestore_request_start = $2::timestamp
     WHERE r.id = ANY($1::int[]) AND r.tapestore_request_start IS NULL AND EXISTS (
       SELECT FROM hold h JOIN tape_file f ON f.id = h.file_id
       WHERE h.request_id = r.id AND h.state = 'WAITING' AND f.stage = 'RESTORING')`,
    [requestIds, now],
  );
  await recountRequests(tx, requestIds, now);
  await advanceRequests(ctx, tx, requestIds, now);
}

/** Counts the holds of requests anew. The requests are locked. */
export async function recountRequests(tx: Transaction, requestIds: readonly number[], now: string): Promise<void> {
  await tx.query(
    `UPDATE request r SET files_total = c.total, files_on_disk = c.on_disk, files_failed = c.failed,
       bytes_total = c.bytes, bytes_on_disk = c.bytes_on_disk,
       last_arrival = CASE WHEN c.on_disk > r.files_on_disk THEN $2::timestamp ELSE r.last_arrival END
     FROM (
       SELECT i.id, count(h.file_id) AS total, coalesce(sum(h.size), 0) AS bytes,
         count(*) FILTER (WHERE h.state = 'ON_DISK') AS on_disk,
         count(*) FILTER (WHERE h.state = 'FAILED') AS failed,
         coalesce(sum(h.size) FILTER (WHERE h.state = 'ON_DISK'), 0) AS bytes_on_disk
       FROM unnest($1::int[]) AS i (id) LEFT JOIN hold h ON h.request_id = i.id AND h.state <> 'RELEASED' GROUP BY i.id
     ) c WHERE r.id = c.id`,
    [requestIds, now],
  );
}

/**
 * Gives live requests the state and the times that follow from their counts, and queues the mail that is due.
 * A request is complete when each of its files is on disk or has failed for good; files that join a complete request
 * make it incomplete again.
 */
export async function advanceRequests(
  ctx: Context,
  tx: Transaction,
  requestIds: readonly number[],
  now = ctx.now(),
): Promise<void> {
  if (requestIds.length === 0) return;
  await tx.query(
    `UPDATE request r SET
       state = CASE
         WHEN NOT d.is_done THEN CASE WHEN r.tapestore_request_start IS NULL THEN 'QUEUED' ELSE 'RESTORING' END
         WHEN r.files_failed > 0 THEN 'PARTIAL' ELSE 'COMPLETED' END::"RequestState",
       first_files_on_disk = coalesce(r.first_files_on_disk, CASE WHEN r.files_on_disk > 0 THEN $2::timestamp END),
       last_files_on_disk =
         CASE WHEN d.is_done
           THEN coalesce(r.last_files_on_disk, CASE WHEN r.files_on_disk > 0 THEN r.last_arrival END) END,
       tapestore_request_end =
         CASE WHEN d.is_done AND r.tapestore_request_start IS NOT NULL
           THEN coalesce(r.tapestore_request_end, $2::timestamp) END
     FROM (SELECT id, files_on_disk + files_failed = files_total AS is_done FROM request) d
     WHERE r.id = ANY($1::int[]) AND d.id = r.id AND ${IS_LIVE}`,
    [requestIds, now],
  );
  await queueMail(ctx, tx, requestIds);
  recordProgress(tx, requestIds);
}

/**
 * The holds of each file `o.file_id`, looked up file by file: left to itself, PostgreSQL reads all holds of a large new
 * request for each batch of its files, as long as it has no statistics of them.
 */
const EACH_HOLD = `CROSS JOIN LATERAL (SELECT h.request_id, h.state FROM hold h WHERE h.file_id = o.file_id OFFSET 0) h`;

/**
 * Locks the live requests that hold any of the files, in order of their ids, and returns them.
 * @param which `unstarted`: only those of which no recall has begun
 */
export async function lockRequestsOf(
  tx: Transaction,
  fileIds: readonly bigint[],
  which: 'all' | 'unstarted' = 'all',
): Promise<number[]> {
  const rows = await tx.query<{ id: number }>(
    `SELECT r.id FROM request r
     WHERE ${IS_LIVE} ${which === 'unstarted' ? 'AND r.tapestore_request_start IS NULL' : ''} AND r.id = ANY(ARRAY(
       SELECT DISTINCT h.request_id FROM unnest($1::bigint[]) AS o (file_id) ${EACH_HOLD} WHERE h.state <> 'RELEASED'))
     ORDER BY r.id FOR NO KEY UPDATE`,
    [fileIds],
  );
  return rows.map((row) => row.id);
}

/** Locks files, in order of their ids: after the requests, and before their recalls. */
export async function lockFiles(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  await tx.query(
    `SELECT count(*) FROM (
       SELECT FROM tape_file WHERE id = ANY($1::bigint[]) ORDER BY id FOR NO KEY UPDATE) locked`,
    [fileIds],
  );
}

/**
 * Tells the holds of live requests how the recall of their files ended. The file rows are locked by the caller in an
 * earlier statement. A hold that had failed is satisfied after all when its file arrives for somebody else.
 */
export async function markHolds(
  ctx: Context,
  tx: Transaction,
  outcomes: readonly { fileId: bigint; failure?: { errorClass: string; error: string } }[],
): Promise<void> {
  if (outcomes.length === 0) return;
  const now = ctx.now();
  // `+ 0` keeps PostgreSQL from the index of the requests, see EACH_HOLD
  const rows = await tx.query<{ requestId: number }>(
    `WITH told AS (
       SELECT h.request_id, o.file_id, h.state AS before, o.error_class, o.error
       FROM unnest($1::bigint[], $2::"ErrorClass"[], $3::text[]) AS o (file_id, error_class, error) ${EACH_HOLD}
         JOIN request r ON r.id = h.request_id
       WHERE ${IS_LIVE} AND (h.state = 'WAITING' OR (h.state = 'FAILED' AND o.error_class IS NULL))
     ), changed AS (
       UPDATE hold h SET error_class = o.error_class, error = o.error,
         state = CASE WHEN o.error_class IS NULL THEN 'ON_DISK' ELSE 'FAILED' END::"HoldState"
       FROM told o WHERE h.file_id = o.file_id AND h.request_id + 0 = o.request_id AND h.state = o.before
       RETURNING h.request_id, h.size, h.state, o.before
     ), delta AS (
       SELECT request_id,
         count(*) FILTER (WHERE state = 'ON_DISK') AS on_disk,
         count(*) FILTER (WHERE state = 'FAILED') - count(*) FILTER (WHERE before = 'FAILED') AS failed,
         coalesce(sum(size) FILTER (WHERE state = 'ON_DISK'), 0) AS bytes
       FROM changed GROUP BY request_id
     )
     UPDATE request r SET files_on_disk = files_on_disk + d.on_disk, files_failed = files_failed + d.failed,
       bytes_on_disk = bytes_on_disk + d.bytes,
       last_arrival = CASE WHEN d.on_disk > 0 THEN $4::timestamp ELSE r.last_arrival END
     FROM delta d WHERE r.id = d.request_id RETURNING r.id AS "requestId"`,
    [
      outcomes.map((o) => o.fileId),
      outcomes.map((o) => o.failure?.errorClass ?? null),
      outcomes.map((o) => o.failure?.error ?? null),
      now,
    ],
  );
  await advanceRequests(
    ctx,
    tx,
    rows.map((row) => row.requestId),
    now,
  );
}
