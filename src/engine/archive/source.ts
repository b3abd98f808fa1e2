/** A file that is to be archived, as it was found: read, known again, and removed once it is safe on tape. */
import type { BigIntStats } from 'node:fs';
import { type FileHandle, lstat, unlink } from 'node:fs/promises';
import type { FileAttributes } from '../../operations/catalogue/attributes.js';
import { openPlain } from '../plain-file.js';

/** A regular file as the walk found it. */
export interface Source extends Partial<FileAttributes> {
  file: string;
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
  const handle = await openPlain(source.file);
  try {
    return await use(handle);
  } finally {
    await handle.close();
  }
}

/** What was written to a source since it was read is on no tape: such a source stays. @throws Error then */
export async function removeSource(source: Source): Promise<void> {
  if (isChanged(source, await lstat(source.file, { bigint: true }))) throw new Error('it changed since it was read');
  await unlink(source.file);
}
