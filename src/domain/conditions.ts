import { addSeconds } from '../core/time.js';
import { type Sql, sql } from '../db/sql.js';

/** A live request keeps its files until it expires or is cancelled. */
export const isLive = sql`r.state NOT IN ('EXPIRED', 'CANCELLED')`;

/**
 * The file `f` has a changed copy in the restore area. UNVERIFIED files without a changed copy are at their primary
 * path.
 */
export const isChanged = sql`(f.stage = 'UNVERIFIED' AND f.changed_disk_id IS NOT NULL)`;

export const isOrphan = sql`(f.stage = 'RESTORING'
  AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = f.id AND c.state = 'RUNNING'))`;

/**
 * Id of the restore disk that has a readable copy of the file `f`. Null if there is no copy, or the copy is being
 * removed.
 */
export const diskOfCopy = sql`(CASE f.stage WHEN 'RESTORED' THEN f.disk_id WHEN 'UNVERIFIED' THEN f.changed_disk_id END)`;

/** Path of the file `f`'s copy, relative to the disk's mount point. Renaming the file does not move the copy. */
export const diskPath = sql`coalesce(f.disk_path, f.path)`;

/**
 * Path reduced for comparison: lower case, decomposed (NFKD), without characters outside ASCII. If any file system
 * treats two paths as the same, their reduced paths are equal. Some distinct paths also have equal reduced paths. If
 * two distinct paths have equal reduced paths, Tapegate merely stores one of the copies at another path.
 */
export const foldedPath = (path: Sql): Sql =>
  sql`regexp_replace(replace(lower(normalize(${path}, NFKD)), 'ß', 'ss'), '[^\\x01-\\x7F]+', '', 'g')`;

/** Name of the file `f` on tape. Renaming the file in the catalogue does not change its name on tape. */
export const pathOnTape = sql`coalesce(f.tape_path, f.path)`;

export const isAtPrimaryPath = sql`(f.stage = 'ONDISK' OR (f.stage = 'UNVERIFIED' AND f.changed_disk_id IS NULL))`;

/**
 * The file `f` is not withdrawn. With `IS NOT TRUE`, PostgreSQL estimates that most files match, even without
 * statistics.
 */
export const isOffered = sql`((f.withdrawn_at > '-infinity') IS NOT TRUE)`;

export const isWithdrawn = sql`f.withdrawn_at IS NOT NULL`;

/**
 * The file `f` is withdrawn, and is either purged or only on tape. Requests for the file fail, but a running recall
 * continues.
 */
export const isRecalledNoMore = sql`(${isWithdrawn} AND (f.stage = 'ONTAPE' OR f.purged_at IS NOT NULL))`;

export const whyWithdrawn = sql`('withdrawn from the archive' || coalesce(': ' || f.withdrawn_why, ''))`;

export const isUnrequested = sql`NOT EXISTS (SELECT FROM live_request_file h WHERE h.file_id = f.id)`;

/** A live request contains the file. `OFFSET 0` forces lookups by key, regardless of PostgreSQL's estimates. */
export const isRequestedByKeys = (fileId: Sql): Sql => sql`EXISTS (
  SELECT FROM (SELECT h.request_id FROM request_file h WHERE h.file_id = ${fileId} AND NOT h.is_ended AND h.state <> 'RELEASED' OFFSET 0) h
    CROSS JOIN LATERAL (SELECT FROM request r WHERE r.id = h.request_id AND ${isLive} OFFSET 0) r)`;

/**
 * The recall `c` is not running. Queries that look up recalls by file use this condition. A condition on WAITING would
 * make PostgreSQL read the queue's whole index for each file.
 */
export const isWaiting = sql`c.state <> 'RUNNING'`;

export const needsRoom = sql`c.not_before = 'infinity'`;

export function isResting(time: string | Sql): Sql {
  return sql`coalesce(v.retry_at > ${time}, false)`;
}

