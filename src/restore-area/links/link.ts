/**
 * Makes and removes links at archive paths, and their directories.
 *
 * A link replaces only a link into the restore area, or a dangling link. Links in the path of the directory are
 * followed if they are trusted, because archives use them. Users may write in directories of the archive, and replace
 * one by a link at any moment. So each call uses an open directory, after the kernel has reported its path.
 */
import { type BigIntStats, lstatSync, readlinkSync, renameSync, unlinkSync } from 'node:fs';
import { lstat, readlink, rmdir, stat, symlink, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, TapeError } from '../../core/errors.js';
import { FOLDER_MODE } from '../../domain/catalogue/folder-modes.js';
import type { Link } from '../../domain/links/links.js';
import type { DirectoryAttributes } from '../attributes.js';
import { findProblem, type Trusted } from '../exposure.js';
import { isUnfinished, modesOf } from '../made-directories.js';
import { type Directory, ignoreReplaced, withDirectory } from '../restore-area.js';
import { type AttributesOf, createLinkDirectory } from './directories.js';

/** An error that another file is at the archive path, or that an untrusted link leads to its directory. */
class InTheWayError extends TapeError {
  constructor(message: string) {
    super('POLICY', message);
  }
}

interface LinkOptions {
  /** Used in the temporary name of a link that replaces another one. */
  fileId: bigint;
  /** Mount points of all restore disks. */
  mountpoints: readonly string[];
  attributesOf: AttributesOf;
}

/** An empty directory may be removed before the link is made. */
const ATTEMPTS = 20;

/**
 * Makes a link and its directories; leaves an existing one.
 * @throws InTheWayError; TapeError POLICY if something has just replaced a directory; errors of the file system
 */
export async function makeLink(
  { at, target }: Link,
  { fileId, mountpoints, attributesOf }: LinkOptions,
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      const dir = await makeLinkFolder(at, { mountpoints, attributesOf });
      return await withDirectory('/', dir, (folder) => placeLink({ at, target }, folder, { fileId, mountpoints }));
    } catch (error) {
      if (codeOf(error) !== 'ENOENT' || attempt === ATTEMPTS) throw error;
    }
  }
}

/** Creates missing directories of a link. @returns its directory, without links */
async function makeLinkFolder(at: string, { mountpoints, attributesOf }: Omit<LinkOptions, 'fileId'>): Promise<string> {
  const { real, missing, dangling } = await resolveFolder(path.dirname(at));
  if (mountpoints.some((mountpoint) => isBelow(at, mountpoint) || isBelow(`${real}/`, mountpoint))) {
    throw new InTheWayError(`${at} is in the restore area itself`);
  }
  if (dangling !== undefined) throw new InTheWayError(`${dangling} is a dangling link`);
  if (missing.length === 0) return real;
  const dirs = linkDirectoriesAbove(at).slice(0, missing.length).reverse();
  const attributes = await attributesOf(dirs);
  let dir = real;
  for (const [n, name] of missing.entries()) {
    await createLinkDirectory(dir, name, attributes[n] as DirectoryAttributes);
    dir = path.join(dir, name);
  }
  return dir;
}

async function placeLink(
  { at, target }: Link,
  folder: Directory,
  { fileId, mountpoints }: { fileId: bigint; mountpoints: readonly string[] },
): Promise<void> {
  const entry = path.join(folder.fdPath, path.basename(at));
  try {
    await symlink(target, entry);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
    const there = await readLinkEntry(entry);
    if (there?.target === target) return;
    if (there && !(await mayReplace(there, folder, entry, mountpoints))) throw describeObstacle(at, there.target);
    await replaceLink({ at, target }, folder, there, fileId);
  }
}

/**
 * Removes a link with this target; does not remove any other file, or a file behind an untrusted link.
 * @throws errors of the file system
 */
export async function removeLink({ at, target }: Link): Promise<void> {
  const remove = async (folder: Directory) => {
    const entry = path.join(folder.fdPath, path.basename(at));
    if ((await readLinkEntry(entry))?.target !== target) return; // asynchronous, so that a hung file system blocks only this call
    // check and removal are synchronous, so that a file put there meanwhile is not removed
    try {
      if (lstatSync(entry).isSymbolicLink() && readlinkSync(entry) === target) unlinkSync(entry);
    } catch (error) {
      ignoreNothing(error);
    }
  };
  await inLinkFolder(path.dirname(at), remove).catch(ignoreReplaced);
}

