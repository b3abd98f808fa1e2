/** How the library type `s3` starts restores and reports their state, on a simulated S3 server. */
import { expect } from 'vitest';
import type { TapeError } from '../../src/core/errors.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import { RetryLaterError } from '../../src/tape/staging.js';
import { expectFailure } from '../support/failure.js';
import { addSecret } from '../support/library-dir.js';
import { benchTest, createS3Bench, keyIn, type S3Bench } from '../support/s3-bench.js';
import type { S3Request } from '../support/s3-server.js';
import { S3Error } from '../support/s3-store.js';
import { ask, errorOf, makeReady, putFiles, readStaged, staged } from '../support/staging-bench.js';
import { describeStagingLibrary } from '../support/staging-library.js';
import { quiet } from '../support/tape-library.js';

const can = { release: false, ids: false, until: true };
const price = { currency: 'EUR', pricePerGb: 0.01, pricePerThousandRequests: 0.05, pricePerGbMonth: 0.023 };

describeStagingLibrary('s3', () => createS3Bench(price), { ...can, readsAsAnother: true });

const A = staged('/a', 1);
const ARCHIVED = { storageClass: 'INTELLIGENT_TIERING', archiveStatus: 'ARCHIVE_ACCESS' } as const;

/** Rejects all requests for an operation. */
function refuse(bench: S3Bench, operation: S3Request['operation'], error: S3Error): void {
  bench.server.onRequest = async (request) => (request.operation === operation ? error : undefined);
}

async function stageOne(bench: S3Bench, storageClass: string, settings: object = {}) {
  bench.server.store.put(keyIn('/a'), Buffer.from('a'), { storageClass });
  const { known } = await bench.open(settings).stage([A], quiet());
  return known[0] as { state: string; error?: TapeError; until?: Date | null } | undefined;
}

const failed = (path: string, errorClass: string) => ({
  path,
  state: 'failed',
  error: expect.objectContaining({ errorClass }),
});

benchTest('a second request joins a restore that is in progress', async (bench) => {
  const files = await putFiles(bench, ['/a']);
  await ask(bench.library, files);
  expect(await bench.library.stage(files, quiet())).toEqual({ id: null, known: [] });
  expect(bench.server.count('RestoreObject')).toBe(2);
});

benchTest('a request for a restored copy extends its lifetime and returns the new end', async (bench) => {
  const files = await putFiles(bench, ['/a']);
  const { states } = await makeReady(bench, files);
  const { known } = await bench.open({ days: 30 }).stage(files, quiet());
  const [before, after] = [states.get('/a'), known[0]].map((state) => (state as { until: Date }).until);
  expect(known[0]?.state).toBe('ready');
  expect(Number(after) - Number(before)).toBeGreaterThanOrEqual(27 * 24 * 3600 * 1000);
  expect(bench.server.store.find(keyIn('/a')).restore?.until).toEqual(after);
});

benchTest('an object in a class without restores is ready for good, without a restore request', async (bench) => {
  for (const storageClass of ['STANDARD', 'STANDARD_IA', 'GLACIER_IR', 'INTELLIGENT_TIERING']) {
    expect(await stageOne(bench, storageClass)).toEqual({ path: '/a', state: 'ready', until: null });
  }
  expect(bench.server.count('RestoreObject')).toBe(0);
  expect(await bench.library.release({ id: null, files: [A] }, quiet())).toEqual([]);
});

const demandOf = (files: (typeof A)[]) => ({ id: null, files });
const LETTER = Buffer.from('a');

