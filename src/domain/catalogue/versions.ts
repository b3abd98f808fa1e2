/**
 * Compares versions of files, and switches files to their second tape copies. If a drive cannot read a file's first
 * tape copy, Tapegate records the error. All later recalls of the file read the second copy first. A file's recall
 * fails only if both tape copies have failed.
 */

import type { ErrorClass } from '../../core/errors.js';
import { raw, type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import { hasOther, isWaiting } from '../conditions.js';
import type { Context } from '../context.js';

/**
 * Returns the SQL condition that is true if two rows describe files with the same bytes. Two rows with the same size
 * and checksum match. If the later row has no checksum, two rows with the same size and position match. If the earlier
 * row also has no position, two rows with the same size and volume match, because drives find the file by path.
 * @param was alias of the earlier row
 * @param is alias of the later row
 */
export function isSameVersion(was: string, is: string): Sql {
  const [a, b] = [raw(was), raw(is)];
  return sql`(${a}.size = ${b}.size AND (coalesce(${a}.checksum = ${b}.checksum, false)
    OR (${b}.checksum IS NULL AND (${isSamePosition(was, is)} OR (${a}.position IS NULL AND ${a}.volume_id = ${b}.volume_id)))))`;
}

export function isSamePosition(was: string, is: string): Sql {
  const [a, b] = [raw(was), raw(is)];
  return sql`(${a}.volume_id, ${a}.position) IS NOT DISTINCT FROM (${b}.volume_id, ${b}.position)`;
}

/**
 * Returns the SQL condition that is true if two rows have the same size, checksum and position on tape. If a file's
 * size, checksum or position changes, earlier errors no longer apply to the file.
 */
export function isSameSource(was: string, is: string): Sql {
  const [a, b] = [raw(was), raw(is)];
  return sql`(${a}.size = ${b}.size AND ${a}.checksum IS NOT DISTINCT FROM ${b}.checksum AND ${isSamePosition(was, is)})`;
}

export const positionOfFile = sql`volume_id = f.volume_id, position = f.position, size = f.size`;

export const requeueRecall = sql`state = 'WAITING', drive_id = NULL, epoch = NULL, disk_id = NULL, started_at = NULL,
  checksum = NULL, copy_ino = NULL, copy_mtime_ns = NULL, ${positionOfFile}`;

export const hasStalePosition = sql`(c.volume_id, c.position, c.size) IS DISTINCT FROM (f.volume_id, f.position, f.size)`;

interface FailedRead {
  fileId: bigint;
  errorClass: ErrorClass;
  error: string;
  /** For an error of class POLICY: whether the tape, and not a restore disk, caused the error. */
  isOfTape?: boolean | undefined;
}

export const swapCopies = sql`volume_id = f.copy_volume_id, "position" = f.copy_position, copy_volume_id = f.volume_id, copy_position = f.position`;

const isTapeFailure = ({ errorClass, isOfTape }: FailedRead) =>
  errorClass !== 'SPACE' && (errorClass !== 'POLICY' || isOfTape === true);

/**
 * Switches files to their second tape copy, if they have one. The caller must have locked the files, and must requeue
 * the recalls of the switched files.
 */
export async function switchToCopies(
  ctx: Context,
  tx: Transaction,
  failed: readonly FailedRead[],
): Promise<{ switched: Set<bigint>; bothFailed: Map<bigint, string> }> {
  const tapeFailures = failed.filter(isTapeFailure);
  if (tapeFailures.length === 0) return { switched: new Set(), bothFailed: new Map() };
  const given = sql`unnest(${tapeFailures.map(({ fileId }) => fileId)}::bigint[], ${tapeFailures.map(({ error }) => error)}::text[]) AS n (file_id, error)`;
  const switched = await tx.query<{ id: bigint }>(
    sql`UPDATE tape_file f SET ${swapCopies}, copy_error = n.error, copy_failed_at = ${ctx.now()}::timestamp FROM ${given} WHERE f.id = n.file_id AND ${hasOther} RETURNING f.id`,
  );
  const ids = new Set(switched.map(({ id }) => id));
  await tx.query(
    sql`UPDATE recall c SET ${positionOfFile}, attempts = 0, earlier_tries = 0, not_before = NULL, error_class = NULL, error = NULL
        FROM tape_file f WHERE f.id = c.file_id AND c.file_id = ANY(${[...ids]}::bigint[]) AND ${isWaiting}`,
  );
  const both = await tx.query<{ id: bigint; text: string }>(
    sql`SELECT f.id, n.error || '; its other copy, on volume ' || v.name || ', failed before: ' || f.copy_error AS text
        FROM ${given} JOIN tape_file f ON f.id = n.file_id JOIN volume v ON v.id = f.copy_volume_id
        WHERE f.copy_error IS NOT NULL AND f.id <> ALL(${[...ids]}::bigint[])`,
  );
  return { switched: ids, bothFailed: new Map(both.map(({ id, text }) => [id, text])) };
}
