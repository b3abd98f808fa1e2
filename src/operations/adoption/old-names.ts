/**
 * The names that copies had before they were taken over, each noted with what stood there then: a copy may leave, and another one come, before
 * its old name goes. A name is forgotten once nothing of it is there any more.
 */
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import type { Stage } from '../../stages.js';
import { placeOnDisk } from '../conditions.js';

export interface OldName {
  fileId: bigint;
  place: string;
  /** The restore disk that it is on; null where that is none of Tapegate's any more. */
  diskId: number | null;
  mountpoint: string | null;
  /** What stood there; null where a program has noted it that knew no better, and the copy has left since. */
  ino: bigint | null;
  mtimeNs: bigint | null;
  size: bigint | null;
  /** Of the file by now; null where there is none of that id. */
  path: string | null;
  stage: Stage | null;
  /** Where the file has its copy by now, wherever that is from. */
  own: { diskId: number; mountpoint: string; path: string } | null;
}

/** In order of their files' ids. */
export async function readOldNames(ctx: Context, page: { after: bigint; limit: number }): Promise<OldName[]> {
  const known = (column: Sql, own: Sql) => sql`CASE WHEN a.place_ino IS NULL THEN ${own} ELSE ${column} END`;
  const { rows } = await ctx.db.pool.query<
    Omit<OldName, 'own'> & { ownDisk: number | null; ownMountpoint: string; ownPath: string }
  >(
    sql`SELECT n.*, d.mountpoint FROM (
          SELECT a.id AS "fileId", a.place, ${known(sql`a.place_disk_id`, sql`f.disk_id`)} AS "diskId",
            ${known(sql`a.place_ino`, sql`f.disk_ino`)} AS ino, ${known(sql`a.place_mtime_ns`, sql`f.disk_mtime_ns`)} AS "mtimeNs",
            ${known(sql`a.place_size`, sql`f.size`)} AS size, f.path, f.stage, k.id AS "ownDisk", k.mountpoint AS "ownMountpoint",
            ${placeOnDisk} AS "ownPath"
          FROM adopted a LEFT JOIN tape_file f ON f.id = a.id LEFT JOIN restore_disk k ON k.id = f.disk_id
          WHERE a.kind = 'COPY' AND a.place IS NOT NULL AND a.id > ${page.after} ORDER BY a.id LIMIT ${page.limit}) n
        LEFT JOIN restore_disk d ON d.id = n."diskId" ORDER BY n."fileId"`,
  );
  return rows.map(({ ownDisk, ownMountpoint, ownPath, ...row }) => ({
    ...row,
    own: ownDisk === null ? null : { diskId: ownDisk, mountpoint: ownMountpoint, path: ownPath },
  }));
}

/** A name that is not there any more. */
export type GoneName = Pick<OldName, 'fileId' | 'place' | 'diskId' | 'ino'> & {
  /** Of the copy that had both names, and has the other one still: it goes by the number of names, too. Null where there is none. */
  ctimeNs: bigint | null;
};

export async function forgetOldNames(ctx: Context, gone: readonly GoneName[]): Promise<void> {
  const ids = gone.map(({ fileId }) => fileId);
  await ctx.db.pool.query(
    sql`WITH gone AS (
          SELECT * FROM unnest(${ids}::bigint[], ${gone.map(({ place }) => place)}::text[], ${gone.map(({ diskId }) => diskId)}::int[],
            ${gone.map(({ ino }) => ino)}::bigint[], ${gone.map(({ ctimeNs }) => ctimeNs)}::bigint[]) AS m (id, place, disk_id, ino, ctime_ns)
        ), forgotten AS (
          UPDATE adopted a SET place = NULL, place_disk_id = NULL, place_ino = NULL, place_mtime_ns = NULL, place_size = NULL FROM gone m WHERE a.kind = 'COPY' AND a.id = m.id AND a.place = m.place
        )
        UPDATE tape_file f SET disk_ctime_ns = m.ctime_ns FROM gone m
        WHERE f.id = m.id AND m.ctime_ns IS NOT NULL AND f.disk_id = m.disk_id AND f.disk_ino = m.ino`,
  );
}