for (const [what, storageClass, header] of [
  ['of another name', 'ACCELERATED', 'dated'],
  ['that S3 calls STANDARD', 'STANDARD', 'dated'],
  ['of another name, on a system that reports no dates', 'ACCELERATED', 'dateless'],
  ['of another name, on a system that reports no restores', 'ACCELERATED', 'absent'],
] as const) {
  benchTest(`an object in an archive class ${what} is restored and read`, async (bench) => {
    const { store } = bench.server;
    store.restoreHeader = header;
    store.put(keyIn('/a'), LETTER, { storageClass, isArchived: true });
    expect(await bench.library.stage([A], quiet())).toEqual({ id: null, known: [] });
    const states = await bench.library.poll(demandOf([A]), quiet());
    expect(states).toEqual([{ path: '/a', state: header === 'absent' ? 'forgotten' : 'waiting' }]);
    expect(await bench.library.stage([A], quiet())).toEqual({ id: null, known: [] });
    await bench.arrive(['/a']);
    const until = header === 'dated' ? store.find(keyIn('/a')).restore?.until : null;
    expect(await bench.library.poll(demandOf([A]), quiet())).toEqual([{ path: '/a', state: 'ready', until }]);
    expect(await readStaged(bench.library, A)).toEqual(LETTER);
    const kept = header === 'absent' ? [] : [{ path: '/a', until }];
    expect(await bench.library.release(demandOf([A]), quiet())).toEqual(kept);
  });
}

benchTest(
  'an archived class without a report of its restores is ready when S3 says that it can be read',
  async (bench) => {
    const { store } = bench.server;
    store.restoreHeader = 'absent';
    await stageOne(bench, 'GLACIER');
    await bench.arrive(['/a']);
    const { known } = await bench.library.stage([A], quiet());
    expect(known).toEqual([{ path: '/a', state: 'ready', until: null }]);
  },
);

benchTest('a restore without a date whose copy has expired is requested again', async (bench) => {
  const { store } = bench.server;
  store.restoreHeader = 'dateless';
  await stageOne(bench, 'GLACIER');
  await bench.arrive(['/a']);
  Object.assign(store.find(keyIn('/a')).restore ?? {}, { until: new Date(0) });
  expect(await bench.library.poll(demandOf([A]), quiet())).toEqual([{ path: '/a', state: 'forgotten' }]);
  expect(await bench.library.stage([A], quiet())).toEqual({ id: null, known: [] });
  expect(bench.server.count('RestoreObject')).toBe(2);
});

benchTest('objects of the given archive classes are restored without an attempt to read them', async (bench) => {
  bench.server.store.put(keyIn('/a'), LETTER, { storageClass: 'ACCELERATED', isArchived: true });
  await bench.open({ archiveClasses: ['ACCELERATED'] }).stage([A], quiet());
  expect([bench.server.count('RestoreObject'), bench.server.count('GetObject')]).toEqual([1, 0]);
});

benchTest('an attempt to read that the whole library refuses fails the library', async (bench) => {
  bench.server.store.put(keyIn('/a'), LETTER, { storageClass: 'ACCELERATED', isArchived: true });
  refuse(bench, 'GetObject', new S3Error(503, 'SlowDown'));
  await expectFailure(bench.library.stage([A], quiet()), RetryLaterError, 'TRANSIENT');
});

benchTest('an archived object of Intelligent-Tiering is restored for good', async (bench) => {
  bench.server.store.put(keyIn('/a'), Buffer.from('a'), ARCHIVED);
  const demand = { id: null, files: [A] };
  const poll = () => bench.library.poll(demand, quiet());
  expect(await poll()).toEqual([{ path: '/a', state: 'forgotten' }]);
  expect(await bench.library.stage([A], quiet())).toEqual({ id: null, known: [] });
  expect(await poll()).toEqual([{ path: '/a', state: 'waiting' }]);
  await bench.arrive(['/a']);
  expect(await poll()).toEqual([{ path: '/a', state: 'ready', until: null }]);
  expect(await bench.library.release(demand, quiet())).toEqual([]);
});

benchTest('if Expedited has no capacity, the next tier is used, or the file fails as TRANSIENT', async (bench) => {
  const { server } = bench;
  server.onRequest = async ({ operation }) =>
    operation === 'RestoreObject' && server.count('RestoreObject') !== 2
      ? new S3Error(503, 'GlacierExpeditedRetrievalNotAvailable')
      : undefined;
  expect(await stageOne(bench, 'GLACIER', { tier: 'Expedited', fallbackTiers: ['Standard', 'Bulk'] })).toBeUndefined();
  expect(server.store.find(keyIn('/a')).restore?.tier).toBe('Standard');
  const message = expect.stringContaining('GlacierExpeditedRetrievalNotAvailable');
  const known = await stageOne(bench, 'GLACIER', { tier: 'Expedited' });
  expect(known).toMatchObject({ state: 'failed', error: { errorClass: 'TRANSIENT', message } });
  expect(server.count('RestoreObject')).toBe(3);
});

