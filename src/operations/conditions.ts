/** SQL conditions that several operations share. */
import { type Sql, sql } from '../database/sql.js';

/** A request is live until it expires or is cancelled; only live requests hold files. `r` is the request. */
export const isLive = sql`r.state NOT IN ('EXPIRED', 'CANCELLED')`;

/**
 * What stands for the file `f` is a copy in the restore area that was changed by hand: it counts as on disk only while that
 * is there, which an engine has to look at. Any other file at UNVERIFIED or ONDISK is at its primary place.
 */
export const isChanged = sql`(f.stage = 'UNVERIFIED' AND f.changed_disk_id IS NOT NULL)`;

/** The file `f` is said to be in the restore area, and no copy of it is noted: nobody can read it there. */
export const isWithoutCopy = sql`(f.stage = 'RESTORED' AND f.disk_id IS NULL)`;

/** The file `f` is said to be on its way, and no recall runs. */
export const isOrphan = sql`(f.stage = 'RESTORING'
  AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = f.id AND c.state = 'RUNNING'))`;

/** The id of the restore disk where the copy of the file `f` can be read: one that is on its way off is none any more. */
export const diskOfCopy = sql`(CASE f.stage WHEN 'RESTORED' THEN f.disk_id WHEN 'UNVERIFIED' THEN f.changed_disk_id END)`;

/** Where the copy of the file `f` is, or is being put, below its mount point: renamed files keep the copies that they have where these are. */
export const placeOnDisk = sql`coalesce(f.disk_path, f.path)`;

/** By which a library that goes by paths knows the file `f`: a file that is renamed here keeps its name on tape. */
export const pathOnTape = sql`coalesce(f.tape_path, f.path)`;

/** The file `f` is where it was archived from, and not in the restore area. */
export const isAtPrimaryPlace = sql`(f.stage = 'ONDISK' OR (f.stage = 'UNVERIFIED' AND f.changed_disk_id IS NULL))`;

/**
 * The file `f` is in the lists, and may be asked for: nobody has withdrawn it. Said so that PostgreSQL takes it for true of most files also
 * before it has figures of the column: of IS NULL it would believe the opposite.
 */
export const isOffered = sql`((f.withdrawn_at > '-infinity') IS NOT TRUE)`;

/** The other way round; found by an index. */
export const isWithdrawn = sql`f.withdrawn_at IS NOT NULL`;

/**
 * The file `f` was withdrawn, and is on tape alone, or forgotten, wherever it was: whoever asks to have it back is told so. A recall that runs by
 * then goes on.
 */
export const isRecalledNoMore = sql`(${isWithdrawn} AND (f.stage = 'ONTAPE' OR f.forgotten_at IS NOT NULL))`;

/** What those are told who hold the file `f`. */
export const whyWithdrawn = sql`('withdrawn from the archive' || coalesce(': ' || f.withdrawn_why, ''))`;

/** No live request holds the file. `f` is the file. */
export const isUnheld = sql`NOT EXISTS (SELECT FROM live_hold h WHERE h.file_id = f.id)`;

/** A live request holds the file of that id. It is looked up for each file, whatever PostgreSQL believes of the tables. */
export const isHeldByKeys = (fileId: Sql): Sql => sql`EXISTS (
  SELECT FROM (SELECT h.request_id FROM hold h WHERE h.file_id = ${fileId} AND h.state <> 'RELEASED' OFFSET 0) h
    CROSS JOIN LATERAL (SELECT FROM request r WHERE r.id = h.request_id AND ${isLive} OFFSET 0) r)`;

/**
 * The recall `c` waits. Where recalls are looked up by their files: said in the words of the index of the queue, which is
 * for whoever looks through it, PostgreSQL would take that one while it believes the queue to be empty, and read all of it
 * for each file.
 */
export const isWaiting = sql`c.state <> 'RUNNING'`;

/** The recall `c` waits until a restore disk has room for it, at whatever time that is. */
export const needsRoom = sql`c.not_before = 'infinity'`;

/** The volume `v` is left alone at that time, since visits to it have broken down (health/circuits.ts). */
export function isLeftAlone(time: string | Sql): Sql {
  return sql`coalesce(v.retry_at > ${time}, false)`;
}

/** Kinds of libraries with drives that find a file on its volume by its path: `findsBy` in tape/kind.ts, with which a test compares it. */
export const pathKinds: readonly string[] = ['command', 'ltfs'];

