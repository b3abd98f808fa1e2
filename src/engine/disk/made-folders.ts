/**
 * Directories that Tapegate creates in the restore area. Each is recorded before it is created, then identified by its
 * inode, and removed after the last copy has left it. A record without an inode means that an engine was about to
 * create the directory. A directory there counts as this one: at that moment, only a trusted operator could have
 * created another.
 */
import type { BigIntStats } from 'node:fs';
import { chmod, lstat, mkdir, opendir, rmdir } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf, messageOf, TapeError } from '../../errors.js';
import {
  type FolderNote,
  type FolderTraits,
  forgetFolders,
  type MadeFolder,
  noteMade,
  noteMaking,
  readFolderNotes,
} from '../../operations/disks/folders.js';
import { type CallWatch, HungError } from '../calls.js';
import { FOLDER_MODE } from './attributes.js';
import { inodeOf } from './copy.js';
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

/** Makes a followed call on a directory's disk; queries to the database happen between such calls. */
type OnDisk = <T>(call: () => Promise<T>) => Promise<T>;

/** An empty directory may be removed between its creation and its opening. */
const ATTEMPTS = 5;

/**
 * Opens the directory of a copy; creates it if missing. Never creates the mount point: on an unmounted disk, nothing
 * may be written.
 * @param made receives each created directory, even if it could not be recorded
 * @throws TapeError POLICY if a directory below the mount point is untrusted, or a link or another file is in the way
 * @throws TapeError TRANSIENT if the disk is absent or untrusted; code ENOENT if the directory is removed repeatedly
 */
export async function openFolder(
  ctx: Context,
  place: CopyPlace,
  onDisk: OnDisk = (call) => call(),
  made: MadeFolder[] = [],
): Promise<Folder> {
  for (let attempt = 1; ; attempt++) {
    const { folder, missing, closed, error } = await onDisk(() => lookForFolder(ctx, place));
    if (closed.length > 0) await finishModes(ctx, place, closed, onDisk);
    if (folder) return folder;
    if (attempt === ATTEMPTS) throw error;
    await makeNoted(ctx, place, missing, { onDisk, made });
  }
}

interface Look {
  /** Open; undefined if missing. */
  folder?: Folder;
  /** Missing directories on its path, outermost first, with the error of opening it. */
  missing: string[];
  error?: unknown;
  /** Directories on its path with fewer rights than Tapegate gives. */
  closed: MadeFolder[];
}

async function lookForFolder(ctx: Context, place: CopyPlace): Promise<Look> {
  const root = await rootOf(place);
  const dir = path.dirname(place.path);
  const untrusted = await findUntrusted({ root, dir }, ctx.config.restoreGroup);
  // an untrusted disk is not the file's fault: the file waits until the disk is repaired
  if (untrusted) throw new TapeError(untrusted.isWholeDisk ? 'TRANSIENT' : 'POLICY', describeUntrusted(untrusted));
  const { missing, closed, inTheWay } = await walkTo(root, place.path);
  if (inTheWay !== undefined) await (await openExisting(root, inTheWay)).handle.close(); // throws the reason
  try {
    return { folder: await openExisting(root, dir), missing, closed };
  } catch (error) {
    if (codeOf(error) !== 'ENOENT' || dir === '/') throw error;
    return { missing, closed, error };
  }
}

interface Walk extends Pick<Look, 'closed' | 'missing'> {
  /** An entry that should be a directory, but is not. */
  inTheWay?: string;
}

async function walkTo(root: string, logicalPath: string): Promise<Walk> {
  const closed: MadeFolder[] = [];
  const dirs = foldersOf(logicalPath).reverse();
  for (const [index, dir] of dirs.entries()) {
    const stats = await lstat(path.join(root, dir), { bigint: true }).catch(ignoreMissing);
    if (!stats) return { closed, missing: dirs.slice(index) };
    if (!stats.isDirectory()) return { closed, missing: [], inTheWay: dir };
    if ((stats.mode & BigInt(FOLDER_MODE)) !== BigInt(FOLDER_MODE)) closed.push({ path: dir, ...traitsOf(stats) });
  }
  return { closed, missing: [] };
}

/** Directories above a logical path, innermost first. */
export function foldersOf(logicalPath: string): string[] {
  const dirs: string[] = [];
  for (let dir = path.dirname(logicalPath); dir !== '/'; dir = path.dirname(dir)) dirs.push(dir);
  return dirs;
}

