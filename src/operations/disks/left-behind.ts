/**
 * What recalls may have left on disks, and what nobody could look at: their disk was away when their engine was gone, or
 * failed when they ended. It is kept by what the copy is known by, so that no file of somebody else's is taken for it, and
 * removed by a pass. Nothing is locked meanwhile: what was looked at is taken away exactly as it was, or not at all.
 */

import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';

export interface LeftBehind {
  id: bigint;
  fileId: bigint;
  /** Below the mount point. */
  path: string;
  size: bigint;
  diskId: number;
  mountpoint: string;
  /** Of the recall: they make the name of its partial file. */
  driveId: number;
  epoch: bigint;
  /** What its copy is known by; null: none was about to be put in place. */
  ino: bigint | null;
  mtimeNs: bigint | null;
  /** Of its bytes; null where it is not known. */
  copyChecksum: string | null;
}

/** Before their files are RESTORING no more. @param which a condition on the recall `c` and its drive `d`; those that do not run have left nothing */
export async function noteLeftBehind(tx: Transaction, which: Sql): Promise<void> {
  await tx.query(
    sql`INSERT INTO left_behind (file_id, disk_id, drive_id, epoch, path, size, ino, mtime_ns, checksum)
        SELECT c.file_id, c.disk_id, c.drive_id, c.epoch, (SELECT f.disk_path FROM tape_file f WHERE f.id = c.file_id), c.size, c.copy_ino, c.copy_mtime_ns, c.checksum
        FROM recall c LEFT JOIN drive d ON d.id = c.drive_id
        WHERE c.state = 'RUNNING' AND c.disk_id IS NOT NULL AND c.drive_id IS NOT NULL AND c.epoch IS NOT NULL AND ${which}`,
  );
}

const leftColumns = sql`l.id, l.file_id AS "fileId", coalesce(l.path, f.path) AS path, l.size, l.disk_id AS "diskId", k.mountpoint,
  l.drive_id AS "driveId", l.epoch, l.ino, l.mtime_ns AS "mtimeNs", l.checksum AS "copyChecksum"`;

const leftRows = sql`left_behind l JOIN tape_file f ON f.id = l.file_id JOIN restore_disk k ON k.id = l.disk_id`;

/** What may be left of a file on a disk. */
export async function readLeftOn(ctx: Context, place: { fileId: bigint; diskId: number }): Promise<LeftBehind[]> {
  const { rows } = await ctx.db.pool.query<LeftBehind>(
    sql`SELECT ${leftColumns} FROM ${leftRows} WHERE l.file_id = ${place.fileId} AND l.disk_id = ${place.diskId} ORDER BY l.id`,
  );
  return rows;
}

/** What is left behind of files that are not being restored, a page at a time; what stands on a failing disk waits for it. */
export async function readLeft(ctx: Context, page: { after: bigint; limit: number }): Promise<LeftBehind[]> {
  const { rows } = await ctx.db.pool.query<LeftBehind>(
    sql`SELECT ${leftColumns} FROM ${leftRows} WHERE l.id > ${page.after} AND ${isAtRest}
          AND NOT EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = l.disk_id) ORDER BY l.id LIMIT ${page.limit}`,
  );
  return rows;
}

/** One that is just being restored may have a copy with the inode of one that has gone. */
const isAtRest = sql`f.stage <> 'RESTORING'`;

/**
 * Of what was found on disk, what is still nobody's: to be asked after it was looked at, and before it is taken away. A copy
 * that is noted by now is left where it is.
 * @returns the ids of what is still left behind, and whether its copy may be removed, too
 */
export async function findStillLeft(
  ctx: Context,
  left: readonly LeftBehind[],
): Promise<Map<bigint, { isNoted: boolean }>> {
  const { rows } = await ctx.db.pool.query<{ id: bigint; isNoted: boolean }>(
    sql`SELECT l.id, coalesce(f.disk_id = l.disk_id AND f.disk_ino = l.ino, false) AS "isNoted" FROM ${leftRows}
        WHERE l.id = ANY(${left.map(({ id }) => id)}::bigint[]) AND ${isAtRest}`,
  );
  return new Map(rows.map(({ id, isNoted }) => [id, { isNoted }]));
}

/** Forgets what is left behind no more. Calling twice is safe. */
export async function forgetLeft(ctx: Context, left: readonly LeftBehind[]): Promise<void> {
  await ctx.db.pool.query(sql`DELETE FROM left_behind WHERE id = ANY(${left.map(({ id }) => id)}::bigint[])`);
}
