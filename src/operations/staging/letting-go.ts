/** How staging libraries are told that files are not needed any more, or never were. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { isStagingWanted } from '../conditions.js';
import { type Answered, KEPT_BEFORE, NEVER_ASKED, type StagingRow, stagingColumns, stagingFiles } from './answers.js';

/**
 * Files that no recall of the library waits for any more are to be released. What nobody has asked the library for is not asked for any more,
 * which may cost money. Whatever else is intended stays, since it is not known yet by which name it may be there.
 */
export async function letGoUnwanted(ctx: Context, libraryId: number): Promise<void> {
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

/** What was read of them was wrong: whatever is there is let go before they are asked for again, which comes with their next try. */
export async function letGoFiles(ctx: Context, libraryId: number, fileIds: readonly bigint[]): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE staging SET state = 'RELEASING', since = ${ctx.now()}, due_at = ${ctx.now()}
        WHERE library_id = ${libraryId} AND file_id = ANY(${fileIds}::bigint[]) AND state IN ('ASKED', 'READY')`,
  );
}

/** They were not there when they were read: the demand that brought them is let go, and they are asked for again. */
export async function stageAgain(ctx: Context, libraryId: number, { fileId, batch }: Answered): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE staging SET state = 'RELEASING', attempts = attempts + 1, since = ${ctx.now()}, due_at = ${ctx.now()}
        WHERE library_id = ${libraryId} AND file_id = ${fileId} AND batch = ${batch}::uuid AND state = 'READY'`,
  );
}

/** The library could not give its bytes: the pause until it is read again grows with that. */
export async function noteUnread(ctx: Context, libraryId: number, { fileId, batch }: Answered): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE staging SET attempts = attempts + 1
        WHERE library_id = ${libraryId} AND file_id = ${fileId} AND batch = ${batch}::uuid AND state = 'READY'`,
  );
}

/**
 * What was ready and has left the disk of the system by its own word is staged again, unless it is being read; what was kept and has left it
 * is forgotten.
 * @param keptSince what has been kept for longer without a word of how long is looked at no more
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

/** A file that is to be released. */
export interface ToRelease extends StagingRow {
  /** Somebody waits for it again already. */
  isWanted: boolean;
  /** Other files of its demand are still to come, or to be read. */
  hasOthers: boolean;
}

/** The system has it still, and has not said until when: it is told again, and says what has become of it. */
const isUndated = sql`(s.state = 'KEPT' AND s.ready_until IS NULL)`;

/** What is to be told to the library and is due. */
export async function readToRelease(ctx: Context, libraryId: number, limit: number): Promise<ToRelease[]> {
  const { rows } = await ctx.db.pool.query<ToRelease>(
    sql`WITH open AS MATERIALIZED (
          SELECT DISTINCT coalesce(o.remote_id, '') AS id FROM staging o WHERE o.library_id = ${libraryId} AND o.state IN ('ASKED', 'READY')
        )
        SELECT ${stagingColumns}, ${isStagingWanted} AS "isWanted",
          coalesce(s.remote_id, '') IN (SELECT id FROM open) AS "hasOthers"
        FROM staging s ${stagingFiles}
        WHERE s.library_id = ${libraryId} AND s.due_at <= ${ctx.now()} AND (s.state = 'RELEASING' OR ${isUndated} AND NOT ${isStagingWanted})
        ORDER BY s.state = 'KEPT', s.since, s.remote_id, s.file_id LIMIT ${limit}`,
  );
  return rows;
}

const MOST_PAUSE_SECONDS = 600;

/** Between two looks at what is kept without a word of how long: half of the time since it is. */
const KEPT_PAUSE = { least: sql`interval '10 minutes'`, most: sql`interval '1 day'` };

/** A file that the system keeps, or brings, all the same; until then, where it says so, else as it has said when the file was ready. */
export type KeptRow = Answered & { until: string | null };

/**
 * The library was told. What was not there when somebody came to read it, and is still wanted, is intended again, whether or not the library keeps
 * something of it, after a pause that doubles from the second time on. What else it keeps is remembered until it is gone, and looked at after a while
 * where it does not say when that is; everything else is forgotten.
 */
export async function noteReleased(
  ctx: Context,
  libraryId: number,
  { released, kept }: { released: readonly Answered[]; kept: readonly KeptRow[] },
): Promise<void> {
  const now = ctx.now();
  const all = [
    ...released.map((row) => ({ ...row, isKept: false, until: null })),
    ...kept.map((row) => ({ ...row, isKept: true })),
  ];
  const told = sql`unnest(${all.map(({ fileId }) => fileId)}::bigint[], ${all.map(({ batch }) => batch)}::uuid[],
    ${all.map(({ isKept }) => isKept)}::boolean[], ${all.map(({ until }) => until)}::timestamp[]) AS n (file_id, batch, is_kept, until)`;
  const isTold = sql`(s.library_id = ${libraryId} AND s.file_id = n.file_id AND s.batch = n.batch AND (s.state = 'RELEASING' OR ${isUndated}))`;
  await ctx.db.pool.query(
    sql`WITH again AS (
          UPDATE staging s SET state = 'INTENDED', batch = gen_random_uuid(), since = ${now}, ready_until = NULL,
            due_at = ${now}::timestamp + make_interval(secs => CASE WHEN s.attempts > 1 THEN least(2 ^ least(s.attempts - 2, 20), ${MOST_PAUSE_SECONDS}) ELSE 0 END)
          FROM ${told}
          WHERE ${isTold} AND s.state = 'RELEASING' AND s.attempts > 0
            AND ${isStagingWanted} AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = s.file_id AND c.not_before > ${now})
          RETURNING s.file_id
        ), gone AS (
          DELETE FROM staging s USING ${told}
          WHERE ${isTold} AND NOT n.is_kept AND s.file_id NOT IN (SELECT file_id FROM again)
        )
        UPDATE staging s SET state = 'KEPT', since = CASE s.state WHEN 'KEPT' THEN s.since ELSE ${now}::timestamp END, ready_until = coalesce(n.until, CASE WHEN s.ready_until > ${now} THEN s.ready_until END),
          due_at = ${now}::timestamp + CASE s.state WHEN 'KEPT'
            THEN least(greatest((${now}::timestamp - s.since) / 2, ${KEPT_PAUSE.least}), ${KEPT_PAUSE.most}) ELSE ${KEPT_PAUSE.least} END
        FROM ${told} WHERE ${isTold} AND n.is_kept AND s.file_id NOT IN (SELECT file_id FROM again)`,
  );
}

/** The library could not be told of them: others go first. */
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
