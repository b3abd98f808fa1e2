/** Repairs of the queue: what dead engines left, and what no drive can take. */
import type { Context } from '../context.js';
import { transaction } from '../database/transaction.js';
import type { Lease } from './drives.js';
import { lockRequestsOf, markHolds } from './holds.js';
import { finishRecalls, lockFiles } from './recalls.js';

/** What an earlier holder of the drive left running: its partial copies may still be on disk. */
export async function readLeftBehind(
  ctx: Context,
  lease: Lease,
): Promise<{ fileId: bigint; path: string; mountpoint: string; epoch: bigint }[]> {
  const { rows } = await ctx.db.pool.query(
    `SELECT c.file_id AS "fileId", f.path, d.mountpoint, c.epoch
     FROM recall c JOIN tape_file f ON f.id = c.file_id JOIN restore_disk d ON d.id = c.disk_id
     WHERE c.state = 'RUNNING' AND c.drive_id = $1 AND c.epoch < $2`,
    [lease.driveId, lease.epoch],
  );
  return rows;
}

/** Puts what earlier holders of the drive left running back into the queue. */
export async function returnLeftBehind(ctx: Context, lease: Lease): Promise<number> {
  const left = await readLeftBehind(ctx, lease);
  const epochs = new Set(left.map((recall) => recall.epoch));
  for (const epoch of epochs) {
    const outcomes = left.filter((r) => r.epoch === epoch).map(({ fileId }) => ({ fileId, kind: 'returned' as const }));
    await finishRecalls(ctx, { ...lease, epoch }, outcomes);
  }
  return left.length;
}

/**
 * Fails the recalls of files that have no place on tape: no drive would ever take them.
 * @returns how many
 */
export async function failUnplaced(ctx: Context): Promise<number> {
  return await transaction(ctx.db.pool, async (tx) => {
    const rows = await tx.query<{ fileId: bigint }>(
      `SELECT file_id AS "fileId" FROM recall
       WHERE state = 'WAITING' AND (volume_id IS NULL OR position IS NULL) ORDER BY file_id LIMIT 1000`,
    );
    const fileIds = rows.map((row) => row.fileId);
    if (fileIds.length === 0) return 0;
    await lockRequestsOf(tx, fileIds);
    await lockFiles(tx, fileIds);
    await tx.query(`DELETE FROM recall WHERE file_id = ANY($1::bigint[]) AND state = 'WAITING'`, [fileIds]);
    const error = 'the catalogue has no volume and position for this file';
    await markHolds(
      ctx,
      tx,
      fileIds.map((fileId) => ({ fileId, failure: { errorClass: 'PERMANENT', error } })),
    );
    return fileIds.length;
  });
}