benchTest('a class without Expedited is restored by the next tier, or the file fails as POLICY', async (bench) => {
  expect(await stageOne(bench, 'DEEP_ARCHIVE', { tier: 'Expedited', fallbackTiers: ['Bulk'] })).toBeUndefined();
  expect(bench.server.store.find(keyIn('/a')).restore?.tier).toBe('Bulk');
  const refused = await stageOne(bench, 'DEEP_ARCHIVE', { tier: 'Expedited' });
  expect(refused).toMatchObject({ state: 'failed', error: { errorClass: 'POLICY' } });
  expect(bench.server.count('RestoreObject')).toBe(1);
});

benchTest('a faster tier speeds up a restore in progress', async (bench) => {
  await stageOne(bench, 'GLACIER', { tier: 'Bulk' });
  await bench.open({ tier: 'Standard' }).stage([A], quiet());
  expect(bench.server.store.find(keyIn('/a')).restore?.tier).toBe('Standard');
});

for (const [error, errorClass] of [
  [new S3Error(403, 'AccessDenied'), 'POLICY'],
  [new S3Error(404, 'NoSuchKey'), 'PERMANENT'],
  [new S3Error(500, 'InternalError'), 'TRANSIENT'],
  [new S3Error(400, 'InvalidArgument'), 'PERMANENT'],
] as const) {
  benchTest(`${error.status} ${error.code} for one of two files fails that file as ${errorClass}`, async (bench) => {
    await putFiles(bench, ['/b']);
    bench.server.store.put(keyIn('/a'), Buffer.from('a'));
    bench.server.onRequest = async ({ operation, key }) =>
      operation === 'RestoreObject' && key === keyIn('/a') ? error : undefined;
    const { known } = await bench.library.stage([staged('/a'), staged('/b')], quiet());
    expect(known).toEqual([failed('/a', errorClass)]);
    expect((known[0] as { error: TapeError }).error.message).toContain(`s3://archive/${keyIn('/a')}: ${error.code}`);
    expect(bench.server.store.find(keyIn('/b')).restore).toBeDefined();
  });
}

for (const status of [400, 403]) {
  benchTest(`ObjectAlreadyInActiveTierError (${status}) means that the object is ready`, async (bench) => {
    const { store } = bench.server;
    store.put(keyIn('/a'), Buffer.from('a'), ARCHIVED);
    bench.server.onRequest = async ({ operation }) => {
      if (operation !== 'RestoreObject') return undefined;
      store.find(keyIn('/a')).archiveStatus = undefined;
      return new S3Error(status, 'ObjectAlreadyInActiveTierError');
    };
    const { known } = await bench.library.stage([A], quiet());
    expect(known).toEqual([{ path: '/a', state: 'ready', until: null }]);
  });
}

for (const [status, code] of [
  [503, 'SlowDown'],
  [503, 'ServiceUnavailable'],
  [429, 'TooManyRequests'],
] as const) {
  benchTest(`${code} without a time asks for a retry after 30 s`, async (bench) => {
    await putFiles(bench, ['/a']);
    refuse(bench, 'RestoreObject', new S3Error(status, code));
    const error = await errorOf(bench.library.stage([A], quiet()));
    expect(error).toBeInstanceOf(RetryLaterError);
    expect(error).toMatchObject({ retryAfterSeconds: 30, message: expect.stringContaining(code) });
    expect(bench.server.count('RestoreObject')).toBe(1);
  });
}

const addKeys = (...lines: string[]) => ({ credentialsFile: addSecret(['[default]', ...lines].join('\n')) });
const OTHER_KEY = 'aws_access_key_id=AKIAOTHER';

