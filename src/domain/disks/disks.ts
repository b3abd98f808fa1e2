/** Adds, changes, lists and removes restore disks. */
import path from 'node:path';
import { InUseError, InvalidInputError, NotFoundError, oneLine, quote } from '../../core/errors.js';
import { plural } from '../../core/text/plural.js';
import { addSeconds } from '../../core/time.js';
import { lockDisks } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import type { RestoreDisk } from '../../generated/prisma/client.js';
import { type AuditEntry, audited } from '../audit/audited.js';
import { FRESH_SECONDS, isChanged, isSeenElsewhere, needsRoom } from '../conditions.js';
import type { Context } from '../context.js';
import { describeFull, isFull, takesAgain } from '../health/circuits.js';
import { checkBytes, checkPattern } from '../input.js';
import { keyedList } from '../page-keys.js';
import { allow } from '../policy.js';

/**
 * A restore disk. Its byte counts are its allocation (`size`), its copies (`used`), and the reservations of running
 * recalls (`reserved`).
 */
export type DiskRow = Pick<RestoreDisk, 'id' | 'mountpoint' | 'size' | 'used' | 'reserved'>;

const diskColumns = sql`k.id, k.mountpoint, k.size, k.used, k.reserved`;

interface Allocation {
  mountpoint: string;
  size: bigint;
}

/**
 * Adds a restore disk, or changes a registered disk's allocation. After the change, the disk no longer counts as full.
 * @throws InvalidInputError
 */
export async function setDisk(ctx: Context, input: Allocation): Promise<DiskRow> {
  const { mountpoint: object, size } = input;
  return await audited(ctx, { operation: 'setDisk', kind: 'DISK', object, given: { size } }, async (auditEntry) => {
    const { mountpoint } = checkAllocation(input);
    await refuseNested(ctx, mountpoint);
    const change = sql`INSERT INTO restore_disk AS k (mountpoint, size) VALUES (${mountpoint}, ${size})
      ON CONFLICT (mountpoint) DO UPDATE SET size = excluded.size, fulls = 0, ${takesAgain}`;
    return await changeDisk(ctx, mountpoint, change, auditEntry);
  });
}

/**
 * @throws InvalidInputError, NotFoundError
 */
export async function resizeRestoreDisk(ctx: Context, input: Allocation): Promise<DiskRow> {
  const { mountpoint: object, size } = input;
  return await audited(
    ctx,
    { operation: 'resizeRestoreDisk', kind: 'DISK', object, given: { size } },
    async (auditEntry) => {
      const { mountpoint } = checkAllocation(input);
      const change = sql`UPDATE restore_disk k SET size = ${size}, fulls = 0, ${takesAgain} WHERE k.mountpoint = ${mountpoint}`;
      return await changeDisk(ctx, mountpoint, change, auditEntry);
    },
  );
}

async function changeDisk(ctx: Context, mountpoint: string, change: Sql, auditEntry: AuditEntry): Promise<DiskRow> {
  return await transaction(ctx.db.pool, 'changeDisk', async (tx) => {
    const [disk] = await tx.query<DiskRow>(sql`${change} RETURNING ${diskColumns}`);
    if (!disk) throw new NotFoundError(`there is no restore disk ${quote(mountpoint)}`);
    await tx.query(auditEntry({ object: mountpoint }));
    await notifyRoom(tx);
    return disk;
  });
}

function checkAllocation({ mountpoint, size }: Allocation): Allocation {
  return { mountpoint: checkMountpoint(mountpoint), size: checkBytes('size', size) };
}

function checkMountpoint(given: string): string {
  if (path.isAbsolute(checkPattern('mountpoint', given))) return path.resolve(given);
  throw new InvalidInputError('mountpoint', `must be an absolute path, not ${quote(given)}`);
}

export async function notifyRoom(tx: Transaction): Promise<void> {
  await tx.query(sql`SELECT pg_notify('tapegate', 'room')`);
}

/**
 * Rejects a new restore disk that is inside another restore disk, or contains one. If restore disks could be nested,
 * Tapegate would mistake copies on the inner disk for files on the outer disk. The function `real` resolves symbolic
 * links in a path.
 * @throws InvalidInputError
 */
export async function refuseNested(
  ctx: Context,
  mountpoint: string,
  real: (mountpoint: string) => Promise<string> = async (it) => it,
): Promise<void> {
  const disks = await listDisks(ctx);
  if (disks.some((disk) => disk.mountpoint === mountpoint)) return;
  const realPath = await real(mountpoint);
  for (const other of disks) {
    const otherPath = await real(other.mountpoint);
    if (!liesIn(realPath, otherPath) && !liesIn(otherPath, realPath)) continue;
    const problem = `must neither contain restore disk ${other.mountpoint} nor be inside it: ${quote(mountpoint)}`;
    throw new InvalidInputError('mountpoint', problem);
  }
}

