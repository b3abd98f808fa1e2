/**
 * Compares recorded copies with the disks, without locks. A difference between the database and a disk is a finding
 * only if the file's row has not changed during the comparison.
 */

import type { Stage } from '../../core/stages.js';
import { lockDisks } from '../../db/locks.js';
import { sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import { moveFiles, type NewCopy, newCopies, setCopy } from '../catalogue/moves.js';
import { deleteVerifications } from '../catalogue/verifications.js';
import { diskPath, isChanged } from '../conditions.js';
import type { Context } from '../context.js';
import { isAsRead, NOT_OURS, type RecordedCopy } from '../disks/disk-copies.js';
import type { ChangedCopy } from '../disks/removals.js';
import { isUnrequestedForGood } from '../disks/removals.js';
import { lockRequestsAndFiles, markOnDisk } from '../requests/request-files.js';
import type { FindingKind } from './findings.js';

/** A file on a restore disk that has the path and bytes of a catalogue file, but is not recorded as its copy. */
export interface Adoption extends NewCopy {
  fileId: bigint;
  version: string;
}

/**
 * Records files on disk as copies of catalogue files. If a catalogue file had a changed copy, it becomes RESTORED. If a
 * catalogue file is ONTAPE, its stage stays, and an engine later removes the copy from the disk.
 */
export async function adoptCopies(ctx: Context, all: readonly Adoption[]): Promise<bigint[]> {
  const fileIds = all.map(({ fileId }) => fileId);
  return await transaction(ctx.db.pool, 'adoptCopies', async (tx) => {
    await lockRequestsAndFiles(tx, fileIds);
    const rows = await tx.query<{ id: bigint; isChanged: boolean }>(
      sql`SELECT f.id, ${isChanged} AS "isChanged" FROM tape_file f
          WHERE ${isAsRead(all)} AND (${isChanged} OR f.stage = 'ONTAPE') AND f.disk_id IS NULL`,
    );
    const isChangedById = new Map(rows.map((row) => [row.id, row.isChanged]));
    await restoreStanding(
      ctx,
      tx,
      all.filter(({ fileId }) => isChangedById.get(fileId) === true),
    );
    const leaving = all.filter(({ fileId }) => isChangedById.get(fileId) === false);
    const leavingIds = leaving.map(({ fileId }) => fileId);
    await tx.query(sql`UPDATE tape_file f SET ${setCopy} FROM ${newCopies(leavingIds, leaving)} WHERE f.id = m.id`);
    const adopted = [...isChangedById.keys()];
    const ofThese = sql`SELECT f.disk_id, sum(f.size) AS bytes FROM tape_file f WHERE f.id = ANY(${adopted}::bigint[]) GROUP BY f.disk_id`;
    await lockDisks(tx, sql`k.id IN (SELECT disk_id FROM (${ofThese}) s)`);
    await tx.query(sql`UPDATE restore_disk k SET used = k.used + s.bytes FROM (${ofThese}) s WHERE k.id = s.disk_id`);
    return adopted;
  });
}

async function restoreStanding(ctx: Context, tx: Transaction, copies: readonly Adoption[]): Promise<void> {
  const fileIds = copies.map(({ fileId }) => fileId);
  const moved = await moveFiles(ctx, tx, fileIds, { from: 'UNVERIFIED', to: 'RESTORED' }, copies);
  await deleteVerifications(tx, moved);
  await markOnDisk(ctx, tx, moved);
}

export async function readStanding(
  ctx: Context,
  page: { after: bigint; limit: number },
): Promise<(ChangedCopy & Pick<RecordedCopy, 'size' | 'checksum' | 'version'>)[]> {
  return await ctx.db.rows<ChangedCopy & Pick<RecordedCopy, 'size' | 'checksum' | 'version'>>(
    sql`SELECT f.id AS "fileId", ${diskPath} AS path, f.size, f.checksum, f.xmin::text AS version, k.id AS "diskId", k.mountpoint
        FROM verification w JOIN tape_file f ON f.id = w.file_id JOIN restore_disk k ON k.id = f.changed_disk_id
        WHERE ${isChanged} AND w.error = ${NOT_OURS} AND w.file_id > ${page.after} ORDER BY w.file_id LIMIT ${page.limit}`,
  );
}

/** Finds restored files that no request contains, and that no job is about to remove. */
export const restoredUnheld: FindingKind = {
  kind: 'restored-without-request',
  find: (
    after,
    limit,
  ) => sql`SELECT f.id AS key, f.path AS object, 'a live request for a file that is RESTORED' AS expected,
      'no such request, and a copy of ' || f.size || ' bytes' AS found
    FROM tape_file f WHERE f.stage = 'RESTORED' AND f.disk_id IS NOT NULL AND f.id > ${after} AND ${isUnrequestedForGood}
    ORDER BY f.id LIMIT ${limit}`,
};

export interface PathRecord {
  fileId: bigint;
  /** Path of the file's copy, relative to the mount point of the restore disk. */
  path: string;
  stage: Stage;
  size: bigint;
  checksum: string | null;
  diskId: number | null;
  version: string;
}

const recordColumns = sql`f.id AS "fileId", ${diskPath} AS path, f.stage, f.size, f.checksum, f.disk_id AS "diskId", f.xmin::text AS version`;

export async function readPathRecords(ctx: Context, paths: readonly string[]): Promise<Map<string, PathRecord>> {
  const rows = await ctx.db.rows<PathRecord>(
    sql`SELECT ${recordColumns} FROM tape_file f WHERE f.path = ANY(${paths}::text[]) AND f.disk_path IS NULL
        UNION ALL SELECT ${recordColumns} FROM tape_file f WHERE f.disk_path = ANY(${paths}::text[])`,
  );
  return new Map(rows.map((row) => [row.path, row]));
}

export async function readPathRecord(ctx: Context, fileId: bigint): Promise<PathRecord | undefined> {
  const rows = await ctx.db.rows<PathRecord>(sql`SELECT ${recordColumns} FROM tape_file f WHERE f.id = ${fileId}`);
  return rows[0];
}

export interface RunningPart {
  fileId: bigint;
  driveId: number;
  epoch: bigint;
}

const runningParts = sql`SELECT file_id AS "fileId", drive_id AS "driveId", epoch FROM recall WHERE state = 'RUNNING'`;

export async function readRunning(ctx: Context, fileIds: readonly bigint[]): Promise<RunningPart[]> {
  return await ctx.db.rows<RunningPart>(sql`${runningParts} AND file_id = ANY(${fileIds}::bigint[])`);
}
