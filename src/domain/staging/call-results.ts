/**
 * Calls to staging libraries, and the libraries' answers. Each call has its own batch id, which an engine stores before
 * the call. An answer is recorded only for files that still have the call's batch id. Therefore, a late answer changes
 * nothing if another engine has requested the files in the meantime.
 */

import type { ErrorClass } from '../../core/errors.js';
import { locking } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import { sampleWaits } from '../../planner/queue.js';
import { switchToCopies } from '../catalogue/versions.js';
import { isStagingWanted, isWaiting, pathOnTape } from '../conditions.js';
import type { Context } from '../context.js';
import { lockRequestsAndFiles, markRequestFiles } from '../requests/request-files.js';

export interface StagingRow {
  fileId: bigint;
  path: string;
  /** Name of the file's volume; empty if the catalogue no longer contains the volume. */
  volume: string;
  position: bigint | null;
  size: bigint;
  batch: string;
  remoteId: string | null;
  attempts: number;
  askedAt: string;
  since: string;
}

/**
 * Placeholder batch ids for files in state INTENDED that do not have a batch yet. `KEPT_BEFORE` marks files that the
 * library still keeps on its disk after an earlier request.
 */
export const NEVER_ASKED = '00000000-0000-0000-0000-000000000000';
export const KEPT_BEFORE = '00000000-0000-0000-0000-000000000001';

export const stagingColumns = sql`s.file_id AS "fileId", ${pathOnTape} AS path, coalesce(v.name, '') AS volume, f.position, s.size, s.batch, s.remote_id AS "remoteId",
  s.attempts, s.asked_at AS "askedAt", s.since`;

export const stagingFiles = sql`JOIN tape_file f ON f.id = s.file_id LEFT JOIN volume v ON v.id = f.volume_id`;

/**
 * Assigns a new batch id to the files that will be requested next from the library. Files with the fewest attempts come
 * first. The batch is smaller if the files have failed several times, so that a bad file does not block many other
 * files.
 *
 * Includes unneeded files if the library might already have received a request for them. To release an unneeded file,
 * Tapegate needs the request id from the library's answer.
 */
export async function takeIntended(
  ctx: Context,
  { libraryId, batch, limit }: { libraryId: number; batch: string; limit: number },
): Promise<StagingRow[]> {
  const isDue = sql`(g.library_id = ${libraryId} AND g.state = 'INTENDED' AND g.due_at <= ${ctx.now()})`;
  return await ctx.db.rows<StagingRow>(
    sql`WITH fewest AS (
          SELECT min(g.attempts) AS attempts FROM staging g WHERE ${isDue}
        ), due AS (
          SELECT g.file_id, g.library_id FROM staging g
          WHERE ${isDue} AND g.attempts = (SELECT attempts FROM fewest)
          ORDER BY g.asked_at, g.file_id
          LIMIT (SELECT greatest(${limit}::int >> least(attempts, 20), 1) FROM fewest) ${locking.freeStaging}
        ), taken AS (
          UPDATE staging s SET batch = ${batch}::uuid FROM due d
          WHERE s.file_id = d.file_id AND s.library_id = d.library_id RETURNING s.*
        )
        SELECT ${stagingColumns} FROM taken s ${stagingFiles} ORDER BY s.asked_at, v.name, f.position, s.file_id`,
  );
}

/**
 * Records that the library has accepted a batch.
 * @returns the number of files that still have the batch's id
 */
export async function recordAsked(
  ctx: Context,
  { batch, remoteId, pollAt }: { batch: string; remoteId: string | null; pollAt: string },
): Promise<number> {
  const { rowCount } = await ctx.db.pool.query(
    sql`UPDATE staging SET state = 'ASKED', remote_id = ${remoteId}, since = ${ctx.now()}, due_at = ${pollAt}, ready_until = NULL
        WHERE batch = ${batch}::uuid AND state = 'INTENDED'`,
  );
  return rowCount ?? 0;
}

/**
 * Releases files that this engine requested after it had lost the lease, unless another engine has requested the files.
 */
export async function recordStray(
  ctx: Context,
  asked: { libraryId: number; batch: string; remoteId: string | null; fileIds: readonly bigint[] },
): Promise<void> {
  const { libraryId, batch, remoteId, fileIds } = asked;
  const now = ctx.now();
  await ctx.db.pool.query(
    sql`INSERT INTO staging (file_id, library_id, state, batch, remote_id, size, asked_at, since, due_at)
        SELECT f.id, ${libraryId}, 'RELEASING', ${batch}::uuid, ${remoteId}, f.size, ${now}, ${now}, ${now}
        FROM tape_file f WHERE f.id = ANY(${fileIds}::bigint[]) ORDER BY f.id ON CONFLICT DO NOTHING`,
  );
}