function liesIn(inner: string, outer: string): boolean {
  return inner === outer || inner.startsWith(outer === '/' ? outer : `${outer}/`);
}

const isSuspended = sql`EXISTS (SELECT FROM suspended_disk s WHERE s.disk_id = k.id)`;

/**
 * Returns the SQL condition that is true if the disk `k` has no room left.
 * @param free free bytes of the disk's file system; null if unknown
 */
const hasNoRoom = (free: Sql): Sql => sql`least(k.size - k.used, ${free}) <= k.reserved`;

/**
 * SQL condition that is true if the disk `k` has too little room for a waiting recall. This is the case if the disk is
 * not suspended, and a recall nevertheless waits for room.
 */
const isTooSmall: Sql = sql`(NOT ${isSuspended} AND EXISTS (SELECT FROM recall c WHERE ${needsRoom}))`;

/** Returns the SQL condition that is true if the disk `k` has no room, or too little room for a waiting recall. */
export const lacksRoom = (free: Sql): Sql => sql`(${hasNoRoom(free)} OR ${isTooSmall})`;

export async function ensureDisk(ctx: Context, disk: { mountpoint: string; size: bigint }): Promise<void> {
  await ctx.db.pool.query(
    sql`INSERT INTO restore_disk (mountpoint, size) SELECT ${disk.mountpoint}, ${disk.size} WHERE NOT EXISTS (SELECT FROM restore_disk)
     ON CONFLICT (mountpoint) DO NOTHING`,
  );
}

export async function listDisks(ctx: Context): Promise<DiskRow[]> {
  return await ctx.db.rows<DiskRow>(sql`SELECT ${diskColumns} FROM restore_disk k ORDER BY k.mountpoint`);
}

/**
 * Returns the unused bytes in the allocations of all disks that are neither full nor suspended; undefined if no disk is
 * registered.
 */
export async function readRoom(ctx: Context): Promise<bigint | undefined> {
  const [row] = await ctx.db.rows<{ disks: number; room: string }>(
    sql`SELECT count(*)::int AS disks, coalesce(sum(greatest(k.size - k.used - k.reserved, 0))
          FILTER (WHERE NOT ${isFull(ctx)} AND NOT ${isSuspended}), 0)::text AS room
        FROM restore_disk k`,
  );
  return row && row.disks > 0 ? BigInt(row.room) : undefined;
}

export function listDisksByPage(ctx: Context) {
  allow(ctx, 'listDisksByPage');
  return keyedList<number, RestoreDisk>(ctx, { rows: sql`restore_disk k WHERE true`, id: sql`k.id` }, (at, id, query) =>
    at.db.prisma.restoreDisk.findMany({ ...query, where: { id }, orderBy: { id: 'asc' } }),
  );
}

interface DiskFigures {
  size: bigint;
  used: bigint;
  reserved: bigint;
  fileSystem?: FileSystemRoom | undefined;
}

export interface FileSystemRoom {
  freeBytes: bigint;
  reserved: bigint;
}

/** Chooses the disk with the most room. Returns undefined if no disk has room for `size` bytes. */
export function chooseDisk<D extends DiskFigures>(disks: readonly D[], size: bigint): D | undefined {
  let best: D | undefined;
  for (const disk of disks) {
    if (roomOf(disk) >= size && (!best || isRoomier(disk, best))) best = disk;
  }
  return best;
}

function isRoomier(disk: DiskFigures, other: DiskFigures): boolean {
  const [room, rooms] = [roomOf(disk), roomOf(other)];
  return room === rooms ? roomByAllocation(disk) > roomByAllocation(other) : room > rooms;
}

/**
 * Returns the room for new files on a disk, in bytes. The room is negative if recalls have reserved more bytes than the
 * disk has free.
 */
export function roomOf(disk: DiskFigures): bigint {
  const allocated = roomByAllocation(disk);
  if (!disk.fileSystem) return allocated;
  const free = roomByFreeSpace(disk.fileSystem);
  if (free < allocated) return free;
  return allocated;
}

export function roomByAllocation(disk: DiskFigures): bigint {
  return disk.size - disk.used - disk.reserved;
}

/**
 * Returns a file system's free bytes minus all reservations. Subtracts the whole size of each running recall's file,
 * because the recall might not have written any bytes yet.
 */
export function roomByFreeSpace({ freeBytes, reserved }: FileSystemRoom): bigint {
  return freeBytes - reserved;
}

export async function readDisks({ db }: Context, ids: readonly number[]): Promise<Map<number, RestoreDisk>> {
  const disks = await db.prisma.restoreDisk.findMany({ where: { id: { in: [...ids] } } });
  return new Map(disks.map((disk) => [disk.id, disk]));
}

