/**
 * Tape copies of staging libraries that somebody wants read back (catalogue/verifications.ts): they are asked for, as what recalls wait for is, when
 * no recall is to be asked for, and nothing of them is written anywhere.
 */
import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { isReadBackDue } from '../catalogue/verifications.js';
import { type StagingRow, stagingColumns, stagingFiles } from './answers.js';
import { isStagedUnder, type StagerLease } from './stagers.js';

/** @returns how many are to be asked for now */
export async function intendReadBacks(ctx: Context, lease: StagerLease, limit: number): Promise<number> {
  const now = ctx.now();
  const { rowCount } = await ctx.db.pool.query(
    sql`INSERT INTO staging (file_id, library_id, state, batch, size, asked_at, since, due_at)
        SELECT f.id, v.library_id, 'INTENDED', gen_random_uuid(), f.size, ${now}, ${now}, ${now}
        FROM verification w JOIN tape_file f ON f.id = w.file_id JOIN volume v ON v.id = f.volume_id
        WHERE v.library_id = ${lease.libraryId} AND ${isReadBackDue(now)}
          AND NOT EXISTS (SELECT FROM suspended_volume x WHERE x.volume_id = v.id)
          AND NOT EXISTS (SELECT FROM staging s WHERE s.file_id = f.id AND s.library_id = v.library_id AND s.state <> 'KEPT')
          AND EXISTS (SELECT FROM stager y WHERE ${isStagedUnder(lease)})
        ORDER BY f.volume_id, f.position, f.id LIMIT ${limit}
        ON CONFLICT (file_id, library_id) DO UPDATE SET state = 'INTENDED', batch = excluded.batch, size = excluded.size, attempts = 0,
          asked_at = excluded.asked_at, since = excluded.since, due_at = excluded.due_at, ready_until = NULL WHERE staging.state = 'KEPT'`,
  );
  return rowCount ?? 0;
}

/** A copy that is ready to be read back. */
export interface ReadyCopy extends StagingRow {
  volumeId: number;
  checksum: string;
  /** Reads of it that have failed. */
  tries: number;
}

/** So long nobody else takes it; whoever dies with it leaves it for then. */
const TAKEN_HOURS = 1;

/** @returns the next one, which is nobody else's for a while */
export async function takeReadBack(ctx: Context, libraryId: number): Promise<ReadyCopy | undefined> {
  const now = ctx.now();
  const isReady: Sql = sql`g.library_id = ${libraryId} AND g.state = 'READY' AND g.due_at <= ${now} AND (g.ready_until IS NULL OR g.ready_until > ${now})`;
  const { rows } = await ctx.db.pool.query<ReadyCopy>(
    sql`WITH next AS (
          SELECT g.file_id FROM staging g JOIN verification w ON w.file_id = g.file_id JOIN tape_file f ON f.id = g.file_id
          WHERE ${isReady} AND ${isReadBackDue(now)} AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = g.file_id)
          ORDER BY g.since, g.file_id LIMIT 1 ${locking.freeStaging}
        ), taken AS (
          UPDATE staging s SET due_at = ${now}::timestamp + make_interval(hours => ${TAKEN_HOURS}) FROM next n
          WHERE s.library_id = ${libraryId} AND s.file_id = n.file_id RETURNING s.*
        )
        SELECT ${stagingColumns}, f.volume_id AS "volumeId", f.checksum, w.attempts AS tries
        FROM taken s ${stagingFiles} JOIN verification w ON w.file_id = s.file_id`,
  );
  return rows[0];
}

/** It could not be read now, which says nothing of it. */
export async function leaveReadBack(ctx: Context, libraryId: number, { fileId, batch }: ReadyCopy): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE staging SET due_at = ${ctx.now()}
        WHERE library_id = ${libraryId} AND file_id = ${fileId} AND batch = ${batch}::uuid AND state = 'READY'`,
  );
}
