/** Reads the queue of recalls for the planner, either grouped by volume and user, or file by file for one volume. */

import type { ErrorClass } from '../../core/errors.js';
import { addSeconds } from '../../core/time.js';
import { lockFiles, locking, lockRecalls } from '../../db/locks.js';
import { queryByKeys } from '../../db/planning.js';
import { type Sql, sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import type { RecallState } from '../../generated/prisma/enums.js';
import type { QueuedRecall, QueueEntry } from '../../planner/queue.js';
import { isSameVersion, positionOfFile, swapCopies } from '../catalogue/versions.js';
import {
  hasOther,
  isLive,
  isReadable,
  isReadyBy,
  isResting,
  isServed,
  isWaiting,
  needsRoom,
  pathOnTape,
} from '../conditions.js';
import type { Context } from '../context.js';
import type { Lease } from './drives.js';

const isQueuedForRoom = sql`(c.state = 'WAITING' AND ${isReadable} AND ${needsRoom})`;

/**
 * Returns the recall queue, grouped by volume and user. If several users wait for the same file, the file is counted
 * for each of these users.
 * @param which.libraryId id of the only library to include. Default: all libraries
 * @param which.volumeId id of the only volume to include. Default: all volumes
 * @param which.until if given, the result also includes recalls that wait for disk space, and recalls that are
 * postponed until this time or an earlier time. Default: only recalls that a drive could start now
 */
export async function readQueues(
  ctx: Context,
  { libraryId, volumeId, until }: { libraryId?: number; volumeId?: number; until?: string } = {},
): Promise<QueueEntry[]> {
  const isReady = until === undefined ? isReadyBy(ctx.now()) : sql`(${isReadyBy(until)} OR ${isQueuedForRoom})`;
  const isOfVolume = volumeId === undefined ? sql`true` : sql`c.volume_id = ${volumeId}`;
  const isOfLibrary = libraryId === undefined ? sql`true` : sql`v.library_id = ${libraryId}`;
  return await readQueueOf(
    ctx,
    sql`(${isReady} AND ${isOfVolume})`,
    sql`${isOfLibrary} AND NOT ${isResting(until ?? ctx.now())}`,
  );
}

/**
 * Returns the recalls that meet the conditions `isQueued` and `isOpen`, grouped by volume and user. Skips suspended
 * volumes and users.
 * @param isQueued SQL condition on recalls (`c`)
 * @param isOpen SQL condition on volumes (`v`)
 */
export async function readQueueOf(ctx: Context, isQueued: Sql, isOpen: Sql): Promise<QueueEntry[]> {
  return await readEntries(ctx, isQueued, sql`${isOpen} AND NOT ${isVolumeSuspended}`);
}

/** Returns the waiting recalls of suspended volumes, grouped by volume and user. */
export async function readSuspendedQueue(ctx: Context): Promise<QueueEntry[]> {
  return await readEntries(ctx, sql`c.state = 'WAITING'`, isVolumeSuspended);
}

const isVolumeSuspended = sql`EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id)`;

/**
 * Live request files of the recall `c`. `OFFSET 0` makes PostgreSQL look up the rows by key. Otherwise, PostgreSQL
 * compares every pair of rows if its statistics are from before a large request: 20 s for 40,000 waiting files.
 */
const liveByKeys = sql`SELECT r.quota_id, r.request_date, r.priority FROM (
    SELECT h.request_id FROM request_file h WHERE h.file_id = c.file_id AND NOT h.is_ended AND h.state <> 'RELEASED' OFFSET 0) h
  CROSS JOIN LATERAL (SELECT r.* FROM request r WHERE r.id = h.request_id AND ${isLive} OFFSET 0) r OFFSET 0`;

async function readEntries(ctx: Context, isQueued: Sql, isIncluded: Sql): Promise<QueueEntry[]> {
  return await queryByKeys<QueueEntry>(
    ctx.db.pool,
    sql`SELECT w.*, v.name AS volume, v.library_id AS "libraryId", v.medium, EXISTS (SELECT FROM drive d WHERE d.volume_id = v.id) AS "isMounted"
        FROM (
          SELECT c.volume_id AS "volumeId", q."user", count(DISTINCT c.file_id)::int AS files,
            sum(c.size) AS bytes, min(h.request_date) AS oldest, max(h.priority) AS priority
          FROM recall c CROSS JOIN LATERAL (${liveByKeys}) h CROSS JOIN LATERAL (
            SELECT q."user" FROM quota q WHERE q.id = h.quota_id OFFSET 0) q
          WHERE ${isQueued} AND ${isServed}
          GROUP BY c.volume_id, q."user"
        ) w JOIN volume v ON v.id = w."volumeId"
        WHERE ${isIncluded}`,
  );
}

export async function hasReadyRecalls(ctx: Context, { driveId, libraryId }: Lease): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`SELECT FROM recall c JOIN live_request_file h ON h.file_id = c.file_id
        WHERE ${isReadyBy(ctx.now())} AND ${isServed}
          AND EXISTS (SELECT FROM volume v WHERE v.id = c.volume_id AND v.library_id = ${libraryId} AND NOT ${isResting(ctx.now())})
          AND NOT EXISTS (SELECT FROM drive d WHERE d.volume_id = c.volume_id AND d.id <> ${driveId})
          AND NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = c.volume_id) LIMIT 1`,
  );
  return rowCount !== 0;
}

