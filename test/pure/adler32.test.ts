/** Adler-32 checksums, compared with those of zlib. */
import { deflateSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { createChecksum } from '../../src/engine/checksum.js';

/** Returns pseudorandom bytes, the same each time. */
function someBytes(length: number): Buffer {
  let state = length + 1;
  return Buffer.from(
    Array.from({ length }, () => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
      return state >>> 24;
    }),
  );
}

/** A zlib stream ends with the checksum of its bytes. */
const expected = (bytes: Buffer) => `adler32:${deflateSync(bytes).subarray(-4).toString('hex')}`;

/** Computes the checksum of bytes in chunks of these lengths, in turn. */
function inChunks(bytes: Buffer, lengths: readonly number[]): string {
  const checksum = createChecksum('adler32:00000000');
  for (let start = 0, turn = 0; start < bytes.length; turn++) {
    const end = start + (lengths[turn % lengths.length] ?? bytes.length);
    checksum.update(bytes.subarray(start, end));
    start = end;
  }
  return checksum.digest();
}

// around the lengths of a vector, of a step, of a run without a modulo, and of what is passed on at once
const lengths = [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 5535, 5536, 5537, 5568, 16_383, 16_384, 16_385, 32_768, 100_003];

test.each(lengths)('the checksum of %i bytes is right, also for the largest and smallest bytes', (length) => {
  for (const bytes of [someBytes(length), Buffer.alloc(length, 255), Buffer.alloc(length)]) {
    expect(inChunks(bytes, [length || 1])).toBe(expected(bytes));
  }
});

test.each([[[1]], [[31, 33]], [[32, 5536, 7]], [[16_384, 1]], [[70_000]]])(
  'the checksum of chunks of %j bytes is that of the whole',
  (chunks) => {
    const bytes = someBytes(200_001);
    expect(inChunks(bytes, chunks)).toBe(expected(bytes));
  },
);

test('the checksums of files that are read at the same time are independent', () => {
  const [first, second] = [someBytes(50_000), someBytes(60_000)];
  const [one, other] = [createChecksum('adler32:00000000'), createChecksum('adler32:00000000')];
  for (let start = 0; start < 60_000; start += 1000) {
    one.update(first.subarray(start, start + 1000));
    other.update(second.subarray(start, start + 1000));
  }
  expect([one.digest(), other.digest()]).toEqual([expected(first), expected(second)]);
});

test('the checksum of a part of a larger buffer is right', () => {
  const bytes = someBytes(40_000);
  expect(inChunks(bytes.subarray(3, 39_999), [12_345])).toBe(expected(Buffer.from(bytes.subarray(3, 39_999))));
});
