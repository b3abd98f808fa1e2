/**
 * Creates directories in the restore area, and removes a directory when it no longer contains a copy. The database does
 * not list these directories. Tapegate removes an empty directory if it has the owner, group and mode that Tapegate
 * sets. Only trusted users can create a directory with these attributes (`exposure.ts`), and Tapegate recreates a
 * removed directory when a copy needs it.
 */
import type { Stats } from 'node:fs';
import { chmod, lchown, lstat, mkdir, rmdir } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf, TapeError } from '../core/errors.js';
import { DIRECTORY_MODE, readDirectoryModes } from '../domain/catalogue/directory-modes.js';
import type { Context } from '../domain/context.js';
import { type DirectoryAttributes, ignoreRefusal, wantedDirectory, withoutGroup } from './attributes.js';
import type { CallWatch } from './call-watch.js';
import { ignoreMissing } from './entry.js';
import { describeUntrusted, findUntrusted } from './exposure.js';
import { callDisk } from './failures.js';
import { AbsentError, type MarkedDisk, markerName, rootOf } from './marker.js';
import {
  type CopyLocation,
  checkInPlace,
  type Directory,
  isMoved,
  isRemoved,
  movedAway,
  nameDirectory,
  openExisting,
  syncDirectory,
} from './restore-area.js';

/** Mode of all directories that older versions of Tapegate created. */
const EARLIER_MODE = 0o755;

/**
 * Maximum number of attempts to create and open a directory. Another engine might remove an empty directory after it is
 * created and before it is opened.
 */
const ATTEMPTS = 5;

/**
 * A new directory's mode until its final mode is set. If an engine is killed before it sets the final mode, this mode
 * shows that the directory is unfinished. Other programs do not use this mode.
 */
export const NEW_MODE = 0o1700;

/**
 * Opens a copy's directory, and creates it if it is missing. Never creates the mount point, because Tapegate must not
 * write to an unmounted disk.
 * @throws TapeError POLICY if a path component below the mount point is untrusted, or is not a directory
 * @throws TapeError TRANSIENT if the disk is unavailable or untrusted; an error with code ENOENT if the directory is
 *   removed repeatedly
 */
export async function openCopyDirectory(ctx: Context, location: CopyLocation): Promise<Directory> {
  const dir = path.dirname(location.path);
  for (let attempt = 1; ; attempt++) {
    const root = await rootOf(location);
    const untrusted = await findUntrusted({ root, dir }, ctx.config.restoreGroup);
    // if the whole disk is untrusted, let the file wait until an operator has fixed the disk
    if (untrusted) throw new TapeError(untrusted.isWholeDisk ? 'TRANSIENT' : 'POLICY', describeUntrusted(untrusted));
    try {
      await ensureDirectories(ctx, root, directoriesAbove(location.path).reverse());
      return await openExisting(root, dir);
    } catch (error) {
      if (codeOf(error) !== 'ENOENT' || attempt === ATTEMPTS) throw error;
    }
  }
}

/** Returns the directories above a logical path, innermost first. */
function directoriesAbove(logicalPath: string): string[] {
  const dirs: string[] = [];
  for (let dir = path.dirname(logicalPath); dir !== '/'; dir = path.dirname(dir)) dirs.push(dir);
  return dirs;
}

/**
 * Creates missing directories. If an engine was killed before it set a directory's group and mode, sets them. If
 * Tapegate created a directory, and the recorded mode now grants fewer permissions, sets the recorded mode. Does not
 * change other existing directories.
 * @param dirs directories, outermost first
 * @throws TapeError POLICY if an existing entry is not a directory; an error with code ENOENT if a parent was just
 * removed
 */
async function ensureDirectories(ctx: Context, root: string, dirs: readonly string[]): Promise<void> {
  const found: { dir: string; stats: Stats | undefined }[] = [];
  for (const dir of dirs) {
    const stats = await lstat(path.join(root, dir)).catch(ignoreMissing);
    if (stats && !stats.isDirectory()) await (await openExisting(root, dir)).handle.close(); // throws the reason
    found.push({ dir, stats });
  }
  const modes = await readDirectoryModes(ctx, dirs);
  for (const { dir, stats } of found) {
    const wanted = wantedDirectory(ctx.config, modes.get(dir));
    if (!stats) await createDirectory(root, dir, wanted);
    else if (isUnfinished(stats)) await finishDirectory(path.join(root, dir), wanted);
    else if (modes.has(dir) && (stats.mode & 0o777 & ~wanted.mode) !== 0) await restrictDirectory(root, dir, wanted);
  }
}

/** Sets an existing directory's group and mode if Tapegate created it. */
async function restrictDirectory(root: string, dir: string, wanted: DirectoryAttributes): Promise<void> {
  const parent = await openExisting(root, path.dirname(dir));
  try {
    const at = path.join(parent.fdPath, path.basename(dir));
    if (await looksAsCreated(await lstat(at), parent, wanted)) await finishDirectory(at, wanted).catch(ignoreRefusal);
  } finally {
    await parent.handle.close();
  }
}

