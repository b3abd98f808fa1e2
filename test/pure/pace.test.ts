/** What the planner learns from measured times. */
import { expect, test } from 'vitest';
import { type Ahead, planAhead } from '../../src/planner/ahead.js';
import { type PartAhead, rangeOf } from '../../src/planner/end-range.js';
import { estimateReading, findMedium, type Medium } from '../../src/planner/media.js';
import {
  addFile,
  addMount,
  formatPace,
  isMeasured,
  joinPaces,
  measuredMedium,
  measureOwn,
  type PaceSums,
  parsePace,
} from '../../src/planner/pace.js';
import { defaultPolicy } from '../../src/planner/schedule.js';

const [lto8, linear] = [findMedium('lto-8'), findMedium('linear')];
const NONE = parsePace([]);

function read(medium: Medium, sizes: readonly number[], secondsOf: (bytes: number) => number, from = NONE): PaceSums {
  return sizes.reduce(
    (sums, bytes) => addFile(sums, { medium, files: sizes.length, bytes, seconds: secondsOf(bytes) }),
    from,
  );
}

test('without measurements, the medium has the speed of the cost model', () => {
  expect(measuredMedium(lto8, NONE)).toEqual({ ...lto8, locateScale: 1 });
  expect([isMeasured(NONE), isMeasured(read(linear, [1, 1, 1, 1, 1], () => 1))]).toEqual([false, true]);
});

test('after 50 small files, the time per file is known, though it is a thousand times that of the model', () => {
  const measured = measuredMedium(
    linear,
    read(linear, Array(50).fill(10_000), () => 0.6),
  );
  const seconds = estimateReading(measured, 300, 300 * 10_000);
  expect(Math.abs(seconds - 180)).toBeLessThan(20);
});

test('small and large files show the time per file and the time per byte', () => {
  const sizes = Array.from({ length: 60 }, (_, n) => (n % 3 === 0 ? 20e9 : 50e6));
  const measured = measuredMedium(
    lto8,
    read(lto8, sizes, (bytes) => 5 + bytes / 36e6),
  );
  expect(estimateReading(measured, 60, 0) / 60).toBeGreaterThan(4);
  expect(estimateReading(measured, 60, 0) / 60).toBeLessThan(9);
  expect(measured.streamBytesPerSecond / 36e6).toBeCloseTo(1, 1);
});

test('recent measurements count more than earlier ones', () => {
  const slow = read(linear, Array(1000).fill(1e9), () => 50);
  const fast = measuredMedium(
    linear,
    read(linear, Array(800).fill(1e9), () => 5, slow),
  );
  expect(estimateReading(fast, 1, 1e9)).toBeLessThan(9);
});

test('one file that takes an hour changes the estimate little', () => {
  const known = read(
    lto8,
    Array.from({ length: 500 }, (_, n) => (0.5 + (n % 10) / 10) * 1e9),
    (bytes) => 15 + bytes / 360e6,
  );
  const stalled = addFile(known, { medium: lto8, files: 30, bytes: 1e6, seconds: 3600 });
  const hoursFor = (sums: PaceSums) => estimateReading(measuredMedium(lto8, sums), 1000, 10e12) / 3600;
  expect(hoursFor(stalled) / hoursFor(known)).toBeGreaterThan(0.6);
  expect(hoursFor(stalled) / hoursFor(known)).toBeLessThan(1.5);
});

test.each([[[5]], [[1, 2, 3]], [Array(10).fill(Number.NaN)], [Array(10).fill(-1)], [Array(11).fill(1)]])(
  'invalid sums %j count as none',
  (sums) => {
    expect(parsePace(sums)).toEqual(NONE);
  },
);

test('sums that determine nothing keep the model', () => {
  const { streamBytesPerSecond } = measuredMedium(lto8, { ...NONE, files: 9, modelled: 1, measured: 1 });
  expect(streamBytesPerSecond).toBe(lto8.streamBytesPerSecond);
});

test('times that contradict the model never become negative', () => {
  const sizes = [1, 1e9, 2e9, 3e9, 4e9, 5e9];
  const shrinking = measuredMedium(
    lto8,
    read(lto8, sizes, (bytes) => 100 - bytes / 1e8),
  );
  const growing = measuredMedium(
    lto8,
    read(lto8, sizes, (bytes) => bytes / 1e6),
  );
  for (const { locateScale = 0, streamBytesPerSecond } of [shrinking, growing]) {
    expect([locateScale > 0, streamBytesPerSecond > 0]).toEqual([true, true]);
  }
});

