/** A copy in the restore area: put in place, looked at, compared with how it was left, and removed. */
import { type BigIntStats, lstatSync, renameSync } from 'node:fs';
import { lstat, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, TapeError } from '../../errors.js';
import { checksumOf } from '../checksum.js';
import { linkPath, lstatPath, unlinkPath } from './descriptors.js';
import { type CopyPlace, checkInPlace, type Folder, isMoved, isShared, withCopy } from './restore-area.js';
import { giveBack, ignoreMissing, NO_LINKS, openApart, renameToNothing, takeEntry } from './taking.js';

/** A copy as it was left, on the disk that has its disk's marker. */
export interface LeftCopy extends CopyPlace {
  /** Bytes. */
  size: bigint;
  /** Null where an older version has put it there. */
  ino: bigint | null;
  /** In nanoseconds; null where it is not known, and no copy is like that. */
  mtimeNs: bigint | null;
  /** In nanoseconds; null where it is not known: the checksum decides. */
  ctimeNs: bigint | null;
  /** Of its bytes; null where it is not known. */
  copyChecksum: string | null;
}

/**
 * Gives a partial file its name, and refuses whatever stands there already: a link, unlike a rename, replaces nothing, at
 * whatever moment this process may stand still. Where a file system has no links, the place is looked at and the file
 * renamed in one go: that replaces what somebody else puts there between these two calls, but nothing of Tapegate's,
 * since whoever takes over the drive removes the partial file first.
 * @param how.ino of the partial file: where others may write in the folder, nothing else is put in place, or left there
 * @throws Error where the folder is not in its place any more; an error with the code EEXIST where something stands there, ENOENT where the partial file has gone
 */
export async function putInPlace(
  folder: Folder,
  partial: string,
  name: string,
  { link = linkPath, ino }: { link?: typeof linkPath; ino?: bigint } = {},
): Promise<void> {
  const [from, to] = [path.join(folder.at, partial), path.join(folder.at, name)];
  checkInPlace(folder);
  const careful = ino !== undefined && (await isShared(folder));
  try {
    await link(from, to);
  } catch (error) {
    if (!NO_LINKS.includes(codeOf(error) ?? '')) throw error;
    renameToNothing(from, to);
  }
  if (careful) await checkPlaced(folder, name, ino);
  await takeBackWhenMoved(folder, name, ino);
  if (careful) await takeEntry(folder, partial, (stats) => inodeOf(stats) === ino);
  else await unlinkPath(from).catch(ignoreMissing); // it was renamed
}

/** Who may write in the folder may have exchanged the partial file: what has the name then is none of Tapegate's. */
async function checkPlaced(folder: Folder, name: string, ino: bigint): Promise<void> {
  const placed = await lookInto(folder, name);
  if (placed && inodeOf(placed) === ino) return;
  if (placed && placed.nlink > 1n) await takeEntry(folder, name, (stats) => stats.ino === placed.ino);
  throw new Error(`what was written to ${path.join(folder.place, name)} was exchanged by somebody else`);
}

async function takeBackWhenMoved(folder: Folder, name: string, ino: bigint | undefined): Promise<void> {
  if (!isMoved(folder)) return;
  await takeEntry(folder, name, (stats) => ino === undefined || inodeOf(stats) === ino);
  checkInPlace(folder);
}

/** The inode as it is noted: the database has no unsigned numbers. */
export function inodeOf({ ino }: BigIntStats): bigint {
  return BigInt.asIntN(64, ino);
}

/** What stands in an open folder; undefined for nothing. */
export async function lookInto(folder: Folder, name: string): Promise<BigIntStats | undefined> {
  return await lstatPath(path.join(folder.at, name), { bigint: true }).catch(ignoreMissing);
}

/**
 * What stands in the place of a copy; undefined for nothing.
 * @throws TapeError POLICY when something is in the way of its folder, TRANSIENT when the disk is not there
 */
export async function lookAt(place: CopyPlace): Promise<BigIntStats | undefined> {
  return await withCopy(place, (file) => lstat(file, { bigint: true })).catch(ignoreMissing);
}

/**
 * The checksum of what stands in the place of a copy, of the algorithm that `like` names; undefined for nothing.
 * @throws as `lookAt`
 */
export async function readChecksum(place: CopyPlace, like: string): Promise<string | undefined> {
  return await withCopy(place, (file) => checksumOf(file, like)).catch(ignoreMissing);
}

/**
 * Is the copy as it was left? `missing` when it is gone.
 * @param tick shows progress, where all of its bytes have to be read
 * @throws TapeError TRANSIENT when the disk is not there: the copy will be there again when the disk is
 */
export async function compareCopy(copy: LeftCopy, tick: () => void = () => {}): Promise<CopyState> {
  return await findState(copy, async (file) => ((await recognise(copy, file, tick)) ? 'same' : 'changed'));
}

/**
 * What stands in the place of a copy, where it is the copy as it was left; else what became of that. To be asked before
 * `takeAway`, and with a question to the database between the two.
 * @param tick as for `compareCopy`
 * @throws TapeError TRANSIENT when the disk is not there
 */
