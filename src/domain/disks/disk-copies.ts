import type { Stage } from '../../core/stages.js';
import { addSeconds } from '../../core/time.js';
import { prepared } from '../../db/prepared.js';
import { empty, type Sql, sql } from '../../db/sql.js';
import { mayPath } from '../access/paths.js';
import { diskPath, FRESH_SECONDS, isOffered } from '../conditions.js';
import type { Context } from '../context.js';
import { allow } from '../policy.js';
import { isDirectory } from '../requests/create.js';

/**
 * A copy of a file on a restore disk, as recorded in the database. If the file's stage is not RESTORED, an engine
 * removes the copy.
 */
export interface RecordedCopy {
  fileId: bigint;
  path: string;
  size: bigint;
  checksum: string | null;
  /** The file's Adler-32 checksum in hex; null if it is unknown, or if `checksum` is itself an Adler-32. */
  adler32: string | null;
  stage: Stage;
  diskId: number;
  mountpoint: string;
  ino: bigint | null;
  mtimeNs: bigint | null;
  ctimeNs: bigint | null;
  copyChecksum: string | null;
  markerId: string | null;
  /** Version of the file's row (`xmin`), which changes whenever a transaction writes the row. */
  version: string;
}

/**
 * Returns the SQL condition that is true if the row of the file `f` has not changed since its copy in `copies` was
 * read.
 */
export function isAsRead(copies: readonly Pick<RecordedCopy, 'fileId' | 'version'>[]): Sql {
  const [ids, versions] = [copies.map((copy) => copy.fileId), copies.map((copy) => copy.version)];
  return sql`(f.id = ANY(${ids}::bigint[])
    AND (f.id, f.xmin::text) IN (SELECT * FROM unnest(${ids}::bigint[], ${versions}::text[])))`;
}

export const CHANGED_BY_HAND = 'its copy in the restore area was changed, and differs from the file on tape';

/**
 * Error text in the table `verification` for a catalogue file whose path on disk contains a file from another program
 * with the same bytes. The text must not change, because SQL queries compare it with stored errors.
 */
export const NOT_OURS = 'a file with the same bytes is at its path, but Tapegate might not have created it';

export const copyColumns = sql`f.id AS "fileId", ${diskPath} AS path, f.size, f.checksum, f.adler32, f.stage, k.id AS "diskId", k.mountpoint,
  f.disk_ino AS ino, f.disk_mtime_ns AS "mtimeNs", f.disk_ctime_ns AS "ctimeNs", f.disk_checksum AS "copyChecksum", k.marker_id AS "markerId",
  f.xmin::text AS version`;

export async function sampleCopies(ctx: Context, diskId: number, limit: number): Promise<RecordedCopy[]> {
  return await ctx.db.rows<RecordedCopy>(
    sql`SELECT ${copyColumns} FROM tape_file f JOIN restore_disk k ON k.id = f.disk_id
     WHERE f.disk_id = ${diskId} LIMIT ${limit}`,
  );
}

/**
 * Reads a page of the copies of RESTORED files, ordered by file id. If `isWorking` is true, omits copies on failing
 * disks.
 */
export async function readCopies(
  ctx: Context,
  page: { after: bigint; limit: number; isWorking?: boolean },
): Promise<RecordedCopy[]> {
  const working = page.isWorking ? sql`AND NOT EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id)` : empty;
  return await ctx.db.rows<RecordedCopy>(
    sql`SELECT ${copyColumns} FROM tape_file f JOIN restore_disk k ON k.id = f.disk_id
     WHERE f.disk_id IS NOT NULL AND f.stage = 'RESTORED' AND f.id > ${page.after} ${working}
     ORDER BY f.id LIMIT ${page.limit}`,
  );
}

export async function readCopiesOf(ctx: Context, fileIds: readonly bigint[]): Promise<RecordedCopy[]> {
  return await ctx.db.rows<RecordedCopy>(
    sql`SELECT ${copyColumns} FROM tape_file f JOIN restore_disk k ON k.id = f.disk_id WHERE f.id = ANY(${fileIds}::bigint[])
     ORDER BY f.id`,
  );
}

