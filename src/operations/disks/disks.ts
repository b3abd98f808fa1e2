/** Restore disks: where recalled files are put. */

import path from 'node:path';
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InvalidInputError, NotFoundError, quote } from '../../errors.js';
import type { Prisma, RestoreDisk } from '../../generated/prisma/client.js';
import { audited, type Note } from '../audit/audited.js';
import { checkBytes, checkPattern } from '../input.js';
import { countRows, type KeyPage, readPageRows } from '../page-keys.js';
import { allow } from '../policy.js';
import { isFull } from './full.js';

export interface DiskRow {
  id: number;
  mountpoint: string;
  /** Bytes: the allocation, what copies take, and what running recalls have reserved. */
  size: bigint;
  used: bigint;
  reserved: bigint;
}

/** Columns that are for the engines only. */
const internal = {
  ...{ failures: true, retryAt: true, reservedEver: true, markedAt: true, markedAs: true },
  ...{ fulls: true, fullAt: true, fullUntil: true, fullReason: true },
} as const;

/** Whoever changes a disk may have made room on it. */
const notFull = { fulls: 0, fullAt: null, fullUntil: null, fullReason: null } as const;

/** Adds a restore disk, or changes the allocation of a known one, which counts as full no more. */
export async function setDisk(ctx: Context, input: { mountpoint: string; size: bigint }): Promise<DiskRow> {
  const { mountpoint, size } = input;
  return await audited(ctx, { operation: 'setDisk', kind: 'DISK', object: mountpoint, given: { size } }, (note) =>
    changeDisk(ctx, input, note),
  );
}

async function changeDisk(ctx: Context, input: { mountpoint: string; size: bigint }, note: Note): Promise<DiskRow> {
  allow(ctx, 'setDisk');
  const mountpoint = checkMountpoint(input.mountpoint);
  checkBytes('size', input.size);
  await refuseNested(ctx, mountpoint);
  const { restoreDisk } = ctx.db.prisma;
  const set = restoreDisk.upsert({
    where: { mountpoint },
    create: { mountpoint, size: input.size },
    update: { size: input.size, ...notFull },
    omit: internal,
  });
  const [disk] = await ctx.db.prisma.$transaction([set, ctx.db.prisma.$executeRaw(note({ object: mountpoint }))]);
  await ctx.db.pool.query(roomRing);
  return disk;
}

/** @throws InvalidInputError */
export function checkMountpoint(given: string): string {
  if (path.isAbsolute(checkPattern('mountpoint', given))) return path.resolve(given);
  throw new InvalidInputError('mountpoint', `must be an absolute path, not ${quote(given)}`);
}

/**
 * Changes the allocation of a known restore disk, which counts as full no more. The disk itself is not touched.
 * @throws InvalidInputError, NotFoundError
 */
export async function resizeDisk(ctx: Context, input: { mountpoint: string; size: bigint }): Promise<DiskRow> {
  const { mountpoint: object, size } = input;
  return await audited(ctx, { operation: 'resizeDisk', kind: 'DISK', object, given: { size } }, async (note) => {
    allow(ctx, 'resizeDisk');
    const mountpoint = checkMountpoint(object);
    checkBytes('size', size);
    return await transaction(ctx.db.pool, 'resizeDisk', async (tx) => {
      const [disk] = await tx.query<DiskRow>(
        sql`UPDATE restore_disk k SET size = ${size}, fulls = 0, full_at = NULL, full_until = NULL, full_reason = NULL
            WHERE k.mountpoint = ${mountpoint} RETURNING k.id, k.mountpoint, k.size, k.used, k.reserved`,
      );
      if (!disk) throw new NotFoundError(`there is no restore disk ${quote(mountpoint)}`);
      await tx.query(note({ object: mountpoint }));
      await ringRoom(tx);
      return disk;
    });
  });
}

const roomRing = sql`SELECT pg_notify('tapegate', 'room')`;

/** Tells the engines, after the commit, that there may be more room on the restore disks. */
export async function ringRoom(tx: Transaction): Promise<void> {
  await tx.query(roomRing);
}

/**
 * A disk in another one would have its copies taken for files of that one. One that is registered already stays.
 * @param real resolves links; operations touch no disk, so that only the paths are compared without it
 * @throws InvalidInputError
 */
