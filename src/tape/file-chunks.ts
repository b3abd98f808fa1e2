/** Reads a library's files in chunks, and maps file system errors to tape errors. */
import fs, { constants } from 'node:fs';
import { promisify } from 'node:util';
import { BLOCK_BYTES, cutChunk, takeBlock } from '../core/blocks.js';
import { codeOf, type ErrorClass, messageOf, TapeError } from '../core/errors.js';

/**
 * Opens a file as a raw file descriptor. Reading a small file through a FileHandle takes twice as much CPU time as
 * reading it through a descriptor.
 */
const openFd = promisify(fs.open);
const readFd = promisify(fs.read) as (
  fd: number,
  ...how: [Buffer, number, number, null]
) => Promise<{ bytesRead: number }>;

/** Yields the bytes of a regular file. @param explain converts a read error into the error to throw */
export async function* readFileChunks(
  file: string,
  signal: AbortSignal,
  explain: (error: unknown) => Promise<unknown>,
): AsyncGenerator<Uint8Array> {
  let fd: number | undefined;
  let ahead: Promise<Buffer> | undefined;
  try {
    signal.throwIfAborted();
    // use O_NONBLOCK, because `open` would otherwise wait until another process writes to a pipe
    fd = await openFd(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const stats = fs.fstatSync(fd); // `fstatSync` does not block, because the kernel caches the inode of an open file
    if (!stats.isFile()) throw new TapeError('PERMANENT', `${file} is not a regular file`);
    let left = stats.size;
    ahead = left > 0 ? readChunk(fd, left) : undefined;
    while (ahead) {
      const chunk: Buffer = await ahead;
      if (chunk.length === 0) return;
      left -= chunk.length;
      ahead = left > 0 ? readChunk(fd, left) : undefined;
      yield chunk;
      signal.throwIfAborted();
    }
  } catch (error) {
    throw signal.aborted ? signal.reason : await explain(error);
  } finally {
    // wait for a pending read, which still uses the file descriptor
    await ahead?.catch(() => {});
    // `closeSync` does not block, because this function has not written to the file
    if (fd !== undefined) fs.closeSync(fd);
  }
}

/** Starts to read the next chunk. If the read fails and the caller does not await the chunk, the error is ignored. */
function readChunk(fd: number, left: number): Promise<Buffer> {
  const block = takeBlock();
  const read = readFd(fd, block, 0, Math.min(left, BLOCK_BYTES), null);
  const chunk = read.then(({ bytesRead }) => cutChunk(block, 0, bytesRead));
  chunk.catch(() => {});
  return chunk;
}

const CLASSES: Record<string, ErrorClass> = {
  ENOENT: 'PERMANENT',
  EEXIST: 'PERMANENT',
  EISDIR: 'PERMANENT',
  ENOTDIR: 'PERMANENT',
  ELOOP: 'PERMANENT',
  ENXIO: 'PERMANENT',
  ENAMETOOLONG: 'PERMANENT',
  EACCES: 'POLICY',
  EPERM: 'POLICY',
  EROFS: 'POLICY',
  EIO: 'MEDIA',
  ENOSPC: 'SPACE',
  EDQUOT: 'SPACE',
};

/**
 * Converts a file system error to a TapeError, and returns any other error unchanged.
 * @param missing message for the error ENOENT
 */
export function classifyFileError(error: unknown, where: string, missing: string): unknown {
  const code = codeOf(error);
  if (error instanceof TapeError || code === undefined || !/^E[A-Z]+$/.test(code)) return error;
  const what = code === 'ENOENT' ? missing : messageOf(error);
  return new TapeError(CLASSES[code] ?? 'TRANSIENT', `${where}: ${what}`, { cause: error });
}
