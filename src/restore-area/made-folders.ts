/**
 * Directories that Tapegate creates in the restore area, and removes after the last copy has left them. Nothing records
 * them: an empty directory counts as Tapegate's if its owner, group and mode are as Tapegate sets them. Only trusted
 * users can create another one there (`exposure.ts`), and Tapegate creates a removed directory again when it needs it.
 */
import type { Stats } from 'node:fs';
import { chmod, lchown, lstat, mkdir, rmdir } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf, TapeError } from '../core/errors.js';
import { FOLDER_MODE, readFolderModes } from '../domain/catalogue/folder-modes.js';
import type { Context } from '../domain/context.js';
import { type FolderAttributes, ignoreRefusal, wantedFolder, withoutGroup } from './attributes.js';
import type { CallWatch } from './calls.js';
import { ignoreMissing } from './entry.js';
import { describeUntrusted, findUntrusted } from './exposure.js';
import { ofDisk } from './failures.js';
import { AbsentError, type MarkedDisk, markerName, rootOf } from './marker.js';
import {
  type CopyPlace,
  checkInPlace,
  type Folder,
  isMoved,
  isRemoved,
  movedAway,
  nameFolder,
  openExisting,
  syncFolder,
} from './restore-area.js';

/** Mode of all directories that older versions created. */
const EARLIER_MODE = 0o755;

/** An empty directory may be removed between its creation and its opening. */
const ATTEMPTS = 5;

/** Mode of a new directory until its own is set. An engine may be killed in between. No one else uses this mode. */
const NEW_MODE = 0o1700;

/**
 * Opens the directory of a copy; creates it if missing. Never creates the mount point: on an unmounted disk, nothing
 * may be written.
 * @throws TapeError POLICY if a directory below the mount point is untrusted, or a link or another file is in the way
 * @throws TapeError TRANSIENT if the disk is absent or untrusted; code ENOENT if the directory is removed repeatedly
 */
export async function openFolder(ctx: Context, place: CopyPlace): Promise<Folder> {
  const dir = path.dirname(place.path);
  for (let attempt = 1; ; attempt++) {
    const root = await rootOf(place);
    const untrusted = await findUntrusted({ root, dir }, ctx.config.restoreGroup);
    // an untrusted disk is not the file's fault: the file waits until the disk is repaired
    if (untrusted) throw new TapeError(untrusted.isWholeDisk ? 'TRANSIENT' : 'POLICY', describeUntrusted(untrusted));
    try {
      await ensureFolders(ctx, root, foldersOf(place.path).reverse());
      return await openExisting(root, dir);
    } catch (error) {
      if (codeOf(error) !== 'ENOENT' || attempt === ATTEMPTS) throw error;
    }
  }
}

/** Directories above a logical path, innermost first. */
function foldersOf(logicalPath: string): string[] {
  const dirs: string[] = [];
  for (let dir = path.dirname(logicalPath); dir !== '/'; dir = path.dirname(dir)) dirs.push(dir);
  return dirs;
}

/**
 * Creates missing directories, and finishes those of killed engines. An existing one keeps its mode, unless it is
 * Tapegate's and permits more than is recorded by now.
 * @param dirs the outermost first
 * @throws TapeError POLICY if a link or another file is in the way; code ENOENT if a parent was just removed
 */
async function ensureFolders(ctx: Context, root: string, dirs: readonly string[]): Promise<void> {
  const found: { dir: string; stats: Stats | undefined }[] = [];
  for (const dir of dirs) {
    const stats = await lstat(path.join(root, dir)).catch(ignoreMissing);
    if (stats && !stats.isDirectory()) await (await openExisting(root, dir)).handle.close(); // throws the reason
    found.push({ dir, stats });
  }
  const modes = await readFolderModes(ctx, dirs);
  for (const { dir, stats } of found) {
    const wanted = wantedFolder(ctx.config, modes.get(dir));
    if (!stats) await makeFolder(root, dir, wanted);
    else if (isUnfinished(stats)) await finishFolder(path.join(root, dir), wanted);
    else if (modes.has(dir) && (stats.mode & 0o777 & ~wanted.mode) !== 0) await closeFolder(root, dir, wanted);
  }
}

