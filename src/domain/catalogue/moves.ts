/** Changes the stages of files. No other module changes a file's stage. */

import type { Move } from '../../core/stages.js';
import { empty, type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import { recordMoves } from '../../events/event-writes.js';
import type { Context } from '../context.js';

/** Inode, times and checksums of a copy in the restore area. Fields with an unknown value are null. */
export interface CopyTraits {
  ino: bigint;
  mtimeNs: bigint;
  ctimeNs: bigint | null;
  checksum: string | null;
  /** Adler-32 checksum, in hex, of the bytes that a drive read from tape. */
  adler32?: string | null | undefined;
}

export interface NewCopy extends CopyTraits {
  diskId: number;
}

/** SQL assignments that record a file's new copy on disk. The row `m` comes from the function `newCopies`. */
export const setCopy = sql`disk_id = m.disk_id, disk_ino = m.ino, disk_mtime_ns = m.mtime_ns,
  disk_ctime_ns = m.ctime_ns, disk_checksum = m.checksum`;

/** SQL assignments that set a file's unknown checksums to the checksums of the bytes that a drive read from tape. */
export const setMissingChecksums = sql`checksum = coalesce(f.checksum, m.checksum),
  checksum_taken = CASE WHEN f.checksum IS NULL THEN m.checksum IS NOT NULL ELSE f.checksum_taken END,
  adler32 = coalesce(f.adler32, m.adler32)`;

/** Returns SQL for a table `m`, in which each row contains a file id and the file's new copy on disk. */
export function newCopies(fileIds: readonly bigint[], copies: readonly NewCopy[]): Sql {
  const [diskIds, inos] = [copies.map((copy) => copy.diskId), copies.map((copy) => copy.ino)];
  const [mtimes, ctimes] = [copies.map((copy) => copy.mtimeNs), copies.map((copy) => copy.ctimeNs)];
  const checksums = copies.map((copy) => copy.checksum);
  const adler32s = copies.map((copy) => copy.adler32 ?? null);
  return sql`unnest(${fileIds}::bigint[], ${diskIds}::int[], ${inos}::bigint[], ${mtimes}::bigint[], ${ctimes}::bigint[],
    ${checksums}::text[], ${adler32s}::text[]) AS m (id, disk_id, ino, mtime_ns, ctime_ns, checksum, adler32)`;
}

/**
 * Changes the stage of files that are still in the stage `move.from`. Records an event for each stage change in the
 * same transaction. Writes a file's stage and its new copy in one UPDATE, because each additional UPDATE would write
 * all indexes again.
 */
export async function moveFiles(
  ctx: Pick<Context, 'now'>,
  tx: Transaction,
  fileIds: readonly bigint[],
  move: Move,
  copies?: readonly NewCopy[],
): Promise<bigint[]> {
  if (fileIds.length === 0) return [];
  const copy = copies ? sql`, ${setCopy}` : empty;
  const checksums =
    copies && move.from === 'RESTORING' && move.to === 'RESTORED' ? sql`, ${setMissingChecksums}` : empty;
  // only UNVERIFIED files have a copy that was changed on disk
  const changed = move.from === 'UNVERIFIED' ? sql`, changed_disk_id = NULL` : empty;
  const rows = await tx.query<{ id: bigint }>(
    sql`UPDATE tape_file f SET stage = ${move.to} ${copy} ${checksums} ${changed} FROM ${newCopies(fileIds, copies ?? [])}
        WHERE f.id = m.id AND f.stage = ${move.from} RETURNING f.id`,
  );
  const moved = rows.map((row) => row.id);
  recordMoves(ctx, tx, moved, move);
  return moved;
}
