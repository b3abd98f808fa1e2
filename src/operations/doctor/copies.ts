/**
 * What is noted of copies against what stands on the restore disks. Operations touch no disk: the engine looks at it, with
 * nothing locked, and what it has found counts only where nothing was written of the file meanwhile.
 */

import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import type { Stage } from '../../stages.js';
import { moveFiles } from '../catalogue/moves.js';
import { isUnheld } from '../conditions.js';
import { isUnnoted } from '../disks/changed.js';
import { isAsRead, type NotedCopy } from '../disks/copies.js';
import { ringRoom } from '../disks/disks.js';
import { forgetCopies, isBeingRemoved } from '../disks/removals.js';
import { lockHolders, lockRequestsOf, settleRequests, waitAgain } from '../requests/holds.js';
import type { FaultKind } from './findings.js';

/**
 * Restored files whose copies are gone are on tape again, and recalled for whoever holds them, where nothing was written of
 * them since their copies were read.
 * @param gone were looked for on disk after they were read
 * @returns the ids of the files for which that was done
 */
export async function returnMissing(ctx: Context, gone: readonly NotedCopy[]): Promise<bigint[]> {
  return await transaction(ctx.db.pool, 'returnMissing', async (tx) => {
    await lockHolders(
      tx,
      gone.map((copy) => copy.fileId),
    );
    const rows = await tx.query<{ id: bigint }>(sql`SELECT f.id FROM tape_file f WHERE ${isAsRead(gone)}`);
    const moved = await moveFiles(
      tx,
      rows.map((row) => row.id),
      { from: 'RESTORED', to: 'ONTAPE' },
    );
    const requestIds = await lockRequestsOf(tx, moved); // some of those that are locked
    await waitAgain(tx, requestIds, moved);
    await settleRequests(ctx, tx, requestIds);
    await forgetCopies(tx, moved);
    await ringRoom(tx);
    return moved;
  });
}

/**
 * Of copies that are to be removed, and of which nothing was found on disk after they were read, those that are still noted.
 * What an engine is removing just now is left to it.
 * @returns the ids of their files
 */
export async function findGone(ctx: Context, missing: readonly NotedCopy[]): Promise<bigint[]> {
  const { rows } = await ctx.db.pool.query<{ id: bigint }>(
    sql`SELECT f.id FROM tape_file f WHERE ${isAsRead(missing)} AND f.disk_id IS NOT NULL AND f.stage <> 'RESTORED'
          AND NOT ${isBeingRemoved(ctx.now())} ORDER BY f.id`,
  );
  return rows.map((row) => row.id);
}

/** Restored files that nobody holds, and that no pass will come to. The engine lets them go. */
export const restoredUnheld: Omit<FaultKind, 'repair'> = {
  kind: 'restored-without-hold',
  find: (after, limit) => sql`SELECT f.id AS key, f.path AS thing, 'a live hold on a file that is RESTORED' AS expected,
      'none, and a copy of ' || f.size || ' bytes' AS found
    FROM tape_file f WHERE f.stage = 'RESTORED' AND f.disk_id IS NOT NULL AND f.id > ${after} AND ${isUnheld}
      AND f.id NOT IN (SELECT o.file_id FROM request r CROSS JOIN LATERAL (
        SELECT h.file_id FROM any_hold h WHERE h.request_id = r.id OFFSET 0) o WHERE NOT r.is_released)
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

/** What the catalogue says of a file by now. */
export async function readNote(ctx: Context, fileId: bigint): Promise<PlaceNote | undefined> {
  const { rows } = await ctx.db.pool.query<PlaceNote>(
    sql`SELECT ${noteColumns} FROM tape_file f WHERE f.id = ${fileId}`,
  );
  return rows[0];
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
