/** Which engine is to have which drive. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type SharedDrive, type SharingEngine, shareDrives } from '../../src/planner/drive-shares.js';

const IDS = ['a', 'b', 'c', 'd', 'e', 'f'];

const sites = fc
  .record({
    count: fc.integer({ min: 1, max: 12 }),
    engines: fc.uniqueArray(
      fc.record({
        id: fc.constantFrom(...IDS),
        weight: fc.integer({ min: 0, max: 9 }),
        drives: fc.integer({ min: 0, max: 12 }),
        reach: fc.integer({ min: 1, max: 12 }),
      }),
      { selector: ({ id }) => id, maxLength: 6 },
    ),
    holders: fc.array(fc.option(fc.constantFrom(...IDS), { nil: undefined }), { minLength: 12, maxLength: 12 }),
  })
  .map(({ count, engines, holders }) => ({
    engines,
    drives: Array.from({ length: count }, (_, n): SharedDrive => ({ number: n + 1, holder: holders[n] })),
  }));

/** How many drives each engine is to have. */
function count(owners: Map<number, string>, engines: readonly SharingEngine[]): number[] {
  return engines.map(({ id }) => [...owners.values()].filter((owner) => owner === id).length);
}

const settle = (drives: readonly SharedDrive[], owners: Map<number, string>) =>
  drives.map(({ number }): SharedDrive => ({ number, holder: owners.get(number) }));

const free = (length: number) => Array.from({ length }, (_, n): SharedDrive => ({ number: n + 1 }));

const weighing = (...weights: number[]) =>
  weights.map((weight, n): SharingEngine => ({ id: IDS[n] ?? '', weight, drives: 12, reach: 12 }));

test.each([
  [1, [1, 1], [1, 0]],
  [2, [1, 1], [1, 1]],
  [2, [1, 1, 1], [1, 1, 0]],
  [4, [3, 1], [3, 1]],
  [12, [1, 2, 3], [2, 4, 6]],
  [12, [100, 1], [12, 0]],
  [6, [1, 0, 1], [3, 0, 3]],
  [5, [7], [5]],
])('%i drives are shared by weights %j as %j', (drives, weights, shares) => {
  const engines = weighing(...weights);
  expect(count(shareDrives(free(drives), engines), engines)).toEqual(shares);
});

test('no engine is given more than it works with or reaches, and nothing stays free that one could take', () => {
  fc.assert(
    fc.property(sites, ({ drives, engines }) => {
      const owners = shareDrives(drives, engines);
      const counts = count(owners, engines);
      for (const [n, engine] of engines.entries()) {
        expect(counts[n]).toBeLessThanOrEqual(engine.weight > 0 ? engine.drives : 0);
        for (const { number } of drives) {
          if (owners.get(number) === engine.id) expect(number).toBeLessThanOrEqual(engine.reach);
          const couldTake = engine.weight > 0 && number <= engine.reach && (counts[n] ?? 0) < engine.drives;
          if (!owners.has(number)) expect(couldTake).toBe(false);
        }
      }
    }),
  );
});

test('what follows from a state stays, whatever the order in which it is told', () => {
  fc.assert(
    fc.property(sites, ({ drives, engines }) => {
      const owners = shareDrives(drives, engines);
      expect(shareDrives([...drives].reverse(), [...engines].reverse())).toEqual(owners);
      expect(shareDrives(settle(drives, owners), engines)).toEqual(owners);
    }),
  );
});

test('whatever engines have at first, soon nobody gives anything back', () => {
  const step = (drives: readonly SharedDrive[], engines: readonly SharingEngine[]) => {
    const owners = shareDrives(drives, engines);
    return drives.map(({ number, holder }): SharedDrive => {
      const owner = owners.get(number);
      if (holder === undefined) return { number, holder: owner };
      return { number, holder: owner === undefined || owner === holder ? holder : undefined };
    });
  };
  fc.assert(
    fc.property(sites, ({ drives, engines }) => {
      let now = drives;
      for (let n = 0; n < 6; n++) now = step(now, engines);
      expect(step(now, engines)).toEqual(now);
    }),
    { numRuns: 1000 },
  );
});

test('an engine that comes takes drives and moves none between the others, and one that goes leaves its own', () => {
  fc.assert(
    fc.property(sites, fc.integer({ min: 1, max: 9 }), ({ drives, engines: all }, weight) => {
      const engines = all.map((engine) => ({ ...engine, drives: 12, reach: 12 }));
      const before = shareDrives(drives, engines);
      const more = [...engines, { id: 'new', weight, drives: 12, reach: 12 }];
      const settled = settle(drives, before);
      const after = shareDrives(settled, more);
      for (const [number, owner] of after) if (owner !== 'new') expect(before.get(number)).toBe(owner);
      const gone = shareDrives(
        settle(drives, after).map((drive) => (drive.holder === 'new' ? { number: drive.number } : drive)),
        engines,
      );
      for (const [number, owner] of after) if (owner !== 'new') expect(gone.get(number)).toBe(owner);
    }),
  );
});

test('who has the greater weight has as many drives at least, and who weighs the same one more at most', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 12 }),
      fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 6 }),
      (drives, weights) => {
        const engines = weighing(...weights);
        const counts = count(shareDrives(free(drives), engines), engines);
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