/**
 * An engine's measurement of a restore disk. Gateways do not measure disks, because a hanging disk would block a
 * gateway. `free` and `problem` are null if no engine has measured the disk recently.
 */
export interface DiskMeasurement {
  free: bigint | null;
  /**
   * Problem with the disk, shown to users. A disk that engines treat as full also has a problem, even if its file
   * system has free space.
   */
  problem: string | null;
}

const KEPT_SECONDS = 3600;
const MAX_PROBLEM = 1000;

export async function listMeasurable(ctx: Context): Promise<Pick<DiskRow, 'id' | 'mountpoint'>[]> {
  return await ctx.db.rows<Pick<DiskRow, 'id' | 'mountpoint'>>(
    sql`SELECT k.id, k.mountpoint FROM restore_disk k
        WHERE NOT EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) ORDER BY k.id`,
  );
}

/** Returns the restore disks that are not suspended. */
export async function listInService(ctx: Context): Promise<Pick<DiskRow, 'id' | 'mountpoint'>[]> {
  return await ctx.db.rows<Pick<DiskRow, 'id' | 'mountpoint'>>(
    sql`SELECT k.id, k.mountpoint FROM restore_disk k WHERE NOT ${isSuspended} ORDER BY k.id`,
  );
}

export async function findSeenElsewhere(ctx: Context, host: string, diskIds: readonly number[]): Promise<Set<number>> {
  const rows = await ctx.db.rows<{ id: number }>(
    sql`SELECT k.id FROM restore_disk k WHERE k.id = ANY(${diskIds}::int[]) AND ${isSeenElsewhere(ctx.now(), host)}`,
  );
  return new Set(rows.map(({ id }) => id));
}

export async function recordMeasurements(
  ctx: Context,
  host: string,
  seen: readonly (DiskMeasurement & { diskId: number })[],
): Promise<void> {
  const now = ctx.now();
  const [ids, free] = [seen.map(({ diskId }) => diskId), seen.map((disk) => disk.free)];
  const problems = seen.map(({ problem }) => (problem === null ? null : oneLine(problem, MAX_PROBLEM)));
  await ctx.db.pool.query(
    sql`INSERT INTO disk_measurement (disk_id, host, free, problem, measured_at)
        SELECT s.id, ${host}, s.free, s.problem, ${now}
        FROM unnest(${ids}::int[], ${free}::bigint[], ${problems}::text[]) AS s (id, free, problem) ORDER BY s.id
        ON CONFLICT (disk_id, host) DO UPDATE
          SET free = excluded.free, problem = excluded.problem, measured_at = excluded.measured_at`,
  );
  await ctx.db.pool.query(
    sql`DELETE FROM disk_measurement WHERE measured_at < ${addSeconds(now, -KEPT_SECONDS)}::timestamp`,
  );
}

/**
 * Returns, for each disk id, the smallest number of free bytes that any host has measured, and the problems that hosts
 * have reported. For a failing disk, returns only the reason why the disk is suspended.
 */
export async function readMeasurements(
  ctx: Context,
  diskIds: readonly number[],
): Promise<Map<number, DiskMeasurement>> {
  const rows = await ctx.db.rows<{
    id: number;
    free: string | null;
    problem: string | null;
    full: string | null;
  }>(
    sql`SELECT k.id, CASE WHEN g.disk_id IS NULL THEN m.bytes::text END AS free,
          CASE WHEN g.disk_id IS NULL THEN m.problem ELSE s.reason END AS problem,
          CASE WHEN g.disk_id IS NOT NULL THEN NULL WHEN ${isFull(ctx)} THEN k.full_reason
            WHEN ${hasNoRoom(sql`m.bytes`)} THEN 'no room left' WHEN ${isTooSmall} THEN 'waiting recalls do not fit' END AS full
        FROM restore_disk k LEFT JOIN failing_disk g ON g.disk_id = k.id LEFT JOIN suspended_disk s ON s.disk_id = k.id
          CROSS JOIN LATERAL (
            SELECT min(m.free) AS bytes, string_agg(m.host || ': ' || m.problem, '; ' ORDER BY m.host) AS problem
            FROM disk_measurement m
            WHERE m.disk_id = k.id AND m.measured_at >= ${addSeconds(ctx.now(), -FRESH_SECONDS)}::timestamp
          ) m WHERE k.id = ANY(${diskIds}::int[])`,
  );
  return new Map(
    rows.map(({ id, free, problem, full }) => {
      const problems = [full === null ? null : describeFull(full), problem].filter((part) => part !== null);
      return [id, { free: free === null ? null : BigInt(free), problem: problems.join('; ') || null }];
    }),
  );
}

const MAX_HOSTS = 100;

