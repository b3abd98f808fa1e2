/** Reads the real contents of restore disks and archive paths. */
import { createHash } from 'node:crypto';
import { createReadStream, type Dirent } from 'node:fs';
import { lstat, readdir, readlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../../src/core/errors.js';
import { markerName } from '../../src/restore-area/marker.js';

/** Entry of a restore disk other than a directory, such as a file, link or pipe. */
export interface Copy {
  mountpoint: string;
  /** Path below the mount point, in the form of a logical path. */
  path: string;
  size: bigint;
  ino: bigint;
  mtimeNs: bigint;
  /** SHA-256 of a regular file; null for other entries. */
  sha256: string | null;
}

export interface Directory {
  mountpoint: string;
  path: string;
  isEmpty: boolean;
  /** Whether the directory has the owner and a mode that Tapegate sets. */
  isLikeOwn: boolean;
}

/** Modes of directories that Tapegate creates if the original directory is unknown or readable by all. */
const DIRECTORY_MODES = [0o750n, 0o755n];

/** Walks all entries below a directory. Skips entries that disappear during the walk. */
export async function* walk(root: string): AsyncGenerator<{ place: string; entry: Dirent }> {
  const pending = [root];
  for (let dir = pending.pop(); dir !== undefined; dir = pending.pop()) {
    for (const entry of (await readdir(dir, { withFileTypes: true }).catch(ignoreMissing)) ?? []) {
      const place = path.join(dir, entry.name);
      if (entry.isDirectory()) pending.push(place);
      yield { place, entry };
    }
  }
}

export async function scanCopies(mountpoint: string): Promise<Copy[]> {
  const copies: Copy[] = [];
  for await (const { place, entry } of walk(mountpoint)) {
    if (entry.isDirectory() || place.startsWith(path.join(mountpoint, markerName))) continue;
    const copy = await readCopy(mountpoint, place).catch(ignoreMissing);
    if (copy) copies.push(copy);
  }
  return copies;
}

async function readCopy(mountpoint: string, place: string): Promise<Copy> {
  const stats = await lstat(place, { bigint: true });
  const sha256 = stats.isFile() ? await hashFile(place) : null;
  const { size, ino, mtimeNs } = stats;
  return { mountpoint, path: place.slice(mountpoint.length), size, ino, mtimeNs, sha256 };
}

async function hashFile(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk);
  return hash.digest('hex');
}

export async function scanDirectories(mountpoint: string): Promise<Directory[]> {
  const directories: Directory[] = [];
  const owner = (await statOrNone(path.join(mountpoint, markerName)))?.uid;
  for await (const { place, entry } of walk(mountpoint)) {
    if (!entry.isDirectory()) continue;
    const [stats, entries] = await Promise.all([statOrNone(place), readdir(place).catch(ignoreMissing)]);
    if (!stats || !entries) continue;
    const isLikeOwn = stats.uid === owner && DIRECTORY_MODES.includes(stats.mode & 0o7777n);
    directories.push({ mountpoint, path: place.slice(mountpoint.length), isEmpty: entries.length === 0, isLikeOwn });
  }
  return directories;
}

/** Reads all links below a directory. @returns targets by the link's path below the directory */
export async function readLinks(root: string): Promise<Map<string, string>> {
  const links = new Map<string, string>();
  for await (const { place, entry } of walk(root)) {
    const target = entry.isSymbolicLink() ? await readlink(place).catch(ignoreMissing) : undefined;
    if (target !== undefined) links.set(place.slice(root.length), target);
  }
  return links;
}

const statOrNone = (place: string) => lstat(place, { bigint: true }).catch(ignoreMissing);

function ignoreMissing(error: unknown): undefined {
  if (codeOf(error) !== 'ENOENT') throw error;
}
