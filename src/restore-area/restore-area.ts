/**
 * The restore area on disk. The path of a restored file is `<mountpoint>/<logical path>`.
 *
 * An engine writes a copy under a temporary name in its final directory, syncs it and renames it. Therefore a copy with
 * its final name is always complete. If the engine is killed before the rename, only a partial file remains, whose name
 * identifies the recall.
 *
 * Tapegate never writes outside the mount point: it uses each directory through an open descriptor, after the kernel
 * has confirmed the directory's path.
 */
import { constants, readlinkSync } from 'node:fs';
import { type FileHandle, lstat, open, readlink, realpath } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, TapeError } from '../core/errors.js';
import { type MarkedDisk, rootOf } from './marker.js';

/** Location of a copy that might not exist yet. */
export interface CopyLocation extends MarkedDisk {
  path: string;
}

export interface Directory {
  /**
   * Path to the directory through its open descriptor. This path leads to the same directory even if another process
   * renames the directory or replaces it with a link.
   */
  fdPath: string;
  handle: FileHandle;
  /**
   * Path that the directory had when it was opened, with symbolic links resolved. `root` is the resolved path of the
   * mount point.
   */
  path: string;
  root: string;
}

const HAS_FD_PATHS = process.platform === 'linux';

/** Returns whether an operator has moved an open directory. Returns false if the directory was removed. */
export function isMoved(directory: Directory): boolean {
  return ![directory.path, removedPath(directory.path)].includes(readPath(directory));
}

/**
 * Checks that an open directory still has the same path.
 * @throws Error if the directory was moved
 * @throws Error with code ENOENT if the directory was removed
 */
export function checkInPlace(directory: Directory): void {
  const currentPath = readPath(directory);
  if (currentPath === removedPath(directory.path)) throw justRemoved(directory.path);
  if (currentPath !== directory.path) throw movedAway(directory);
}

export function movedAway({ path }: Directory): Error {
  return new Error(`the directory ${path} was moved while files were being restored into it`);
}

function readPath({ fdPath, path }: Directory): string {
  return HAS_FD_PATHS ? readlinkSync(fdPath) : path;
}

const removedPath = (path: string) => `${path} (deleted)`;

/**
 * Replaces the path through a directory's descriptor with the directory's real path in an error message. @returns the
 * error
 */
export function nameDirectory(error: unknown, { fdPath: at, path: place }: Directory): unknown {
  if (error instanceof Error) error.message = error.message.replaceAll(at, place);
  return error;
}

export function isRemoved(directory: Directory): boolean {
  return readPath(directory) === removedPath(directory.path);
}

function justRemoved(path: string): Error {
  return Object.assign(new Error(`the directory ${path} has just been removed`), { code: 'ENOENT' });
}

/**
 * Opens the directory of a copy, and calls `use` with the path of the copy.
 * @param use receives a path through the open directory; the copy itself might be missing
 * @throws Error with code ENOENT if the directory is missing; the other errors from `openExisting`
 */
export async function withCopy<T>(
  location: CopyLocation,
  use: (file: string, directory: Directory) => Promise<T>,
): Promise<T> {
  return await withDirectory(await rootOf(location), path.dirname(location.path), (directory) =>
    use(path.join(directory.fdPath, path.basename(location.path)), directory),
  );
}

/** Opens a directory, passes it to `use`, and closes it. */
export async function withDirectory<T>(
  root: string,
  dir: string,
  use: (directory: Directory) => Promise<T>,
): Promise<T> {
  const directory = await openExisting(root, dir);
  try {
    return await use(directory);
  } catch (error) {
    throw nameDirectory(error, directory);
  } finally {
    await directory.handle.close();
  }
}

/**
 * Opens the directory of a copy and calls `use`, as `withCopy` does, but returns undefined if the copy or its directory
 * is missing, or if a link or file has replaced the directory.
 */
export async function withCopyIfPresent<T>(
  location: CopyLocation,
  use: (file: string, directory: Directory) => Promise<T>,
): Promise<T | undefined> {
  return await withCopy(location, use).catch(ignoreReplaced);
}

/** Ignores an error if it means that a directory is missing, or that a link or file has replaced the directory. */
export function ignoreReplaced(error: unknown): undefined {
  const isInTheWay = error instanceof TapeError && error.errorClass === 'POLICY';
  if (codeOf(error) !== 'ENOENT' && !isInTheWay) throw error;
}

/** @throws Error with code ENOENT if the directory is missing; the other errors from `openExisting` */
export async function syncDirectory(disk: MarkedDisk, dir: string): Promise<void> {
  await withDirectory(await rootOf(disk), dir, ({ handle }) => handle.sync());
}

/**
 * Opens an existing directory below the mount point.
 * @param root the mount point, with symbolic links resolved
 * @throws TapeError POLICY if a path component is a link or is not a directory
 * @throws Error with code ENOENT if the directory is missing
 */
export async function openExisting(root: string, dir: string): Promise<Directory> {
  const wanted = path.resolve(path.join(root, dir));
  if (isOutside(wanted, root)) throw new TapeError('POLICY', `the path ${dir} leads outside the restore disk`);
  const handle = await openUncached(wanted, root).catch(async (error: unknown) => {
    const inTheWay = await findInTheWay(wanted, codeOf(error));
    if (inTheWay === undefined) throw error;
    throw new TapeError('POLICY', `cannot open the directory ${wanted}: the path leads to ${inTheWay}`, {
      cause: error,
    });
  });
  try {
    const fdPath = HAS_FD_PATHS ? `/proc/self/fd/${handle.fd}` : wanted;
    const real = HAS_FD_PATHS ? await readlink(fdPath) : await realpath(wanted);
    if (real === removedPath(wanted)) throw justRemoved(wanted);
    if (real !== wanted) {
      throw new TapeError('POLICY', `the path of the directory ${wanted} leads through a link to ${real}`);
    }
    return { fdPath, handle, path: wanted, root };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

const openPath = (dir: string) => open(dir, constants.O_RDONLY | constants.O_DIRECTORY);

/**
 * Opens a directory. An NFS client can remember a name as missing although another host has created an entry with that
 * name. The NFS client asks the server again when a process opens the parent directory. Therefore this function opens
 * all parents, from the mount point down, before it reports a directory as missing.
 */
async function openUncached(wanted: string, root: string): Promise<FileHandle> {
  try {
    return await openPath(wanted);
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
  }
  const above: string[] = [];
  for (let dir = wanted; dir !== root; above.unshift(dir)) dir = path.dirname(dir);
  for (const dir of above) {
    const opened = await openPath(dir).catch(() => undefined);
    await opened?.close();
  }
  return await openPath(wanted);
}

function isOutside(wanted: string, root: string): boolean {
  return wanted !== root && !wanted.startsWith(root === '/' ? root : `${root}/`);
}

async function findInTheWay(wanted: string, code: string | undefined): Promise<string | undefined> {
  if (code === 'ENOTDIR') return 'a file';
  if (code === 'ELOOP') return 'a loop of symbolic links';
  if (code !== 'ENOENT') return undefined;
  // ignore an error, because it means that nothing exists at this path, not even a link
  const stats = await lstat(wanted).catch(() => undefined);
  return stats?.isSymbolicLink() ? 'a dangling link' : undefined;
}
