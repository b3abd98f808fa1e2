import { expect, test } from 'vitest';
import { againSeconds, pollSeconds, restSeconds } from '../../src/engine/staging/rests.js';
import { LibraryError } from '../../src/tape/backend.js';
import { RetryLaterError } from '../../src/tape/staging.js';

const away = new LibraryError('TRANSIENT', 'it is away');

test('a library that cannot answer rests for a while that doubles, up to five minutes', () => {
  const rests = [0, 1, 2, 3, 8, 9, 1000].map((before) => restSeconds(away, before, 1));
  expect(rests).toEqual([1, 2, 4, 8, 256, 300, 300]);
  expect(restSeconds(away, 3, 0)).toBe(6);
});

test('a library that says when to come again is left alone for so long, within reason', () => {
  const rest = (seconds: number) => restSeconds(new RetryLaterError('busy', seconds), 5, 0);
  expect([0, 1, 90, 1e9].map(rest)).toEqual([1, 1, 90, 3600]);
});

test('what is asked for again is so at once the first time, and after a pause that doubles then', () => {
  expect([0, 1, 2, 3, 10, 11, 50].map(againSeconds)).toEqual([0, 1, 2, 4, 512, 600, 600]);
});

test('a demand is looked at less often the longer it takes, within the bounds of its library', () => {
  const look = (age: number) => pollSeconds({ least: 60, most: 600 }, age, 0);
  expect([0, 60, 240, 1200, 86_400].map(look)).toEqual([60, 60, 60, 300, 600]);
  expect(pollSeconds({ least: 60, most: 600 }, 1200, 1)).toBe(375);
  expect(pollSeconds({ least: 60, most: 600 }, 86_400, 1)).toBe(600);
});
