/**
 * Folders of the restore area, opened, and made and noted where they are missing. Each has a mode of its own (`MAKING_MODE`) from its
 * making until it is noted which one it is: killed in between, it is met again by whoever opens or tidies it, and known by that.
 */
import { lstat, mkdir } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf, TapeError } from '../../errors.js';
import {
  forgetFolders,
  type MadeFolder,
  noteMade,
  noteMaking,
  readFolderNotes,
} from '../../operations/disks/folders.js';
import { HungError } from '../calls.js';
import { FOLDER_MODE } from './attributes.js';
import { findExposure, ownersOf, tellEverybodys } from './exposure.js';
import { isBeingMade, MAKING_MODE, traitsOf } from './made-folder.js';
import { rootOf } from './marker.js';
import { type CopyPlace, type Folder, isShared, nameFolder, openExisting } from './restore-area.js';
import { ignoreMissing } from './taking.js';

/** Makes a call on the disk of a folder, and follows it; the database is asked between such calls. */
export type OnDisk = <T>(call: () => Promise<T>) => Promise<T>;

/** A folder may be tidied away between its making and its opening, since it is empty. */
const ATTEMPTS = 5;

/**
 * Opens the folder of a place, made when missing. The mount point itself is never made: where a disk is not mounted, nothing may be
 * written in its place.
 * @param made is given each folder that was made, also where that could not be noted
 * @throws TapeError POLICY when a link on the way leads elsewhere or something else is in the way, TRANSIENT when the disk is not
 *   there; an error with the code ENOENT where somebody takes the folder away again and again
 */
export async function openFolder(
  ctx: Context,
  place: CopyPlace,
  onDisk: OnDisk = (call) => call(),
  made: MadeFolder[] = [],
): Promise<Folder> {
  for (let attempt = 1; ; attempt++) {
    const { folder, half, missing, error } = await onDisk(() => lookForFolder(place));
    if (half.length > 0) await finishMaking(ctx, place, half, onDisk);
    if (folder) return folder;
    if (attempt === ATTEMPTS) throw error;
    await makeNoted(ctx, place, missing, { onDisk, made });
  }
}

interface Look {
  /** Open; undefined where it is missing. */
  folder?: Folder;
  /** Folders on the way to it that somebody was about to make, and has not noted. */
  half: MadeFolder[];
  /** Folders on the way to it that are not there, from the outermost on, and what was said when it was opened. */
  missing: string[];
  error?: unknown;
}

async function lookForFolder(place: CopyPlace): Promise<Look> {
  const root = await rootOf(place);
  const dir = path.dirname(place.path);
  const exposure = await findExposure(root, dir);
  if (exposure?.isEverybodys) {
    // the disk as a whole is no fault of the file, which waits until it is mended
    throw new TapeError(exposure.folder === root ? 'TRANSIENT' : 'POLICY', tellEverybodys(exposure));
  }
  const { half, missing, inTheWay } = await walkTo(root, place.path);
  if (inTheWay !== undefined) await (await openExisting(root, inTheWay)).handle.close(); // says what it is
  try {
    return { folder: { ...(await openExisting(root, dir)), isShared: exposure !== undefined }, half, missing };
  } catch (error) {
    if (codeOf(error) !== 'ENOENT' || dir === '/') throw error;
    return { half, missing, error };
  }
}

interface Walk extends Pick<Look, 'half' | 'missing'> {
  /** What should be a folder, and is none. */
  inTheWay?: string;
}

async function walkTo(root: string, logicalPath: string): Promise<Walk> {
  const owners = await ownersOf(root);
  const half: MadeFolder[] = [];
  const dirs = foldersOf(logicalPath).reverse();
  for (const [index, dir] of dirs.entries()) {
    const stats = await lstat(path.join(root, dir), { bigint: true }).catch(ignoreMissing);
    if (!stats) return { half, missing: dirs.slice(index) };
    if (!stats.isDirectory()) return { half, missing: [], inTheWay: dir };
    if (isBeingMade(stats) && owners.has(Number(stats.uid))) half.push({ path: dir, ...traitsOf(stats) });
  }
  return { half, missing: [] };
}

