/** Pauses between calls of staging libraries, and estimates of when restores end. */
import { expect, test } from 'vitest';
import { againSeconds, pollSeconds, restSeconds } from '../../src/engine/staging/rests.js';
import { type PartAhead, rangeOf } from '../../src/planner/end-range.js';
import { findMedium } from '../../src/planner/media.js';
import { type StagedAhead, type StagedPart, sampleWaits, waitOf } from '../../src/planner/queue.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import { RetryLaterError } from '../../src/tape/staging.js';

const away = new LibraryError('TRANSIENT', 'it is away');

test('the pause after a failed call doubles up to five minutes', () => {
  const rests = [0, 1, 2, 3, 8, 9, 1000].map((before) => restSeconds(away, before, 1));
  expect(rests).toEqual([1, 2, 4, 8, 256, 300, 300]);
  expect(restSeconds(away, 3, 0)).toBe(6);
});

test('a library may set the pause, between 1 s and an hour', () => {
  const rest = (seconds: number) => restSeconds(new RetryLaterError('busy', seconds), 5, 0);
  expect([0, 1, 90, 1e9].map(rest)).toEqual([1, 1, 90, 3600]);
});

test('the first repeated request is immediate, and the pause before later ones doubles up to ten minutes', () => {
  expect([0, 1, 2, 3, 10, 11, 50].map(againSeconds)).toEqual([0, 1, 2, 4, 512, 600, 600]);
});

test('polls become rarer with the age of a request, within the limits of the library', () => {
  const poll = (age: number) => pollSeconds({ least: 60, most: 600 }, age, 0);
  expect([0, 60, 240, 1200, 86_400].map(poll)).toEqual([60, 60, 60, 300, 600]);
  expect(pollSeconds({ least: 60, most: 600 }, 1200, 1)).toBe(375);
  expect(pollSeconds({ least: 60, most: 600 }, 86_400, 1)).toBe(600);
});

const HOUR = 3600;
const quiet = { depth: { files: 1000, bytes: undefined }, waiting: { files: 0, bytes: 0 } };
const glacier: StagedAhead = { ...quiet, waits: [3 * HOUR, 5 * HOUR] };
const part = (given: Partial<StagedPart> = {}): StagedPart => ({
  ...{ state: 'unasked', files: 1, bytes: 1000, askedSeconds: 0 },
  ...given,
});

test('one file takes the middle of the range, and the last of many takes the maximum', () => {
  expect(waitOf(glacier, part())).toEqual({ earliest: 3 * HOUR, planned: 4 * HOUR, latest: 4.8 * HOUR });
  const many = waitOf(glacier, part({ files: 9999 }));
  expect(many?.planned).toBeCloseTo(5 * HOUR, -1);
  expect(many?.latest).toBeCloseTo(5 * HOUR, -1);
});

test('a file on disk there takes no time, and without measurements there is no estimate', () => {
  const unknown = { ...quiet, waits: [] };
  expect(waitOf(unknown, part({ state: 'ready' }))).toEqual({ earliest: 0, planned: 0, latest: 0 });
  expect(waitOf(unknown, part())).toBeUndefined();
  expect(waitOf(unknown, part({ state: 'asked', askedSeconds: 60 }))).toBeUndefined();
});

test('the time since the request is subtracted', () => {
  const measured = { ...quiet, waits: [60, 120, 180, 240] };
  expect(waitOf(measured, part({ state: 'asked', askedSeconds: 100 }))).toMatchObject({ earliest: 20, planned: 80 });
});

test('a file that takes longer than any before may take as long again', () => {
  const late = part({ state: 'asked', askedSeconds: 600 });
  expect(waitOf({ ...quiet, waits: [60, 120] }, late)).toEqual({ earliest: 0, planned: 300, latest: 540 });
});

test('files beyond the depth wait for several rounds, unless they have been requested', () => {
  const full = { ...glacier, waiting: { files: 2500, bytes: 0 } };
  expect(waitOf(full, part())).toMatchObject({ earliest: 3 * HOUR, planned: 12 * HOUR });
  expect(waitOf(full, part({ state: 'asked' }))).toMatchObject({ planned: 4 * HOUR });
  const byBytes = { ...glacier, depth: { files: 1000, bytes: 10 ** 9 }, waiting: { files: 4, bytes: 4e9 } };
  expect(waitOf(byBytes, part())).toMatchObject({ planned: 16 * HOUR });
});

const NOW = 1_000_000;
const ahead = { stays: [], turnOf: () => undefined };
const plan = (staged: StagedAhead, readers = 2) => ({
  ...{ now: NOW, ahead },
  drives: new Map([[7, readers]]),
  staged: new Map([[7, staged]]),
  mounted: new Set<number>(),
});
const unresolved = (given: Partial<PartAhead> = {}): PartAhead => ({
  ...{ volumeId: 1, libraryId: 7, medium: findMedium('linear'), files: 1, bytes: 400e6, isReading: false },
  ...{ isMeasured: true, notBefore: undefined, staged: { state: 'unasked', askedSeconds: 0 } },
  ...given,
});

test('the end includes the time to read, and is at the latest twice as far away', () => {
  const range = rangeOf(plan(glacier), 'ann', [unresolved()]);
  expect(range?.earliest).toBe(NOW + 3 * HOUR + 1);
  expect(range?.planned).toBeCloseTo(NOW + 4 * HOUR + 2, 1);
  expect(range?.latest).toBeCloseTo(NOW + 8 * HOUR + 4, 1);
});

test('a file that is being read needs no wait, and a retry begins at its time', () => {
  const reading = rangeOf(plan({ ...quiet, waits: [] }), 'ann', [unresolved({ isReading: true })]);
  expect(reading?.planned).toBeCloseTo(NOW + 2, 1);
  const later = rangeOf(plan(glacier), 'ann', [unresolved({ notBefore: NOW + 600 })]);
  expect(later?.planned).toBeCloseTo(NOW + 600 + 4 * HOUR + 2, 1);
});

test('without a reader, or without an estimate for one library, there is no end', () => {
  expect(rangeOf({ ...plan(glacier), drives: new Map() }, 'ann', [unresolved()])).toBeUndefined();
  expect(rangeOf(plan({ ...quiet, waits: [] }), 'ann', [unresolved()])).toBeUndefined();
});

test('a sample of many waits includes the shortest and the longest', () => {
  expect(sampleWaits([3, 1, 2], 10)).toEqual([1, 2, 3]);
  const many = Array.from({ length: 1001 }, (_, n) => 1000 - n);
  expect(sampleWaits(many, 5)).toEqual([0, 250, 500, 750, 1000]);
});
