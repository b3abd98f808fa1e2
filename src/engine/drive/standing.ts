/**
 * What stands in the place of a file, and is known to nobody: somebody's own file, or a copy of which the database has
 * forgotten that Tapegate has put it there (a standby took over, a backup was put back). Neither is Tapegate's to remove; but
 * where it has the bytes that were just read, these are on disk, and the file needs no other copy.
 */
import path from 'node:path';
import { checksumOf } from '../checksum.js';
import { lookInto } from '../disk/copy.js';
import type { Folder } from '../disk/restore-area.js';

/** A copy that is whole, beside its place. */
export interface WholeCopy {
  folder: Folder;
  partial: string;
  /** Makes a call on its disk, and follows it; a long one shows progress. */
  onDisk: <T>(call: (tick: () => void) => Promise<T>) => Promise<T>;
}

/**
 * Is what stands there a plain file with the very bytes of the copy in hand, which whoever may read that one may read as well?
 * It is read to its end for that; nothing is written.
 * @param checksum of the copy in hand
 * @throws what the disk says, also where what stands there goes meanwhile
 */
export async function standsFor(
  { folder, partial, onDisk }: WholeCopy,
  name: string,
  checksum: string,
): Promise<boolean> {
  const [standing, copy] = [await onDisk(() => lookInto(folder, name)), await onDisk(() => lookInto(folder, partial))];
  if (!standing?.isFile() || !copy || standing.size !== copy.size) return false;
  const readers = copy.mode & 0o444n;
  const isAnybodys = (copy.mode & 0o004n) !== 0n;
  if ((standing.mode & readers) !== readers) return false;
  if (!isAnybodys && (standing.uid !== copy.uid || standing.gid !== copy.gid)) return false;
  const read = (file: string, like: string) => onDisk((tick) => checksumOf(path.join(folder.at, file), like, tick));
  if ((await read(name, checksum)) !== checksum) return false;
  // 32 bits tell what a tape has lost; here two files are told apart
  return !checksum.startsWith('adler32:') || (await read(name, 'sha256')) === (await read(partial, 'sha256'));
}
