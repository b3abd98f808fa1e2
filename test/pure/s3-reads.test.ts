import { createHash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { expect, test } from 'vitest';
import { TapeError } from '../../src/errors.js';
import { LibraryError } from '../../src/tape/backend.js';
import { CRC32C, CRC64NVME, Crc, type CrcForm } from '../../src/tape/s3/crc.js';
import { ChangedError, NotReadyError, type ReadVersion, RetryLaterError } from '../../src/tape/staging.js';
import { createS3Bench, keyIn, type S3Bench } from '../support/s3-bench.js';
import { S3Error } from '../support/s3-store.js';
import { errorOf, readStaged, staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-backend.js';
import { waitFor } from '../support/wait.js';

const MB = 1024 * 1024;

function benchTest(name: string, run: (bench: S3Bench) => Promise<void>): void {
  test(name, async () => {
    const bench = await createS3Bench();
    try {
      await run(bench);
    } finally {
      await bench.close();
    }
  });
}

/** Readable at once. */
function put(bench: S3Bench, size: number, checksum: (bytes: Buffer) => Record<string, string> = () => ({})) {
  const bytes = randomBytes(size);
  bench.server.store.put(keyIn('/a'), bytes, { storageClass: 'STANDARD', checksum: checksum(bytes) });
  return { file: staged('/a', size), bytes };
}

/** Bit by bit. */
function slowCrc({ bits, polynomial }: CrcForm, bytes: Uint8Array): Buffer {
  const ones = (1n << BigInt(bits)) - 1n;
  let register = ones;
  for (const byte of bytes) {
    register ^= BigInt(byte);
    for (let bit = 0; bit < 8; bit++) register = (register >> 1n) ^ (register & 1n ? polynomial : 0n);
  }
  return Buffer.from((register ^ ones).toString(16).padStart(bits / 4, '0'), 'hex');
}

function crcOf(form: CrcForm, ...pieces: Uint8Array[]): Buffer {
  const crc = new Crc(form);
  for (const piece of pieces) crc.update(piece);
  return crc.digest();
}

test('the checksums of S3 that Node.js does not have are those of their definitions', () => {
  const digits = Buffer.from('123456789');
  expect(crcOf(CRC64NVME, digits).toString('hex')).toBe('ae8b14860a799888');
  expect(crcOf(CRC32C, digits).toString('hex')).toBe('e3069283');
  const bytes = randomBytes(20_011);
  for (const form of [CRC64NVME, CRC32C]) {
    expect(crcOf(form)).toEqual(slowCrc(form, Buffer.alloc(0)));
    const pieces = [0, 1, 8, 15, 16, 17, 4096].map((start, index, starts) => bytes.subarray(start, starts[index + 1]));
    expect(crcOf(form, ...pieces)).toEqual(slowCrc(form, bytes));
  }
  const long = randomBytes(90_007); // more than a multiple of either spans
  for (const form of [CRC64NVME, CRC32C]) expect(crcOf(form, long)).toEqual(slowCrc(form, long));
  const large = randomBytes(3 * MB + 5);
  const pieces = [large.subarray(0, 5), large.subarray(5, 2 * MB), large.subarray(2 * MB)];
  expect(crcOf(CRC64NVME, large)).toEqual(crcOf(CRC64NVME, ...pieces));
});

test('checksums of several objects that come at the same time are each their own', () => {
  const objects = [randomBytes(300_000), randomBytes(200_001)];
  const sums = objects.map(() => new Crc(CRC64NVME));
  for (let at = 0; at < 300_000; at += 7001) {
    for (const [index, bytes] of objects.entries()) sums[index]?.update(bytes.subarray(at, at + 7001));
  }
  expect(sums.map((sum) => sum.digest())).toEqual(objects.map((bytes) => crcOf(CRC64NVME, bytes)));
});

benchTest('a large object is read in parts, several at once, of one and the same version of it', async (bench) => {
  const { file, bytes } = put(bench, 5 * MB + 7);
  expect((await readStaged(bench.library, file)).equals(bytes)).toBe(true);
  const gets = bench.server.asked.filter(({ operation }) => operation === 'GetObject');
  expect(gets.map(({ headers }) => headers.range).sort()).toEqual(
    [0, 1, 2, 3, 4, 5].map((part) => `bytes=${part * MB}-${(part + 1) * MB - 1}`),
  );
  const { etag } = bench.server.store.find(keyIn('/a'));
  expect(gets.map(({ headers }) => headers['if-match'])).toEqual([undefined, ...Array(5).fill(etag)]);
});

benchTest(
  'a reader that does not go on holds no more than its parts, and one at a time where that is set',
  async (bench) => {
    const { file } = put(bench, 20 * MB);
    for (const readParts of [1, 4]) {
      bench.server.asked.length = 0;
      const reading = bench.open({ readParts }).read(file, 0n, quiet())[Symbol.asyncIterator]();
      await reading.next();
      await waitFor(
        'the parts to be there',
        async () => bench.server.count('GetObject') >= readParts && bench.server.reads === 0,
      );
      expect(bench.server.count('GetObject')).toBe(readParts);
      await reading.return?.();
    }
  },
);

benchTest('an object that is larger or smaller than the catalogue says is read as it is', async (bench) => {
  const { bytes } = put(bench, 3 * MB);
  for (const size of [0, 10, 2 * MB, 9 * MB]) {
    const read = await readStaged(bench.library, staged('/a', size));
    expect([size, read.equals(bytes)]).toEqual([size, true]);
  }
  expect(await readStaged(bench.library, staged('/a', 9 * MB), BigInt(4 * MB))).toEqual(Buffer.alloc(0));
});

const base64 = (hash: string) => (bytes: Buffer) => createHash(hash).update(bytes).digest('base64');
const crc32Of = (bytes: Buffer) => Buffer.from(crc32(bytes).toString(16).padStart(8, '0'), 'hex').toString('base64');
const checksums: Record<string, (bytes: Buffer) => string> = {
  crc32: crc32Of,
  crc32c: (bytes) => crcOf(CRC32C, bytes).toString('base64'),
  crc64nvme: (bytes) => crcOf(CRC64NVME, bytes).toString('base64'),
  sha1: base64('sha1'),
  sha256: base64('sha256'),
};

for (const [name, compute] of Object.entries(checksums)) {
  benchTest(
    `the ${name} that S3 has of an object is compared with the bytes, in one piece or in parts`,
    async (bench) => {
      for (const size of [0, 1000, 3 * MB + 1]) {
        const right = put(bench, size, (bytes) => ({
          [`x-amz-checksum-${name}`]: compute(bytes),
          'x-amz-checksum-type': 'FULL_OBJECT',
        }));
        expect((await readStaged(bench.library, right.file)).equals(right.bytes)).toBe(true);
        const other = compute(Buffer.from('something else'));
        const wrong = put(bench, size, () => ({
          [`x-amz-checksum-${name}`]: other,
          'x-amz-checksum-type': 'FULL_OBJECT',
        }));
        const error = await errorOf(readStaged(bench.library, wrong.file));
        expect(error).toBeInstanceOf(TapeError);
        expect(error).toMatchObject({
          errorClass: 'TRANSIENT',
          message: expect.stringContaining(`${name.toUpperCase()} is ${compute(wrong.bytes)}, not ${other}`),
        });
      }
    },
  );
}

benchTest(
  'a checksum of parts, or of the whole where a read begins within, is compared with nothing',
  async (bench) => {
    const wrong = checksums.sha256?.(Buffer.from('something else'));
    const composite = { 'x-amz-checksum-sha256': `${wrong}-3`, 'x-amz-checksum-type': 'COMPOSITE' };
    const first = put(bench, 2 * MB, () => composite);
    expect((await readStaged(bench.library, first.file)).equals(first.bytes)).toBe(true);
    const second = put(bench, 2 * MB, () => ({
      'x-amz-checksum-sha256': wrong ?? '',
      'x-amz-checksum-type': 'FULL_OBJECT',
    }));
    expect((await readStaged(bench.library, second.file, 1n)).equals(second.bytes.subarray(1))).toBe(true);
  },
);

/** What a read gave before it failed, and what with. */
async function readUntilError(bench: S3Bench, size: number): Promise<{ bytes: Buffer; error: unknown }> {
  const chunks: Uint8Array[] = [];
  try {
    for await (const chunk of bench.library.read(staged('/a', size), 0n, quiet())) chunks.push(chunk);
    return { bytes: Buffer.concat(chunks), error: undefined };
  } catch (error) {
    return { bytes: Buffer.concat(chunks), error };
  }
}

/** Every GET from this one on, counted from 1. */
function refuseGets(bench: S3Bench, from: number, error: () => S3Error | undefined): void {
  bench.server.onRequest = async ({ operation }) =>
    operation === 'GetObject' && bench.server.count('GetObject') >= from ? error() : undefined;
}

benchTest('a connection that breaks is told of the library, and reading goes on where it broke off', async (bench) => {
  const { bytes } = put(bench, 3 * MB);
  bench.server.broken = { after: 100_000, how: 'cut' };
  const broken = await readUntilError(bench, 3 * MB);
  expect(broken.error).toBeInstanceOf(LibraryError);
  expect(broken.bytes.equals(bytes.subarray(0, broken.bytes.length))).toBe(true);
  const rest = await readStaged(bench.library, staged('/a', 3 * MB), BigInt(broken.bytes.length));
  expect(Buffer.concat([broken.bytes, rest]).equals(bytes)).toBe(true);
});

benchTest(
  'a copy that leaves in the midst of a read is not ready any more, and what came before it is given',
  async (bench) => {
    const { bytes } = put(bench, 8 * MB);
    refuseGets(bench, 3, () => new S3Error(403, 'InvalidObjectState', { StorageClass: 'GLACIER' }));
    const { bytes: read, error } = await readUntilError(bench, 8 * MB);
    expect(error).toBeInstanceOf(NotReadyError);
    expect(read.equals(bytes.subarray(0, 2 * MB))).toBe(true);
  },
);

benchTest(
  'an object that is exchanged in the midst of a read is told as that, and so is one before a read goes on',
  async (bench) => {
    put(bench, 8 * MB);
    refuseGets(bench, 2, () => {
      if (bench.server.count('GetObject') === 2) put(bench, 8 * MB);
      return undefined;
    });
    const { error } = await readUntilError(bench, 8 * MB);
    expect(error).toBeInstanceOf(ChangedError);
    expect(error).toMatchObject({ errorClass: 'TRANSIENT', message: expect.stringContaining('PreconditionFailed') });
    const version: ReadVersion = {};
    const begin = (from: bigint) =>
      bench.library.read(staged('/a', 8 * MB), from, quiet(), version)[Symbol.asyncIterator]();
    const reading = begin(0n);
    await reading.next();
    await reading.return?.();
    expect(version.tag).toBe(bench.server.store.find(keyIn('/a')).etag);
    const goingOn = begin(1n);
    expect((await goingOn.next()).done).toBe(false);
    await goingOn.return?.();
    put(bench, 8 * MB);
    expect(await errorOf(begin(1n).next())).toBeInstanceOf(ChangedError);
  },
);

benchTest('what S3 refuses a reader has its class', async (bench) => {
  put(bench, 100);
  const cases: [S3Error, object][] = [
    [new S3Error(403, 'AccessDenied'), { constructor: TapeError, errorClass: 'POLICY' }],
    [new S3Error(503, 'SlowDown', {}, { 'Retry-After': '9' }), { constructor: RetryLaterError, retryAfterSeconds: 9 }],
    [new S3Error(500, 'InternalError'), { constructor: LibraryError, errorClass: 'TRANSIENT' }],
    [new S3Error(403, 'ExpiredToken'), { constructor: LibraryError, errorClass: 'POLICY' }],
  ];
  for (const [refusal, expected] of cases) {
    refuseGets(bench, 1, () => refusal);
    const { error } = await readUntilError(bench, 100);
    expect(error).toMatchObject({ ...expected, message: expect.stringContaining(refusal.code) });
  }
});

benchTest(
  'an answer that does not come, or whose body does not go on, is not waited for beyond the limit',
  async (bench) => {
    const { bytes } = put(bench, 3 * MB);
    const library = bench.open({ timeoutSeconds: 1 });
    bench.server.broken = { after: 1000, how: 'stalled' };
    expect(await errorOf(readStaged(library, staged('/a', 3 * MB)))).toBeInstanceOf(LibraryError);
    expect((await readStaged(library, staged('/a', 3 * MB))).equals(bytes)).toBe(true);
    bench.server.onRequest = ({ operation, headers }) =>
      operation === 'GetObject' && headers.range !== `bytes=0-${MB - 1}`
        ? new Promise(() => {})
        : Promise.resolve(undefined);
    expect(await errorOf(readStaged(library, staged('/a', 3 * MB)))).toBeInstanceOf(LibraryError);
  },
);
