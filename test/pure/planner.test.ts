/** Choices of the planner, and the planner's results in the simulator. */
import { describe, expect, test } from 'vitest';
import { makeBursts } from '../../bench/bursts.js';
import { planAhead } from '../../src/planner/ahead.js';
import type { UserQueue, VolumeQueue } from '../../src/planner/backlog.js';
import { estimateReading, findMedium, locateSeconds, pointAt } from '../../src/planner/media.js';
import { orderReads } from '../../src/planner/order.js';
import {
  chooseNext as chooseFrom,
  chooseSweep,
  defaultPolicy,
  isTimeToLeave as isTimeFor,
  openBacklog,
  type ScheduleState,
} from '../../src/planner/schedule.js';
import { compareStrategies } from '../../src/simulator/compare.js';
import { type PlannedOptions, PlannedStrategy } from '../../src/simulator/planned.js';
import { simulate } from '../../src/simulator/simulate.js';
import { type Arrival, createRandom, makeBatch, parseTrace } from '../../src/simulator/workload.js';
import { findLongestPart } from '../support/longest-part.js';
import { followEnds } from '../support/recorded-ends.js';

const lto8 = findMedium('lto-8');

const chooseNext = (queues: VolumeQueue[], state: ScheduleState) => chooseFrom(openBacklog(queues, state), state);
const isTimeToLeave = (
  mounted: Omit<Parameters<typeof isTimeFor>[0], 'medium'>,
  others: VolumeQueue[],
  state: ScheduleState,
) => isTimeFor({ medium: lto8, ...mounted }, openBacklog(others, state), state);

describe('the order of reads on a volume', () => {
  const random = createRandom(3);
  const extents = Array.from({ length: 600 }, () => ({ start: Math.floor(random() * 11e12), size: 2.5e9 }));

  test.each([0, 1, 2, 100, 600])('contains each of %i files once', (count) => {
    const { order } = orderReads(lto8, 0, extents.slice(0, count));
    expect([...order].sort((a, b) => a - b)).toEqual(Array.from({ length: count }, (_, n) => n));
  });

  test('takes little more time than the lower bound', () => {
    const files = extents.slice(0, 100);
    const result = orderReads(lto8, 0, files);
    let at = pointAt(lto8, 0);
    let seconds = 0;
    for (const index of result.order) {
      const file = files[index] ?? { start: 0, size: 0 };
      seconds += locateSeconds(lto8, at, pointAt(lto8, file.start));
      at = pointAt(lto8, file.start + file.size);
    }
    expect(result.boundSeconds).toBeLessThanOrEqual(seconds);
    expect(seconds).toBeLessThan((result.boundSeconds ?? 0) * 1.05);
  });

  test('on a medium without wraps ascends from the head, and returns to the beginning', () => {
    const files = [30, 10, 20].map((start) => ({ start, size: 1 }));
    expect(orderReads(findMedium('linear'), 15, files).order).toEqual([2, 0, 1]);
  });
});

const queue = (volume: string, ...users: Partial<UserQueue>[]): VolumeQueue => ({
  volume,
  medium: lto8,
  users: users.map((user) => ({ user: 'ann', files: 1, bytes: 1e9, oldest: 1000, priority: 0, ...user })),
});