/**
 * Sets a directory's group and mode. If the group cannot be set, the directory's actual group gets only the permissions
 * that other users have.
 */
async function finishDirectory(at: string, { mode, gid }: DirectoryAttributes): Promise<void> {
  const hasGroup = gid === null || (await lstat(at)).gid === gid || (await trySetGroup(at, gid));
  await chmod(at, hasGroup ? mode : withoutGroup(mode));
}

/**
 * Returns the modes that `finishDirectory` can set: the wanted mode, and the mode to use if the group cannot be set.
 */
export const modesOf = ({ mode, gid }: DirectoryAttributes): number[] =>
  gid === null ? [mode] : [mode, withoutGroup(mode)];

const trySetGroup = (at: string, gid: number): Promise<boolean> =>
  lchown(at, -1, gid).then(
    () => true,
    () => false,
  );

/** Creates a directory whose mode depends neither on the umask nor on the parent. */
async function createDirectory(root: string, dir: string, wanted: DirectoryAttributes): Promise<void> {
  const parent = await openExisting(root, path.dirname(dir));
  const at = path.join(parent.fdPath, path.basename(dir));
  try {
    await mkdir(at, NEW_MODE);
    await finishDirectory(at, wanted);
  } catch (error) {
    // ignore the error if another engine has created the directory
    if (codeOf(error) !== 'EEXIST') throw nameDirectory(error, parent);
  } finally {
    await parent.handle.close();
  }
}

/**
 * Returns whether an engine was killed before it set the directory's mode. The set-group-id bit might come from the
 * parent directory.
 */
export function isUnfinished({ mode, uid }: Stats): boolean {
  return (mode & 0o1777) === NEW_MODE && uid === process.geteuid?.();
}

/**
 * Removes a copy's directories, innermost first, as long as they are empty and have the owner, group and mode that
 * Tapegate sets.
 * @throws AbsentError if the disk is unavailable; other disk errors. The caller must retry, because no other job looks
 * for empty directories
 */
export async function removeEmptyDirectories(ctx: Context, location: CopyLocation): Promise<void> {
  const dirs = directoriesAbove(location.path);
  const modes = await readDirectoryModes(ctx, dirs);
  for (const dir of dirs)
    if (!(await removeIfEmpty(location, dir, wantedDirectory(ctx.config, modes.get(dir))))) return;
}

/**
 * Removes a directory if it is empty and has the owner, group and mode that Tapegate sets.
 * @returns whether the directory no longer exists
 */
async function removeIfEmpty(disk: MarkedDisk, dir: string, wanted: DirectoryAttributes): Promise<boolean> {
  try {
    const parent = await openExisting(await rootOf(disk), path.dirname(dir));
    try {
      const at = path.join(parent.fdPath, path.basename(dir));
      if (!(await looksAsCreated(await lstat(at), parent, wanted))) return false;
      await rmdir(at); // fails for a mount point, and for a directory that is not empty
      return true;
    } finally {
      await parent.handle.close();
    }
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return true;
    if (error instanceof AbsentError || !staysForGood(error)) throw error;
    return false;
  }
}

/**
 * Returns whether a directory has the owner, group and mode that Tapegate sets. If the attributes differ, an operator
 * has changed the directory. Also accepts the marker's owner, because some file servers map owners, and the group of
 * the marker or the parent directory.
 */
async function looksAsCreated(stats: Stats, parent: Directory, wanted: DirectoryAttributes): Promise<boolean> {
  const [above, marker] = [await parent.handle.stat(), await lstat(path.join(parent.root, markerName))];
  const isOwn = [process.geteuid?.(), marker.uid].includes(stats.uid);
  const hasGroup = [process.getegid?.(), marker.gid, above.gid, wanted.gid].includes(stats.gid);
  // directories created before modes were recorded have DIRECTORY_MODE
  const expected = [...modesOf(wanted), ...modesOf({ ...wanted, mode: DIRECTORY_MODE }), EARLIER_MODE];
  const hasMode = expected.includes(stats.mode & 0o7777) || isUnfinished(stats);
  return stats.isDirectory() && isOwn && hasGroup && hasMode;
}

/**
 * Returns whether an error means that a directory must stay because it is in use or protected, or was replaced. After
 * any other error, the removal must be retried.
 */
function staysForGood(error: unknown): boolean {
  return error instanceof TapeError || STAYING.includes(codeOf(error) ?? '');
}

const STAYING = ['ENOTEMPTY', 'EEXIST', 'EBUSY', 'ENOTDIR', 'ELOOP', 'ENAMETOOLONG', 'EACCES', 'EPERM'];

interface BatchDirectory {
  directory: Directory;
  mountpoint: string;
}

