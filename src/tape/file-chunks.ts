/** Files of a library that can be opened: read in chunks, with the errors of their file system in the classes of a tape. */
import fs, { constants } from 'node:fs';
import { promisify } from 'node:util';
import { BLOCK_BYTES, cutChunk, takeBlock } from '../blocks.js';
import { codeOf, type ErrorClass, messageOf, TapeError } from '../errors.js';

/** With plain descriptors a small file takes half the processor time that it takes with a FileHandle. */
const openFd = promisify(fs.open);
const readFd = promisify(fs.read) as (
  fd: number,
  ...how: [Buffer, number, number, null]
) => Promise<{ bytesRead: number }>;

/**
 * The bytes of a plain file, in order. A chunk belongs to the reader, who may stop early.
 * @param explain what is thrown instead of an error that reading met
 */
export async function* readFileChunks(
  file: string,
  signal: AbortSignal,
  explain: (error: unknown) => Promise<unknown>,
): AsyncGenerator<Uint8Array> {
  let fd: number | undefined;
  /** The next chunk is read while the one before it is checksummed and written. */
  let ahead: Promise<Buffer> | undefined;
  try {
    signal.throwIfAborted();
    // without blocking, since opening a pipe that nobody writes to would never end
    fd = await openFd(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const stats = fs.fstatSync(fd); // at hand, now that it is open
    if (!stats.isFile()) throw new TapeError('PERMANENT', `${file} is not a plain file`);
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
    await ahead?.catch(() => {}); // it uses the descriptor
    if (fd !== undefined) fs.closeSync(fd); // nothing was written that a close could wait for
  }
}

/** The next bytes, where there are some; told when they are awaited, which may be never. */
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
 * A TapeError for an error of the file system; any other error as it is.
 * @param missing what it means that there is no such file
 */
export function classifyFileError(error: unknown, where: string, missing: string): unknown {
  const code = codeOf(error);
  if (error instanceof TapeError || code === undefined || !/^E[A-Z]+$/.test(code)) return error;
  const what = code === 'ENOENT' ? missing : messageOf(error);
  return new TapeError(CLASSES[code] ?? 'TRANSIENT', `${where}: ${what}`, { cause: error });
}
