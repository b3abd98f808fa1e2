/**
 * Reserves room for recalls on restore disks. A recall starts only if the file fits both in a disk's allocation and in
 * the disk's free space. All disks are locked while room is reserved.
 *
 * Engines measure the disks before the transaction that reserves room, because a disk might hang while locks are held.
 * Engines subtract all reservations from the measured free space, because recalls might have written the reserved bytes
 * since the measurement.
 */

import { formatBytes } from '../../core/text/bytes.js';
import { locking } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import type { SuspensionMode } from '../../generated/prisma/enums.js';
import { needsRoom } from '../conditions.js';
import type { Context } from '../context.js';
import { describeFull, isFull } from '../health/circuits.js';
import {
  chooseDisk,
  type DiskRow,
  type FileSystemRoom,
  findSeenElsewhere,
  notifyRoom,
  roomByAllocation,
  roomByFreeSpace,
  roomOf,
} from './disks.js';

export type DiskSpace =
  | {
      freeBytes: bigint;
      fileSystem: string;
      /** Reason why the disk does not accept more files, although it has free space; shown to users. */
      full?: string | undefined;
    }
  | { problem: string; absentOn?: string | undefined };

export interface MeasuredDisk extends DiskRow {
  version: string;
}

export type MeasureDisks = (disks: readonly MeasuredDisk[]) => Promise<ReadonlyMap<number, DiskSpace>>;

/**
 * Measurements of disks by disk id. `reserved` is the number of bytes reserved just before the measurement.
 * `reservedEver` is the sum in bytes of all reservations made on the disk before the measurement.
 */
type SeenDisks = ReadonlyMap<
  number,
  { space: DiskSpace; reserved: bigint; reservedEver: bigint; isElsewhere: boolean }
>;

interface Candidate extends DiskRow {
  /** Free and reserved bytes of the disk's file system. Disks on the same file system share one object. */
  fileSystem: FileSystemRoom | undefined;
  problem: string | undefined;
  /**
   * Whether the disk has a temporary problem, which might end without an operator's action. A disk without enough room
   * does not have a temporary problem.
   */
  isAway: boolean;
  /** Whether the disk is missing on this host, but another host has recently measured it. */
  isElsewhere: boolean;
  isSuspended: boolean;
}

interface Unplaced {
  fileId: bigint;
  size: bigint;
}

export interface Reservation extends Unplaced {
  diskId: number;
}

const suspensionWords: Record<SuspensionMode, string> = { IMMEDIATE: 'suspended', DRAINING: 'draining' };

/**
 * Measures all disks that are not failing. The caller must not hold locks, because a slow disk delays the measurement.
 */
export async function measureDisks(ctx: Context, measure: MeasureDisks): Promise<SeenDisks> {
  const rows = await ctx.db.rows<FoundDisk>(allDisks(ctx));
  return await seeDisks(ctx, rows, measure);
}

async function seeDisks(ctx: Context, rows: readonly FoundDisk[], measure: MeasureDisks): Promise<SeenDisks> {
  const spaces = await measure(rows.filter((disk) => !disk.isFailing));
  const absent = [...spaces].flatMap(([id, space]) =>
    'absentOn' in space && space.absentOn !== undefined ? [{ id, host: space.absentOn }] : [],
  );
  const [first] = absent;
  const ids = absent.map(({ id }) => id);
  const elsewhere = first ? await findSeenElsewhere(ctx, first.host, ids) : new Set<number>();
  return new Map(
    rows.flatMap(({ id, reserved, reservedEver }) => {
      const space = spaces.get(id);
      return space ? [[id, { space, reserved, reservedEver, isElsewhere: elsewhere.has(id) }]] : [];
    }),
  );
}

/**
 * Reserves room on a disk for each recall. If no disk has room for a recall, the recall stays in the queue, with an
 * error that states how much room each disk has. The measurements `seen` must have been made before the transaction
 * began.
 */
