import { expect, test } from 'vitest';
import { type HashName, startHash } from '../../src/core/running-hash.js';

const DIGITS = Buffer.from('123456789');

/** The check values that the definitions of the checksums give for these digits. */
const hashes: [HashName, string][] = [
  ['adler32', '091e01de'],
  ['crc32', 'cbf43926'],
  ['crc32c', 'e3069283'],
  ['crc64nvme', 'ae8b14860a799888'],
  ['md5', '25f9e794323b453885f5181f1b624d0b'],
  ['sha1', 'f7c3bc1d808e04732adf679965ccc34ca7ae3441'],
  ['sha256', '15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225'],
];

async function hash(name: HashName, ...chunks: Uint8Array[]): Promise<string> {
  const running = await startHash(name);
  for (const chunk of chunks) running.update(chunk);
  return running.digest().toString('hex');
}

test.each(hashes)(
  '%s of known bytes is as defined, also in chunks and in views of larger memory',
  async (name, value) => {
    const larger = Buffer.concat([Buffer.from('x'), DIGITS, Buffer.from('y')]);
    expect(await hash(name, DIGITS)).toBe(value);
    expect(await hash(name, larger.subarray(1, 4), larger.subarray(4, 4), larger.subarray(4, 10))).toBe(value);
  },
);

test.each(hashes)('two %s hashes of interleaved chunks do not mix', async (name, value) => {
  const [one, other] = [await startHash(name), await startHash(name)];
  for (const digit of DIGITS) {
    one.update(Buffer.from([digit]));
    other.update(Buffer.from('other'));
  }
  expect(one.digest().toString('hex')).toBe(value);
  expect(other.digest().toString('hex')).not.toBe(value);
});
