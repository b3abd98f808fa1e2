/** The checksums that S3 keeps with an object, and the same of the bytes that came. */
import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { CRC32C, CRC64NVME, Crc } from './crc.js';

/** Of bytes that come piece by piece; the digest is in base64, as S3 writes them. */
export interface Running {
  update(bytes: Uint8Array): void;
  digest(): string;
}

export interface Expected {
  algorithm: Algorithm;
  /** In base64. */
  value: string;
}

/** Where an object has several, the first of these: by the time that they take. */
const ALGORITHMS = ['CRC32', 'SHA256', 'SHA1', 'SHA512', 'CRC64NVME', 'CRC32C', 'MD5'] as const;
type Algorithm = (typeof ALGORITHMS)[number];

const create: Record<Algorithm, () => Running> = {
  CRC32: createCrc32,
  CRC32C: () => createCrc(new Crc(CRC32C)),
  CRC64NVME: () => createCrc(new Crc(CRC64NVME)),
  SHA1: () => createOf('sha1'),
  SHA256: () => createOf('sha256'),
  SHA512: () => createOf('sha512'),
  MD5: () => createOf('md5'),
};

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

export function startChecksum({ algorithm }: Expected): Running {
  return create[algorithm]();
}

function createOf(name: string): Running {
  const hash = createHash(name);
  return { update: (bytes) => void hash.update(bytes), digest: () => hash.digest('base64') };
}

function createCrc(crc: Crc): Running {
  return { update: (bytes) => crc.update(bytes), digest: () => crc.digest().toString('base64') };
}

function createCrc32(): Running {
  let value = 0;
  return {
    update: (bytes) => {
      value = crc32(bytes, value);
    },
    digest: () => {
      const digest = Buffer.alloc(4);
      digest.writeUInt32BE(value);
      return digest.toString('base64');
    },
  };
}
