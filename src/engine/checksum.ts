/** Reads plain files and tape copies, with checksums in the form of the catalogue: `sha256:…`, `adler32:…` or `md5:…`. */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { giveBack } from '../blocks.js';
import { startHash } from '../core/running-hash.js';
import { codeOf, TapeError } from '../errors.js';
import type { FileOnVolume, MountedVolume } from '../tape/backend.js';

/** The checksum of bytes that arrive in chunks. */
interface Checksum {
  update(chunk: Uint8Array): void;
  /** Returns the checksum with its algorithm. Call it once, at the end. */
  digest(): string;
}

const algorithms = ['sha256', 'adler32', 'md5'] as const;

/** Starts a checksum of the algorithm of `expected`; SHA-256 if that is null. */
export async function startChecksum(expected: string | null): Promise<Checksum> {
  const name = expected?.split(':')[0] ?? 'sha256';
  const algorithm = algorithms.find((each) => each === name);
  if (!algorithm) throw new Error(`unknown checksum algorithm: ${name}`);
  const hash = await startHash(algorithm);
  return { update: hash.update, digest: () => `${algorithm}:${hash.digest().toString('hex')}` };
}

/**
 * Returns the checksum of a plain file, of the algorithm of `like`.
 * @param tick called with each chunk, to show progress
 * @throws TapeError POLICY for anything else, links included
 */
export async function checksumOf(file: string, like: string, tick: () => void = () => {}): Promise<string> {
  const checksum = await startChecksum(like);
  const handle = await openPlain(file);
  try {
    for await (const chunk of readChunks(handle)) {
      checksum.update(chunk);
      tick();
    }
  } finally {
    await handle.close();
  }
  return checksum.digest();
}

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

/** What a tape copy should be. */
interface ExpectedCopy extends FileOnVolume {
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
