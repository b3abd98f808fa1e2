/** Repairs of the queue: what dead engines left, and what no drive can take. */

import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { triedNowhere, turnToCopies } from '../catalogue/second-copies.js';
import { isRecalledNoMore, isUnplaced, isWaiting, placeOnDisk, whyWithdrawn } from '../conditions.js';
import { lockHolders, markHolds } from '../requests/holds.js';
import type { Lease } from './drives.js';
import { finishRecalls, type RecallOutcome } from './ends.js';

export interface LeftBehind {
  fileId: bigint;
  /** Below the mount point. */
  path: string;
  size: bigint;
  /** Of the version that was read. */
  checksum: string | null;
  diskId: number;
  mountpoint: string;
  /** The disk is out of service for failing: it is not to be looked at. */
  isFailing: boolean;
  epoch: bigint;
  /** What it was about to put in place, when it had come to that. */
  ino: bigint | null;
  mtimeNs: bigint | null;
}

/** What an earlier holder of the drive left running: a copy of it, partial or whole, may be on disk. */
export async function readLeftBehind(ctx: Context, lease: Lease): Promise<LeftBehind[]> {
  const { rows } = await ctx.db.pool.query<LeftBehind>(
    sql`SELECT c.file_id AS "fileId", ${placeOnDisk} AS path, c.size, c.checksum, d.mountpoint, c.epoch, c.disk_id AS "diskId",
       c.copy_ino AS ino, c.copy_mtime_ns AS "mtimeNs",
       EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = c.disk_id) AS "isFailing"
     FROM recall c JOIN tape_file f ON f.id = c.file_id JOIN restore_disk d ON d.id = c.disk_id
     WHERE c.state = 'RUNNING' AND c.drive_id = ${lease.driveId} AND c.epoch < ${lease.epoch}`,
  );
  return rows;
}

/** How a recall of an earlier holder ended, and the epoch that it was begun in. */
export interface EndedRecall {
  epoch: bigint;
  outcome: RecallOutcome;
}

/** Writes down how what earlier holders of the drive left running ended, in their name. */
export async function endLeftBehind(ctx: Context, lease: Lease, ended: readonly EndedRecall[]): Promise<void> {
  for (const epoch of new Set(ended.map((recall) => recall.epoch))) {
    const outcomes = ended.filter((recall) => recall.epoch === epoch).map((recall) => recall.outcome);
    await finishRecalls(ctx, { ...lease, epoch }, outcomes);
  }
}

const UNPLACED = 'the catalogue has no volume and position for this file';

/**
 * Fails the recalls of files that have no place on tape: no drive would ever take them.
 * @returns how many
 */
export async function failUnplaced(ctx: Context): Promise<number> {
  return await transaction(ctx.db.pool, 'failUnplaced', async (tx) => {
    const rows = await tx.query<{ fileId: bigint }>(
      sql`SELECT c.file_id AS "fileId" FROM recall c WHERE c.state = 'WAITING' AND ${isUnplaced} ORDER BY c.file_id LIMIT 1000`,
    );
    const fileIds = rows.map((row) => row.fileId);
    if (fileIds.length === 0) return 0;
    await lockHolders(tx, fileIds);
    const unplaced = await tx.query<{ fileId: bigint }>(
      sql`SELECT c.file_id AS "fileId" FROM recall c WHERE c.file_id = ANY(${fileIds}::bigint[]) AND ${isWaiting} AND ${isUnplaced}`,
    );
    const { turned, told } = await turnToCopies(
      ctx,
      tx,
      unplaced.map(({ fileId }) => ({ fileId, errorClass: 'PERMANENT', error: UNPLACED })),
    );
    await tx.query(
      sql`UPDATE recall c SET ${triedNowhere} FROM tape_file f WHERE f.id = c.file_id AND c.file_id = ANY(${[...turned]}::bigint[]) AND ${isWaiting}`,
    );
    // judged again under the locks: an import may have given one a place meanwhile
    const failed = await tx.query<{ fileId: bigint }>(
      sql`DELETE FROM recall c WHERE c.file_id = ANY(${fileIds}::bigint[]) AND ${isWaiting}
            AND ${isUnplaced} RETURNING file_id AS "fileId"`,
    );
    const outcomes = failed.map(({ fileId }) => ({
      fileId,
      failure: { errorClass: 'PERMANENT', error: told.get(fileId) ?? UNPLACED },
    }));
    await markHolds(ctx, tx, outcomes);
    return failed.length;
  });
}

/**
 * Fails the recalls of files that were withdrawn: a program of before may have made them, or put them back into the queue.
 * @returns how many
 */
export async function failWithdrawnRecalls(ctx: Context): Promise<number> {
  const which = sql`c.state = 'WAITING' AND f.id = c.file_id AND ${isRecalledNoMore}`;
  return await transaction(ctx.db.pool, 'failWithdrawnRecalls', async (tx) => {
    const rows = await tx.query<{ fileId: bigint }>(
      sql`SELECT c.file_id AS "fileId" FROM recall c JOIN tape_file f ON ${which} ORDER BY c.file_id LIMIT 1000`,
    );
    const fileIds = rows.map((row) => row.fileId);
    if (fileIds.length === 0) return 0;
    await lockHolders(tx, fileIds);
    const failed = await tx.query<{ fileId: bigint; error: string }>(
      sql`DELETE FROM recall c USING tape_file f WHERE c.file_id = ANY(${fileIds}::bigint[]) AND ${which} RETURNING c.file_id AS "fileId", ${whyWithdrawn} AS error`,
    );
    await markHolds(
      ctx,
      tx,
      failed.map(({ fileId, error }) => ({ fileId, failure: { errorClass: 'POLICY', error } })),
    );
    return failed.length;
  });
}
