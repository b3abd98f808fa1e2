/**
 * Adopts copies in place, on the source's restore disks. Until the adoption is finished, an adopted copy stays on disk
 * even if no request contains its file, because a repeated adoption might add such a request. Until then, the copy also
 * keeps its old file name, because the source system uses this name. The database records the copy's inode, so that
 * Tapegate does not remove another file that now has the old name.
 */
import type { PoolClient } from 'pg';
import type { Stage } from '../core/stages.js';
import { plural } from '../core/text/plural.js';
import { lockDisks } from '../db/locks.js';
import { type Sql, sql } from '../db/sql.js';
import { transaction } from '../db/transaction.js';
import { moveFiles, type NewCopy } from '../domain/catalogue/moves.js';
import { deleteVerifications } from '../domain/catalogue/verifications.js';
import { diskPath, isUnrequested } from '../domain/conditions.js';
import type { Context } from '../domain/context.js';
import { copyColumns, isAsRead, type RecordedCopy } from '../domain/disks/disk-copies.js';
import { isUnrequestedForGood } from '../domain/disks/removals.js';
import { lockRequestsAndFiles, markOnDisk } from '../domain/requests/request-files.js';
import { type Adopting, digestOf } from './report.js';

interface SourceDisk {
  mountpoint: string;
  allocated: string | null;
  id: number | null;
}

export async function readSourceDisks(client: PoolClient): Promise<SourceDisk[]> {
  const { rows } = await client.query<SourceDisk>(
    sql`SELECT DISTINCT ON (1) rtrim(s.mountpoint, '/') AS mountpoint, s.allocated_bytes AS allocated, k.id
        FROM source_restoredisk s LEFT JOIN restore_disk k ON k.mountpoint = rtrim(s.mountpoint, '/') WHERE rtrim(s.mountpoint, '/') <> '' ORDER BY 1`,
  );
  return rows;
}

export interface SourceCopy {
  fileId: bigint;
  path: string;
  size: bigint;
  checksum: string | null;
  version: string;
  diskId: number | null;
  mountpoint: string | null;
}

/**
 * Returns a page of the source's copies, ordered by path. Omits files that Tapegate has restored.
 * @param page.isTrial whether to include files that are not in the catalogue
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

/** A source's copy that has been checked, and is now also at its path in Tapegate's restore area. */
export interface TakenCopy extends NewCopy {
  fileId: bigint;
  size: bigint;
  version: string;
  /** Path of the copy in the source system; null if the copy has the same path in Tapegate. */
  sourcePath: string | null;
}

/**
 * Changes the stage of files to RESTORED, and records their copies. Skips a file if its catalogue row has changed since
 * the copy was checked.
 * @returns the ids of the files whose stage was changed
 */
