/** Of which copies the bytes are served to callers. */
import type { Context } from '../../context.js';
import { prepared } from '../../database/prepared.js';
import { sql } from '../../database/sql.js';
import { addSeconds } from '../../time.js';
import { mayPath } from '../access/paths.js';
import { isOffered } from '../conditions.js';
import { allow } from '../policy.js';
import { isFolder } from '../requests/create.js';
import { copyColumns, type NotedCopy } from './copies.js';
import { FRESH_SECONDS } from './measurements.js';

/**
 * Why a file has no copy to be read: there is none of that name, or it is a folder; its caller may not read it; it is on tape; on disk at its primary
 * place alone, or changed; no copy is known where one should be, or its disk fails.
 */
export type Unserved = 'UNKNOWN' | 'FOLDER' | 'NOT_YOURS' | 'ON_TAPE' | 'ELSEWHERE' | 'DISK_FAILS';

/** Checksums are those of the tape copy and of the bytes that were put on disk. */
export type ServedCopy = Pick<
  NotedCopy,
  'path' | 'size' | 'checksum' | 'diskId' | 'mountpoint' | 'ino' | 'mtimeNs' | 'ctimeNs' | 'copyChecksum'
>;

/** Who may list and fetch a file may read its copy: what rules by folders keep from a caller is as if it were not there. */
export async function findServed(ctx: Context, path: string): Promise<{ copy: ServedCopy } | { problem: Unserved }> {
  allow(ctx, 'getFile');
  const { rows } = await ctx.db.pool.query<ServedCopy & { problem: Unserved | null }>(
    prepared(
      sql`SELECT CASE
            WHEN f.id IS NULL THEN CASE WHEN ${isFolder(ctx)} THEN 'FOLDER' ELSE 'UNKNOWN' END
            WHEN NOT ${mayPath(ctx, 'FETCH')} THEN 'NOT_YOURS'
            WHEN f.stage IN ('ONTAPE', 'RESTORING') THEN 'ON_TAPE'
            WHEN f.stage <> 'RESTORED' THEN 'ELSEWHERE'
            WHEN k.id IS NULL OR EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) THEN 'DISK_FAILS' END AS problem, ${copyColumns}
          FROM (SELECT ${path}::text AS path) l LEFT JOIN tape_file f ON f.path = l.path AND (${isOffered} OR f.stage = 'RESTORED') AND ${mayPath(ctx, 'LIST')}
            LEFT JOIN restore_disk k ON k.id = f.disk_id`,
    ),
  );
  const [row] = rows;
  if (!row || row.problem !== null) return { problem: row?.problem ?? 'UNKNOWN' };
  const { problem: _problem, ...copy } = row;
  return { copy };
}

/** The hosts that have seen a disk of late, and nothing wrong with it but that it is full. */
export async function findHostsOf(ctx: Context, diskId: number): Promise<string[]> {
  allow(ctx, 'getFile');
  const { rows } = await ctx.db.pool.query<{ host: string }>(
    sql`SELECT m.host FROM disk_measurement m WHERE m.disk_id = ${diskId} AND (m.problem IS NULL OR m.free IS NOT NULL)
          AND m.measured_at >= ${addSeconds(ctx.now(), -FRESH_SECONDS)}::timestamp ORDER BY m.host`,
  );
  return rows.map(({ host }) => host);
}
