/** How the library type `s3` looks up the state of objects. */
import { expect } from 'vitest';
import { benchTest, keyIn, type S3Bench } from '../support/s3-bench.js';
import { staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-library.js';

/** Adds objects with running restores. Every third object is already restored. */
function putRestores({ server }: S3Bench, paths: readonly string[]): void {
  for (const [index, path] of paths.entries()) {
    const key = keyIn(path);
    server.store.put(key, Buffer.alloc(0));
    server.store.restore(key, { days: 2, tier: 'Bulk' });
    if (index % 3 === 0) server.store.arrive([key]);
  }
}

const expected = (paths: readonly string[]) =>
  paths.map((path, index) => [path, index % 3 === 0 ? 'ready' : 'waiting'] as const).sort();

async function poll(bench: S3Bench, paths: readonly string[]) {
  const states = await bench.library.poll({ id: null, files: paths.map((path) => staged(path)) }, quiet());
  return states.map(({ path, state }) => [path, state] as const).sort();
}

benchTest('a file takes one request', async (bench) => {
  const paths = Array.from({ length: 100 }, (_, index) => `/badc/${index}`);
  putRestores(bench, paths);
  expect(await poll(bench, paths)).toEqual(expected(paths));
  expect([bench.server.count('HeadObject'), bench.server.count('ListObjectsV2')]).toEqual([100, 0]);
});

benchTest('an object fails only if the bucket, which exists, does not contain it', async (bench) => {
  const paths = ['/a', '/b', '/c'];
  putRestores(bench, paths.slice(0, 2));
  expect(await poll(bench, paths)).toEqual([...expected(paths.slice(0, 2)), ['/c', 'failed']]);
  expect([bench.server.count('HeadObject'), bench.server.count('ListObjectsV2')]).toEqual([3, 1]);
});

benchTest('keys with any characters are found', async (bench) => {
  const letters = ['%2F', ...'a\u00e9\u65e5\u{FFFD}\u{1F39E}\u{E000}\n +%&"~'];
  const paths = letters.flatMap((letter) => [`/odd/${letter}`, `/odd/x${letter}y`]);
  putRestores(bench, paths);
  expect(await poll(bench, paths)).toEqual(expected(paths));
});
