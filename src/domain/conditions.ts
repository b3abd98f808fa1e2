import { addSeconds } from '../core/time.js';
import { type Sql, sql } from '../db/sql.js';

/**
 * SQL condition that is true if the request `r` is live. A live request keeps its files until it expires or is
 * cancelled.
 */
export const isLive = sql`r.state NOT IN ('EXPIRED', 'CANCELLED')`;

/** SQL condition that is true if the file `f` has a copy in the restore area that was changed outside Tapegate. */
export const isChanged = sql`(f.stage = 'UNVERIFIED' AND f.changed_disk_id IS NOT NULL)`;

export const isOrphan = sql`(f.stage = 'RESTORING'
  AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = f.id AND c.state = 'RUNNING'))`;

/** SQL expression for the restore disk that has a readable copy of the file `f`; null if no disk has a copy. */
export const diskOfCopy = sql`(CASE f.stage WHEN 'RESTORED' THEN f.disk_id WHEN 'UNVERIFIED' THEN f.changed_disk_id END)`;

/**
 * SQL expression for the path of the copy of the file `f`, relative to the disk's mount point. Renaming the file in the
 * catalogue does not move its copy.
 */
export const diskPath = sql`coalesce(f.disk_path, f.path)`;

/**
 * Returns an SQL expression for the folded form of a path, which is used to compare paths. If a file system that
 * ignores case or Unicode normalisation treats two paths as the same, their folded forms are equal. If two files' paths
 * have the same folded form, Tapegate stores the copy of one file at another path.
 */
export const foldedPath = (path: Sql): Sql =>
  sql`regexp_replace(replace(lower(normalize(${path}, NFKD)), 'ß', 'ss'), '[^\\x01-\\x7F]+', '', 'g')`;

/**
 * SQL expression for the path of the file `f` on tape, which stays the same when the file is renamed in the catalogue.
 */
export const pathOnTape = sql`coalesce(f.tape_path, f.path)`;

export const isAtPrimaryPath = sql`(f.stage = 'ONDISK' OR (f.stage = 'UNVERIFIED' AND f.changed_disk_id IS NULL))`;

/**
 * SQL condition that is true if the file `f` is not withdrawn. The condition uses `IS NOT TRUE`, so that PostgreSQL
 * expects most files to match even if the table has no statistics.
 */
export const isOffered = sql`((f.withdrawn_at > '-infinity') IS NOT TRUE)`;

export const isWithdrawn = sql`f.withdrawn_at IS NOT NULL`;

/**
 * SQL condition that is true if the file `f` is withdrawn, and was also purged or is stored only on tape. Requests for
 * the file fail, but a running recall continues.
 */
export const isRecalledNoMore = sql`(${isWithdrawn} AND (f.stage = 'ONTAPE' OR f.purged_at IS NOT NULL))`;

export const whyWithdrawn = sql`('withdrawn from the archive' || coalesce(': ' || f.withdrawn_reason, ''))`;

export const isUnrequested = sql`NOT EXISTS (SELECT FROM live_request_file h WHERE h.file_id = f.id)`;

/**
 * Returns the SQL condition that is true if a live request contains the file. `OFFSET 0` makes PostgreSQL look up the
 * request files by key, even if PostgreSQL estimates that a scan is faster.
 */
export const isRequestedByKeys = (fileId: Sql): Sql => sql`EXISTS (
  SELECT FROM (SELECT h.request_id FROM request_file h WHERE h.file_id = ${fileId} AND NOT h.is_ended AND h.state <> 'RELEASED' OFFSET 0) h
    CROSS JOIN LATERAL (SELECT FROM request r WHERE r.id = h.request_id AND ${isLive} OFFSET 0) r)`;

/**
 * SQL condition that is true if the recall `c` is waiting, for queries that look up recalls by file. With `state =
 * 'WAITING'`, PostgreSQL would use the index for the queue, and would read the whole index for each file.
 */
export const isWaiting = sql`c.state <> 'RUNNING'`;

export const needsRoom = sql`c.not_before = 'infinity'`;

export function isResting(time: string | Sql): Sql {
  return sql`coalesce(v.retry_at > ${time}, false)`;
}

/** Library types whose drives find files by path. A test compares this list with `findsBy` in tape/kind.ts. */
export const pathKinds: readonly string[] = ['command', 'ltfs'];

/**
 * Returns the SQL condition that is true if drives of the volume's library find files by path, without a position.
 * PostgreSQL runs the subquery once for a query, not once for each waiting recall.
 */
const isReadByPath = (volumeId: Sql): Sql => sql`(${volumeId} IN (
  SELECT o.id FROM volume o JOIN library b ON b.id = o.library_id WHERE b.kind = ANY(${pathKinds}::text[])))`;

/**
 * Returns the SQL condition that is true if reading a file on the volume does not need a position. Staging libraries do
 * not need positions, nor do libraries whose drives find files by path.
 */
export const isByPath = (volumeId: Sql): Sql => sql`EXISTS (SELECT FROM volume o JOIN library b ON b.id = o.library_id
  WHERE o.id = ${volumeId} AND (b.contract = 'STAGING' OR b.kind = ANY(${pathKinds}::text[])))`;

export const isUnplaced = sql`(c.volume_id IS NULL OR (c.position IS NULL AND NOT ${isByPath(sql`c.volume_id`)}))`;

export const hasPosition = sql`(f.volume_id IS NOT NULL AND (f.position IS NOT NULL OR ${isByPath(sql`f.volume_id`)}))`;

