/** What stands at archive paths. */
import type { BigIntStats } from 'node:fs';
import { lstat, open, readlink } from 'node:fs/promises';
import { codeOf } from '../../errors.js';

/** What stands at an archive path. */
export interface Standing {
  /** To where it points; null: it is no link. */
  target: string | null;
  stats: BigIntStats;
}

/** @returns undefined for nothing */
export async function lookAtLink(at: string): Promise<Standing | undefined> {
  try {
    const stats = await lstat(at, { bigint: true });
    return { stats, target: stats.isSymbolicLink() ? await readlink(at) : null };
  } catch (error) {
    if (isNothing(error)) return undefined;
    throw error;
  }
}

/** Has what was made, or removed, in a folder last. Of one that is not there any more nothing has to. */
export async function syncLinkFolder(folder: string): Promise<void> {
  try {
    const handle = await open(folder, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (!isNothing(error)) throw error;
  }
}

/** ELOOP: a link to itself leads nowhere either. */
export function isNothing(error: unknown): boolean {
  return ['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error) ?? '');
}