const partsOf = (file: string): string[] => file.split('/').filter((name) => name !== '' && name !== '.');

/** Limit of the Linux kernel. */
const MOST_LINKS = 40;

interface Way {
  /** The path without links, as far as it exists. */
  real: string;
  /** Names below it that do not exist. */
  missing: string[];
  /** A dangling link in the path. */
  dangling?: string;
}

/**
 * Resolves the links in the path of a directory. Entries may be replaced at any moment: only `openExisting` proves that
 * a directory is at the returned path.
 * @throws InTheWayError if an untrusted link is in the path
 */
async function resolveFolder(folder: string, from = '/', links = { left: MOST_LINKS }): Promise<Way> {
  const parts = partsOf(folder);
  let real = folder.startsWith('/') ? '/' : from;
  for (const [n, part] of parts.entries()) {
    const next = path.join(real, part);
    const stats = await lstat(next).catch(ignoreNothing);
    // a killed engine may have left a directory without its mode: the next link finishes it
    if (!stats || (stats.isDirectory() && isUnfinished(stats))) return { real, missing: parts.slice(n) };
    if (!stats.isSymbolicLink()) {
      real = next;
      continue;
    }
    const target = await readTrustedLink(real, part);
    const way = links.left-- > 0 ? await resolveFolder(target, real, links) : undefined;
    if (!way || way.missing.length > 0) return { real, missing: parts.slice(n), dangling: next };
    real = way.real;
  }
  return { real, missing: [] };
}

/**
 * Reads a link of root or of this process's user. An untrusted link could lead to a directory in which only this
 * process may write. So could a trusted one that other users may replace or rename between two calls.
 * @throws InTheWayError if it is untrusted
 */
async function readTrustedLink(dir: string, name: string): Promise<string> {
  const trusted: Trusted = { users: new Set([0, process.geteuid?.() ?? 0]), group: undefined };
  return await withDirectory('/', dir, async ({ fdPath: at, handle }) => {
    const [link, entry] = [path.join(dir, name), path.join(at, name)];
    const { uid } = await lstat(entry);
    if (!trusted.users.has(uid)) {
      throw new InTheWayError(`${link} is a link of another user (${uid}), and Tapegate does not follow it`);
    }
    const untrusted = findProblem({ directory: dir, root: link }, await handle.stat(), trusted);
    if (!untrusted) return await readlink(entry);
    throw new InTheWayError(
      `${link} is a link that other users may replace, and Tapegate does not follow it: untrusted directory ${dir}: ${untrusted.problem}`,
    );
  });
}

/**
 * Uses a directory of links while it is open.
 * @returns undefined if it is missing, or something has just replaced it
 * @throws InTheWayError if an untrusted link is in its path
 */
async function inLinkFolder<T>(dir: string, use: (folder: Directory) => Promise<T>): Promise<T | undefined> {
  const { real, missing } = await resolveFolder(dir);
  return missing.length > 0 ? undefined : await withDirectory('/', real, use).catch(ignoreReplaced);
}

/** Whether it is a link into the restore area, or a dangling link. */
async function mayReplace(
  { target }: Standing,
  { path: place }: Directory,
  entry: string,
  mountpoints: readonly string[],
): Promise<boolean> {
  if (target === null) return false;
  const absolute = path.resolve(place, target);
  if (mountpoints.some((mountpoint) => isBelow(absolute, mountpoint))) return true;
  return (await stat(entry).catch(ignoreNothing)) === undefined;
}

/** Replaces a link atomically, so that the path is never missing. Checks it again right before. */
async function replaceLink(
  { at, target }: Link,
  folder: Directory,
  there: Standing | undefined,
  fileId: bigint,
): Promise<void> {
  const entry = path.join(folder.fdPath, path.basename(at));
  const beside = path.join(folder.fdPath, `.tapegate-link-${fileId}`);
  await unlink(beside).catch(ignoreNothing);
  await symlink(target, beside);
  const now = lstatSync(entry, { bigint: true, throwIfNoEntry: false });
  if (!now || (now.ino === there?.stats.ino && now.ctimeNs === there.stats.ctimeNs)) renameSync(beside, entry);
  else {
    unlinkSync(beside);
    throw describeObstacle(at, null);
  }
}

