/** Reads small files that Tapegate writes on a restore disk. */
import { openPlain } from './checksum.js';

/** Maximum number of bytes to read from a file, enough for a marker with the longest path. */
const MOST_BYTES = 16 * 1024;

export async function readText(file: string): Promise<string> {
  const handle = await openPlain(file);
  try {
    const buffer = Buffer.alloc(MOST_BYTES); // limit the number of bytes, because any user might have written the file
    const { bytesRead } = await handle.read(buffer, 0, MOST_BYTES, 0);
    return buffer.toString('utf8', 0, bytesRead);
  } finally {
    await handle.close();
  }
}
