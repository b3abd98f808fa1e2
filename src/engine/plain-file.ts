/** Opening what should be a plain file, without being held up or led away by what has taken its place. */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { codeOf, TapeError } from '../errors.js';

const CHUNK_BYTES = 1024 * 1024;

/**
 * Opens a file for reading, and looks then at what it is: a look before could be of something else. Opening a pipe waits
 * for somebody who writes, for ever as the case may be, and takes one of the few threads that all calls of files share.
 * @param name what it is called in errors, where its path is that of an open folder
 * @throws TapeError POLICY for anything but a plain file, links included
 */
export async function openPlain(file: string, name = file): Promise<FileHandle> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const handle = await open(file, flags).catch((error: unknown) => {
    const code = codeOf(error) ?? '';
    throw NOT_PLAIN.includes(code) ? notPlain(name) : error;
  });
  try {
    if (!(await handle.stat()).isFile()) throw notPlain(name);
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** A link; a socket, or a device that is not there. */
const NOT_PLAIN = ['ELOOP', 'ENXIO'];

function notPlain(file: string): TapeError {
  return new TapeError('POLICY', `${file} is not a plain file`);
}

/** The bytes from where the handle stands; a chunk belongs to the reader. */
export async function* readChunks(handle: FileHandle): AsyncGenerator<Uint8Array> {
  for (;;) {
    const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(CHUNK_BYTES));
    if (bytesRead === 0) return;
    yield buffer.subarray(0, bytesRead);
  }
}
