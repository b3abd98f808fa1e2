/** What really stands in a restore area. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import path from 'node:path';
import { markerName } from '../../src/engine/disk/marker.js';
import { codeOf } from '../../src/errors.js';

export interface Copy {
  mountpoint: string;
  /** Below the mount point, which is the logical path of a restored file. */
  path: string;
  size: bigint;
  ino: bigint;
  mtimeNs: bigint;
  /** Null for what is no plain file. */
  sha256: string | null;
}

/** Everything below a mount point that is no folder, but for its marker. What goes away meanwhile is left out. */
export async function scanDisk(mountpoint: string): Promise<Copy[]> {
  const copies: Copy[] = [];
  const pending = ['/'];
  for (let dir = pending.pop(); dir !== undefined; dir = pending.pop()) {
    const entries = await readdir(path.join(mountpoint, dir), { withFileTypes: true }).catch(ignoreMissing);
    for (const entry of entries ?? []) {
      const below = path.join(dir, entry.name);
      if (entry.isDirectory()) pending.push(below);
      else if (below !== `/${markerName}`) {
        const copy = await readCopy(mountpoint, below).catch(ignoreMissing);
        if (copy) copies.push(copy);
      }
    }
  }
  return copies;
}

/** A folder below a mount point that is there, or noted as made by Tapegate. */
export interface FolderFact {
  mountpoint: string;
  path: string;
  /** There is a note of it, with this inode; null: of one that is being made. */
  noted?: { ino: bigint | null };
  /** Undefined where there is no folder. */
  found?: { ino: bigint; isEmpty: boolean; isAsMade: boolean };
}

/** As src/engine/disk makes them. */
const FOLDER_MODE = 0o755n;

export async function scanFolders(
  mountpoint: string,
  notes: readonly { path: string; ino: bigint | null }[],
): Promise<FolderFact[]> {
  const folders = new Map<string, FolderFact>();
  const own = (await lstat(path.join(mountpoint, markerName), { bigint: true }).catch(ignoreMissing))?.uid;
  const pending = ['/'];
  for (let dir = pending.pop(); dir !== undefined; dir = pending.pop()) {
    const [stats, entries] = await Promise.all([
      lstat(path.join(mountpoint, dir), { bigint: true }).catch(ignoreMissing),
      readdir(path.join(mountpoint, dir), { withFileTypes: true }).catch(ignoreMissing),
    ]);
    if (!stats || !entries) continue;
    for (const entry of entries) if (entry.isDirectory()) pending.push(path.join(dir, entry.name));
    const isAsMade = stats.uid === own && (stats.mode & 0o7777n) === FOLDER_MODE;
    const found = { ino: BigInt.asIntN(64, stats.ino), isEmpty: entries.length === 0, isAsMade };
    if (dir !== '/') folders.set(dir, { mountpoint, path: dir, found });
  }
  for (const { path: dir, ino } of notes) {
    folders.set(dir, { mountpoint, path: dir, ...folders.get(dir), noted: { ino } });
  }
  return [...folders.values()];
}

async function readCopy(mountpoint: string, below: string): Promise<Copy> {
  const file = path.join(mountpoint, below);
  const stats = await lstat(file, { bigint: true });
  const sha256 = stats.isFile() ? await hashFile(file) : null;
  return { mountpoint, path: below, size: stats.size, ino: stats.ino, mtimeNs: stats.mtimeNs, sha256 };
}

async function hashFile(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk);
  return hash.digest('hex');
}

function ignoreMissing(error: unknown): undefined {
  if (codeOf(error) !== 'ENOENT') throw error;
}