export async function readToPoll(ctx: Context, libraryId: number, limit: number): Promise<StagingRow[]> {
  return await ctx.db.rows<StagingRow>(
    sql`SELECT ${stagingColumns} FROM staging s ${stagingFiles}
        WHERE s.library_id = ${libraryId} AND s.state = 'ASKED' AND s.due_at <= ${ctx.now()}
        ORDER BY s.due_at, s.remote_id, s.file_id LIMIT ${limit}`,
  );
}

export type Answered = Pick<StagingRow, 'fileId' | 'batch'>;

function answered(rows: readonly Answered[]): Sql {
  return sql`unnest(${rows.map(({ fileId }) => fileId)}::bigint[], ${rows.map(({ batch }) => batch)}::uuid[]) AS n (file_id, batch)`;
}

export async function recordWaiting(
  ctx: Context,
  libraryId: number,
  rows: readonly Answered[],
  pollAt: string,
): Promise<void> {
  if (rows.length === 0) return;
  await ctx.db.pool.query(
    sql`UPDATE staging s SET due_at = ${pollAt} FROM ${answered(rows)}
        WHERE s.library_id = ${libraryId} AND s.file_id = n.file_id AND s.batch = n.batch AND s.state = 'ASKED'`,
  );
}

const WAITS = { kept: 100, ofOne: 10 };

/**
 * Records that files are staged and, if known, how long the library keeps the files on its disk. Notifies the engines
 * that read files.
 */
export async function recordStaged(
  ctx: Context,
  libraryId: number,
  rows: readonly (Answered & { until: string | null })[],
): Promise<void> {
  if (rows.length === 0) return;
  const [ids, batches, untils] = [rows.map((r) => r.fileId), rows.map((r) => r.batch), rows.map((r) => r.until)];
  const now = ctx.now();
  const { rows: ready } = await ctx.db.pool.query<{ waits: number[] }>(
    sql`WITH ready AS (
          UPDATE staging s SET state = 'READY', since = ${now}, due_at = ${now}, ready_until = n.until
          FROM unnest(${ids}::bigint[], ${batches}::uuid[], ${untils}::timestamp[]) AS n (file_id, batch, until)
            JOIN staging o ON o.file_id = n.file_id AND o.library_id = ${libraryId}
          WHERE s.library_id = ${libraryId} AND s.file_id = n.file_id AND s.batch = n.batch AND s.state = 'ASKED'
          RETURNING greatest(extract(epoch FROM ${now}::timestamp - o.since)::float8, 0) AS wait
        ) SELECT array_agg(r.wait) AS waits, pg_notify('tapegate', 'recall') FROM ready r HAVING count(*) > 0`,
  );
  const waits = sampleWaits(ready[0]?.waits ?? [], WAITS.ofOne);
  if (waits.length === 0) return;
  await ctx.db.pool.query(
    sql`UPDATE stager SET waits = (${waits}::float8[] || waits)[1:${WAITS.kept}::int] WHERE library_id = ${libraryId}`,
  );
}

export type Again = Answered & { at: string };

/** Requests files again if the library reports that it does not know the files' stage request. */
export async function askAgain(ctx: Context, libraryId: number, files: readonly Again[]): Promise<void> {
  if (files.length === 0) return;
  const [ids, batches] = [files.map(({ fileId }) => fileId), files.map(({ batch }) => batch)];
  await ctx.db.pool.query(
    sql`UPDATE staging s SET state = 'INTENDED', batch = gen_random_uuid(), attempts = attempts + 1, since = ${ctx.now()}, due_at = n.at,
          ready_until = NULL
        FROM unnest(${ids}::bigint[], ${batches}::uuid[], ${files.map(({ at }) => at)}::timestamp[]) AS n (file_id, batch, at)
        WHERE s.library_id = ${libraryId} AND s.file_id = n.file_id AND s.batch = n.batch AND s.state = 'ASKED'`,
  );
}

