import { expect, test } from 'vitest';
import { type HashName, startHash } from '../../src/core/running-hash.js';

const DIGITS = Buffer.from('123456789');

/** Check values of the checksums for the digits 123456789, from the definitions of the checksums. */
const hashes: [HashName, string][] = [
  ['adler32', '091e01de'],
  ['crc32', 'cbf43926'],
  ['crc32c', 'e3069283'],
  ['crc64nvme', 'ae8b14860a799888'],
  ['md5', '25f9e794323b453885f5181f1b624d0b'],
  ['sha1', 'f7c3bc1d808e04732adf679965ccc34ca7ae3441'],
  ['sha256', '15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225'],
];

test.each(hashes)(
  '%s of views of larger memory is as defined, and two of interleaved chunks do not mix',
  async (name, value) => {
    const larger = Buffer.concat([Buffer.from('x'), DIGITS, Buffer.from('y')]);
    const [one, other, whole] = [await startHash(name), await startHash(name), await startHash(name)];
    for (const [from, to] of [
      [1, 4],
      [4, 4],
      [4, 10],
    ]) {
      one.update(larger.subarray(from, to));
      other.update(Buffer.from('other'));
    }
    whole.update(DIGITS);
    expect([one, whole].map((hash) => hash.digest().toString('hex'))).toEqual([value, value]);
    expect(other.digest().toString('hex')).not.toBe(value);
  },
);
