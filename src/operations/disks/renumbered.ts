/** Copies whose inodes have changed with the whole disk: it was copied, or its file system numbers inodes at each mount. */
import type { Context } from '../../context.js';
import { lockFiles } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { copyColumns, isAsRead, type NotedCopy } from './copies.js';

export interface KnownMarker {
  diskId: number;
  mountpoint: string;
  /** Identity of its marker when its copies were last known; null: never recorded. */
  markerId: string | null;
}

/** Returns the disks that are marked and do not fail. */
export async function readMarkers(ctx: Context): Promise<KnownMarker[]> {
  return await ctx.db.rows<KnownMarker>(
    sql`SELECT k.id AS "diskId", k.mountpoint, k.marker_id AS "markerId" FROM restore_disk k
        WHERE k.marked_at IS NOT NULL AND NOT EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) ORDER BY k.id`,
  );
}

/** Records the identity of a marker, once all copies of the disk are known by their inodes. */
export async function recordMarker(ctx: Context, { diskId, markerId }: KnownMarker, now: string): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE restore_disk SET marker_id = ${now} WHERE id = ${diskId} AND marker_id IS NOT DISTINCT FROM ${markerId}`,
  );
}

export async function readCopiesOn(
  ctx: Context,
  page: { diskId: number; after: bigint; limit: number },
): Promise<NotedCopy[]> {
  return await ctx.db.rows<NotedCopy>(
    sql`SELECT ${copyColumns} FROM tape_file f JOIN restore_disk k ON k.id = f.disk_id
        WHERE f.disk_id = ${page.diskId} AND f.id > ${page.after} ORDER BY f.id LIMIT ${page.limit}`,
  );
}

export type Renumbered = Pick<NotedCopy, 'fileId' | 'version'> & { ino: bigint; ctimeNs: bigint };

/** Records the new inodes of copies whose bytes were compared. @returns how many; the other rows have changed */
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
