/**
 * Restore disks as an engine or an operator finds them: registered, and marked.
 *
 * A disk that was never marked is marked if it is plain that it is the one that is mounted. Later only its marker says so, because an empty
 * directory looks like an empty disk.
 */
import { lstat, mkdir, realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf, InvalidInputError, messageOf, quote } from '../../errors.js';
import type { NotedCopy } from '../../operations/disks/copies.js';
import {
  type DiskRow,
  ensureDisk,
  type ForgottenDisk,
  forgetDisk,
  listDisks,
  readMeasurements,
  refuseNested,
  setDisk,
} from '../../operations/disks/disks.js';
import { noteMarked, readTraces } from '../../operations/disks/markings.js';
import { listSuspensions, type SuspensionMode } from '../../operations/suspensions.js';
import { BoundedCalls } from '../calls.js';
import { isKnownBy } from './copy.js';
import { describeUntrusted, findUntrustedMount } from './exposure.js';
import {
  dropMarker,
  findRoot,
  type MarkedDisk,
  placeMarker,
  prepareMarker,
  removeMarker,
  rootOf,
  writeMarker,
} from './marker.js';
import { lookAtDisk, readFileSystem } from './space.js';

/** Whatever the umask is, nobody else may write in what is made here. */
const OWN_FOLDER = { recursive: true, mode: 0o755 } as const;

/** A start does not wait longer for a disk. */
const ANSWER_MS = 5000;

/**
 * A site that has named no restore disk gets one beside its data, with what is free there. Disks that were never marked
 * are, where it is plain that they are what is mounted.
 */
export async function prepareDisks(ctx: Context): Promise<void> {
  if ((await listDisks(ctx)).length === 0) {
    const mountpoint = path.resolve(ctx.config.dataDir, 'restore');
    await mkdir(mountpoint, OWN_FOLDER);
    await ensureDisk(ctx, { mountpoint, size: (await readFileSystem(mountpoint)).freeBytes });
  }
  const calls = new BoundedCalls();
  const prepare = async (disk: DiskRow) => {
    let found: string | undefined;
    const problem = await calls.run(ANSWER_MS, disk, async () => {
      found = await meetDisk(ctx, disk);
      const untrusted = await findUntrustedMount(disk.mountpoint, { group: ctx.config.restoreGroup });
      if (untrusted) found ??= describeUntrusted(untrusted);
    });
    if (problem ?? found) ctx.log.error({ disk: disk.mountpoint }, problem ?? found);
  };
  await Promise.all((await listDisks(ctx)).map(prepare));
}

/**
 * Registers a restore disk, or changes its allocation, and marks it. A known one may be changed where it is not mounted.
 * @param input.create a mount point that is not there is made, as a folder of the file system above it
 * @param input.mark what is mounted there now is the disk, although it was marked before, or has none of its copies
 * @returns why it could not be marked; nothing is put on it then
 * @throws InvalidInputError
 */
export async function addDisk(
  ctx: Context,
  input: { mountpoint: string; size: bigint; create?: boolean; mark?: boolean },
): Promise<{ disk: DiskRow; problem: string | undefined }> {
  if (input.create) {
    await refuseNested(ctx, path.resolve(input.mountpoint), findReal); // before anything is made
    await mkdir(input.mountpoint, OWN_FOLDER);
    await refuseUntrusted(ctx, input.mountpoint);
  } else await checkNewDisk(ctx, input.mountpoint);
  const disk = await setDisk(ctx, input);
  if (!input.mark) return { disk, problem: await meetDisk(ctx, disk) };
  await markDisk(ctx, disk);
  return { disk, problem: undefined };
}

/** Can what is there be a restore disk? Nothing is written. @throws InvalidInputError */
export async function checkNewDisk(ctx: Context, mountpoint: string): Promise<void> {
  await refuseNested(ctx, path.resolve(mountpoint), findReal);
  await refuseMissing(ctx, mountpoint);
  await refuseUntrusted(ctx, mountpoint);
}

/** A registered disk stays: engines suspend it, and the doctor reports it. */
async function refuseUntrusted(ctx: Context, mountpoint: string): Promise<void> {
  if ((await listDisks(ctx)).some((disk) => disk.mountpoint === mountpoint)) return;
  const untrusted = await findUntrustedMount(mountpoint, { group: ctx.config.restoreGroup, isNew: true });
  if (!untrusted) return;
  throw new InvalidInputError('mountpoint', `${quote(mountpoint)} is unsafe: ${describeUntrusted(untrusted)}`);
}

/** Made without a word, the folder of a mistyped mount point, or of one that is not mounted yet, would take files on another disk. */
async function refuseMissing(ctx: Context, mountpoint: string): Promise<void> {
  if ((await listDisks(ctx)).some((disk) => disk.mountpoint === mountpoint)) return;
  const isFolder = await stat(mountpoint).then(
    (found) => found.isDirectory(),
    (error: unknown) => {
      if (codeOf(error) === 'ENOENT') return undefined;
      throw error;
    },
  );
  if (isFolder) return;
  const problem =
    isFolder === undefined ? 'is not there; --create makes it, on the file system above it' : 'is no folder';
  throw new InvalidInputError('mountpoint', `${quote(mountpoint)} ${problem}`);
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
): Promise<{ disk: ForgottenDisk; problem: string | undefined }> {
  const disk = await forgetDisk(ctx, mountpoint);
  try {
    await removeMarker({ diskId: disk.id, mountpoint });
    return { disk, problem: undefined };
  } catch (error) {
    return { disk, problem: messageOf(error) };
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
    const here = await lookAtDisk(calls, disk, ctx.config.restoreGroup);
    const there = measurements.get(disk.id);
    const [free, problem] = [here.free ?? there?.free ?? null, here.problem ?? there?.problem ?? null];
    return { ...disk, free, problem, suspension };
  };
  return await Promise.all(disks.map(describeDisk));
}

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
async function markDisk(ctx: Context, { id, mountpoint }: { id: number; mountpoint: string }): Promise<void> {
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
