/**
 * Creates directories in the restore area, and removes empty ones.
 *
 * Tapegate removes an empty directory only if it has the owner, group and mode that Tapegate sets. Only trusted users
 * can create a directory in the restore area (`exposure.ts`).
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

/** Mode of the directories that older versions of Tapegate created. */
const EARLIER_MODE = 0o755;

/**
 * Maximum number of attempts to create and open a directory. An attempt fails if another engine removes the new
 * directory before this engine opens it.
 */
const ATTEMPTS = 5;

/**
 * Mode of a new directory until Tapegate sets the final mode. If a directory still has this mode, an engine was killed
 * before it set the final mode.
 */
export const NEW_MODE = 0o1700;

/**
 * Opens the directory of a copy, and creates missing directories. Never creates the mount point, because Tapegate must
 * not write to an unmounted disk.
 * @throws TapeError POLICY if a path component below the mount point is untrusted, or is not a directory
 * @throws TapeError TRANSIENT if the disk is unavailable or untrusted
 * @throws Error with code ENOENT if other engines keep removing the directory
 */
export async function openCopyDirectory(ctx: Context, location: CopyLocation): Promise<Directory> {
  const dir = path.dirname(location.path);
  for (let attempt = 1; ; attempt++) {
    const root = await rootOf(location);
    const untrusted = await findUntrusted({ root, dir }, ctx.config.restoreGroup);
    // use the class TRANSIENT if the whole disk is untrusted, so that the file waits until an operator has fixed the
    // disk
    if (untrusted) throw new TapeError(untrusted.isWholeDisk ? 'TRANSIENT' : 'POLICY', describeUntrusted(untrusted));
    try {
      await ensureDirectories(ctx, root, directoriesAbove(location.path).reverse());
      return await openExisting(root, dir);
    } catch (error) {
      if (codeOf(error) !== 'ENOENT' || attempt === ATTEMPTS) throw error;
    }
  }
}

function directoriesAbove(logicalPath: string): string[] {
  const dirs: string[] = [];
  for (let dir = path.dirname(logicalPath); dir !== '/'; dir = path.dirname(dir)) dirs.push(dir);
  return dirs;
}

/**
 * Creates missing directories. Finishes directories that a killed engine left without their final group and mode.
 * Changes any other existing directory only if Tapegate created it, and only if its mode grants too many permissions.
 * @param dirs directories, outermost first
 * @throws TapeError POLICY if an existing entry is not a directory
 * @throws Error with code ENOENT if a parent directory was just removed
 */
