/** What the archive does with the tape: a source is written, a copy is read back, and a source is compared with one. */
import type { KnownFile } from '../../operations/catalogue/files.js';
import type { Place } from '../../operations/catalogue/volumes.js';
import type { WritableBackend } from '../../tape/backend.js';
import { startChecksum } from '../checksum.js';
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
  backend: WritableBackend,
  source: Source,
  place: Place,
  signal: AbortSignal,
): Promise<Written> {
  return await withSource(source, async (handle) => {
    const checksum = await startChecksum(null);
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

/**
 * Reads tape copies back, volume by volume, each volume mounted once and read in order of its positions.
 * @param fail is told of each copy that has other bytes than were written, or that cannot be read
 * @returns the files whose copies are right
 * @throws the reason of the signal
 */
export async function readBack(
  backend: WritableBackend,
  files: readonly Written[],
  how: { signal: AbortSignal; fail: (file: Written, error: unknown) => void },
): Promise<Written[]> {
  const byVolume = new Map<string, Written[]>();
  for (const file of files) byVolume.set(file.volume, [...(byVolume.get(file.volume) ?? []), file]);
  const right: Written[] = [];
  for (const [name, group] of byVolume) {
    const bad = new Set<Written>();
    const fail = (file: Written, error: unknown) => {
      how.signal.throwIfAborted();
      if (!bad.has(file)) how.fail(file, error);
      bad.add(file);
    };
    try {
      await readVolumeBack(backend, { name, files: group }, { ...how, fail });
    } catch (error) {
      for (const file of group) fail(file, error);
    }
    right.push(...group.filter((file) => !bad.has(file)));
  }
  return right;
}

async function readVolumeBack(
  backend: WritableBackend,
  { name, files }: { name: string; files: readonly Written[] },
  { signal, fail }: { signal: AbortSignal; fail: (file: Written, error: unknown) => void },
): Promise<void> {
  const tell = () => 'reading it back from tape gave another checksum';
  const volume = await backend.mount(name, 'archive', signal);
  try {
    for (const file of [...files].sort((a, b) => (a.position < b.position ? -1 : 1))) {
      await readChecked(volume, file, { signal, tell }).catch((error: unknown) => fail(file, error));
    }
  } finally {
    await volume.unmount();
  }
}

/** What a source fails for that has changed since it was archived. */
export const OTHER_BYTES = 'is on tape already, with other bytes';

/**
 * @returns the checksum of the source, with which its tape copy can be read back
 * @throws Error when the catalogue has other bytes under the source's path, or it cannot be told
 */
export async function checkSame(source: Source, known: KnownFile, signal: AbortSignal): Promise<string> {
  const other = `${source.path} ${OTHER_BYTES}`;
  if (known.checksum === null) throw new Error(`${source.path} is on tape already, and has no checksum to compare`);
  if (source.size !== known.size) throw new Error(other);
  const sums = { known: await startChecksum(known.checksum), own: await startChecksum(null) };
  await withSource(source, async (handle) => {
    for await (const chunk of readChunks(handle)) {
      signal.throwIfAborted();
      sums.known.update(chunk);
      sums.own.update(chunk);
    }
  });
  if (sums.known.digest() !== known.checksum) throw new Error(other);
  return sums.own.digest();
}
