/**
 * Markers distinguish a restore disk from the empty directory under its mount point. Without the right marker, Tapegate
 * does not write to the mount point, and does not count the disk's copies as missing.
 */
import { randomUUID } from 'node:crypto';
import { type FileHandle, lstat, open, realpath, rename, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf, quote, TapeError } from '../core/errors.js';
import { removeOwner } from './owner.js';
import { readText } from './text.js';

/** Name of the marker file. No catalogue path contains a name that begins with `.tapegate-`. */
export const markerName = '.tapegate-disk';

export interface MarkedDisk {
  diskId: number;
  mountpoint: string;
}

/**
 * Returns the contents of a marker file. The contents include the mount point, so that Tapegate notices if two disks
 * are mounted at each other's mount points.
 */
function markerText({ diskId, mountpoint }: MarkedDisk): string {
  return `${JSON.stringify({ disk: diskId, mountpoint })}\n`;
}

/** Error for an unavailable disk: its mount point is missing, or the disk is not mounted there. */
export class AbsentError extends TapeError {
  constructor(message: string, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
  }
}

/** Returns the mount point with symbolic links resolved. @throws AbsentError if the disk is unavailable */
export async function rootOf(disk: MarkedDisk): Promise<string> {
  const { root, hasMarker } = await findRoot(disk);
  if (!hasMarker) throw new AbsentError(unmarked(disk));
  return root;
}

function unmarked({ mountpoint }: MarkedDisk): string {
  return `the restore disk ${mountpoint} is not mounted, or lost its marker: ${path.join(mountpoint, markerName)} does not exist (disk add --mark creates it)`;
}

/**
 * Returns whether an open directory is the root of the disk.
 * @param fdPath path to the directory through its open descriptor
 */
export async function isRootOf(disk: MarkedDisk, fdPath: string): Promise<boolean> {
  return (await readText(path.join(fdPath, markerName)).catch(() => undefined)) === markerText(disk);
}

/** @throws AbsentError if the mount point is missing or contains another disk's marker */
export async function findRoot(disk: MarkedDisk): Promise<{ root: string; hasMarker: boolean }> {
  const root = await realpath(disk.mountpoint).catch((error: unknown) => {
    throw new AbsentError(`the restore disk ${disk.mountpoint} does not exist`, { cause: error });
  });
  const found = await readText(path.join(root, markerName)).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return undefined;
    const message = `the marker of the restore disk ${disk.mountpoint} cannot be read: ${messageOf(error)}`;
    throw new TapeError('TRANSIENT', message, { cause: error });
  });
  const expected = markerText(disk);
  if (found !== undefined && found !== expected) {
    const [is, due] = [quote(found.trim()), quote(expected.trim())];
    throw new AbsentError(`another disk is mounted at ${disk.mountpoint}: its marker is ${is}, expected ${due}`);
  }
  return { root, hasMarker: found !== undefined };
}

/**
 * Returns an identifier of the marker file, which consists of the file's inode and, if available, its creation time.
 * The identifier changes if the file system renumbers its inodes, or if the disk is copied to another file system.
 */
export async function readMarkerId(root: string): Promise<string> {
  const { ino, birthtimeNs } = await lstat(path.join(root, markerName), { bigint: true });
  return `${ino}:${birthtimeNs}`;
}

export async function removeMarker(disk: MarkedDisk): Promise<void> {
  const { root, hasMarker } = await findRoot(disk);
  if (!hasMarker) return;
  await removeOwner(root);
  await unlink(path.join(root, markerName));
}

/** Writes a disk's marker to the mounted file system, atomically. */
export async function writeMarker(disk: MarkedDisk): Promise<void> {
  const name = await prepareMarker(disk);
  await placeMarker(disk, name).catch(async (error: unknown) => {
    await dropMarker(disk, name);
    throw error;
  });
}

/** Writes a marker file under a temporary name, and returns the name. */
export async function prepareMarker(disk: MarkedDisk): Promise<string> {
  const root = await realpath(disk.mountpoint);
  const name = `${markerName}-${randomUUID()}`;
  let handle: FileHandle | undefined;
  try {
    handle = await open(path.join(root, name), 'wx', 0o644);
    await handle.writeFile(markerText(disk));
    await handle.sync();
    return name;
  } catch (error) {
    await dropMarker(disk, name);
    throw error;
  } finally {
    await handle?.close();
  }
}

/** Renames a marker file to its final name. @returns false if the temporary file is missing */
export async function placeMarker({ mountpoint }: MarkedDisk, name: string): Promise<boolean> {
  const root = await realpath(mountpoint);
  try {
    await rename(path.join(root, name), path.join(root, markerName));
    return true;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return false;
    throw error;
  }
}

export async function dropMarker({ mountpoint }: MarkedDisk, name: string): Promise<void> {
  // ignore the error, because the temporary file might not exist
  await unlink(path.join(mountpoint, name)).catch(() => {});
}