/** The message does not show the target of another user's link. */
function describeObstacle(at: string, target: string | null): InTheWayError {
  const what = target === null ? 'not a link of Tapegate' : 'a link to another target';
  return new InTheWayError(`${at} is ${what}, and Tapegate does not replace it`);
}

function isBelow(file: string, folder: string): boolean {
  return file.startsWith(folder.endsWith('/') ? folder : `${folder}/`);
}

/**
 * Removes the directories above a removed link, innermost first, while they are empty and look as `makeLink` creates
 * them: with another owner, group or mode, an operator wants to keep them. Leaves directories behind a link that
 * leads out of TAPEGATE_LINK_ROOT.
 *
 * Does not sync: a directory that reappears after a crash is empty, and is removed with the next link in it.
 * @param root TAPEGATE_LINK_ROOT, which is never removed
 */
export async function tidyLinkFolders(root: string, at: string, attributesOf: AttributesOf): Promise<void> {
  const { real } = await resolveFolder(root);
  const dirs = linkDirectoriesAbove(at).filter((dir) => isBelow(dir, root));
  const attributes = await attributesOf(dirs);
  for (const [n, dir] of dirs.entries()) {
    if (!(await removeEmptyLinkFolder(real, dir, attributes[n] as DirectoryAttributes))) return;
  }
}

/** Returns the directories above a path, innermost first, without the root. */
function linkDirectoriesAbove(at: string): string[] {
  const dirs: string[] = [];
  for (let dir = path.dirname(at); dir !== '/'; dir = path.dirname(dir)) dirs.push(dir);
  return dirs;
}

/** @param root without links @returns whether the directory no longer exists */
async function removeEmptyLinkFolder(root: string, dir: string, wanted: DirectoryAttributes): Promise<boolean> {
  const modes = [...modesOf(wanted), ...modesOf({ ...wanted, mode: FOLDER_MODE })]; // also before one was recorded
  const remove = async ({ fdPath: at, path: place, handle }: Directory): Promise<boolean> => {
    const entry = path.join(at, path.basename(dir));
    const [stats, above] = [await lstat(entry), await handle.stat()];
    const hasGroup = [process.getegid?.(), above.gid, wanted.gid].includes(stats.gid);
    const hasMode = modes.includes(stats.mode & 0o777) || isUnfinished(stats);
    if (!stats.isDirectory() || stats.uid !== process.geteuid?.() || !hasGroup || !hasMode) return false;
    if (!isBelow(path.join(place, path.basename(dir)), root)) return false;
    await rmdir(entry); // refuses a directory with contents
    return true;
  };
  try {
    return (await inLinkFolder(path.dirname(dir), remove)) ?? true;
  } catch (error) {
    if (!(error instanceof InTheWayError) && !STAYING.includes(codeOf(error) ?? '')) throw error;
    return false;
  }
}

const STAYING = ['ENOTEMPTY', 'EEXIST', 'EBUSY', 'EACCES', 'EPERM', 'EROFS'];

interface Standing {
  /** Target of the link; null if it is not a link. */
  target: string | null;
  stats: BigIntStats;
}

/** @returns undefined if there is none @throws InTheWayError if an untrusted link leads to its directory */
export async function lookAtLink(at: string): Promise<Standing | undefined> {
  return await inLinkFolder(path.dirname(at), (folder) => readLinkEntry(path.join(folder.fdPath, path.basename(at))));
}

async function readLinkEntry(entry: string): Promise<Standing | undefined> {
  try {
    const stats = await lstat(entry, { bigint: true });
    return { stats, target: stats.isSymbolicLink() ? await readlink(entry) : null };
  } catch (error) {
    return ignoreNothing(error);
  }
}

/** Syncs the directory of a link; does nothing if it no longer exists, or was replaced. */
export async function syncLinkFolder(folder: string): Promise<void> {
  await inLinkFolder(folder, ({ handle }) => handle.sync()).catch(ignoreReplaced);
}

/** Whether an error means that a file is missing. ELOOP: a link to itself has no target. */
function ignoreNothing(error: unknown): undefined {
  if (!['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error) ?? '')) throw error;
}
