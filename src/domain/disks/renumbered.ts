/**
 * Handles copies whose inode numbers have changed. The numbers change if an operator copies the disk, or if the file
 * system assigns new inode numbers at each mount.
 */

import { addSeconds } from '../../core/time.js';
import { lockFiles } from '../../db/locks.js';
import { sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import type { Context } from '../context.js';
import { copyColumns, isAsRead, type RecordedCopy } from './disk-copies.js';

export interface KnownMarker {
  diskId: number;
  mountpoint: string;
  /**
   * Identity of the disk's marker file when an engine last found all recorded copies on the disk; null if no engine has
   * recorded the identity.
   */
  markerId: string | null;
}

/** Returns the recorded identity of each disk's marker file. Omits failing disks, and disks without a marker file. */
export async function readMarkers(ctx: Context): Promise<KnownMarker[]> {
  return await ctx.db.rows<KnownMarker>(
    sql`SELECT k.id AS "diskId", k.mountpoint, k.marker_id AS "markerId" FROM restore_disk k
        WHERE k.marked_at IS NOT NULL AND NOT EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) ORDER BY k.id`,
  );
}

/**
 * Records the identity of a disk's marker file, and ends the comparison of the disk's copies. The caller must first
 * check that the disk contains all recorded copies. If an identity was already recorded, engines test again whether the
 * disk ignores case or Unicode normalisation in names.
 */
export async function recordMarker(ctx: Context, { diskId, markerId }: KnownMarker, now: string): Promise<void> {
  await ctx.db.pool.query(
    sql`WITH ended AS (DELETE FROM disk_comparison WHERE disk_id = ${diskId} AND marker_id = ${now})
        UPDATE restore_disk SET marker_id = ${now}, folds_names = CASE WHEN marker_id IS NULL THEN folds_names END
        WHERE id = ${diskId} AND marker_id IS NOT DISTINCT FROM ${markerId}`,
  );
}

/** Seconds without progress after which another engine can take over a comparison of copies. */
const SILENT_SECONDS = 600;

/** A comparison of a disk's copies with their recorded checksums. Only the engine `owner` makes the comparison. */
export interface Comparison {
  diskId: number;
  markerId: string;
  owner: string;
}

/**
 * Begins or continues to compare the copies on a disk with their recorded checksums. Only one engine at a time compares
 * the copies on a disk.
 * @returns the id of the last compared file; undefined if another engine is comparing the disk
 */
export async function claimComparison(
  ctx: Context,
  { diskId, markerId, owner }: Comparison,
): Promise<bigint | undefined> {
  const now = ctx.now();
  const [claimed] = await ctx.db.rows<{ after: bigint }>(
    sql`INSERT INTO disk_comparison AS g (disk_id, marker_id, owner, at, after, compared, total)
        SELECT ${diskId}, ${markerId}, ${owner}::uuid, ${now}::timestamp, 0, 0, count(*)::int FROM tape_file f WHERE f.disk_id = ${diskId}
        ON CONFLICT (disk_id) DO UPDATE SET marker_id = excluded.marker_id, owner = excluded.owner, at = excluded.at, total = excluded.total,
          after = CASE WHEN g.marker_id = excluded.marker_id THEN g.after ELSE 0 END,
          compared = CASE WHEN g.marker_id = excluded.marker_id THEN g.compared ELSE 0 END
        WHERE g.owner = excluded.owner OR g.at < ${addSeconds(now, -SILENT_SECONDS)}::timestamp RETURNING g.after`,
  );
  return claimed?.after;
}

/** Records a comparison's progress. @returns false if another engine has taken over the comparison */
export async function recordCompared(
  ctx: Context,
  { diskId, markerId, owner }: Comparison,
  done: { after: bigint; copies: number },
): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`UPDATE disk_comparison SET after = ${done.after}, compared = compared + ${done.copies}, at = ${ctx.now()}::timestamp
        WHERE disk_id = ${diskId} AND marker_id = ${markerId} AND owner = ${owner}::uuid`,
  );
  return rowCount !== 0;
}

export interface ComparisonProgress {
  compared: number;
  total: number;
}

export async function readComparisons(
  ctx: Context,
  diskIds: readonly number[],
): Promise<Map<number, ComparisonProgress>> {
  const rows = await ctx.db.rows<ComparisonProgress & { id: number }>(
    sql`SELECT disk_id AS id, compared, greatest(total, compared) AS total FROM disk_comparison WHERE disk_id = ANY(${diskIds}::int[])`,
  );
  return new Map(rows.map(({ id, compared, total }) => [id, { compared, total }]));
}

export async function readCopiesOn(
  ctx: Context,
  page: { diskId: number; after: bigint; limit: number },
): Promise<RecordedCopy[]> {
  return await ctx.db.rows<RecordedCopy>(
    sql`SELECT ${copyColumns} FROM tape_file f JOIN restore_disk k ON k.id = f.disk_id
        WHERE f.disk_id = ${page.diskId} AND f.id > ${page.after} ORDER BY f.id LIMIT ${page.limit}`,
  );
}

export type Renumbered = Pick<RecordedCopy, 'fileId' | 'version'> & { ino: bigint; ctimeNs: bigint };

/**
 * Records the new inodes of copies whose bytes match their recorded checksums. Skips a copy if its file's row has
 * changed since the copy was compared.
 */
export async function adoptRenumbered(ctx: Context, copies: readonly Renumbered[]): Promise<number> {
  if (copies.length === 0) return 0;
  const [ids, inos, ctimes] = [
    copies.map(({ fileId }) => fileId),
    copies.map(({ ino }) => ino),
    copies.map(({ ctimeNs }) => ctimeNs),
  ];
  return await transaction(ctx.db.pool, 'adoptRenumbered', async (tx) => {
    await lockFiles(tx, sql`f.id = ANY(${ids}::bigint[])`);
    const rows = await tx.query(
      sql`UPDATE tape_file f SET disk_ino = m.ino, disk_ctime_ns = m.ctime_ns
          FROM unnest(${ids}::bigint[], ${inos}::bigint[], ${ctimes}::bigint[]) AS m (id, ino, ctime_ns)
          WHERE f.id = m.id AND ${isAsRead(copies)} RETURNING f.id`,
    );
    return rows.length;
  });
}
