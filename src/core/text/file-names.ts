/** Reads names of files on disk. A file name that is not UTF-8 cannot become a catalogue path. */
import { isUtf8 } from 'node:buffer';
import type { Dirent } from 'node:fs';
import { opendir } from 'node:fs/promises';

export interface NamedEntry {
  /**
   * Name of the directory entry. If the name is not UTF-8, bytes other than printable ASCII are escaped, for example as
   * \xE9.
   */
  name: string;
  isText: boolean;
  entry: Dirent<Buffer>;
}

/** Yields a directory's entries without loading the whole directory into memory. */
export async function* readEntries(directory: string): AsyncGenerator<NamedEntry> {
  // the casts are necessary, because the type definitions of Node.js lack the encoding `buffer`
  const open = (await opendir(directory, { encoding: 'buffer' as BufferEncoding })) as unknown as AsyncIterable<
    Dirent<Buffer>
  >;
  for await (const entry of open) {
    const isText = isUtf8(entry.name);
    yield { name: isText ? entry.name.toString('utf8') : escapeBytes(entry.name), isText, entry };
  }
}

function escapeBytes(name: Buffer): string {
  return [...name]
    .map((byte) =>
      byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, '0')}`,
    )
    .join('');
}

/** Describes, for the end of an error message, why a file's bytes are not UTF-8. */
export function describeEncoding(bytes: Uint8Array): string {
  return isUtf16(bytes) ? 'is UTF-16, not UTF-8: convert it with iconv -f UTF-16 -t UTF-8' : 'is not valid UTF-8';
}

export const isUtf16 = (bytes: Uint8Array): boolean =>
  (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
