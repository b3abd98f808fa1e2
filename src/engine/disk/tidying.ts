/** Folders of the restore area that are empty once their last copy has left. */
import type { Stats } from 'node:fs';
import { lstat, rename, rmdir } from 'node:fs/promises';
import path from 'node:path';
import { FOLDER_MODE } from './attributes.js';
import { markerName, rootOf } from './marker.js';
import { type CopyPlace, type Folder, openExisting } from './restore-area.js';
import { openApart } from './taking.js';

/**
 * Removes the folders of a place, from the innermost on, as far as they are empty and as `openFolder` makes them: one with another
 * owner, group or mode was made, or changed, by somebody who wants it so, and would be made anew as any.
 * @throws TapeError TRANSIENT when the disk is not there
 */
export async function removeEmptyFolders(place: CopyPlace): Promise<void> {
  const root = await rootOf(place);
  for (let dir = path.dirname(place.path); dir !== '/'; dir = path.dirname(dir)) {
    let parent: Folder | undefined;
    try {
      parent = await openExisting(root, path.dirname(dir));
      if (!(await removeFolder(parent, path.basename(dir)))) return;
    } catch {
      return; // not empty, a link, or gone already: it stays as it is
    } finally {
      await parent?.handle.close();
    }
  }
}

/** @returns false for a folder that is to stay @throws where it cannot be removed, not being empty for one */
async function removeFolder(parent: Folder, name: string): Promise<boolean> {
  const folder = path.join(parent.at, name);
  const seen = await lstat(folder);
  if (!(await isAsMade(seen, parent))) return false;
  const apart = await openApart(parent);
  if (!apart) {
    await rmdir(folder);
    return true;
  }
  try {
    return await removeApart(folder, path.join(apart.at, name), seen);
  } finally {
    await apart.close();
  }
}

/** Where others may write, another folder may have its name by now: it is looked at where nobody can exchange it. */
async function removeApart(folder: string, aside: string, seen: Stats): Promise<boolean> {
  await rename(folder, aside);
  const moved = await lstat(aside);
  if (moved.ino === seen.ino && (await rmdir(aside).then(...isDone))) return true;
  const isTaken = await lstat(folder).then(...isDone);
  if (!isTaken) await rename(aside, folder); // else it stays aside, with all that is in it
  return false;
}

/** Did it work out? */
const isDone = [() => true, () => false] as const;

/** A server may map the owner of what this process makes: it is that of the marker then. A group may come from the folder above. */
async function isAsMade(stats: Stats, parent: Folder): Promise<boolean> {
  const [above, marker] = [await parent.handle.stat(), await lstat(path.join(parent.root, markerName))];
  const isOwn = stats.uid === process.geteuid?.() || stats.uid === marker.uid;
  const hasGroup = [process.getegid?.(), marker.gid, above.gid].includes(stats.gid);
  return stats.isDirectory() && isOwn && hasGroup && (stats.mode & 0o7777) === FOLDER_MODE;
}
