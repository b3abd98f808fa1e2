/**
 * The restore area on disk. A file's place is `<mountpoint>/<logical path>`.
 *
 * A copy is written beside its place under a name of its own, synced and renamed, so that a file in place is complete.
 * Nothing leads outside the mount point: a folder is used through an open handle, after the kernel has said which
 * folder that is. A process killed anywhere leaves at most a partial file, whose name tells recall and epoch.
 */
import { constants, readlinkSync } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, readlink, realpath } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, TapeError } from '../../errors.js';
import { FOLDER_MODE } from './attributes.js';
import { findExposure, ownersOf, tellEverybodys } from './exposure.js';
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
  /** May others write in it, or above it? Undefined where nobody has looked. */
  isShared?: boolean;
}

const HAS_FD_PATHS = process.platform === 'linux';

/**
 * Opens the folder of a logical path, made when missing. The mount point itself is never made: where a disk is not
 * mounted, nothing may be written in its place.
 * @throws TapeError POLICY when a link on the way leads elsewhere or something else is in the way, TRANSIENT when the
 *   disk is not there
 */
export async function openFolder(disk: MarkedDisk, logicalPath: string): Promise<Folder> {
  const root = await rootOf(disk);
  const dir = path.dirname(logicalPath);
  const exposure = await findExposure(root, path.join('/', dir));
  if (exposure?.isEverybodys) {
    // the disk as a whole is no fault of the file, which waits until it is mended
    throw new TapeError(exposure.folder === root ? 'TRANSIENT' : 'POLICY', tellEverybodys(exposure));
  }
  return { ...(await ensureFolder(root, dir)), isShared: exposure !== undefined };
}

async function ensureFolder(root: string, dir: string): Promise<Folder> {
  let isNew = false;
  for (let attempt = 1; ; attempt++) {
    try {
      const folder = await openExisting(root, dir);
      if (isNew) await giveMode(folder);
      return folder;
    } catch (error) {
      // the folder may be tidied away between its making and its opening, since it is empty
      if (codeOf(error) !== 'ENOENT' || dir === '/' || attempt === 5) throw error;
    }
    const parent = await ensureFolder(root, path.dirname(dir));
    try {
      await mkdir(path.join(parent.at, path.basename(dir)), FOLDER_MODE);
      isNew = true;
    } catch (error) {
      if (codeOf(error) !== 'EEXIST' && codeOf(error) !== 'ENOENT') throw error;
    } finally {
      await parent.handle.close();
    }
  }
}

/** Whatever the umask is, and the folder above. Somebody may have exchanged the folder since it was made: no other one gets another mode. */
async function giveMode({ handle, root }: Folder): Promise<void> {
  const { uid, mode } = await handle.stat();
  const isAsMade = (mode & 0o5777 & ~FOLDER_MODE) === 0; // or less, and with the set-group-id bit of the folder above
  if ((mode & 0o7777) === FOLDER_MODE || !isAsMade) return;
  if ((await ownersOf(root)).has(uid)) await handle.chmod(FOLDER_MODE);
}

/** May others write in an open folder, or above it? What is in it, and it, may be exchanged at any moment then. */
export async function isShared({ root, place, isShared }: Folder): Promise<boolean> {
  return isShared ?? (await findExposure(root, path.relative(root, place))) !== undefined;
}

/**
 * Was an open folder moved since? Who may write above it may have moved it, out of the mount point, too: what is put into it goes with
 * it. One that was removed was empty.
 */
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

function justRemoved(place: string): Error {
  return Object.assign(new Error(`the folder ${place} has just been removed`), { code: 'ENOENT' });
}

/**
 * Uses the place of a copy while its folder is held open.
 * @param use is given a path to the copy that no later change of names or links can bend; there may be nothing there
 * @throws an error with the code ENOENT where the folder is missing, else as `openFolder`
 */
export async function withCopy<T>(place: CopyPlace, use: (file: string, folder: Folder) => Promise<T>): Promise<T> {
  const folder = await openExisting(await rootOf(place), path.dirname(place.path));
  try {
    return await use(path.join(folder.at, path.basename(place.path)), folder);
  } finally {
    await folder.handle.close();
  }
}

/** Makes what is in a folder last. @throws an error with the code ENOENT where it is missing, else as `openFolder` */
export async function syncFolder(disk: MarkedDisk, dir: string): Promise<void> {
  const folder = await openExisting(await rootOf(disk), dir);
  try {
    await folder.handle.sync();
  } finally {
    await folder.handle.close();
  }
}

/** @param root the mount point, without links */
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
