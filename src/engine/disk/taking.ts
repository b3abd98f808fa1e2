/**
 * Takes files out of folders. Where others may write, one may be exchanged between a look and its removal: it is moved first to
 * where nobody else can touch it, looked at there, and goes only if it is what was to go.
 */
import { createHash } from 'node:crypto';
import { type BigIntStats, constants, linkSync, lstatSync, renameSync, unlinkSync } from 'node:fs';
import { lstat, mkdir, open, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf } from '../../errors.js';
import { ownersOf } from './exposure.js';
import { parsePartialName } from './partial-name.js';
import { type Folder, isShared, openExisting } from './restore-area.js';

/** In the root of a restore disk; this process's user alone may enter it. */
const APART = '.tapegate-aside';

/** What is moved aside is looked at, and removed, where nobody else can exchange it. */
export interface Apart {
  at: string;
  close(): Promise<void>;
}

/**
 * Where the files of a folder are moved to be removed; undefined where nobody else may write in it, or above it, or where that would be
 * another file system: they are moved within the folder then.
 * @throws Error when somebody else's folder stands in its place
 */
export async function openApart(folder: Folder): Promise<Apart | undefined> {
  const { root } = folder;
  if (!(await isShared(folder))) return undefined;
  const above = await openExisting(root, '/');
  try {
    const place = path.join(above.at, APART);
    await mkdir(place, 0o700).catch((error: unknown) => {
      if (codeOf(error) !== 'EEXIST') throw error;
    });
    const apart = await enterApart(above, await folder.handle.stat());
    if (apart === 'open')
      throw new Error(`${path.join(root, APART)} is open to others: take it away, and Tapegate makes it`);
    return apart === 'elsewhere' ? undefined : apart;
  } finally {
    await above.handle.close();
  }
}

/** @param there a folder: what is to be moved is on its file system */
async function enterApart(above: Folder, there: { dev: number }): Promise<Apart | 'open' | 'elsewhere'> {
  const place = path.join(above.at, APART);
  const handle = await open(place, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  const stats = await handle.stat();
  if (stats.dev === there.dev && (await ownersOf(above.root)).has(stats.uid) && (stats.mode & 0o077) === 0) {
    return { at: above.at === above.root ? place : `/proc/self/fd/${handle.fd}`, close: () => handle.close() };
  }
  await handle.close();
  return stats.dev === there.dev ? 'open' : 'elsewhere';
}

/**
 * Uses what a process has left aside that was killed while it took an entry, or whose disk failed then. It is looked for whether or not
 * others may write in the folder by now, and whether or not that is still there.
 * @param root the mount point, without links
 * @param dir of the entry, below the mount point
 * @param use is given a path to what may be left
 * @returns undefined where nothing was ever left
 */
export async function withLeft<T>(
  root: string,
  entry: { dir: string; name: string },
  use: (aside: string) => T | Promise<T>,
): Promise<T | undefined> {
  const above = await openExisting(root, '/');
  try {
    const apart = await enterApart(above, await above.handle.stat()).catch(ignoreMissing);
    if (typeof apart !== 'object') return undefined;
    try {
      return await use(path.join(apart.at, asideName(entry)));
    } finally {
      await apart.close();
    }
  } finally {
    await above.handle.close();
  }
}

/** Whoever comes back to an entry finds what was left of it, and nothing of another one has the same name. */
function asideName({ dir, name }: { dir: string; name: string }): string {
  if (parsePartialName(name)) return name;
  const digest = createHash('sha256')
    .update(path.join('/', dir, name))
    .digest('hex');
  return `.tapegate-taken-${digest.slice(0, 32)}.part`;
}

/**
 * Removes a file if it is what is meant; any other one stays, whoever puts it there at whatever moment. What was left aside of it goes, too.
 * @param isMeant asked of the file in its place and, where that may be somebody else's by then, again when it has been moved: its time
 *   of change is another one then
 * @returns whether nothing has the name, or it was another one
 */
export async function takeEntry(
  folder: Folder,
  name: string,
  isMeant: (stats: BigIntStats) => boolean,
): Promise<'taken' | 'missing' | 'other'> {
  const file = path.join(folder.at, name);
  const entry = { dir: path.relative(folder.root, folder.place), name };
  const seen = await lstat(file, { bigint: true }).catch(ignoreMissing);
  if (!seen) {
    const isCleared = await withLeft(folder.root, entry, (aside) => clearLeft(aside, isMeant, file));
    return isCleared ? 'taken' : 'missing';
  }
  if (!isMeant(seen)) return 'other';
  const apart = await openApart(folder);
  try {
    if (apart) return await takeApart(file, path.join(apart.at, asideName(entry)), { seen, isMeant });
    await unlink(file);
    return 'taken';
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
    return 'missing';
  } finally {
    await apart?.close();
  }
}

async function takeApart(
  file: string,
  aside: string,
  { seen, isMeant }: { seen: BigIntStats; isMeant: (stats: BigIntStats) => boolean },
): Promise<'taken' | 'other'> {
  await clearLeft(aside, isMeant, file);
  renameSync(file, aside);
  const moved = lstatSync(aside, { bigint: true });
  if (moved.ino !== seen.ino || moved.dev !== seen.dev) {
    giveBack(aside, file);
    return 'other';
  }
  await unlink(aside);
  return 'taken';
}

/**
 * @param file where it is given back, being somebody else's; undefined: it stays where it is
 * @returns whether what was left has gone
 * @throws as `giveBack`
 */
export async function clearLeft(
  aside: string,
  isMeant: (stats: BigIntStats) => boolean,
  file?: string,
): Promise<boolean> {
  const left = lstatSync(aside, { bigint: true, throwIfNoEntry: false });
  if (!left) return false;
  if (isMeant(left)) await unlink(aside).catch(ignoreMissing);
  else if (file !== undefined) giveBack(aside, file);
  return isMeant(left);
}

/**
 * Puts a file that is somebody else's back in its place.
 * @throws Error where something stands there by now, or it cannot be put there: it stays aside then, with all of its bytes
 */
export function giveBack(aside: string, file: string): void {
  try {
    putBack(aside, file);
  } catch (error) {
    const problem = `${aside} was moved out of its place by mistake, and cannot be put back`;
    throw new Error(`${problem}: ${messageOf(error)}`, { cause: error });
  }
}

function putBack(aside: string, file: string): void {
  try {
    linkSync(aside, file);
  } catch (error) {
    if (!NO_LINKS.includes(codeOf(error) ?? '')) throw error;
    renameToNothing(aside, file);
    return;
  }
  unlinkSync(aside);
}

/** What file systems without links say. */
export const NO_LINKS = ['EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EMLINK'];

export function renameToNothing(from: string, to: string): void {
  if (lstatSync(to, { throwIfNoEntry: false })) {
    throw Object.assign(new Error(`something stands at ${to}`), { code: 'EEXIST' });
  }
  renameSync(from, to);
}

export function ignoreMissing(error: unknown): undefined {
  if (codeOf(error) !== 'ENOENT') throw error;
}