describe('the next volume is', () => {
  const state = { shares: new Map<string, number>(), now: 2000, policy: defaultPolicy };

  test('that of the user with the least drive time', () => {
    const shares = new Map([['heavy', 5000]]);
    const queues = [queue('A', { user: 'heavy', files: 999, bytes: 1e12 }), queue('B', { user: 'light' })];
    expect(chooseNext(queues, { ...state, shares })?.queue.volume).toBe('B');
  });

  test('among volumes of one user, the one with most bytes', () => {
    const queues = [queue('A', {}), queue('B', { files: 10, bytes: 1e10 })];
    expect(chooseNext(queues, state)?.queue.volume).toBe('B');
  });

  const late = 1000 + defaultPolicy.maxWaitSeconds + 1;

  test('that with a higher priority, until another one has waited too long', () => {
    const queues = [queue('A', { files: 10, bytes: 1e10 }), queue('B', { user: 'ben', files: 10, priority: 1 })];
    const shares = new Map([['ben', 1]]);
    expect(chooseNext(queues, { ...state, shares })?.queue.volume).toBe('B');
    const again = [queues[0] ?? queue('A'), queue('B', { user: 'ben', oldest: late - 200, priority: 1 })];
    expect(chooseNext(again, { ...state, shares, now: late })?.queue.volume).toBe('A');
  });

  test('among those that have waited too long, that of the user with less drive time', () => {
    const queues = [queue('A', { user: 'heavy' }), queue('B', { user: 'light', oldest: late - 200 })];
    const shares = new Map([['heavy', 5000]]);
    expect(chooseNext(queues, { ...state, now: late, shares })?.queue.volume).toBe('B');
  });

  test('the one with a file that has waited too long', () => {
    const queues = [queue('A', {}), queue('B', { oldest: 1500, files: 10, bytes: 1e10 })];
    expect(chooseNext(queues, { ...state })?.queue.volume).toBe('B');
    expect(chooseNext(queues, { ...state, now: late })?.queue.volume).toBe('A');
  });

  test('none for a while, if there is little to read and a mount has a cost', () => {
    const young = { ...state, now: 1000 + defaultPolicy.collectSeconds - 1 };
    expect(chooseNext([queue('A', {})], young)).toBeUndefined();
    expect(chooseNext([queue('A', {})], { ...young, now: young.now + 1 })?.queue.volume).toBe('A');
    expect(chooseNext([queue('A', { files: defaultPolicy.collectFiles })], young)?.queue.volume).toBe('A');
    expect(chooseNext([queue('A', { bytes: defaultPolicy.collectBytes })], young)?.queue.volume).toBe('A');
    expect(chooseNext([{ ...queue('A', {}), medium: findMedium('linear') }], young)?.queue.volume).toBe('A');
  });
});

test('after its time, a drive leaves a volume only for a user with less drive time', () => {
  const heavy = { user: 'heavy', files: 9, bytes: 9e9, oldest: 0, priority: 0 };
  const shares = new Map([['heavy', 5000]]);
  const state = { shares, now: 10_000, policy: defaultPolicy };
  const others = [queue('B', { user: 'light' })];
  expect(isTimeToLeave({ since: 9_999, here: [heavy] }, others, state)).toBe(false);
  expect(isTimeToLeave({ since: 0, here: [heavy] }, others, state)).toBe(true);
  expect(isTimeToLeave({ since: 0, here: [heavy] }, [queue('B', { user: 'heavy' })], state)).toBe(false);
  expect(isTimeToLeave({ since: 0, here: [heavy] }, [], state)).toBe(false);
});

test('a drive leaves a volume for another one of the same user that has waited too long', () => {
  const now = 2 * defaultPolicy.maxWaitSeconds;
  const here = [{ user: 'ann', files: 9, bytes: 9e9, oldest: now - 60, priority: 0 }];
  const state = { shares: new Map<string, number>(), now, policy: defaultPolicy };
  expect(isTimeToLeave({ since: 0, here }, [queue('B', { oldest: 0 })], state)).toBe(true);
  expect(isTimeToLeave({ since: 0, here }, [queue('B', { oldest: now - 600 })], state)).toBe(false);
});

test('a drive finishes a sweep of less than an hour, also if others have had less drive time', () => {
  const here = [{ user: 'heavy', files: 9, bytes: 9e9, oldest: 0, priority: 0 }];
  const reading = estimateReading(lto8, 9, 9e9);
  const state = {
    shares: new Map([['heavy', 5000]]),
    now: defaultPolicy.sweepSeconds - reading,
    policy: defaultPolicy,
  };
  const others = [queue('B', { user: 'light', oldest: 0 })];
  expect(isTimeToLeave({ since: 0, here }, others, state)).toBe(false);
  expect(isTimeToLeave({ since: -1, here }, others, state)).toBe(true);
});

