/**
 * Files leave the restore area when nobody holds them any more.
 *
 * First the file moves to ONTAPE while its copy is still noted (`disk_id`), then the copy is removed, then the note.
 * A process killed anywhere leaves a note, and the next one removes the copy; until then no recall of the file starts.
 */

import type { Context } from '../../context.js';
import { lockFiles, locking, lockRequests } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { moveFiles } from '../catalogue/moves.js';
import { isLive, isUnheld } from '../conditions.js';
import { lockHolders, lockRequestsOf, settleRequests } from '../requests/holds.js';
import { CHANGED_BY_HAND, copyColumns, type NotedCopy } from './copies.js';
import { ringRoom } from './disks.js';
import { isOnFailingDisk } from './failing.js';

/** A restored file that is to go; the disk is null where the catalogue only says that there is a copy somewhere. */
export type UnheldCopy = Omit<NotedCopy, 'diskId' | 'mountpoint'> & {
  diskId: number | null;
  mountpoint: string | null;
};

/**
 * The next request after an id whose files that were let go have not been looked at yet: it has ended, or some of its
 * files were released before its end.
 */
export async function findUncleared(ctx: Context, after: number): Promise<number | undefined> {
  const { rows } = await ctx.db.pool.query<{ id: number }>(
    sql`SELECT id FROM request WHERE NOT is_released AND id > ${after} ORDER BY id LIMIT 1`,
  );
  return rows[0]?.id;
}

/** A file `f` that the request `r` let go (hold `o`), and that nobody holds. The first part spares a look at the others. */
const isLeft = sql`(o.state = 'RELEASED' OR NOT (${isLive})) AND ${isUnheld}`;

/** Restored files that a request let go and nobody holds, in order of their ids; those on a failing disk wait for it. */
export async function readUnheld(
  ctx: Context,
  page: { requestId: number; after: bigint; limit: number },
): Promise<UnheldCopy[]> {
  const { rows } = await ctx.db.pool.query<UnheldCopy>(
    sql`SELECT ${copyColumns} FROM hold o JOIN request r ON r.id = o.request_id JOIN tape_file f ON f.id = o.file_id
       LEFT JOIN restore_disk k ON k.id = f.disk_id
     WHERE o.request_id = ${page.requestId} AND f.id > ${page.after} AND f.stage = 'RESTORED' AND ${isLeft}
       AND NOT ${isOnFailingDisk} ORDER BY f.id LIMIT ${page.limit}`,
  );
  return rows;
}

/**
 * The request needs no more looking after, unless there is again, or still, something to let go: it was revived and
 * ended once more, more of its files were released, or a file that nobody holds is just being brought back.
 */
export async function markCleared(ctx: Context, requestId: number): Promise<void> {
  await transaction(ctx.db.pool, 'markCleared', async (tx) => {
    // locked first and judged in a second statement, which sees what whoever had it locked before has let go
    await lockRequests(tx, sql`r.id = ${requestId}`);
    await tx.query(
      sql`UPDATE request r SET is_released = true WHERE r.id = ${requestId} AND NOT EXISTS (
            SELECT FROM hold o JOIN tape_file f ON f.id = o.file_id
            WHERE o.request_id = r.id AND f.stage IN ('RESTORED', 'RESTORING') AND ${isLeft})`,
    );
  });
}

/**
 * Lets restored files go that nobody holds. One that was changed by hand is left alone: it becomes UNVERIFIED and its
 * room on the restore disk is no longer counted.
 * @returns the ids of the files that were let go; somebody may hold the others by now
 */
