/**
 * One link at an archive path. It replaces nothing but what points into the restore area, which is a link of Tapegate's or of
 * the system before it, or to nothing; all else that stands there is somebody's, and stays.
 *
 * Links in the way to the folder are followed: archives are made of them.
 */
import { type BigIntStats, lstatSync, readlinkSync, renameSync, unlinkSync } from 'node:fs';
import { lstat, mkdir, open, readlink, realpath, stat, symlink, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../../errors.js';
import type { Link } from '../../operations/links/links.js';

/** Something of somebody's stands at the archive path. */
export class InTheWayError extends Error {}

/**
 * Makes a link, and the folders that it needs; one that is there already is made lasting.
 * @param fileId gives a name beside it to a link that replaces another one
 * @param mountpoints of all restore disks
 * @throws InTheWayError, and what the file system says
 */
export async function makeLink(
  { at, target }: Link,
  { fileId, mountpoints }: { fileId: bigint; mountpoints: readonly string[] },
): Promise<void> {
  if (mountpoints.some((mountpoint) => isBelow(at, mountpoint))) {
    throw new InTheWayError(`${at} is in the restore area itself`);
  }
  await refuseForeign(path.dirname(at));
  await mkdir(path.dirname(at), { recursive: true });
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

/**
 * Removes a link that points where it was said to; whatever else is there stays.
 * @throws what the file system says
 */
export async function removeLink({ at, target }: Link): Promise<void> {
  if ((await lookAtLink(at))?.target !== target) return; // without waiting for a file system that hangs
  // looked at and removed in one go: what somebody puts there meanwhile is not taken for it
  try {
    if (lstatSync(at).isSymbolicLink() && readlinkSync(at) === target) unlinkSync(at);
  } catch (error) {
    if (!isNothing(error)) throw error;
  }
}

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

/**
 * Archives are made of links, and those of root and of this process's own user are followed. Another user's could lead to where this process may
 * write, and that user may not.
 * @throws InTheWayError
 */
async function refuseForeign(folder: string): Promise<void> {
  const own = process.getuid?.() ?? 0;
  let at = '/';
  for (const part of folder.split('/').filter((name) => name !== '')) {
    const next = path.join(at, part);
    const stats = await lstat(next).catch((error: unknown) => {
      if (!isNothing(error)) throw error;
    });
    if (!stats) return; // it is made
    if (stats.isSymbolicLink() && stats.uid !== 0 && stats.uid !== own) {
      throw new InTheWayError(`${next} is a link of somebody else, user ${stats.uid}, and is not followed`);
    }
    at = stats.isSymbolicLink() ? await realpath(next) : next;
  }
}

/** Is it a link into the restore area, or to nothing? */
async function mayReplace({ target }: Standing, at: string, mountpoints: readonly string[]): Promise<boolean> {
  if (target === null) return false;
  const absolute = path.resolve(path.dirname(at), target);
  if (mountpoints.some((mountpoint) => isBelow(absolute, mountpoint))) return true;
  return await stat(at).then(
    () => false,
    (error: unknown) => isNothing(error),
  );
}

/** In one step, so that nobody who opens the path meanwhile finds nothing; looked at once more right before it. */
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

/** Where somebody's link leads is not kept. */
function tellInTheWay(at: string, target: string | null): InTheWayError {
  const what = target === null ? 'what is no link of Tapegate’s' : 'a link to somewhere else';
  return new InTheWayError(`${at} is ${what}, and stays`);
}

function isBelow(file: string, folder: string): boolean {
  return file.startsWith(`${folder}/`);
}

/** ELOOP: a link to itself leads nowhere either. */
function isNothing(error: unknown): boolean {
  return ['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error) ?? '');
}