/** Returns the hosts whose engines measured a disk within the last minute, by disk id. */
export async function readHostsOf(ctx: Context, diskIds: readonly number[]): Promise<Map<number, string[]>> {
  allow(ctx, 'readHostsOf');
  const rows = await ctx.db.rows<{ id: number; hosts: string[] }>(
    sql`SELECT k.id, ARRAY(
          SELECT m.host FROM disk_measurement m
          WHERE m.disk_id = k.id AND m.measured_at >= ${addSeconds(ctx.now(), -FRESH_SECONDS)}::timestamp
          ORDER BY m.host LIMIT ${MAX_HOSTS}) AS hosts
        FROM restore_disk k WHERE k.id = ANY(${diskIds}::int[])`,
  );
  return new Map(rows.map(({ id, hosts }) => [id, hosts]));
}

export interface RemovedDisk extends DiskRow {
  /** At most 100 paths of catalogue files for which the disk might still contain stale partial files. */
  stalePartialFiles: string[];
}

const MOST_STALE = 100;

/**
 * Deletes the record of a restore disk that contains no copies. Does not remove files from the disk.
 * @throws InvalidInputError, NotFoundError, InUseError
 */
export async function removeRestoreDisk(ctx: Context, given: string): Promise<RemovedDisk> {
  return await audited(ctx, { operation: 'removeRestoreDisk', kind: 'DISK', object: given }, async (auditEntry) => {
    const mountpoint = checkMountpoint(given);
    return await transaction(ctx.db.pool, 'removeRestoreDisk', async (tx) => {
      // lock the disk in a separate statement, so that the next statement sees copies that other transactions recorded
      // while this transaction waited for the lock
      await lockDisks(tx, sql`k.mountpoint = ${mountpoint}`);
      const [disk] = await tx.query<RemovedDisk & Contents>(
        sql`SELECT k.id, k.mountpoint, k.size, k.used, k.reserved, c.copies, c.bytes AS "copyBytes",
              (SELECT count(*)::int FROM recall c WHERE c.disk_id = k.id) AS running,
              (SELECT count(*)::int FROM tape_file f WHERE f.changed_disk_id = k.id AND ${isChanged})
                + (SELECT count(*)::int FROM kept_copy c WHERE c.disk_id = k.id) AS changed,
              ARRAY(SELECT DISTINCT f.path FROM stale_partial_file l JOIN tape_file f ON f.id = l.file_id WHERE l.disk_id = k.id
                ORDER BY f.path LIMIT ${MOST_STALE}) AS "stalePartialFiles",
              EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) AS "isFailing",
              EXISTS (SELECT FROM suspended_disk s WHERE s.disk_id = k.id AND s.mode = 'DRAINING') AS "isDraining"
            FROM restore_disk k CROSS JOIN LATERAL (
              SELECT count(*)::int AS copies, coalesce(sum(f.size), 0) AS bytes FROM tape_file f WHERE f.disk_id = k.id
            ) c WHERE k.mountpoint = ${mountpoint}`,
      );
      if (!disk) throw new NotFoundError(`there is no restore disk ${quote(mountpoint)}`);
      const { copies, copyBytes, running, changed, isFailing, isDraining, ...row } = disk;
      refuseInUse(disk);
      await tx.query(sql`DELETE FROM restore_disk k WHERE k.id = ${row.id}`);
      await tx.query(sql`DELETE FROM suspension WHERE kind = 'DISK' AND name = ${mountpoint}`);
      await tx.query(auditEntry());
      return row;
    });
  });
}

interface Contents {
  copies: number;
  copyBytes: bigint;
  running: number;
  changed: number;
  isFailing: boolean;
  isDraining: boolean;
}

function refuseInUse(disk: RemovedDisk & Contents): void {
  const name = `restore disk ${quote(disk.mountpoint)}`;
  const { copies, copyBytes, running, changed, stalePartialFiles, isFailing, isDraining } = disk;
  if (copies > 0 || running > 0) {
    const remedy = isDraining
      ? 'the disk is draining, and will be empty when the requests for these copies have ended'
      : 'drain the disk, and remove it when it is empty';
    throw new InUseError(
      `${name} contains ${plural(copies, 'copy', 'copies')} (${plural(copyBytes, 'byte')} in total), and has ${plural(running, 'running recall')}: ${remedy}`,
    );
  }
  if (changed > 0) {
    throw new InUseError(
      `${name} contains ${plural(changed, 'copy that was', 'copies that were')} changed outside Tapegate and that no other disk contains: move ${changed === 1 ? 'this copy' : 'these copies'} elsewhere, and run "tapegate doctor --repair"`,
    );
  }
  if (stalePartialFiles.length > 0 && !isFailing) {
    throw new InUseError(
      `${name} may contain stale partial files of ${plural(stalePartialFiles.length, 'file')}, such as ${quote(stalePartialFiles[0] ?? '')}: engines remove them within a minute; try again later`,
    );
  }
}
