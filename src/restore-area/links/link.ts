/**
 * Creates and removes symbolic links at archive paths, and the directories that contain the links. A new link replaces
 * only a link into the restore area, or a dangling link.
 *
 * Tapegate follows trusted links in the path of a new link's directory, because archives can contain links.
 *
 * Users can write in the archive's directories, and might replace a directory with a link at any moment. Therefore each
 * call works in an open directory, after the kernel has confirmed the directory's path.
 */
import { type BigIntStats, lstatSync, readlinkSync, renameSync, unlinkSync } from 'node:fs';
import { lstat, readlink, rmdir, stat, symlink, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, TapeError } from '../../core/errors.js';
import { DIRECTORY_MODE } from '../../domain/catalogue/directory-modes.js';
import type { Link } from '../../domain/links/links.js';
import type { DirectoryAttributes } from '../attributes.js';
import { findProblem, type Trusted } from '../exposure.js';
import { isUnfinished, modesOf } from '../made-directories.js';
import { type Directory, ignoreReplaced, withDirectory } from '../restore-area.js';
import { type AttributesOf, createLinkDirectory } from './directories.js';

/**
 * Error for a link that cannot be created: another file occupies its path, or its directory's path contains an
 * untrusted link.
 */
class InTheWayError extends TapeError {
  constructor(message: string) {
    super('POLICY', message);
  }
}

interface LinkOptions {
  /** The file's id. A link that replaces another link has this id in its temporary name. */
  fileId: bigint;
  mountpoints: readonly string[];
  attributesOf: AttributesOf;
}

/**
 * Maximum number of attempts to create a link. An attempt fails if another engine removes the link's directory while
 * the directory is still empty.
 */
const ATTEMPTS = 20;

/**
 * Creates a link and its missing directories. Does nothing if the link already exists.
 * @throws InTheWayError; TapeError POLICY if a link or file has just replaced a directory; file system errors
 */
export async function makeLink(
  { at, target }: Link,
  { fileId, mountpoints, attributesOf }: LinkOptions,
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      const dir = await makeLinkDirectory(at, { mountpoints, attributesOf });
      return await withDirectory('/', dir, (directory) =>
        placeLink({ at, target }, directory, { fileId, mountpoints }),
      );
    } catch (error) {
      if (codeOf(error) !== 'ENOENT' || attempt === ATTEMPTS) throw error;
    }
  }
}

