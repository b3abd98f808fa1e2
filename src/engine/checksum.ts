/** Checksums of tape copies, as the catalogue writes them: `sha256:…`, `adler32:…` or `md5:…`. */
import { createHash } from 'node:crypto';
import { openPlain, readChunks } from './plain-file.js';

/** A checksum that grows chunk by chunk; to be asked for its digest once, at the end. */
export interface Checksum {
  update(chunk: Uint8Array): void;
  /** With the algorithm's name before it. */
  digest(): string;
}

/** A checksum of the algorithm that `expected` names; SHA-256 when it names none. */
export function createChecksum(expected: string | null): Checksum {
  const algorithm = expected?.split(':')[0] ?? 'sha256';
  if (algorithm === 'adler32') return createAdler32();
  const hash = createHash(algorithm);
  return {
    update: (chunk) => {
      hash.update(chunk);
    },
    digest: () => `${algorithm}:${hash.digest('hex')}`,
  };
}

/** RFC 1950, section 9: two sums modulo 65,521, which fit 32 bits for 3,800 bytes (5,552 with unsigned numbers). */
function createAdler32(): Checksum {
  let a = 1;
  let b = 0;
  return {
    update: (chunk) => {
      for (let start = 0; start < chunk.length; start += 3800) {
        const end = Math.min(start + 3800, chunk.length);
        for (let i = start; i < end; i++) {
          a += chunk[i] as number;
          b += a;
        }
        a %= 65_521;
        b %= 65_521;
      }
    },
    digest: () => `adler32:${((b * 65_536 + a) >>> 0).toString(16).padStart(8, '0')}`,
  };
}

/**
 * The checksum of a plain file, of the algorithm that `like` names.
 * @param tick called with each chunk, to show progress
 * @throws TapeError POLICY for anything else, links included
 */
export async function checksumOf(file: string, like: string, tick: () => void = () => {}): Promise<string> {
  const checksum = createChecksum(like);
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
