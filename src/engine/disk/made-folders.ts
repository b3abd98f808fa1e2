/**
 * Directories of the restore area that Tapegate makes: each is recorded before it is made, then which one it is, and is removed when the last
 * copy has left it. A record without an inode belongs to a directory that an engine was about to make: the directory that stands there is taken
 * for it, since nobody else but a trusted operator can have made one there at that moment.
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

/** Makes a call on the disk of a folder, and follows it; the database is asked between such calls. */
type OnDisk = <T>(call: () => Promise<T>) => Promise<T>;

/** A folder may be tidied away between its making and its opening, since it is empty. */
const ATTEMPTS = 5;

/**
 * Opens the folder of a place, made when missing. The mount point itself is never made: where a disk is not mounted, nothing may be
 * written in its place.
 * @param made is given each folder that was made, also where that could not be noted
 * @throws TapeError POLICY when a directory below the mount point is not trusted, a link on the way leads elsewhere or something else is in the
 *   way, TRANSIENT when the disk is not there or not trusted; an error with the code ENOENT where somebody takes the folder away again and again
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
  /** Open; undefined where it is missing. */
  folder?: Folder;
  /** Folders on the way to it that are not there, from the outermost on, and what was said when it was opened. */
  missing: string[];
  error?: unknown;
  /** Folders on the way to it that have fewer rights than Tapegate gives. */
  closed: MadeFolder[];
}

async function lookForFolder(ctx: Context, place: CopyPlace): Promise<Look> {
  const root = await rootOf(place);
  const dir = path.dirname(place.path);
  const untrusted = await findUntrusted({ root, dir }, ctx.config.restoreGroup);
  // the disk as a whole is no fault of the file, which waits until the disk is repaired
  if (untrusted) throw new TapeError(untrusted.isWholeDisk ? 'TRANSIENT' : 'POLICY', describeUntrusted(untrusted));
  const { missing, closed, inTheWay } = await walkTo(root, place.path);
  if (inTheWay !== undefined) await (await openExisting(root, inTheWay)).handle.close(); // says what it is
  try {
    return { folder: await openExisting(root, dir), missing, closed };
  } catch (error) {
    if (codeOf(error) !== 'ENOENT' || dir === '/') throw error;
    return { missing, closed, error };
  }
}

interface Walk extends Pick<Look, 'closed' | 'missing'> {
  /** What should be a folder, and is none. */
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

/** The folders above a logical path, from the innermost on. */
export function foldersOf(logicalPath: string): string[] {
  const dirs: string[] = [];
  for (let dir = path.dirname(logicalPath); dir !== '/'; dir = path.dirname(dir)) dirs.push(dir);
  return dirs;
}

/** An engine with a narrow umask was killed before it gave them their mode. Any others are as somebody wants them. */
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
    // a disk that hangs may make them still: whoever gives the recall up looks for them
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

/** @param found.made is given each as soon as it is there, `there` also those that another process has just made */
async function makeFolders(
  place: CopyPlace,
  missing: readonly string[],
  { made, there }: { made: MadeFolder[]; there: Set<string> },
): Promise<void> {
  const root = await rootOf(place);
  for (const dir of missing) {
    const parent = await openExisting(root, path.dirname(dir)).catch(ignoreMissing);
    if (!parent) return; // that above it was taken away: whoever opens it sees to that
    try {
      await makeFolder(parent, dir, made);
      there.add(dir);
    } catch (error) {
      if (codeOf(error) === 'EEXIST') there.add(dir);
      // that above it was taken away, or it was itself: whoever opens it sees to that
      else if (codeOf(error) !== 'ENOENT') throw nameFolder(error, parent);
    } finally {
      await parent.handle.close();
    }
  }
}

/** Its mode depends neither on the umask nor on the folder above. */
async function makeFolder(parent: Folder, dir: string, made: MadeFolder[]): Promise<void> {
  const at = path.join(parent.at, path.basename(dir));
  await mkdir(at, FOLDER_MODE);
  const stats = await lstat(at, { bigint: true });
  made.push({ path: dir, ...traitsOf(stats) });
  if ((stats.mode & 0o7777n) !== BigInt(FOLDER_MODE)) await chmod(at, FOLDER_MODE);
}

/** Where a file system has no time of birth, 0 is told. */
export function traitsOf(stats: BigIntStats): FolderTraits {
  return { ino: inodeOf(stats), birthNs: stats.birthtimeNs > 0n ? stats.birthtimeNs : null };
}

/** Is the folder the one that was noted? An inode is soon that of another folder, which has another time of birth. */
export function isNoted(note: Pick<FolderNote, 'ino' | 'birthNs'> | undefined, stats: BigIntStats): boolean {
  if (!note) return false;
  const { ino, birthNs } = traitsOf(stats);
  if (note.ino === null) return true; // it was about to be made
  return note.ino === ino && (note.birthNs === null || birthNs === null || note.birthNs === birthNs);
}

/**
 * Removes the folders of a place, from the innermost on, as far as they are empty, were made by Tapegate, and are as it makes them: one with
 * another owner, group or mode was changed by somebody who wants it so. Their notes go after them; of those that are gone already
 * as well, since a process may have been killed in between.
 * @param made folders that the caller has made: others may have forgotten them, or nobody could note them
 * @throws AbsentError when the disk is not there, and what its disk failed with: nobody would come back to an empty folder
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
  // before the looks that count: a folder that is made again meanwhile has another note by then
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

/** Removes it where it is empty, and the one that is noted. @returns whether it is not there any more */
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
    return false; // not empty any more, or something is in the way
  } finally {
    await parent?.handle.close();
  }
}