/** Files of the volume are read from drives, and need no position for that. Looked up once for a queue of millions, whose files may have none. */
const isReadByPath = (volumeId: Sql): Sql => sql`(${volumeId} IN (
  SELECT o.id FROM volume o JOIN library b ON b.id = o.library_id WHERE b.kind = ANY(${pathKinds}::text[])))`;

/** The same, also of staging libraries, all of which go by paths. */
export const isByPath = (volumeId: Sql): Sql => sql`EXISTS (SELECT FROM volume o JOIN library b ON b.id = o.library_id
  WHERE o.id = ${volumeId} AND (b.contract = 'STAGING' OR b.kind = ANY(${pathKinds}::text[])))`;

/** Nobody knows where on tape the file of the recall `c` is. */
export const isUnplaced = sql`(c.volume_id IS NULL OR (c.position IS NULL AND NOT ${isByPath(sql`c.volume_id`)}))`;

/** The same of the file `f`, the other way round. */
export const hasPlace = sql`(f.volume_id IS NOT NULL AND (f.position IS NOT NULL OR ${isByPath(sql`f.volume_id`)}))`;

/** The same of its second copy. */
export const hasCopyPlace = sql`(f.copy_volume_id IS NOT NULL AND (f.copy_position IS NOT NULL OR ${isByPath(sql`f.copy_volume_id`)}))`;

/** There is another copy of the file `f`, of which nothing bad is known. */
export const hasOther = sql`(${hasCopyPlace} AND ${isOffered} AND (f.copy_error IS NULL
  OR f.copy_failed_at < (SELECT w.created_at FROM recall w WHERE w.file_id = f.id)))`;

/** The volume is one of a staging library. */
export const isOfStaging = (volumeId: Sql): Sql => sql`EXISTS (
  SELECT FROM volume o JOIN library b ON b.id = o.library_id WHERE o.id = ${volumeId} AND b.contract = 'STAGING')`;

/** A drive can read the file of the recall `c`, as far as the catalogue says where it is. */
export const isReadable = sql`(c.volume_id IS NOT NULL AND (c.position IS NOT NULL OR ${isReadByPath(sql`c.volume_id`)}))`;

/** The recall `c` waits, and is to be tried by then. */
export function isReadyBy(time: string | Sql): Sql {
  return sql`c.state = 'WAITING' AND ${isReadable} AND (c.not_before IS NULL OR c.not_before <= ${time})`;
}

/** The recall `c`, of a volume of a staging library, waits, and the library is to be asked for its file at that time. */
export function isUnasked(time: string, libraryId: number): Sql {
  return sql`(c.state = 'WAITING' AND (c.not_before IS NULL OR c.not_before <= ${time}) AND NOT EXISTS (
    SELECT FROM staging s WHERE s.file_id = c.file_id AND s.library_id = ${libraryId} AND s.state <> 'KEPT'))`;
}

/** The file of the recall `c` can be read at its staging library at that time. */
export function isStagedAt(time: string, libraryId: number): Sql {
  return sql`EXISTS (SELECT FROM staging s JOIN volume v ON v.library_id = s.library_id
    WHERE s.file_id = c.file_id AND s.library_id = ${libraryId} AND s.state = 'READY' AND v.id = c.volume_id
      AND (s.ready_until IS NULL OR s.ready_until > ${time}))`;
}

/** A recall of the file `s.file_id` waits or runs, and is one of the library that was asked for it; or its copy there is to be read back. */
export const isStagingWanted = sql`(EXISTS (SELECT FROM recall c JOIN volume v ON v.id = c.volume_id
  WHERE c.file_id = s.file_id AND v.library_id = s.library_id)
  OR EXISTS (SELECT FROM verification w JOIN tape_file f ON f.id = w.file_id JOIN volume v ON v.id = f.volume_id
    WHERE w.file_id = s.file_id AND v.library_id = s.library_id AND w.not_before IS NOT NULL AND f.stage = 'UNVERIFIED' AND f.verified IS NULL AND ${isOffered}))`;

/** The recalls of the quota of the hold `h` are in service. */
export const isServed = sql`NOT EXISTS (SELECT FROM suspended_quota s WHERE s.quota_id = h.quota_id)`;

/** Whether an engine that lives holds the drive `d`: one that is gone holds it no longer than its lease. */
export const isClaimed = sql`coalesce(d.lease_until >= timezone('utc', clock_timestamp()), false)`;