export async function letGo(ctx: Context, files: { unchanged: bigint[]; changed: bigint[] }): Promise<bigint[]> {
  return await transaction(ctx.db.pool, 'letGo', async (tx) => {
    const all = [...files.unchanged, ...files.changed];
    // locked first and judged in a second statement, which sees the holds of requests that looked at the files before
    await lockFiles(tx, all);
    const rows = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${all}::bigint[]) AND f.stage = 'RESTORED' AND ${isUnheld}`,
    );
    const unheld = new Set(rows.map((row) => row.id));
    const pick = (ids: bigint[]) => ids.filter((id) => unheld.has(id));
    const unchanged = await moveFiles(tx, pick(files.unchanged), { from: 'RESTORED', to: 'ONTAPE' });
    const changed = await moveFiles(tx, pick(files.changed), { from: 'RESTORED', to: 'UNVERIFIED' });
    await noteChanged(tx, changed);
    await forgetCopies(tx, changed);
    await keepUnverified(ctx, tx, changed);
    return [...unchanged, ...changed];
  });
}

/** Before the copies are forgotten: what stands there now stands for the files, as long as it is there. */
async function noteChanged(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  await tx.query(sql`UPDATE tape_file f SET changed_disk_id = f.disk_id WHERE f.id = ANY(${fileIds}::bigint[])`);
}

/** What was changed by hand is another file than the one on tape: no reading of the tape copy confirms it. */
async function keepUnverified(ctx: Context, tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  await tx.query(
    sql`INSERT INTO verification (file_id, attempts, error_class, error, at)
     SELECT id, 0, 'POLICY', ${CHANGED_BY_HAND}, ${ctx.now()}
     FROM unnest(${fileIds}::bigint[]) AS c (id)
     ON CONFLICT (file_id) DO UPDATE SET error_class = excluded.error_class, error = excluded.error, at = excluded.at,
       not_before = NULL`,
  );
}

/**
 * Has the next copies removed that are to go. Their files stay locked meanwhile, so that of two engines one removes
 * them, and neither removes a copy that a later recall has put in the same place.
 * @param remove tells whether the copy is gone; calling it again for one that is gone must be safe
 * @returns how many copies were looked at and how many are gone, and the last file among them
 */
export async function removeNext(
  ctx: Context,
  page: { after: bigint; limit: number },
  remove: (copy: NotedCopy) => Promise<boolean>,
): Promise<{ seen: number; removed: number; last: bigint | undefined }> {
  return await transaction(ctx.db.pool, 'removeNext', async (tx) => {
    const copies = await tx.query<NotedCopy>(
      sql`SELECT ${copyColumns} FROM tape_file f JOIN restore_disk k ON k.id = f.disk_id
          WHERE f.stage <> 'RESTORED' AND f.id > ${page.after} AND NOT ${isOnFailingDisk} ORDER BY f.id LIMIT ${page.limit} ${locking.freeFile}`,
    );
    const removed: bigint[] = [];
    for (const copy of copies) if (await remove(copy)) removed.push(copy.fileId);
    if (removed.length > 0) {
      await forgetCopies(tx, removed);
      await ringRoom(tx);
    }
    return { seen: copies.length, removed: removed.length, last: copies.at(-1)?.fileId };
  });
}

/** The files are locked, and not RESTORED any more. */
export async function forgetCopies(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  await tx.query(
    sql`WITH copy AS (
          SELECT f.id, f.disk_id, f.size FROM tape_file f
          WHERE f.id = ANY(${fileIds}::bigint[]) AND f.disk_id IS NOT NULL AND f.stage <> 'RESTORED'
        ), forgotten AS (
          UPDATE tape_file f SET disk_id = NULL, disk_ino = NULL, disk_mtime_ns = NULL, disk_ctime_ns = NULL,
            disk_checksum = NULL FROM copy WHERE f.id = copy.id
        ), locked AS (
          SELECT k.id FROM restore_disk k WHERE k.id IN (SELECT disk_id FROM copy) ORDER BY k.id ${locking.disk}
        )
        UPDATE restore_disk k SET used = k.used - s.bytes
        FROM (SELECT disk_id, sum(size) AS bytes FROM copy GROUP BY disk_id) s, locked l
        WHERE k.id = s.disk_id AND l.id = k.id`,
  );
}

/** The file `f` is said to be on its way, and no recall runs. */
export const isOrphan = sql`f.stage = 'RESTORING'
  AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = f.id AND c.state = 'RUNNING')`;

/**
 * Files that are said to be on their way although no recall runs, after an import for instance, go back to ONTAPE, and
 * are recalled for the requests that wait for them.
 * @returns how many
 */
export async function returnOrphans(ctx: Context): Promise<number> {
  return await transaction(ctx.db.pool, 'returnOrphans', async (tx) => {
    const found = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE ${isOrphan} ORDER BY f.id LIMIT 1000`,
    );
    if (found.length === 0) return 0;
    const fileIds = found.map((file) => file.id);
    await lockHolders(tx, fileIds);
    const orphans = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${fileIds}::bigint[]) AND ${isOrphan}`,
    );
    const orphanIds = orphans.map((file) => file.id);
    const moved = await moveFiles(tx, orphanIds, { from: 'RESTORING', to: 'ONTAPE' });
    await settleRequests(ctx, tx, await lockRequestsOf(tx, moved)); // some of those that are locked
    return moved.length;
  });
}
