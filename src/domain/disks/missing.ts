/**
 * Handles restored copies that were removed from their disks outside Tapegate. If a live request contains the file of a
 * missing copy, the file is recalled.
 */

import { type Sql, sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import { moveFiles } from '../catalogue/moves.js';
import { diskPath, isChanged } from '../conditions.js';
import type { Context } from '../context.js';
import { isOnFailingDisk } from '../health/failing-disks.js';
import { deleteUnsentMail } from '../notifications/mail/notifications.js';
import { lockRequestsAndFiles, lockRequestsOf, settleRequests, waitAgain } from '../requests/request-files.js';
import { copyColumns, isAsRead, type RecordedCopy } from './disk-copies.js';
import { notifyRoom } from './disks.js';
import { type ChangedCopy, clearCopies, settleChanged } from './removals.js';

/** Maximum number of copies that one check examines, so that a check takes only milliseconds. */
const MOST_CHECKED = 1000;

/**
 * Checks the copies of files on this host's disks, and records missing copies. The SQL condition `which` selects the
 * files `f`.
 * @returns the ids of the files whose copies are missing
 */
export async function recordMissing(ctx: Context, which: Sql): Promise<Set<bigint>> {
  const copies = await ctx.db.rows<RecordedCopy>(
    sql`SELECT ${copyColumns} FROM tape_file f JOIN restore_disk k ON k.id = f.disk_id
        WHERE ${which} AND f.stage = 'RESTORED' AND NOT ${isOnFailingDisk} LIMIT ${MOST_CHECKED}`,
  );
  const changed = await ctx.db.rows<ChangedCopy>(
    sql`SELECT f.id AS "fileId", ${diskPath} AS path, k.id AS "diskId", k.mountpoint
        FROM tape_file f JOIN restore_disk k ON k.id = f.changed_disk_id
        WHERE ${which} AND ${isChanged} AND NOT ${isOnFailingDisk} LIMIT ${MOST_CHECKED}`,
  );
  const missing = await ctx.copies.findMissing([...copies, ...changed]);
  const ids = new Set(missing.map(({ fileId }) => fileId));
  if (ids.size === 0) return ids;
  await returnMissing(
    ctx,
    copies.filter(({ fileId }) => ids.has(fileId)),
  );
  await settleChanged(ctx, { gone: changed.map(({ fileId }) => fileId).filter((id) => ids.has(id)) });
  return ids;
}

export async function recordMissingFiles(ctx: Context, fileIds: readonly bigint[]): Promise<Set<bigint>> {
  return fileIds.length === 0 ? new Set() : await recordMissing(ctx, sql`f.id = ANY(${fileIds}::bigint[])`);
}

/**
 * Moves files with missing copies to the stage ONTAPE, and recalls the files for live requests. Skips a file if its row
 * has changed since the check for missing copies, because the file might have been restored again.
 */
export async function returnMissing(
  ctx: Context,
  gone: readonly Pick<RecordedCopy, 'fileId' | 'version'>[],
): Promise<bigint[]> {
  if (gone.length === 0) return [];
  return await transaction(ctx.db.pool, 'returnMissing', async (tx) => {
    await lockRequestsAndFiles(
      tx,
      gone.map((copy) => copy.fileId),
    );
    const rows = await tx.query<{ id: bigint }>(sql`SELECT f.id FROM tape_file f WHERE ${isAsRead(gone)}`);
    const moved = await moveFiles(
      ctx,
      tx,
      rows.map((row) => row.id),
      { from: 'RESTORED', to: 'ONTAPE' },
    );
    const requestIds = await lockRequestsOf(tx, moved);
    await waitAgain(tx, requestIds, moved);
    await settleRequests(ctx, tx, requestIds);
    await clearCopies(tx, moved);
    await deleteUnsentMail(tx, requestIds);
    await notifyRoom(tx);
    return moved;
  });
}
