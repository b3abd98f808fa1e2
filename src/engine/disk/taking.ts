/**
 * Takes files out of folders. Where others may write, one may be exchanged between a look and its removal: it is moved first to
 * where nobody else can touch it, looked at there, and goes only if it is what was to go.
 */
import { type BigIntStats, constants, linkSync, lstatSync, renameSync, unlinkSync } from 'node:fs';
import { lstat, mkdir, open, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf } from '../../errors.js';
import { ownersOf } from './exposure.js';
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
    const handle = await open(place, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    const [stats, there] = [await handle.stat(), await folder.handle.stat()];
    if (stats.dev === there.dev && (await ownersOf(root)).has(stats.uid) && (stats.mode & 0o077) === 0) {
      const at = above.at === root ? place : `/proc/self/fd/${handle.fd}`;
      return { at, close: () => handle.close() };
    }
    await handle.close();
    if (stats.dev !== there.dev) return undefined;
    throw new Error(`${path.join(root, APART)} is open to others: take it away, and Tapegate makes it`);
  } finally {
    await above.handle.close();
  }
}

/**
 * Removes a file if it is what is meant; any other one stays, whoever puts it there at whatever moment.
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
  const seen = await lstat(file, { bigint: true }).catch(ignoreMissing);
  if (!seen) return 'missing';
  if (!isMeant(seen)) return 'other';
  const apart = await openApart(folder);
  try {
    if (apart) {
      const aside = path.join(apart.at, name);
      renameSync(file, aside);
      const moved = lstatSync(aside, { bigint: true });
      if (moved.ino !== seen.ino || moved.dev !== seen.dev) {
        giveBack(aside, file);
        return 'other';
      }
      await unlink(aside);
    } else await unlink(file);
    return 'taken';
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
    return 'missing';
  } finally {
    await apart?.close();
  }
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
