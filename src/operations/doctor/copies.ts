/**
 * What is noted of copies against what stands on the restore disks. Operations touch no disk: the engine gives the look
 * at it, which is taken while the files are locked, so that no recall or removal of them is half-way.
 */

import type { Context } from '../../context.js';
import { lockFiles, locking } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import type { Stage } from '../../stages.js';
import { moveFiles } from '../catalogue/moves.js';
import { isUnheld } from '../conditions.js';
import { isUnnoted } from '../disks/changed.js';
import { copyColumns, type NotedCopy } from '../disks/copies.js';
import { ringRoom } from '../disks/disks.js';
import { forgetCopies } from '../disks/removals.js';
import { lockHolders, lockRequestsOf, settleRequests, waitAgain } from '../requests/holds.js';
import type { FaultKind } from './findings.js';

/**
 * Restored files whose copies are gone are on tape again, and recalled for whoever holds them.
 * @param isGone must be safe to call again
 * @returns the ids of the files whose copies are gone
 */
export async function returnMissing(
  ctx: Context,
  fileIds: readonly bigint[],
  isGone: (copy: NotedCopy) => Promise<boolean>,
): Promise<bigint[]> {
  return await transaction(ctx.db.pool, 'returnMissing', async (tx) => {
    await lockHolders(tx, fileIds);
    const copies = await lockCopies(tx, fileIds, sql`f.stage = 'RESTORED'`, locking.file);
    const gone: bigint[] = [];
    for (const copy of copies) if (await isGone(copy)) gone.push(copy.fileId);
    const moved = await moveFiles(tx, gone, { from: 'RESTORED', to: 'ONTAPE' });
    const requestIds = await lockRequestsOf(tx, moved); // some of those that are locked
    await waitAgain(tx, requestIds, moved);
    await settleRequests(ctx, tx, requestIds);
    await forgetCopies(tx, moved);
    await ringRoom(tx);
    return moved;
  });
}

/**
 * Copies that are to be removed and are gone already. Those that an engine is removing just now are left to it.
 * @returns the ids of their files, whose notes are taken away where that is asked for
 */
export async function findGone(
  ctx: Context,
  fileIds: readonly bigint[],
  options: { isGone: (copy: NotedCopy) => Promise<boolean>; forget: boolean },
): Promise<bigint[]> {
  return await transaction(ctx.db.pool, 'findGone', async (tx) => {
    const copies = await lockCopies(tx, fileIds, sql`f.stage <> 'RESTORED'`, locking.freeFile);
    const gone: bigint[] = [];
    for (const copy of copies) if (await options.isGone(copy)) gone.push(copy.fileId);
    if (options.forget && gone.length > 0) {
      await forgetCopies(tx, gone);
      await ringRoom(tx);
    }
    return gone;
  });
}

async function lockCopies(tx: Transaction, fileIds: readonly bigint[], which: Sql, lock: Sql): Promise<NotedCopy[]> {
  return await tx.query<NotedCopy>(
    sql`SELECT ${copyColumns} FROM tape_file f JOIN restore_disk k ON k.id = f.disk_id
        WHERE f.id = ANY(${fileIds}::bigint[]) AND ${which} ORDER BY f.id ${lock}`,
  );
}

/** Restored files that nobody holds, and that no pass will come to. The engine lets them go. */
export const restoredUnheld: Omit<FaultKind, 'repair'> = {
  kind: 'restored-without-hold',
  find: (after, limit) => sql`SELECT f.id AS key, f.path AS thing, 'a live hold on a file that is RESTORED' AS expected,
      'none, and a copy of ' || f.size || ' bytes' AS found
    FROM tape_file f WHERE f.stage = 'RESTORED' AND f.disk_id IS NOT NULL AND f.id > ${after} AND ${isUnheld}
      AND NOT EXISTS (SELECT FROM hold h JOIN request r ON r.id = h.request_id
        WHERE h.file_id = f.id AND NOT r.is_released)
    ORDER BY f.id LIMIT ${limit}`,
};

/** A file that counts as on disk, and is perhaps on none. */
export const copyUnnoted: Omit<FaultKind, 'repair'> = {
  kind: 'copy-unnoted',
  find: (after, limit) => sql`SELECT f.id AS key, f.path AS thing,
      'the disk of its copy, which was changed by hand' AS expected, 'no disk' AS found
    FROM verification w JOIN tape_file f ON f.id = w.file_id
    WHERE ${isUnnoted} AND w.file_id > ${after} ORDER BY w.file_id LIMIT ${limit}`,
};

/** What the catalogue says of a file that stands in the restore area. */
export interface PlaceNote {
  fileId: bigint;
  path: string;
  stage: Stage;
  size: bigint;
  checksum: string | null;
  /** Where its copy is, or is to be removed from. */
  diskId: number | null;
  isRunning: boolean;
}

const noteColumns = sql`f.id AS "fileId", f.path, f.stage, f.size, f.checksum, f.disk_id AS "diskId",
  EXISTS (SELECT FROM recall c WHERE c.file_id = f.id AND c.state = 'RUNNING') AS "isRunning"`;

/** By path; what the catalogue does not know is left out. */
export async function readNotes(ctx: Context, paths: readonly string[]): Promise<Map<string, PlaceNote>> {
  const { rows } = await ctx.db.pool.query<PlaceNote>(
    sql`SELECT ${noteColumns} FROM tape_file f WHERE f.path = ANY(${paths}::text[])`,
  );
  return new Map(rows.map((row) => [row.path, row]));
}

/** Has something decided about a file while it is locked: no recall of it begins or ends meanwhile. */
export async function withLockedFile<T>(
  ctx: Context,
  fileId: bigint,
  decide: (note: PlaceNote | undefined, running: readonly RunningPart[]) => Promise<T>,
): Promise<T> {
  return await transaction(ctx.db.pool, 'withLockedFile', async (tx) => {
    await lockFiles(tx, [fileId]);
    const [note] = await tx.query<PlaceNote>(sql`SELECT ${noteColumns} FROM tape_file f WHERE f.id = ${fileId}`);
    return await decide(note, await tx.query<RunningPart>(sql`${runningParts} AND file_id = ${fileId}`));
  });
}

/** A recall that runs, and may have a partial file. */
export interface RunningPart {
  fileId: bigint;
  driveId: number;
  epoch: bigint;
}

const runningParts = sql`SELECT file_id AS "fileId", drive_id AS "driveId", epoch FROM recall WHERE state = 'RUNNING'`;

export async function readRunning(ctx: Context, fileIds: readonly bigint[]): Promise<RunningPart[]> {
  const { rows } = await ctx.db.pool.query<RunningPart>(sql`${runningParts} AND file_id = ANY(${fileIds}::bigint[])`);
  return rows;
}
