/** Checksums of tape copies, as the catalogue writes them: `sha256:…`, `adler32:…` or `md5:…`. */
import { createHash } from 'node:crypto';
import { addAdler32, EMPTY_ADLER32 } from '../adler32.js';
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

function createAdler32(): Checksum {
  let sum = EMPTY_ADLER32;
  return {
    update: (chunk) => {
      sum = addAdler32(sum, chunk);
    },
    digest: () => `adler32:${sum.toString(16).padStart(8, '0')}`,
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
