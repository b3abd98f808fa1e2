/**
 * The stages of a tape file, every legal move between them, and the one function that moves.
 * Source of the letters: section 3 of the REST contract.
 */

import type { Transaction } from './database/transaction.js';
import { recordMoves } from './events.js';
import type { Stage } from './generated/prisma/enums.js';

export type { Stage };

export const stageLetters = {
  UNVERIFIED: 'U',
  ONDISK: 'D',
  ONTAPE: 'T',
  RESTORING: 'A',
  RESTORED: 'R',
} as const satisfies Record<Stage, string>;

/** The stage of a letter, in either case; undefined for any other text. */
export function stageOfLetter(letter: string): Stage | undefined {
  return stages.find((stage) => stageLetters[stage] === letter.toUpperCase());
}

export const stages = Object.keys(stageLetters) as Stage[];

/** Stages at which the bytes are on disk, so that a hold is satisfied at once. */
export const onDiskStages: readonly Stage[] = ['UNVERIFIED', 'ONDISK', 'RESTORED'];

/** Every legal move: who makes it, and why. */
export const moves = [
  {
    from: 'UNVERIFIED',
    to: 'ONDISK',
    by: 'archive, import, engine',
    why: 'the checksum of the tape copy is confirmed',
  },
  { from: 'ONDISK', to: 'ONTAPE', by: 'archive, import', why: 'the primary disk copy is removed' },
  { from: 'ONTAPE', to: 'RESTORING', by: 'engine', why: 'its recall starts' },
  { from: 'RESTORING', to: 'RESTORED', by: 'engine', why: 'the file is complete, verified and in place' },
  { from: 'RESTORING', to: 'ONTAPE', by: 'engine', why: 'its recall ended without the file' },
  { from: 'RESTORED', to: 'ONTAPE', by: 'engine', why: 'nobody holds it any more' },
  { from: 'ONDISK', to: 'UNVERIFIED', by: 'import', why: 'it was changed on disk' },
  { from: 'RESTORED', to: 'UNVERIFIED', by: 'engine', why: 'it was changed in the restore area' },
] as const satisfies readonly { from: Stage; to: Stage; by: string; why: string }[];

/** A pair of stages of the list above, so that an illegal move does not compile. */
export type Move = (typeof moves)[number] extends infer M
  ? M extends { from: infer F; to: infer T }
    ? { from: F; to: T }
    : never
  : never;

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
  const set = copies ? ', disk_id = m.disk_id, disk_mtime_ns = m.mtime_ns' : '';
  const rows = await tx.query<{ id: bigint }>(
    `UPDATE tape_file f SET stage = $3 ${set} FROM unnest($1::bigint[], $4::int[], $5::bigint[]) AS m (id, disk_id, mtime_ns)
     WHERE f.id = m.id AND f.stage = $2 RETURNING f.id`,
    [fileIds, move.from, move.to, copies?.map((copy) => copy.diskId) ?? [], copies?.map((copy) => copy.mtimeNs) ?? []],
  );
  const moved = rows.map((row) => row.id);
  recordMoves(tx, moved, move);
  return moved;
}
