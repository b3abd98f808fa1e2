/** Copies that the system before has put on its restore disks: they become Tapegate's where they are. */
import type { PoolClient } from 'pg';
import type { Context } from '../../context.js';
import { lockDisks } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { moveFiles, type NewCopy } from '../catalogue/moves.js';
import { forgetVerifications } from '../catalogue/verifications.js';
import { isAsRead } from '../disks/copies.js';
import { lockHolders, markHolds } from '../requests/holds.js';
import { digestOf } from './report.js';

export interface SourceDisk {
  mountpoint: string;
  allocated: string | null;
  /** Of the restore disk here; null where there is none with this mount point. */
  id: number | null;
}

/** @param client on which the source is loaded */
export async function readSourceDisks(client: PoolClient): Promise<SourceDisk[]> {
  const { rows } = await client.query<SourceDisk>(
    sql`SELECT DISTINCT ON (1) rtrim(s.mountpoint, '/') AS mountpoint, s.allocated_bytes AS allocated, k.id
        FROM source_restoredisk s LEFT JOIN restore_disk k ON k.mountpoint = rtrim(s.mountpoint, '/') WHERE rtrim(s.mountpoint, '/') <> '' ORDER BY 1`,
  );
  return rows;
}

/** A file that is restored there, and on tape here. */
export interface SourceCopy {
  fileId: bigint;
  path: string;
  size: bigint;
  checksum: string | null;
  version: string;
  /** Of the restore disk that it is on there; null where none of that name is here. */
  diskId: number | null;
  mountpoint: string | null;
}

/**
 * By the page, in order of the paths; what is restored here already is left out, and so is what is on its way.
 * @param page.isTrial those that are not here yet are told of, too
 */
export async function readSourceCopies(
  client: PoolClient,
  page: { after: string; limit: number; isTrial: boolean },
): Promise<SourceCopy[]> {
  const { rows } = await client.query<SourceCopy>(
    sql`SELECT coalesce(f.id, 0) AS "fileId", c.path, c.size::bigint AS size, f.checksum, coalesce(f.xmin::text, '') AS version,
          CASE WHEN ${page.isTrial} THEN coalesce(k.id, 0) ELSE k.id END AS "diskId", coalesce(k.mountpoint, rtrim(d.mountpoint, '/')) AS mountpoint
        FROM source_chosen c LEFT JOIN tape_file f ON f.path = c.path LEFT JOIN source_restoredisk d ON d.id = c.restore_disk_id
          LEFT JOIN restore_disk k ON k.mountpoint = rtrim(d.mountpoint, '/')
        WHERE c.stage = '5' AND c.size ~ '^[0-9]{1,18}$' AND c.path > ${page.after}
          AND (f.size::text = c.size AND f.stage = 'ONTAPE' AND f.disk_id IS NULL OR f.id IS NULL AND ${page.isTrial})
        ORDER BY c.path LIMIT ${page.limit}`,
  );
  return rows;
}

/** A copy that was looked at, and stands in its place. */
export interface TakenCopy extends NewCopy {
  fileId: bigint;
  size: bigint;
  version: string;
  /** The path that it had before; null where that is where Tapegate has it. */
  place: string | null;
}

/**
 * Notes copies as Tapegate's, where nothing was written of their files since they were read: the files are RESTORED, for all who wait for
 * them. @returns the ids of the files for which that was done
 */
export async function takeOverCopies(ctx: Context, all: readonly TakenCopy[]): Promise<Set<bigint>> {
  const fileIds = all.map(({ fileId }) => fileId);
  return await transaction(ctx.db.pool, 'takeOverCopies', async (tx) => {
    await lockHolders(tx, fileIds);
    const rows = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE ${isAsRead(all)} AND f.stage = 'ONTAPE' AND f.disk_id IS NULL`,
    );
    const free = new Set(rows.map(({ id }) => id));
    const copies = all.filter(({ fileId }) => free.has(fileId));
    const ids = copies.map(({ fileId }) => fileId);
    await tx.query(sql`DELETE FROM recall c WHERE c.file_id = ANY(${ids}::bigint[])`); // none of them runs
    await moveFiles(ctx, tx, ids, { from: 'ONTAPE', to: 'UNVERIFIED' });
    const moved = await moveFiles(ctx, tx, ids, { from: 'UNVERIFIED', to: 'RESTORED' }, copies);
    await forgetVerifications(tx, moved);
    await markHolds(
      ctx,
      tx,
      moved.map((fileId) => ({ fileId })),
    );
    for (const copy of copies) await tx.query(adoptedCopy(copy, ctx.now()));
    const bytes = sql`SELECT m.disk_id, sum(m.size) AS bytes FROM unnest(${copies.map(({ diskId }) => diskId)}::int[],
      ${copies.map(({ size }) => size)}::bigint[]) AS m (disk_id, size) GROUP BY m.disk_id`;
    await lockDisks(tx, sql`k.id = ANY(${copies.map(({ diskId }) => diskId)}::int[])`);
    await tx.query(sql`UPDATE restore_disk k SET used = k.used + s.bytes FROM (${bytes}) s WHERE k.id = s.disk_id`);
    return new Set(moved);
  });
}

/** With what stands at its path of before: that is how its name is known later (old-names.ts). */
function adoptedCopy(copy: TakenCopy, now: string): Sql {
  const { fileId, size, checksum, place, diskId, ino, mtimeNs } = copy;
  const digest = digestOf([String(size), checksum]);
  return sql`INSERT INTO adopted (kind, id, digest, at, place, place_disk_id, place_ino, place_mtime_ns, place_size)
    VALUES ('COPY', ${fileId}, ${digest}, ${now}, ${place}, ${diskId}, ${ino}, ${mtimeNs}, ${size})
    ON CONFLICT (kind, id) DO UPDATE SET digest = excluded.digest, at = excluded.at, place = excluded.place,
      place_disk_id = excluded.place_disk_id, place_ino = excluded.place_ino, place_mtime_ns = excluded.place_mtime_ns,
      place_size = excluded.place_size`;
}