export async function takeOverCopies(ctx: Context, all: readonly TakenCopy[]): Promise<Set<bigint>> {
  const fileIds = all.map(({ fileId }) => fileId);
  return await transaction(ctx.db.pool, 'takeOverCopies', async (tx) => {
    await lockRequestsAndFiles(tx, fileIds);
    const rows = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE ${isAsRead(all)} AND f.stage = 'ONTAPE' AND f.disk_id IS NULL`,
    );
    const free = new Set(rows.map(({ id }) => id));
    const copies = all.filter(({ fileId }) => free.has(fileId));
    const ids = copies.map(({ fileId }) => fileId);
    // all recalls for these files are still waiting, because the files have the stage ONTAPE
    await tx.query(sql`DELETE FROM recall c WHERE c.file_id = ANY(${ids}::bigint[])`);
    await moveFiles(ctx, tx, ids, { from: 'ONTAPE', to: 'UNVERIFIED' });
    const moved = await moveFiles(ctx, tx, ids, { from: 'UNVERIFIED', to: 'RESTORED' }, copies);
    await deleteVerifications(tx, moved);
    await markOnDisk(ctx, tx, moved);
    for (const copy of copies) await tx.query(adoptedCopy(copy, ctx.now()));
    const bytes = sql`SELECT m.disk_id, sum(m.size) AS bytes FROM unnest(${copies.map(({ diskId }) => diskId)}::int[],
      ${copies.map(({ size }) => size)}::bigint[]) AS m (disk_id, size) GROUP BY m.disk_id`;
    await lockDisks(tx, sql`k.id = ANY(${copies.map(({ diskId }) => diskId)}::int[])`);
    await tx.query(sql`UPDATE restore_disk k SET used = k.used + s.bytes FROM (${bytes}) s WHERE k.id = s.disk_id`);
    return new Set(moved);
  });
}

function adoptedCopy(copy: TakenCopy, now: string): Sql {
  const { fileId, size, checksum, sourcePath, diskId, ino, mtimeNs } = copy;
  const digest = digestOf([String(size), checksum]);
  return sql`INSERT INTO adopted (kind, id, digest, at, source_path, source_disk_id, source_ino, source_mtime_ns, source_size)
    VALUES ('COPY', ${fileId}, ${digest}, ${now}, ${sourcePath}, ${diskId}, ${ino}, ${mtimeNs}, ${size})
    ON CONFLICT (kind, id) DO UPDATE SET digest = excluded.digest, at = excluded.at, source_path = excluded.source_path,
      source_disk_id = excluded.source_disk_id, source_ino = excluded.source_ino, source_mtime_ns = excluded.source_mtime_ns,
      source_size = excluded.source_size`;
}

const ofAdopted = sql`adopted a JOIN tape_file f ON f.id = a.id JOIN restore_disk k ON k.id = f.disk_id`;
const isRestoredAdopted = sql`(a.kind = 'COPY' AND f.stage = 'RESTORED')`;

/**
 * Reports, for each restore disk, the adopted copies that no request contains. Call this function after adopting all
 * requests.
 */
export async function reportUnheld({ db }: Context, { report }: Adopting): Promise<void> {
  const { rows } = await db.pool.query<{ mountpoint: string; files: number; bytes: string }>(
    sql`SELECT k.mountpoint, count(*)::int AS files, sum(f.size)::text AS bytes FROM ${ofAdopted}
        WHERE ${isRestoredAdopted} AND ${isUnrequestedForGood} GROUP BY 1 ORDER BY 1`,
  );
  for (const { mountpoint, files, bytes } of rows) {
    const there = `${plural(files, 'restored file')} that no request contains, ${bytes} bytes in total`;
    report({
      kind: 'copy-unheld',
      object: mountpoint,
      there,
      here: 'kept until "tapegate adopt --finish" releases the copies',
    });
  }
}

/** Returns a page of adopted copies that no request contains, ordered by file id. */
export async function readUnheldAdopted(ctx: Context, page: { after: bigint; limit: number }): Promise<RecordedCopy[]> {
  return await ctx.db.rows<RecordedCopy>(
    sql`SELECT ${copyColumns} FROM ${ofAdopted} WHERE ${isRestoredAdopted} AND ${isUnrequested} AND f.id > ${page.after}
        ORDER BY f.id LIMIT ${page.limit}`,
  );
}

export interface OldName {
  fileId: bigint;
  sourcePath: string;
  /** Restore disk of the copy. Null if the disk was removed from Tapegate. */
  diskId: number | null;
  mountpoint: string | null;
  ino: bigint;
  mtimeNs: bigint;
  size: bigint;
  /** Logical path of the file. Null if the file is no longer in the catalogue. */
  path: string | null;
  stage: Stage | null;
  own: { diskId: number; mountpoint: string; path: string } | null;
}

export async function readOldNames(ctx: Context, page: { after: bigint; limit: number }): Promise<OldName[]> {
  type Row = Omit<OldName, 'own'> & { ownDisk: number | null; ownMountpoint: string; ownPath: string };
  const rows = await ctx.db.rows<Row>(
    sql`SELECT a.id AS "fileId", a.source_path AS "sourcePath", a.source_disk_id AS "diskId", d.mountpoint, a.source_ino AS ino, a.source_mtime_ns AS "mtimeNs",
          a.source_size AS size, f.path, f.stage, k.id AS "ownDisk", k.mountpoint AS "ownMountpoint", ${diskPath} AS "ownPath"
        FROM adopted a LEFT JOIN tape_file f ON f.id = a.id LEFT JOIN restore_disk k ON k.id = f.disk_id
          LEFT JOIN restore_disk d ON d.id = a.source_disk_id
        WHERE a.kind = 'COPY' AND a.source_path IS NOT NULL AND a.id > ${page.after} ORDER BY a.id LIMIT ${page.limit}`,
  );
  return rows.map(({ ownDisk, ownMountpoint, ownPath, ...row }) => ({
    ...row,
    own: ownDisk === null ? null : { diskId: ownDisk, mountpoint: ownMountpoint, path: ownPath },
  }));
}

export type RemovedName = Pick<OldName, 'fileId' | 'sourcePath' | 'diskId' | 'ino'> & {
  /** Change time (ns) of the copy after the old name was removed. */
  ctimeNs: bigint | null;
};

export async function forgetOldNames(ctx: Context, gone: readonly RemovedName[]): Promise<void> {
  const ids = gone.map(({ fileId }) => fileId);
  await ctx.db.pool.query(
    sql`WITH gone AS (
          SELECT * FROM unnest(${ids}::bigint[], ${gone.map(({ sourcePath }) => sourcePath)}::text[], ${gone.map(({ diskId }) => diskId)}::int[],
            ${gone.map(({ ino }) => ino)}::bigint[], ${gone.map(({ ctimeNs }) => ctimeNs)}::bigint[]) AS m (id, source_path, disk_id, ino, ctime_ns)
        ), forgotten AS (
          UPDATE adopted a SET source_path = NULL, source_disk_id = NULL, source_ino = NULL, source_mtime_ns = NULL, source_size = NULL FROM gone m WHERE a.kind = 'COPY' AND a.id = m.id AND a.source_path = m.source_path
        )
        UPDATE tape_file f SET disk_ctime_ns = m.ctime_ns FROM gone m
        WHERE f.id = m.id AND m.ctime_ns IS NOT NULL AND f.disk_id = m.disk_id AND f.disk_ino = m.ino`,
  );
}
