/**
 * Copies that were changed by hand and left alone. Such a file is UNVERIFIED, and on disk only as long as what was changed
 * is there. Operations touch no disk: a request that wants one waits until an engine has looked (engine/disk/changed.ts).
 */
import type { Context } from '../../context.js';
import { empty, type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { moveFiles } from '../catalogue/moves.js';
import { forgetVerifications } from '../catalogue/verifications.js';
import { isChanged, placeOnDisk } from '../conditions.js';
import { lockHolders, lockRequestsOf, markHolds, settleRequests, waitAgain } from '../requests/holds.js';
import { CHANGED_BY_HAND } from './copies.js';

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
  return await settleLooked(ctx, { ...looked, isStill: isChanged });
}

/** A changed copy is somewhere, and no disk is noted: a program from before has let it go. `f` is the file, `w` its verification. */
export const isUnnoted = sql`(f.stage = 'UNVERIFIED' AND f.changed_disk_id IS NULL AND f.disk_id IS NULL AND w.error = ${CHANGED_BY_HAND})`;

/** Files with changed copies of which nobody knows the disk, in order of their ids. */
export async function readUnnoted(
  ctx: Context,
  page: { after: bigint; limit: number },
): Promise<Pick<ChangedCopy, 'fileId' | 'path'>[]> {
  const { rows } = await ctx.db.pool.query<Pick<ChangedCopy, 'fileId' | 'path'>>(
    sql`SELECT f.id AS "fileId", ${placeOnDisk} AS path FROM verification w JOIN tape_file f ON f.id = w.file_id
        WHERE ${isUnnoted} AND w.file_id > ${page.after} ORDER BY w.file_id LIMIT ${page.limit}`,
  );
  return rows;
}

export type LookedAtDisk = Pick<ChangedCopy, 'diskId' | 'mountpoint'> & {
  /** It is not to be looked at now. */
  isFailing: boolean;
};

/** All restore disks. */
export async function readDisksToLookAt(ctx: Context): Promise<LookedAtDisk[]> {
  const { rows } = await ctx.db.pool.query<LookedAtDisk>(
    sql`SELECT k.id AS "diskId", k.mountpoint, EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) AS "isFailing"
        FROM restore_disk k ORDER BY k.id`,
  );
  return rows;
}

/**
 * Writes down what a look at such files on all disks has found: the disk where something stands in their place is noted; a file
 * that is on none is on tape again, and is recalled for whoever holds it. Calling twice is safe.
 * @param looked `gone`: ids of files
 */
export async function settleUnnoted(
  ctx: Context,
  looked: { found: readonly Pick<ChangedCopy, 'fileId' | 'diskId'>[]; gone: readonly bigint[] },
): Promise<void> {
  const there = looked.found.map(({ fileId }) => fileId);
  await settleLooked(ctx, {
    there,
    gone: looked.gone,
    isStill: isUnnoted,
    note: async (tx, fileIds) => {
      await tx.query(
        sql`UPDATE tape_file f SET changed_disk_id = m.disk_id
            FROM unnest(${there}::bigint[], ${looked.found.map(({ diskId }) => diskId)}::int[]) AS m (id, disk_id)
            WHERE f.id = m.id AND f.id = ANY(${fileIds}::bigint[])`,
      );
    },
  });
}

interface Looked {
  there: readonly bigint[];
  gone: readonly bigint[];
  /** What is still to be true of a file `f`, with its verification `w` if it has one, when it is locked. */
  isStill: Sql;
  /** Notes what is known of those that are there. */
  note?: (tx: Transaction, fileIds: readonly bigint[]) => Promise<void>;
}

/** @returns the ids of the files whose copies have gone */
async function settleLooked(ctx: Context, { isStill, note, ...looked }: Looked): Promise<bigint[]> {
  const all = [...looked.there, ...looked.gone];
  if (all.length === 0) return [];
  return await transaction(ctx.db.pool, 'settleChanged', async (tx) => {
    await lockHolders(tx, all);
    const rows = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f LEFT JOIN verification w ON w.file_id = f.id
          WHERE f.id = ANY(${all}::bigint[]) AND ${isStill}`,
    );
    const changed = new Set(rows.map((row) => row.id));
    const there = looked.there.filter((id) => changed.has(id));
    await note?.(tx, there);
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
