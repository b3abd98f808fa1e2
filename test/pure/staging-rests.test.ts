/** The pauses of an engine between calls of a staging library. */
import { expect, test } from 'vitest';
import { againSeconds, pollSeconds, restSeconds } from '../../src/engine/staging/rests.js';
import { LibraryError } from '../../src/tape/backend.js';
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
