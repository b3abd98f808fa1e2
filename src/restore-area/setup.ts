/**
 * Registers and marks restore disks. Tapegate marks a new disk only if the disk is certainly mounted. Afterwards,
 * Tapegate recognises a mounted disk only by its marker, because the empty directory under a mount point looks like an
 * empty disk.
 */
import { lstat, mkdir, mkdtemp, realpath, rmdir, stat, unlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, InvalidInputError, messageOf, quote } from '../core/errors.js';
import { formatBytes } from '../core/text/bytes.js';
import type { Context } from '../domain/context.js';
import type { RecordedCopy } from '../domain/disks/disk-copies.js';
import {
  type DiskRow,
  ensureDisk,
  listDisks,
  type RemovedDisk,
  readMeasurements,
  refuseNested,
  removeRestoreDisk,
  setDisk,
} from '../domain/disks/disks.js';
import { isProbed, readTraces, recordFolding, recordMarked } from '../domain/disks/markings.js';
import { listSuspensions, type SuspensionMode } from '../domain/health/suspensions.js';
import { BoundedCalls } from './call-watch.js';
import { matchesRecord } from './copies/copy.js';
import { describeUntrusted, findUntrustedMount } from './exposure.js';
import {
  dropMarker,
  findRoot,
  type MarkedDisk,
  markerName,
  placeMarker,
  prepareMarker,
  removeMarker,
  rootOf,
  writeMarker,
} from './marker.js';
import { findForeign, ownershipOf } from './ownership.js';
import { withDirectory } from './restore-area.js';
import { measureDisk, readFileSystem } from './space.js';

/** Options for `mkdir` when Tapegate creates a mount point. Only the owner can write to the new directory. */
const OWN_DIRECTORY = { recursive: true, mode: 0o755 } as const;

const ANSWER_MS = 5000;

/**
 * Creates a restore disk in the data directory if the site does not have any restore disk. Marks new disks that are
 * certainly mounted.
 */
export async function prepareDisks(ctx: Context): Promise<void> {
  if ((await listDisks(ctx)).length === 0) {
    const mountpoint = path.resolve(ctx.config.dataDir, 'restore');
    await mkdir(mountpoint, OWN_DIRECTORY);
    await ensureDisk(ctx, { mountpoint, size: (await readFileSystem(mountpoint)).freeBytes });
  }
  const calls = new BoundedCalls();
  const prepare = async (disk: DiskRow) => {
    let found: string | undefined;
    const problem = await calls.run(ANSWER_MS, disk, async () => {
      found = await ensureMarked(ctx, disk);
      const untrusted = await findUntrustedMount(disk.mountpoint, { group: ctx.config.restoreGroup });
      if (untrusted) found ??= describeUntrusted(untrusted);
    });
    if (problem ?? found) ctx.log.error({ disk: disk.mountpoint }, problem ?? found);
  };
  await Promise.all((await listDisks(ctx)).map(prepare));
}

/**
 * Registers a restore disk, or changes its allocation, and marks it. The disk can be changed while it is unmounted.
 * @param input.create whether to create a missing mount point
 * @param input.mark whether to write a marker to the mounted file system even if it lacks the copies that the database
 * lists on the disk
 * @returns the disk and, if marking failed, the reason. Tapegate stores no copy on an unmarked disk
 * @throws InvalidInputError
 */
export async function addDisk(
  ctx: Context,
  input: { mountpoint: string; size: bigint; create?: boolean; mark?: boolean },
): Promise<{ disk: DiskRow; problem: string | undefined }> {
  await ownershipOf(ctx).require();
  await refuseOwned(ctx, input.mountpoint);
  if (input.create) {
    await refuseNested(ctx, path.resolve(input.mountpoint), findReal);
    await mkdir(input.mountpoint, OWN_DIRECTORY);
    await refuseUntrusted(ctx, input.mountpoint);
  } else await checkNewDisk(ctx, input.mountpoint);
  const disk = await setDisk(ctx, input);
  if (!input.mark) return { disk, problem: await ensureMarked(ctx, disk) };
  await markDisk(ctx, disk);
  await probeAgain(ctx, disk.id, await rootOf({ diskId: disk.id, mountpoint: disk.mountpoint }));
  return { disk, problem: undefined };
}

