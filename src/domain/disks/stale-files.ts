/**
 * Records stale partial files. Such a file stays on a disk if the recall's engine died, or if the disk failed when the
 * recall ended. Before a job removes a stale partial file, the job checks that the path on disk does not lead to a
 * different file.
 */

import { type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import type { Context } from '../context.js';

export interface StaleFile {
  id: bigint;
  fileId: bigint;
  path: string;
  size: bigint;
  diskId: number;
  mountpoint: string;
  driveId: number;
  epoch: bigint;
  /** Inode of the partial file; null if the recall ended before it began to move its copy to the file's path. */
  ino: bigint | null;
  mtimeNs: bigint | null;
  /**
   * Always null, because Tapegate does not record the ctime of a partial file. If the checksum is known, the job
   * compares the file's bytes instead.
   */
  ctimeNs: null;
  copyChecksum: string | null;
}

/**
 * Records stale partial files. The caller must call this function before it moves the files out of the stage RESTORING.
 * @param which SQL condition that selects the recalls `c` with their drives `d`
 */
export async function recordStaleFiles(tx: Transaction, which: Sql): Promise<void> {
  await tx.query(
    sql`INSERT INTO stale_partial_file (file_id, disk_id, drive_id, epoch, path, size, ino, mtime_ns, checksum)
        SELECT c.file_id, c.disk_id, c.drive_id, c.epoch, (SELECT f.disk_path FROM tape_file f WHERE f.id = c.file_id), c.size, c.copy_ino, c.copy_mtime_ns, c.checksum
        FROM recall c LEFT JOIN drive d ON d.id = c.drive_id
        WHERE c.state = 'RUNNING' AND c.disk_id IS NOT NULL AND c.drive_id IS NOT NULL AND c.epoch IS NOT NULL AND ${which}`,
  );
}

const staleColumns = sql`l.id, l.file_id AS "fileId", coalesce(l.path, f.path) AS path, l.size, l.disk_id AS "diskId", k.mountpoint,
  l.drive_id AS "driveId", l.epoch, l.ino, l.mtime_ns AS "mtimeNs", NULL AS "ctimeNs", l.checksum AS "copyChecksum"`;

const staleRows = sql`stale_partial_file l JOIN tape_file f ON f.id = l.file_id JOIN restore_disk k ON k.id = l.disk_id`;

export async function readStaleFilesOn(ctx: Context, copy: { fileId: bigint; diskId: number }): Promise<StaleFile[]> {
  return await ctx.db.rows<StaleFile>(
    sql`SELECT ${staleColumns} FROM ${staleRows} WHERE l.file_id = ${copy.fileId} AND l.disk_id = ${copy.diskId} ORDER BY l.id`,
  );
}

/** Reads a page of stale partial files. Omits files that are being restored, and files on failing disks. */
export async function readStaleFilesAtRest(ctx: Context, page: { after: bigint; limit: number }): Promise<StaleFile[]> {
  return await ctx.db.rows<StaleFile>(
    sql`SELECT ${staleColumns} FROM ${staleRows} WHERE l.id > ${page.after} AND ${isAtRest}
          AND NOT EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = l.disk_id) ORDER BY l.id LIMIT ${page.limit}`,
  );
}

/**
 * SQL condition that is true if the file `f` is not being restored. During a restore, a file's new copy might have the
 * inode of a stale partial file.
 */
const isAtRest = sql`f.stage <> 'RESTORING'`;

/**
 * Returns the partial files that are still stale, by id. The caller must examine the partial files on disk before it
 * calls this function, and remove the stale files afterwards. `isNoted` is true if the partial file is now the recorded
 * copy, which the caller must keep.
 */
export async function findStillStale(
  ctx: Context,
  left: readonly StaleFile[],
): Promise<Map<bigint, { isNoted: boolean }>> {
  const rows = await ctx.db.rows<{ id: bigint; isNoted: boolean }>(
    sql`SELECT l.id, coalesce(f.disk_id = l.disk_id AND f.disk_ino = l.ino, false) AS "isNoted" FROM ${staleRows}
        WHERE l.id = ANY(${left.map(({ id }) => id)}::bigint[]) AND ${isAtRest}`,
  );
  return new Map(rows.map(({ id, isNoted }) => [id, { isNoted }]));
}

export async function deleteStaleFiles(ctx: Context, left: readonly StaleFile[]): Promise<void> {
  await ctx.db.pool.query(sql`DELETE FROM stale_partial_file WHERE id = ANY(${left.map(({ id }) => id)}::bigint[])`);
}