/** Types of libraries in which drives find files by path. A test compares this list with `findsBy` in tape/kind.ts. */
export const pathKinds: readonly string[] = ['command', 'ltfs'];

/**
 * The drives of the volume's library find files by path, and do not need a position. PostgreSQL runs this subquery a
 * single time, even if a million recalls wait.
 */
const isReadByPath = (volumeId: Sql): Sql => sql`(${volumeId} IN (
  SELECT o.id FROM volume o JOIN library b ON b.id = o.library_id WHERE b.kind = ANY(${pathKinds}::text[])))`;

/**
 * The volume's library is a staging library, or its drives find files by path, so reading a file does not need a
 * position.
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

/** The recall `c` waits, and Tapegate must still ask the staging library to stage the file. */
export function isUnasked(time: string, libraryId: number): Sql {
  return sql`(c.state = 'WAITING' AND (c.not_before IS NULL OR c.not_before <= ${time}) AND NOT EXISTS (
    SELECT FROM staging s WHERE s.file_id = c.file_id AND s.library_id = ${libraryId} AND s.state <> 'KEPT'))`;
}

export function isStagedAt(time: string, libraryId: number): Sql {
  return sql`EXISTS (SELECT FROM staging s JOIN volume v ON v.library_id = s.library_id
    WHERE s.file_id = c.file_id AND s.library_id = ${libraryId} AND s.state = 'READY' AND v.id = c.volume_id
      AND (s.ready_until IS NULL OR s.ready_until > ${time}))`;
}

/**
 * The staging row `s` is still needed, because a recall or a verification must still read the row's file from the
 * library.
 */
export const isStagingWanted = sql`(EXISTS (SELECT FROM recall c JOIN volume v ON v.id = c.volume_id
  WHERE c.file_id = s.file_id AND v.library_id = s.library_id)
  OR EXISTS (SELECT FROM verification w JOIN tape_file f ON f.id = w.file_id JOIN volume v ON v.id = f.volume_id
    WHERE w.file_id = s.file_id AND v.library_id = s.library_id AND w.not_before IS NOT NULL AND f.stage = 'UNVERIFIED' AND f.verified IS NULL AND ${isOffered}))`;

export const isServed = sql`NOT EXISTS (SELECT FROM suspended_quota s WHERE s.quota_id = h.quota_id)`;

/**
 * Current time on the database server's clock, which decides when leases expire. A process must not use its own clock
 * to extend a lease.
 */
export const databaseNow = sql`timezone('utc', clock_timestamp())`;

/**
 * A lease, or another claim with a time limit, has not expired. A lease lasts only seconds. A lease that ends in more
 * than 15 minutes was taken before the clock was set back, and counts as expired.
 */
export function isRunning(until: Sql): Sql {
  return sql`coalesce(${until} BETWEEN ${databaseNow} AND ${databaseNow} + interval '15 minutes', false)`;
}

/** A live engine has leased the drive `d`. */
export const isClaimed = isRunning(sql`d.lease_until`);

/** The engine `engineId` claimed the drive `d` in the epoch `epoch`, and still holds the drive. */
export function isHeldUnder({ driveId, epoch, engineId }: { driveId: number; epoch: bigint; engineId: string }): Sql {
  return sql`(d.id = ${driveId} AND d.epoch = ${epoch} AND d.engine_id = ${engineId}::uuid)`;
}

/** Age in seconds beyond which a disk measurement is not used. Engines measure disks every ten seconds. */
export const FRESH_SECONDS = 60;

/** Another host has recently measured the disk `k`, and found no problem except lack of space. */
export function isSeenElsewhere(now: string, host: string): Sql {
  return sql`EXISTS (SELECT FROM disk_measurement m WHERE m.disk_id = k.id AND m.host <> ${host} AND (m.problem IS NULL OR m.free IS NOT NULL)
    AND m.measured_at >= ${addSeconds(now, -FRESH_SECONDS)}::timestamp)`;
}
