/**
 * What staging libraries are asked, and what they have answered. Each call is noted before it is made, with a batch of its own for the
 * files of it; what comes of it is written for the files that still have that batch. So an answer that comes late, when
 * others have turned to the files since, changes nothing.
 */
import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { sampleWaits } from '../../planner/queue.js';
import { pathOnTape } from '../conditions.js';

/** A file of a staging library, as a call to the library takes it. */
export interface StagingRow {
  fileId: bigint;
  /** By which the library knows it. */
  path: string;
  /** Empty where the catalogue does not say any more. */
  volume: string;
  position: bigint | null;
  size: bigint;
  batch: string;
  remoteId: string | null;
  attempts: number;
  askedAt: string;
  since: string;
}

/** The batches of what is intended, as long as nobody has taken it to ask for it: what the library keeps of an earlier time has one of its own. */
export const NEVER_ASKED = '00000000-0000-0000-0000-000000000000';
export const KEPT_BEFORE = '00000000-0000-0000-0000-000000000001';

export const stagingColumns = sql`s.file_id AS "fileId", ${pathOnTape} AS path, coalesce(v.name, '') AS volume, f.position, s.size, s.batch, s.remote_id AS "remoteId",
  s.attempts, s.asked_at AS "askedAt", s.since`;

export const stagingFiles = sql`JOIN tape_file f ON f.id = s.file_id LEFT JOIN volume v ON v.id = f.volume_id`;

/**
 * Takes files that are intended and due, those first that were put off least, and gives them a new batch: to be called before the
 * library is asked for them. The more often files were put off, the fewer of them at once, so that one that the library cannot take
 * does not keep the others from being asked for. What nobody wants any more is asked for as well, where it may have been before: it
 * is known then by which name it is released.
 */
export async function takeIntended(
  ctx: Context,
  { libraryId, batch, limit }: { libraryId: number; batch: string; limit: number },
): Promise<StagingRow[]> {
  const isDue = sql`(g.library_id = ${libraryId} AND g.state = 'INTENDED' AND g.due_at <= ${ctx.now()})`;
  const { rows } = await ctx.db.pool.query<StagingRow>(
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
  return rows;
}

/** The library has taken all files of the batch, under the name that it gave. @returns how many still have the batch */
export async function noteAsked(
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
 * The library was asked by somebody who had it no longer: what of it is in no row, and so is nobody's, is to be released. What others have asked for since is
 * theirs.
 */
export async function noteStray(
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

/** Files that the library was asked for and is to be asked about; those of a demand together. */
export async function readToPoll(ctx: Context, libraryId: number, limit: number): Promise<StagingRow[]> {
  const { rows } = await ctx.db.pool.query<StagingRow>(
    sql`SELECT ${stagingColumns} FROM staging s ${stagingFiles}
        WHERE s.library_id = ${libraryId} AND s.state = 'ASKED' AND s.due_at <= ${ctx.now()}
        ORDER BY s.due_at, s.remote_id, s.file_id LIMIT ${limit}`,
  );
  return rows;
}

/** A file with the batch under which a library was asked about it. */
export type Answered = Pick<StagingRow, 'fileId' | 'batch'>;

function answered(rows: readonly Answered[]): Sql {
  return sql`unnest(${rows.map(({ fileId }) => fileId)}::bigint[], ${rows.map(({ batch }) => batch)}::uuid[]) AS n (file_id, batch)`;
}

/** It says nothing new of them. */
export async function noteWaiting(
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

/** Of how many files it is remembered what they have taken, and of one answer at most. */
const WAITS = { kept: 100, ofOne: 10 };

/** They can be read, until then where the library says so; rings whoever reads. What they have taken is remembered, for estimates. */
export async function noteStaged(
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

/** A file that is to be asked for again, and not before then. */
export type Again = Answered & { at: string };

/** The library knows of the demand no more: that is no failure of theirs. */
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

/** The library could not be asked for them: whoever was asked for less goes first when it can be. */
export async function notePutOff(ctx: Context, batch: string, at: string): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE staging SET attempts = attempts + 1, due_at = ${at} WHERE batch = ${batch}::uuid AND state = 'INTENDED'`,
  );
}
