/**
 * Removes files from the restore area. Only Tapegate, root and trusted operators can write in the restore area
 * (`exposure.ts`).
 */
import { type BigIntStats, lstatSync, unlinkSync } from 'node:fs';
import path from 'node:path';
import { codeOf } from '../core/errors.js';
import type { Directory } from './restore-area.js';

/**
 * Removes a file if it is the expected file. Checks and removes the file synchronously, because between asynchronous
 * calls another engine might replace the file with a new copy.
 * @returns `removed`, `missing` if there is no file, or `other` if there is a file that is not the expected one
 */
export async function removeEntry(
  directory: Directory,
  name: string,
  isExpected: (stats: BigIntStats) => boolean,
): Promise<'removed' | 'missing' | 'other'> {
  const file = path.join(directory.fdPath, name);
  try {
    if (!isExpected(lstatSync(file, { bigint: true }))) return 'other';
    unlinkSync(file);
    return 'removed';
  } catch (error) {
    ignoreMissing(error);
    return 'missing';
  }
}

/**
 * Returns whether a file is unchanged since `seen` was read. Compares the ctime, because every change to a file also
 * changes the file's ctime.
 */
export function isSame(now: BigIntStats, seen: BigIntStats): boolean {
  return now.ino === seen.ino && now.ctimeNs === seen.ctimeNs;
}

export function ignoreMissing(error: unknown): undefined {
  if (codeOf(error) !== 'ENOENT') throw error;
}
