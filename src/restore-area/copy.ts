/** A copy in the restore area: puts it in place, compares it with its record, removes it. */
import { type BigIntStats, lstatSync, renameSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, TapeError } from '../core/errors.js';
import { checksumOf } from './checksum.js';
import { linkPath, lstatPath, unlinkPath } from './descriptors.js';
import { ignoreMissing, isSame, removeEntry } from './entry.js';
import { readMarkerId } from './marker.js';
import { type CopyLocation, checkInPlace, type Directory, withCopy, withCopyIfPresent } from './restore-area.js';

/** A copy as recorded, on a disk with the matching marker. */
export interface RecordedCopy extends CopyLocation {
  /** Bytes. */
  size: bigint;
  /** Null if none was put there. */
  ino: bigint | null;
  /** Nanoseconds; null if unknown: then no file matches. */
  mtimeNs: bigint | null;
  /** Nanoseconds; null if unknown: then the checksum decides. */
  ctimeNs: bigint | null;
  /** Checksum of its bytes; null if unknown. */
  copyChecksum: string | null;
  /** Recorded identity of the disk's marker; null if unknown. */
  markerId?: string | null;
}

/**
 * Gives a partial file its final name, and never replaces a file: unlike a rename, a link fails if the name exists,
 * even if this process stalls. Without links, it checks the name and renames at once. That could replace another user's
 * file, but no copy of Tapegate: the drive's next holder removes the partial file first.
 * @param link replaces the system call in tests
 * @throws Error if the directory was moved; code EEXIST if the name exists; code ENOENT if the partial file does not exist
 */
export async function putInPlace(directory: Directory, partial: string, name: string, link = linkPath): Promise<void> {
  const [from, to] = [path.join(directory.fdPath, partial), path.join(directory.fdPath, name)];
  checkInPlace(directory);
  try {
    await link(from, to);
  } catch (error) {
    if (!NO_LINKS.includes(codeOf(error) ?? '')) throw error;
    if (lstatSync(to, { throwIfNoEntry: false })) throw Object.assign(new Error(`${to} exists`), { code: 'EEXIST' });
    renameSync(from, to);
    return;
  }
  await unlinkPath(from).catch(ignoreMissing); // the drive's next holder has removed it
}

const NO_LINKS = ['EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EMLINK'];

/**
 * Returns the inode and times of a file as the database stores them: modulo 2^64, because its integers are signed, and
 * have no nanoseconds before 1677 or after 2262. They are compared for equality only.
 */
export function storedStats({ ino, mtimeNs, ctimeNs }: Pick<BigIntStats, 'ino' | 'mtimeNs' | 'ctimeNs'>): {
  ino: bigint;
  mtimeNs: bigint;
  ctimeNs: bigint;
} {
  return { ino: BigInt.asIntN(64, ino), mtimeNs: BigInt.asIntN(64, mtimeNs), ctimeNs: BigInt.asIntN(64, ctimeNs) };
}

/** Returns the entry in an open directory; undefined if there is none. */
export async function statIn(directory: Directory, name: string): Promise<BigIntStats | undefined> {
  return await lstatPath(path.join(directory.fdPath, name), { bigint: true }).catch(ignoreMissing);
}

/**
 * Returns the file in a copy's place; undefined if there is none.
 * @throws TapeError POLICY if something blocks its directory; TRANSIENT if the disk is absent
 */
export async function statCopy(location: CopyLocation): Promise<BigIntStats | undefined> {
  return await withCopy(location, (file) => lstat(file, { bigint: true })).catch(ignoreMissing);
}

/** Does the same; undefined also if something has replaced its directory. */
export async function findStats(location: CopyLocation): Promise<BigIntStats | undefined> {
  return await withCopyIfPresent(location, (file) => lstat(file, { bigint: true }));
}

/** Returns the checksum of the file in a copy's place, as `like`; undefined if none. @throws as `statCopy` */
export async function readChecksum(
  location: CopyLocation,
  like: string,
  tick: () => void = () => {},
): Promise<string | undefined> {
  return await withCopy(location, (file) => checksumOf(file, like, tick)).catch(ignoreMissing);
}

/**
 * Compares a copy with its record.
 * @param tick reports progress while all bytes are read
 * @throws TapeError TRANSIENT if the disk is absent: the copy will be there again with the disk
 */
