/**
 * The restore area on disk. A file's place is `<mountpoint>/<logical path>`.
 *
 * A copy is written beside its place under a name of its own, synced and renamed, so that a file in place is complete.
 * Nothing leads outside the mount point: a folder is used through an open handle, after the kernel has said which
 * folder that is. A process killed anywhere leaves at most a partial file, whose name tells recall and epoch.
 */
import { constants, readlinkSync } from 'node:fs';
import { type FileHandle, lstat, open, readlink, realpath } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, TapeError } from '../../errors.js';
import { type MarkedDisk, rootOf } from './marker.js';

/** Where a copy stands, or would. */
export interface CopyPlace extends MarkedDisk {
  /** Logical path. */
  path: string;
}

/** A folder of the restore area, open. */
export interface Folder {
  /** A path to it that no later change of names or links can bend. */
  at: string;
  handle: FileHandle;
  /** Where it was when it was opened, and the mount point, both without links. */
  place: string;
  root: string;
}

const HAS_FD_PATHS = process.platform === 'linux';

/** Did an operator move an open folder, perhaps out of the mount point? What is put into it goes with it. One that was removed was empty. */
export function isMoved(folder: Folder): boolean {
  return ![folder.place, removed(folder.place)].includes(placeOf(folder));
}

/** @throws Error when a folder is not where it was any more, with the code ENOENT where it was removed */
export function checkInPlace(folder: Folder): void {
  const place = placeOf(folder);
  if (place === removed(folder.place)) throw justRemoved(folder.place);
  if (place !== folder.place) throw movedAway(folder);
}

export function movedAway({ place }: Folder): Error {
  return new Error(`the folder ${place} was moved away while files were restored into it`);
}

/** Asks no disk. */
function placeOf({ at, place }: Folder): string {
  return HAS_FD_PATHS ? readlinkSync(at) : place;
}

/** As the kernel says it. */
const removed = (place: string) => `${place} (deleted)`;

/** @returns the same, with the folder's own path in its text: the number of a descriptor tells nobody anything */
export function nameFolder(error: unknown, { at, place }: Folder): unknown {
  if (error instanceof Error) error.message = error.message.replaceAll(at, place);
  return error;
}

/** It was empty, and was tidied away. */
export function isRemoved(folder: Folder): boolean {
  return placeOf(folder) === removed(folder.place);
}

function justRemoved(place: string): Error {
  return Object.assign(new Error(`the folder ${place} has just been removed`), { code: 'ENOENT' });
}

/**
 * Uses the place of a copy while its folder is held open.
 * @param use is given a path to the copy that no later change of names or links can bend; there may be nothing there
 * @throws an error with the code ENOENT where the folder is missing, else as `openExisting`
 */
export async function withCopy<T>(place: CopyPlace, use: (file: string, folder: Folder) => Promise<T>): Promise<T> {
  const folder = await openExisting(await rootOf(place), path.dirname(place.path));
  try {
    return await use(path.join(folder.at, path.basename(place.path)), folder);
  } catch (error) {
    throw nameFolder(error, folder);
  } finally {
    await folder.handle.close();
  }
}

/** Makes what is in a folder last. @throws an error with the code ENOENT where it is missing, else as `openExisting` */
export async function syncFolder(disk: MarkedDisk, dir: string): Promise<void> {
  const folder = await openExisting(await rootOf(disk), dir);
  try {
    await folder.handle.sync();
  } finally {
    await folder.handle.close();
  }
}

/**
 * @param root the mount point, without links
 * @throws TapeError POLICY when a link on the way leads elsewhere or something else is in the way, an error with the code ENOENT where
 *   the folder is missing
 */
export async function openExisting(root: string, dir: string): Promise<Folder> {
  const wanted = path.resolve(path.join(root, dir));
  if (leadsOut(wanted, root)) throw new TapeError('POLICY', `the path leads out of the restore disk: ${dir}`);
  const handle = await open(wanted, constants.O_RDONLY | constants.O_DIRECTORY).catch(async (error: unknown) => {
    const inTheWay = await findInTheWay(wanted, codeOf(error));
    if (inTheWay === undefined) throw error;
    throw new TapeError('POLICY', `${inTheWay} is in the way of the folder ${wanted}`, { cause: error });
  });
  try {
    const at = HAS_FD_PATHS ? `/proc/self/fd/${handle.fd}` : wanted;
    const real = HAS_FD_PATHS ? await readlink(at) : await realpath(wanted);
    if (real === removed(wanted)) throw justRemoved(wanted);
    if (real !== wanted) {
      throw new TapeError('POLICY', `a link leads away from the place of the file: ${wanted} is ${real}`);
    }
    return { at, handle, place: wanted, root };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function leadsOut(wanted: string, root: string): boolean {
  return wanted !== root && !wanted.startsWith(root === '/' ? root : `${root}/`);
}

/** What stands where a folder should be, when that is why it could not be opened. */
async function findInTheWay(wanted: string, code: string | undefined): Promise<string | undefined> {
  if (code === 'ENOTDIR') return 'a file';
  if (code === 'ELOOP') return 'a ring of links';
  if (code !== 'ENOENT') return undefined;
  const stats = await lstat(wanted).catch(() => undefined); // not even a link
  return stats?.isSymbolicLink() ? 'a link that leads nowhere' : undefined;
}
