/**
 * The restore area on disk. A file's path is `<mountpoint>/<logical path>`.
 *
 * A copy is written under a temporary name in the same directory, synced and renamed, so that a file in place is
 * complete. Nothing leads outside the mount point: a directory is used through an open handle, after the kernel has
 * reported its path. A process killed anywhere leaves at most a partial file, whose name contains recall and epoch.
 */
import { constants, readlinkSync } from 'node:fs';
import { type FileHandle, lstat, open, readlink, realpath } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, TapeError } from '../core/errors.js';
import { type MarkedDisk, rootOf } from './marker.js';

/** Location of a copy, present or not. */
export interface CopyPlace extends MarkedDisk {
  /** Logical path. */
  path: string;
}

export interface Folder {
  /** A path through the descriptor, which no later rename or link can redirect. */
  at: string;
  handle: FileHandle;
  /** Its path when it was opened, and the mount point; both without links. */
  place: string;
  root: string;
}

const HAS_FD_PATHS = process.platform === 'linux';

/** Whether an operator moved an open directory: new files would move with it. A removed directory does not count. */
export function isMoved(folder: Folder): boolean {
  return ![folder.place, removed(folder.place)].includes(placeOf(folder));
}

/** @throws Error if a directory was moved, with code ENOENT if it was removed */
export function checkInPlace(folder: Folder): void {
  const place = placeOf(folder);
  if (place === removed(folder.place)) throw justRemoved(folder.place);
  if (place !== folder.place) throw movedAway(folder);
}

export function movedAway({ place }: Folder): Error {
  return new Error(`the folder ${place} was moved away while files were restored into it`);
}

/** Makes no call to the disk. */
function placeOf({ at, place }: Folder): string {
  return HAS_FD_PATHS ? readlinkSync(at) : place;
}

/** Path of a removed directory, as the kernel reports it. */
const removed = (place: string) => `${place} (deleted)`;

/** Replaces the descriptor path in an error's text by the directory's path. @returns the error */
export function nameFolder(error: unknown, { at, place }: Folder): unknown {
  if (error instanceof Error) error.message = error.message.replaceAll(at, place);
  return error;
}

export function isRemoved(folder: Folder): boolean {
  return placeOf(folder) === removed(folder.place);
}

function justRemoved(place: string): Error {
  return Object.assign(new Error(`the folder ${place} has just been removed`), { code: 'ENOENT' });
}

/**
 * Uses a copy while its directory is open.
 * @param use gets a path that no later rename or link can redirect; the copy may be missing
 * @throws code ENOENT if the directory is missing; else as `openExisting`
 */
export async function withCopy<T>(place: CopyPlace, use: (file: string, folder: Folder) => Promise<T>): Promise<T> {
  return await withFolder(await rootOf(place), path.dirname(place.path), (folder) =>
    use(path.join(folder.at, path.basename(place.path)), folder),
  );
}

/** Uses a directory while it is open. @throws as `openExisting` */
export async function withFolder<T>(root: string, dir: string, use: (folder: Folder) => Promise<T>): Promise<T> {
  const folder = await openExisting(root, dir);
  try {
    return await use(folder);
  } catch (error) {
    throw nameFolder(error, folder);
  } finally {
    await folder.handle.close();
  }
}

/** Does the same; undefined if there is nothing, or something has replaced the directory. */
export async function ifThere<T>(
  place: CopyPlace,
  use: (file: string, folder: Folder) => Promise<T>,
): Promise<T | undefined> {
  return await withCopy(place, use).catch(ignoreReplaced);
}

/** Ignores that a directory is missing, or that something has replaced it. */
export function ignoreReplaced(error: unknown): undefined {
  const isInTheWay = error instanceof TapeError && error.errorClass === 'POLICY';
  if (codeOf(error) !== 'ENOENT' && !isInTheWay) throw error;
}

/** Syncs a directory. @throws code ENOENT if it is missing; else as `openExisting` */
export async function syncFolder(disk: MarkedDisk, dir: string): Promise<void> {
  await withFolder(await rootOf(disk), dir, ({ handle }) => handle.sync());
}

/**
 * @param root the mount point, without links
 * @throws TapeError POLICY if a link or another file is in the way; code ENOENT if the directory is missing
 */
export async function openExisting(root: string, dir: string): Promise<Folder> {
  const wanted = path.resolve(path.join(root, dir));
  if (leadsOut(wanted, root)) throw new TapeError('POLICY', `the path leads out of the restore disk: ${dir}`);
  const handle = await openDirectory(wanted, root).catch(async (error: unknown) => {
    const inTheWay = await findInTheWay(wanted, codeOf(error));
    if (inTheWay === undefined) throw error;
    throw new TapeError('POLICY', `${inTheWay} is in the way of the folder ${wanted}`, { cause: error });
  });
  try {
    const at = HAS_FD_PATHS ? `/proc/self/fd/${handle.fd}` : wanted;
    const real = HAS_FD_PATHS ? await readlink(at) : await realpath(wanted);
    if (real === removed(wanted)) throw justRemoved(wanted);
    if (real !== wanted) {
      throw new TapeError('POLICY', `a link leads away from the folder ${wanted}, to ${real}`);
    }
    return { at, handle, place: wanted, root };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

const openPath = (dir: string) => open(dir, constants.O_RDONLY | constants.O_DIRECTORY);

/**
 * Opens a directory. NFS remembers that a name is missing, although another host has created it since. It asks the server
 * again after the directory above was opened. So all above are opened, from the root, before this one counts as missing.
 */
async function openDirectory(wanted: string, root: string): Promise<FileHandle> {
  try {
    return await openPath(wanted);
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
  }
  const above: string[] = [];
  for (let dir = wanted; dir !== root; above.unshift(dir)) dir = path.dirname(dir);
  for (const dir of above) {
    const opened = await openPath(dir).catch(() => undefined); // it is missing, or may not be read
    await opened?.close();
  }
  return await openPath(wanted);
}

function leadsOut(wanted: string, root: string): boolean {
  return wanted !== root && !wanted.startsWith(root === '/' ? root : `${root}/`);
}

/** Returns what is in the place of a directory, if that is why it could not be opened. */
async function findInTheWay(wanted: string, code: string | undefined): Promise<string | undefined> {
  if (code === 'ENOTDIR') return 'a file';
  if (code === 'ELOOP') return 'a ring of links';
  if (code !== 'ENOENT') return undefined;
  const stats = await lstat(wanted).catch(() => undefined); // nothing, not even a link
  return stats?.isSymbolicLink() ? 'a link that leads nowhere' : undefined;
}
