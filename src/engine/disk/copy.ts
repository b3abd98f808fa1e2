/** A copy in the restore area: put in place, looked at, compared with how it was left, and removed. */
import { type BigIntStats, lstatSync, renameSync } from 'node:fs';
import { lstat, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, TapeError } from '../../errors.js';
import { checksumOf } from '../checksum.js';
import { lstatPath, renamePath } from './descriptors.js';
import { type CopyPlace, type Folder, removeEmptyFolders, withCopy } from './restore-area.js';

/** A copy as it was left. */
export interface LeftCopy extends CopyPlace {
  /** Bytes. */
  size: bigint;
  /** Modification time in nanoseconds; null where it is not known, and no copy is like that. */
  mtimeNs: bigint | null;
}

/** What stands at the place of a file: nothing, a plain file, or something that no restore may touch. */
export async function inspect(folder: Folder, name: string): Promise<'nothing' | 'file' | 'other'> {
  const stats = await lstatPath(path.join(folder.at, name)).catch(ignoreMissing);
  if (!stats) return 'nothing';
  return stats.isFile() ? 'file' : 'other';
}

/** Gives a partial file its name, in one step. What stands there already is replaced: `inspect` it before. */
export async function putInPlace(folder: Folder, partial: string, name: string): Promise<void> {
  await renamePath(path.join(folder.at, partial), path.join(folder.at, name));
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
 * @throws TapeError TRANSIENT when the disk is not there: the copy will be there again when the disk is
 */
export async function compareCopy(copy: LeftCopy): Promise<CopyState> {
  return await findState(copy, async (file) => compareStats(copy, await lstat(file, { bigint: true })));
}

/**
 * Removes a copy that is as it was left, and the folders that are empty then. A changed one is left alone.
 * @throws TapeError TRANSIENT when the disk is not there
 */
export async function removeCopy(copy: LeftCopy): Promise<void> {
  const state = await findState(copy, async (file, folder) => {
    const aside = path.join(folder.at, `.tapegate-removed-${copy.mtimeNs}.part`);
    try {
      return takeAway(copy, file, aside);
    } finally {
      await unlink(aside).catch(ignoreMissing); // also what a process killed here has left
    }
  });
  // also of one that is gone: a process killed in between has left its folders
  if (state !== 'changed') await removeEmptyFolders(copy);
}

/** Removes a file of the restore area that is no noted copy, and the folders that are empty then. */
export async function removeFile(place: CopyPlace): Promise<void> {
  await withCopy(place, (file) => unlink(file));
  await removeEmptyFolders(place);
}

type CopyState = 'same' | 'changed' | 'missing';

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

/**
 * Looked at and moved in one go: a process that stands still in between, loses its locks with the database, and awakes
 * when a new copy is in place would take that one. Moved and not removed, since removing a large file takes its time.
 */
function takeAway(copy: LeftCopy, file: string, aside: string): CopyState {
  const state = compareStats(copy, lstatSync(file, { bigint: true }));
  if (state === 'same') renameSync(file, aside);
  return state;
}

function compareStats(copy: LeftCopy, stats: BigIntStats): CopyState {
  return stats.isFile() && stats.size === copy.size && stats.mtimeNs === copy.mtimeNs ? 'same' : 'changed';
}

function ignoreMissing(error: unknown): undefined {
  if (codeOf(error) !== 'ENOENT') throw error;
}
