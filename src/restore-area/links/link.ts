/**
 * Makes and removes links at archive paths, and their directories.
 *
 * A link replaces only a link into the restore area, or a dangling link. Links in the path of the directory are
 * followed, because archives use them.
 */
import { type BigIntStats, lstatSync, readlinkSync, renameSync, unlinkSync } from 'node:fs';
import { lstat, mkdir, open, readlink, realpath, rmdir, stat, symlink, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../../core/errors.js';
import type { Link } from '../../domain/links/links.js';

/** Another file is at the archive path. */
class InTheWayError extends Error {}

/** An empty directory may be removed before the link is made. */
const ATTEMPTS = 20;

/**
 * Makes a link and its directories; syncs an existing one.
 * @param fileId used in the temporary name of a link that replaces another one
 * @param mountpoints of all restore disks
 * @throws InTheWayError; errors of the file system
 */
export async function makeLink(
  { at, target }: Link,
  { fileId, mountpoints }: { fileId: bigint; mountpoints: readonly string[] },
): Promise<void> {
  if (mountpoints.some((mountpoint) => isBelow(at, mountpoint))) {
    throw new InTheWayError(`${at} is in the restore area itself`);
  }
  for (let attempt = 1; ; attempt++) {
    try {
      await refuseForeign(path.dirname(at));
      await mkdir(path.dirname(at), { recursive: true });
      return await placeLink({ at, target }, { fileId, mountpoints });
    } catch (error) {
      if (codeOf(error) !== 'ENOENT' || attempt === ATTEMPTS) throw error;
    }
  }
}

async function placeLink(
  { at, target }: Link,
  { fileId, mountpoints }: { fileId: bigint; mountpoints: readonly string[] },
): Promise<void> {
  try {
    await symlink(target, at);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
    const there = await lookAtLink(at);
    if (there?.target === target) return;
    if (there && !(await mayReplace(there, at, mountpoints))) throw tellInTheWay(at, there.target);
    await replaceLink({ at, target }, there, fileId);
  }
}

/** Removes a link with this target; leaves anything else alone. @throws errors of the file system */
export async function removeLink({ at, target }: Link): Promise<void> {
  if ((await lookAtLink(at))?.target !== target) return; // asynchronous, so that a hung file system blocks only this call
  // check and removal are synchronous, so that a file put there meanwhile is not removed
  try {
    if (lstatSync(at).isSymbolicLink() && readlinkSync(at) === target) unlinkSync(at);
  } catch (error) {
    if (!isNothing(error)) throw error;
  }
}

const partsOf = (file: string): string[] => file.split('/').filter((name) => name !== '' && name !== '.');

/** Limit of the Linux kernel. */
const MOST_LINKS = 40;

/**
 * Rejects other users' links in a path. Links of root and of this process's user are followed, because archives use
 * them. Another user's link, even behind a trusted one, could lead to a directory in which only this process may write.
 * @throws InTheWayError
 */
async function refuseForeign(folder: string): Promise<void> {
  const own = process.getuid?.() ?? 0;
  const parts = partsOf(folder);
  let [at, links] = ['/', 0];
  for (let part = parts.shift(); part !== undefined; part = parts.shift()) {
    const next = path.join(at, part);
    const stats = await lstat(next).catch((error: unknown) => {
      if (!isNothing(error)) throw error;
    });
    if (!stats) return; // the directory will be created
    if (stats.isSymbolicLink() && stats.uid !== 0 && stats.uid !== own) {
      throw new InTheWayError(`${next} is a link of somebody else, user ${stats.uid}, and is not followed`);
    }
    if (!stats.isSymbolicLink()) at = next;
    else {
      if (++links > MOST_LINKS) throw new InTheWayError(`${folder} is reached by more than ${MOST_LINKS} links`);
      const target = await readlink(next);
      parts.unshift(...partsOf(target));
      if (target.startsWith('/')) at = '/';
    }
  }
}

/** Whether it is a link into the restore area, or a dangling link. */
async function mayReplace({ target }: Standing, at: string, mountpoints: readonly string[]): Promise<boolean> {
  if (target === null) return false;
  const absolute = path.resolve(path.dirname(at), target);
  if (mountpoints.some((mountpoint) => isBelow(absolute, mountpoint))) return true;
  return await stat(at).then(
    () => false,
    (error: unknown) => isNothing(error),
  );
}

/** Replaces a link atomically, so that the path never is missing; checks it again right before. */
async function replaceLink({ at, target }: Link, there: Standing | undefined, fileId: bigint): Promise<void> {
  const beside = path.join(path.dirname(at), `.tapegate-link-${fileId}`);
  await unlink(beside).catch((error: unknown) => {
    if (!isNothing(error)) throw error;
  });
  await symlink(target, beside);
  const now = lstatSync(at, { bigint: true, throwIfNoEntry: false });
  if (!now || (now.ino === there?.stats.ino && now.ctimeNs === there.stats.ctimeNs)) renameSync(beside, at);
  else {
    unlinkSync(beside);
    throw tellInTheWay(at, null);
  }
}

/** The message does not show the target of another user's link. */
function tellInTheWay(at: string, target: string | null): InTheWayError {
  const what = target === null ? 'what is no link of Tapegate’s' : 'a link to somewhere else';
  return new InTheWayError(`${at} is ${what}, and stays`);
}

function isBelow(file: string, folder: string): boolean {
  return file.startsWith(folder.endsWith('/') ? folder : `${folder}/`);
}

/** Mode of directories that `makeLink` creates. */
const FOLDER_MODE = 0o777 & ~process.umask();

/**
 * Removes the directories above a removed link, innermost first, while they are empty and look as `makeLink` creates
 * them: another owner, group or mode was set by someone who wants to keep them. Leaves directories behind a link that
 * leads out of the link folder.
 *
 * Does not sync: a directory that reappears after a crash is empty, and is removed with the next link in it.
 * @param root TAPEGATE_LINK_ROOT, which stays
 */
export async function tidyLinkFolders(root: string, at: string): Promise<void> {
  for (let dir = path.dirname(at); dir !== '/' && isBelow(dir, root); dir = path.dirname(dir)) {
    if (!(await removeEmptyLinkFolder(root, dir))) return;
  }
}

/** @returns whether the directory is gone */
async function removeEmptyLinkFolder(root: string, dir: string): Promise<boolean> {
  try {
    const [stats, above] = [await lstat(dir), await lstat(path.dirname(dir))];
    const isOwn = stats.uid === process.geteuid?.() && [process.getegid?.(), above.gid].includes(stats.gid);
    if (!stats.isDirectory() || !isOwn || (stats.mode & 0o777) !== FOLDER_MODE) return false;
    if (!isBelow(await realpath(dir), await realpath(root))) return false;
    await rmdir(dir); // refuses a directory with contents
    return true;
  } catch (error) {
    if (isNothing(error)) return true;
    if (!STAYING.includes(codeOf(error) ?? '')) throw error;
    return false;
  }
}

const STAYING = ['ENOTEMPTY', 'EEXIST', 'EBUSY', 'EACCES', 'EPERM', 'EROFS'];

interface Standing {
  /** Target of the link; null if it is not a link. */
  target: string | null;
  stats: BigIntStats;
}

/** @returns undefined if there is none */
export async function lookAtLink(at: string): Promise<Standing | undefined> {
  try {
    const stats = await lstat(at, { bigint: true });
    return { stats, target: stats.isSymbolicLink() ? await readlink(at) : null };
  } catch (error) {
    if (isNothing(error)) return undefined;
    throw error;
  }
}

/** Syncs a directory; does nothing if it is gone. */
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

/** ELOOP: a link to itself also has no target. */
function isNothing(error: unknown): boolean {
  return ['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error) ?? '');
}