const hasCopyPlace = sql`(f.copy_volume_id IS NOT NULL AND (f.copy_position IS NOT NULL OR ${isByPath(sql`f.copy_volume_id`)}))`;

export const hasOther = sql`(${hasCopyPlace} AND ${isOffered} AND (f.copy_error IS NULL
  OR f.copy_failed_at < (SELECT w.created_at FROM recall w WHERE w.file_id = f.id)))`;

export const isOfStaging = (volumeId: Sql): Sql => sql`EXISTS (
  SELECT FROM volume o JOIN library b ON b.id = o.library_id WHERE o.id = ${volumeId} AND b.contract = 'STAGING')`;

export const isReadable = sql`(c.volume_id IS NOT NULL AND (c.position IS NOT NULL OR ${isReadByPath(sql`c.volume_id`)}))`;

export function isReadyBy(time: string | Sql): Sql {
  return sql`c.state = 'WAITING' AND ${isReadable} AND (c.not_before IS NULL OR c.not_before <= ${time})`;
}

/**
 * Returns the SQL condition that is true if the recall `c` needs a file that Tapegate has not yet asked the staging
 * library to stage.
 */
export function isUnasked(time: string, libraryId: number): Sql {
  return sql`(c.state = 'WAITING' AND (c.not_before IS NULL OR c.not_before <= ${time}) AND NOT EXISTS (
    SELECT FROM staging s WHERE s.file_id = c.file_id AND s.library_id = ${libraryId} AND s.state <> 'KEPT'))`;
}

export function isStagedAt(time: string, libraryId: number): Sql {
  return sql`EXISTS (SELECT FROM staging s JOIN volume v ON v.library_id = s.library_id
    WHERE s.file_id = c.file_id AND s.library_id = ${libraryId} AND s.state = 'READY' AND v.id = c.volume_id
      AND (s.ready_until IS NULL OR s.ready_until > ${time}))`;
}

/** SQL condition that is true if a recall or a verification must still read the file of the staging row `s`. */
export const isStagingWanted = sql`(EXISTS (SELECT FROM recall c JOIN volume v ON v.id = c.volume_id
  WHERE c.file_id = s.file_id AND v.library_id = s.library_id)
  OR EXISTS (SELECT FROM verification w JOIN tape_file f ON f.id = w.file_id JOIN volume v ON v.id = f.volume_id
    WHERE w.file_id = s.file_id AND v.library_id = s.library_id AND w.not_before IS NOT NULL AND f.stage = 'UNVERIFIED' AND f.verified IS NULL AND ${isOffered}))`;

export const isServed = sql`NOT EXISTS (SELECT FROM suspended_quota s WHERE s.quota_id = h.quota_id)`;

/**
 * Current time on the database server's clock. To extend a lease, a process must use this time and not its own clock,
 * because leases expire by the server's clock.
 */
export const databaseNow = sql`timezone('utc', clock_timestamp())`;

/**
 * Returns the SQL condition that is true if a lease has not expired. A lease also counts as expired if its end is more
 * than 15 minutes from now. Engines take leases only for some seconds, so the clock must have been set back after such
 * a lease began.
 */
export function isRunning(until: Sql): Sql {
  return sql`coalesce(${until} BETWEEN ${databaseNow} AND ${databaseNow} + interval '15 minutes', false)`;
}

/** SQL condition that is true if a live engine has leased the drive `d`. */
export const isClaimed = isRunning(sql`d.lease_until`);

/** Selects the engines (`e`) that would start a process for the drive `d` as soon as the drive has work. */
export const readyEngines = sql`engine_process e WHERE e.library_id = d.library_id AND ${isRunning(sql`e.ready_until`)}
  AND e.reach >= substring(d.name FROM '[0-9]+$')::numeric`;

/** SQL condition that is true if a live engine has leased the drive `d`, or would lease the drive if it had work. */
export const isManned = sql`(${isClaimed} OR (d.engine_id IS NULL AND EXISTS (SELECT FROM ${readyEngines})))`;

/** SQL for the host of the engine that has leased the drive `d`, or would lease the drive; null if unknown. */
export const hostOfDrive = sql`CASE WHEN ${isClaimed} THEN (SELECT e.host FROM engine_process e WHERE e.id = d.engine_id)
  WHEN d.engine_id IS NULL THEN (SELECT min(e.host) FROM ${readyEngines}) END`;

/** Returns the SQL condition that is true if the engine `engineId` still holds the drive `d` in the epoch `epoch`. */
export function isHeldUnder({ driveId, epoch, engineId }: { driveId: number; epoch: bigint; engineId: string }): Sql {
  return sql`(d.id = ${driveId} AND d.epoch = ${epoch} AND d.engine_id = ${engineId}::uuid)`;
}

/**
 * Maximum age of a disk measurement, in seconds. Tapegate ignores older measurements, because engines measure disks
 * every ten seconds.
 */
export const FRESH_SECONDS = 60;

/**
 * Returns the SQL condition that is true if another host has recently measured the disk `k`, and found no problem
 * except lack of space.
 */
export function isSeenElsewhere(now: string, host: string): Sql {
  return sql`EXISTS (SELECT FROM disk_measurement m WHERE m.disk_id = k.id AND m.host <> ${host} AND (m.problem IS NULL OR m.free IS NOT NULL)
    AND m.measured_at >= ${addSeconds(now, -FRESH_SECONDS)}::timestamp)`;
}
