import { expect, test } from 'vitest';
import { PatternSet } from '../../src/operations/requests/pattern-set.js';

const LETTERS = ['a', 'b', '/', '.', 'é', '\u{1F600}', '\u{1F601}'];

/** The same each time: the Park-Miller generator. */
function createRandom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 48_271) % 2_147_483_647;
    return state % below;
  };
}

function findOneByOne(patterns: readonly string[], paths: readonly string[]): string[] {
  return patterns.flatMap((pattern, id) =>
    paths.flatMap((path, n) => (path.includes(pattern) ? [`${id} in ${n}`] : [])),
  );
}

function findTogether(patterns: readonly string[], paths: readonly string[]): string[] {
  const set = new PatternSet(patterns.map((pattern, id) => ({ id, pattern })));
  return [...set.find(paths)].flat().map(({ id, path }) => `${id} in ${path}`);
}

test.each([1, 2, 3, 4, 5])('patterns are found in those paths that hold them, and in no other (%i)', (seed) => {
  const random = createRandom(seed);
  const letters = LETTERS.slice(0, 2 + seed);
  const text = (most: number) =>
    Array.from({ length: 1 + random(most) }, () => letters[random(letters.length)]).join('');
  const paths = Array.from({ length: 600 }, () => text(150));
  const parts = paths
    .map((path) => [...path].slice(random(20), 20 + random(130)).join(''))
    .filter((part) => part !== '');
  const patterns = [...parts, ...Array.from({ length: 300 }, () => text(12))];
  const expected = findOneByOne(patterns, paths);
  expect(expected.length).toBeGreaterThan(parts.length);
  expect(findTogether(patterns, paths).sort()).toEqual(expected.sort());
});

test('a pattern that is in no path costs no search, though its letters are in some', () => {
  const paths = Array.from({ length: 1000 }, (_, n) => `/archive/project/run-${n}/output.nc`);
  const patterns = Array.from({ length: 1000 }, (_, n) => `/archive/project/walk-${n}/`);
  const set = new PatternSet(patterns.map((pattern, id) => ({ id, pattern })));
  // one list for each group of paths, to breathe
  expect([...set.find(paths)]).toEqual([[], [], [], []]);
});

test('no patterns and no paths give nothing', () => {
  expect([findTogether([], ['/a']), findTogether(['/a'], [])]).toEqual([[], []]);
});
