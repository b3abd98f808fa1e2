/**
 * Copies that were changed by hand and left alone. Such a file is UNVERIFIED, and on disk only as long as what was changed
 * is there. Operations touch no disk: a request that wants one waits until an engine has looked (engine/disk/changed.ts).
 */
import type { Context } from '../../context.js';
import { empty, sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { moveFiles } from '../catalogue/moves.js';
import { forgetVerifications } from '../catalogue/verifications.js';
import { isChanged, placeOnDisk } from '../conditions.js';
import { lockHolders, lockRequestsOf, markHolds, settleRequests, waitAgain } from '../requests/holds.js';

export interface ChangedCopy {
  fileId: bigint;
  /** Below the mount point. */
  path: string;
  diskId: number;
  mountpoint: string;
}

/** Changed copies in order of their files' ids: all, or those that a live request waits for. */
export async function readChanged(
  ctx: Context,
  page: { isWanted: boolean; after: bigint; limit: number },
): Promise<ChangedCopy[]> {
  const wanted = page.isWanted
    ? sql`AND EXISTS (SELECT FROM live_hold h WHERE h.file_id = f.id AND h.state = 'WAITING')`
    : empty;
  const { rows } = await ctx.db.pool.query<ChangedCopy>(
    sql`SELECT f.id AS "fileId", ${placeOnDisk} AS path, k.id AS "diskId", k.mountpoint
        FROM tape_file f JOIN restore_disk k ON k.id = f.changed_disk_id
        WHERE f.changed_disk_id IS NOT NULL AND ${isChanged} AND f.id > ${page.after} ${wanted}
          AND NOT EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id)
        ORDER BY f.id LIMIT ${page.limit}`,
  );
  return rows;
}

/**
 * Writes down what a look at changed copies has found: one that is there satisfies the holds that wait for it; a file whose
 * copy has gone is on tape again, and is recalled for whoever holds it. Calling twice is safe.
 * @param looked ids of files
 * @returns the ids of the files whose copies have gone
 */
export async function settleChanged(
  ctx: Context,
  looked: { there: readonly bigint[]; gone: readonly bigint[] },
): Promise<bigint[]> {
  const all = [...looked.there, ...looked.gone];
  if (all.length === 0) return [];
  return await transaction(ctx.db.pool, 'settleChanged', async (tx) => {
    await lockHolders(tx, all);
    const rows = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${all}::bigint[]) AND ${isChanged}`,
    );
    const changed = new Set(rows.map((row) => row.id));
    const there = looked.there.filter((id) => changed.has(id));
    await markHolds(
      ctx,
      tx,
      there.map((fileId) => ({ fileId })),
    );
    const gone = looked.gone.filter((id) => changed.has(id));
    const moved = await moveFiles(ctx, tx, gone, { from: 'UNVERIFIED', to: 'ONTAPE' });
    await forgetVerifications(tx, moved);
    const requestIds = await lockRequestsOf(tx, moved); // some of those that are locked
    await waitAgain(tx, requestIds, moved);
    await settleRequests(ctx, tx, requestIds);
    return moved;
  });
}
