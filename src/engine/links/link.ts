/**
 * Makes and removes links at archive paths, and the directories that they need.
 *
 * A link replaces only a link into the restore area, a link to nothing, and empty directories that were made for links. Anything else stays.
 * Links on the way to the directory are followed, because archives use them.
 *
 * Each directory is recorded before it is made (operations/links/folders.ts). It is removed when it is empty and a link takes its place, or ten minutes
 * after a link in it was removed, because archives have directories of few files, which are restored and released often. A record without an inode
 * belongs to a directory that an engine was about to make: a directory of this process's user at that path is taken for it.
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

/** Something of somebody's stands at the archive path. */
class InTheWayError extends Error {}

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

/** Makes what is missing of a folder. TAPEGATE_LINK_ROOT itself, and what is above it, is none of those that go again. @throws what the file system says */
async function makeLinkFolder(ctx: Context, folder: string): Promise<void> {
  const root = path.resolve(ctx.config.linkRoot ?? '/');
  const missing: string[] = [];
  for (let dir = folder; dir !== root && dir !== '/'; dir = path.dirname(dir)) {
    if (await statFolder(dir)) break;
    missing.unshift(dir);
  }
  // no other one: what has gone meanwhile is made again, and noted, by the next try
  if (missing[0] !== undefined && path.dirname(missing[0]) === root) await mkdir(root, { recursive: true });
  for (const dir of missing) {
    await noteMakingLinkFolder(ctx, dir);
    try {
      await mkdir(dir);
      await noteMadeLinkFolder(ctx, { path: dir, ...traitsOf(await lstat(dir, { bigint: true })) });
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error; // another engine has just made it
    }
  }
}

/** Removes what is empty of the folders above a link, from the innermost on, as far as they were made for links. */
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

/** Removes a folder in whose place a link is to stand, with all in it, where that is nothing but such folders. @returns whether it has gone */
async function removeLinkFolder(ctx: Context, at: string): Promise<boolean> {
  const gone: LinkFolder[] = [];
  for (const note of await readLinkFoldersIn(ctx, at)) if (await removeNoted(note)) gone.push(note);
  await forgetGoneFolders(ctx, gone);
  return gone.at(-1)?.path === at;
}

/** Their going lasts before their notes go: nobody would come to one that is back after a crash of the host. */
async function forgetGoneFolders(ctx: Context, gone: readonly LinkFolder[]): Promise<void> {
  for (const above of new Set(gone.map((note) => path.dirname(note.path)))) await syncLinkFolder(above);
  await forgetLinkFolders(ctx, gone);
}

/** @returns whether it is not there any more */
async function removeNoted(note: LinkFolder): Promise<boolean> {
  if (!(await statFolder(note.path))) return true; // without waiting for a file system that hangs
  // looked at and removed in one go: what somebody puts there meanwhile is not taken for it
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

/** Somebody wants it so who has given it to another user. */
function isOfThisUser({ uid }: BigIntStats): boolean {
  return uid === BigInt(process.geteuid?.() ?? 0);
}

async function statFolder(dir: string): Promise<BigIntStats | undefined> {
  return await lstat(dir, { bigint: true }).catch((error: unknown) => {
    if (!isNothing(error)) throw error;
    return undefined;
  });
}

/** What stands at an archive path. */
interface Standing {
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
function isNothing(error: unknown): boolean {
  return ['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error) ?? '');
}