test('measured mounts replace the times of the model, also if it has none', () => {
  const mounts = Array(20).fill(300).reduce(addMount, NONE) as PaceSums;
  expect(measuredMedium(lto8, mounts).mountSeconds + measuredMedium(lto8, mounts).unmountSeconds).toBeGreaterThan(270);
  expect(measuredMedium(linear, mounts)).toMatchObject({ mountSeconds: expect.closeTo(281, -1), unmountSeconds: 0 });
});

test('sums survive the database, and add up over drives', () => {
  const one = addMount(
    read(lto8, [10e9, 20e9], (bytes) => bytes / 1e8),
    60,
  );
  expect(parsePace(formatPace(one))).toEqual(one);
  const both = joinPaces([one, one]);
  expect(both).toMatchObject({ files: 2 * one.files, mounts: 2 });
  expect(measuredMedium(lto8, both).streamBytesPerSecond).toBeLessThan(lto8.streamBytesPerSecond);
});

test('a drive that is clearly slower than the others of its library has later ends', () => {
  const secondsAt = (slowness: number) => (bytes: number) => slowness * (bytes / linear.streamBytesPerSecond);
  const paceAt = (slowness: number, files: number) => read(linear, Array(files).fill(1e9), secondsAt(slowness));
  const [fast, slow] = [paceAt(1, 100), paceAt(4, 100)];
  const library = joinPaces([fast, slow]);
  expect(measureOwn(paceAt(4, 10), library)).toBeUndefined();
  expect(measureOwn(slow, joinPaces([slow, slow]))).toBeUndefined();
  const queues = ['A', 'B'].map((volume, n) => ({
    ...{ volume, volumeId: n + 1, libraryId: 1, medium: linear, isMounted: true },
    measured: measuredMedium(linear, library),
    users: [{ user: 'ann', files: 10, bytes: 10e9, oldest: 0, priority: 0 }],
  }));
  const drives = [fast, slow].map((pace, n) => ({
    ...{ name: `drive-${n}`, libraryId: 1, volumeId: n + 1, mounted: linear, running: { files: 0, bytes: 0 } },
    measure: measureOwn(pace, library),
  }));
  const ahead = planAhead({ queues, drives, shares: new Map(), now: 0, policy: defaultPolicy });
  const [first, second] = [1, 2].map((volumeId) => ahead.turnOf(volumeId, 'ann')?.end ?? Number.NaN);
  expect((second as number) / (first as number)).toBeCloseTo(4, 0);
});

const NOW = 1000;

/** Estimates the end of 20 files of 1 GB, behind files of another user. */
function rangeBehind(others: number, isKnown: boolean) {
  const users = (user: string, files: number) => ({ user, files, bytes: files * 1e9, oldest: 0, priority: 0 });
  const queues = [users('ann', 20), users('ben', others)].map((queue, n) => ({
    ...{ volume: `V${n}`, volumeId: n + 1, libraryId: 1, medium: lto8, measured: lto8, isMounted: false },
    users: queue.files > 0 ? [queue] : [],
  }));
  const drives = [{ name: 'one', libraryId: 1, volumeId: null, mounted: undefined, running: { files: 0, bytes: 0 } }];
  const shares = new Map([['ann', 9000]]);
  const filled = queues.filter((queue) => queue.users.length > 0);
  const ahead: Ahead = planAhead({ queues: filled, drives, shares, now: NOW, policy: defaultPolicy });
  const part: PartAhead = {
    ...{ volumeId: 1, libraryId: 1, medium: lto8, isMeasured: isKnown, files: 20, bytes: 20e9 },
    ...{ isReading: false, notBefore: undefined, staged: undefined },
  };
  const plan = { now: NOW, ahead, drives: new Map([[1, 1]]), mounted: new Set<number>(), staged: new Map() };
  return rangeOf(plan, 'ann', [part]);
}

test('a measured range is narrow, and wide without measurements or behind other requests', () => {
  const width = (range: ReturnType<typeof rangeBehind>) =>
    range ? (range.latest - NOW) / (range.earliest - NOW) : Number.NaN;
  const [alone, unmeasured, behind] = [rangeBehind(0, true), rangeBehind(0, false), rangeBehind(200, true)];
  expect(width(alone)).toBeLessThanOrEqual(2);
  expect([alone?.isMeasured, unmeasured?.isMeasured]).toEqual([true, false]);
  expect(width(unmeasured)).toBeGreaterThan(4);
  expect(width(behind)).toBeGreaterThan(4);
  expect(behind?.earliest).toBe(alone?.earliest);
});