export async function refuseNested(
  ctx: Context,
  mountpoint: string,
  real: (mountpoint: string) => Promise<string> = async (it) => it,
): Promise<void> {
  const disks = await listDisks(ctx);
  if (disks.some((disk) => disk.mountpoint === mountpoint)) return;
  const place = await real(mountpoint);
  for (const other of disks) {
    const otherPlace = await real(other.mountpoint);
    if (!liesIn(place, otherPlace) && !liesIn(otherPlace, place)) continue;
    const problem = `must not lie in another restore disk, or have one in it: ${other.mountpoint}, not ${quote(mountpoint)}`;
    throw new InvalidInputError('mountpoint', problem);
  }
}

function liesIn(inner: string, outer: string): boolean {
  return inner === outer || inner.startsWith(outer === '/' ? outer : `${outer}/`);
}

/** Registers a disk for a site that has named none; does nothing where there is one. */
export async function ensureDisk(ctx: Context, disk: { mountpoint: string; size: bigint }): Promise<void> {
  await ctx.db.pool.query(
    sql`INSERT INTO restore_disk (mountpoint, size) SELECT ${disk.mountpoint}, ${disk.size} WHERE NOT EXISTS (SELECT FROM restore_disk)
     ON CONFLICT (mountpoint) DO NOTHING`,
  );
}

export async function listDisks(ctx: Context): Promise<DiskRow[]> {
  return await ctx.db.prisma.restoreDisk.findMany({
    orderBy: { mountpoint: 'asc' },
    omit: internal,
  });
}

/**
 * Bytes for which the restore disks in service have room beside what they hold and what is reserved, by their allocations:
 * what is really free, the engines see. Undefined where none is registered yet, which the first engine does.
 */
export async function readRoom(ctx: Context): Promise<bigint | undefined> {
  const { rows } = await ctx.db.pool.query<{ disks: number; room: string }>(
    sql`SELECT count(*)::int AS disks, coalesce(sum(greatest(k.size - k.used - k.reserved, 0))
          FILTER (WHERE NOT ${isFull(ctx)} AND NOT EXISTS (SELECT FROM suspended_disk s WHERE s.disk_id = k.id)), 0)::text AS room
        FROM restore_disk k`,
  );
  const [row] = rows;
  return row && row.disks > 0 ? BigInt(row.room) : undefined;
}

/** The same in order of their ids: counted, or by the page. */
export function listDisksByPage(ctx: Context) {
  allow(ctx, 'listDisksByPage');
  const rows = sql`restore_disk k WHERE true`;
  return {
    count: () => countRows(ctx, { rows }),
    page: (page: KeyPage<number>, query: Pick<Prisma.RestoreDiskFindManyArgs, 'include' | 'select'>) =>
      readPageRows(ctx, { rows, id: sql`k.id`, key: sql`k.id` }, page, (ids: number[]) => {
        const where = { id: { in: ids } };
        return ctx.db.prisma.restoreDisk.findMany({ ...(query as object), where, orderBy: { id: 'asc' } });
      }),
  };
}

/** @throws NotFoundError */
export async function getDisk(
  ctx: Context,
  id: number,
  query: Pick<Prisma.RestoreDiskFindManyArgs, 'include' | 'select'>,
) {
  allow(ctx, 'listDisksByPage');
  const disk = await ctx.db.prisma.restoreDisk.findUnique({ ...(query as object), where: { id } });
  if (!disk) throw new NotFoundError('the restore disk was removed meanwhile');
  return disk;
}

/** What a disk can take. */
export interface DiskFigures {
  size: bigint;
  used: bigint;
  reserved: bigint;
  /** Undefined: nobody has looked. */
  fileSystem?: FileSystemRoom | undefined;
}

/** What can really be written, and what is reserved of it, on all disks that share the file system. */
export interface FileSystemRoom {
  freeBytes: bigint;
  reserved: bigint;
}

/**
 * Chooses a disk for a file: the one with the most room, so that disks fill evenly; of disks that share a file system,
 * the one with the most left of its allocation.
 * @returns undefined when none has room for `size` bytes
 */
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

/** Bytes that it has room for; less than nothing where more is reserved than is there. */
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

/** What is reserved may all be still to be written: a recall that runs counts with its whole size. */
export function roomByFreeSpace({ freeBytes, reserved }: FileSystemRoom): bigint {
  return freeBytes - reserved;
}

/** Reads restore disks by their ids. */
export async function readDisks({ db }: Context, ids: readonly number[]): Promise<Map<number, RestoreDisk>> {
  const disks = await db.prisma.restoreDisk.findMany({ where: { id: { in: [...ids] } } });
  return new Map(disks.map((disk) => [disk.id, disk]));
}