export interface Delay {
  errorClass: ErrorClass;
  error: string;
  notBefore: string;
}

/** Postpones all waiting recalls of a volume, and records the reason. A postponement does not count as a failed try. */
export async function postponeVolume(ctx: Context, volumeId: number, delay: Delay): Promise<void> {
  const { notBefore, errorClass, error } = delay;
  await ctx.db.pool.query(
    sql`UPDATE recall SET not_before = ${notBefore}, error_class = ${errorClass}, error = ${error} WHERE file_id IN (
          SELECT c.file_id FROM recall c WHERE c.volume_id = ${volumeId} AND c.state = 'WAITING'
            AND (c.not_before IS NULL OR c.not_before < ${notBefore}) ${locking.freeRecall})`,
  );
}

/** Maximum number of files in a drive's read plan for one volume. */
const PLANNED_FILES = 5000;

/**
 * Returns a volume's waiting recalls in the order of their tape positions. Recalls of files without a known position
 * come last, ordered by path. Each file appears once, with the user of its highest-priority request.
 */
export async function readVolumeQueue(
  ctx: Context,
  queue: { volumeId: number; users: readonly string[] },
): Promise<QueuedRecall[]> {
  // read recalls in the order of an index, because PostgreSQL then reads the index regardless of its row estimates
  const rows = await ctx.db.rows<Omit<QueuedRecall, 'start'>>(
    sql`SELECT c.file_id AS "fileId", c.size, w."user", w.priority
        FROM recall c ${firstRequestOf(queue.users)}
        WHERE ${isReadyBy(ctx.now())} AND c.volume_id = ${queue.volumeId}
        ORDER BY c.position, c.file_id LIMIT ${PLANNED_FILES}`,
  );
  const fileIds = rows.map(({ fileId }) => fileId);
  const starts = await readStarts(ctx, queue.volumeId, fileIds);
  // a file without an offset was moved to another volume by an import; `startRecalls` detects the move
  const startOf = (fileId: bigint): Start => starts.get(fileId) ?? { start: 0n, path: '' };
  return rows
    .map((recall) => ({ ...recall, start: startOf(recall.fileId).start }))
    .sort((a, b) => comparePaths(startOf(a.fileId), startOf(b.fileId)));
}

/**
 * Returns an SQL join (`w`) that yields the user and priority of the highest-priority request for a recall's file.
 * Considers only users who are in the given list and are not suspended.
 */
export function firstRequestOf(users: readonly string[]): Sql {
  return sql`CROSS JOIN LATERAL (
    SELECT q."user", h.priority FROM live_request_file h JOIN quota q ON q.id = h.quota_id
    WHERE h.file_id = c.file_id AND q.id = ANY(ARRAY(
      SELECT o.id FROM quota o WHERE o."user" = ANY(${users}::text[])
        AND NOT EXISTS (SELECT FROM suspended_quota s WHERE s.quota_id = o.id)))
    ORDER BY h.priority DESC, h.request_id LIMIT 1
  ) w`;
}

