/** Checksums of tape copies in the form of the catalogue: `sha256:…`, `adler32:…` or `md5:…`. */
import { startHash } from '../core/running-hash.js';
import { openPlain, readChunks } from './plain-file.js';

/** The checksum of bytes that arrive in chunks. */
export interface Checksum {
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
