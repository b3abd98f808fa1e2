/** Names of files, as the system before and Tapegate have them. */
import { readlink, stat } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../../errors.js';

/** Where a link leads; undefined where there is none. */
export async function targetOf(place: string): Promise<string | undefined> {
  const linked = await readlink(place).catch(ignoreNone);
  return linked === undefined ? undefined : path.resolve(path.dirname(place), linked);
}

/** Are two paths one name, by whatever way? Taken away by the one, it would be gone by the other. */
export async function isSameName(one: string, other: string): Promise<boolean> {
  if (path.resolve(one) === path.resolve(other)) return true;
  if (path.basename(one) !== path.basename(other)) return false;
  const [a, b] = await Promise.all(
    [one, other].map((name) => stat(path.dirname(name), { bigint: true }).catch(ignoreNone)),
  );
  return a !== undefined && b !== undefined && a.ino === b.ino && a.dev === b.dev;
}

export function ignoreNone(error: unknown): undefined {
  if (!['ENOENT', 'ENOTDIR', 'EINVAL', 'ELOOP'].includes(codeOf(error) ?? '')) throw error;
}