/**
 * What stands in the place of a folder: nothing; an empty one as Tapegate makes them; or what is to stay, whatever it is.
 * @throws AbsentError when the disk is not there, and what its disk failed with
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
 * Has it the owner, the group and the mode that it would have if Tapegate had made it? Somebody wants it so who has changed them. A server
 * may map the owner of what this process makes: it is that of the marker then. A group may come from the folder above.
 */
export async function isAsMade(stats: BigIntStats, parent: Folder): Promise<boolean> {
  const [above, marker] = [await parent.handle.stat(), await lstat(path.join(parent.root, markerName))];
  const isOwn = [process.geteuid?.(), marker.uid].includes(Number(stats.uid));
  const hasGroup = [process.getegid?.(), marker.gid, above.gid].includes(Number(stats.gid));
  return stats.isDirectory() && isOwn && hasGroup && (stats.mode & 0o7777n) === BigInt(FOLDER_MODE);
}

/** @throws where it cannot be read */
async function isEmptyFolder(folder: string): Promise<boolean> {
  const entries = await opendir(folder);
  try {
    return (await entries.read()) === null;
  } finally {
    await entries.close();
  }
}

/** @throws what says nothing of the folder, so that it has to be looked at again: not so what is in the way of it, or in it, and what is not allowed */
function keepUnlessFailed(error: unknown): undefined {
  const isStaying = error instanceof TapeError || STAYING.includes(codeOf(error) ?? '');
  if (error instanceof AbsentError || !isStaying) throw error;
}

const STAYING = ['ENOENT', 'ENOTEMPTY', 'EEXIST', 'EBUSY', 'ENOTDIR', 'ELOOP', 'ENAMETOOLONG', 'EACCES', 'EPERM'];

interface OpenFolder {
  folder: Folder;
  mountpoint: string;
}

/** Says why what was put into the folder of a place does not last; undefined where it does. */
type SyncFailures = (place: CopyPlace) => Error | undefined;

/** Not to be asked for the folders of two places at once. What fails is a DiskError where it may be the disk. */
export class OpenFolders {
  private readonly ctx: Context;
  private readonly calls: CallWatch;
  /** Folders that were opened, or made as far as that went, by their paths on disk. */
  private readonly tried = new Set<string>();
  private readonly folders = new Map<string, OpenFolder>();
  /** Folders above those that were opened since the last sync, by their paths on disk. */
  private readonly above = new Map<string, { disk: MarkedDisk; dir: string }>();
  /** Folders that could not be synced, by their paths on disk. A later sync that goes well says nothing of what was lost. */
  private readonly failed = new Map<string, Error>();
  /** By the mount point of their disk. */
  private readonly made = new Map<string, MadeFolder[]>();

  constructor(ctx: Context, calls: CallWatch) {
    this.ctx = ctx;
    this.calls = calls;
  }

  /**
   * The folder of a place, made when missing. It stays open until `close`.
   * @param confirm is awaited before a folder may be made, and throws where none may be
   * @throws as `openFolder`, and what kept the folder, or one above it, from being synced before
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
      const moved = movedAway(known.folder); // and with it what was put into it
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

  /**
   * Makes what was put into them last, and the folders themselves: those above are synced, too, whoever has made what is in
   * them, since another process may not have come to that. Never rejects: one that fails says nothing of the others.
   */
  async sync(): Promise<SyncFailures> {
    await Promise.all([...this.folders].map(([key, open]) => this.syncOne(key, open, () => syncInPlace(open.folder))));
    const due = [...this.above].filter(([key]) => !this.folders.has(key));
    this.above.clear();
    await Promise.all(due.map(([key, { disk, dir }]) => this.syncOne(key, disk, () => syncFolder(disk, dir))));
    return (place) => this.failureOf(place);
  }

  /** May folders have been made for a place? */
  hasTried(place: CopyPlace): boolean {
    return this.tried.has(path.join(place.mountpoint, path.dirname(place.path)));
  }

  /**
   * Removes the folders that were made for a place to which nothing came, as far as they are empty. Never rejects.
   * @param calls follows what that calls
   * @returns false where that is to be tried again
   */
  async tidy(place: CopyPlace, calls: CallWatch): Promise<boolean> {
    const made = this.made.get(place.mountpoint);
    const removed = removeEmptyFolders(this.ctx, place, (call) => ofDisk(calls, place, call), made);
    return await removed.then(...isDone);
  }

  /** Never rejects: what was put into them was synced, or is known not to be. */
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
      // nothing was put below one that has been tidied away, since it was empty
      if (codeOf(error) !== 'ENOENT') this.failed.set(key, toError(error));
    }
  }

  /** Of its folder, or of one above that. */
  private failureOf({ mountpoint, path: file }: CopyPlace): Error | undefined {
    for (let dir = path.dirname(file); ; dir = path.dirname(dir)) {
      const failure = this.failed.get(path.join(mountpoint, dir));
      if (failure || dir === '/') return failure;
    }
  }
}

/** @throws Error when it is not where it was, so that what was put into it is not where it should be */
async function syncInPlace(folder: Folder): Promise<void> {
  await folder.handle.sync();
  checkInPlace(folder);
}

function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(messageOf(thrown), { cause: thrown });
}

/** Did it work out? */
const isDone = [() => true, () => false] as const;
