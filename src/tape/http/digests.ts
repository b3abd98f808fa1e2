/** What servers say that a file's bytes are: Repr-Digest (RFC 9530) and Digest (RFC 3230), compared with what came. */
import type { IncomingHttpHeaders } from 'node:http';

/** To be asked for: Adler-32 is what storage of the field has at hand; another one it may have to work out. */
export const WANTED_DIGESTS = {
  'want-repr-digest': 'adler=10, sha-256=5, md5=1',
  'want-digest': 'adler32;q=1, sha-256;q=0.5, md5;q=0.1',
};

/** The first that is told is compared: it is the cheapest, and what came is held against the catalogue's besides. */
const ALGORITHMS = ['adler32', 'sha256', 'md5'] as const;
type Algorithm = (typeof ALGORITHMS)[number];

const BYTES: Record<Algorithm, number> = { sha256: 32, adler32: 4, md5: 16 };

const NAMES: Record<string, Algorithm> = {
  adler: 'adler32',
  adler32: 'adler32',
  md5: 'md5',
  'sha-256': 'sha256',
  sha256: 'sha256',
};

export interface Digest {
  algorithm: Algorithm;
  /** In hexadecimal digits, lower case. */
  value: string;
}

/** @returns the digest to compare with; undefined where the server tells none that is known */
export function findDigest(headers: IncomingHttpHeaders): Digest | undefined {
  const found = new Map<Algorithm, string>();
  for (const name of ['repr-digest', 'digest']) {
    for (const item of String(headers[name] ?? '').split(',')) {
      const [, key = '', text = ''] = /^\s*([\w-]+)=(.*?)\s*$/.exec(item) ?? [];
      const algorithm = NAMES[key.toLowerCase()];
      const value = algorithm && readValue(text, BYTES[algorithm]);
      if (algorithm && value !== undefined && !found.has(algorithm)) found.set(algorithm, value);
    }
  }
  const algorithm = ALGORITHMS.find((each) => found.has(each));
  return algorithm && { algorithm, value: found.get(algorithm) ?? '' };
}

/** `:base64:`, base64, or hexadecimal digits, some of which servers leave out where they begin with noughts. */
function readValue(text: string, bytes: number): string | undefined {
  const [, inner = text] = /^:(.*):$/.exec(text) ?? [];
  const isShort = bytes === BYTES.adler32 && /^[\da-f]{1,8}$/i.test(inner);
  if (isShort || (inner.length === 2 * bytes && /^[\da-f]+$/i.test(inner))) {
    return inner.toLowerCase().padStart(2 * bytes, '0');
  }
  const value = Buffer.from(inner, 'base64');
  return value.length === bytes ? value.toString('hex') : undefined;
}
