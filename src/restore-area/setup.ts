/**
 * Registers and marks restore disks. A new disk is marked if it is certainly the mounted one. From then on only its
 * marker identifies it, because an empty directory looks like an empty disk.
 */
import { lstat, mkdir, mkdtemp, realpath, rmdir, stat, unlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, InvalidInputError, messageOf, quote } from '../core/errors.js';
import type { Context } from '../domain/context.js';
import type { RecordedCopy } from '../domain/disks/copies.js';
import {
  type DiskRow,
  ensureDisk,
  listDisks,
  type RemovedDisk,
  readMeasurements,
  refuseNested,
  removeDisk,
  setDisk,
} from '../domain/disks/disks.js';
import { isProbed, readTraces, recordFolding, recordMarked } from '../domain/disks/markings.js';
import { listSuspensions, type SuspensionMode } from '../domain/health/suspensions.js';
import { BoundedCalls } from './calls.js';
import { matchesRecord } from './copy.js';
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

/** Other users must not get write permission, regardless of the umask. */
const OWN_DIRECTORY = { recursive: true, mode: 0o755 } as const;

const ANSWER_MS = 5000;

/** Creates a restore disk in the data directory if the site has none. Marks new disks that are certainly mounted. */
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
 * Registers a restore disk, or changes its allocation, and marks it. A known disk may be changed while it is not
 * mounted.
 * @param input.create creates a missing mount point, as a directory of the parent file system
 * @param input.mark accepts the mounted file system as the disk, even if the disk was marked before or lacks its copies
 * @returns why it could not be marked; then no copy is put on it
 * @throws InvalidInputError
 */
export async function addDisk(
  ctx: Context,
  input: { mountpoint: string; size: bigint; create?: boolean; mark?: boolean },
): Promise<{ disk: DiskRow; problem: string | undefined }> {
  await ownershipOf(ctx).require();
  await refuseOwned(ctx, input.mountpoint);
  if (input.create) {
    await refuseNested(ctx, path.resolve(input.mountpoint), findReal); // before anything is created
    await mkdir(input.mountpoint, OWN_DIRECTORY);
    await refuseUntrusted(ctx, input.mountpoint);
  } else await checkNewDisk(ctx, input.mountpoint);
  const disk = await setDisk(ctx, input);
  if (!input.mark) return { disk, problem: await ensureMarked(ctx, disk) };
  await markDisk(ctx, disk);
  await probeAgain(ctx, disk.id, await rootOf({ diskId: disk.id, mountpoint: disk.mountpoint }));
  return { disk, problem: undefined };
}

/** @throws InvalidInputError if another Tapegate owns the directory */
async function refuseOwned(ctx: Context, mountpoint: string): Promise<void> {
  const root = await realpath(mountpoint).catch(() => undefined); // missing, which is reported separately
  const problem = root && (await findForeign(ctx, mountpoint, root));
  if (problem) throw new InvalidInputError('mountpoint', problem);
}

/** Checks a directory for use as a restore disk; writes nothing. @throws InvalidInputError */
export async function checkNewDisk(ctx: Context, mountpoint: string): Promise<void> {
  await refuseNested(ctx, path.resolve(mountpoint), findReal);
  await refuseMissing(ctx, mountpoint);
  await refuseUntrusted(ctx, mountpoint);
}

/** Skips a registered disk: engines suspend it, and the doctor reports it. */
async function refuseUntrusted(ctx: Context, mountpoint: string): Promise<void> {
  if ((await listDisks(ctx)).some((disk) => disk.mountpoint === mountpoint)) return;
  const untrusted = await findUntrustedMount(mountpoint, { group: ctx.config.restoreGroup, isNew: true });
  if (!untrusted) return;
  throw new InvalidInputError('mountpoint', `${quote(mountpoint)} is unsafe: ${describeUntrusted(untrusted)}`);
}

/** Rejects a missing mount point: if it were created, files for an unmounted disk would go to another one. */
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

/** Resolves the links in the existing part of a path. */
async function findReal(wanted: string): Promise<string> {
  const above = path.dirname(wanted);
  return await realpath(wanted).catch(async (error: unknown) => {
    if (codeOf(error) !== 'ENOENT' || above === wanted) return wanted;
    return path.join(await findReal(above), path.basename(wanted));
  });
}