/** Sets the mode if an engine was killed before it did. Leaves other directories alone: someone set their mode. */
async function finishModes(
  ctx: Context,
  place: CopyPlace,
  closed: readonly MadeFolder[],
  onDisk: OnDisk,
): Promise<void> {
  const paths = closed.map((folder) => folder.path);
  const notes = await readFolderNotes(ctx, place.diskId, paths);
  const begun = closed.filter((folder) => notes.get(folder.path)?.ino === null);
  if (begun.length === 0) return;
  const root = await onDisk(() => rootOf(place));
  for (const { path: dir } of begun) await onDisk(() => chmod(path.join(root, dir), FOLDER_MODE).catch(ignoreMissing));
  await noteMade(ctx, place.diskId, begun);
}

async function makeNoted(
  ctx: Context,
  place: CopyPlace,
  missing: readonly string[],
  { onDisk, made: all }: { onDisk: OnDisk; made: MadeFolder[] },
): Promise<void> {
  const notes = await noteMaking(ctx, place.diskId, missing);
  const made: MadeFolder[] = [];
  const there = new Set<string>();
  try {
    await onDisk(() => makeFolders(place, missing, { made, there }));
  } catch (error) {
    // a hung disk may still create them: cleanup after the recall looks for them
    if (!isHung(error) && (codeOf(error) !== undefined || error instanceof TapeError)) {
      const unmade = notes.filter((note) => !there.has(note.path));
      await forgetFolders(ctx, place.diskId, unmade);
    }
    throw error;
  } finally {
    all.push(...made);
    if (made.length > 0) await noteMade(ctx, place.diskId, made);
  }
}

const isHung = (error: unknown) => [error, error instanceof Error && error.cause].some((e) => e instanceof HungError);

/** @param found.made receives each new directory; `there` also those that another process just created */
async function makeFolders(
  place: CopyPlace,
  missing: readonly string[],
  { made, there }: { made: MadeFolder[]; there: Set<string> },
): Promise<void> {
  const root = await rootOf(place);
  for (const dir of missing) {
    const parent = await openExisting(root, path.dirname(dir)).catch(ignoreMissing);
    if (!parent) return; // its parent was removed: opening it fails and retries
    try {
      await makeFolder(parent, dir, made);
      there.add(dir);
    } catch (error) {
      if (codeOf(error) === 'EEXIST') there.add(dir);
      // it or its parent was removed: opening it fails and retries
      else if (codeOf(error) !== 'ENOENT') throw nameFolder(error, parent);
    } finally {
      await parent.handle.close();
    }
  }
}

/** Creates a directory with a mode that depends neither on the umask nor on the parent. */
async function makeFolder(parent: Folder, dir: string, made: MadeFolder[]): Promise<void> {
  const at = path.join(parent.at, path.basename(dir));
  await mkdir(at, FOLDER_MODE);
  const stats = await lstat(at, { bigint: true });
  made.push({ path: dir, ...traitsOf(stats) });
  if ((stats.mode & 0o7777n) !== BigInt(FOLDER_MODE)) await chmod(at, FOLDER_MODE);
}

/** File systems without birth times report 0. */
export function traitsOf(stats: BigIntStats): FolderTraits {
  return { ino: inodeOf(stats), birthNs: stats.birthtimeNs > 0n ? stats.birthtimeNs : null };
}

/** Whether the directory is the recorded one. A reused inode has another birth time. */
export function isNoted(note: Pick<FolderNote, 'ino' | 'birthNs'> | undefined, stats: BigIntStats): boolean {
  if (!note) return false;
  const { ino, birthNs } = traitsOf(stats);
  if (note.ino === null) return true; // about to be created
  return note.ino === ino && (note.birthNs === null || birthNs === null || note.birthNs === birthNs);
}

/**
 * Removes the directories of a copy, innermost first, while they are empty, created by Tapegate, and unchanged: another
 * owner, group or mode was set by someone who wants to keep it. Then removes their records, also of directories that
 * are already gone, because a process may have been killed in between.
 * @param made directories that the caller created, whose records may be missing
 * @throws AbsentError if the disk is absent; the disk's error: no later job would find an empty directory
 */