/** Returns a warning if a disk's allocation is larger than the disk's file system on this host. */
export async function findExcess({ id, mountpoint, size }: DiskRow): Promise<string | undefined> {
  let totalBytes: bigint | undefined;
  await new BoundedCalls().run(ANSWER_MS, { id, mountpoint }, async () => {
    ({ totalBytes } = await readFileSystem(await rootOf({ diskId: id, mountpoint })));
  });
  if (totalBytes === undefined || size <= totalBytes) return undefined;
  return `warning: the allocation of ${formatBytes(size)} exceeds the file system of ${formatBytes(totalBytes)} at ${mountpoint}`;
}

/** @throws InvalidInputError if another Tapegate owns the directory */
async function refuseOwned(ctx: Context, mountpoint: string): Promise<void> {
  const root = await realpath(mountpoint).catch(() => undefined);
  const problem = root && (await findForeign(ctx, mountpoint, root));
  if (problem) throw new InvalidInputError('mountpoint', problem);
}

/** Checks whether a directory can be used as a restore disk. Writes nothing. @throws InvalidInputError */
export async function checkNewDisk(ctx: Context, mountpoint: string): Promise<void> {
  await refuseNested(ctx, path.resolve(mountpoint), findReal);
  await refuseMissing(ctx, mountpoint);
  await refuseUntrusted(ctx, mountpoint);
}

/**
 * Rejects an untrusted directory. Skips this check for a disk that is already registered, because engines suspend
 * untrusted disks and `doctor` reports them.
 */
async function refuseUntrusted(ctx: Context, mountpoint: string): Promise<void> {
  if ((await listDisks(ctx)).some((disk) => disk.mountpoint === mountpoint)) return;
  const untrusted = await findUntrustedMount(mountpoint, { group: ctx.config.restoreGroup, isNew: true });
  if (!untrusted) return;
  throw new InvalidInputError('mountpoint', `${quote(mountpoint)} is unsafe: ${describeUntrusted(untrusted)}`);
}

/**
 * Rejects a missing mount point. Tapegate creates a mount point only if the operator asks for it, because files would
 * otherwise be restored to the parent file system.
 */
async function refuseMissing(ctx: Context, mountpoint: string): Promise<void> {
  if ((await listDisks(ctx)).some((disk) => disk.mountpoint === mountpoint)) return;
  const isDirectory = await stat(mountpoint).then(
    (found) => found.isDirectory(),
    (error: unknown) => {
      if (codeOf(error) === 'ENOENT') return undefined;
      throw error;
    },
  );
  if (isDirectory) return;
  const problem =
    isDirectory === undefined
      ? 'does not exist; --create creates it on the file system of its parent directory'
      : 'is not a directory';
  throw new InvalidInputError('mountpoint', `${quote(mountpoint)} ${problem}`);
}

async function findReal(wanted: string): Promise<string> {
  const above = path.dirname(wanted);
  return await realpath(wanted).catch(async (error: unknown) => {
    if (codeOf(error) !== 'ENOENT' || above === wanted) return wanted;
    return path.join(await findReal(above), path.basename(wanted));
  });
}

/**
 * Removes a restore disk and its marker, but no other files on the disk.
 * @returns the removed disk and, if removing the marker failed, the reason
 * @throws NotFoundError
 * @throws InUseError if the disk contains copies, or if recalls have reserved space on it
 */
export async function removeDiskAndMarker(
  ctx: Context,
  mountpoint: string,
): Promise<{ disk: RemovedDisk; problem: string | undefined }> {
  await ownershipOf(ctx).require();
  const disk = await removeRestoreDisk(ctx, mountpoint);
  try {
    await removeMarker({ diskId: disk.id, mountpoint });
    return { disk, problem: undefined };
  } catch (error) {
    return { disk, problem: messageOf(error) };
  }
}

export interface DiskState extends DiskRow {
  free: bigint | null;
  problem: string | null;
  suspension: { mode: SuspensionMode; reason: string | null } | null;
}

/**
 * Returns the restore disks with their free space. If this host cannot measure a disk, returns the free space that an
 * engine last recorded for the disk.
 */
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
    const suspension = suspended ? { mode: suspended.mode, reason: suspended.reason || null } : null;
    const local = await measureDisk(calls, disk, ctx.config.restoreGroup);
    const recorded = measurements.get(disk.id);
    const [free, problem] = [local.free ?? recorded?.free ?? null, local.problem ?? recorded?.problem ?? null];
    return { ...disk, free, problem, suspension };
  };
  return await Promise.all(disks.map(describeDisk));
}