export async function recordPutOff(ctx: Context, batch: string, at: string): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE staging SET attempts = attempts + 1, due_at = ${at} WHERE batch = ${batch}::uuid AND state = 'INTENDED'`,
  );
}

/**
 * Releases files that no recall from this library needs. If a file was never requested from the library, deletes the
 * file's row without calling the library, because a call might cost money.
 */
export async function releaseUnwanted(ctx: Context, libraryId: number): Promise<void> {
  const now = ctx.now();
  await ctx.db.pool.query(
    sql`UPDATE staging s SET state = 'RELEASING', since = ${now}, due_at = ${now}
        WHERE s.library_id = ${libraryId} AND s.state IN ('ASKED', 'READY') AND NOT ${isStagingWanted}`,
  );
  const isUnneeded = sql`(s.library_id = ${libraryId} AND s.state = 'INTENDED' AND NOT ${isStagingWanted})`;
  await ctx.db.pool.query(sql`DELETE FROM staging s WHERE ${isUnneeded} AND s.batch = ${NEVER_ASKED}::uuid`);
  await ctx.db.pool.query(
    sql`UPDATE staging s SET state = 'KEPT', batch = gen_random_uuid(), since = ${now}, due_at = ${now}
        WHERE ${isUnneeded} AND s.batch = ${KEPT_BEFORE}::uuid`,
  );
}

/**
 * Releases staged files that could not be read. When the recall of such a file is retried, the file is requested from
 * the library again.
 */
export async function releaseStaged(ctx: Context, libraryId: number, fileIds: readonly bigint[]): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE staging SET state = 'RELEASING', since = ${ctx.now()}, due_at = ${ctx.now()}
        WHERE library_id = ${libraryId} AND file_id = ANY(${fileIds}::bigint[]) AND state IN ('ASKED', 'READY')`,
  );
}

/**
 * Releases a file that the library reported as staged, but that was missing when an engine read it. The file is then
 * requested again.
 */
export async function stageAgain(ctx: Context, libraryId: number, { fileId, batch }: Answered): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE staging SET state = 'RELEASING', attempts = attempts + 1, since = ${ctx.now()}, due_at = ${ctx.now()}
        WHERE library_id = ${libraryId} AND file_id = ${fileId} AND batch = ${batch}::uuid AND state = 'READY'`,
  );
}

export async function recordUnread(ctx: Context, libraryId: number, { fileId, batch }: Answered): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE staging SET attempts = attempts + 1
        WHERE library_id = ${libraryId} AND file_id = ${fileId} AND batch = ${batch}::uuid AND state = 'READY'`,
  );
}

/**
 * Requests files again if the library removed them from its disk before an engine read them. Deletes the rows of
 * unneeded files that the library has removed.
 * @param keptSince rows without an expiry date are deleted if their state changed to KEPT before this time
 */
export async function expireStaged(ctx: Context, libraryId: number, keptSince: string): Promise<void> {
  const now = ctx.now();
  await ctx.db.pool.query(
    sql`DELETE FROM staging WHERE library_id = ${libraryId} AND state = 'KEPT'
          AND coalesce(ready_until <= ${now}, since <= ${keptSince})`,
  );
  await ctx.db.pool.query(
    sql`UPDATE staging s SET state = 'RELEASING', attempts = s.attempts + 1, since = ${now}, due_at = ${now}
        WHERE s.library_id = ${libraryId} AND s.state = 'READY' AND s.ready_until <= ${now}
          AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = s.file_id AND c.state = 'RUNNING')`,
  );
}

export interface ToRelease extends StagingRow {
  isWanted: boolean;
  /** Whether other files in the same stage request still have to be staged or read. */
  hasOthers: boolean;
}

const isUndated = sql`(s.state = 'KEPT' AND s.ready_until IS NULL)`;

export async function readToRelease(ctx: Context, libraryId: number, limit: number): Promise<ToRelease[]> {
  return await ctx.db.rows<ToRelease>(
    sql`WITH open AS MATERIALIZED (
          SELECT DISTINCT coalesce(o.remote_id, '') AS id FROM staging o WHERE o.library_id = ${libraryId} AND o.state IN ('ASKED', 'READY')
        )
        SELECT ${stagingColumns}, ${isStagingWanted} AS "isWanted",
          coalesce(s.remote_id, '') IN (SELECT id FROM open) AS "hasOthers"
        FROM staging s ${stagingFiles}
        WHERE s.library_id = ${libraryId} AND s.due_at <= ${ctx.now()} AND (s.state = 'RELEASING' OR ${isUndated} AND NOT ${isStagingWanted})
        ORDER BY s.state = 'KEPT', s.since, s.remote_id, s.file_id LIMIT ${limit}`,
  );
}

