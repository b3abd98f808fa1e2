/** Limiters: of event streams, of look-ups of callers, of long lists, and of calls to restore disks. */
import { EventEmitter } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Arrivals, letNextIn } from '../../src/access/limits/arrivals.js';
import { Lookups } from '../../src/access/lookups.js';
import { type LongRead, LongReads } from '../../src/database/long-reads.js';
import { CallPlaces } from '../../src/engine/disk/call-places.js';
import { TapeError } from '../../src/errors.js';
import { waitFor } from '../support/wait.js';

/** Connections that are admitted at once. */
const PLACES = 16;

/** Returns the admission control, the addresses that were admitted, and a function that connects. */
function open() {
  const arrivals = new Arrivals((req) => (req as IncomingMessage & { address: string }).address);
  const inside: string[] = [];
  const come = (address: string, { accept = 'text/event-stream', complete = true } = {}) => {
    const res = new EventEmitter() as ServerResponse;
    const req = { address, complete, headers: { accept } } as unknown as IncomingMessage;
    arrivals.enter(req, res, async () => inside.push(address));
    return res;
  };
  return { arrivals, inside, come };
}

test('addresses are admitted in turn, however many connections one of them has', async () => {
  const { inside, come } = open();
  const first = Array.from({ length: PLACES }, () => come('crowd'));
  for (let n = 0; n < 100; n++) come('crowd');
  come('one');
  come('crowd', { accept: 'application/json' });
  expect(inside).toEqual(Array(PLACES + 1).fill('crowd'));
  for (const res of first.slice(0, 2)) letNextIn(res);
  await waitFor('two more', async () => inside.length === PLACES + 3);
  expect(inside).toContain('one');
});

test('a connection that closes frees its slot, admitted or waiting', async () => {
  const { inside, come } = open();
  const first = Array.from({ length: PLACES }, () => come('a'));
  const second = come('b');
  come('c');
  second.emit('close');
  for (const res of first) res.emit('close');
  await waitFor('the last one', async () => inside.includes('c'));
  expect(inside).not.toContain('b');
});

test('a connection that is slow, or whose body is missing, loses its slot after a moment', async () => {
  for (const complete of [false, true]) {
    const { inside, come } = open();
    for (let n = 0; n < PLACES; n++) come('slow', { complete });
    come('next');
    await waitFor('the next one', async () => inside.includes('next'));
  }
});

test('a gateway that stops admits all connections, so that it can answer them', () => {
  const { arrivals, inside, come } = open();
  for (let n = 0; n < PLACES * 3; n++) come(`from ${n % 5}`);
  arrivals.open();
  come('late');
  expect(inside).toHaveLength(PLACES * 3 + 1);
});

test('8 look-ups run at once, addresses take turns, and a failed look-up frees its slot', async () => {
  const lookups = new Lookups();
  const begun: string[] = [];
  const answers: (() => void)[] = [];
  const ask = (key: string) =>
    lookups.ask(key, async () => {
      begun.push(key);
      await new Promise<void>((resolve) => answers.push(resolve));
      if (key === 'many') throw new Error('none');
    });
  const all = [...Array(20).fill('many'), 'one', 'other', 'one'].map((key) => ask(key).catch(() => 'failed'));
  const next = () => new Promise((resolve) => setImmediate(resolve));
  await next();
  expect(begun).toEqual(Array(8).fill('many'));
  while (answers.length > 0) {
    for (const answer of answers.splice(0, 1)) answer();
    await next();
  }
  expect(begun.slice(8, 14)).toEqual(['many', 'one', 'other', 'many', 'one', 'many']);
  expect((await Promise.all(all)).filter((result) => result === 'failed')).toHaveLength(20);
});

test('at most so many calls run at once, and a slot that is free goes to the next in line', async () => {
  const places = new CallPlaces(2, 60_000);
  const leaves = [await places.enter(), await places.enter()];
  const order: string[] = [];
  const third = places.enter().then((leave) => {
    order.push('third');
    return leave;
  });
  const fourth = places.enter().then((leave) => {
    order.push('fourth');
    return leave;
  });
  await Promise.resolve();
  expect(order).toEqual([]);
  leaves[0]?.();
  const leaveThird = await third;
  expect(order).toEqual(['third']);
  leaveThird();
  (await fourth)();
  leaves[1]?.();
  for (const leave of [await places.enter(), await places.enter()]) leave();
});

test('a call that gets no slot in time fails, and later calls get one', async () => {
  const places = new CallPlaces(1, 20);
  const leave = await places.enter();
  await expect(places.enter()).rejects.toThrow(
    new TapeError('TRANSIENT', 'the restore disks have not answered for 0.02 s'),
  );
  leave();
  (await places.enter())();
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
