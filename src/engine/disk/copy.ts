/** A copy in the restore area: put in place, looked at, compared with how it was left, and removed. */
import { type BigIntStats, lstatSync, renameSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, TapeError } from '../../errors.js';
import { checksumOf } from '../checksum.js';
import { linkPath, lstatPath, unlinkPath } from './descriptors.js';
import { ignoreMissing, isSame, removeEntry } from './entry.js';
import { type CopyPlace, checkInPlace, type Folder, withCopy } from './restore-area.js';

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
 * @param link replaces the system call in tests
 * @throws Error where the folder is not in its place any more; an error with the code EEXIST where something stands there, ENOENT where the partial file has gone
 */
export async function putInPlace(folder: Folder, partial: string, name: string, link = linkPath): Promise<void> {
  const [from, to] = [path.join(folder.at, partial), path.join(folder.at, name)];
  checkInPlace(folder);
  try {
    await link(from, to);
  } catch (error) {
    if (!NO_LINKS.includes(codeOf(error) ?? '')) throw error;
    if (lstatSync(to, { throwIfNoEntry: false })) throw Object.assign(new Error(`${to} exists`), { code: 'EEXIST' });
    renameSync(from, to);
    return;
  }
  await unlinkPath(from).catch(ignoreMissing); // whoever took over the drive has removed it
}

/** What file systems without links say. */
const NO_LINKS = ['EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EMLINK'];

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
  if (found === 'missing') return true;
  const state = await findState(copy, async (_file, folder) => {
    const removed = await removeEntry(folder, path.basename(copy.path), (now) => isSame(now, found));
    return removed === 'other' ? 'changed' : 'missing';
  });
  return state !== 'changed';
}

/**
 * Removes a file of the restore area that is no noted copy, if it is still what was seen.
 * @returns whether it was
 */
export async function removeSeen(place: CopyPlace, seen: BigIntStats): Promise<boolean> {
  const name = path.basename(place.path);
  const removed = await withCopy(place, (_file, folder) => removeEntry(folder, name, (now) => isSame(now, seen)));
  return removed === 'removed';
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