/** Returns why the contents of a copy's directory might be lost in a crash; undefined if they are durable. */
type FailureOf = (location: CopyLocation) => Error | undefined;

/**
 * Directories that a batch of recalls keeps open. The caller must wait for each call to end before it makes the next
 * call. The methods throw a DiskError if the disk might be at fault.
 */
export class OpenDirectories {
  private readonly ctx: Context;
  private readonly calls: CallWatch;
  /** Directories that the batch tried to open, keyed by path on disk. */
  private readonly tried = new Set<string>();
  private readonly directories = new Map<string, BatchDirectory>();
  /** Parents of directories opened since the last sync, keyed by path on disk. */
  private readonly above = new Map<string, { disk: MarkedDisk; dir: string }>();
  /**
   * Directories whose sync failed, keyed by path on disk. A later successful sync does not prove that the data is
   * durable.
   */
  private readonly failed = new Map<string, Error>();

  constructor(ctx: Context, calls: CallWatch) {
    this.ctx = ctx;
    this.calls = calls;
  }

  /**
   * Returns a copy's directory, and creates it if it is missing. The directory stays open until `close` is called.
   * @param confirm called before a directory is created; throws an error to prevent the creation
   * @throws the same errors as `openCopyDirectory`; the error from an earlier sync of the directory or one of its
   * parents
   */
  async open(location: CopyLocation, confirm: () => Promise<void>): Promise<Directory> {
    const failure = this.failureOf(location);
    if (failure) throw failure;
    const { mountpoint } = location;
    const key = path.join(mountpoint, path.dirname(location.path));
    const known = this.directories.get(key);
    if (known && isRemoved(known.directory)) {
      this.directories.delete(key);
      await this.closeOne(known);
    } else if (known && !isMoved(known.directory)) return known.directory;
    else if (known) {
      // record a failure, because the batch's files were moved with the directory
      const moved = movedAway(known.directory);
      this.failed.set(key, moved);
      throw moved;
    }
    await confirm();
    this.tried.add(key);
    const directory = await callDisk(this.calls, location, () => openCopyDirectory(this.ctx, location));
    this.directories.set(key, { directory, mountpoint });
    const disk = { diskId: location.diskId, mountpoint: location.mountpoint };
    for (let dir = path.dirname(location.path); dir !== '/'; ) {
      dir = path.dirname(dir);
      this.above.set(path.join(location.mountpoint, dir), { disk, dir });
    }
    return directory;
  }

  /**
   * Syncs the open directories and their parents. A parent directory might be new and not yet synced. Never rejects.
   */
  async sync(): Promise<FailureOf> {
    await Promise.all(
      [...this.directories].map(([key, open]) => this.syncOne(key, open, () => syncInPlace(open.directory))),
    );
    const due = [...this.above].filter(([key]) => !this.directories.has(key));
    this.above.clear();
    await Promise.all(due.map(([key, { disk, dir }]) => this.syncOne(key, disk, () => syncDirectory(disk, dir))));
    return (place) => this.failureOf(place);
  }

  /** Returns whether directories might have been created for a copy. */
  mayHaveCreated(location: CopyLocation): boolean {
    return this.tried.has(path.join(location.mountpoint, path.dirname(location.path)));
  }

  /** Removes a failed copy's empty directories. Never rejects. @returns false if the removal must be retried */
  async removeEmpty(location: CopyLocation, calls: CallWatch): Promise<boolean> {
    return await callDisk(calls, location, () => removeEmptyDirectories(this.ctx, location)).then(
      () => true,
      () => false,
    );
  }

  /**
   * Closes the directories. Never rejects, because the directories' contents are already synced, or a failed sync is
   * recorded.
   */
  async close(): Promise<void> {
    await Promise.all([...this.directories.values()].map((open) => this.closeOne(open)));
  }

  private async closeOne(open: BatchDirectory): Promise<void> {
    await callDisk(this.calls, open, () => open.directory.handle.close()).catch(() => {});
  }

  private async syncOne(key: string, disk: { mountpoint: string }, call: () => Promise<void>): Promise<void> {
    if (this.failed.has(key)) return;
    try {
      await callDisk(this.calls, disk, call);
    } catch (error) {
      // if the directory was removed, it was empty, so nothing was lost
      if (codeOf(error) !== 'ENOENT') this.failed.set(key, toError(error));
    }
  }

  private failureOf({ mountpoint, path: file }: CopyLocation): Error | undefined {
    for (let dir = path.dirname(file); ; dir = path.dirname(dir)) {
      const failure = this.failed.get(path.join(mountpoint, dir));
      if (failure || dir === '/') return failure;
    }
  }
}

/** Syncs a directory. @throws Error if the directory was moved together with its contents */
async function syncInPlace(directory: Directory): Promise<void> {
  await directory.handle.sync();
  checkInPlace(directory);
}

function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(messageOf(thrown), { cause: thrown });
}
