/** The clock that follows the database server. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { DatabaseClock } from '../../src/database/clock.js';

/** Milliseconds on the clock of the process. */
let elapsedMs: number;

beforeEach(() => {
  elapsedMs = 5000;
  vi.spyOn(performance, 'now').mockImplementation(() => elapsedMs);
});
afterEach(() => {
  vi.restoreAllMocks();
});

/** Sets the clock by an answer of the database: seconds since the beginning of 2026, and how long the answer took. */
function set(clock: DatabaseClock, seconds: number, tookMs = 0): void {
  clock.set(Date.UTC(2026, 0, 1) * 1000 + seconds * 1e6, { from: elapsedMs - tookMs, until: elapsedMs });
}

test('the clock continues from the time of the database, to the microsecond', () => {
  const clock = new DatabaseClock();
  set(clock, 60.000007);
  expect(clock.now()).toBe('2026-01-01T00:01:00.000007');
  elapsedMs += 1500.25;
  expect(clock.now()).toBe('2026-01-01T00:01:01.500257');
});

test('an answer is the time of its middle, and a slow answer does not replace a fast one', () => {
  const clock = new DatabaseClock();
  set(clock, 60, 200);
  expect(clock.now()).toBe('2026-01-01T00:01:00.100000');
  set(clock, 59, 4000); // 58 to 62
  expect(clock.now()).toBe('2026-01-01T00:01:00.100000');
  set(clock, 60.05, 20);
  expect(clock.now()).toBe('2026-01-01T00:01:00.100000');
  elapsedMs += 100;
  expect(clock.now()).toBe('2026-01-01T00:01:00.160000');
});

test('a slow answer counts if it contradicts the clock', () => {
  const clock = new DatabaseClock();
  set(clock, 60);
  set(clock, 240, 4000);
  expect(clock.now()).toBe('2026-01-01T00:04:02');
});

test('the clock stops for a small step back of the database, and follows a large one', () => {
  const clock = new DatabaseClock();
  set(clock, 60);
  expect(clock.now()).toBe('2026-01-01T00:01:00');
  set(clock, 59.5);
  expect(clock.now()).toBe('2026-01-01T00:01:00');
  set(clock, 30);
  expect(clock.now()).toBe('2026-01-01T00:00:30');
});
