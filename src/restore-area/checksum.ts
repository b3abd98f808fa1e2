/**
 * Reads files and tape copies, and computes checksums in the catalogue's format: `sha256:…`, `adler32:…` or `md5:…`.
 */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { giveBack } from '../core/blocks.js';
import { codeOf, TapeError } from '../core/errors.js';
import { startHash } from '../core/running-hash.js';
import type { FileOnVolume, MountedVolume } from '../tape/drive-library.js';

interface Checksum {
  update(chunk: Uint8Array): void;
  /** Returns the checksum, prefixed with its algorithm. Can be called only once. */
  digest(): string;
}

const algorithms = ['sha256', 'adler32', 'md5'] as const;

/** Starts a checksum with the same algorithm as `expected`, or with SHA-256 if `expected` is null. */
export async function startChecksum(expected: string | null): Promise<Checksum> {
  const name = expected?.split(':')[0] ?? 'sha256';
  const algorithm = algorithms.find((each) => each === name);
  if (!algorithm) throw new Error(`unknown checksum algorithm: ${name}`);
  const hash = await startHash(algorithm);
  return { update: hash.update, digest: () => `${algorithm}:${hash.digest().toString('hex')}` };
}

export interface Sums {
  checksum: string;
  /** Adler-32 as 8 hex digits; null if not requested, or if `checksum` is already an Adler-32. */
  adler32: string | null;
}

/** Like `startChecksum`, but also computes an Adler-32 of the same bytes if requested. */
export async function startSums(
  expected: string | null,
  { wantsAdler32 }: { wantsAdler32: boolean },
): Promise<{ update: Checksum['update']; digest: () => Sums }> {
  const checksum = await startChecksum(expected);
  const adler32 = wantsAdler32 && !expected?.startsWith('adler32:') ? await startHash('adler32') : undefined;
  return {
    update: (chunk) => {
      checksum.update(chunk);
      adler32?.update(chunk);
    },
    digest: () => ({ checksum: checksum.digest(), adler32: adler32?.digest().toString('hex') ?? null }),
  };
}

/**
 * Returns a regular file's checksum, computed with the same algorithm as `like`.
 * @param tick called for each chunk to report progress
 * @throws TapeError POLICY if the file is a link or not a regular file
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
 * Opens a file and then checks its type, because a check before opening could be outdated. Opens without blocking,
 * because opening a pipe would otherwise wait for a writer.
 * @param name path to show in errors if `file` is a path through a descriptor
 * @throws TapeError POLICY if the file is a link or not a regular file
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

/** Error codes of `open` for a link (ELOOP), and for a socket or missing device (ENXIO). */
const NOT_PLAIN = ['ELOOP', 'ENXIO'];

function notPlain(file: string): TapeError {
  return new TapeError('POLICY', `${file} is not a regular file`);
}

export async function* readChunks(handle: FileHandle): AsyncGenerator<Uint8Array> {
  for (;;) {
    const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(CHUNK_BYTES));
    if (bytesRead === 0) return;
    yield buffer.subarray(0, bytesRead);
  }
}

interface ExpectedCopy extends FileOnVolume {
  checksum: string | null;
}

/**
 * A difference between a tape copy and the catalogue. If the tape copy is longer than expected, `found` can be `more`,
 * because Tapegate does not read the copy to its end.
 */
export interface Mismatch {
  kind: 'size' | 'checksum';
  found: string;
  expected: string;
}

/**
 * Reads a file from a mounted volume, and compares its size and checksum with the catalogue.
 * @param how.sink receives the chunks, and can keep or change them. The next chunk is read after the promise that the
 * sink returned resolves. The sink never receives more bytes than expected
 * @param how.describe returns the error text that users see if the copy differs
 * @returns the checksum, computed with the expected algorithm, and the Adler-32 if requested
 * @throws TapeError MEDIA if the size or checksum differs; errors that the library or the sink throws; the signal's
 * reason if `how.signal` aborts
 */
export async function readChecked(
  volume: MountedVolume,
  expected: ExpectedCopy,
  how: {
    signal: AbortSignal;
    sink?: (chunk: Uint8Array) => Promise<void>;
    describe: (mismatch: Mismatch) => string;
    wantsAdler32?: boolean;
  },
): Promise<Sums> {
  const { signal, sink, describe: tell, wantsAdler32 = false } = how;
  const sums = await startSums(expected.checksum, { wantsAdler32 });
  let bytes = 0n;
  for await (const chunk of volume.read(expected, signal)) {
    signal.throwIfAborted();
    bytes += BigInt(chunk.length);
    if (sink && bytes > expected.size) break;
    sums.update(chunk); // hash this chunk now, while the sink still writes the previous chunks to disk
    if (sink) await sink(chunk);
    else giveBack(chunk);
  }
  if (bytes !== expected.size) {
    const found = sink && bytes > expected.size ? 'more' : `${bytes}`;
    throw new TapeError('MEDIA', tell({ kind: 'size', found, expected: `${expected.size}` }));
  }
  const read = sums.digest();
  if (expected.checksum === null || read.checksum === expected.checksum) return read;
  throw new TapeError('MEDIA', tell({ kind: 'checksum', found: read.checksum, expected: expected.checksum }));
}
