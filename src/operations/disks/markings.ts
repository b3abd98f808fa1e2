/**
 * Which restore disks were marked once (engine/disk/marker.ts). What stands in the place of one that was is the disk only
 * where its marker is there; anything else is what shows while it is not mounted, empty as the disk may have been.
 */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { type NotedCopy, sampleCopies } from './copies.js';
import type { DiskRow } from './disks.js';

export type UnmarkedDisk = Pick<DiskRow, 'id' | 'mountpoint'>;

/** Disks that nobody has met with their marker yet, but for those that fail, which are tried in turn. */
export async function listUnmarked(ctx: Context): Promise<UnmarkedDisk[]> {
  const { rows } = await ctx.db.pool.query<UnmarkedDisk>(
    sql`SELECT k.id, k.mountpoint FROM restore_disk k
        WHERE k.marked_at IS NULL AND NOT EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) ORDER BY k.id`,
  );
  return rows;
}

/**
 * Notes that the disk has its marker, or is to have the one of that name. Of several that do so at once one is right: the disk is
 * where that one is. What waits for room may find some there: the engines are told.
 * @param name of a marker that is made, and not in its place yet; null where it is there already
 * @returns whether nobody had noted it before
 */
export async function noteMarked(ctx: Context, diskId: number, name: string | null): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`WITH marked AS (
          UPDATE restore_disk SET marked_at = ${ctx.now()}, marked_as = ${name} WHERE id = ${diskId} AND marked_at IS NULL RETURNING id
        ) SELECT pg_notify('tapegate', 'room') FROM marked`,
  );
  return rowCount !== 0;
}

/** What tells of a disk whether it was in use before. */
export interface DiskTraces {
  isMarked: boolean;
  /** Who has noted that may have come no further: so the marker is called that is to be put in its place. */
  markedAs: string | null;
  /** Something was put there, is to be put there, or may have been left there. */
  isUsed: boolean;
  /** Some of the copies that should be there. */
  copies: NotedCopy[];
}

/** @param limit copies at most */
export async function readTraces(ctx: Context, diskId: number, limit: number): Promise<DiskTraces> {
  const { rows } = await ctx.db.pool.query<Omit<DiskTraces, 'copies'>>(
    sql`SELECT k.marked_at IS NOT NULL AS "isMarked", k.marked_as AS "markedAs", k.used > 0 OR k.reserved > 0
            OR EXISTS (SELECT FROM tape_file f WHERE f.disk_id = k.id)
            OR EXISTS (SELECT FROM tape_file f WHERE f.changed_disk_id = k.id)
            OR EXISTS (SELECT FROM left_behind l WHERE l.disk_id = k.id) AS "isUsed"
        FROM restore_disk k WHERE k.id = ${diskId}`,
  );
  const [row] = rows;
  // forgotten meanwhile: it is not to be marked
  if (!row) return { isMarked: true, markedAs: null, isUsed: false, copies: [] };
  return { ...row, copies: await sampleCopies(ctx, diskId, limit) };
}