const MOST_PAUSE_SECONDS = 600;

/** Minimum and maximum time between two checks of whether the library still keeps a file on its disk. */
const KEPT_PAUSE = { least: sql`interval '10 minutes'`, most: sql`interval '1 day'` };

/**
 * A file that the library keeps on its disk. If `until` is null, the file keeps the expiry time that the library
 * reported when it staged the file.
 */
export type KeptRow = Answered & { until: string | null };

/**
 * Records the results of a release. If a file was missing when an engine tried to read it, and is still needed, the
 * file is requested again. The pause before the new request becomes longer with each attempt. If the library keeps a
 * file on its disk, the file's row remains until the library removes the file.
 */
export async function recordReleased(
  ctx: Context,
  libraryId: number,
  { released, kept }: { released: readonly Answered[]; kept: readonly KeptRow[] },
): Promise<void> {
  const now = ctx.now();
  const all = [
    ...released.map((row) => ({ ...row, isKept: false, until: null })),
    ...kept.map((row) => ({ ...row, isKept: true })),
  ];
  const answers = sql`unnest(${all.map(({ fileId }) => fileId)}::bigint[], ${all.map(({ batch }) => batch)}::uuid[],
    ${all.map(({ isKept }) => isKept)}::boolean[], ${all.map(({ until }) => until)}::timestamp[]) AS n (file_id, batch, is_kept, until)`;
  const isAnswered = sql`(s.library_id = ${libraryId} AND s.file_id = n.file_id AND s.batch = n.batch AND (s.state = 'RELEASING' OR ${isUndated}))`;
  await ctx.db.pool.query(
    sql`WITH again AS (
          UPDATE staging s SET state = 'INTENDED', batch = gen_random_uuid(), since = ${now}, ready_until = NULL,
            due_at = ${now}::timestamp + make_interval(secs => CASE WHEN s.attempts > 1 THEN least(2 ^ least(s.attempts - 2, 20), ${MOST_PAUSE_SECONDS}) ELSE 0 END)
          FROM ${answers}
          WHERE ${isAnswered} AND s.state = 'RELEASING' AND s.attempts > 0
            AND ${isStagingWanted} AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = s.file_id AND c.not_before > ${now})
          RETURNING s.file_id
        ), gone AS (
          DELETE FROM staging s USING ${answers}
          WHERE ${isAnswered} AND NOT n.is_kept AND s.file_id NOT IN (SELECT file_id FROM again)
        )
        UPDATE staging s SET state = 'KEPT', since = CASE s.state WHEN 'KEPT' THEN s.since ELSE ${now}::timestamp END, ready_until = coalesce(n.until, CASE WHEN s.ready_until > ${now} THEN s.ready_until END),
          due_at = ${now}::timestamp + CASE s.state WHEN 'KEPT'
            THEN least(greatest((${now}::timestamp - s.since) / 2, ${KEPT_PAUSE.least}), ${KEPT_PAUSE.most}) ELSE ${KEPT_PAUSE.least} END
        FROM ${answers} WHERE ${isAnswered} AND n.is_kept AND s.file_id NOT IN (SELECT file_id FROM again)`,
  );
}

export async function putOffReleases(
  ctx: Context,
  libraryId: number,
  rows: readonly Answered[],
  at: string,
): Promise<void> {
  const [ids, batches] = [rows.map((row) => row.fileId), rows.map((row) => row.batch)];
  await ctx.db.pool.query(
    sql`UPDATE staging s SET attempts = s.attempts + 1, due_at = ${at}
        FROM unnest(${ids}::bigint[], ${batches}::uuid[]) AS n (file_id, batch)
        WHERE s.library_id = ${libraryId} AND s.file_id = n.file_id AND s.batch = n.batch AND (s.state = 'RELEASING' OR ${isUndated})`,
  );
}

export interface FailedStaging extends Answered {
  errorClass: ErrorClass;
  error: string;
  isTry: boolean;
  /** Time of the recall's next try; null if the recall has failed permanently. */
  notBefore: string | null;
}

export async function readAttempts(ctx: Context, fileIds: readonly bigint[]): Promise<Map<bigint, number>> {
  const rows = await ctx.db.rows<{ fileId: bigint; attempts: number }>(
    sql`SELECT w.file_id AS "fileId", w.attempts FROM verification w WHERE w.file_id = ANY(${fileIds}::bigint[])
        UNION ALL SELECT c.file_id, c.attempts FROM recall c WHERE c.file_id = ANY(${fileIds}::bigint[])`,
  );
  return new Map(rows.map((row) => [row.fileId, row.attempts]));
}

