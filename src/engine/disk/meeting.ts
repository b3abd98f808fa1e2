/**
 * How an engine, or an operator, meets a restore disk: one that was never marked is marked where it is plain that it is what
 * is mounted, and that it has its marker is noted. One that was marked once is what has the marker, and nothing else: an
 * empty folder looks like an empty disk.
 */
import { lstat } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../../context.js';
import { messageOf } from '../../errors.js';
import type { NotedCopy } from '../../operations/disks/copies.js';
import { noteMarked, readTraces } from '../../operations/disks/markings.js';
import { isKnownBy } from './copy.js';
import { dropMarker, findRoot, type MarkedDisk, placeMarker, prepareMarker, rootOf, writeMarker } from './marker.js';

/** Noted copies that are looked for: one of them is proof enough. */
const PROOFS = 100;

/**
 * Marks a disk that was never marked, unless it was in use before and none of its copies is there. Calling it again, also
 * from several processes at once, is safe.
 * @returns why it has no marker
 */
export async function meetDisk(
  ctx: Context,
  { id, mountpoint }: { id: number; mountpoint: string },
): Promise<string | undefined> {
  const disk = { diskId: id, mountpoint };
  try {
    const { root, hasMarker } = await findRoot(disk);
    if (hasMarker) {
      await noteMarked(ctx, id, null);
      return undefined;
    }
    const { isMarked, markedAs, isUsed, copies } = await readTraces(ctx, id, PROOFS);
    if (isMarked) {
      // whoever has noted it may have ended before the marker was in its place
      if (markedAs !== null) await placeMarker(disk, markedAs);
    } else if (isUsed && !(await hasOneOf(root, copies))) {
      return `the restore disk ${mountpoint} has no marker, and none of the copies that should be on it: it may not be mounted (disk add --mark takes it as it is)`;
    } else await markFirst(ctx, disk);
    await rootOf(disk);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** Where another host is first, the disk is what it has marked: this may be the empty folder in its place. */
async function markFirst(ctx: Context, disk: MarkedDisk): Promise<void> {
  const name = await prepareMarker(disk);
  let isFirst = false;
  try {
    isFirst = await noteMarked(ctx, disk.diskId, name);
    if (isFirst) await placeMarker(disk, name);
  } finally {
    if (!isFirst) await dropMarker(disk, name);
  }
}

/** Marks what is mounted there now as the disk, since an operator says so. */
export async function markDisk(ctx: Context, { id, mountpoint }: { id: number; mountpoint: string }): Promise<void> {
  await writeMarker({ diskId: id, mountpoint });
  await noteMarked(ctx, id, null);
}

async function hasOneOf(root: string, copies: readonly NotedCopy[]): Promise<boolean> {
  const found = await Promise.all(
    copies.map(async (copy) => {
      const stats = await lstat(path.join(root, copy.path), { bigint: true }).catch(() => undefined); // not there
      return stats !== undefined && isKnownBy(copy, stats);
    }),
  );
  return found.includes(true);
}