export async function reserve<R extends Unplaced>(
  ctx: Context,
  tx: Transaction,
  waiting: readonly R[],
  seen: SeenDisks,
): Promise<{ recall: R; disk: DiskRow }[]> {
  if (waiting.length === 0) return [];
  const disks = findRoom(await tx.query<FoundDisk>(sql`${allDisks(ctx)} ORDER BY k.id ${locking.disk}`), seen);
  const open = disks.filter((disk) => disk.problem === undefined);
  const placed: { recall: R; disk: DiskRow }[] = [];
  const unplaced: R[] = [];
  for (const recall of waiting) {
    const disk = chooseDisk(open, recall.size);
    if (disk) {
      disk.reserved += recall.size;
      if (disk.fileSystem) disk.fileSystem.reserved += recall.size;
      placed.push({ recall, disk });
    } else unplaced.push(recall);
  }
  const [ids, reserved] = [open.map((disk) => disk.id), open.map((disk) => disk.reserved)];
  await tx.query(
    sql`UPDATE restore_disk k SET reserved = n.reserved, reserved_ever = k.reserved_ever + n.reserved - k.reserved
        FROM unnest(${ids}::int[], ${reserved}::bigint[]) AS n (id, reserved)
        WHERE k.id = n.id AND k.reserved <> n.reserved`,
  );
  // do not put aside a recall that fits on a disk of another host, because an engine on that host can start the recall
  const isOthers = ({ size }: R) => disks.some((disk) => disk.isElsewhere && roomByAllocation(disk) >= size);
  const aside = unplaced.filter((recall) => !isOthers(recall));
  if (aside.length > 0) {
    await putAside(tx, aside, disks);
    // an operator might have resumed a disk while this transaction waited for the disk's lock, so engines must look for
    // room again
    if (disks.some(({ isSuspended }) => isSuspended)) await notifyRoom(tx);
  }
  return placed;
}

type FoundDisk = MeasuredDisk & {
  /**
   * Sum in bytes of all reservations ever made on the disk. Subtracting the sum at a measurement yields the bytes
   * reserved after the measurement.
   */
  reservedEver: bigint;
  mode: SuspensionMode | null;
  reason: string | null;
  isFailing: boolean;
  isRetried: boolean;
  full: string | null;
};

const allDisks = (
  ctx: Context,
): Sql => sql`SELECT k.id, k.mountpoint, k.size, k.used, k.reserved, k.reserved_ever AS "reservedEver",
     k.xmin::text AS version, s.mode, s.reason, CASE WHEN ${isFull(ctx)} THEN k.full_reason END AS full,
     EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) AS "isFailing",
     EXISTS (SELECT FROM suspension e WHERE e.kind = 'DISK' AND e.name = k.mountpoint AND e.retry_at IS NOT NULL) AS "isRetried"
   FROM restore_disk k LEFT JOIN suspended_disk s ON s.disk_id = k.id`;

function findRoom(rows: readonly FoundDisk[], seen: SeenDisks): Candidate[] {
  const fileSystems = new Map<string, FileSystemRoom>();
  return rows.map((row) => {
    const { id, mountpoint, size, used, reserved, mode, reason } = row;
    const disk = { id, mountpoint, size, used, reserved, isSuspended: mode !== null };
    const look = seen.get(id);
    const space = look?.space ?? { problem: `the free space of ${mountpoint} is unknown` };
    const isElsewhere = mode === null && look?.isElsewhere === true;
    const why = reason ? ` (${reason})` : '';
    const suspended = mode !== null ? `${mountpoint} is ${suspensionWords[mode]}${why}` : undefined;
    if (!look || 'problem' in space) {
      const problem = suspended ?? ('problem' in space ? space.problem : '');
      return { ...disk, fileSystem: undefined, problem, isAway: mode === null || row.isRetried, isElsewhere };
    }
    const fileSystem = fileSystems.get(space.fileSystem) ?? { freeBytes: space.freeBytes, reserved: 0n };
    fileSystems.set(space.fileSystem, fileSystem);
    if (space.freeBytes < fileSystem.freeBytes) fileSystem.freeBytes = space.freeBytes;
    fileSystem.reserved += unwritten(row, look);
    const full = row.full ?? space.full;
    const problem = suspended ?? (full === undefined ? undefined : `${mountpoint} is ${describeFull(full)}`);
    return { ...disk, fileSystem, problem, isAway: mode !== null && row.isRetried, isElsewhere };
  });
}

