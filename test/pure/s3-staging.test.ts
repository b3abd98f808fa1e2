import { expect, test } from 'vitest';
import type { ErrorClass, TapeError } from '../../src/errors.js';
import { LibraryError } from '../../src/tape/backend.js';
import { RetryLaterError } from '../../src/tape/staging.js';
import { createS3Bench, keyIn, type S3Bench } from '../support/s3-bench.js';
import type { S3Request } from '../support/s3-server.js';
import { S3Error } from '../support/s3-store.js';
import { ask, errorOf, makeReady, putFiles, staged } from '../support/staging-bench.js';
import { describeStagingLibrary } from '../support/staging-library.js';
import { quiet } from '../support/tape-backend.js';

const can = { release: false, ids: false, until: true };
const price = { currency: 'EUR', pricePerGb: 0.01, pricePerThousandRequests: 0.05, pricePerGbMonth: 0.023 };

describeStagingLibrary('s3', () => createS3Bench(price), can);
describeStagingLibrary('s3 without lists', () => createS3Bench({ stateBy: 'head' }), { ...can, readsAsAnother: true });

/** A bench for the time of a test. */
function benchTest(name: string, run: (bench: S3Bench) => Promise<void>, settings: object = {}): void {
  test(name, async () => {
    const bench = await createS3Bench(settings);
    try {
      await run(bench);
    } finally {
      await bench.close();
    }
  });
}

/** Every answer to this operation from now on. */
function refuse(bench: S3Bench, operation: S3Request['operation'], error: S3Error): void {
  bench.server.onRequest = async (request) => (request.operation === operation ? error : undefined);
}

async function stageOne(bench: S3Bench, storageClass: string, settings: object = {}) {
  bench.server.store.put(keyIn('/a'), Buffer.from('a'), { storageClass });
  const { known } = await bench.open(settings).stage([staged('/a', 1)], quiet());
  return known[0] as { state: string; error?: TapeError; until?: Date | null } | undefined;
}

benchTest('a copy that is on its way already is joined', async (bench) => {
  const files = await putFiles(bench, ['/a']);
  await ask(bench.library, files);
  expect(await bench.library.stage(files, quiet())).toEqual({ id: null, known: [] });
  expect(bench.server.count('RestoreObject')).toBe(2);
});

benchTest(
  'asking for a copy that is there keeps it for as many days from then, and tells until when',
  async (bench) => {
    const files = await putFiles(bench, ['/a']);
    const { states } = await makeReady(bench, files);
    const { known } = await bench.open({ days: 30 }).stage(files, quiet());
    const [before, after] = [states.get('/a'), known[0]].map((state) => (state as { until: Date }).until);
    expect(known[0]?.state).toBe('ready');
    expect(Number(after) - Number(before)).toBeGreaterThanOrEqual(27 * 24 * 3600 * 1000);
    expect(bench.server.store.find(keyIn('/a')).restore?.until).toEqual(after);
  },
);

benchTest('what needs no restore is ready at once, for good, and costs no restore request', async (bench) => {
  for (const storageClass of ['STANDARD', 'STANDARD_IA', 'GLACIER_IR', 'INTELLIGENT_TIERING']) {
    expect(await stageOne(bench, storageClass)).toEqual({ path: '/a', state: 'ready', until: null });
  }
  expect(bench.server.count('RestoreObject')).toBe(0);
  expect(await bench.library.release({ id: null, files: [staged('/a')] }, quiet())).toEqual([]);
});

benchTest('an archived object of Intelligent-Tiering comes back for good', async (bench) => {
  const { store } = bench.server;
  store.put(keyIn('/a'), Buffer.from('a'), { storageClass: 'INTELLIGENT_TIERING', archiveStatus: 'ARCHIVE_ACCESS' });
  const files = [staged('/a', 1)];
  const demand = { id: null, files };
  expect(await bench.library.poll(demand, quiet())).toEqual([{ path: '/a', state: 'forgotten' }]);
  expect(await bench.library.stage(files, quiet())).toEqual({ id: null, known: [] });
  expect(await bench.library.poll(demand, quiet())).toEqual([{ path: '/a', state: 'waiting' }]);
  await bench.arrive(['/a']);
  expect(await bench.library.poll(demand, quiet())).toEqual([{ path: '/a', state: 'ready', until: null }]);
  expect(await bench.library.release(demand, quiet())).toEqual([]);
});

benchTest('where there is no room for Expedited the next tier is asked for', async (bench) => {
  const { server } = bench;
  server.onRequest = async ({ operation }) =>
    operation === 'RestoreObject' && server.count('RestoreObject') === 1
      ? new S3Error(503, 'GlacierExpeditedRetrievalNotAvailable')
      : undefined;
  expect(await stageOne(bench, 'GLACIER', { tier: 'Expedited', fallbackTiers: ['Standard', 'Bulk'] })).toBeUndefined();
  expect(server.store.find(keyIn('/a')).restore?.tier).toBe('Standard');
});