describe('a sweep of a volume', () => {
  const shares = new Map([
    ['ben', 500],
    ['cy', 5000],
  ]);
  const state = { shares, now: 2000, policy: defaultPolicy };
  const sweepOf = (here: VolumeQueue, at: ScheduleState = state, begun?: ReturnType<typeof chooseSweep>) => [
    ...chooseSweep(here, at, begun).users,
  ];
  const long = { files: 200, bytes: 400e9 };

  test('includes all users if it takes less than an hour', () => {
    expect(sweepOf(queue('A', { user: 'cy' }, { user: 'ben' }, { user: 'ann' }))).toEqual(['ann', 'ben', 'cy']);
  });

  test('includes users with a similar drive time if it would take longer', () => {
    const here = queue('A', { user: 'cy', ...long }, { user: 'ben', ...long }, { user: 'ann', ...long });
    expect(sweepOf(here)).toEqual(['ann', 'ben']);
  });

  test('includes no user out of order', () => {
    const here = queue('A', { user: 'ann' }, { user: 'ben', ...long }, { user: 'cy' });
    expect(sweepOf(here, { ...state, shares: new Map([...shares, ['ben', 4000]]) })).toEqual(['ann']);
  });

  test('continues for its users, also if others have had less drive time by now', () => {
    const begun = { users: new Set(['cy']), since: 1900 };
    expect(sweepOf(queue('A', { user: 'ann', ...long }, { user: 'cy' }), state, begun)).toEqual(['cy']);
    expect(sweepOf(queue('A', { user: 'ann', ...long }, { user: 'cy' }), { ...state, now: 99_999 }, begun)).toEqual([
      'ann',
    ]);
  });

  test('ends for a higher priority', () => {
    const begun = { users: new Set(['cy']), since: 1900 };
    expect(sweepOf(queue('A', { user: 'ann', priority: 5 }, { user: 'cy' }), state, begun)).toEqual(['ann']);
  });
});

describe('bursts of users on popular volumes', () => {
  const options = { drives: 2, medium: lto8 };
  // the load of bench/ranges.ts with the first seed
  const arrivals = makeBursts(lto8, { seed: 1 });

  test('take fewer drive hours than nearest first, and the waits are not much longer', () => {
    const { rows } = compareStrategies(arrivals, options);
    const [nearest, planned] = rows.filter((row) => ['grouped, nearest first', 'tapegate'].includes(row.strategy));
    if (!nearest || !planned) throw new Error('a strategy is missing');
    expect(planned.driveHours / nearest.driveHours).toBeLessThanOrEqual(0.96);
    expect(planned.wait.p95 / nearest.wait.p95).toBeLessThanOrEqual(1.2);
  });

  test('end within the estimated range for nine requests of ten, including later requests', () => {
    const estimates = followEnds(arrivals, options);
    const right = estimates.filter(({ range, end }) => range.earliest <= end && end <= range.latest);
    expect(estimates.length).toBeGreaterThan(15);
    expect(right.length / estimates.length).toBeGreaterThanOrEqual(0.9);
    // the range must not be too wide
    for (const { at, range } of estimates) {
      expect(range.earliest).toBeGreaterThan(at);
      expect(range.latest - at).toBeLessThanOrEqual(2 * (range.planned - at) + 1.5 * defaultPolicy.sweepSeconds + 1e-6);
    }
  });
});

test('2,000 files on 20 volumes take at most 0.945 of the drive hours of nearest first, and an eighth of arrival order', () => {
  const arrivals = makeBatch(lto8, { user: 'ann', at: 0, files: 2000, volumes: 20, sizeBytes: 2.5e9, seed: 7 });
  const { rows, boundHours = 0 } = compareStrategies(arrivals, { drives: 2, medium: lto8 });
  const hours = Object.fromEntries(rows.map((row) => [row.strategy, row.driveHours]));
  const planned = hours.tapegate ?? Number.NaN;
  expect(planned / (hours['grouped, nearest first'] ?? 0)).toBeLessThanOrEqual(0.945);
  expect(planned / (hours['arrival order'] ?? 0)).toBeLessThanOrEqual(1 / 8);
  expect(planned).toBeGreaterThanOrEqual(boundHours);
  expect(new Set(rows.map((row) => row.strategy)).size).toBe(6);
});

test('ten users with ten files each do not wait for a user with very many', () => {
  const load = { volumes: 20, sizeBytes: 2.5e9 };
  const heavy = makeBatch(lto8, { ...load, user: 'heavy', at: 0, files: 5000, seed: 3 });
  const others = Array.from({ length: 10 }, (_, n) =>
    makeBatch(lto8, { ...load, user: `light-${n}`, at: 3600, files: 10, seed: 4 + n }),
  ).flat();
  const waitOf = (arrivals: Arrival[], options: PlannedOptions) => {
    const outcome = simulate(new PlannedStrategy(lto8, options), arrivals, { drives: 2, medium: lto8 });
    const light = outcome.waits.filter(({ user }) => user !== 'heavy');
    expect(light).toHaveLength(100);
    return light.reduce((sum, { seconds }) => sum + seconds, 0) / 100;
  };
  const alone = waitOf(others, {});
  expect(waitOf([...heavy, ...others], {})).toBeLessThan(3 * alone);
  expect(waitOf([...heavy, ...others], { isFair: false })).toBeGreaterThan(10 * alone);
});