/**
 * Maximum number of recorded copies that Tapegate looks for on a disk without a marker, to find out whether the disk is
 * mounted.
 */
const MAX_PROOFS = 100;

/**
 * Marks a disk that does not have a marker yet. If none of the copies that the database lists on the disk exists, does
 * not mark it, because the disk might not be mounted.
 * @returns the reason why the disk has no marker; undefined if it has one
 */
export async function ensureMarked(
  ctx: Context,
  { id, mountpoint }: { id: number; mountpoint: string },
): Promise<string | undefined> {
  const disk = { diskId: id, mountpoint };
  try {
    const { root, hasMarker } = await findRoot(disk);
    const foreign = await findForeign(ctx, mountpoint, root);
    if (foreign !== undefined) return foreign;
    if (hasMarker) {
      await recordMarked(ctx, id, null);
      await probeNames(ctx, id, root);
      return undefined;
    }
    const { isMarked, markedAs, isUsed, copies } = await readTraces(ctx, id, MAX_PROOFS);
    if (isMarked) {
      // the process that recorded the marker might have died before it created the marker file
      if (markedAs !== null) await placeMarker(disk, markedAs);
    } else if (isUsed && !(await hasAnyCopy(root, copies))) {
      return `the restore disk ${mountpoint} has no marker, and its recorded copies are missing: the disk might not be mounted (disk add --mark accepts the disk in its current state)`;
    } else await markFirst(ctx, disk);
    await probeNames(ctx, id, await rootOf(disk));
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/**
 * Records whether a disk's file system ignores case or Unicode normalisation in names. Does nothing if this is already
 * recorded.
 */
export async function probeNames(ctx: Context, diskId: number, root: string): Promise<void> {
  if (!(await isProbed(ctx, diskId))) await probeAgain(ctx, diskId, root);
}

/**
 * Records whether a disk's file system ignores case or Unicode normalisation in names. Replaces an earlier record,
 * because another file system might be mounted now.
 */
async function probeAgain(ctx: Context, diskId: number, root: string): Promise<void> {
  // ignore an error, because a later call checks again; for example, the disk might not be writable now
  const folds = await foldsNames(root).catch(() => undefined);
  if (folds !== undefined) await recordFolding(ctx, diskId, folds);
}

const PROBE_NAME = 'Caf\u00e9';

/** Returns whether the file system finds a file whose name is given in another case or Unicode normalisation. */
export async function foldsNames(root: string): Promise<boolean> {
  const dir = await mkdtemp(path.join(root, `${markerName}-`));
  try {
    return await withDirectory(root, path.basename(dir), async ({ fdPath }) => {
      await writeFile(path.join(fdPath, PROBE_NAME), '', { flag: 'wx' });
      const others = [PROBE_NAME.toLowerCase(), PROBE_NAME.normalize('NFD')];
      const found = await Promise.all(others.map((name) => lstat(path.join(fdPath, name)).catch(() => undefined)));
      await unlink(path.join(fdPath, PROBE_NAME));
      return found.some((stats) => stats !== undefined);
    });
  } finally {
    // ignore an error, because an empty probe directory does no harm
    await rmdir(dir).catch(() => {});
  }
}

/**
 * Marks a disk for the first time. Skips a disk that another host has already marked, because on this host the disk
 * might not be mounted.
 */
async function markFirst(ctx: Context, disk: MarkedDisk): Promise<void> {
  const name = await prepareMarker(disk);
  // if an error occurs after this call has recorded the temporary file's name, the next call creates the marker from
  // this file
  if (!(await recordMarked(ctx, disk.diskId, name))) await dropMarker(disk, name);
  const { markedAs } = await readTraces(ctx, disk.diskId, 0);
  // another process on this host might have recorded its temporary file's name, but not yet renamed this file to the
  // marker
  if (markedAs !== null) await placeMarker(disk, markedAs);
}

async function markDisk(ctx: Context, { id, mountpoint }: { id: number; mountpoint: string }): Promise<void> {
  await writeMarker({ diskId: id, mountpoint });
  await recordMarked(ctx, id, null);
}

async function hasAnyCopy(root: string, copies: readonly RecordedCopy[]): Promise<boolean> {
  const found = await Promise.all(
    copies.map(async (copy) => {
      const stats = await lstat(path.join(root, copy.path), { bigint: true }).catch(() => undefined);
      return stats !== undefined && matchesRecord(copy, stats);
    }),
  );
  return found.includes(true);
}