benchTest('without another tier, no room for Expedited is a failure that is worth another try', async (bench) => {
  refuse(bench, 'RestoreObject', new S3Error(503, 'GlacierExpeditedRetrievalNotAvailable'));
  const known = await stageOne(bench, 'GLACIER', { tier: 'Expedited' });
  expect(known).toMatchObject({ state: 'failed', error: { errorClass: 'TRANSIENT' } });
  expect(known?.error?.message).toContain('GlacierExpeditedRetrievalNotAvailable');
  expect(bench.server.count('RestoreObject')).toBe(1);
});

benchTest('Expedited is not asked for where it is not to be had', async (bench) => {
  const settings = { tier: 'Expedited', fallbackTiers: ['Bulk'] };
  expect(await stageOne(bench, 'DEEP_ARCHIVE', settings)).toBeUndefined();
  expect(bench.server.store.find(keyIn('/a')).restore?.tier).toBe('Bulk');
  const refused = await stageOne(bench, 'DEEP_ARCHIVE', { tier: 'Expedited' });
  expect(refused).toMatchObject({ state: 'failed', error: { errorClass: 'POLICY' } });
  expect(bench.server.count('RestoreObject')).toBe(1);
});

benchTest('a faster tier hurries a copy that is on its way', async (bench) => {
  await stageOne(bench, 'GLACIER', { tier: 'Bulk' });
  await bench.open({ tier: 'Standard' }).stage([staged('/a')], quiet());
  expect(bench.server.store.find(keyIn('/a')).restore?.tier).toBe('Standard');
});

const refusals: [S3Error, string][] = [
  [new S3Error(403, 'AccessDenied'), 'POLICY'],
  [new S3Error(404, 'NoSuchKey'), 'PERMANENT'],
  [new S3Error(500, 'InternalError'), 'TRANSIENT'],
  [new S3Error(400, 'InvalidArgument'), 'PERMANENT'],
];

for (const [error, errorClass] of refusals) {
  benchTest(`${error.status} ${error.code} to one demand is that file's own, and ${errorClass}`, async (bench) => {
    await putFiles(bench, ['/b']);
    bench.server.store.put(keyIn('/a'), Buffer.from('a'));
    bench.server.onRequest = async ({ operation, key }) =>
      operation === 'RestoreObject' && key === keyIn('/a') ? error : undefined;
    const { known } = await bench.library.stage([staged('/a'), staged('/b')], quiet());
    expect(known).toEqual([{ path: '/a', state: 'failed', error: expect.objectContaining({ errorClass }) }]);
    expect((known[0] as { error: TapeError }).error.message).toContain(`s3://archive/${keyIn('/a')}: ${error.code}`);
    expect(bench.server.store.find(keyIn('/b')).restore).toBeDefined();
  });
}

for (const status of [400, 403]) {
  benchTest(`ObjectAlreadyInActiveTierError (${status}) means that it is there`, async (bench) => {
    const { server } = bench;
    refuse(bench, 'RestoreObject', new S3Error(status, 'ObjectAlreadyInActiveTierError'));
    server.store.put(keyIn('/a'), Buffer.from('a'), {
      storageClass: 'INTELLIGENT_TIERING',
      archiveStatus: 'ARCHIVE_ACCESS',
    });
    const { onRequest } = server;
    server.onRequest = async (request) => {
      if (request.operation === 'RestoreObject') server.store.find(keyIn('/a')).archiveStatus = undefined;
      return await onRequest(request);
    };
    const { known } = await bench.library.stage([staged('/a', 1)], quiet());
    expect(known).toEqual([{ path: '/a', state: 'ready', until: null }]);
  });
}

for (const [status, code] of [
  [503, 'SlowDown'],
  [503, 'ServiceUnavailable'],
  [429, 'TooManyRequests'],
] as const) {
  benchTest(`${code} says when to come back, though S3 has not said`, async (bench) => {
    await putFiles(bench, ['/a']);
    refuse(bench, 'RestoreObject', new S3Error(status, code));
    const error = await errorOf(bench.library.stage([staged('/a')], quiet()));
    expect(error).toBeInstanceOf(RetryLaterError);
    expect(error).toMatchObject({ retryAfterSeconds: 30, message: expect.stringContaining(code) });
    expect(bench.server.count('RestoreObject')).toBe(1);
  });
}

const faults: [string, object, Record<string, string>, string, ErrorClass][] = [
  ['a key that is not known', {}, { S3_KEY: 'AKIAOTHER', S3_SECRET: 'x' }, 'InvalidAccessKeyId', 'POLICY'],
  ['a secret that is another', {}, { S3_KEY: 'AKIATESTS', S3_SECRET: 'x' }, 'SignatureDoesNotMatch', 'POLICY'],
  ['a secret that is not there', {}, { S3_KEY: 'AKIATESTS' }, 'the environment has no S3_SECRET', 'POLICY'],
  ['another region', { region: 'eu-test-2' }, {}, 'AuthorizationHeaderMalformed', 'POLICY'],
  ['another bucket', { bucket: 'elsewhere' }, {}, 'NoSuchBucket', 'PERMANENT'],
  ['nobody there', { endpoint: 'http://127.0.0.1:1' }, {}, 'ECONNREFUSED', 'TRANSIENT'],
];