/**
 * Removes a restore disk and its marker; leaves other files on it alone.
 * @returns why its marker could not be removed
 * @throws NotFoundError; InUseError with figures while it contains copies, or recalls will put some there
 */
export async function removeDiskAndMarker(
  ctx: Context,
  mountpoint: string,
): Promise<{ disk: RemovedDisk; problem: string | undefined }> {
  await ownershipOf(ctx).require();
  const disk = await removeDisk(ctx, mountpoint);
  try {
    await removeMarker({ diskId: disk.id, mountpoint });
    return { disk, problem: undefined };
  } catch (error) {
    return { disk, problem: messageOf(error) };
  }
}

export interface DiskState extends DiskRow {
  /** Actual free bytes; null if unknown, with the reason in `problem`. */
  free: bigint | null;
  problem: string | null;
  suspension: { mode: SuspensionMode; reason: string } | null;
}

/** Returns restore disks with their free space, as seen from this host, else as engines last recorded it. */
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
    const local = await measureDisk(calls, disk, ctx.config.restoreGroup);
    const recorded = measurements.get(disk.id);
    const [free, problem] = [local.free ?? recorded?.free ?? null, local.problem ?? recorded?.problem ?? null];
    return { ...disk, free, problem, suspension };
  };
  return await Promise.all(disks.map(describeDisk));
}

/** Recorded copies to look for: one is enough to identify the disk. */
const MAX_PROOFS = 100;

/** Marks a new disk, unless it was in use and all its copies are missing. Idempotent. @returns why it has no marker */
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
      // the process that recorded the marker may have died before it put it in place
      if (markedAs !== null) await placeMarker(disk, markedAs);
    } else if (isUsed && !(await hasAnyCopy(root, copies))) {
      return `the restore disk ${mountpoint} has no marker, and its recorded copies are missing: it may not be mounted (disk add --mark accepts it as it is)`;
    } else await markFirst(ctx, disk);
    await probeNames(ctx, id, await rootOf(disk));
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** Records whether the file system distinguishes names by case and by Unicode normalisation. */
export async function probeNames(ctx: Context, diskId: number, root: string): Promise<void> {
  if (!(await isProbed(ctx, diskId))) await probeAgain(ctx, diskId, root);
}

/** Does the same for a disk that may be another file system than before. */
async function probeAgain(ctx: Context, diskId: number, root: string): Promise<void> {
  const folds = await foldsNames(root).catch(() => undefined); // nothing can be written there now: it is probed later
  if (folds !== undefined) await recordFolding(ctx, diskId, folds);
}

const PROBE_NAME = 'Caf\u00e9';

/** Whether a file is found by another case, or by another Unicode normalisation, of its name. */
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
    await rmdir(dir).catch(() => {}); // another error, or another user who may write in an untrusted disk, prevents it
  }
}

/**
 * Marks a disk for the first time. If another host was first, its file system is the disk, and this host may only see
 * the directory under the mount point.
 */
async function markFirst(ctx: Context, disk: MarkedDisk): Promise<void> {
  const name = await prepareMarker(disk);
  // an error may occur after the name is recorded: then the next call puts the marker in place
  if (!(await recordMarked(ctx, disk.diskId, name))) await dropMarker(disk, name);
  const { markedAs } = await readTraces(ctx, disk.diskId, 0);
  // another process of this host that was first may still be about to put its marker in place
  if (markedAs !== null) await placeMarker(disk, markedAs);
}

async function markDisk(ctx: Context, { id, mountpoint }: { id: number; mountpoint: string }): Promise<void> {
  await writeMarker({ diskId: id, mountpoint });
  await recordMarked(ctx, id, null);
}

async function hasAnyCopy(root: string, copies: readonly RecordedCopy[]): Promise<boolean> {
  const found = await Promise.all(
    copies.map(async (copy) => {
      const stats = await lstat(path.join(root, copy.path), { bigint: true }).catch(() => undefined); // missing
      return stats !== undefined && matchesRecord(copy, stats);
    }),
  );
  return found.includes(true);
}