/** Offset in bytes at which a file begins on its volume, or the file's path on tape if the position is unknown. */
interface Start {
  start: bigint | null;
  path: string;
}

function comparePaths({ path: a }: Start, { path: b }: Start): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

/**
 * Returns the offsets in bytes at which files begin on a volume. The offsets are read separately, because a combined
 * query with the queue might make PostgreSQL compare every pair of rows.
 */
async function readStarts(ctx: Context, volumeId: number, fileIds: readonly bigint[]): Promise<Map<bigint, Start>> {
  const rows = await ctx.db.rows<Start & { id: bigint }>(
    sql`SELECT id, start, path FROM (
       SELECT f.id, CASE WHEN f.position IS NULL THEN ${pathOnTape} ELSE '' END AS path, CASE WHEN f.position IS NOT NULL THEN
         coalesce(sum(f.size) OVER (ORDER BY f.position, f.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) END AS start
       FROM tape_file f WHERE f.volume_id = ${volumeId}
     ) starts WHERE id = ANY(${fileIds}::bigint[])`,
  );
  return new Map(rows.map(({ id, ...start }) => [id, start]));
}

export interface Tries {
  state: RecallState;
  attempts: number;
  /** Class of the last error, which made the last try fail or postponed the next try. */
  errorClass: ErrorClass | null;
  error: string | null;
  /** Time of the next try; null if the recall can begin at any time, is waiting for disk space, or is running. */
  nextTry: string | null;
}

export interface RequestFileKey {
  requestId: number;
  fileId: bigint;
}

export function keyOf({ requestId, fileId }: RequestFileKey): string {
  return `${requestId}/${fileId}`;
}

/**
 * Returns the number of tries and the last error of each request file's recall. The keys of the result are made by
 * `keyOf`.
 */
export async function readTries(ctx: Context, requestFiles: readonly RequestFileKey[]): Promise<Map<string, Tries>> {
  const rows = await ctx.db.rows<Tries & RequestFileKey>(
    sql`SELECT h.request_id AS "requestId", h.file_id AS "fileId", c.state, c.attempts, c.error_class AS "errorClass", c.error,
       CASE WHEN c.state = 'WAITING' AND c.not_before > ${ctx.now()} AND NOT ${needsRoom} THEN c.not_before END AS "nextTry"
     FROM unnest(${requestFiles.map((requestFile) => requestFile.requestId)}::int[], ${requestFiles.map((requestFile) => requestFile.fileId)}::bigint[]) AS k (request_id, file_id)
       JOIN live_request_file h ON h.request_id = k.request_id AND h.file_id = k.file_id AND h.state = 'WAITING'
       JOIN recall c ON c.file_id = h.file_id`,
  );
  return new Map(rows.map((row) => [keyOf(row), row]));
}

/**
 * Returns a trace context for each file, by file id: the context of the oldest traced request that waits for the file.
 */
export async function readTraceparents(ctx: Context, fileIds: readonly bigint[]): Promise<Map<bigint, string>> {
  if (fileIds.length === 0) return new Map();
  const rows = await queryByKeys<{ fileId: bigint; traceparent: string }>(
    ctx.db.pool,
    sql`SELECT DISTINCT ON (h.file_id) h.file_id AS "fileId", r.trace_parent AS traceparent
        FROM live_request_file h JOIN request r ON r.id = h.request_id
        WHERE h.file_id = ANY(${fileIds}::bigint[]) AND h.state = 'WAITING' AND r.trace_parent IS NOT NULL
        ORDER BY h.file_id, r.id`,
  );
  return new Map(rows.map(({ fileId, traceparent }) => [fileId, traceparent]));
}

/**
 * Returns the files whose running recalls must stop. A recall must stop if no request contains the file, the file has
 * changed, or the drive, volume, disk, library or user is suspended.
 */
