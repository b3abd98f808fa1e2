/** What the database says of the copies on restore disks. */
import type { Context } from '../context.js';
import type { Stage } from '../stages.js';

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

const COLUMNS = `f.id AS "fileId", f.path, f.size, f.checksum, f.stage, d.id AS "diskId", d.mountpoint,
  f.disk_mtime_ns AS "mtimeNs"`;

/** Some of the copies of restored files on a disk. */
export async function sampleCopies(ctx: Context, diskId: number, limit: number): Promise<NotedCopy[]> {
  const { rows } = await ctx.db.pool.query<NotedCopy>(
    `SELECT ${COLUMNS} FROM tape_file f JOIN restore_disk d ON d.id = f.disk_id
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
    `SELECT ${COLUMNS} FROM tape_file f JOIN restore_disk d ON d.id = f.disk_id
     WHERE f.disk_id IS NOT NULL AND f.stage ${page.kind === 'restored' ? '=' : '<>'} 'RESTORED' AND f.id > $1
     ORDER BY f.id LIMIT $2`,
    [page.after, page.limit],
  );
  return rows;
}