/**
 * Returns how many bytes recalls might have written to the disk after the measurement. The caller must subtract this
 * number from the measured free space.
 */
function unwritten(now: FoundDisk, look: { reserved: bigint; reservedEver: bigint }): bigint {
  const reservedSince = now.reservedEver - look.reservedEver;
  const known = look.reserved + reservedSince;
  if (known < now.reserved) return now.reserved;
  return known;
}

/**
 * Sets each recall's error to the reason why no disk has room for the file. The error class is TRANSIENT if a disk with
 * a temporary problem would have room, and SPACE otherwise.
 */
async function putAside(tx: Transaction, unplaced: readonly Unplaced[], disks: readonly Candidate[]): Promise<void> {
  const isAway = (disk: Candidate, size: bigint) => disk.isAway && roomByAllocation(disk) >= size;
  const fileIds = unplaced.map((recall) => recall.fileId);
  const classes = unplaced.map(({ size }) => (disks.some((disk) => isAway(disk, size)) ? 'TRANSIENT' : 'SPACE'));
  const errors = unplaced.map(({ size }) => describeLimits(size, disks));
  await tx.query(
    sql`UPDATE recall c SET error_class = u.error_class, error = u.error, not_before = 'infinity'
        FROM unnest(${fileIds}::bigint[], ${classes}::"ErrorClass"[], ${errors}::text[]) AS u (file_id, error_class, error)
        WHERE c.file_id = u.file_id AND (${needsRoom}) IS NOT TRUE`,
  );
}

const WOKEN_RECALLS = 5000;

/**
 * Clears the errors of recalls that wait for room, so that engines start these recalls. Clears the errors of the oldest
 * recalls first, and only of as many recalls as fit on the disks. Does not reserve room.
 */
export async function wakeForRoom(ctx: Context, measure: MeasureDisks): Promise<number> {
  const isAwaited = sql`EXISTS (SELECT FROM recall c WHERE ${needsRoom})`;
  const rows = await ctx.db.rows<FoundDisk>(sql`${allDisks(ctx)} WHERE ${isAwaited}`);
  const open = findRoom(rows, await seeDisks(ctx, rows, measure)).filter((disk) => disk.problem === undefined);
  const rooms = open.map(roomOf).filter((room) => room >= 0n);
  if (rooms.length === 0) return 0;
  const total = rooms.reduce((sum, room) => sum + room);
  const { rows: woken } = await ctx.db.pool.query(
    sql`WITH woken AS (
          UPDATE recall SET not_before = NULL, error_class = NULL, error = NULL WHERE file_id IN (
            SELECT c.file_id FROM recall c JOIN (
              SELECT c.file_id, sum(c.size) OVER (ORDER BY c.created_at, c.file_id) AS bytes
              FROM recall c WHERE c.state = 'WAITING' AND ${needsRoom} AND c.size <= (SELECT max(room) FROM unnest(${rooms}::bigint[]) AS r (room))
              ORDER BY c.created_at, c.file_id LIMIT ${WOKEN_RECALLS}
            ) n ON n.file_id = c.file_id AND n.bytes <= ${total}
            WHERE ${needsRoom} ${locking.freeRecall}) RETURNING file_id
        ), rung AS (SELECT pg_notify('tapegate', 'recall') FROM woken LIMIT 1)
        SELECT w.file_id FROM woken w LEFT JOIN rung ON true`,
  );
  return woken.length;
}