for (const [what, settings, says, errorClass] of [
  ['an unknown key', addKeys(OTHER_KEY, 'aws_secret_access_key=x'), 'InvalidAccessKeyId', 'POLICY'],
  ['a missing secret', addKeys(OTHER_KEY), 'has no aws_secret_access_key', 'POLICY'],
  ['another region', { region: 'eu-test-2' }, 'AuthorizationHeaderMalformed', 'POLICY'],
  ['another bucket', { bucket: 'elsewhere' }, 'NoSuchBucket', 'PERMANENT'],
  ['a server that is away', { endpoint: 'http://127.0.0.1:1' }, 'ECONNREFUSED', 'TRANSIENT'],
] as const) {
  benchTest(`${what} fails the library and no file, for 1 file and for 20`, async (bench) => {
    for (const count of [1, 20]) {
      const files = Array.from({ length: count }, (_, index) => staged(`/${index}`));
      const library = bench.open(settings);
      await expectFailure(library.stage(files, quiet()), LibraryError, errorClass, says);
    }
  });
}

benchTest('if no restore of several is allowed, or of a single one, the library fails', async (bench) => {
  for (const paths of [['/0'], ['/0', '/1', '/2']]) {
    const files = await putFiles(bench, paths);
    refuse(bench, 'RestoreObject', new S3Error(403, 'AccessDenied'));
    await expectFailure(bench.library.stage(files, quiet()), LibraryError, 'POLICY', 'AccessDenied');
  }
});

benchTest('if no object and no list may be read, the library fails', async (bench) => {
  const files = await putFiles(bench, ['/a', '/b']);
  bench.server.onRequest = async () => new S3Error(403, 'AccessDenied');
  const says = 'ListObjectsV2 of s3://archive/cold/';
  await expectFailure(bench.library.stage(files, quiet()), LibraryError, 'POLICY', says);
  const many = Array.from({ length: 20 }, (_, index) => staged(`/${index}`));
  for (const each of [files, many]) {
    await expectFailure(bench.library.poll({ id: null, files: each }, quiet()), LibraryError, 'POLICY', says);
  }
});

benchTest('one object of two that may not be read fails as POLICY', async (bench) => {
  const files = await putFiles(bench, ['/a', '/b']);
  bench.server.onRequest = async ({ key }) => (key === keyIn('/a') ? new S3Error(403, 'AccessDenied') : undefined);
  const states = await bench.library.poll({ id: null, files }, quiet());
  expect(states).toEqual([failed('/a', 'POLICY'), { path: '/b', state: 'forgotten' }]);
});

benchTest('an answer that is lost fails the library', async (bench) => {
  const files = await putFiles(bench, ['/a']);
  bench.server.lost.set('RestoreObject', 1);
  await expectFailure(bench.library.stage(files, quiet()), LibraryError, 'TRANSIENT');
  expect(bench.server.count('RestoreObject')).toBe(1);
});

benchTest('a call without an answer fails after timeoutSeconds', async (bench) => {
  const files = await putFiles(bench, ['/a']);
  bench.server.onRequest = () => new Promise(() => {});
  const call = bench.open({ timeoutSeconds: 1 }).poll({ id: null, files }, quiet());
  await expectFailure(call, LibraryError, 'TRANSIENT', 'has exceeded the configured 1000 ms requestTimeout');
});

benchTest('a path below no prefix fails without a request to S3', async (bench) => {
  const { known } = await bench.open({ prefixes: ['/suite/=x/'] }).stage([staged('/other/a')], quiet());
  expect(known).toEqual([failed('/other/a', 'PERMANENT')]);
  expect(bench.server.asked).toEqual([]);
});

benchTest('requests and bytes are counted by the name of the request', async (bench) => {
  const [file = A] = await putFiles(bench, ['/a']);
  await makeReady(bench, [file]);
  for await (const _chunk of bench.library.read(file, 0n, quiet()));
  expect(Object.fromEntries(bench.library.usage ?? [])).toEqual({
    HeadObject: { requests: 2, bytes: 0n },
    RestoreObject: { requests: 1, bytes: 0n },
    GetObject: { requests: 1, bytes: file.size },
  });
});
