/**
 * Versions of a file. An import may say that other bytes belong to a path than before, or that they lie elsewhere; a copy,
 * and a recall that runs, belong to the version that they were read from.
 */
import { raw, type Sql, sql } from '../../database/sql.js';

/**
 * Are they the same bytes? Where both checksums are known they decide, wherever the bytes lie. Else these are the same as
 * long as they lie in the same place and nothing is said of them that they were never compared with. That a position has become known is no
 * other place: without one the file was found by its path.
 * @param was,is aliases of rows with `size`, `checksum`, `volume_id` and `position`: earlier, and now
 */
export function isSameVersion(was: string, is: string): Sql {
  const [a, b] = [raw(was), raw(is)];
  return sql`(${a}.size = ${b}.size AND (coalesce(${a}.checksum = ${b}.checksum, false)
    OR (${b}.checksum IS NULL AND (${isSamePlace(was, is)} OR (${a}.position IS NULL AND ${a}.volume_id = ${b}.volume_id)))))`;
}

/** Do they lie in the same place on tape? Of the same rows. */
export function isSamePlace(was: string, is: string): Sql {
  const [a, b] = [raw(was), raw(is)];
  return sql`(${a}.volume_id, ${a}.position) IS NOT DISTINCT FROM (${b}.volume_id, ${b}.position)`;
}

/**
 * Would a recall read and compare the same? Then what went wrong once may go wrong again; else it says nothing of what is
 * there now. Of the same rows.
 */
export function isSameSource(was: string, is: string): Sql {
  const [a, b] = [raw(was), raw(is)];
  return sql`(${a}.size = ${b}.size AND ${a}.checksum IS NOT DISTINCT FROM ${b}.checksum AND ${isSamePlace(was, is)})`;
}

/** The part of an update of a recall that gives it the place and the size of its file `f`. */
export const placeOfFile = sql`volume_id = f.volume_id, position = f.position, size = f.size`;

/** The part of an update that puts the recall `c` of the file `f` back into the queue. */
export const waitingAgain = sql`state = 'WAITING', drive_id = NULL, epoch = NULL, disk_id = NULL, started_at = NULL,
  checksum = NULL, copy_ino = NULL, copy_mtime_ns = NULL, ${placeOfFile}`;

/** The recall `c` has another place or size than its file `f`. */
export const isMisplaced = sql`(c.volume_id, c.position, c.size) IS DISTINCT FROM (f.volume_id, f.position, f.size)`;
