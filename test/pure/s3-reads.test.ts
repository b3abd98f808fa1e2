/** How the library type `s3` reads objects: in parts, from one version, and compared with S3's checksum. */
import { createHash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { createCRC32, createCRC64, type IHasher } from 'hash-wasm';
import { expect } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import { ChangedError, NotReadyError, type ReadVersion, RetryLaterError } from '../../src/tape/staging.js';
import { expectFailure } from '../support/failure.js';
import { benchTest, keyIn, type S3Bench } from '../support/s3-bench.js';
import { S3Error } from '../support/s3-store.js';
import { errorOf, readStaged, staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-library.js';
import { waitFor } from '../support/wait.js';

const MB = 1024 * 1024;

/** Adds an object that needs no restore. */
function put(bench: S3Bench, size: number, checksum: (bytes: Buffer) => Record<string, string> = () => ({})) {
  const bytes = randomBytes(size);
  bench.server.store.put(keyIn('/a'), bytes, { storageClass: 'STANDARD', checksum: checksum(bytes) });
  return { file: staged('/a', size), bytes };
}

const crc32c = await createCRC32(0x82f63b78);
const crc64nvme = await createCRC64('9a6c9329ac4bc9b5');
const crcOf = (crc: IHasher, bytes: Buffer) =>
  Buffer.from(crc.init().update(bytes).digest('binary')).toString('base64');

benchTest('a large object is read in several parts, all of one version', async (bench) => {
  const { file, bytes } = put(bench, 5 * MB + 7);
  expect(await readStaged(bench.library, file)).toEqual(bytes);
  const gets = bench.server.asked.filter(({ operation }) => operation === 'GetObject');
  expect(gets.map(({ headers }) => headers.range).sort()).toEqual(
    [0, 1, 2, 3, 4, 5].map((part) => `bytes=${part * MB}-${(part + 1) * MB - 1}`),
  );
  const { etag } = bench.server.store.find(keyIn('/a'));
  expect(gets.map(({ headers }) => headers['if-match'])).toEqual([undefined, ...Array(5).fill(etag)]);
});

benchTest('at most readParts parts are read ahead', async (bench) => {
  const { file } = put(bench, 20 * MB);
  for (const readParts of [1, 4]) {
    bench.server.asked.length = 0;
    const reading = bench.open({ readParts }).read(file, 0n, quiet())[Symbol.asyncIterator]();
    await reading.next();
    const isRead = async () => bench.server.count('GetObject') >= readParts && bench.server.reads === 0;
    await waitFor('the parts', isRead);
    expect(bench.server.count('GetObject')).toBe(readParts);
    await reading.return?.();
  }
});

benchTest('an object with another size than the catalogue says is read as it is', async (bench) => {
  const { bytes } = put(bench, 3 * MB);
  for (const size of [0, 10, 2 * MB, 9 * MB]) {
    expect(await readStaged(bench.library, staged('/a', size))).toEqual(bytes);
  }
  expect(await readStaged(bench.library, staged('/a', 9 * MB), BigInt(4 * MB))).toEqual(Buffer.alloc(0));
});

const base64 = (hash: string) => (bytes: Buffer) => createHash(hash).update(bytes).digest('base64');
const crc32Of = (bytes: Buffer) => Buffer.from(crc32(bytes).toString(16).padStart(8, '0'), 'hex').toString('base64');
const checksums = {
  crc32: crc32Of,
  crc32c: (bytes: Buffer) => crcOf(crc32c, bytes),
  crc64nvme: (bytes: Buffer) => crcOf(crc64nvme, bytes),
  sha1: base64('sha1'),
  sha256: base64('sha256'),
};
const checksumHeaders = (name: string, value: string, type = 'FULL_OBJECT') => ({
  [`x-amz-checksum-${name}`]: value,
  'x-amz-checksum-type': type,
});

for (const [name, compute] of Object.entries(checksums)) {
  benchTest(`the ${name} of an object is compared with the bytes, in one part or several`, async (bench) => {
    const other = compute(Buffer.from('something else'));
    for (const size of [0, 1000, 3 * MB + 1]) {
      const right = put(bench, size, (bytes) => checksumHeaders(name, compute(bytes)));
      expect(await readStaged(bench.library, right.file)).toEqual(right.bytes);
      const wrong = put(bench, size, () => checksumHeaders(name, other));
      const says = `have ${name.toUpperCase()} ${compute(wrong.bytes)}, but S3 reports ${other}`;
      await expectFailure(readStaged(bench.library, wrong.file), TapeError, 'TRANSIENT', says);
    }
  });
}

benchTest('a checksum of parts is not compared, nor that of the whole with a part of the bytes', async (bench) => {
  const wrong = checksums.sha256(Buffer.from('something else'));
  const first = put(bench, 2 * MB, () => checksumHeaders('sha256', `${wrong}-3`, 'COMPOSITE'));
  expect(await readStaged(bench.library, first.file)).toEqual(first.bytes);
  const second = put(bench, 2 * MB, () => checksumHeaders('sha256', wrong));
  expect(await readStaged(bench.library, second.file, 1n)).toEqual(second.bytes.subarray(1));
});

/** Returns the bytes that a read yields before it fails, and the error. */
async function readUntilError(bench: S3Bench, size: number): Promise<{ bytes: Buffer; error: unknown }> {
  const chunks: Uint8Array[] = [];
  const reading = async () => {
    for await (const chunk of bench.library.read(staged('/a', size), 0n, quiet())) chunks.push(chunk);
  };
  const error = await errorOf(reading());
  return { bytes: Buffer.concat(chunks), error };
}

/** Rejects GET requests, beginning with request number `from`. The first request has number 1. */
function refuseGets(bench: S3Bench, from: number, error: () => S3Error | undefined): void {
  bench.server.onRequest = async ({ operation }) =>
    operation === 'GetObject' && bench.server.count('GetObject') >= from ? error() : undefined;
}

benchTest('a broken connection fails the library, and the read continues where it broke', async (bench) => {
  const { bytes } = put(bench, 3 * MB);
  bench.server.broken = { after: 100_000, how: 'cut' };
  const broken = await readUntilError(bench, 3 * MB);
  expect(broken.error).toBeInstanceOf(LibraryError);
  const rest = await readStaged(bench.library, staged('/a', 3 * MB), BigInt(broken.bytes.length));
  expect(Buffer.concat([broken.bytes, rest])).toEqual(bytes);
});

benchTest('a copy that expires during a read is not ready, after the bytes before that', async (bench) => {
  const { bytes } = put(bench, 8 * MB);
  refuseGets(bench, 3, () => new S3Error(403, 'InvalidObjectState', { StorageClass: 'GLACIER' }));
  const { bytes: read, error } = await readUntilError(bench, 8 * MB);
  expect(error).toBeInstanceOf(NotReadyError);
  expect(read).toEqual(bytes.subarray(0, 2 * MB));
});

benchTest('an object that is replaced during a read, or before it continues, fails as changed', async (bench) => {
  put(bench, 8 * MB);
  refuseGets(bench, 2, () => {
    if (bench.server.count('GetObject') === 2) put(bench, 8 * MB);
    return undefined;
  });
  const read = readStaged(bench.library, staged('/a', 8 * MB));
  await expectFailure(read, ChangedError, 'TRANSIENT', 'PreconditionFailed');
  const version: ReadVersion = {};
  const begin = (from: bigint) =>
    bench.library.read(staged('/a', 8 * MB), from, quiet(), version)[Symbol.asyncIterator]();
  for (const from of [0n, 1n]) {
    const reading = begin(from);
    expect((await reading.next()).done).toBe(false);
    await reading.return?.();
    expect(version.tag).toBe(bench.server.store.find(keyIn('/a')).etag);
  }
  put(bench, 8 * MB);
  await expectFailure(begin(1n).next(), ChangedError, 'TRANSIENT');
});

benchTest('an object that is replaced fails as changed even if the server ignores If-Match', async (bench) => {
  put(bench, 8 * MB);
  bench.server.onRequest = async ({ operation, headers }) => {
    delete headers['if-match'];
    if (operation === 'GetObject' && bench.server.count('GetObject') === 2) put(bench, 8 * MB);
    return undefined;
  };
  await expectFailure(readStaged(bench.library, staged('/a', 8 * MB)), ChangedError, 'TRANSIENT', 'was replaced');
  const reading = bench.library.read(staged('/a', 8 * MB), 1n, quiet(), { tag: '"older"' });
  await expectFailure(reading[Symbol.asyncIterator]().next(), ChangedError, 'TRANSIENT', 'was replaced');
});

benchTest('a read that continues fails if the server ignores its range', async (bench) => {
  put(bench, MB);
  bench.server.onRequest = async ({ headers }) => void delete headers.range;
  const read = readStaged(bench.library, staged('/a', MB), 9n);
  await expectFailure(read, LibraryError, 'TRANSIENT', 'S3 returned the range "" instead of');
});

benchTest('parts are not joined if S3 sends neither a tag nor a checksum', async (bench) => {
  for (const size of [MB, 3 * MB]) {
    const { bytes, file } = put(bench, size);
    Object.assign(bench.server.store.find(keyIn('/a')), { etag: '' });
    const read = readStaged(bench.library, file);
    if (size === MB) expect(await read).toEqual(bytes);
    else await expectFailure(read, TapeError, 'TRANSIENT', 'neither an ETag nor a checksum');
    expect(await readStaged(bench.library, { ...file, checksum: 'adler32:00000001' })).toEqual(bytes);
  }
});

benchTest('a refusal of S3 to a reader has its type and class', async (bench) => {
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

benchTest('a missing answer, or a body that stops, fails the library after timeoutSeconds', async (bench) => {
  const { file, bytes } = put(bench, 3 * MB);
  const library = bench.open({ timeoutSeconds: 1 });
  bench.server.broken = { after: 1000, how: 'stalled' };
  await expectFailure(readStaged(library, file), LibraryError, 'TRANSIENT');
  expect(await readStaged(library, file)).toEqual(bytes);
  bench.server.onRequest = async ({ operation, headers }) =>
    operation === 'GetObject' && headers.range !== `bytes=0-${MB - 1}` ? new Promise(() => {}) : undefined;
  await expectFailure(readStaged(library, file), LibraryError, 'TRANSIENT');
});
