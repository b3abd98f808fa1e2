/**
 * Makes and removes links at archive paths, and their directories.
 *
 * A link replaces only a link into the restore area, a dangling link, or empty directories that were created for links.
 * Links in the path of the directory are followed, because archives use them.
 *
 * Each directory is recorded before it is created (operations/links/folders.ts). It is removed if it is empty and a
 * link takes its place, or ten minutes after a link in it was removed: in archives, small directories are often
 * restored and released. A record without an inode means that an engine was about to create the directory; a directory
 * of this process's user at that path counts as this one.
 */
import { type BigIntStats, lstatSync, readlinkSync, renameSync, rmdirSync, unlinkSync } from 'node:fs';
import { lstat, mkdir, open, readlink, stat, symlink, unlink } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf } from '../../errors.js';
import type { Link } from '../../operations/links/links.js';
import {
  forgetLinkFolders,
  type LinkFolder,
  noteMadeLinkFolder,
  noteMakingLinkFolder,
  readLinkFolders,
  readLinkFoldersIn,
} from '../../operations/links/links.js';
import { isNoted, traitsOf } from '../disk/made-folders.js';

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
  return file.startsWith(`${folder}/`);
}

/** Creates missing directories; does not record TAPEGATE_LINK_ROOT and its parents. @throws file system errors */
async function makeLinkFolder(ctx: Context, folder: string): Promise<void> {
  const root = path.resolve(ctx.config.linkRoot ?? '/');
  const missing: string[] = [];
  for (let dir = folder; dir !== root && dir !== '/'; dir = path.dirname(dir)) {
    if (await statFolder(dir)) break;
    missing.unshift(dir);
  }
  // only the root itself: if other directories have disappeared, the next attempt creates and records them
  if (missing[0] !== undefined && path.dirname(missing[0]) === root) await mkdir(root, { recursive: true });
  for (const dir of missing) {
    await noteMakingLinkFolder(ctx, dir);
    try {
      await mkdir(dir);
      await noteMadeLinkFolder(ctx, { path: dir, ...traitsOf(await lstat(dir, { bigint: true })) });
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error; // another engine has just created it
    }
  }
}

/** Removes empty directories above a link that were created for links, innermost first. */
export async function tidyLinkFolders(ctx: Context, at: string): Promise<void> {
  const dirs: string[] = [];
  for (let dir = path.dirname(at); dir !== '/'; dir = path.dirname(dir)) dirs.push(dir);
  const notes = await readLinkFolders(ctx, dirs);
  const gone: LinkFolder[] = [];
  for (const dir of dirs) {
    const note = notes.get(dir);
    if (note ? !(await removeNoted(note)) : await statFolder(dir)) break;
    if (note) gone.push(note);
  }
  await forgetGoneFolders(ctx, gone);
}

/** Removes a directory that contains only directories created for links. @returns whether it is gone */
async function removeLinkFolder(ctx: Context, at: string): Promise<boolean> {
  const gone: LinkFolder[] = [];
  for (const note of await readLinkFoldersIn(ctx, at)) if (await removeNoted(note)) gone.push(note);
  await forgetGoneFolders(ctx, gone);
  return gone.at(-1)?.path === at;
}

/** Syncs the removals before the records are deleted: after a crash, a directory could return without a record. */
async function forgetGoneFolders(ctx: Context, gone: readonly LinkFolder[]): Promise<void> {
  for (const above of new Set(gone.map((note) => path.dirname(note.path)))) await syncLinkFolder(above);
  await forgetLinkFolders(ctx, gone);
}

/** @returns whether it is gone */
async function removeNoted(note: LinkFolder): Promise<boolean> {
  if (!(await statFolder(note.path))) return true; // asynchronous, so that a hung file system blocks only this call
  // check and removal are synchronous, so that a directory put there meanwhile is not removed
  try {
    const stats = lstatSync(note.path, { bigint: true });
    if (!stats.isDirectory() || !isOfThisUser(stats) || !isNoted(note, stats)) return false;
    rmdirSync(note.path);
    return true;
  } catch (error) {
    if (isNothing(error)) return true;
    if (!STAYING.includes(codeOf(error) ?? '')) throw error;
    return false;
  }
}

const STAYING = ['ENOTEMPTY', 'EEXIST', 'EBUSY', 'EACCES', 'EPERM', 'EROFS'];

/** A directory with another owner was changed on purpose. */
function isOfThisUser({ uid }: BigIntStats): boolean {
  return uid === BigInt(process.geteuid?.() ?? 0);
}

async function statFolder(dir: string): Promise<BigIntStats | undefined> {
  return await lstat(dir, { bigint: true }).catch((error: unknown) => {
    if (!isNothing(error)) throw error;
    return undefined;
  });
}

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
