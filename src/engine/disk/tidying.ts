/** Folders of the restore area that are empty once their last copy has left. */
import { type BigIntStats, lstatSync, renameSync } from 'node:fs';
import { lstat, rmdir } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf, messageOf, TapeError } from '../../errors.js';
import { type FolderNote, forgetFolders, type MadeFolder, readFolderNotes } from '../../operations/disks/folders.js';
import { inodeOf } from './copy.js';
import { isAsMade, isEmptyFolder, isNoted } from './made-folder.js';
import { foldersOf, type OnDisk } from './making.js';
import { AbsentError, type MarkedDisk, rootOf } from './marker.js';
import { type CopyPlace, type Folder, openExisting } from './restore-area.js';
import { type Apart, openApart, renameToNothing } from './taking.js';

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

type KnownFolder = Pick<FolderNote, 'path' | 'ino' | 'birthNs'>;

/** Removes it where it is empty, and the one that is noted. @returns whether it is not there any more */
async function isGone(disk: MarkedDisk, dir: string, note: KnownFolder | undefined): Promise<boolean> {
  const seen = await lookAtFolder(disk, dir);
  if (seen === 'kept') return false;
  if (seen === 'missing') return note === undefined || (await clearFolderAside(disk, note));
  if (!note || !isNoted(note, seen)) return false;
  return await inFolderAbove(disk, dir, (parent) => removeFolder(parent, path.basename(dir), seen));
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
    if (isFailure(error)) throw error;
    return 'kept';
  }
}

async function inFolderAbove(
  disk: MarkedDisk,
  dir: string,
  use: (parent: Folder) => Promise<boolean>,
): Promise<boolean> {
  const root = await rootOf(disk);
  try {
    const parent = await openExisting(root, path.dirname(dir));
    try {
      return await use(parent);
    } finally {
      await parent.handle.close();
    }
  } catch (error) {
    if (isFailure(error)) throw error;
    return false; // not empty any more, or something is in the way
  }
}

/** Says nothing of the folder, so that it has to be looked at again: not so what is in the way of it, or in it, and what is not allowed. */
function isFailure(error: unknown): boolean {
  return error instanceof AbsentError || !(error instanceof TapeError || STAYING.includes(codeOf(error) ?? ''));
}

const STAYING = ['ENOENT', 'ENOTEMPTY', 'EEXIST', 'EBUSY', 'ENOTDIR', 'ELOOP', 'ENAMETOOLONG', 'EACCES', 'EPERM'];

/** @throws where it cannot be removed, not being empty any more for one */
async function removeFolder(parent: Folder, name: string, seen: BigIntStats): Promise<boolean> {
  const folder = path.join(parent.at, name);
  const apart = await openApart(parent);
  if (!apart) {
    await rmdir(folder);
    return true;
  }
  try {
    return await removeApart(folder, apart, seen);
  } finally {
    await apart.close();
  }
}

/** Where others may write, another folder may have its name by now: it is looked at where nobody can exchange it. */
async function removeApart(folder: string, apart: Apart, seen: BigIntStats): Promise<boolean> {
  const aside = asideOf(apart, inodeOf(seen));
  renameSync(folder, aside);
  const moved = lstatSync(aside, { bigint: true });
  if (moved.ino === seen.ino && (await rmdir(aside).then(...isDone))) return true;
  giveFolderBack(aside, folder);
  return false;
}

const asideOf = (apart: Apart, ino: bigint) => path.join(apart.at, `.tapegate-folder-${BigInt.asUintN(64, ino)}`);

/** @throws Error where something has its place by now: it stays aside then, with all that is in it */
function giveFolderBack(aside: string, folder: string): void {
  try {
    renameToNothing(aside, folder);
  } catch (error) {
    const problem = `${aside} was moved out of its place by mistake, and cannot be put back`;
    throw new Error(`${problem}: ${messageOf(error)}`, { cause: error });
  }
}

/** What a process has left that was killed in the middle of this. @returns false where it was somebody else's, and is back in its place */
async function clearFolderAside(disk: MarkedDisk, note: KnownFolder): Promise<boolean> {
  const { ino } = note;
  if (ino === null) return true;
  const root = await rootOf(disk);
  const parent = await openExisting(root, path.dirname(note.path)).catch(() => undefined); // it is gone as well
  if (!parent) return true;
  try {
    const apart = await openApart(parent);
    if (!apart) return true;
    const aside = asideOf(apart, ino);
    const left = lstatSync(aside, { bigint: true, throwIfNoEntry: false });
    try {
      if (!left) return true;
      if (isNoted(note, left) && (await rmdir(aside).then(...isDone))) return true;
      giveFolderBack(aside, path.join(parent.at, path.basename(note.path)));
      return false;
    } finally {
      await apart.close();
    }
  } finally {
    await parent.handle.close();
  }
}

/** Did it work out? */
const isDone = [() => true, () => false] as const;