export async function removeEmptyFolders(
  ctx: Context,
  place: CopyPlace,
  onDisk: OnDisk = (call) => call(),
  made: readonly MadeFolder[] = [],
): Promise<void> {
  const dirs = foldersOf(place.path);
  const [innermost] = dirs;
  if (innermost === undefined || (await onDisk(() => lookAtFolder(place, innermost))) === 'kept') return;
  // before the checks that count: a directory that is recreated meanwhile has another record
  const notes = await readFolderNotes(ctx, place.diskId, dirs);
  if (notes.size === 0 && made.length === 0) return;
  const gone: FolderNote[] = [];
  for (const dir of dirs) {
    const note = notes.get(dir);
    const known = note ?? made.findLast((folder) => folder.path === dir);
    if (!(await onDisk(() => isGone(place, dir, known)))) break;
    if (note) gone.push(note);
  }
  if (gone.length > 0) await forgetFolders(ctx, place.diskId, gone);
}

/** Removes a directory if it is empty and the recorded one. @returns whether it is gone */
async function isGone(disk: MarkedDisk, dir: string, note: FolderNote | MadeFolder | undefined): Promise<boolean> {
  const seen = await lookAtFolder(disk, dir);
  if (typeof seen === 'string') return seen === 'missing';
  if (!isNoted(note, seen)) return false;
  const parent = await openExisting(await rootOf(disk), path.dirname(dir)).catch(keepUnlessFailed);
  try {
    if (parent) await rmdir(path.join(parent.at, path.basename(dir)));
    return parent !== undefined;
  } catch (error) {
    keepUnlessFailed(error);
    return false; // no longer empty, or replaced
  } finally {
    await parent?.handle.close();
  }
}

/**
 * Returns the stats of an empty directory as Tapegate creates them, else `kept`. @throws AbsentError; the disk's error
 */
export async function lookAtFolder(disk: MarkedDisk, dir: string): Promise<BigIntStats | 'missing' | 'kept'> {
  try {
    const parent = await openExisting(await rootOf(disk), path.dirname(dir));
    try {
      const folder = path.join(parent.at, path.basename(dir));
      const seen = await lstat(folder, { bigint: true });
      const isMounted = seen.dev !== (await parent.handle.stat({ bigint: true })).dev;
      if (isMounted || !(await isAsMade(seen, parent)) || !(await isEmptyFolder(folder))) return 'kept';
      return seen;
    } finally {
      await parent.handle.close();
    }
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return 'missing';
    keepUnlessFailed(error);
    return 'kept';
  }
}

/**
 * Whether owner, group and mode are as Tapegate would set them; otherwise someone changed them on purpose. A server may
 * map the owner, as it did for the marker. The group may come from the parent directory.
 */
export async function isAsMade(stats: BigIntStats, parent: Folder): Promise<boolean> {
  const [above, marker] = [await parent.handle.stat(), await lstat(path.join(parent.root, markerName))];
  const isOwn = [process.geteuid?.(), marker.uid].includes(Number(stats.uid));
  const hasGroup = [process.getegid?.(), marker.gid, above.gid].includes(Number(stats.gid));
  return stats.isDirectory() && isOwn && hasGroup && (stats.mode & 0o7777n) === BigInt(FOLDER_MODE);
}

/** @throws if the directory is unreadable */
async function isEmptyFolder(folder: string): Promise<boolean> {
  const entries = await opendir(folder);
  try {
    return (await entries.read()) === null;
  } finally {
    await entries.close();
  }
}

/** @throws errors that say nothing about the directory; ignores those that mean it is in use, replaced or protected */
function keepUnlessFailed(error: unknown): undefined {
  const isStaying = error instanceof TapeError || STAYING.includes(codeOf(error) ?? '');
  if (error instanceof AbsentError || !isStaying) throw error;
}

const STAYING = ['ENOENT', 'ENOTEMPTY', 'EEXIST', 'EBUSY', 'ENOTDIR', 'ELOOP', 'ENAMETOOLONG', 'EACCES', 'EPERM'];

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
  private readonly made = new Map<string, MadeFolder[]>();

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
    const made = this.made.get(mountpoint) ?? [];
    this.made.set(mountpoint, made);
    const folder = await openFolder(this.ctx, place, (call) => ofDisk(this.calls, place, call), made);
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
    const made = this.made.get(place.mountpoint);
    const removed = removeEmptyFolders(this.ctx, place, (call) => ofDisk(calls, place, call), made);
    return await removed.then(...isDone);
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

const isDone = [() => true, () => false] as const;
