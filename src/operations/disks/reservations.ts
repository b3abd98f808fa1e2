/**
 * Room for recalls on the restore disks. A recall starts only where both the disk's allocation and its real free space
 * have room beside everything that is reserved. All disks are locked meanwhile, so that no two engines give the same
 * room away. Once the recall has ended, what was reserved is used or free again.
 */
import type { Context } from '../../context.js';
import type { Transaction } from '../../database/transaction.js';
import type { SuspensionMode } from '../../generated/prisma/enums.js';
import { addSeconds } from '../../time.js';
import { chooseDisk, type DiskRow, type FileSystemRoom, roomByAllocation, roomByFreeSpace } from './disks.js';

/** Bytes that can really be written to a disk, and a name of its file system; or why that is not known. */
export type DiskSpace = { freeBytes: bigint; fileSystem: string } | { problem: string };

/** A disk whose row is locked. */
export interface LockedDisk extends DiskRow {
  /** Another one whenever something was reserved, used or freed. */
  version: string;
  /** A file was noted to have a copy on it, as far as could be seen before the lock was had. */
  hasCopies: boolean;
}

/** Given by the engine, since operations touch no disk. It must answer soon: the disks are locked meanwhile. */
export type MeasureDisks = (disks: readonly LockedDisk[]) => Promise<ReadonlyMap<number, DiskSpace>>;

interface Candidate extends LockedDisk {
  /** One object for all disks that share it; undefined where nobody knows. */
  fileSystem: FileSystemRoom | undefined;
  /** Why nothing may be put there now, for people. */
  problem: string | undefined;
  isSuspended: boolean;
}

export interface Waiting {
  fileId: bigint;
  size: bigint;
}

/** Room that is reserved for a recall. */
export interface Reservation extends Waiting {
  diskId: number;
}

/** How a suspended disk is called. */
export const suspensionWords: Record<SuspensionMode, string> = { HELD: 'held', DRAINING: 'drained' };

/** How long a recall waits for room on a disk before it is looked at again, when nothing else wakes it. */
const SPACE_PAUSE_SECONDS = 30;

/**
 * Gives each recall a disk with room; one without stays in the queue, and says which limit each disk has reached.
 * @returns those with a disk, in the order given
 */
export async function reserve<R extends Waiting>(
  ctx: Context,
  tx: Transaction,
  waiting: readonly R[],
  measure: MeasureDisks,
): Promise<{ recall: R; disk: DiskRow }[]> {
  if (waiting.length === 0) return [];
  const disks = await lockDisks(tx, measure);
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
  await tx.query(
    `UPDATE restore_disk d SET reserved = n.reserved FROM unnest($1::int[], $2::bigint[]) AS n (id, reserved)
     WHERE d.id = n.id AND d.reserved <> n.reserved`,
    [open.map((d) => d.id), open.map((d) => d.reserved)],
  );
  if (unplaced.length > 0) await postpone(ctx, tx, unplaced, disks);
  return placed;
}

async function lockDisks(tx: Transaction, measure: MeasureDisks): Promise<Candidate[]> {
  const rows = await tx.query<LockedDisk & { mode: SuspensionMode | null; reason: string | null }>(
    `SELECT d.id, d.mountpoint, d.size, d.used, d.reserved, d.xmin::text AS version, s.mode, s.reason,
       EXISTS (SELECT FROM tape_file f WHERE f.disk_id = d.id) AS "hasCopies"
     FROM restore_disk d LEFT JOIN suspension s ON s.kind = 'DISK' AND s.name = d.mountpoint
     ORDER BY d.id FOR NO KEY UPDATE OF d`,
  );
  const spaces = await measure(rows);
  const fileSystems = new Map<string, FileSystemRoom>();
  return rows.map(({ mode, reason, ...disk }) => {
    const space = spaces.get(disk.id) ?? { problem: `the free space of ${disk.mountpoint} is unknown` };
    const isSuspended = mode !== null;
    const why = reason ? ` (${reason})` : '';
    const suspended = isSuspended ? `${disk.mountpoint} is ${suspensionWords[mode]}${why}` : undefined;
    if ('problem' in space) return { ...disk, fileSystem: undefined, problem: suspended ?? space.problem, isSuspended };
    const fileSystem = fileSystems.get(space.fileSystem) ?? { freeBytes: space.freeBytes, reserved: 0n };
    fileSystems.set(space.fileSystem, fileSystem);
    if (space.freeBytes < fileSystem.freeBytes) fileSystem.freeBytes = space.freeBytes;
    fileSystem.reserved += disk.reserved;
    return { ...disk, fileSystem, problem: suspended, isSuspended };
  });
}

