/**
 * Markers tell a restore disk from the empty folder that stands in its place while it is not mounted: nothing is written
 * to a mount point, and no copy counts as missing or gone, unless the disk's own marker is there.
 */
import { randomUUID } from 'node:crypto';
import { type FileHandle, open, realpath, rename, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf, quote, TapeError } from '../../errors.js';
import { openPlain } from '../plain-file.js';

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

/**
 * The mount point without links.
 * @throws TapeError TRANSIENT when the disk is not there: missing, not mounted, or another one in its place
 */
export async function rootOf(disk: MarkedDisk): Promise<string> {
  const { root, hasMarker } = await findRoot(disk);
  if (!hasMarker) throw new TapeError('TRANSIENT', unmarked(disk));
  return root;
}

function unmarked({ mountpoint }: MarkedDisk): string {
  return `the restore disk ${mountpoint} is not mounted, or lost its marker: there is no ${path.join(mountpoint, markerName)} (disk add --mark makes it)`;
}

/** @throws TapeError TRANSIENT when the mount point is missing, or has the marker of another disk */
export async function findRoot(disk: MarkedDisk): Promise<{ root: string; hasMarker: boolean }> {
  const root = await realpath(disk.mountpoint).catch((error: unknown) => {
    throw new TapeError('TRANSIENT', `the restore disk ${disk.mountpoint} is not there`, { cause: error });
  });
  const found = await readText(path.join(root, markerName)).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return undefined;
    const message = `the marker of the restore disk ${disk.mountpoint} cannot be read: ${messageOf(error)}`;
    throw new TapeError('TRANSIENT', message, { cause: error });
  });
  const expected = markerText(disk);
  if (found !== undefined && found !== expected) {
    const [is, due] = [quote(found.trim()), quote(expected.trim())];
    throw new TapeError(
      'TRANSIENT',
      `another disk is mounted at ${disk.mountpoint}: its marker says ${is}, not ${due}`,
    );
  }
  return { root, hasMarker: found !== undefined };
}

async function readText(file: string): Promise<string> {
  const handle = await openPlain(file);
  try {
    return await handle.readFile('utf8');
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
  const root = await realpath(disk.mountpoint);
  const fresh = path.join(root, `${markerName}-${randomUUID()}`);
  let handle: FileHandle | undefined;
  try {
    handle = await open(fresh, 'wx', 0o644);
    await handle.writeFile(markerText(disk));
    await handle.sync();
    await rename(fresh, path.join(root, markerName));
  } catch (error) {
    await unlink(fresh).catch(() => {}); // it may not have been made
    throw error;
  } finally {
    await handle?.close();
  }
}
