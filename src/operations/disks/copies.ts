/** What the database says of the copies on restore disks. */

import type { Context } from '../../context.js';
import { raw, type Sql, sql } from '../../database/sql.js';
import type { Stage } from '../../stages.js';
import { placeOnDisk } from '../conditions.js';

/** A copy that is noted; at any other stage than RESTORED it is to be removed. */
export interface NotedCopy {
  fileId: bigint;
  /** Below the mount point. */
  path: string;
  size: bigint;
  checksum: string | null;
  stage: Stage;
  diskId: number;
  mountpoint: string;
  /** What it is known by: inode, times of modification and change (nanoseconds), and the checksum of its bytes. */
  ino: bigint | null;
  mtimeNs: bigint | null;
  ctimeNs: bigint | null;
  copyChecksum: string | null;
  /** Of the file's row: another one whenever something was written of the file. */
  version: string;
}

/**
 * Of files that are locked, or asked about, those of which nothing was written since their copies were read: whatever was
 * found on disk meanwhile was found of these very copies.
 */
export function isAsRead(copies: readonly Pick<NotedCopy, 'fileId' | 'version'>[]): Sql {
  const [ids, versions] = [copies.map((copy) => copy.fileId), copies.map((copy) => copy.version)];
  return sql`(f.id = ANY(${ids}::bigint[])
    AND (f.id, f.xmin::text) IN (SELECT * FROM unnest(${ids}::bigint[], ${versions}::text[])))`;
}

/** What is told of the tape copy of a file whose copy in the restore area was changed by hand (table `verification`). */
export const CHANGED_BY_HAND = 'its copy in the restore area was changed: it is not the file that is on tape';

/** The same of a file that stood in the place of its file when that was read, with the same bytes, and that nobody has noted. */
export const NOT_OURS = "a file with the same bytes stands in its place, and is not known to be Tapegate's";

/** Columns of a NotedCopy; `f` is the file, `k` its disk. */
export const copyColumns = sql`f.id AS "fileId", ${placeOnDisk} AS path, f.size, f.checksum, f.stage, k.id AS "diskId", k.mountpoint,
  f.disk_ino AS ino, f.disk_mtime_ns AS "mtimeNs", f.disk_ctime_ns AS "ctimeNs", f.disk_checksum AS "copyChecksum",
  f.xmin::text AS version`;

/** Some of the copies that are noted on a disk, also of those that are to be removed. */
export async function sampleCopies(ctx: Context, diskId: number, limit: number): Promise<NotedCopy[]> {
  const { rows } = await ctx.db.pool.query<NotedCopy>(
    sql`SELECT ${copyColumns} FROM tape_file f JOIN restore_disk k ON k.id = f.disk_id
     WHERE f.disk_id = ${diskId} LIMIT ${limit}`,
  );
  return rows;
}

/** Noted copies on all disks, in order of their files' ids: of restored files, or such as are to be removed. */
export async function readCopies(
  ctx: Context,
  page: { kind: 'restored' | 'leaving'; after: bigint; limit: number },
): Promise<NotedCopy[]> {
  const { rows } = await ctx.db.pool.query<NotedCopy>(
    sql`SELECT ${copyColumns} FROM tape_file f JOIN restore_disk k ON k.id = f.disk_id
     WHERE f.disk_id IS NOT NULL AND f.stage ${raw(page.kind === 'restored' ? '=' : '<>')} 'RESTORED' AND f.id > ${page.after}
     ORDER BY f.id LIMIT ${page.limit}`,
  );
  return rows;
}

/** Of these files, the copies that are noted now. */
export async function readCopiesOf(ctx: Context, fileIds: readonly bigint[]): Promise<NotedCopy[]> {
  const { rows } = await ctx.db.pool.query<NotedCopy>(
    sql`SELECT ${copyColumns} FROM tape_file f JOIN restore_disk k ON k.id = f.disk_id WHERE f.id = ANY(${fileIds}::bigint[])
     ORDER BY f.id`,
  );
  return rows;
}

/** Of these files, those that a live request holds. */
export async function findHeld(ctx: Context, fileIds: readonly bigint[]): Promise<Set<bigint>> {
  const { rows } = await ctx.db.pool.query<{ fileId: bigint }>(
    sql`SELECT DISTINCT file_id AS "fileId" FROM live_hold WHERE file_id = ANY(${fileIds}::bigint[])`,
  );
  return new Set(rows.map((row) => row.fileId));
}
