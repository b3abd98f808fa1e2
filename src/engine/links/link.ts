/**
 * One link at an archive path. It replaces nothing but what points into the restore area, which is a link of Tapegate's or of
 * the system before it, or to nothing, and empty folders that were made for links; all else that stands there is somebody's, and stays.
 *
 * Links in the way to the folder are followed: archives are made of them.
 */
import { lstatSync, readlinkSync, renameSync, unlinkSync } from 'node:fs';
import { lstat, readlink, stat, symlink, unlink } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf } from '../../errors.js';
import type { Link } from '../../operations/links/links.js';
import { makeLinkFolder, removeLinkFolder } from './folders.js';
import { isNothing, lookAtLink, type Standing } from './looks.js';

/** Something of somebody's stands at the archive path. */
export class InTheWayError extends Error {}

/** Its folder may go between its making and that of the link, since it is empty. */
const ATTEMPTS = 20;

/**
 * Makes a link, and the folders that it needs; one that is there already is made lasting.
 * @param fileId gives a name beside it to a link that replaces another one
 * @param mountpoints of all restore disks
 * @throws InTheWayError, and what the file system says
 */
export async function makeLink(
  ctx: Context,
  { at, target }: Link,
  { fileId, mountpoints }: { fileId: bigint; mountpoints: readonly string[] },
): Promise<void> {
  if (mountpoints.some((mountpoint) => isBelow(at, mountpoint))) {
    throw new InTheWayError(`${at} is in the restore area itself`);
  }
  for (let attempt = 1; ; attempt++) {
    try {
      await refuseForeign(path.dirname(at));
      await makeLinkFolder(ctx, path.dirname(at));
      return await placeLink(ctx, { at, target }, { fileId, mountpoints });
    } catch (error) {
      if (codeOf(error) !== 'ENOENT' || attempt === ATTEMPTS) throw error;
    }
  }
}

async function placeLink(
  ctx: Context,
  { at, target }: Link,
  { fileId, mountpoints }: { fileId: bigint; mountpoints: readonly string[] },
): Promise<void> {
  try {
    await symlink(target, at);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
    const there = await lookAtLink(at);
    if (there?.target === target) return;
    if (there?.stats.isDirectory() && (await removeLinkFolder(ctx, at))) {
      return await placeLink(ctx, { at, target }, { fileId, mountpoints });
    }
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

const partsOf = (file: string): string[] => file.split('/').filter((name) => name !== '' && name !== '.');

/** As the system has it. */
const MOST_LINKS = 40;

/**
 * Archives are made of links, and those of root and of this process's own user are followed. Another user's could lead to where this process may
 * write, and that user may not: also one to which another link leads.
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
    if (!stats) return; // it is made
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
