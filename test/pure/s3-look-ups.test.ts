/** How the library type `s3` finds out the state of many objects: with few lists, or one by one. */
import { afterAll, expect, test } from 'vitest';
import { createS3Bench, keyIn, type S3Bench } from '../support/s3-bench.js';
import { staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-backend.js';

const benches: S3Bench[] = [];
afterAll(() => Promise.all(benches.map((bench) => bench.close())));

/** A bucket with these files, all being restored, except every third, which is restored. */
async function createBench(paths: readonly string[]): Promise<S3Bench> {
  const bench = await createS3Bench();
  benches.push(bench);
  for (const [index, path] of paths.entries()) {
    const key = keyIn(path);
    bench.server.store.put(key, Buffer.alloc(0));
    bench.server.store.restore(key, { days: 2, tier: 'Bulk' });
    if (index % 3 === 0) bench.server.store.arrive([key]);
  }
  return bench;
}

const expected = (paths: readonly string[]) =>
  paths.map((path, index) => [path, index % 3 === 0 ? 'ready' : 'waiting'] as const).sort();

async function poll(bench: S3Bench, paths: readonly string[]) {
  const states = await bench.library.poll({ id: null, files: paths.map((path) => staged(path)) }, quiet());
  return states.map(({ path, state }) => [path, state] as const).sort();
}

test('3,000 files in a few prefixes take a list for each thousand', async () => {
  const paths = Array.from({ length: 3000 }, (_, index) => `/badc/${index % 7}/orbit ${index}.nc`);
  const bench = await createBench(paths);
  expect(await poll(bench, paths)).toEqual(expected(paths));
  expect(bench.server.count('HeadObject')).toBe(0);
  expect(bench.server.count('ListObjectsV2')).toBeLessThanOrEqual(4);
});

test('files in a thousand small prefixes take a list for each thousand', async () => {
  const paths = Array.from({ length: 2000 }, (_, index) => `/badc/${index % 1000}/${index}.nc`);
  const bench = await createBench(paths);
  expect(await poll(bench, paths)).toEqual(expected(paths));
  expect(bench.server.asked.length).toBeLessThanOrEqual(3);
});

test('a few files take a request each', async () => {
  const paths = Array.from({ length: 11 }, (_, index) => `/badc/${index}`);
  const bench = await createBench(paths);
  expect(await poll(bench, paths)).toEqual(expected(paths));
  expect([bench.server.count('HeadObject'), bench.server.count('ListObjectsV2')]).toEqual([11, 0]);
});

test('if lists return few of the files, the others take a request each', async () => {
  const others = Array.from({ length: 30_000 }, (_, index) => `/badc/${String(index).padStart(6, '0')}`);
  const wanted = others.filter((_, index) => index % 300 === 0);
  const bench = await createBench(wanted);
  for (const path of others.filter((_, index) => index % 300 !== 0))
    bench.server.store.put(keyIn(path), Buffer.alloc(0));
  expect(await poll(bench, wanted)).toEqual(expected(wanted));
  expect(bench.server.count('HeadObject')).toBeGreaterThan(75);
  expect(bench.server.count('ListObjectsV2')).toBeLessThan(8);
  expect(bench.server.asked.length).toBeLessThan(wanted.length * 1.05);
});

test('an object of Intelligent-Tiering takes a request of its own: a list does not say whether it is archived', async () => {
  const paths = Array.from({ length: 20 }, (_, index) => `/badc/${index}`);
  const bench = await createBench(paths);
  for (const path of paths.slice(0, 2)) {
    bench.server.store.put(keyIn(path), Buffer.alloc(0), {
      storageClass: 'INTELLIGENT_TIERING',
      archiveStatus: path === '/badc/0' ? 'DEEP_ARCHIVE_ACCESS' : undefined,
    });
  }
  const states = new Map(await poll(bench, paths));
  expect(['/badc/0', '/badc/1', '/badc/3'].map((path) => states.get(path))).toEqual(['forgotten', 'ready', 'ready']);
  expect([bench.server.count('HeadObject'), bench.server.count('ListObjectsV2')]).toEqual([2, 1]);
});

test('an object that no list contains takes a request of its own, and fails only if it does not exist', async () => {
  const paths = Array.from({ length: 30 }, (_, index) => `/badc/${index}`);
  const bench = await createBench(paths.slice(0, 15));
  const states = await poll(bench, paths);
  expect(states.filter(([, state]) => state === 'failed').map(([path]) => path)).toEqual(paths.slice(15).sort());
  expect([bench.server.count('HeadObject'), bench.server.count('ListObjectsV2')]).toEqual([15, 16]);
  expect(await poll(bench, ['/badc/29'])).toEqual([['/badc/29', 'failed']]);
  bench.server.unlisted = new Set(paths.slice(3, 5).map(keyIn));
  expect(await poll(bench, paths.slice(0, 15))).toEqual(expected(paths.slice(0, 15)));
});

test.each<[string, Partial<S3Bench['server']>]>([
  ['does not encode keys', { encodesLists: false }],
  ['lists keys in an order of its own', { ordersLists: false }],
])('all files are found in a system that %s', async (_what, server) => {
  const others = Array.from({ length: 1100 }, (_, index) => `/odd/${String(index).padStart(4, '0')}`);
  const paths = ['/odd/1+1', '/odd/100%', '/odd/%2F', '/odd/a b', ...others];
  const bench = await createBench(paths);
  Object.assign(bench.server, server);
  expect(await poll(bench, paths)).toEqual(expected(paths));
});

test('keys with any characters are found in lists', async () => {
  const letters = ['a', 'é', '日', '\u{FFFD}', '\u{1F39E}', '\u{E000}', '\n', '\u0001', ' ', '+', '%2F', '&', '"', '~'];
  const paths = letters.flatMap((letter) => [`/odd/${letter}`, `/odd/${letter}${letter}`, `/odd/x${letter}y`]);
  const bench = await createBench(paths);
  expect(await poll(bench, paths)).toEqual(expected(paths));
  expect([bench.server.count('HeadObject'), bench.server.count('ListObjectsV2')]).toEqual([0, 1]);
});