for (const [what, settings, env, told, errorClass] of faults) {
  for (const count of [1, 20]) {
    benchTest(`${what} is told of the library, and not of its files, be they ${count}`, async (bench) => {
      const files = Array.from({ length: count }, (_, index) => staged(`/${index}`));
      const library = Object.keys(env).length === 0 ? bench.open(settings) : bench.open(settings, env);
      const error = await errorOf(library.stage(files, quiet()));
      expect(error).toBeInstanceOf(LibraryError);
      expect(error).toMatchObject({ errorClass, message: expect.stringContaining(told) });
    });
  }
}

for (const count of [1, 3]) {
  benchTest(`where no copy of ${count} may be asked for, it is the library that is refused`, async (bench) => {
    const files = await putFiles(
      bench,
      Array.from({ length: count }, (_, n) => `/${n}`),
    );
    refuse(bench, 'RestoreObject', new S3Error(403, 'AccessDenied'));
    const error = await errorOf(bench.library.stage(files, quiet()));
    expect(error).toBeInstanceOf(LibraryError);
    expect(error).toMatchObject({ errorClass: 'POLICY', message: expect.stringContaining('AccessDenied') });
  });
}

benchTest(
  'where nothing may be looked at, it is the library that is refused, though lists are for many',
  async (bench) => {
    const files = await putFiles(bench, ['/a', '/b']);
    bench.server.onRequest = async () => new S3Error(403, 'AccessDenied');
    for (const call of [bench.library.stage(files, quiet()), bench.library.poll({ id: null, files }, quiet())]) {
      const error = await errorOf(call);
      expect(error).toBeInstanceOf(LibraryError);
      expect(error).toMatchObject({ errorClass: 'POLICY', message: expect.stringContaining('ListObjectsV2') });
    }
  },
);

benchTest('an object that may not be looked at is POLICY by itself', async (bench) => {
  await putFiles(bench, ['/a', '/b']);
  bench.server.onRequest = async ({ key }) => (key === keyIn('/a') ? new S3Error(403, 'AccessDenied') : undefined);
  const states = await bench.library.poll({ id: null, files: [staged('/a'), staged('/b')] }, quiet());
  expect(states).toEqual([
    { path: '/a', state: 'failed', error: expect.objectContaining({ errorClass: 'POLICY' }) },
    { path: '/b', state: 'forgotten' },
  ]);
});

benchTest('a list that is denied is told as POLICY', async (bench) => {
  refuse(bench, 'ListObjectsV2', new S3Error(403, 'AccessDenied'));
  const files = Array.from({ length: 20 }, (_, index) => staged(`/${index}`));
  const error = await errorOf(bench.library.poll({ id: null, files }, quiet()));
  expect(error).toBeInstanceOf(LibraryError);
  expect(error).toMatchObject({
    errorClass: 'POLICY',
    message: expect.stringContaining('ListObjectsV2 of s3://archive/cold/'),
  });
});

benchTest('an answer that is lost twice is told of the library, within its time', async (bench) => {
  await putFiles(bench, ['/a']);
  bench.server.lost.set('RestoreObject', 2);
  expect(await errorOf(bench.library.stage([staged('/a')], quiet()))).toBeInstanceOf(LibraryError);
  expect(bench.server.count('RestoreObject')).toBe(2);
});

benchTest('an answer that does not come is not waited for beyond the limit', async (bench) => {
  await putFiles(bench, ['/a']);
  bench.server.onRequest = () => new Promise(() => {});
  const error = await errorOf(bench.open({ timeoutSeconds: 1 }).poll({ id: null, files: [staged('/a')] }, quiet()));
  expect(error).toBeInstanceOf(LibraryError);
  expect((error as Error).message).toContain('no answer within 1 seconds');
});

benchTest('a path below none of the prefixes is refused, and asks S3 for nothing', async (bench) => {
  const library = bench.open({ prefixes: ['/suite/=x/'] });
  const { known } = await library.stage([staged('/other/a')], quiet());
  expect(known).toEqual([
    { path: '/other/a', state: 'failed', error: expect.objectContaining({ errorClass: 'PERMANENT' }) },
  ]);
  expect(bench.server.asked).toEqual([]);
});

benchTest('requests are counted by their names, and so are bytes', async (bench) => {
  const files = await putFiles(bench, ['/a']);
  await makeReady(bench, files);
  for await (const _chunk of bench.library.read(files[0] ?? staged(''), 0n, quiet()));
  const none = { bytes: 0n };
  expect(bench.library.usage).toEqual({
    HeadObject: { requests: 2, ...none },
    RestoreObject: { requests: 1, ...none },
    GetObject: { requests: 1, bytes: files[0]?.size },
  });
});