const NAMED_DISKS = 4;

function describeLimits(size: bigint, disks: readonly Candidate[]): string {
  const reasons = disks.slice(0, NAMED_DISKS).map((disk) => limitOf(disk, size));
  const more = disks.length > NAMED_DISKS ? [`and ${disks.length - NAMED_DISKS} more`] : [];
  const all = reasons.length > 0 ? [...reasons, ...more] : ['none is registered'];
  return `no restore disk has room for ${formatBytes(size)}: ${all.join('; ')}`;
}

function limitOf(disk: Candidate, size: bigint): string {
  const { mountpoint, fileSystem } = disk;
  if (roomByAllocation(disk) < size) {
    return `${mountpoint} has ${formatRoom(roomByAllocation(disk))} left of the ${formatBytes(disk.size)} allocated to Tapegate`;
  }
  if (disk.problem !== undefined || !fileSystem) return disk.problem ?? `${mountpoint} is unknown`;
  const { freeBytes, reserved } = fileSystem;
  return `${mountpoint} has ${formatRoom(roomByFreeSpace(fileSystem))} free: ${formatBytes(freeBytes)} free in its file system, minus ${formatBytes(reserved)} reserved`;
}

function formatRoom(bytes: bigint): string {
  return formatBytes(bytes > 0n ? bytes : 0n);
}

export async function freeReserved(
  tx: Transaction,
  ended: readonly Reservation[],
  restored: ReadonlySet<bigint>,
): Promise<void> {
  const [diskIds, sizes] = [ended.map((r) => r.diskId), ended.map((r) => r.size)];
  const isUsed = ended.map((r) => restored.has(r.fileId));
  await tx.query(
    sql`WITH sums AS (
          SELECT disk_id, sum(size) AS reserved, coalesce(sum(size) FILTER (WHERE is_used), 0) AS used
          FROM unnest(${diskIds}::int[], ${sizes}::bigint[], ${isUsed}::bool[]) AS e (disk_id, size, is_used)
          GROUP BY disk_id
        ), locked AS (
          SELECT k.id FROM restore_disk k WHERE k.id IN (SELECT disk_id FROM sums) ORDER BY k.id ${locking.disk}
        )
        UPDATE restore_disk k SET reserved = k.reserved - s.reserved, used = k.used + s.used,
          failures = CASE WHEN s.used > 0 THEN 0 ELSE k.failures END, fulls = CASE WHEN s.used > 0 THEN 0 ELSE k.fulls END
        FROM sums s, locked l WHERE k.id = s.disk_id AND l.id = k.id`,
  );
  if (isUsed.includes(false)) await notifyRoom(tx);
}

/**
 * Returns the recalls that fit on at least one disk, and the total room on all disks in bytes. Does not reserve room.
 */
export async function findPlaceable<R extends Unplaced>(
  ctx: Context,
  tx: Transaction,
  waiting: readonly R[],
  seen: SeenDisks,
): Promise<{ placeable: R[]; roomBytes: bigint }> {
  const disks = findRoom(await tx.query<FoundDisk>(sql`${allDisks(ctx)} ORDER BY k.id`), seen);
  const rooms = disks.flatMap((disk) => {
    if (disk.isElsewhere) return [roomByAllocation(disk)];
    return disk.problem === undefined ? [roomOf(disk)] : [];
  });
  const hasRoom = ({ size }: R) => rooms.some((room) => room >= size);
  const aside = waiting.filter((recall) => !hasRoom(recall));
  if (aside.length > 0) await putAside(tx, aside, disks);
  const roomBytes = rooms.reduce((sum, room) => sum + (room > 0n ? room : 0n), 0n);
  return { placeable: waiting.filter(hasRoom), roomBytes };
}