export async function compareCopy(copy: RecordedCopy, tick: () => void = () => {}): Promise<CopyState> {
  return await findState(copy, async (file, { root }) =>
    (await recognise(copy, { file, root }, tick)) ? 'same' : 'changed',
  );
}

/**
 * Returns the file's stats if it is the recorded copy, else its state. Called before `removeCopy`, with a query to the
 * database between the two.
 * @param tick as for `compareCopy`
 * @throws TapeError TRANSIENT if the disk is absent
 */
export async function recogniseCopy(
  copy: RecordedCopy,
  tick: () => void = () => {},
): Promise<BigIntStats | 'changed' | 'missing'> {
  let known: BigIntStats | undefined;
  const state = await findState(copy, async (file, { root }) => {
    known = await recognise(copy, { file, root }, tick);
    return known ? 'same' : 'changed';
  });
  return known ?? (state === 'missing' ? 'missing' : 'changed');
}

/**
 * Removes a recognised copy. Leaves any other file alone, even a later copy of the same file, whose ctime differs.
 * Leaves directories to `removeEmptyDirectories`.
 * @param found by `recogniseCopy`
 * @returns whether the copy no longer exists
 * @throws TapeError TRANSIENT if the disk is absent
 */
export async function removeCopy(copy: RecordedCopy, found: BigIntStats | 'missing'): Promise<boolean> {
  if (found === 'missing') return true;
  const state = await findState(copy, async (_file, folder) => {
    const removed = await removeEntry(folder, path.basename(copy.path), (now) => isSame(now, found));
    return removed === 'other' ? 'changed' : 'missing';
  });
  return state !== 'changed';
}

/** Removes an unrecorded file of the restore area, if it is still the one seen. @returns whether it did */
export async function removeSeen(location: CopyLocation, seen: BigIntStats): Promise<boolean> {
  const name = path.basename(location.path);
  const removed = await withCopy(location, (_file, folder) => removeEntry(folder, name, (now) => isSame(now, seen)));
  return removed === 'removed';
}

export type CopyState = 'same' | 'changed' | 'missing';

async function findState(
  copy: RecordedCopy,
  find: (file: string, folder: Directory) => Promise<CopyState>,
): Promise<CopyState> {
  try {
    return await withCopy(copy, find);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return 'missing';
    if (error instanceof TapeError && error.errorClass === 'POLICY') return 'changed';
    throw error;
  }
}

/** Compares inode, size and mtime only. Not the device number, which may change with each mount. */
export function matchesRecord(copy: Omit<RecordedCopy, keyof CopyLocation>, stats: BigIntStats): boolean {
  const { ino, mtimeNs } = storedStats(stats);
  return stats.isFile() && copy.ino === ino && copy.size === stats.size && copy.mtimeNs === mtimeNs;
}

/**
 * Whether it has the recorded times, which no user can give to another file. The inode may be another one after a
 * mount.
 */
export function matchesTimes(copy: Omit<RecordedCopy, keyof CopyLocation>, stats: BigIntStats): boolean {
  const { ino, ctimeNs } = storedStats(stats);
  return matchesRecord({ ...copy, ino }, stats) && copy.ctimeNs === ctimeNs;
}

/**
 * Whether a file may be the copy although its inode differs. Then the inode of the disk's marker differs too, because
 * the file system renumbered its inodes, or the disk was copied. The caller must compare the bytes.
 */
export async function isRenumbered(copy: RecordedCopy, stats: BigIntStats, root: string): Promise<boolean> {
  if (copy.markerId == null || copy.copyChecksum === null) return false;
  if (!matchesRecord({ ...copy, ino: storedStats(stats).ino }, stats)) return false;
  return (await readMarkerId(root)) !== copy.markerId;
}

/**
 * @returns the file's stats if it is the copy; undefined if it is another file or has other bytes. Compares the bytes
 *   if the ctime differs: anyone can set an mtime, while a changed group or mode changes no bytes
 */
async function recognise(
  copy: RecordedCopy,
  { file, root }: { file: string; root: string },
  tick: () => void,
): Promise<BigIntStats | undefined> {
  const stats = await lstat(file, { bigint: true });
  if (matchesTimes(copy, stats)) return stats;
  const isKnown = matchesRecord(copy, stats);
  if (!isKnown && !(await isRenumbered(copy, stats, root))) return undefined;
  if (copy.copyChecksum === null) return stats;
  return (await checksumOf(file, copy.copyChecksum, tick)) === copy.copyChecksum ? stats : undefined;
}
