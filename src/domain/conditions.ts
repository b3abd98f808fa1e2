import { addSeconds } from '../core/time.js';
import { type Sql, sql } from '../db/sql.js';

/** A live request keeps its files until it expires or is cancelled. */
export const isLive = sql`r.state NOT IN ('EXPIRED', 'CANCELLED')`;

/** The file `f` has a changed copy in the restore area. Other UNVERIFIED files are at their primary path. */
export const isChanged = sql`(f.stage = 'UNVERIFIED' AND f.changed_disk_id IS NOT NULL)`;

export const isOrphan = sql`(f.stage = 'RESTORING'
  AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = f.id AND c.state = 'RUNNING'))`;

/** The restore disk with a readable copy of the file `f`, which is not being removed. */
export const diskOfCopy = sql`(CASE f.stage WHEN 'RESTORED' THEN f.disk_id WHEN 'UNVERIFIED' THEN f.changed_disk_id END)`;

/** Path of the copy of the file `f` below its mount point. Copies of renamed files keep their paths. */
export const placeOnDisk = sql`coalesce(f.disk_path, f.path)`;

/**
 * The text of a path as the broadest file system compares names: without case, normalisation, and all that is not
 * ASCII. So more paths are equal than on any disk; the only cost is another path for a copy.
 */
export const foldedPath = (path: Sql): Sql =>
  sql`regexp_replace(replace(lower(normalize(${path}, NFKD)), 'ß', 'ss'), '[^\\x01-\\x7F]+', '', 'g')`;

/** Name of the file `f` on tape, which it keeps when renamed here. */
export const pathOnTape = sql`coalesce(f.tape_path, f.path)`;

export const isAtPrimaryPlace = sql`(f.stage = 'ONDISK' OR (f.stage = 'UNVERIFIED' AND f.changed_disk_id IS NULL))`;

/** The file `f` is not withdrawn. The form makes PostgreSQL estimate most files even without statistics. */
export const isOffered = sql`((f.withdrawn_at > '-infinity') IS NOT TRUE)`;

export const isWithdrawn = sql`f.withdrawn_at IS NOT NULL`;

/** The withdrawn file `f` is on tape only, or purged: requests for it fail. A running recall continues. */
export const isRecalledNoMore = sql`(${isWithdrawn} AND (f.stage = 'ONTAPE' OR f.purged_at IS NOT NULL))`;

export const whyWithdrawn = sql`('withdrawn from the archive' || coalesce(': ' || f.withdrawn_why, ''))`;

export const isUnheld = sql`NOT EXISTS (SELECT FROM live_request_file h WHERE h.file_id = f.id)`;

/** A live request contains the file, looked up by key, regardless of PostgreSQL's estimates. */
export const isHeldByKeys = (fileId: Sql): Sql => sql`EXISTS (
  SELECT FROM (SELECT h.request_id FROM request_file h WHERE h.file_id = ${fileId} AND NOT h.is_ended AND h.state <> 'RELEASED' OFFSET 0) h
    CROSS JOIN LATERAL (SELECT FROM request r WHERE r.id = h.request_id AND ${isLive} OFFSET 0) r)`;

/** The recall `c` waits, for lookups by file. The index of the queue would be read whole for each file. */
export const isWaiting = sql`c.state <> 'RUNNING'`;

export const needsRoom = sql`c.not_before = 'infinity'`;

export function isResting(time: string | Sql): Sql {
  return sql`coalesce(v.retry_at > ${time}, false)`;
}

/** Library types whose drives find a file by its path: `findsBy` in tape/kind.ts; a test compares both. */
export const pathKinds: readonly string[] = ['command', 'ltfs'];

/** Drives need no position to read a file of the volume. Looked up once for a queue of millions. */
const isReadByPath = (volumeId: Sql): Sql => sql`(${volumeId} IN (
  SELECT o.id FROM volume o JOIN library b ON b.id = o.library_id WHERE b.kind = ANY(${pathKinds}::text[])))`;

/** The same, including staging libraries. */
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

/** The recall `c` waits, and its staging library must still be asked to stage the file. */
export function isUnasked(time: string, libraryId: number): Sql {
  return sql`(c.state = 'WAITING' AND (c.not_before IS NULL OR c.not_before <= ${time}) AND NOT EXISTS (
    SELECT FROM staging s WHERE s.file_id = c.file_id AND s.library_id = ${libraryId} AND s.state <> 'KEPT'))`;
}

export function isStagedAt(time: string, libraryId: number): Sql {
  return sql`EXISTS (SELECT FROM staging s JOIN volume v ON v.library_id = s.library_id
    WHERE s.file_id = c.file_id AND s.library_id = ${libraryId} AND s.state = 'READY' AND v.id = c.volume_id
      AND (s.ready_until IS NULL OR s.ready_until > ${time}))`;
}

/** A recall of `s.file_id` belongs to the library that stages it, or its copy there must be read back. */
export const isStagingWanted = sql`(EXISTS (SELECT FROM recall c JOIN volume v ON v.id = c.volume_id
  WHERE c.file_id = s.file_id AND v.library_id = s.library_id)
  OR EXISTS (SELECT FROM verification w JOIN tape_file f ON f.id = w.file_id JOIN volume v ON v.id = f.volume_id
    WHERE w.file_id = s.file_id AND v.library_id = s.library_id AND w.not_before IS NOT NULL AND f.stage = 'UNVERIFIED' AND f.verified IS NULL AND ${isOffered}))`;

export const isServed = sql`NOT EXISTS (SELECT FROM suspended_quota s WHERE s.quota_id = h.quota_id)`;

/** By the database's own clock: for leases, which a process must not extend by its view of the time. */
export const databaseNow = sql`timezone('utc', clock_timestamp())`;

/**
 * A lease, or a similar claim of a process, still runs. Leases are for 15 s: one that ends after this time was taken
 * before the clock was set back, and has expired.
 */
export function isRunning(until: Sql): Sql {
  return sql`coalesce(${until} BETWEEN ${databaseNow} AND ${databaseNow} + interval '15 minutes', false)`;
}

/** A live engine holds the drive `d`. */
export const isClaimed = isRunning(sql`d.lease_until`);

/** The claim of the drive `d` with this epoch still holds. */
export function isHeldUnder({ driveId, epoch, engineId }: { driveId: number; epoch: bigint; engineId: string }): Sql {
  return sql`(d.id = ${driveId} AND d.epoch = ${epoch} AND d.engine_id = ${engineId}::uuid)`;
}

/** Older measurements are ignored; engines measure every ten seconds. */
export const FRESH_SECONDS = 60;

/** Another host has recently seen the disk `k` without a problem, apart from a full disk. */
export function isSeenElsewhere(now: string, host: string): Sql {
  return sql`EXISTS (SELECT FROM disk_measurement m WHERE m.disk_id = k.id AND m.host <> ${host} AND (m.problem IS NULL OR m.free IS NOT NULL)
    AND m.measured_at >= ${addSeconds(now, -FRESH_SECONDS)}::timestamp)`;
}
