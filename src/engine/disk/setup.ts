/** Restore disks as an engine or an operator finds them: registered, and marked as what they are. */
import { lstat, mkdir, realpath } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf, messageOf } from '../../errors.js';
import { sampleCopies } from '../../operations/disks/copies.js';
import { type DiskRow, ensureDisk, listDisks, refuseNested, setDisk } from '../../operations/disks/disks.js';
import { readMeasurements } from '../../operations/disks/measurements.js';
import { forgetDisk } from '../../operations/disks/remove.js';
import { listSuspensions, type SuspensionMode } from '../../operations/suspensions.js';
import { BoundedCalls } from './bounded-calls.js';
import { isKnownBy } from './copy.js';
import { lookAtDisk } from './look.js';
import { findRoot, removeMarker, writeMarker } from './marker.js';
import { readFileSystem } from './space.js';

/** A start does not wait longer for a disk. */
const ANSWER_MS = 5000;

/**
 * A site that has named no restore disk gets one beside its data, with what is free there. Disks without a marker are
 * given theirs, where it is plain that they are what is mounted.
 */
export async function prepareDisks(ctx: Context): Promise<void> {
  if ((await listDisks(ctx)).length === 0) {
    const mountpoint = path.resolve(ctx.config.dataDir, 'restore');
    await mkdir(mountpoint, { recursive: true });
    await ensureDisk(ctx, { mountpoint, size: (await readFileSystem(mountpoint)).freeBytes });
  }
  const calls = new BoundedCalls();
  const prepare = async (disk: DiskRow) => {
    let found: string | undefined;
    const problem = await calls.run(ANSWER_MS, disk, async () => {
      found = await adopt(ctx, disk);
    });
    if (problem ?? found) ctx.log.error({ disk: disk.mountpoint }, problem ?? found);
  };
  await Promise.all((await listDisks(ctx)).map(prepare));
}

/**
 * Registers a restore disk, or changes its allocation, and marks it.
 * @param input.mark what is mounted there now is the disk, although copies are noted that are not on it
 * @returns why it could not be marked; nothing is put on it then
 */
export async function addDisk(
  ctx: Context,
  input: { mountpoint: string; size: bigint; mark?: boolean },
): Promise<{ disk: DiskRow; problem: string | undefined }> {
  await refuseNested(ctx, path.resolve(input.mountpoint), findReal); // before anything is made
  await mkdir(input.mountpoint, { recursive: true });
  const disk = await setDisk(ctx, input);
  if (!input.mark) return { disk, problem: await adopt(ctx, disk) };
  await writeMarker({ diskId: disk.id, mountpoint: disk.mountpoint });
  return { disk, problem: undefined };
}

/** A path without links, as far as it is there. */
async function findReal(wanted: string): Promise<string> {
  const above = path.dirname(wanted);
  return await realpath(wanted).catch(async (error: unknown) => {
    if (codeOf(error) !== 'ENOENT' || above === wanted) return wanted;
    return path.join(await findReal(above), path.basename(wanted));
  });
}

/**
 * Takes a restore disk out of use for good, and its marker away; nothing else on it is touched.
 * @returns why its marker could not be taken away
 * @throws NotFoundError; InUseError with the figures, while there are copies on it or recalls will put some there
 */
export async function removeDisk(
  ctx: Context,
  mountpoint: string,
): Promise<{ disk: DiskRow; problem: string | undefined }> {
  const disk = await forgetDisk(ctx, mountpoint);
  try {
    await removeMarker({ diskId: disk.id, mountpoint });
    return { disk, problem: undefined };
  } catch (error) {
    return { disk, problem: messageOf(error) };
  }
}

/** Noted copies that are looked for: one of them is proof enough. */
const PROOFS = 100;

/**
 * Marks a disk that has no marker yet, unless copies are noted on it and none of them is there: it may not be mounted.
 * @returns why it is not marked
 */
async function adopt(ctx: Context, { id, mountpoint }: DiskRow): Promise<string | undefined> {
  const marked = { diskId: id, mountpoint };
  try {
    const { root, hasMarker } = await findRoot(marked);
    if (hasMarker) return undefined;
    const copies = await sampleCopies(ctx, id, PROOFS);
    const found = await Promise.all(
      copies.map(async (copy) => {
        const stats = await lstat(path.join(root, copy.path), { bigint: true }).catch(() => undefined); // not there
        return stats !== undefined && isKnownBy(copy, stats);
      }),
    );
    if (copies.length > 0 && !found.includes(true)) {
      return `the restore disk ${mountpoint} has no marker, and none of the copies that should be on it: it may not be mounted (disk add --mark takes it as it is)`;
    }
    await writeMarker(marked);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** A restore disk as operators are shown it. */
export interface DiskState extends DiskRow {
  /** Bytes that are really free; null where that is not known, and `problem` says why. */
  free: bigint | null;
  problem: string | null;
  suspension: { mode: SuspensionMode; reason: string } | null;
}

/** Restore disks with what is really free on them: as it is seen from here, and where nothing is, as engines saw it. */
export async function describeDisks(ctx: Context): Promise<DiskState[]> {
  const disks = await listDisks(ctx);
  const measurements = await readMeasurements(
    ctx,
    disks.map(({ id }) => id),
  );
  const calls = new BoundedCalls();
  const suspensions = (await listSuspensions(ctx)).filter(({ kind }) => kind === 'DISK');
  const describeDisk = async (disk: DiskRow): Promise<DiskState> => {
    const suspended = suspensions.find(({ name }) => name === disk.mountpoint);
    const suspension = suspended ? { mode: suspended.mode, reason: suspended.reason } : null;
    const here = await lookAtDisk(calls, disk);
    const there = measurements.get(disk.id);
    const [free, problem] = [here.free ?? there?.free ?? null, here.problem ?? there?.problem ?? null];
    return { ...disk, free, problem, suspension };
  };
  return await Promise.all(disks.map(describeDisk));
}