export async function recogniseCopy(
  copy: LeftCopy,
  tick: () => void = () => {},
): Promise<BigIntStats | 'changed' | 'missing'> {
  let known: BigIntStats | undefined;
  const state = await findState(copy, async (file) => {
    known = await recognise(copy, file, tick);
    return known ? 'same' : 'changed';
  });
  return known ?? (state === 'missing' ? 'missing' : 'changed');
}

/**
 * Removes a copy that was recognised. Anything else is left alone that stands there by now, a later copy of the same file too,
 * whatever it has in common with this one: its time of change is another. Its folders are left to `removeEmptyFolders`.
 * @param found by `recogniseCopy`
 * @returns whether nothing of the copy is there any more
 * @throws TapeError TRANSIENT when the disk is not there
 */
export async function takeAway(copy: LeftCopy, found: BigIntStats | 'missing'): Promise<boolean> {
  const state = await findState(copy, async (file, folder) => {
    const name = `.tapegate-removed-${copy.ino ?? 0n}-${copy.mtimeNs}.part`;
    const apart = await openApart(folder);
    try {
      const aside = path.join(apart?.at ?? folder.at, name);
      if (apart) moveApart(copy, path.join(folder.at, name), aside);
      const isBack = await clearAside(copy, file, aside);
      if (found === 'missing') return isBack ? 'changed' : 'missing';
      if (!moveAside(copy, found, file, aside)) return 'changed';
      await unlink(aside);
      return 'same';
    } finally {
      await apart?.close();
    }
  });
  return state !== 'changed';
}

/**
 * Removes a file of the restore area that is no noted copy, if it is still what was seen.
 * @returns whether it was
 */
export async function removeSeen(place: CopyPlace, seen: BigIntStats): Promise<boolean> {
  const name = path.basename(place.path);
  const taken = await withCopy(place, (_file, folder) => takeEntry(folder, name, (now) => isSame(now, seen)));
  return taken === 'taken';
}

/** Whatever was done to a file in between, or with another one that has its inode, has changed this time. */
export function isSame(now: BigIntStats, seen: BigIntStats): boolean {
  return now.ino === seen.ino && now.ctimeNs === seen.ctimeNs;
}

export type CopyState = 'same' | 'changed' | 'missing';

async function findState(
  copy: LeftCopy,
  find: (file: string, folder: Folder) => Promise<CopyState>,
): Promise<CopyState> {
  try {
    return await withCopy(copy, find);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return 'missing';
    if (error instanceof TapeError && error.errorClass === 'POLICY') return 'changed';
    throw error;
  }
}

/** By its inode, size and time of modification only. Not by the device: a mount may give it another number each time. */
export function isKnownBy(copy: Omit<LeftCopy, keyof CopyPlace>, stats: BigIntStats): boolean {
  const hasInode = copy.ino === null || copy.ino === inodeOf(stats);
  return stats.isFile() && hasInode && stats.size === copy.size && stats.mtimeNs === copy.mtimeNs;
}

/**
 * @returns what is known of the file where it is the copy; undefined where it is another one, or has other bytes: times of
 *   modification can be set, and a changed group or mode changes no byte
 */
async function recognise(copy: LeftCopy, file: string, tick: () => void): Promise<BigIntStats | undefined> {
  const stats = await lstat(file, { bigint: true });
  if (!isKnownBy(copy, stats)) return undefined;
  if (copy.ctimeNs === stats.ctimeNs && copy.ino !== null) return stats;
  if (copy.copyChecksum === null) return copy.ino === null ? undefined : stats;
  return (await checksumOf(file, copy.copyChecksum, tick)) === copy.copyChecksum ? stats : undefined;
}

/**
 * What was moved aside before others could write in the folder, and by a process that was killed then. What has its name now may be
 * somebody else's.
 */
function moveApart(copy: LeftCopy, beside: string, aside: string): void {
  const look = (file: string) => lstatSync(file, { bigint: true, throwIfNoEntry: false });
  const left = look(beside);
  if (left && isKnownBy(copy, left) && !look(aside)) renameSync(beside, aside);
}

/**
 * What a process has left that was killed in the middle of this: the copy, which goes, or what it had moved by mistake.
 * @returns whether something was given back
 */
async function clearAside(copy: LeftCopy, file: string, aside: string): Promise<boolean> {
  const left = await lstat(aside, { bigint: true }).catch(ignoreMissing);
  if (!left) return false;
  if (!isKnownBy(copy, left)) {
    giveBack(aside, file);
    return true;
  }
  await unlink(aside);
  return false;
}

/**
 * Looked at and moved in one go: a process that stands still in between, and awakes when a new copy is in place, would take
 * that one, and gives it back. Moved and not removed, since removing a large file takes its time.
 * @param known the file, as it was recognised
 */
function moveAside(copy: LeftCopy, known: BigIntStats, file: string, aside: string): boolean {
  if (!isSame(lstatSync(file, { bigint: true }), known)) return false;
  renameSync(file, aside);
  const moved = lstatSync(aside, { bigint: true });
  if (moved.ino === known.ino && isKnownBy(copy, moved)) return true;
  giveBack(aside, file);
  return false;
}