/** The folders above a logical path, from the innermost on. */
export function foldersOf(logicalPath: string): string[] {
  const dirs: string[] = [];
  for (let dir = path.dirname(logicalPath); dir !== '/'; dir = path.dirname(dir)) dirs.push(dir);
  return dirs;
}

/** Another engine is about to note them, or was killed before it could. What nobody was about to make is somebody's own. */
async function finishMaking(
  ctx: Context,
  place: CopyPlace,
  half: readonly MadeFolder[],
  onDisk: OnDisk,
): Promise<void> {
  const paths = half.map((folder) => folder.path);
  const notes = await readFolderNotes(ctx, place.diskId, paths);
  const ours = half.filter((folder) => notes.has(folder.path));
  if (ours.length === 0) return;
  await noteMade(ctx, place.diskId, ours);
  await onDisk(() => giveModes(place, ours));
}

async function makeNoted(
  ctx: Context,
  place: CopyPlace,
  missing: readonly string[],
  { onDisk, made: all }: { onDisk: OnDisk; made: MadeFolder[] },
): Promise<void> {
  const notes = await noteMaking(ctx, place.diskId, missing);
  const made: MadeFolder[] = [];
  try {
    await onDisk(() => makeFolders(place, missing, made));
  } catch (error) {
    // a disk that hangs may make them still: whoever gives the recall up looks for them
    if (!isHung(error) && (codeOf(error) !== undefined || error instanceof TapeError)) {
      const isMade = new Set(made.map((folder) => folder.path));
      await forgetFolders(
        ctx,
        place.diskId,
        notes.filter((note) => note.ino === null && !isMade.has(note.path)),
      );
    }
    throw error;
  } finally {
    all.push(...made);
    if (made.length > 0) await noteMade(ctx, place.diskId, made);
  }
  await onDisk(() => giveModes(place, made));
}

const isHung = (error: unknown) => [error, error instanceof Error && error.cause].some((e) => e instanceof HungError);

/** @param made is given each as soon as it is there */
async function makeFolders(place: CopyPlace, missing: readonly string[], made: MadeFolder[]): Promise<void> {
  const root = await rootOf(place);
  const owners = await ownersOf(root);
  for (const dir of missing) {
    const parent = await openExisting(root, path.dirname(dir)).catch(ignoreMissing);
    if (!parent) return; // that above it was taken away: whoever opens it sees to that
    try {
      const at = path.join(parent.at, path.basename(dir));
      await mkdir(at, MAKING_MODE);
      // who may write there may have put another one in its place
      const stats = await lstat(at, { bigint: true });
      const isOwn = stats.isDirectory() && owners.has(Number(stats.uid));
      if (isOwn && (isBeingMade(stats) || !(await isShared(parent)))) made.push({ path: dir, ...traitsOf(stats) });
    } catch (error) {
      // somebody else has just made it, or taken away that above it: whoever opens it sees to that
      if (codeOf(error) !== 'EEXIST' && codeOf(error) !== 'ENOENT') throw nameFolder(error, parent);
    } finally {
      await parent.handle.close();
    }
  }
}

/** Whatever the umask is, and the folder above. No other one gets another mode that has their places by now. */
async function giveModes(place: CopyPlace, made: readonly MadeFolder[]): Promise<void> {
  const root = await rootOf(place);
  for (const { path: dir, ino } of made) {
    const folder = await openExisting(root, dir).catch((error: unknown) => {
      if (codeOf(error) !== 'ENOENT' && !(error instanceof TapeError)) throw error;
    });
    if (!folder) continue; // it is gone, or something is in the way: that is told by whoever opens it
    try {
      const stats = await folder.handle.stat({ bigint: true });
      const isLess = (stats.mode & 0o5777n & ~BigInt(FOLDER_MODE)) === 0n; // as some file systems and servers make them
      if ((stats.mode & 0o7777n) === BigInt(FOLDER_MODE) || traitsOf(stats).ino !== ino) continue;
      if (isBeingMade(stats) || isLess) await folder.handle.chmod(FOLDER_MODE);
    } finally {
      await folder.handle.close();
    }
  }
}
