/** Inode numbers, times and sizes of a file system that exceed the database's integers. */
import { lstatSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { compareCopy, matchesTimes, storedStats } from '../../src/restore-area/copies/copy.js';
import { writeMarker } from '../../src/restore-area/marker.js';
import { bytesOfBlocks } from '../../src/restore-area/space.js';
import { makeTempDir } from '../support/temp-dir.js';

const INTEGER = [-(2n ** 63n), 2n ** 63n - 1n] as const;

test.each([
  [2n ** 64n - 1n, '2446-05-10T22:38:55Z', '2300-01-01T00:00:00Z'],
  [2n ** 63n, '1600-01-01T00:00:00Z', '1901-12-13T20:45:52Z'],
  [1n, '9999-12-31T23:59:59Z', '0001-01-01T00:00:00Z'],
])('the inode %s with the times %s and %s is stored in 64 bits and recognized', (ino, mtime, ctime) => {
  const ns = (time: string) => BigInt(Date.parse(time)) * 1_000_000n;
  const stats = { ...lstatSync('/proc/self/exe', { bigint: true }), size: 1n, isFile: () => true };
  Object.assign(stats, { ino, mtimeNs: ns(mtime), ctimeNs: ns(ctime) });
  const stored = storedStats(stats);
  for (const value of Object.values(stored)) {
    expect(value).toBeGreaterThanOrEqual(INTEGER[0]);
    expect(value).toBeLessThanOrEqual(INTEGER[1]);
  }
  const copy = { ...stored, size: 1n, copyChecksum: null };
  expect(matchesTimes(copy, stats)).toBe(true);
  expect(matchesTimes(copy, { ...stats, ino: ino ^ 1n })).toBe(true); // a mount may renumber inodes
  expect(matchesTimes(copy, { ...stats, mtimeNs: stats.mtimeNs + 1n })).toBe(false);
  expect(matchesTimes(copy, { ...stats, ctimeNs: stats.ctimeNs + 1n })).toBe(false);
});

test('a copy that gets a time of another century is changed', async () => {
  const mountpoint = makeTempDir();
  await writeMarker({ diskId: 1, mountpoint });
  const file = path.join(mountpoint, 'file');
  writeFileSync(file, 'bytes');
  const copy = { diskId: 1, mountpoint, path: '/file', size: 5n, copyChecksum: null };
  const known: string[] = [];
  let before = storedStats(lstatSync(file, { bigint: true }));
  for (const time of ['1600-01-01', '2262-04-12', '2446-05-10', '9999-12-31']) {
    utimesSync(file, new Date(time), new Date(time));
    known.push(await compareCopy({ ...copy, ...before }));
    before = storedStats(lstatSync(file, { bigint: true }));
    known.push(await compareCopy({ ...copy, ...before }));
  }
  expect(known).toEqual(Array(4).fill(['changed', 'same']).flat());
});

test('a file system without a limit has as many bytes as the database can store', () => {
  expect(bytesOfBlocks(1000n, 4096n)).toBe(4_096_000n);
  expect(bytesOfBlocks(2n ** 63n - 1n, 4096n)).toBe(2n ** 63n - 1n);
  expect(bytesOfBlocks(-1n, 4096n)).toBe(2n ** 63n - 1n); // Node.js returns -1 for 2^64 - 1
});