test('no file waits longer than its bound, also if others have a higher priority', () => {
  const options = { drives: 2, medium: lto8 };
  // for two and a half days, one user requests slightly more than the drives can read
  const flood = Array.from({ length: 60 }, (_, hour) =>
    makeBatch(lto8, { user: 'flood', at: hour * 3600, files: 110, volumes: 20, sizeBytes: 25e9, seed: hour }),
  ).flat();
  const drop = makeBatch(lto8, { user: 'drop', at: 3600, files: 20, volumes: 20, sizeBytes: 2.5e9, seed: 1 });
  const arrivals = [...flood, ...drop].sort((a, b) => a.at - b.at);
  const outcome = simulate(new PlannedStrategy(lto8, { priorities: new Map([['flood', 10]]) }), arrivals, options);
  expect(findLongestPart(outcome, options)).toBeLessThanOrEqual(1);
});

const EMPTY = { mounted: undefined, running: { files: 0, bytes: 0 } };

test('the plan ahead reads every file once, those of the user with less drive time first', () => {
  const users = (name: string) => ({ user: name, files: 20, bytes: 50e9, oldest: 0, priority: 0 });
  const queues = ['A', 'B', 'C'].map((volume, index) => ({
    volume,
    volumeId: index + 1,
    libraryId: 1,
    ...{ medium: lto8, measured: lto8, isMounted: false },
    users: [users(volume === 'C' ? 'light' : 'heavy')],
  }));
  const drives = ['one', 'two'].map((name) => ({ name, libraryId: 1, volumeId: null, ...EMPTY }));
  const shares = new Map([['heavy', 9000]]);
  const { stays, turnOf } = planAhead({ queues, drives, shares, now: 1000, policy: defaultPolicy });
  expect(stays.map(({ volume, drive, files }) => ({ volume, drive, files: Math.round(files) }))).toEqual([
    { volume: 'C', drive: 'one', files: 20 },
    { volume: 'A', drive: 'two', files: 20 },
    { volume: 'B', drive: 'one', files: 20 },
  ]);
  const seconds = estimateReading(lto8, 20, 50e9);
  expect(turnOf(3, 'light')?.end).toBeCloseTo(1000 + lto8.mountSeconds + seconds, 3);
  expect(turnOf(2, 'heavy')?.start).toBeCloseTo(1000 + seconds + 2 * lto8.mountSeconds + lto8.unmountSeconds, 3);
  expect(turnOf(3, 'heavy')).toBeUndefined();
});

test('the plan ahead gives drives volumes of their own library, and ignores libraries without drives', () => {
  const users = [{ user: 'ann', files: 20, bytes: 50e9, oldest: 0, priority: 0 }];
  const queues = [1, 2, 2, 3].map((libraryId, index) => ({
    ...{ volume: `V${index}`, volumeId: index + 1, libraryId, medium: lto8, measured: lto8, isMounted: false, users },
  }));
  const drives = [1, 2].map((libraryId) => ({ name: `of ${libraryId}`, libraryId, volumeId: null, ...EMPTY }));
  const { stays, turnOf } = planAhead({ queues, drives, shares: new Map(), now: 1000, policy: defaultPolicy });
  expect(stays.map(({ volume, drive }) => [volume, drive]).sort()).toEqual([
    ['V0', 'of 1'],
    ['V1', 'of 2'],
    ['V2', 'of 2'],
  ]);
  expect(turnOf(4, 'ann')).toBeUndefined();
});

test('a trace is read line by line, and an error names its line', () => {
  const header = 'at,user,volume,start,size';
  expect(parseTrace(`${header}\n5,ann,V1,0,10\n1,bob,V2,20,30\n`)).toEqual([
    { at: 1, user: 'bob', volume: 'V2', start: 20, size: 30 },
    { at: 5, user: 'ann', volume: 'V1', start: 0, size: 10 },
  ]);
  expect(() => parseTrace('at,user\n')).toThrow(/^line 1: /);
  expect(() => parseTrace(`${header}\n1,ann,V1,0,10\n1,ann,V1,x,10\n`)).toThrow(/^line 3: /);
});
