/** By what a folder of the restore area is known as one that Tapegate has made. */
import { type BigIntStats, constants } from 'node:fs';
import { lstat, opendir } from 'node:fs/promises';
import path from 'node:path';
import type { FolderNote, FolderTraits } from '../../operations/disks/folders.js';
import { FOLDER_MODE } from './attributes.js';
import { inodeOf } from './copy.js';
import { markerName } from './marker.js';
import type { Folder } from './restore-area.js';

/**
 * Of a folder until it is noted which one it is. Nobody else makes any with the sticky bit and no rights for others: it is known as one
 * that Tapegate was about to make, however its process ended.
 */
export const MAKING_MODE = constants.S_IRWXU | 0o1000;

/** Whatever the folder above hands on: the set-group-id bit. */
const OWN_BITS = 0o5777n;

export function isBeingMade({ mode }: BigIntStats): boolean {
  return (mode & OWN_BITS) === BigInt(MAKING_MODE);
}

/** Where a file system has no time of birth, 0 is told. */
export function traitsOf(stats: BigIntStats): FolderTraits {
  return { ino: inodeOf(stats), birthNs: stats.birthtimeNs > 0n ? stats.birthtimeNs : null };
}

/**
 * Is the folder the one that was noted? An inode is soon that of another folder, which has another time of birth. One that is being made
 * is not known yet by anything but its mode.
 */
export function isNoted(note: Pick<FolderNote, 'ino' | 'birthNs'> | undefined, stats: BigIntStats): boolean {
  if (!note) return false;
  if (isBeingMade(stats)) return true;
  const { ino, birthNs } = traitsOf(stats);
  return note.ino === ino && (note.birthNs === null || birthNs === null || note.birthNs === birthNs);
}

/**
 * Has it the owner, the group and the mode that it would have if Tapegate had made it? Somebody wants it so who has changed them. A server
 * may map the owner of what this process makes: it is that of the marker then. A group may come from the folder above.
 */
export async function isAsMade(stats: BigIntStats, parent: Folder): Promise<boolean> {
  const [above, marker] = [await parent.handle.stat(), await lstat(path.join(parent.root, markerName))];
  const isOwn = [process.geteuid?.(), marker.uid].includes(Number(stats.uid));
  const hasGroup = [process.getegid?.(), marker.gid, above.gid].includes(Number(stats.gid));
  const hasMode = (stats.mode & 0o7777n) === BigInt(FOLDER_MODE) || isBeingMade(stats);
  return stats.isDirectory() && isOwn && hasGroup && hasMode;
}

/** @throws where it cannot be read */
export async function isEmptyFolder(folder: string): Promise<boolean> {
  const entries = await opendir(folder);
  try {
    return (await entries.read()) === null;
  } finally {
    await entries.close();
  }
}
