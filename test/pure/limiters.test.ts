/** The limiter of long lists, and limiters in general. */
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Limiter } from '../../src/core/limiter.js';
import { type LongRead, LongReads } from '../../src/db/lists/long-reads.js';

describe('a limiter', () => {
  /** Takes a slot, and records the name when the limiter admits the call. */
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

/** Arrival, duration, key and cost of a call, and the time after which the caller gives up. */
const call = fc.record({
  at: fc.integer({ min: 0, max: 50 }),
  stays: fc.integer({ min: 0, max: 20 }),
  key: fc.constantFrom('ann', 'ben', 'cem'),
  cost: fc.oneof(fc.double({ min: 0, max: 3, noNaN: true }), fc.constantFrom(0.1, 0.2, 0.3, 1, 10)),
  patience: fc.option(fc.integer({ min: 0, max: 30 }), { nil: undefined }),
});
type Call = typeof call extends fc.Arbitrary<infer T> ? T : never;

describe('no call waits forever, regardless of arrivals, ends and aborts', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

  /** Runs all calls. Fails if some calls are still waiting when no more timers are due. */
  async function expectNoneLeft(calls: readonly Call[], pass: (call: Call) => Promise<void>): Promise<void> {
    let open = calls.length;
    const end = () => void open--;
    for (const each of calls)
      void sleep(each.at)
        .then(() => pass(each))
        .then(end, end);
    const most = 100 + calls.reduce((sum, { stays }) => sum + stays + 1, 0);
    await vi.advanceTimersByTimeAsync(most);
    expect(open).toBe(0);
  }

  test('at a limiter of costs, which may be fractions', async () => {
    const property = fc.asyncProperty(fc.array(call, { maxLength: 30 }), async (calls) => {
      const limiter = new Limiter(1);
      await expectNoneLeft(calls, async ({ stays, key, cost, patience }) => {
        const late = patience === undefined ? {} : { late: { ms: patience, error: () => new Error('late') } };
        const leave = await limiter.take({ key, cost, ...late });
        await sleep(stays);
        leave();
      });
      await limiter.take({ cost: 1, late: { ms: 0, error: () => new Error('no room is left') } });
    });
    await fc.assert(property, { numRuns: 200 });
  });

  test('at a limiter of queries, whose callers may disconnect', async () => {
    const least = { windowMs: 60_000, bytesPerSecond: 1 };
    const property = fc.asyncProperty(fc.array(call, { maxLength: 30 }), async (calls) => {
      const reads = new LongReads({ slots: 4, waitMs: 100_000, least, what: 'queries' });
      await expectNoneLeft(calls, async ({ stays, key, patience }) => {
        const reader = new AbortController();
        if (patience !== undefined) setTimeout(() => reader.abort(new Error('gone')), patience);
        const { leave } = await reads.enter(key, reader.signal);
        await sleep(stays);
        leave();
      });
      for (const key of ['ann', 'ann', 'ben', 'cem']) await reads.enter(key);
    });
    await fc.assert(property, { numRuns: 200 });
  });
});

describe('long lists', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const createReads = (slots: number) =>
    new LongReads({ slots, waitMs: 5000, least: { windowMs: 1000, bytesPerSecond: 100 }, what: 'long lists' });

  /** Advances the clock, while each reader reads its number of bytes a second. */
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
    expect([quick.signal.aborted, slow.signal.aborted]).toEqual([false, false]); // no other call waits
    const next = reads.enter('cem');
    expect([quick.signal.aborted, slow.signal.aborted]).toEqual([false, true]);
    expect(slow.signal.reason.message).toContain(
      'read less than 100 bytes per second for 1 s while other clients waited',
    );
    await pass(1, taking);
    expect(quick.signal.aborted).toBe(false);
    slow.leave();
    expect((await next).signal.aborted).toBe(false);
  });

  test('a reader without a slot is refused after a while, with the reason', async () => {
    const reads = createReads(3);
    const first = await reads.enter('ann');
    await reads.enter('ann');
    const over = expect(reads.enter('ann')).rejects.toThrow('you already have 2 long lists in progress');
    await vi.advanceTimersByTimeAsync(5000);
    await over;
    await reads.enter('ben');
    const late = expect(reads.enter('cem')).rejects.toThrow('too many concurrent long lists');
    await vi.advanceTimersByTimeAsync(5000);
    await late;
    first.leave();
    expect((await reads.enter('cem')).signal.aborted).toBe(false);
  });
});
