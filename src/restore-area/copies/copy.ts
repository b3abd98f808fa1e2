/** Moves copies into place in the restore area, compares them with their records, and removes them. */
import { type BigIntStats, lstatSync, renameSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, TapeError } from '../../core/errors.js';
import { checksumOf } from '../checksum.js';
import { linkPath, lstatPath, unlinkPath } from '../descriptors.js';
import { ignoreMissing, isSame, removeEntry } from '../entry.js';
import { readMarkerId } from '../marker.js';
import { type CopyLocation, checkInPlace, type Directory, withCopy, withCopyIfPresent } from '../restore-area.js';

/** A copy as the database records it, on a restore disk that has a marker. */
export interface RecordedCopy extends CopyLocation {
  size: bigint;
  /** The copy's inode; null if no copy has been moved into place. */
  ino: bigint | null;
  /** Modification time in nanoseconds. If it is null, no file at the copy's path counts as the copy. */
  mtimeNs: bigint | null;
  /** Change time (ctime) in nanoseconds. If it is null, Tapegate identifies the copy by its checksum. */
  ctimeNs: bigint | null;
  copyChecksum: string | null;
  /** Recorded identity of the disk's marker; null if unknown. */
  markerId?: string | null;
}

/**
 * Gives a partial file its final name without replacing an existing file. Creates a hard link, because `link` fails if
 * the name exists. On a file system without hard links, checks that the name is free, and immediately renames the
 * partial file. The rename might replace a file that another process has just created under this name. It cannot
 * replace another engine's copy, because an engine that takes over the drive first removes the partial file.
 * @param link replaces the system call in tests
 * @throws Error if the directory was moved; an error with code EEXIST if the name exists, or code ENOENT if the partial
 * file does not exist
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
  await unlinkPath(from).catch(ignoreMissing); // another engine might have removed the partial file
}

const NO_LINKS = ['EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EMLINK'];

/**
 * Returns a file's inode and times as the database stores them, modulo 2^64. Such values can be compared only for
 * equality, because large values become negative.
 */
export function storedStats({ ino, mtimeNs, ctimeNs }: Pick<BigIntStats, 'ino' | 'mtimeNs' | 'ctimeNs'>): {
  ino: bigint;
  mtimeNs: bigint;
  ctimeNs: bigint;
} {
  return { ino: BigInt.asIntN(64, ino), mtimeNs: BigInt.asIntN(64, mtimeNs), ctimeNs: BigInt.asIntN(64, ctimeNs) };
}

export async function statIn(directory: Directory, name: string): Promise<BigIntStats | undefined> {
  return await lstatPath(path.join(directory.fdPath, name), { bigint: true }).catch(ignoreMissing);
}

/**
 * Returns the stats of the file at a copy's path; undefined if there is no file.
 * @throws TapeError POLICY if a link or file has replaced the copy's directory; TRANSIENT if the disk is unavailable
 */
export async function statCopy(location: CopyLocation): Promise<BigIntStats | undefined> {
  return await withCopy(location, (file) => lstat(file, { bigint: true })).catch(ignoreMissing);
}

/** Like `statCopy`, but also returns undefined if a link or file has replaced the copy's directory. */
export async function findStats(location: CopyLocation): Promise<BigIntStats | undefined> {
  return await withCopyIfPresent(location, (file) => lstat(file, { bigint: true }));
}

/**
 * Returns the checksum of the file at a copy's path, computed with the same algorithm as `like`; undefined if there is
 * no file.
 * @throws the same errors as `statCopy`
 */
export async function readChecksum(
  location: CopyLocation,
  like: string,
  tick: () => void = () => {},
): Promise<string | undefined> {
  return await withCopy(location, (file) => checksumOf(file, like, tick)).catch(ignoreMissing);
}

/**
 * Compares the file at a copy's path with the copy's record.
 * @param tick called to report progress while the bytes are read
 * @throws TapeError TRANSIENT if the disk is unavailable
 */
export async function compareCopy(copy: RecordedCopy, tick: () => void = () => {}): Promise<CopyState> {
  return await findState(copy, async (file, { root }) =>
    (await recognise(copy, { file, root }, tick)) ? 'same' : 'changed',
  );
}

/**
 * Returns the stats of the file at a copy's path if the file is the recorded copy. Otherwise, returns whether the copy
 * was changed or is missing. Callers must query the database again before they pass the result to `removeCopy`.
 * @throws TapeError TRANSIENT if the disk is unavailable
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
 * Removes a copy that `recogniseCopy` found. Removes the file only if its ctime still equals the ctime in `found`, so
 * that another file or a later copy stays.
 * @param found what `recogniseCopy` returned
 * @returns whether the copy no longer exists
 * @throws TapeError TRANSIENT if the disk is unavailable
 */
export async function removeCopy(copy: RecordedCopy, found: BigIntStats | 'missing'): Promise<boolean> {
  if (found === 'missing') return true;
  const state = await findState(copy, async (_file, directory) => {
    const removed = await removeEntry(directory, path.basename(copy.path), (now) => isSame(now, found));
    return removed === 'other' ? 'changed' : 'missing';
  });
  return state !== 'changed';
}

/**
 * Removes an unrecorded file from the restore area if it has not changed since `seen` was read.
 * @returns whether the file was removed
 */
export async function removeSeen(location: CopyLocation, seen: BigIntStats): Promise<boolean> {
  const name = path.basename(location.path);
  const removed = await withCopy(location, (_file, directory) =>
    removeEntry(directory, name, (now) => isSame(now, seen)),
  );
  return removed === 'removed';
}

export type CopyState = 'same' | 'changed' | 'missing';

async function findState(
  copy: RecordedCopy,
  find: (file: string, directory: Directory) => Promise<CopyState>,
): Promise<CopyState> {
  try {
    return await withCopy(copy, find);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return 'missing';
    if (error instanceof TapeError && error.errorClass === 'POLICY') return 'changed';
    throw error;
  }
}

/**
 * Returns whether a regular file has the recorded inode, size and mtime. Ignores the device number, which can change
 * with each mount.
 */
export function matchesRecord(copy: Omit<RecordedCopy, keyof CopyLocation>, stats: BigIntStats): boolean {
  const { ino, mtimeNs } = storedStats(stats);
  return stats.isFile() && copy.ino === ino && copy.size === stats.size && copy.mtimeNs === mtimeNs;
}

/**
 * Returns whether a file has the recorded size, mtime and ctime. A matching ctime shows that the file is unchanged,
 * because users cannot set the ctime. Ignores the inode, which can change with each mount.
 */
export function matchesTimes(copy: Omit<RecordedCopy, keyof CopyLocation>, stats: BigIntStats): boolean {
  const { ino, ctimeNs } = storedStats(stats);
  return matchesRecord({ ...copy, ino }, stats) && copy.ctimeNs === ctimeNs;
}

/**
 * Returns whether a file with another inode than the recorded one might still be the copy. If a disk's file system is
 * copied or renumbers its inodes, all inodes change, including the marker's inode. The caller must compare the bytes.
 */
export async function isRenumbered(copy: RecordedCopy, stats: BigIntStats, root: string): Promise<boolean> {
  if (copy.markerId == null || copy.copyChecksum === null) return false;
  if (!matchesRecord({ ...copy, ino: storedStats(stats).ino }, stats)) return false;
  return (await readMarkerId(root)) !== copy.markerId;
}

/**
 * Returns the file's stats if the file is the recorded copy. If only the ctime differs, compares the bytes, because the
 * ctime also changes if only the file's group or mode changes.
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
