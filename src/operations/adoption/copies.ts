/** Copies that the system before has put on its restore disks: they become Tapegate's where they are. */
import type { PoolClient } from 'pg';
import type { Context } from '../../context.js';
import { lockDisks } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { moveFiles, type NewCopy } from '../catalogue/moves.js';
import { forgetVerifications } from '../catalogue/verifications.js';
import { placeOnDisk } from '../conditions.js';
import { isAsRead } from '../disks/copies.js';
import { lockHolders, markHolds } from '../requests/holds.js';
import { adoptedRow } from './quotas.js';
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
  /** The path that it had before. */
  place: string;
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
    await moveFiles(tx, ids, { from: 'ONTAPE', to: 'UNVERIFIED' });
    const moved = await moveFiles(tx, ids, { from: 'UNVERIFIED', to: 'RESTORED' }, copies);
    await forgetVerifications(tx, moved);
    await markHolds(
      ctx,
      tx,
      moved.map((fileId) => ({ fileId })),
    );
    for (const { fileId, size, checksum, place } of copies) {
      await tx.query(
        adoptedRow({
          kind: 'COPY',
          id: fileId,
          digest: digestOf([String(size), checksum]),
          place,
          now: ctx.now(),
        }),
      );
    }
    const bytes = sql`SELECT m.disk_id, sum(m.size) AS bytes FROM unnest(${copies.map(({ diskId }) => diskId)}::int[],
      ${copies.map(({ size }) => size)}::bigint[]) AS m (disk_id, size) GROUP BY m.disk_id`;
    await lockDisks(tx, sql`k.id = ANY(${copies.map(({ diskId }) => diskId)}::int[])`);
    await tx.query(sql`UPDATE restore_disk k SET used = k.used + s.bytes FROM (${bytes}) s WHERE k.id = s.disk_id`);
    return new Set(moved);
  });
}

/** A copy that is noted as adopted, and the name that it still has beside its own. */
export interface OldName {
  fileId: bigint;
  path: string;
  diskId: number;
  mountpoint: string;
  ino: bigint | null;
  place: string;
}

/** In order of their files' ids. */
export async function readOldNames(ctx: Context, page: { after: bigint; limit: number }): Promise<OldName[]> {
  const { rows } = await ctx.db.pool.query<OldName>(
    sql`SELECT f.id AS "fileId", ${placeOnDisk} AS path, k.id AS "diskId", k.mountpoint, f.disk_ino AS ino, a.place
        FROM adopted a JOIN tape_file f ON f.id = a.id JOIN restore_disk k ON k.id = f.disk_id
        WHERE a.kind = 'COPY' AND a.place IS NOT NULL AND a.place <> k.mountpoint || ${placeOnDisk} AND a.id > ${page.after}
        ORDER BY a.id LIMIT ${page.limit}`,
  );
  return rows;
}

/** Their names of before are not there any more, which has changed their times of change. */
export async function forgetOldNames(
  ctx: Context,
  copies: readonly { fileId: bigint; ctimeNs: bigint }[],
): Promise<void> {
  const ids = copies.map(({ fileId }) => fileId);
  await ctx.db.pool.query(
    sql`WITH named AS (UPDATE adopted SET place = NULL WHERE kind = 'COPY' AND id = ANY(${ids}::bigint[]))
        UPDATE tape_file f SET disk_ctime_ns = m.ctime_ns FROM unnest(${ids}::bigint[], ${copies.map(({ ctimeNs }) => ctimeNs)}::bigint[])
          AS m (id, ctime_ns) WHERE f.id = m.id AND f.disk_id IS NOT NULL`,
  );
}
