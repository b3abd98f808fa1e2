/** What the archive does with the tape: a source is written, a copy is read back, and a source is compared with one. */
import type { KnownFile } from '../../operations/catalogue/files.js';
import type { Place } from '../../operations/catalogue/volumes.js';
import type { TapeBackend } from '../../tape/backend.js';
import { createChecksum } from '../checksum.js';
import { readChunks } from '../plain-file.js';
import { readChecked } from '../tape-copy.js';
import { isChanged, type Source, withSource } from './source.js';

/** A source of which there is a tape copy. */
export interface Written extends Source, Place {
  /** Of the bytes that were handed to the tape. */
  checksum: string;
}

/** @throws Error when the source changed while it was read; the place is taken all the same */
export async function writeSource(
  backend: TapeBackend,
  source: Source,
  place: Place,
  signal: AbortSignal,
): Promise<Written> {
  return await withSource(source, async (handle) => {
    const checksum = createChecksum(null);
    const bytes = async function* () {
      for await (const chunk of readChunks(handle)) {
        checksum.update(chunk);
        yield chunk;
      }
    };
    const size = await backend.write(place.volume, place.position, bytes(), signal);
    if (size !== source.size) throw new Error(`it changed from ${source.size} to ${size} bytes while it was read`);
    if (isChanged(source, await handle.stat({ bigint: true }))) throw new Error('it changed while it was read');
    return { ...source, ...place, checksum: checksum.digest() };
  });
}

/** Reads a tape copy back. @throws TapeError MEDIA when it has other bytes than were written */
export async function verifyWritten(backend: TapeBackend, file: Written, signal: AbortSignal): Promise<void> {
  const volume = await backend.mount(file.volume, 'archive', signal);
  try {
    await readChecked(volume, file, { signal, tell: () => 'reading it back from tape gave another checksum' });
  } finally {
    await volume.unmount();
  }
}

/** @throws Error when the tape has other bytes under the source's path, or it cannot be told */
export async function checkSame(source: Source, known: KnownFile, signal: AbortSignal): Promise<void> {
  await withSource(source, async (handle) => {
    if (known.checksum === null) throw new Error(`${source.path} is on tape already, and has no checksum to compare`);
    const checksum = createChecksum(known.checksum);
    for await (const chunk of readChunks(handle)) {
      signal.throwIfAborted();
      checksum.update(chunk);
    }
    if (checksum.digest() !== known.checksum) throw new Error(`${source.path} is on tape already, with other bytes`);
  });
}
