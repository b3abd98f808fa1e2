/** What the database says of the copies on restore disks. */
import type { Context } from '../../context.js';
import type { Stage } from '../../stages.js';

/** A copy that is noted; at any other stage than RESTORED it is to be removed. */
export interface NotedCopy {
  fileId: bigint;
  path: string;
  size: bigint;
  checksum: string | null;
  stage: Stage;
  diskId: number;
  mountpoint: string;
  /** Modification time it was left with, in nanoseconds. */
  mtimeNs: bigint | null;
}

/** Columns of a NotedCopy; `f` is the file, `d` its disk. */
export const NOTED_COPY = `f.id AS "fileId", f.path, f.size, f.checksum, f.stage, d.id AS "diskId", d.mountpoint,
  f.disk_mtime_ns AS "mtimeNs"`;

/** Some of the copies of restored files on a disk. */
export async function sampleCopies(ctx: Context, diskId: number, limit: number): Promise<NotedCopy[]> {
  const { rows } = await ctx.db.pool.query<NotedCopy>(
    `SELECT ${NOTED_COPY} FROM tape_file f JOIN restore_disk d ON d.id = f.disk_id
     WHERE f.disk_id = $1 AND f.stage = 'RESTORED' LIMIT $2`,
    [diskId, limit],
  );
  return rows;
}

/** Noted copies on all disks, in order of their files' ids: of restored files, or such as are to be removed. */
export async function readCopies(
  ctx: Context,
  page: { kind: 'restored' | 'leaving'; after: bigint; limit: number },
): Promise<NotedCopy[]> {
  const { rows } = await ctx.db.pool.query<NotedCopy>(
    `SELECT ${NOTED_COPY} FROM tape_file f JOIN restore_disk d ON d.id = f.disk_id
     WHERE f.disk_id IS NOT NULL AND f.stage ${page.kind === 'restored' ? '=' : '<>'} 'RESTORED' AND f.id > $1
     ORDER BY f.id LIMIT $2`,
    [page.after, page.limit],
  );
  return rows;
}

/** Of these files, the copies that are noted now. */
export async function readCopiesOf(ctx: Context, fileIds: readonly bigint[]): Promise<NotedCopy[]> {
  const { rows } = await ctx.db.pool.query<NotedCopy>(
    `SELECT ${NOTED_COPY} FROM tape_file f JOIN restore_disk d ON d.id = f.disk_id WHERE f.id = ANY($1::bigint[])
     ORDER BY f.id`,
    [fileIds],
  );
  return rows;
}

/** Of these files, those that a live request holds. */
export async function findHeld(ctx: Context, fileIds: readonly bigint[]): Promise<Set<bigint>> {
  const { rows } = await ctx.db.pool.query<{ fileId: bigint }>(
    'SELECT DISTINCT file_id AS "fileId" FROM live_hold WHERE file_id = ANY($1::bigint[])',
    [fileIds],
  );
  return new Set(rows.map((row) => row.fileId));
}
