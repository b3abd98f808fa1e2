/**
 * Request files: the files of a request and their states.
 *
 * A transaction that changes a file locks the file's row first, and then reads request files in another statement. A
 * transaction that adds request files first locks the files that are not ONTAPE, and then reads the stages of all
 * files. Thus no transaction misses a concurrent change.
 */

import { onDiskStages } from '../../core/stages.js';
import { lockFiles, locking, lockRecalls, lockRequests } from '../../db/locks.js';
import { plannedByKeys } from '../../db/planning.js';
import { prepared } from '../../db/prepared.js';
import { empty, type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import { isChanged, isLive, isRecalledNoMore, whyWithdrawn } from '../conditions.js';
import type { Context } from '../context.js';
import { advanceRequests, hasBegun, recountAndAdvance } from './progress.js';

/**
 * Sets request files to ON_DISK if their file is on disk, and otherwise queues a recall. A file with a changed copy is
 * not recalled until an engine has checked the copy. Updates the requests' counts and states, and queues emails that
 * are due. The caller must have locked the requests, which must be live.
 * @param options.queuesMail false if no email can be due for these requests
 * @param options.isNew true if none of the requests' files can have been withdrawn
 */
export async function settleRequests(
  ctx: Context,
  tx: Transaction,
  requestIds: readonly number[],
  { queuesMail = true, isNew = false }: { queuesMail?: boolean; isNew?: boolean } = {},
): Promise<void> {
  if (requestIds.length === 0) return;
  const now = ctx.now();
  const which = sql`h.request_id = ANY(${requestIds}::int[])`;
  const waiting = waitingByKeys(which);
  const statements = [lockNotOnTape(waiting), satisfyByKeys(which), ...(isNew ? [] : [failWithdrawn(which)])];
  tx.send(plannedByKeys());
  for (const statement of [...statements, queueRecalls(waiting, now)]) tx.send(prepared(statement));
  await recountAndAdvance(ctx, tx, requestIds, { now, queuesMail });
}

/**
 * Queues recalls and updates counts for selected request files, as `settleRequests` does for all files of a request.
 * The counts of the requests must already include the files that are not selected.
 * @param which SQL condition that selects request files (`h`)
 */
export async function settleRequestFiles(
  ctx: Context,
  tx: Transaction,
  requestIds: readonly number[],
  which: Sql,
): Promise<void> {
  if (requestIds.length === 0) return;
  const now = ctx.now();
  const waiting = waitingTogether(which);
  tx.send(lockNotOnTape(waiting));
  const satisfied = await tx.query<{ requestId: number; files: number; bytes: bigint }>(
    sql`WITH satisfied AS (${satisfyTogether(which)} RETURNING h.request_id, h.size)
        SELECT request_id AS "requestId", count(*)::int AS files, sum(size) AS bytes FROM satisfied GROUP BY 1`,
  );
  tx.send(
    sql`WITH failed AS (${failWithdrawn(which)} RETURNING h.request_id)
        UPDATE request r SET files_failed = r.files_failed + f.files FROM (SELECT request_id, count(*)::int AS files FROM failed GROUP BY 1) f
        WHERE r.id = f.request_id`,
  );
  tx.send(queueRecalls(waiting, now));
  tx.send(
    sql`UPDATE request r SET tapestore_request_start = ${now}::timestamp
        WHERE r.id = ANY(${requestIds}::int[]) AND r.tapestore_request_start IS NULL AND ${hasBegun(which)}`,
  );
  tx.send(
    sql`UPDATE request r SET files_on_disk = r.files_on_disk + s.files, bytes_on_disk = r.bytes_on_disk + s.bytes,
          last_arrival = ${now}::timestamp
        FROM unnest(${satisfied.map((s) => s.requestId)}::int[], ${satisfied.map((s) => s.files)}::int[],
          ${satisfied.map((s) => s.bytes)}::bigint[]) AS s (id, files, bytes) WHERE r.id = s.id`,
  );
  await advanceRequests(ctx, tx, requestIds, now);
}

type WaitingRows = (condition: Sql, lock?: Sql) => Sql;

const waitingTogether =
  (which: Sql): WaitingRows =>
  (condition, lock = empty) =>
    sql`request_file h JOIN tape_file f ON f.id = h.file_id
    WHERE ${which} AND h.state = 'WAITING' AND ${condition} ORDER BY f.id ${lock}`;

/** Makes PostgreSQL look up each file by key, regardless of the table's statistics. */
const waitingByKeys =
  (which: Sql): WaitingRows =>
  (condition, lock = empty) =>
    sql`(SELECT h.file_id FROM request_file h WHERE ${which} AND h.state = 'WAITING' ORDER BY h.file_id + 0 OFFSET 0) h
    CROSS JOIN LATERAL (SELECT f.* FROM tape_file f WHERE f.id = h.file_id AND ${condition} OFFSET 0 ${lock}) f ORDER BY f.id`;

const lockNotOnTape = (waiting: WaitingRows) =>
  sql`SELECT count(*) FROM (SELECT FROM ${waiting(sql`f.stage <> 'ONTAPE'`, locking.fileShared)}) locked`;

const isServable = sql`f.stage = ANY(${onDiskStages}::"Stage"[]) AND f.purged_at IS NULL AND NOT ${isChanged}`;

const satisfyTogether = (which: Sql) => sql`UPDATE request_file h SET state = 'ON_DISK' FROM tape_file f
  WHERE ${which} AND h.state = 'WAITING' AND f.id = h.file_id AND ${isServable}`;

const satisfyByKeys = (which: Sql) => sql`UPDATE request_file h SET state = 'ON_DISK'
  WHERE ${which} AND h.state = 'WAITING' AND coalesce((SELECT true FROM tape_file f WHERE f.id = h.file_id AND ${isServable}), false)`;

/** Fails waiting request files of withdrawn files. Makes PostgreSQL look up each file by key. */
const failWithdrawn = (which: Sql) => sql`
  UPDATE request_file h SET state = 'FAILED', error_class = 'POLICY', error = (SELECT ${whyWithdrawn} FROM tape_file f WHERE f.id = h.file_id)
  WHERE ${which} AND h.state = 'WAITING' AND coalesce((SELECT true FROM tape_file f WHERE f.id = h.file_id AND ${isRecalledNoMore}), false)`;

/**
 * Queues recalls. The DO UPDATE clause locks recalls that already exist, so that a transaction that later ends such a
 * recall sees the new request files.
 */
const queueRecalls = (waiting: WaitingRows, now: string) => sql`
  INSERT INTO recall (file_id, volume_id, position, size, created_at)
  SELECT DISTINCT ON (f.id) f.id, f.volume_id, f.position, f.size, ${now}::timestamp FROM ${waiting(sql`NOT ${isChanged}`)}
  ON CONFLICT (file_id) DO UPDATE SET created_at = recall.created_at`;

/**
 * Resets request files from ON_DISK to WAITING. The caller must have locked the requests, and must call
 * `settleRequests` for them afterwards.
 */
export async function waitAgain(
  tx: Transaction,
  requestIds: readonly number[],
  fileIds: readonly bigint[],
): Promise<void> {
  await tx.query(
    sql`UPDATE request_file SET state = 'WAITING'
        WHERE request_id = ANY(${requestIds}::int[]) AND file_id = ANY(${fileIds}::bigint[]) AND state = 'ON_DISK'`,
  );
}

/**
 * Looks up each file's request files separately. With a join, PostgreSQL might read all files of a new request, because
 * the table statistics do not include the request yet.
 */
const eachRequestFile = sql`CROSS JOIN LATERAL (SELECT h.request_id, h.state FROM request_file h WHERE h.file_id = o.file_id AND NOT h.is_ended OFFSET 0) h`;

function containsOneOf(fileIds: readonly bigint[]): Sql {
  return sql`${isLive} AND r.id = ANY(ARRAY(
    SELECT DISTINCT h.request_id FROM unnest(${fileIds}::bigint[]) AS o (file_id) ${eachRequestFile} WHERE h.state <> 'RELEASED'))`;
}

/**
 * Locks the live requests that contain any of the files.
 * @returns the requests' ids
 */
export async function lockRequestsOf(tx: Transaction, fileIds: readonly bigint[]): Promise<number[]> {
  return await lockRequests(tx, containsOneOf(fileIds));
}

/**
 * Locks the live requests that contain any of the files, and whose first recall has not begun.
 * @returns the requests' ids
 */
export async function lockUnstartedOf(tx: Transaction, fileIds: readonly bigint[]): Promise<number[]> {
  return await lockRequests(tx, sql`r.tapestore_request_start IS NULL AND ${containsOneOf(fileIds)}`);
}

/**
 * Locks files, their recalls, and all live requests that contain any of the files. Until the commit, no other
 * transaction can add or end a request that waits for one of these files. Requests that were added during the wait for
 * the file locks are locked without waiting. Their transactions might be waiting for the same files. If another
 * transaction has locked such a request, this transaction is retried.
 * @returns the requests' ids
 */
export async function lockRequestsAndFiles(tx: Transaction, fileIds: readonly bigint[]): Promise<number[]> {
  const requestIds = await lockRequestsOf(tx, fileIds);
  await lockFiles(tx, sql`f.id = ANY(${fileIds}::bigint[])`);
  await lockRecalls(tx, sql`c.file_id = ANY(${fileIds}::bigint[])`);
  const late = await tx.query<{ id: number }>(
    sql`SELECT r.id FROM request r WHERE ${containsOneOf(fileIds)} AND r.id <> ALL(${requestIds}::int[])
        ORDER BY r.id ${locking.requestNow}`,
  );
  return [...requestIds, ...late.map((request) => request.id)];
}

export interface RequestFileOutcome {
  fileId: bigint;
  /** Class of the error with which the recall failed; undefined if the file is on disk. */
  errorClass?: string | undefined;
  error?: string | undefined;
}

/** Sets waiting and failed request files of the given files to ON_DISK. */
export async function markOnDisk(ctx: Context, tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  const arrived = fileIds.map((fileId) => ({ fileId }));
  await markRequestFiles(ctx, tx, arrived);
}

/**
 * Records the results of recalls in live requests. The caller must have locked the files and requests
 * (`lockRequestsAndFiles`). A failed request file becomes ON_DISK if another request's recall restores the file.
 */
export async function markRequestFiles(
  ctx: Context,
  tx: Transaction,
  outcomes: readonly RequestFileOutcome[],
): Promise<void> {
  if (outcomes.length === 0) return;
  const now = ctx.now();
  const fileIds = outcomes.map((o) => o.fileId);
  const classes = outcomes.map((o) => o.errorClass ?? null);
  const errors = outcomes.map((o) => o.error ?? null);
  // the query `outcome` is materialized, so that PostgreSQL looks up each file and each request file by key
  const rows = await tx.query<{ requestId: number }>(
    sql`WITH outcome AS MATERIALIZED (
          SELECT h.request_id, o.file_id, h.state AS before, o.error_class, o.error
          FROM unnest(${fileIds}::bigint[], ${classes}::"ErrorClass"[], ${errors}::text[]) AS o (file_id, error_class, error)
            ${eachRequestFile} JOIN request r ON r.id = h.request_id
          WHERE ${isLive} AND (h.state = 'WAITING' OR (h.state = 'FAILED' AND o.error_class IS NULL))
        ), changed AS (
          UPDATE request_file h SET error_class = o.error_class, error = o.error,
            state = CASE WHEN o.error_class IS NULL THEN 'ON_DISK' ELSE 'FAILED' END::"RequestFileState"
          FROM outcome o WHERE h.request_id = o.request_id AND h.file_id = o.file_id AND h.state = o.before
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
          last_arrival = CASE WHEN d.on_disk > 0 THEN ${now}::timestamp ELSE r.last_arrival END
        FROM delta d WHERE r.id = d.request_id RETURNING r.id AS "requestId"`,
  );
  await advanceRequests(
    ctx,
    tx,
    rows.map((row) => row.requestId),
    now,
  );
}
