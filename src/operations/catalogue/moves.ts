/** The one function that moves files from stage to stage. */
import { empty, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { recordMoves } from '../../events.js';
import type { Move } from '../../stages.js';

/** The copy that a file has in the restore area from a move on. */
export interface NewCopy {
  diskId: number;
  mtimeNs: bigint;
}

/**
 * Moves files, touching only those still at `from`, and records the events in the same transaction.
 * @param copies of each file, in the order of `fileIds`, noted in the same write: each write of a file costs all of its
 *   indexes
 * @returns the ids of the files that moved
 */
export async function moveFiles(
  tx: Transaction,
  fileIds: readonly bigint[],
  move: Move,
  copies?: readonly NewCopy[],
): Promise<bigint[]> {
  if (fileIds.length === 0) return [];
  const [diskIds, mtimes] = [copies?.map((copy) => copy.diskId) ?? [], copies?.map((copy) => copy.mtimeNs) ?? []];
  const note = copies ? sql`, disk_id = m.disk_id, disk_mtime_ns = m.mtime_ns` : empty;
  const rows = await tx.query<{ id: bigint }>(
    sql`UPDATE tape_file f SET stage = ${move.to} ${note}
        FROM unnest(${fileIds}::bigint[], ${diskIds}::int[], ${mtimes}::bigint[]) AS m (id, disk_id, mtime_ns)
        WHERE f.id = m.id AND f.stage = ${move.from} RETURNING f.id`,
  );
  const moved = rows.map((row) => row.id);
  recordMoves(tx, moved, move);
  return moved;
}
