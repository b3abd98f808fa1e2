/** The checksums that S3 keeps of an object. */
import type { HashName } from '../../core/running-hash.js';

export interface Expected {
  algorithm: Algorithm;
  /** In base64. */
  value: string;
}

/** Where an object has several, the first of these: by the time that they take. */
const ALGORITHMS = ['CRC32', 'SHA256', 'SHA1', 'SHA512', 'CRC64NVME', 'CRC32C', 'MD5'] as const;
type Algorithm = (typeof ALGORITHMS)[number];

export const hashOf = ({ algorithm }: Expected): HashName => algorithm.toLowerCase() as Lowercase<Algorithm>;

/** @returns undefined where there is none of the object as a whole: one of its parts' checksums cannot be compared */
export function checksumOf(answer: object): Expected | undefined {
  const members = answer as Record<string, unknown>;
  if (members.ChecksumType === 'COMPOSITE') return undefined;
  for (const algorithm of ALGORITHMS) {
    const value = members[`Checksum${algorithm}`];
    if (typeof value === 'string' && /^[A-Za-z0-9+/]+=*$/.test(value)) return { algorithm, value }; // not `…-7`, of seven parts
  }
  return undefined;
}
