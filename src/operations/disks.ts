/** Restore disks: where recalled files are put. */
import path from 'node:path';
import type { Context } from '../context.js';
import { InvalidInputError, quote } from '../errors.js';
import { checkBytes, checkPattern } from './checks.js';

export interface DiskRow {
  id: number;
  mountpoint: string;
  /** Bytes: the allocation, what copies take, and what running recalls have reserved. */
  size: bigint;
  used: bigint;
  reserved: bigint;
}

/** Adds a restore disk, or changes the allocation of a known one. */
export async function setDisk(ctx: Context, input: { mountpoint: string; size: bigint }): Promise<DiskRow> {
  const mountpoint = path.resolve(checkPattern('mountpoint', input.mountpoint));
  if (!path.isAbsolute(input.mountpoint)) {
    throw new InvalidInputError('mountpoint', `must be an absolute path, not ${quote(input.mountpoint)}`);
  }
  checkBytes('size', input.size);
  return await ctx.db.prisma.restoreDisk.upsert({
    where: { mountpoint },
    create: { mountpoint, size: input.size },
    update: { size: input.size },
  });
}

/** Registers a disk for a site that has named none; does nothing where there is one. */
export async function ensureDisk(ctx: Context, disk: { mountpoint: string; size: bigint }): Promise<void> {
  await ctx.db.pool.query(
    `INSERT INTO restore_disk (mountpoint, size) SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM restore_disk)
     ON CONFLICT (mountpoint) DO NOTHING`,
    [disk.mountpoint, disk.size],
  );
}

export async function listDisks(ctx: Context): Promise<DiskRow[]> {
  return await ctx.db.prisma.restoreDisk.findMany({ orderBy: { mountpoint: 'asc' } });
}

/**
 * Chooses a disk for a file: the one with the most room, so that disks fill evenly.
 * @returns undefined when none has room for `size` bytes
 */
export function chooseDisk<D extends { size: bigint; used: bigint; reserved: bigint }>(
  disks: readonly D[],
  size: bigint,
): D | undefined {
  let best: D | undefined;
  for (const disk of disks) {
    if (roomOf(disk) >= size && (!best || roomOf(disk) > roomOf(best))) best = disk;
  }
  return best;
}

function roomOf(disk: { size: bigint; used: bigint; reserved: bigint }): bigint {
  return disk.size - disk.used - disk.reserved;
}
