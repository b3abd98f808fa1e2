/** The limiter of long lists, with a simulated clock. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type LongRead, LongReads } from '../../src/database/long-reads.js';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

const open = (places: number) =>
  new LongReads({ places, waitMs: 5000, least: { windowMs: 1000, bytesPerSecond: 100 }, what: 'long lists' });

/** Advances the clock while each reader takes so many bytes a second. */
async function pass(seconds: number, readers: readonly (readonly [LongRead, number])[]): Promise<void> {
  for (let tick = 0; tick < seconds * 10; tick++) {
    await vi.advanceTimersByTimeAsync(100);
    for (const [{ pace }, bytes] of readers) pace.took(bytes / 10);
  }
}

test('only a very slow reader loses its slot, when another one waits', async () => {
  const reads = open(2);
  const [quick, slow] = [await reads.enter('ann'), await reads.enter('ben')];
  for (const { pace } of [quick, slow]) pace.begin();
  const taking = [
    [quick, 200],
    [slow, 10],
  ] as const;
  await pass(3, taking);
  expect([quick.signal.aborted, slow.signal.aborted]).toEqual([false, false]); // nobody waits
  const next = reads.enter('cem');
  expect([quick.signal.aborted, slow.signal.aborted]).toEqual([false, true]);
  expect(slow.signal.reason.message).toContain('took less than 100 bytes a second for 1 s, and others wait');
  await pass(1, taking);
  expect(quick.signal.aborted).toBe(false);
  slow.leave();
  expect((await next).signal.aborted).toBe(false);
});

test('a reader without a slot is refused after a while, with the reason', async () => {
  const reads = open(3);
  const first = await reads.enter('ann');
  await reads.enter('ann');
  const over = expect(reads.enter('ann')).rejects.toThrow('you are reading 2 long lists already');
  await vi.advanceTimersByTimeAsync(5000);
  await over;
  await reads.enter('ben');
  const late = expect(reads.enter('cem')).rejects.toThrow('too many readers are at long lists');
  await vi.advanceTimersByTimeAsync(5000);
  await late;
  first.leave();
  expect((await reads.enter('cem')).signal.aborted).toBe(false);
});
