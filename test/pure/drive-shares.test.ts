/** How engines share drives: which engine claims a drive, and which engine returns one. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  freeFor,
  freeForOthers,
  isToGiveBack,
  type SharedDrive,
  type SharingEngine,
} from '../../src/planner/drive-shares.js';

const IDS = ['a', 'b', 'c', 'd', 'e', 'f'];

/** Engines that want every drive within their reach, and act in turn. */
class Site {
  readonly engines: readonly SharingEngine[];
  readonly holders: (string | undefined)[];

  constructor(engines: readonly SharingEngine[], holders: readonly (string | undefined)[]) {
    this.engines = engines;
    this.holders = [...holders];
  }

  get drives(): SharedDrive[] {
    return this.holders.map((holder, n) => ({ id: n, number: n + 1, holder, isMounted: false }));
  }

  get counts(): number[] {
    return this.engines.map(({ id }) => this.holders.filter((holder) => holder === id).length);
  }

  seenBy(engine: SharingEngine) {
    return { drives: this.drives, askers: this.engines.filter(({ id }) => id !== engine.id) };
  }

  /** Lets an engine act once. @returns whether the engine claimed or returned a drive */
  turn(engine: SharingEngine): boolean {
    const seen = this.seenBy(engine);
    const left = freeForOthers(engine, seen).map(({ id }) => id);
    const free = freeFor(engine, this.drives).find(({ id }) => !left.includes(id));
    if (free) {
      this.holders[free.number - 1] = engine.id;
      return true;
    }
    const given = this.drives.find(({ number }) => isToGiveBack(engine, number, seen));
    if (!given) return false;
    this.holders[given.number - 1] = undefined;
    return true;
  }

  /** Lets engines act in turn until no drive changes its engine. */
  settle(order: (round: number) => readonly SharingEngine[] = () => this.engines): void {
    for (let round = 0; round < 200; round++) {
      const hasMoved = order(round).map((engine) => this.turn(engine));
      if (!hasMoved.includes(true)) return;
    }
    throw new Error('drives keep changing');
  }
}

const site = (weights: readonly number[], holders: readonly (string | undefined)[]) =>
  new Site(
    weights.map((weight, n) => ({ id: IDS[n] ?? '', weight, reach: holders.length })),
    holders,
  );

const all = (id: string | undefined, length: number) => Array.from({ length }, () => id);

test.each([
  [1, [1, 1], [1, 0]],
  [1, [1, 3], [0, 1]],
  [2, [1, 1], [1, 1]],
  [2, [1, 1, 1], [1, 1, 0]],
  [4, [3, 1], [3, 1]],
  [4, [1, 3], [1, 3]],
  [12, [1, 2, 3], [2, 4, 6]],
  [12, [100, 1], [12, 0]],
  [6, [1, 0, 1], [3, 0, 3]],
  [5, [7], [5]],
])('%i drives of the first engine are shared by the weights %j as %j', (drives, weights, shares) => {
  const shared = site(weights, all('a', drives));
  shared.settle();
  expect(shared.counts).toEqual(shares);
});

const sites = fc
  .record({
    drives: fc.integer({ min: 1, max: 12 }),
    engines: fc.uniqueArray(
      fc.record({
        id: fc.constantFrom(...IDS),
        weight: fc.integer({ min: 0, max: 9 }),
        reach: fc.integer({ min: 1, max: 12 }),
      }),
      { selector: ({ id }) => id, minLength: 1, maxLength: 6 },
    ),
    // the engine 'old' keeps its drives and claims no more
    holders: fc.array(fc.option(fc.constantFrom(...IDS, 'old'), { nil: undefined }), { minLength: 12, maxLength: 12 }),
    turns: fc.array(fc.nat(5), { minLength: 6, maxLength: 6 }),
  })
  .map(({ drives, engines, holders, turns }) => {
    const shared = new Site(engines, holders.slice(0, drives));
    const order = (round: number) =>
      engines.map((engine, n) => engines[(n + round + (turns[n] ?? 0)) % engines.length] ?? engine);
    return { shared, order };
  });

test('from any start and in any order, drives soon stop changing, and no reachable drive stays free', () => {
  fc.assert(
    fc.property(sites, ({ shared, order }) => {
      shared.settle(order);
      shared.settle();
      for (const { number, holder } of shared.drives) {
        if (holder === undefined) expect(shared.engines.filter(({ reach }) => number <= reach)).toEqual([]);
      }
    }),
    { numRuns: 300 },
  );
});

test('an engine gives back no drive unless another engine asks and no drive is free', () => {
  fc.assert(
    fc.property(sites, ({ shared: { drives, engines } }) => {
      for (const engine of engines) {
        expect(freeForOthers(engine, { drives, askers: [] })).toEqual([]);
        for (const { number, holder } of drives) {
          expect(isToGiveBack(engine, number, { drives, askers: [] })).toBe(false);
          const asker = { id: 'new', weight: 1000, reach: 12 };
          const isGiven = isToGiveBack(engine, number, { drives, askers: [asker] });
          if (holder !== engine.id || drives.some((drive) => drive.holder === undefined)) expect(isGiven).toBe(false);
        }
      }
    }),
  );
});

test('an engine gives back a drive if the only free drive is beyond the reach of the engine that asks', () => {
  const [engine, asker] = [3, 2].map((reach, n) => ({ id: IDS[n] ?? '', weight: 1, reach })) as [
    SharingEngine,
    SharingEngine,
  ];
  const { drives } = new Site([engine, asker], ['a', 'a', undefined]);
  expect(isToGiveBack(engine, 2, { drives, askers: [asker] })).toBe(true);
});

test('an engine gives back one drive at a time', () => {
  const mounts = fc.array(fc.boolean(), { minLength: 12, maxLength: 12 });
  const asker = { id: 'new', weight: 1000, reach: 12 };
  fc.assert(
    fc.property(sites, fc.integer({ min: 1, max: 12 }), mounts, ({ shared: { drives, engines } }, reach, mounted) => {
      const taken = drives.map((drive, n) => ({
        ...drive,
        holder: drive.holder ?? 'old',
        isMounted: mounted[n] === true,
      }));
      for (const engine of engines.filter(({ weight }) => weight > 0)) {
        const own = taken.filter(
          ({ number, holder, isMounted }) => holder === engine.id && number <= reach && !isMounted,
        );
        const seen = { drives: taken, askers: [{ ...asker, reach }] };
        const given = own.filter(({ number }) => isToGiveBack(engine, number, seen));
        expect(given).toEqual(own.slice(-1));
      }
    }),
  );
});

test('an engine with more weight has no fewer drives, and equal weights differ by one drive at most', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 12 }),
      fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 6 }),
      fc.array(fc.nat(5), { minLength: 12, maxLength: 12 }),
      (drives, weights, first) => {
        const shared = site(
          weights,
          first.slice(0, drives).map((n) => IDS[n % weights.length]),
        );
        shared.settle();
        const { counts } = shared;
        for (const [n, a] of weights.entries()) {
          for (const [m, b] of weights.entries()) {
            if (a > b) expect(counts[n]).toBeGreaterThanOrEqual(counts[m] ?? 0);
            if (a === b) expect(Math.abs((counts[n] ?? 0) - (counts[m] ?? 0))).toBeLessThanOrEqual(1);
          }
        }
      },
    ),
  );
});