/** Sets the mode of an existing directory of Tapegate. */
async function closeFolder(root: string, dir: string, wanted: FolderAttributes): Promise<void> {
  const parent = await openExisting(root, path.dirname(dir));
  try {
    const at = path.join(parent.at, path.basename(dir));
    if (await isAsMade(await lstat(at), parent, wanted)) await finishFolder(at, wanted).catch(ignoreRefusal);
  } finally {
    await parent.handle.close();
  }
}

/** Sets group and mode. If the group cannot be set, another group gets no rights in its place. */
async function finishFolder(at: string, { mode, gid }: FolderAttributes): Promise<void> {
  const hasGroup = gid === null || (await lstat(at)).gid === gid || (await giveTo(at, gid));
  await chmod(at, hasGroup ? mode : withoutGroup(mode));
}

/** Modes that a directory has once it is finished. */
const modesOf = ({ mode, gid }: FolderAttributes): number[] => (gid === null ? [mode] : [mode, withoutGroup(mode)]);

const giveTo = (at: string, gid: number): Promise<boolean> =>
  lchown(at, -1, gid).then(
    () => true,
    () => false,
  );

/** Creates a directory with a mode that depends neither on the umask nor on the parent. */
async function makeFolder(root: string, dir: string, wanted: FolderAttributes): Promise<void> {
  const parent = await openExisting(root, path.dirname(dir));
  const at = path.join(parent.at, path.basename(dir));
  try {
    await mkdir(at, NEW_MODE);
    await finishFolder(at, wanted);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw nameFolder(error, parent); // another engine has just created it
  } finally {
    await parent.handle.close();
  }
}

/** Whether an engine was killed before it set the mode. The set-group-id bit may come from the parent directory. */
function isUnfinished({ mode, uid }: Stats): boolean {
  return (mode & 0o1777) === NEW_MODE && uid === process.geteuid?.();
}

/**
 * Removes the directories of a copy, innermost first, while they are empty and look as Tapegate creates them.
 * @throws AbsentError if the disk is absent; the disk's error: no later job would find an empty directory
 */
export async function removeEmptyFolders(ctx: Context, place: CopyPlace): Promise<void> {
  const dirs = foldersOf(place.path);
  const modes = await readFolderModes(ctx, dirs);
  for (const dir of dirs) if (!(await removeIfEmpty(place, dir, wantedFolder(ctx.config, modes.get(dir))))) return;
}

/** @returns whether the directory is gone */
async function removeIfEmpty(disk: MarkedDisk, dir: string, wanted: FolderAttributes): Promise<boolean> {
  try {
    const parent = await openExisting(await rootOf(disk), path.dirname(dir));
    try {
      const at = path.join(parent.at, path.basename(dir));
      if (!(await isAsMade(await lstat(at), parent, wanted))) return false;
      await rmdir(at); // refuses a directory with contents, and a mount point
      return true;
    } finally {
      await parent.handle.close();
    }
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return true;
    if (error instanceof AbsentError || !isStaying(error)) throw error;
    return false;
  }
}

/**
 * Whether owner, group and mode are as Tapegate would set them; otherwise someone changed them on purpose. A server may
 * map the owner, as it did for the marker. The group may come from the parent directory.
 */
async function isAsMade(stats: Stats, parent: Folder, wanted: FolderAttributes): Promise<boolean> {
  const [above, marker] = [await parent.handle.stat(), await lstat(path.join(parent.root, markerName))];
  const isOwn = [process.geteuid?.(), marker.uid].includes(stats.uid);
  const hasGroup = [process.getegid?.(), marker.gid, above.gid, wanted.gid].includes(stats.gid);
  const given = [...modesOf(wanted), ...modesOf({ ...wanted, mode: FOLDER_MODE }), EARLIER_MODE]; // also before one was recorded
  const hasMode = given.includes(stats.mode & 0o7777) || isUnfinished(stats);
  return stats.isDirectory() && isOwn && hasGroup && hasMode;
}

/** Whether an error means that a directory is in use, replaced or protected. Others say nothing about it. */
function isStaying(error: unknown): boolean {
  return error instanceof TapeError || STAYING.includes(codeOf(error) ?? '');
}

const STAYING = ['ENOTEMPTY', 'EEXIST', 'EBUSY', 'ENOTDIR', 'ELOOP', 'ENAMETOOLONG', 'EACCES', 'EPERM'];

interface OpenFolder {
  folder: Folder;
  mountpoint: string;
}

/** Returns why the contents of a copy's directory are not durable; undefined if they are. */
type SyncFailures = (place: CopyPlace) => Error | undefined;

