/**
 * Stale partial files of recalls whose engine died, or whose disk failed when they ended. Recorded inodes prevent mistakes: a job
 * removes exactly the recognised copy, or nothing.
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
  /** Drive and epoch of the recall make the name of its partial file. */
  driveId: number;
  epoch: bigint;
  /** Null if no copy was about to be published. */
  ino: bigint | null;
  mtimeNs: bigint | null;
  /** Unknown: the bytes are compared, if their checksum is known. */
  ctimeNs: null;
  copyChecksum: string | null;
}

/** Call before the files leave RESTORING. @param which a condition on the recall `c` and its drive `d` */
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

export async function readStaleFilesOn(ctx: Context, place: { fileId: bigint; diskId: number }): Promise<StaleFile[]> {
  return await ctx.db.rows<StaleFile>(
    sql`SELECT ${staleColumns} FROM ${staleRows} WHERE l.file_id = ${place.fileId} AND l.disk_id = ${place.diskId} ORDER BY l.id`,
  );
}

/** Reads a page of stale partial files of files that are not being restored, except on failing disks. */
export async function readStaleFilesAtRest(ctx: Context, page: { after: bigint; limit: number }): Promise<StaleFile[]> {
  return await ctx.db.rows<StaleFile>(
    sql`SELECT ${staleColumns} FROM ${staleRows} WHERE l.id > ${page.after} AND ${isAtRest}
          AND NOT EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = l.disk_id) ORDER BY l.id LIMIT ${page.limit}`,
  );
}

/** A copy that is being restored may have the inode of a removed one. */
const isAtRest = sql`f.stage <> 'RESTORING'`;

/**
 * Call it after the check of the disk and before a removal. @returns ids of stale partial files; `isNoted`: a recorded copy, which must stay
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
