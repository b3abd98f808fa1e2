/** Tape copies, read once and compared with what the catalogue says of them. */
import { giveBack } from '../blocks.js';
import { TapeError } from '../errors.js';
import type { FileOnVolume, MountedVolume } from '../tape/backend.js';
import { startChecksum } from './checksum.js';

/** What a tape copy should be. */
export interface ExpectedCopy extends FileOnVolume {
  /** Null where it is not known: any checksum is right then. */
  checksum: string | null;
}

/** How a tape copy differs from what it should be; `found` of a size may be `more`. */
export interface Mismatch {
  kind: 'size' | 'checksum';
  found: string;
  expected: string;
}

/**
 * Reads one file of a mounted volume.
 * @param how.sink is given the chunks, for good, and may wait, which holds up the reading; it never gets more bytes than expected.
 *   Without one a copy that is too long is read to its end, so that its size can be told
 * @param how.tell makes the text of the error of a copy that differs; users see it
 * @returns the checksum, of the algorithm expected
 * @throws TapeError MEDIA when the copy differs, whatever the back end or the sink throws, the reason of the signal
 */
export async function readChecked(
  volume: MountedVolume,
  expected: ExpectedCopy,
  how: {
    signal: AbortSignal;
    sink?: (chunk: Uint8Array) => Promise<void>;
    tell: (mismatch: Mismatch) => string;
  },
): Promise<string> {
  const { signal, sink, tell } = how;
  const checksum = await startChecksum(expected.checksum);
  let bytes = 0n;
  for await (const chunk of volume.read(expected, signal)) {
    signal.throwIfAborted();
    bytes += BigInt(chunk.length);
    if (sink && bytes > expected.size) break;
    checksum.update(chunk); // while the sink's disk writes those before
    if (sink) await sink(chunk);
    else giveBack(chunk);
  }
  if (bytes !== expected.size) {
    const found = sink && bytes > expected.size ? 'more' : `${bytes}`;
    throw new TapeError('MEDIA', tell({ kind: 'size', found, expected: `${expected.size}` }));
  }
  const digest = checksum.digest();
  if (expected.checksum === null || digest === expected.checksum) return digest;
  throw new TapeError('MEDIA', tell({ kind: 'checksum', found: digest, expected: expected.checksum }));
}
