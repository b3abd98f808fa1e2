/** A file that is to be archived, as it was found: read, known again, and removed once it is safe on tape. */
import { type BigIntStats, constants } from 'node:fs';
import { type FileHandle, lstat, open, readlink, realpath, unlink } from 'node:fs/promises';
import path from 'node:path';
import type { FileAttributes } from '../../operations/catalogue/attributes.js';
import { openPlain } from '../plain-file.js';

/** A regular file as the walk found it. */
export interface Source extends Partial<FileAttributes> {
  file: string;
  /** Where it was found, without links. */
  folder: string;
  /** The logical path that it gets. */
  path: string;
  /** Bytes. */
  size: bigint;
  /** What tells the file as it was found from a changed one: inode, and modification time in nanoseconds. */
  ino: bigint;
  mtimeNs: bigint;
}

/** Is it another file, or were other bytes written to it? Only as far as inode, size and time tell. */
export function isChanged(source: Source, { size, ino, mtimeNs }: BigIntStats): boolean {
  return size !== source.size || ino !== source.ino || mtimeNs !== source.mtimeNs;
}

/** Uses a source while it is open for reading. @throws TapeError POLICY when a link or a pipe has taken its place since */
export async function withSource<T>(source: Source, use: (handle: FileHandle) => Promise<T>): Promise<T> {
  const handle = await inFolder(source.folder, (at) =>
    openPlain(path.join(at, path.basename(source.file)), source.file),
  );
  try {
    return await use(handle);
  } finally {
    await handle.close();
  }
}

/** What was written to a source since it was read is on no tape: such a source stays. @throws Error then */
export async function removeSource(source: Source): Promise<void> {
  await inFolder(source.folder, async (at) => {
    const file = path.join(at, path.basename(source.file));
    if (isChanged(source, await lstat(file, { bigint: true }))) throw new Error('it changed since it was read');
    await unlink(file);
  });
}

const HAS_FD_PATHS = process.platform === 'linux';

/**
 * Uses a folder of the tree while it is open. Its owner may exchange it for a link at any moment, to a folder that only root may read,
 * or write in, for one: it is used only if it is where it was found.
 * @param folder without links
 * @param use is given a path to it that no later change of names or links can bend (on Linux)
 * @throws Error where it is not there any more
 */
export async function inFolder<T>(folder: string, use: (at: string) => Promise<T>): Promise<T> {
  const handle = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    const at = HAS_FD_PATHS ? `/proc/self/fd/${handle.fd}` : folder;
    const place = HAS_FD_PATHS ? await readlink(at) : await realpath(folder);
    if (place !== folder) throw new Error(`a link has taken the place of the folder ${folder}: it leads to ${place}`);
    return await use(at);
  } finally {
    await handle.close();
  }
}
