/**
 * The restore area on disk. A file's place is `<mountpoint>/<logical path>`.
 *
 * A copy is written beside its place under a name of its own, synced and renamed, so that a file in place is complete.
 * Nothing leads outside the mount point: a folder is used through an open handle, after the kernel has said which
 * folder that is. A process killed anywhere leaves at most a partial file, whose name tells recall and epoch.
 */
import { constants } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, readlink, realpath, rmdir } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, TapeError } from '../../errors.js';
import { FOLDER_MODE } from './attributes.js';
import { type MarkedDisk, markerName, rootOf } from './marker.js';

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
}

const HAS_FD_PATHS = process.platform === 'linux';

/**
 * Opens the folder of a logical path, made when missing. The mount point itself is never made: where a disk is not
 * mounted, nothing may be written in its place.
 * @throws TapeError POLICY when a link on the way leads elsewhere or something else is in the way, TRANSIENT when the
 *   disk is not there
 */
export async function openFolder(disk: MarkedDisk, logicalPath: string): Promise<Folder> {
  return await ensureFolder(await rootOf(disk), path.dirname(logicalPath));
}

async function ensureFolder(root: string, dir: string): Promise<Folder> {
  let isNew = false;
  for (let attempt = 1; ; attempt++) {
    try {
      const folder = await openExisting(root, dir);
      if (isNew) await folder.handle.chmod(FOLDER_MODE); // whatever the umask is
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

/**
 * Removes the folders of a place, from the innermost on, as far as they are empty and as `openFolder` makes them: one with another
 * owner, group or mode was made, or changed, by somebody who wants it so, and would be made anew as any.
 * @throws TapeError TRANSIENT when the disk is not there
 */
export async function removeEmptyFolders(place: CopyPlace): Promise<void> {
  const root = await rootOf(place);
  for (let dir = path.dirname(place.path); dir !== '/'; dir = path.dirname(dir)) {
    let parent: Folder | undefined;
    try {
      parent = await openExisting(root, path.dirname(dir));
      const folder = path.join(parent.at, path.basename(dir));
      if (!(await isAsMade(folder, parent, root))) return;
      await rmdir(folder);
    } catch {
      return; // not empty, a link, or gone already: it stays as it is
    } finally {
      await parent?.handle.close();
    }
  }
}

/** A server may map the owner of what this process makes: it is that of the marker then. A group may come from the folder above. */
async function isAsMade(folder: string, parent: Folder, root: string): Promise<boolean> {
  const [stats, above, marker] = [
    await lstat(folder),
    await parent.handle.stat(),
    await lstat(path.join(root, markerName)),
  ];
  const isOwn = stats.uid === process.geteuid?.() || stats.uid === marker.uid;
  const hasGroup = [process.getegid?.(), marker.gid, above.gid].includes(stats.gid);
  return isOwn && hasGroup && (stats.mode & 0o7777) === FOLDER_MODE;
}

/** @param root the mount point, without links */
async function openExisting(root: string, dir: string): Promise<Folder> {
  const wanted = path.resolve(path.join(root, dir));
  if (wanted !== root && !wanted.startsWith(root === '/' ? root : `${root}/`)) {
    throw new TapeError('POLICY', `the path leads out of the restore disk: ${dir}`);
  }
  const handle = await open(wanted, constants.O_RDONLY | constants.O_DIRECTORY).catch(async (error: unknown) => {
    const inTheWay = await findInTheWay(wanted, codeOf(error));
    if (inTheWay === undefined) throw error;
    throw new TapeError('POLICY', `${inTheWay} is in the way of the folder ${wanted}`, { cause: error });
  });
  try {
    const at = HAS_FD_PATHS ? `/proc/self/fd/${handle.fd}` : wanted;
    const real = HAS_FD_PATHS ? await readlink(at) : await realpath(wanted);
    if (real === `${wanted} (deleted)`) {
      throw Object.assign(new Error(`the folder ${wanted} has just been removed`), { code: 'ENOENT' });
    }
    if (real !== wanted) {
      throw new TapeError('POLICY', `a link leads away from the place of the file: ${wanted} is ${real}`);
    }
    return { at, handle };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** What stands where a folder should be, when that is why it could not be opened. */
async function findInTheWay(wanted: string, code: string | undefined): Promise<string | undefined> {
  if (code === 'ENOTDIR') return 'a file';
  if (code === 'ELOOP') return 'a ring of links';
  if (code !== 'ENOENT') return undefined;
  const stats = await lstat(wanted).catch(() => undefined); // not even a link
  return stats?.isSymbolicLink() ? 'a link that leads nowhere' : undefined;
}
