/**
 * Decides which directories Tapegate trusts. A user with write permission in a directory can replace its entries
 * between two of Tapegate's calls. For example, the user can replace a directory with a link. Therefore Tapegate
 * restores a file only if untrusted users cannot write in any directory on the file's path, starting at the file
 * system's root.
 *
 * Tapegate trusts root and the user that runs Tapegate. Tapegate also trusts the owner of the disk's marker, because a
 * file server can map the user that runs Tapegate to this owner. The trusted groups are the private groups of these
 * users, and the group in TAPEGATE_RESTORE_GROUP. Above a mount point, Tapegate trusts a directory with the sticky bit,
 * such as /tmp, because other users cannot replace the mount point there.
 *
 * Tapegate does not trust other groups, because a directory's mode does not show a group's members. If a directory has
 * an access control list, the group bits of its mode contain the mask of the list, which limits all its entries.
 */
import { randomUUID } from 'node:crypto';
import type { Stats } from 'node:fs';
import { lstat, open, realpath, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../core/errors.js';
import { markerName } from './marker.js';

export interface Trusted {
  /** Ids of the trusted users. A group whose id equals a trusted user's id is that user's private group. */
  users: Set<number>;
  group: number | undefined;
}

export interface Untrusted {
  directory: string;
  problem: string;
  remedy: string;
  /**
   * Whether the directory is the disk's mount point or a directory above the mount point. If so, the whole disk is
   * untrusted.
   */
  isWholeDisk: boolean;
}

export function describeUntrusted({ directory, problem, remedy }: Untrusted): string {
  return `untrusted directory ${directory}: ${problem}; ${remedy}`;
}

/** @param root path of the mount point, with symbolic links resolved @param group TAPEGATE_RESTORE_GROUP */
export async function readTrusted(root: string, group: number | undefined): Promise<Trusted> {
  const marker = await lstat(path.join(root, markerName)).catch(() => undefined);
  const users = [0, process.geteuid?.(), marker?.uid].filter((uid) => uid !== undefined);
  return { users: new Set(users), group };
}

/**
 * Returns why a directory is untrusted; undefined if the directory is trusted.
 * @param at paths of the directory and of its restore disk's mount point, with symbolic links resolved
 */
export function findProblem(
  { directory, root }: { directory: string; root: string },
  { uid, gid, mode }: Pick<Stats, 'uid' | 'gid' | 'mode'>,
  trusted: Trusted,
): Untrusted | undefined {
  const isAbove = directory !== root && path.join(root, '/').startsWith(path.join(directory, '/'));
  const at = { directory, isWholeDisk: isAbove || directory === root };
  if (!trusted.users.has(uid)) {
    const remedy = 'change its owner to root or to the user that runs Tapegate (chown)';
    return { ...at, problem: `the directory belongs to user ${uid}`, remedy };
  }
  if (isAbove && (mode & 0o1000) !== 0) return undefined;
  const bits = `mode ${(mode & 0o7777).toString(8).padStart(4, '0')}`;
  if ((mode & 0o002) !== 0) {
    return {
      ...at,
      problem: `every user may write to the directory (${bits})`,
      remedy: 'remove this permission (chmod o-w)',
    };
  }
  if ((mode & 0o020) === 0 || gid === trusted.group || trusted.users.has(gid)) return undefined;
  const remedy = 'remove this permission (chmod g-w), or set TAPEGATE_RESTORE_GROUP to this group';
  return { ...at, problem: `group ${gid} may write to the directory (${bits})`, remedy };
}

/**
 * Checks a directory on a restore disk and the directories above it, and returns the first untrusted directory. Skips
 * missing directories.
 * @param root path of the mount point, with symbolic links resolved
 * @param dir directory below the mount point
 */
export async function findUntrusted(
  { root, dir = '/' }: { root: string; dir?: string },
  group: number | undefined,
): Promise<Untrusted | undefined> {
  return await findOnPath({ root, dir }, await readTrusted(root, group));
}

async function findOnPath(
  { root, dir }: { root: string; dir: string },
  trusted: Trusted,
): Promise<Untrusted | undefined> {
  let directory = '/';
  for (const name of ['', ...path.join(root, dir).split('/').filter(Boolean)]) {
    directory = path.join(directory, name);
    const stats = await lstat(directory).catch((error: unknown) => {
      if (codeOf(error) !== 'ENOENT') throw error;
    });
    // do not report a missing directory, because the caller gets an error when it opens the path
    if (!stats?.isDirectory()) return undefined;
    const found = findProblem({ directory, root }, stats, trusted);
    if (found) return found;
  }
  return undefined;
}

/**
 * Checks a mount point or another directory, and the directories above it. Returns the first untrusted directory.
 * @param isNew whether the disk does not have a marker yet. If so, creates a temporary file to find out to which user
 * the file server maps this process's user
 * @returns undefined if the directory is trusted or missing
 */
export async function findUntrustedMount(
  mountpoint: string,
  { group, isNew = false }: { group?: number | undefined; isNew?: boolean },
): Promise<Untrusted | undefined> {
  const root = await realpath(mountpoint).catch(() => undefined);
  if (root === undefined) return undefined;
  const trusted = await readTrusted(root, group);
  if (isNew && !trusted.users.has((await lstat(root)).uid)) trusted.users.add(await tryOwner(root));
  return await findOnPath({ root, dir: '/' }, trusted);
}

/** @returns the owner of files that this process creates in the directory */
async function tryOwner(root: string): Promise<number> {
  const file = path.join(root, `${markerName}-${randomUUID()}`);
  const handle = await open(file, 'wx', 0o600);
  try {
    return (await handle.stat()).uid;
  } finally {
    await handle.close();
    await unlink(file);
  }
}
