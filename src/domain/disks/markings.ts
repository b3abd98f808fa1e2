/**
 * Marker files of restore disks (restore-area/marker.ts). If an engine does not find the marker file in a disk's mount
 * point, the engine assumes that the disk is not mounted.
 */

import { lockDisks, lockFiles } from '../../db/locks.js';
import { sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import { diskPath, foldedPath } from '../conditions.js';
import type { Context } from '../context.js';
import { type RecordedCopy, sampleCopies } from './disk-copies.js';
import type { DiskRow } from './disks.js';

export type UnmarkedDisk = Pick<DiskRow, 'id' | 'mountpoint'>;

export async function listUnmarked(ctx: Context): Promise<UnmarkedDisk[]> {
  return await ctx.db.rows<UnmarkedDisk>(
    sql`SELECT k.id, k.mountpoint FROM restore_disk k
        WHERE k.marked_at IS NULL AND NOT EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) ORDER BY k.id`,
  );
}

/**
 * Records in the database that a disk has its marker file, or that an engine is about to write the marker file `name`.
 * Notifies engines, because recalls might be waiting for room on the disk.
 */
export async function recordMarked(ctx: Context, diskId: number, name: string | null): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`WITH marked AS (
          UPDATE restore_disk SET marked_at = ${ctx.now()}, marked_as = ${name} WHERE id = ${diskId} AND marked_at IS NULL RETURNING id
        ) SELECT pg_notify('tapegate', 'room') FROM marked`,
  );
  return rowCount !== 0;
}

export async function isProbed(ctx: Context, diskId: number): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`SELECT FROM restore_disk WHERE id = ${diskId} AND folds_names IS NOT NULL`,
  );
  return rowCount !== 0;
}

/**
 * Records whether two names that differ only in case or Unicode normalisation denote the same file on a disk. If they
 * do, also records the folded path of each copy on the disk. Paths that differ only in case or normalisation have the
 * same folded path.
 */
export async function recordFolding(ctx: Context, diskId: number, folds: boolean): Promise<void> {
  const isThere = sql`(f.disk_id = ${diskId} OR f.changed_disk_id = ${diskId}
    OR f.id IN (SELECT c.file_id FROM recall c WHERE c.disk_id = ${diskId}))`;
  await transaction(ctx.db.pool, 'recordFolding', async (tx) => {
    if (folds) await lockFiles(tx, isThere);
    await lockDisks(tx, sql`k.id = ${diskId}`);
    await tx.query(sql`UPDATE restore_disk SET folds_names = ${folds} WHERE id = ${diskId}`);
    if (folds) await tx.query(sql`UPDATE tape_file f SET folded_path = ${foldedPath(diskPath)} WHERE ${isThere}`);
  });
}

interface DiskTraces {
  isMarked: boolean;
  /**
   * Name of the disk's marker file. An engine records the name before it writes the file, so the file might not exist
   * yet.
   */
  markedAs: string | null;
  isUsed: boolean;
  copies: RecordedCopy[];
}

export async function readTraces(ctx: Context, diskId: number, limit: number): Promise<DiskTraces> {
  const [row] = await ctx.db.rows<Omit<DiskTraces, 'copies'>>(
    sql`SELECT k.marked_at IS NOT NULL AS "isMarked", k.marked_as AS "markedAs", k.used > 0 OR k.reserved > 0
            OR EXISTS (SELECT FROM tape_file f WHERE f.disk_id = k.id)
            OR EXISTS (SELECT FROM tape_file f WHERE f.changed_disk_id = k.id)
            OR EXISTS (SELECT FROM stale_partial_file l WHERE l.disk_id = k.id) AS "isUsed"
        FROM restore_disk k WHERE k.id = ${diskId}`,
  );
  // another process has removed the disk from the database: return `isMarked`, so that the caller does not write a
  // marker file
  if (!row) return { isMarked: true, markedAs: null, isUsed: false, copies: [] };
  return { ...row, copies: await sampleCopies(ctx, diskId, limit) };
}