export async function findAbandoned(ctx: Context, engineIds: readonly string[]): Promise<bigint[]> {
  const rows = await queryByKeys<{ fileId: bigint }>(
    ctx.db.pool,
    sql`SELECT c.file_id AS "fileId" FROM recall c JOIN tape_file f ON f.id = c.file_id JOIN drive d ON d.id = c.drive_id AND d.epoch = c.epoch
        WHERE c.state = 'RUNNING' AND d.engine_id = ANY(${engineIds}::uuid[]) AND (
          NOT ${isSameVersion('c', 'f')}
          OR EXISTS (SELECT FROM suspended_drive s WHERE s.drive_id = d.id AND s.mode = 'IMMEDIATE')
          OR EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = c.volume_id AND s.mode = 'IMMEDIATE')
          OR EXISTS (SELECT FROM suspended_disk s WHERE s.disk_id = c.disk_id AND s.mode = 'IMMEDIATE')
          OR EXISTS (SELECT FROM suspended_library s WHERE s.library_id = d.library_id AND s.mode = 'IMMEDIATE')
          OR NOT EXISTS (SELECT FROM live_request_file h WHERE h.file_id = c.file_id
            AND NOT EXISTS (SELECT FROM suspended_quota s WHERE s.quota_id = h.quota_id AND s.mode = 'IMMEDIATE')))`,
  );
  return rows.map((row) => row.fileId);
}

const isAway = sql`(EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id)
  OR EXISTS (SELECT FROM suspended_library s WHERE s.library_id = v.library_id)
  OR NOT EXISTS (SELECT FROM drive d WHERE d.library_id = v.library_id
    AND NOT EXISTS (SELECT FROM suspended_drive s WHERE s.drive_id = d.id)))`;

/**
 * Seconds for which a volume must have been failing before engines switch its files to their other tape copies. The
 * time is long, because a switch is permanent, and the volume might work again soon.
 */
const PATIENCE_SECONDS = 300;

const TURNED = 1000;

/**
 * Switches waiting files on unreadable volumes to their other tape copies.
 * @returns the number of switched files
 */
export async function switchUnreadable(ctx: Context): Promise<number> {
  const now = ctx.now();
  const away = sql`SELECT v.id FROM volume v WHERE (${isAway} OR (${isResting(now)} AND v.failing_since < ${addSeconds(now, -PATIENCE_SECONDS)}::timestamp)) AND EXISTS (SELECT FROM recall c WHERE c.volume_id = v.id AND c.state = 'WAITING')`;
  const which = sql`${isWaiting} AND ${hasOther} AND c.volume_id = f.volume_id AND f.volume_id IN (${away})
    AND NOT EXISTS (SELECT FROM staging g JOIN volume v ON v.id = f.volume_id AND v.library_id = g.library_id
      WHERE g.file_id = f.id AND g.state = 'READY' AND NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id)
        AND NOT EXISTS (SELECT FROM suspended_library s WHERE s.library_id = v.library_id AND s.mode = 'IMMEDIATE'))
    AND EXISTS (SELECT FROM volume v WHERE v.id = f.copy_volume_id AND NOT ${isAway} AND NOT ${isResting(now)})`;
  const rows = await ctx.db.rows<{ id: bigint }>(
    sql`SELECT f.id FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE ${which} ORDER BY f.id LIMIT ${TURNED}`,
  );
  if (rows.length === 0) return 0;
  const ids = rows.map(({ id }) => id);
  return await transaction(ctx.db.pool, 'switchUnreadable', async (tx) => {
    await lockFiles(tx, sql`f.id = ANY(${ids}::bigint[])`);
    await lockRecalls(tx, sql`c.file_id = ANY(${ids}::bigint[])`);
    const turned = await tx.query<{ id: bigint }>(
      sql`UPDATE tape_file f SET ${swapCopies}, copy_error = NULL, copy_failed_at = NULL FROM recall c WHERE f.id = ANY(${ids}::bigint[]) AND c.file_id = f.id AND ${which} RETURNING f.id`,
    );
    await tx.query(
      sql`UPDATE recall c SET ${positionOfFile}, earlier_tries = c.earlier_tries + c.attempts, attempts = 0, not_before = NULL, error_class = NULL, error = NULL FROM tape_file f WHERE f.id = c.file_id AND ${isWaiting} AND f.id = ANY(${turned.map(({ id }) => id)}::bigint[])`,
    );
    await tx.query(sql`SELECT pg_notify('tapegate', 'recall')`);
    return turned.length;
  });
}

export async function leaveAllUnreadable(ctx: Context, stop: AbortSignal): Promise<void> {
  while (!stop.aborted && (await switchUnreadable(ctx)) > 0);
}
