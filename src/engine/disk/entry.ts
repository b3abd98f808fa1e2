/** Removes entries of directories of the restore area. Only Tapegate, root and trusted operators may write there (`exposure.ts`). */
import { type BigIntStats, lstatSync, unlinkSync } from 'node:fs';
import path from 'node:path';
import { codeOf } from '../../errors.js';
import type { Folder } from './restore-area.js';

/**
 * Removes a file if it is the expected one; any other one stays. It is looked at and removed in one go: a call in the queue of the thread pool may wait until
 * another engine has taken over, and has put its own copy there.
 * @returns `other` if it is not the expected one
 */
export async function removeEntry(
  folder: Folder,
  name: string,
  isExpected: (stats: BigIntStats) => boolean,
): Promise<'removed' | 'missing' | 'other'> {
  const file = path.join(folder.at, name);
  try {
    if (!isExpected(lstatSync(file, { bigint: true }))) return 'other';
    unlinkSync(file);
    return 'removed';
  } catch (error) {
    ignoreMissing(error);
    return 'missing';
  }
}

/** Was nothing done to a file since it was seen? Each change, and a new file with its inode, has another time of change. */
export function isSame(now: BigIntStats, seen: BigIntStats): boolean {
  return now.ino === seen.ino && now.ctimeNs === seen.ctimeNs;
}

export function ignoreMissing(error: unknown): undefined {
  if (codeOf(error) !== 'ENOENT') throw error;
}