/** Open directories of a batch. Calls must not overlap. Throws a DiskError if the disk may be at fault. */
export class OpenFolders {
  private readonly ctx: Context;
  private readonly calls: CallWatch;
  /** Directories for which an open was attempted, by path on disk. */
  private readonly tried = new Set<string>();
  private readonly folders = new Map<string, OpenFolder>();
  /** Parents of directories opened since the last sync, by path on disk. */
  private readonly above = new Map<string, { disk: MarkedDisk; dir: string }>();
  /** Directories whose sync failed, by path on disk. A later successful sync does not prove their data durable. */
  private readonly failed = new Map<string, Error>();

  constructor(ctx: Context, calls: CallWatch) {
    this.ctx = ctx;
    this.calls = calls;
  }

  /**
   * Returns the directory of a copy; creates it if missing. It stays open until `close`.
   * @param confirm awaited before a directory is created; throws to prevent that
   * @throws as `openFolder`; the error of an earlier sync of the directory or a parent
   */
  async open(place: CopyPlace, confirm: () => Promise<void>): Promise<Folder> {
    const failure = this.failureOf(place);
    if (failure) throw failure;
    const { mountpoint } = place;
    const key = path.join(mountpoint, path.dirname(place.path));
    const known = this.folders.get(key);
    if (known && isRemoved(known.folder)) {
      this.folders.delete(key);
      await this.closeOne(known);
    } else if (known && !isMoved(known.folder)) return known.folder;
    else if (known) {
      const moved = movedAway(known.folder); // with its contents
      this.failed.set(key, moved);
      throw moved;
    }
    await confirm();
    this.tried.add(key);
    const folder = await ofDisk(this.calls, place, () => openFolder(this.ctx, place));
    this.folders.set(key, { folder, mountpoint });
    const disk = { diskId: place.diskId, mountpoint: place.mountpoint };
    for (let dir = path.dirname(place.path); dir !== '/'; ) {
      dir = path.dirname(dir);
      this.above.set(path.join(place.mountpoint, dir), { disk, dir });
    }
    return folder;
  }

  /** Syncs the directories and their parents, which another process may not have synced. Never rejects. */
  async sync(): Promise<SyncFailures> {
    await Promise.all([...this.folders].map(([key, open]) => this.syncOne(key, open, () => syncInPlace(open.folder))));
    const due = [...this.above].filter(([key]) => !this.folders.has(key));
    this.above.clear();
    await Promise.all(due.map(([key, { disk, dir }]) => this.syncOne(key, disk, () => syncFolder(disk, dir))));
    return (place) => this.failureOf(place);
  }

  /** Whether directories may have been created for a copy. */
  hasTried(place: CopyPlace): boolean {
    return this.tried.has(path.join(place.mountpoint, path.dirname(place.path)));
  }

  /** Removes empty directories of a failed copy. Never rejects. @returns false if this must be retried */
  async tidy(place: CopyPlace, calls: CallWatch): Promise<boolean> {
    return await ofDisk(calls, place, () => removeEmptyFolders(this.ctx, place)).then(
      () => true,
      () => false,
    );
  }

  /** Never rejects: the contents are synced, or recorded as failed. */
  async close(): Promise<void> {
    await Promise.all([...this.folders.values()].map((open) => this.closeOne(open)));
  }

  private async closeOne(open: OpenFolder): Promise<void> {
    await ofDisk(this.calls, open, () => open.folder.handle.close()).catch(() => {});
  }

  private async syncOne(key: string, disk: { mountpoint: string }, call: () => Promise<void>): Promise<void> {
    if (this.failed.has(key)) return;
    try {
      await ofDisk(this.calls, disk, call);
    } catch (error) {
      // a removed directory was empty, so nothing below it is lost
      if (codeOf(error) !== 'ENOENT') this.failed.set(key, toError(error));
    }
  }

  private failureOf({ mountpoint, path: file }: CopyPlace): Error | undefined {
    for (let dir = path.dirname(file); ; dir = path.dirname(dir)) {
      const failure = this.failed.get(path.join(mountpoint, dir));
      if (failure || dir === '/') return failure;
    }
  }
}

/** @throws Error if the directory was moved, and its contents with it */
async function syncInPlace(folder: Folder): Promise<void> {
  await folder.handle.sync();
  checkInPlace(folder);
}

function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(messageOf(thrown), { cause: thrown });
}