/** Fails or postpones recalls of files that the library could not stage, and releases these files at the library. */
export async function failStaged(ctx: Context, libraryId: number, failed: readonly FailedStaging[]): Promise<void> {
  if (failed.length === 0) return;
  await transaction(ctx.db.pool, 'failStaged', async (tx) => {
    const fileIds = failed.map(({ fileId }) => fileId);
    await lockRequestsAndFiles(tx, fileIds);
    const now = ctx.now();
    const ended = await tx.query<{ fileId: bigint }>(
      sql`UPDATE staging s SET state = 'RELEASING', since = ${now}, due_at = ${now}
          FROM unnest(${fileIds}::bigint[], ${failed.map(({ batch }) => batch)}::uuid[]) AS n (file_id, batch)
          WHERE s.library_id = ${libraryId} AND s.file_id = n.file_id AND s.batch = n.batch AND s.state = 'ASKED'
          RETURNING s.file_id AS "fileId"`,
    );
    const endedIds = new Set(ended.map(({ fileId }) => fileId));
    const affected = failed.filter(({ fileId }) => endedIds.has(fileId));
    const isHere = sql`${isWaiting} AND c.volume_id IN (SELECT v.id FROM volume v WHERE v.library_id = ${libraryId})`;
    const again = affected.filter(({ notBefore }) => notBefore !== null);
    await tx.query(
      sql`UPDATE recall c SET attempts = c.attempts + n.is_try::int, not_before = n.not_before, error_class = n.error_class, error = n.error
          FROM unnest(${again.map((f) => f.fileId)}::bigint[], ${again.map((f) => f.notBefore)}::timestamp[],
            ${again.map((f) => f.errorClass)}::"ErrorClass"[], ${again.map((f) => f.error)}::text[], ${again.map((f) => f.isTry)}::bool[])
            AS n (file_id, not_before, error_class, error, is_try)
          WHERE c.file_id = n.file_id AND ${isHere}`,
    );
    await tx.query(failReadBacks(affected, now));
    const { switched, bothFailed } = await switchToCopies(
      ctx,
      tx,
      await stillHere(
        tx,
        affected.filter(({ notBefore }) => notBefore === null).map((file) => ({ ...file, isOfTape: true })),
        isHere,
      ),
    );
    const isOver = ({ fileId, notBefore }: FailedStaging) => notBefore === null && !switched.has(fileId);
    const over = new Map(affected.filter(isOver).map((file) => [file.fileId, file]));
    const gone = await tx.query<{ fileId: bigint }>(
      sql`DELETE FROM recall c WHERE c.file_id = ANY(${[...over.keys()]}::bigint[]) AND ${isHere} RETURNING c.file_id AS "fileId"`,
    );
    const outcomes = gone.flatMap(({ fileId }) => {
      const { errorClass, error } = over.get(fileId) ?? {};
      return errorClass ? [{ fileId, errorClass, error: bothFailed.get(fileId) ?? error }] : [];
    });
    await markRequestFiles(ctx, tx, outcomes);
  });
}

async function stillHere(tx: Transaction, failed: readonly FailedStaging[], isHere: Sql): Promise<FailedStaging[]> {
  if (failed.length === 0) return [];
  const rows = await tx.query<{ fileId: bigint }>(
    sql`SELECT c.file_id AS "fileId" FROM recall c WHERE c.file_id = ANY(${failed.map(({ fileId }) => fileId)}::bigint[]) AND ${isHere}`,
  );
  const here = new Set(rows.map(({ fileId }) => fileId));
  return failed.filter(({ fileId }) => here.has(fileId));
}

function failReadBacks(affected: readonly FailedStaging[], now: string): Sql {
  return sql`UPDATE verification w SET attempts = w.attempts + n.is_try::int, not_before = n.not_before, error_class = n.error_class, error = n.error, at = ${now}
    FROM unnest(${affected.map((f) => f.fileId)}::bigint[], ${affected.map((f) => f.notBefore)}::timestamp[],
      ${affected.map((f) => f.errorClass)}::"ErrorClass"[], ${affected.map((f) => f.error)}::text[], ${affected.map((f) => f.isTry)}::bool[])
      AS n (file_id, not_before, error_class, error, is_try)
    WHERE w.file_id = n.file_id AND w.not_before IS NOT NULL AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = w.file_id)`;
}
