/** Limiters: of long lists, and of anything else. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Limiter } from '../../src/core/limiter.js';
import { type LongRead, LongReads } from '../../src/database/long-reads.js';

describe('a limiter', () => {
  /** Takes room, and records the name once it is admitted. */
  function follow(limiter: Limiter, admitted: string[]) {
    return async (name: string, how: Parameters<Limiter['take']>[0] = {}) => {
      const leave = await limiter.take(how);
      admitted.push(name);
      return leave;
    };
  }
  const next = () => new Promise((resolve) => setImmediate(resolve));

  test('admits as many as fit, and the next in line when one leaves, which it can do once', async () => {
    const admitted: string[] = [];
    const take = follow(new Limiter(2), admitted);
    const all = ['a', 'b', 'c', 'd', 'e'].map((name) => take(name));
    await next();
    expect(admitted).toEqual(['a', 'b']);
    const leave = await all[0];
    leave?.();
    leave?.();
    await next();
    expect(admitted).toEqual(['a', 'b', 'c']);
    for (const each of all) (await each)();
    expect(admitted).toEqual(['a', 'b', 'c', 'd', 'e']);
  });

  test('admits keys in turn, however many wait for one of them', async () => {
    const admitted: string[] = [];
    const take = follow(new Limiter(1), admitted);
    const all = ['many', 'many', 'many', 'many', 'one', 'other', 'one'].map((key) => take(key, { key }));
    for (const each of all.slice(0, 1)) (await each)();
    const rest = all.slice(1).map(async (each) => (await each)());
    await Promise.all(rest);
    expect(admitted).toEqual(['many', 'many', 'one', 'other', 'many', 'one', 'many']);
  });

  test('admits by cost: nothing passes a large one that waits, and what is larger than the limit goes alone', async () => {
    const admitted: string[] = [];
    const take = follow(new Limiter(10), admitted);
    const [small, large, little] = [take('6', { cost: 6 }), take('11', { cost: 11 }), take('4', { cost: 4 })];
    await next();
    expect(admitted).toEqual(['6']);
    (await small)();
    await next();
    expect(admitted).toEqual(['6', '11']);
    (await large)();
    await little;
  });

  test('ends a wait that takes too long, and keeps its room for others', async () => {
    const admitted: string[] = [];
    const limiter = new Limiter(10);
    const take = follow(limiter, admitted);
    const leave = await take('first', { cost: 6 });
    const late = { ms: 20, error: () => new Error('it took too long') };
    const [large, small] = [take('large', { cost: 9, late }), take('small', { cost: 4 })];
    await expect(large).rejects.toThrow('it took too long');
    (await small)();
    leave();
    (await take('all', { cost: 10, late }))();
    expect(admitted).toEqual(['first', 'small', 'all']);
  });
});

describe('long lists', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const createReads = (places: number) =>
    new LongReads({ places, waitMs: 5000, least: { windowMs: 1000, bytesPerSecond: 100 }, what: 'long lists' });

  /** Advances the clock while each reader takes so many bytes a second. */
  async function pass(seconds: number, readers: readonly (readonly [LongRead, number])[]): Promise<void> {
    for (let tick = 0; tick < seconds * 10; tick++) {
      await vi.advanceTimersByTimeAsync(100);
      for (const [{ pace }, bytes] of readers) pace.took(bytes / 10);
    }
  }

  test('only a very slow reader loses its slot, when another one waits', async () => {
    const reads = createReads(2);
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
    const reads = createReads(3);
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
});
