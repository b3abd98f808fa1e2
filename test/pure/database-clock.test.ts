import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { DatabaseClock } from '../../src/database/clock.js';

/** Of the process's own clock. */
let elapsedMs: number;

beforeEach(() => {
  elapsedMs = 5000;
  vi.spyOn(performance, 'now').mockImplementation(() => elapsedMs);
});
afterEach(() => {
  vi.restoreAllMocks();
});

/** The database has said, just now, that so many seconds of 2026 have gone; the answer took so long. */
function tell(clock: DatabaseClock, seconds: number, tookMs = 0): void {
  clock.set(Date.UTC(2026, 0, 1) * 1000 + seconds * 1e6, { from: elapsedMs - tookMs, until: elapsedMs });
}

test('the clock goes on from what the database has said, to the microsecond', () => {
  const clock = new DatabaseClock();
  tell(clock, 60.000007);
  expect(clock.now()).toBe('2026-01-01T00:01:00.000007');
  elapsedMs += 1500.25;
  expect(clock.now()).toBe('2026-01-01T00:01:01.500257');
});

test('an answer is right for the middle of the time that it took, and a slow one does not replace a quick one', () => {
  const clock = new DatabaseClock();
  tell(clock, 60, 200);
  expect(clock.now()).toBe('2026-01-01T00:01:00.100000');
  tell(clock, 59, 4000); // 58 to 62
  expect(clock.now()).toBe('2026-01-01T00:01:00.100000');
  tell(clock, 60.05, 20);
  expect(clock.now()).toBe('2026-01-01T00:01:00.100000'); // it stands still: what follows is not dated before
  elapsedMs += 100;
  expect(clock.now()).toBe('2026-01-01T00:01:00.160000');
});

test('a slow answer counts where what is known cannot be true any more', () => {
  const clock = new DatabaseClock();
  tell(clock, 60);
  tell(clock, 240, 4000);
  expect(clock.now()).toBe('2026-01-01T00:04:02');
});

test('a clock that was set back a little stands still, and one that was set back far is followed', () => {
  const clock = new DatabaseClock();
  tell(clock, 60);
  expect(clock.now()).toBe('2026-01-01T00:01:00');
  tell(clock, 59.5);
  expect(clock.now()).toBe('2026-01-01T00:01:00');
  tell(clock, 30);
  expect(clock.now()).toBe('2026-01-01T00:00:30');
});
