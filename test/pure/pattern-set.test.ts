/** A set of patterns that is searched in many paths at once. */
import { afterEach, expect, test, vi } from 'vitest';
import { PatternSet } from '../../src/operations/requests/pattern-set.js';

const LETTERS = ['a', 'b', '/', '.', 'é', '\u{1F600}', '\u{1F601}'];

/** A pseudorandom generator (Park-Miller). */
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

function createSet(patterns: readonly string[]): PatternSet {
  const set = new PatternSet();
  for (const [id, pattern] of patterns.entries()) set.add({ id, pattern });
  return set;
}

function findTogether(patterns: readonly string[], paths: readonly string[]): string[] {
  const set = createSet(patterns);
  return [...set.find(paths)].flat().map(({ id, path }) => `${id} in ${path}`);
}

test.each([1, 3, 5])('patterns are found in exactly the paths that contain them (%i)', (seed) => {
  const random = createRandom(seed);
  const letters = LETTERS.slice(0, 2 + seed);
  const text = (most: number) =>
    Array.from({ length: 1 + random(most) }, () => letters[random(letters.length)]).join('');
  const paths = Array.from({ length: 200 }, () => text(150));
  const parts = paths
    .map((path) => [...path].slice(random(20), 20 + random(130)).join(''))
    .filter((part) => part !== '');
  const patterns = [...parts, ...Array.from({ length: 100 }, () => text(12))];
  const expected = findOneByOne(patterns, paths);
  expect(expected.length).toBeGreaterThan(parts.length);
  expect(findTogether(patterns, paths).sort()).toEqual(expected.sort());
});

test('a pattern is found once per path', () => {
  const found = findTogether(['ab', 'ab', 'abababab'], ['ababababab', '/ab']);
  expect(found).toEqual(['0 in 0', '1 in 0', '2 in 0', '0 in 1', '1 in 1']);
});

const FOLDER = '/archive/project/a-folder-with-a-name-of-more-than-seventy-letters-as-there-are-some/';
const digits = (n: number) => String(n).padStart(4, '0');

test.each([
  ['begins like some', (n: number) => `/archive/project/walk-${digits(n)}/`],
  ['ends with a whole directory', (n: number) => `${digits(n)}${FOLDER}`],
  ['begins with a whole directory', (n: number) => `${FOLDER}${digits(n + 5000)}`],
  ['has two parts of paths', (n: number) => `${FOLDER}run-${digits(n % 1000)}${FOLDER}run-`],
  [
    'has overlapping parts of paths',
    (n: number) => `-${digits(n % 1000)}/output.nc/archive/run-${digits(n % 1000)}/output`,
  ],
])('a pattern that %s and is in no path is compared with no path', (_, build) => {
  const paths = Array.from({ length: 1000 }, (_, n) => `${FOLDER}run-${digits(n)}/output.nc/archive/run-all/output`);
  const patterns = Array.from({ length: 1000 }, (_, n) => build(n));
  const set = createSet(patterns);
  const compare = [vi.spyOn(String.prototype, 'includes'), vi.spyOn(String.prototype, 'startsWith')];
  const found = [...set.find(paths)].flat();
  const count = compare.reduce((sum, { mock }) => sum + mock.calls.length, 0);
  expect({ found, count }).toEqual({ found: [], count: 0 });
});

afterEach(() => {
  vi.restoreAllMocks();
});

test('no patterns or no paths return nothing', () => {
  expect([findTogether([], ['/a']), findTogether(['/a'], [])]).toEqual([[], []]);
});
