/**
 * Markers tell a restore disk from the empty folder that stands in its place while it is not mounted: nothing is written
 * to a mount point, and no copy counts as missing or gone, unless the disk's own marker is there.
 */
import { randomUUID } from 'node:crypto';
import { type FileHandle, open, realpath, rename, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf, quote, TapeError } from '../../errors.js';
import { openPlain } from '../checksum.js';

/** No catalogue path has a name that begins with `.tapegate-`. */
export const markerName = '.tapegate-disk';

/** A restore disk, as far as its marker tells it from others. */
export interface MarkedDisk {
  diskId: number;
  mountpoint: string;
}

/** What a marker holds: with the mount point too, so that two disks that were swapped are told apart. */
function markerText({ diskId, mountpoint }: MarkedDisk): string {
  return `${JSON.stringify({ disk: diskId, mountpoint })}\n`;
}

/** The disk is not there: its mount point is missing, nothing is mounted, or another disk is. */
export class AbsentError extends TapeError {
  constructor(message: string, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
  }
}

/**
 * The mount point without links.
 * @throws AbsentError when the disk is not there: missing, not mounted, or another one in its place
 */
export async function rootOf(disk: MarkedDisk): Promise<string> {
  const { root, hasMarker } = await findRoot(disk);
  if (!hasMarker) throw new AbsentError(unmarked(disk));
  return root;
}

function unmarked({ mountpoint }: MarkedDisk): string {
  return `the restore disk ${mountpoint} is not mounted, or lost its marker: there is no ${path.join(mountpoint, markerName)} (disk add --mark makes it)`;
}

/** @throws AbsentError when the mount point is missing, or has the marker of another disk */
export async function findRoot(disk: MarkedDisk): Promise<{ root: string; hasMarker: boolean }> {
  const root = await realpath(disk.mountpoint).catch((error: unknown) => {
    throw new AbsentError(`the restore disk ${disk.mountpoint} is not there`, { cause: error });
  });
  const found = await readText(path.join(root, markerName)).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return undefined;
    const message = `the marker of the restore disk ${disk.mountpoint} cannot be read: ${messageOf(error)}`;
    throw new TapeError('TRANSIENT', message, { cause: error });
  });
  const expected = markerText(disk);
  if (found !== undefined && found !== expected) {
    const [is, due] = [quote(found.trim()), quote(expected.trim())];
    throw new AbsentError(`another disk is mounted at ${disk.mountpoint}: its marker says ${is}, not ${due}`);
  }
  return { root, hasMarker: found !== undefined };
}

/** More than a marker has, whose longest part is a path. */
const MOST_BYTES = 16 * 1024;

async function readText(file: string): Promise<string> {
  const handle = await openPlain(file);
  try {
    const buffer = Buffer.alloc(MOST_BYTES); // anybody's file may be there, of any size
    const { bytesRead } = await handle.read(buffer, 0, MOST_BYTES, 0);
    return buffer.toString('utf8', 0, bytesRead);
  } finally {
    await handle.close();
  }
}

/** Takes the disk's own marker away, where it is there: what is mounted is no restore disk any more. */
export async function removeMarker(disk: MarkedDisk): Promise<void> {
  const { root, hasMarker } = await findRoot(disk);
  if (hasMarker) await unlink(path.join(root, markerName));
}

/** Marks what is mounted there now as the disk, in one step that other processes see whole. Calling twice is safe. */
export async function writeMarker(disk: MarkedDisk): Promise<void> {
  const name = await prepareMarker(disk);
  await placeMarker(disk, name).catch(async (error: unknown) => {
    await dropMarker(disk, name);
    throw error;
  });
}

/** @returns the name of a whole marker on what is mounted there now, which is not in its place yet */
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

/** Puts a marker that was prepared in its place. @returns false where it is not there */
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

/** Takes a marker away that was prepared, and is not to be put in its place. */
export async function dropMarker({ mountpoint }: MarkedDisk, name: string): Promise<void> {
  await unlink(path.join(mountpoint, name)).catch(() => {}); // it may not have been made
}
