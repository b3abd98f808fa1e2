/** What can be read at a staging library: files that are ready there, and for which somebody waits. */
import type { Context } from '../../context.js';
import { queryByKeys } from '../../database/planning.js';
import { sql } from '../../database/sql.js';
import { isServed } from '../conditions.js';
import { type StagingRow, stagingColumns, stagingFiles } from './answers.js';

/** A file that is ready to be read. */
export interface ReadyFile {
  fileId: bigint;
  size: bigint;
}

/**
 * The next files to be read: by the priority of those who wait, then by the shares of their users, then those first that have been ready
 * longest.
 * @param how.shares drive seconds of late divided by the weight, by user
 * @param how.isShuffled in no order instead
 */
export async function readReady(
  ctx: Context,
  {
    libraryId,
    shares,
    isShuffled,
    limit,
  }: { libraryId: number; shares: ReadonlyMap<string, number>; isShuffled: boolean; limit: number },
): Promise<ReadyFile[]> {
  const now = ctx.now();
  const { rows } = await ctx.db.pool.query<ReadyFile>(
    sql`SELECT s.file_id AS "fileId", c.size
        FROM staging s JOIN recall c ON c.file_id = s.file_id JOIN volume v ON v.id = c.volume_id AND v.library_id = s.library_id
          CROSS JOIN LATERAL (
            SELECT h.priority, coalesce(u.share, 0) AS share FROM live_hold h JOIN quota q ON q.id = h.quota_id
              LEFT JOIN unnest(${[...shares.keys()]}::text[], ${[...shares.values()]}::float8[]) AS u (name, share) ON u.name = q."user"
            WHERE h.file_id = c.file_id AND ${isServed} ORDER BY h.priority DESC, share LIMIT 1
          ) w
        WHERE s.library_id = ${libraryId} AND s.state = 'READY' AND (s.ready_until IS NULL OR s.ready_until > ${now})
          AND c.state = 'WAITING' AND (c.not_before IS NULL OR c.not_before <= ${now})
          AND NOT EXISTS (SELECT FROM suspended_volume x WHERE x.volume_id = v.id)
        ORDER BY ${isShuffled ? sql`random()` : sql`w.priority DESC, w.share, s.since, s.file_id`} LIMIT ${limit}`,
  );
  return rows;
}

/** What a library was asked of files that are about to be read; those of which nothing is known any more are left out. */
export async function readStagingOf(
  ctx: Context,
  { libraryId, fileIds }: { libraryId: number; fileIds: readonly bigint[] },
): Promise<StagingRow[]> {
  return await queryByKeys<StagingRow>(
    ctx.db.pool,
    sql`SELECT ${stagingColumns} FROM staging s ${stagingFiles}
        WHERE s.library_id = ${libraryId} AND s.file_id = ANY(${fileIds}::bigint[])`,
  );
}