async function ensureDirectories(ctx: Context, root: string, dirs: readonly string[]): Promise<void> {
  const found: { dir: string; stats: Stats | undefined }[] = [];
  for (const dir of dirs) {
    const stats = await lstat(path.join(root, dir)).catch(ignoreMissing);
    if (stats && !stats.isDirectory()) await (await openExisting(root, dir)).handle.close();
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

async function restrictDirectory(root: string, dir: string, wanted: DirectoryAttributes): Promise<void> {
  await withParent(root, dir, async (at, parent) => {
    if (await looksAsCreated(await lstat(at), parent, wanted)) await finishDirectory(at, wanted).catch(ignoreRefusal);
  });
}

/** Opens a directory's parent, and passes to `call` the path of the directory below the open parent. */
async function withParent<T>(
  root: string,
  dir: string,
  call: (at: string, parent: Directory) => Promise<T>,
): Promise<T> {
  const parent = await openExisting(root, path.dirname(dir));
  try {
    return await call(path.join(parent.fdPath, path.basename(dir)), parent);
  } finally {
    await parent.handle.close();
  }
}

/** A directory whose mode or group differs from the catalogue or the settings. */
export interface WrongMode {
  dir: string;
  expected: string;
  found: string;
  isRepaired: boolean;
}

/**
 * Finds directories that Tapegate probably created, and whose mode or group differs from the catalogue or the settings.
 * Engines never add permissions to an existing directory, because an operator might have removed them on purpose. Only
 * `doctor` adds them.
 * @param repair whether to set the mode and the group
 * @throws AbsentError if the disk is unavailable
 */
export async function findWrongModes(
  ctx: Context,
  disk: MarkedDisk,
  { dirs, repair }: { dirs: readonly string[]; repair: boolean },
): Promise<WrongMode[]> {
  const root = await rootOf(disk);
  const { restoreMode, restoreGroup } = ctx.config;
  const modes = await readDirectoryModes(ctx, dirs);
  const known = dirs.filter((dir) => modes.has(dir) || restoreMode !== undefined || restoreGroup !== undefined);
  const found: WrongMode[] = [];
  for (const dir of known) {
    const wanted = wantedDirectory(ctx.config, modes.get(dir));
    const examine = async (at: string, parent: Directory) => {
      const stats = await lstat(at);
      if (isUnfinished(stats) || hasAttributes(stats, wanted) || !(await looksAsCreated(stats, parent, wanted))) return;
      const isSafe = repair && !(await findUntrusted({ root, dir }, restoreGroup));
      if (isSafe) await finishDirectory(at, wanted).catch(ignoreRefusal);
      const isRepaired = isSafe && hasAttributes(await lstat(at), wanted);
      const actual = { mode: stats.mode, gid: wanted.gid === null ? null : stats.gid };
      found.push({ dir, expected: describeAttributes(wanted), found: describeAttributes(actual), isRepaired });
    };
    await withParent(root, dir, examine).catch(ignoreMissing);
  }
  return found;
}

/** Returns whether a directory has the mode and group that `finishDirectory` sets. */
function hasAttributes({ mode, gid }: Stats, wanted: DirectoryAttributes): boolean {
  const hasGroup = wanted.gid === null || gid === wanted.gid;
  return (mode & 0o7777) === (hasGroup ? wanted.mode : withoutGroup(wanted.mode));
}

function describeAttributes({ mode, gid }: DirectoryAttributes): string {
  const text = `mode ${(mode & 0o7777).toString(8).padStart(4, '0')}`;
  return gid === null ? text : `${text}, group ${gid}`;
}

/**
 * Sets a directory's group and mode. If setting the group fails, gives the current group only the permissions that
 * other users have.
 */
async function finishDirectory(at: string, { mode, gid }: DirectoryAttributes): Promise<void> {
  const hasGroup = gid === null || (await lstat(at)).gid === gid || (await trySetGroup(at, gid));
  await chmod(at, hasGroup ? mode : withoutGroup(mode));
}

/** Returns the modes that `finishDirectory` can set. The second mode is for a directory whose group it cannot set. */
export const modesOf = ({ mode, gid }: DirectoryAttributes): number[] =>
  gid === null ? [mode] : [mode, withoutGroup(mode)];

const trySetGroup = (at: string, gid: number): Promise<boolean> =>
  lchown(at, -1, gid).then(
    () => true,
    () => false,
  );

/** Creates a directory with the wanted mode, regardless of the umask and the parent directory's set-group-id bit. */
async function createDirectory(root: string, dir: string, wanted: DirectoryAttributes): Promise<void> {
  const parent = await openExisting(root, path.dirname(dir));
  const at = path.join(parent.fdPath, path.basename(dir));
  try {
    await mkdir(at, NEW_MODE);
    await finishDirectory(at, wanted);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw nameDirectory(error, parent);
  } finally {
    await parent.handle.close();
  }
}

/**
 * Returns whether a directory still has its initial mode. If so, an engine was killed before setting the final mode.
 */
export function isUnfinished({ mode, uid }: Stats): boolean {
  return (mode & 0o1777) === NEW_MODE && uid === process.geteuid?.();
}

/**
 * Removes the directories of a copy, innermost first, as long as they are empty and have the owner, group and mode that
 * Tapegate sets.
 * @throws AbsentError if the disk is unavailable; other disk errors. After an error, the caller must try again later,
 * because no periodic job looks for empty directories
 */
export async function removeEmptyDirectories(ctx: Context, location: CopyLocation): Promise<void> {
  const dirs = directoriesAbove(location.path);
  const modes = await readDirectoryModes(ctx, dirs);
  for (const dir of dirs)
    if (!(await removeIfEmpty(location, dir, wantedDirectory(ctx.config, modes.get(dir))))) return;
}

/** @returns whether the directory no longer exists */
async function removeIfEmpty(disk: MarkedDisk, dir: string, wanted: DirectoryAttributes): Promise<boolean> {
  try {
    return await withParent(await rootOf(disk), dir, async (at, parent) => {
      if (!(await looksAsCreated(await lstat(at), parent, wanted))) return false;
      await rmdir(at); // `rmdir` fails for a mount point, and for a directory that is not empty
      return true;
    });
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return true;
    if (error instanceof AbsentError || !staysForGood(error)) throw error;
    return false;
  }
}

/**
 * Returns whether a directory has the owner, group and mode that Tapegate sets. Also accepts the marker's owner and
 * group, because some file servers map owners, and the parent directory's group, because new directories can inherit
 * it.
 */
async function looksAsCreated(stats: Stats, parent: Directory, wanted: DirectoryAttributes): Promise<boolean> {
  const [above, marker] = [await parent.handle.stat(), await lstat(path.join(parent.root, markerName))];
  const isOwn = [process.geteuid?.(), marker.uid].includes(stats.uid);
  const hasGroup = [process.getegid?.(), marker.gid, above.gid, wanted.gid].includes(stats.gid);
  // a directory has DIRECTORY_MODE if Tapegate created it before the catalogue contained the directory's mode
  const expected = [...modesOf(wanted), ...modesOf({ ...wanted, mode: DIRECTORY_MODE }), EARLIER_MODE];
  const hasMode = expected.includes(stats.mode & 0o7777) || isUnfinished(stats);
  return stats.isDirectory() && isOwn && hasGroup && hasMode;
}

function staysForGood(error: unknown): boolean {
  return error instanceof TapeError || STAYING.includes(codeOf(error) ?? '');
}

const STAYING = ['ENOTEMPTY', 'EEXIST', 'EBUSY', 'ENOTDIR', 'ELOOP', 'ENAMETOOLONG', 'EACCES', 'EPERM'];

interface BatchDirectory {
  directory: Directory;
  mountpoint: string;
}

type FailureOf = (location: CopyLocation) => Error | undefined;

/**
 * The directories that a batch of recalls keeps open. The methods must not be called concurrently. The methods throw a
 * DiskError if the disk might be at fault.
 */
export class OpenDirectories {
  private readonly ctx: Context;
  private readonly calls: CallWatch;
  private readonly tried = new Set<string>();
  private readonly directories = new Map<string, BatchDirectory>();
  /** Parents of the directories that were opened since the last sync, keyed by path on disk. */
  private readonly above = new Map<string, { disk: MarkedDisk; dir: string }>();
  /**
   * Sync errors of directories, keyed by path on disk. A directory's error stays in this map, because a later
   * successful sync does not prove that the data is durable.
   */
  private readonly failed = new Map<string, Error>();

  constructor(ctx: Context, calls: CallWatch) {
    this.ctx = ctx;
    this.calls = calls;
  }

  /**
   * Returns the directory of a copy, and creates missing directories. The directory stays open until `close` is called.
   * @param confirm called before missing directories are created. If it throws an error, no directory is created
   * @throws the errors of `openCopyDirectory`; the error of an earlier failed sync of the directory
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
      // record an error for the batch, because another process has moved the directory, together with the files
      // restored into it
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

  /** Syncs the open directories, and also their parents, because an open directory might be new. Never rejects. */
  async sync(): Promise<FailureOf> {
    await Promise.all(
      [...this.directories].map(([key, open]) => this.syncOne(key, open, () => syncInPlace(open.directory))),
    );
    const due = [...this.above].filter(([key]) => !this.directories.has(key));
    this.above.clear();
    await Promise.all(due.map(([key, { disk, dir }]) => this.syncOne(key, disk, () => syncDirectory(disk, dir))));
    return (place) => this.failureOf(place);
  }

  mayHaveCreated(location: CopyLocation): boolean {
    return this.tried.has(path.join(location.mountpoint, path.dirname(location.path)));
  }

  /**
   * Removes the empty directories of a failed copy. Never rejects.
   * @returns false if the caller must retry the removal
   */
  async removeEmpty(location: CopyLocation, calls: CallWatch): Promise<boolean> {
    return await callDisk(calls, location, () => removeEmptyDirectories(this.ctx, location)).then(
      () => true,
      () => false,
    );
  }

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
      // ignore a removed directory, because it was empty
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

/** Syncs a directory. @throws Error if another process has moved the directory */
async function syncInPlace(directory: Directory): Promise<void> {
  await directory.handle.sync();
  checkInPlace(directory);
}

function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(messageOf(thrown), { cause: thrown });
}