/** @returns the path of the link's directory, with symbolic links resolved */
async function makeLinkDirectory(
  at: string,
  { mountpoints, attributesOf }: Omit<LinkOptions, 'fileId'>,
): Promise<string> {
  const { real, missing, dangling } = await resolveDirectory(path.dirname(at));
  if (mountpoints.some((mountpoint) => isBelow(at, mountpoint) || isBelow(`${real}/`, mountpoint))) {
    throw new InTheWayError(`${at} is on a restore disk, but links must be outside the restore disks`);
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
  directory: Directory,
  { fileId, mountpoints }: { fileId: bigint; mountpoints: readonly string[] },
): Promise<void> {
  const entry = path.join(directory.fdPath, path.basename(at));
  try {
    await symlink(target, entry);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
    const there = await readLinkEntry(entry);
    if (there?.target === target) return;
    if (there && !(await mayReplace(there, directory, entry, mountpoints))) throw describeObstacle(at, there.target);
    await replaceLink({ at, target }, directory, there, fileId);
  }
}

/** Removes the link at `at` if its target is `target`. Does not follow untrusted links. @throws file system errors */
export async function removeLink({ at, target }: Link): Promise<void> {
  const remove = async (directory: Directory) => {
    const entry = path.join(directory.fdPath, path.basename(at));
    // read the link asynchronously first, so that a hung file system does not block the whole process
    if ((await readLinkEntry(entry))?.target !== target) return;
    // check and remove the link synchronously, so that this process cannot replace the link between the two calls
    try {
      if (lstatSync(entry).isSymbolicLink() && readlinkSync(entry) === target) unlinkSync(entry);
    } catch (error) {
      ignoreNothing(error);
    }
  };
  await inLinkDirectory(path.dirname(at), remove).catch(ignoreReplaced);
}

const partsOf = (file: string): string[] => file.split('/').filter((name) => name !== '' && name !== '.');

/** Maximum number of links in a path, as in the Linux kernel. */
const MOST_LINKS = 40;

interface Way {
  /** The part of the path that exists, with links resolved. */
  real: string;
  missing: string[];
  /** The first dangling link in the path. */
  dangling?: string;
}

/**
 * Resolves the links in a directory's path. Users can replace entries at any moment. Therefore the caller must open the
 * returned path with `openExisting`, which checks that the path no longer contains links.
 * @throws InTheWayError if the path contains an untrusted link
 */
async function resolveDirectory(directory: string, from = '/', links = { left: MOST_LINKS }): Promise<Way> {
  const parts = partsOf(directory);
  let real = directory.startsWith('/') ? '/' : from;
  for (const [n, part] of parts.entries()) {
    const next = path.join(real, part);
    const stats = await lstat(next).catch(ignoreNothing);
    // treat a directory without its final mode as missing, so that `createLinkDirectory` sets its mode; an engine that
    // was killed left it
    if (!stats || (stats.isDirectory() && isUnfinished(stats))) return { real, missing: parts.slice(n) };
    if (!stats.isSymbolicLink()) {
      real = next;
      continue;
    }
    const target = await readTrustedLink(real, part);
    const way = links.left-- > 0 ? await resolveDirectory(target, real, links) : undefined;
    if (!way || way.missing.length > 0) return { real, missing: parts.slice(n), dangling: next };
    real = way.real;
  }
  return { real, missing: [] };
}

/**
 * Reads a link that belongs to root or to this process's user, in a directory where no other user can replace it.
 * Another user's link is untrusted, because it could lead this process to a directory that this user is not allowed to
 * change.
 * @throws InTheWayError if the link is untrusted
 */
async function readTrustedLink(dir: string, name: string): Promise<string> {
  const trusted: Trusted = { users: new Set([0, process.geteuid?.() ?? 0]), group: undefined };
  return await withDirectory('/', dir, async ({ fdPath: at, handle }) => {
    const [link, entry] = [path.join(dir, name), path.join(at, name)];
    const { uid } = await lstat(entry);
    if (!trusted.users.has(uid)) {
      throw new InTheWayError(`${link} belongs to another user (${uid}), and Tapegate does not follow the link`);
    }
    const untrusted = findProblem({ directory: dir, root: link }, await handle.stat(), trusted);
    if (!untrusted) return await readlink(entry);
    throw new InTheWayError(
      `Tapegate does not follow the link ${link}, because other users can replace it: untrusted directory ${dir}: ${untrusted.problem}`,
    );
  });
}

/**
 * Opens a link's directory and passes it to `use`.
 * @returns undefined if the directory is missing, or was just replaced by a link or file
 * @throws InTheWayError if the path contains an untrusted link
 */
async function inLinkDirectory<T>(dir: string, use: (directory: Directory) => Promise<T>): Promise<T | undefined> {
  const { real, missing } = await resolveDirectory(dir);
  return missing.length > 0 ? undefined : await withDirectory('/', real, use).catch(ignoreReplaced);
}

/** Returns whether the entry is a link into the restore area, or a dangling link. */
async function mayReplace(
  { target }: Standing,
  { path: directory }: Directory,
  entry: string,
  mountpoints: readonly string[],
): Promise<boolean> {
  if (target === null) return false;
  const absolute = path.resolve(directory, target);
  if (mountpoints.some((mountpoint) => isBelow(absolute, mountpoint))) return true;
  return (await stat(entry).catch(ignoreNothing)) === undefined;
}

/** Replaces a link atomically, so that other processes always find a link at its path. */
async function replaceLink(
  { at, target }: Link,
  directory: Directory,
  there: Standing | undefined,
  fileId: bigint,
): Promise<void> {
  const entry = path.join(directory.fdPath, path.basename(at));
  const beside = path.join(directory.fdPath, `.tapegate-link-${fileId}`);
  await unlink(beside).catch(ignoreNothing);
  await symlink(target, beside);
  const now = lstatSync(entry, { bigint: true, throwIfNoEntry: false });
  if (!now || (now.ino === there?.stats.ino && now.ctimeNs === there.stats.ctimeNs)) renameSync(beside, entry);
  else {
    unlinkSync(beside);
    throw describeObstacle(at, null);
  }
}

/**
 * Returns the error for an entry that Tapegate must not replace. The message omits the target of the other link, which
 * might be private.
 */
function describeObstacle(at: string, target: string | null): InTheWayError {
  const what = target === null ? 'not a Tapegate link' : 'a link to another target';
  return new InTheWayError(`${at} is ${what}, and Tapegate does not replace it`);
}

function isBelow(file: string, directory: string): boolean {
  return file.startsWith(directory.endsWith('/') ? directory : `${directory}/`);
}

/**
 * Removes empty directories above a removed link, innermost first. Keeps a directory whose owner, group or mode differs
 * from those that `makeLink` sets, because an operator might have changed the directory. Also keeps directories behind
 * a link that leads out of TAPEGATE_LINK_ROOT. Does not sync the removal, because a crash can at most restore an empty
 * directory.
 * @param root TAPEGATE_LINK_ROOT, which is never removed
 */
export async function tidyLinkDirectories(root: string, at: string, attributesOf: AttributesOf): Promise<void> {
  const { real } = await resolveDirectory(root);
  const dirs = linkDirectoriesAbove(at).filter((dir) => isBelow(dir, root));
  const attributes = await attributesOf(dirs);
  for (const [n, dir] of dirs.entries()) {
    if (!(await removeEmptyLinkDirectory(real, dir, attributes[n] as DirectoryAttributes))) return;
  }
}

function linkDirectoriesAbove(at: string): string[] {
  const dirs: string[] = [];
  for (let dir = path.dirname(at); dir !== '/'; dir = path.dirname(dir)) dirs.push(dir);
  return dirs;
}

/**
 * Removes a directory if it is empty and has the owner, group and mode that `makeLink` sets.
 * @returns whether the directory no longer exists
 */
async function removeEmptyLinkDirectory(root: string, dir: string, wanted: DirectoryAttributes): Promise<boolean> {
  // a directory has DIRECTORY_MODE if Tapegate created it before the catalogue contained the directory's mode
  const modes = [...modesOf(wanted), ...modesOf({ ...wanted, mode: DIRECTORY_MODE })];
  const remove = async ({ fdPath: at, path: directory, handle }: Directory): Promise<boolean> => {
    const entry = path.join(at, path.basename(dir));
    const [stats, above] = [await lstat(entry), await handle.stat()];
    const hasGroup = [process.getegid?.(), above.gid, wanted.gid].includes(stats.gid);
    const hasMode = modes.includes(stats.mode & 0o777) || isUnfinished(stats);
    if (!stats.isDirectory() || stats.uid !== process.geteuid?.() || !hasGroup || !hasMode) return false;
    if (!isBelow(path.join(directory, path.basename(dir)), root)) return false;
    await rmdir(entry); // `rmdir` fails if the directory is not empty
    return true;
  };
  try {
    return (await inLinkDirectory(path.dirname(dir), remove)) ?? true;
  } catch (error) {
    if (!(error instanceof InTheWayError) && !STAYING.includes(codeOf(error) ?? '')) throw error;
    return false;
  }
}

const STAYING = ['ENOTEMPTY', 'EEXIST', 'EBUSY', 'EACCES', 'EPERM', 'EROFS'];

interface Standing {
  /** Target of the symbolic link; null if the entry is not a link. */
  target: string | null;
  stats: BigIntStats;
}

/**
 * Returns the target and stats of the entry at a link's path; undefined if the entry does not exist.
 * @throws InTheWayError if the path to the link contains an untrusted link
 */
export async function lookAtLink(at: string): Promise<Standing | undefined> {
  return await inLinkDirectory(path.dirname(at), (directory) =>
    readLinkEntry(path.join(directory.fdPath, path.basename(at))),
  );
}

async function readLinkEntry(entry: string): Promise<Standing | undefined> {
  try {
    const stats = await lstat(entry, { bigint: true });
    return { stats, target: stats.isSymbolicLink() ? await readlink(entry) : null };
  } catch (error) {
    return ignoreNothing(error);
  }
}

/** Syncs a link's directory. Does nothing if the directory no longer exists, or if a link or file has replaced it. */
export async function syncLinkDirectory(directory: string): Promise<void> {
  await inLinkDirectory(directory, ({ handle }) => handle.sync()).catch(ignoreReplaced);
}

/** Ignores errors that mean that a file is missing. ELOOP means that links in the path form a loop. */
function ignoreNothing(error: unknown): undefined {
  if (!['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error) ?? '')) throw error;
}