/** A disk that is away comes back or does not, which is no lack of room: TRANSIENT where one that is away would have room. */
async function postpone(ctx: Context, tx: Transaction, unplaced: readonly Waiting[], disks: readonly Candidate[]) {
  const isAway = (disk: Candidate, size: bigint) =>
    disk.problem !== undefined && !disk.isSuspended && roomByAllocation(disk) >= size;
  await tx.query(
    `UPDATE recall c SET error_class = u.error_class, error = u.error, not_before = $4
     FROM unnest($1::bigint[], $2::"ErrorClass"[], $3::text[]) AS u (file_id, error_class, error)
     WHERE c.file_id = u.file_id`,
    [
      unplaced.map((recall) => recall.fileId),
      unplaced.map(({ size }) => (disks.some((disk) => isAway(disk, size)) ? 'TRANSIENT' : 'SPACE')),
      unplaced.map(({ size }) => explain(size, disks)),
      addSeconds(ctx.now(), SPACE_PAUSE_SECONDS),
    ],
  );
}

/** Disks named in a reason. */
const NAMED_DISKS = 4;

/** Why there is no room for so many bytes: the limit of each disk, with what is left of it. */
export function explain(size: bigint, disks: readonly Candidate[]): string {
  const reasons = disks.slice(0, NAMED_DISKS).map((disk) => limitOf(disk, size));
  const more = disks.length > NAMED_DISKS ? [`and ${disks.length - NAMED_DISKS} more`] : [];
  const all = reasons.length > 0 ? [...reasons, ...more] : ['there is none'];
  return `no restore disk has room for ${size} bytes: ${all.join('; ')}`;
}

function limitOf(disk: Candidate, size: bigint): string {
  const { mountpoint, fileSystem } = disk;
  if (roomByAllocation(disk) < size) {
    return `${mountpoint} has ${positive(roomByAllocation(disk))} of its allocation of ${disk.size} bytes left`;
  }
  if (disk.problem !== undefined || !fileSystem) return disk.problem ?? `${mountpoint} is unknown`;
  const { freeBytes, reserved } = fileSystem;
  return `${mountpoint} has ${positive(roomByFreeSpace(fileSystem))} bytes really free: ${freeBytes}, of which ${reserved} are reserved`;
}

function positive(bytes: bigint): bigint {
  return bytes > 0n ? bytes : 0n;
}

/** Turns what was reserved into what is used, or frees it. */
export async function freeReserved(
  tx: Transaction,
  ended: readonly Reservation[],
  restored: ReadonlySet<bigint>,
): Promise<void> {
  await tx.query(
    `WITH sums AS (
       SELECT disk_id, sum(size) AS reserved, coalesce(sum(size) FILTER (WHERE is_used), 0) AS used
       FROM unnest($1::int[], $2::bigint[], $3::bool[]) AS e (disk_id, size, is_used) GROUP BY disk_id
     ), locked AS (
       SELECT id FROM restore_disk WHERE id IN (SELECT disk_id FROM sums) ORDER BY id FOR NO KEY UPDATE
     )
     UPDATE restore_disk d SET reserved = d.reserved - s.reserved, used = d.used + s.used
     FROM sums s, locked l WHERE d.id = s.disk_id AND l.id = d.id`,
    [ended.map((r) => r.diskId), ended.map((r) => r.size), ended.map((r) => restored.has(r.fileId))],
  );
}
