/**
 * The restore area on disk. A file's place is `<mountpoint>/<logical path>`.
 *
 * A copy is written beside its place under a name of its own, synced and renamed, so that a file in place is complete.
 * Nothing leads outside the mount point: a folder is used through an open handle, after the kernel has said which
 * folder that is. A process killed anywhere leaves at most a partial file, whose name tells recall and epoch.
 */
import { type BigIntStats, constants, lstatSync, renameSync } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, readlink, realpath, rmdir, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, TapeError } from '../../errors.js';
import { lstatPath, renamePath } from './descriptors.js';
import { type MarkedDisk, rootOf } from './marker.js';

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
  for (let attempt = 1; ; attempt++) {
    try {
      return await openExisting(root, dir);
    } catch (error) {
      // the folder may be tidied away between its making and its opening, since it is empty
      if (codeOf(error) !== 'ENOENT' || dir === '/' || attempt === 5) throw error;
    }
    const parent = await ensureFolder(root, path.dirname(dir));
    try {
      await mkdir(path.join(parent.at, path.basename(dir)));
    } catch (error) {
      if (codeOf(error) !== 'EEXIST' && codeOf(error) !== 'ENOENT') throw error;
    } finally {
      await parent.handle.close();
    }
  }
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

/** The folder of a copy. @throws an error with the code ENOENT where it is missing, else as `openFolder` */
export async function openFolderOf(copy: MarkedDisk & { path: string }): Promise<Folder> {
  return await openExisting(await rootOf(copy), path.dirname(copy.path));
}

/** The name under which a recall writes; it fits any file system, however long the file's own name is. */
export function partialName(recall: { fileId: bigint; driveId: number; epoch: bigint }): string {
  return `.tapegate-${recall.fileId}-${recall.driveId}-${recall.epoch}.part`;
}

/** The recall that a partial file was written by; undefined for any other name. */
export function parsePartialName(name: string): { fileId: bigint; driveId: number; epoch: bigint } | undefined {
  const [, fileId, driveId, epoch] = /^\.tapegate-(\d{1,18})-(\d{1,9})-(\d{1,18})\.part$/.exec(name) ?? [];
  return fileId && driveId && epoch
    ? { fileId: BigInt(fileId), driveId: Number(driveId), epoch: BigInt(epoch) }
    : undefined;
}

export async function removePartial(copy: MarkedDisk & { path: string }, name: string): Promise<void> {
  let folder: Folder | undefined;
  try {
    folder = await openFolderOf(copy);
    await unlink(path.join(folder.at, name));
  } catch (error) {
    if (codeOf(error) !== 'ENOENT' && !(error instanceof TapeError)) throw error;
  } finally {
    await folder?.handle.close();
  }
}

/** What stands at the place of a file: nothing, a plain file, or something that no restore may touch. */
export async function inspect(folder: Folder, name: string): Promise<'nothing' | 'file' | 'other'> {
  const stats = await lstatPath(path.join(folder.at, name)).catch(ignoreMissing);
  if (!stats) return 'nothing';
  return stats.isFile() ? 'file' : 'other';
}

export async function putInPlace(folder: Folder, partial: string, name: string): Promise<void> {
  await renamePath(path.join(folder.at, partial), path.join(folder.at, name));
}

/** A copy as it was left: its size in bytes, its modification time in nanoseconds. */
export interface LeftCopy extends MarkedDisk {
  path: string;
  size: bigint;
  mtimeNs: bigint | null;
}

/**
 * Is the copy as it was left? `missing` when it is gone.
 * @throws TapeError TRANSIENT when the disk is not there: the copy will be there again when the disk is
 */
export async function compareCopy(copy: LeftCopy): Promise<CopyState> {
  return await useCopy(copy, async (file) => compare(copy, await lstat(file, { bigint: true })));
}

/**
 * Removes a copy that is as it was left, and the folders that are empty then. A changed one is left alone.
 * @throws TapeError TRANSIENT when the disk is not there
 */
export async function removeCopy(copy: LeftCopy): Promise<void> {
  const state = await useCopy(copy, async (file) => {
    const aside = path.join(path.dirname(file), `.tapegate-removed-${copy.mtimeNs}.part`);
    try {
      return takeAway(copy, file, aside);
    } finally {
      await unlink(aside).catch(ignoreMissing); // also what a process killed here has left
    }
  });
  // also of one that is gone: a process killed in between has left its folders
  if (state !== 'changed') await removeEmptyFolders(await rootOf(copy), path.dirname(copy.path));
}

/**
 * Looked at and moved in one go: a process that stands still in between, loses its locks with the database, and awakes
 * when a new copy is in place would take that one. Moved and not removed, since removing a large file takes its time.
 */
function takeAway(copy: LeftCopy, file: string, aside: string): CopyState {
  const state = compare(copy, lstatSync(file, { bigint: true }));
  if (state === 'same') renameSync(file, aside);
  return state;
}

type CopyState = 'same' | 'changed' | 'missing';

function compare(copy: LeftCopy, stats: BigIntStats): CopyState {
  return stats.isFile() && stats.size === copy.size && stats.mtimeNs === copy.mtimeNs ? 'same' : 'changed';
}

async function useCopy(copy: LeftCopy, use: (file: string) => Promise<CopyState>): Promise<CopyState> {
  let folder: Folder | undefined;
  try {
    folder = await openFolderOf(copy);
    return await use(path.join(folder.at, path.basename(copy.path)));
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return 'missing';
    if (error instanceof TapeError && error.errorClass === 'POLICY') return 'changed';
    throw error;
  } finally {
    await folder?.handle.close();
  }
}

/** Removes a file of the restore area that is no noted copy, and the folders that are empty then. */
export async function removeFile(copy: MarkedDisk & { path: string }): Promise<void> {
  const folder = await openFolderOf(copy);
  try {
    await unlink(path.join(folder.at, path.basename(copy.path)));
  } finally {
    await folder.handle.close();
  }
  await removeEmptyFolders(await rootOf(copy), path.dirname(copy.path));
}

/** @param root the mount point, without links */
async function removeEmptyFolders(root: string, logicalDir: string): Promise<void> {
  for (let dir = logicalDir; dir !== '/'; dir = path.dirname(dir)) {
    let parent: Folder | undefined;
    try {
      parent = await openExisting(root, path.dirname(dir));
      await rmdir(path.join(parent.at, path.basename(dir)));
    } catch {
      return; // not empty, a link, or gone already: it stays as it is
    } finally {
      await parent?.handle.close();
    }
  }
}

function ignoreMissing(error: unknown): undefined {
  if (codeOf(error) !== 'ENOENT') throw error;
}