export async function findHeld(ctx: Context, fileIds: readonly bigint[]): Promise<Set<bigint>> {
  const rows = await ctx.db.rows<{ fileId: bigint }>(
    sql`SELECT DISTINCT file_id AS "fileId" FROM live_request_file WHERE file_id = ANY(${fileIds}::bigint[])`,
  );
  return new Set(rows.map((row) => row.fileId));
}

/**
 * Reason why a caller cannot read a file's copy on a restore disk. ELSEWHERE: the file is not RESTORED, but on disk at
 * its primary path or as a changed copy. DISK_FAILS: the restore disk is failing, or the catalogue does not name a
 * restore disk for the file.
 */
export type Unserved = 'UNKNOWN' | 'DIRECTORY' | 'NOT_YOURS' | 'ON_TAPE' | 'ELSEWHERE' | 'DISK_FAILS';

export type ServedCopy = Pick<
  RecordedCopy,
  | 'fileId'
  | 'path'
  | 'size'
  | 'checksum'
  | 'adler32'
  | 'diskId'
  | 'mountpoint'
  | 'ino'
  | 'mtimeNs'
  | 'ctimeNs'
  | 'copyChecksum'
  | 'markerId'
>;

/**
 * Finds a file's copy, if the caller may list and fetch the file. Returns the problem UNKNOWN if the path rules hide
 * the file from the caller.
 */
export async function findServed(ctx: Context, path: string): Promise<{ copy: ServedCopy } | { problem: Unserved }> {
  allow(ctx, 'getFile');
  const [row] = await ctx.db.rows<ServedCopy & { problem: Unserved | null }>(
    prepared(
      sql`SELECT CASE
            WHEN f.id IS NULL THEN CASE WHEN ${isDirectory(ctx)} THEN 'DIRECTORY' ELSE 'UNKNOWN' END
            WHEN NOT ${mayPath(ctx, 'FETCH')} THEN 'NOT_YOURS'
            WHEN f.stage IN ('ONTAPE', 'RESTORING') THEN 'ON_TAPE'
            WHEN f.stage <> 'RESTORED' THEN 'ELSEWHERE'
            WHEN k.id IS NULL OR EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) THEN 'DISK_FAILS' END AS problem, ${copyColumns}
          FROM (SELECT ${path}::text AS path) l LEFT JOIN tape_file f ON f.path = l.path AND (${isOffered} OR f.stage = 'RESTORED') AND ${mayPath(ctx, 'LIST')}
            LEFT JOIN restore_disk k ON k.id = f.disk_id`,
    ),
  );
  if (!row || row.problem !== null) return { problem: row?.problem ?? 'UNKNOWN' };
  const { problem: _problem, ...copy } = row;
  return { copy };
}

export interface Listed {
  size: bigint;
  mtime: string | null;
  checksum: string | null;
  adler32: string | null;
}

/**
 * Returns a file's properties. Returns undefined if the file does not exist, or the caller may not list or fetch it.
 */
export async function readListed(ctx: Context, path: string): Promise<Listed | undefined> {
  allow(ctx, 'getFile');
  const [row] = await ctx.db.rows<Listed>(
    sql`SELECT f.size, f.mtime, f.checksum, f.adler32 FROM tape_file f
        WHERE f.path = ${path} AND ${isOffered} AND ${mayPath(ctx, 'LIST')} AND ${mayPath(ctx, 'FETCH')}`,
  );
  return row;
}

/** Returns the hosts that measured a disk within the last minute, and found no problem except lack of space. */
export async function findHostsOf(ctx: Context, diskId: number): Promise<string[]> {
  allow(ctx, 'getFile');
  const rows = await ctx.db.rows<{ host: string }>(
    sql`SELECT m.host FROM disk_measurement m WHERE m.disk_id = ${diskId} AND (m.problem IS NULL OR m.free IS NOT NULL)
          AND m.measured_at >= ${addSeconds(ctx.now(), -FRESH_SECONDS)}::timestamp ORDER BY m.host`,
  );
  return rows.map(({ host }) => host);
}
