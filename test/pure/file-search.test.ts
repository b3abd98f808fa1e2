/** Searches for files: words, quoted words and globs. */
import { expect, test } from 'vitest';
import { findNearest } from '../../src/core/text/edit-distance.js';
import { parseSearch } from '../../src/domain/file-search.js';

const text = (word: string) => ({ kind: 'text', text: word, isExact: false });
const exact = (word: string) => ({ kind: 'text', text: word, isExact: true });

test('a search consists of words and quoted words', () => {
  expect(parseSearch('  ocean 2024 ')).toEqual([text('ocean'), text('2024')]);
  expect(parseSearch('"Sea Ice" north "*.nc"')).toEqual([exact('Sea Ice'), text('north'), exact('*.nc')]);
  expect(parseSearch('north "Sea I')).toEqual([text('north'), exact('Sea I')]);
  expect(parseSearch('a"b c" ""')).toEqual([text('a"b'), text('c"')]);
  expect(parseSearch('[] [a')).toEqual([text('[]'), text('[a')]);
  expect(parseSearch(' ')).toEqual([]);
});

test.each([
  ['*.nc', '%/%.nc%', '/[^/]*\\.nc(/|$)'],
  ['2024-0?', '%/2024-0_%', '/2024-0[^/](/|$)'],
  ['/demo/*/2024/**', '/demo/%/2024/%', '^/demo/[^/]*/2024/.*$'],
  ['2024/*_1.nc', '%/2024/%\\_1.nc', '/2024/[^/]*_1\\.nc$'],
  ['t[a-c0]', '%/t_%', '/t[a-c0](/|$)'],
  ['t[!a-c]', '%/t_%', '/t[^/a-c](/|$)'],
  ['t[]x-]', '%/t_%', '/t[\\]x\\-](/|$)'],
  ['t[+-9]', '%/t_%', '/t[+-.0-9](/|$)'],
  ['t[--/]', '%/t_', '/t[\\--.]$'],
  ['t[/-9]', '%/t_', '/t[0-9]$'],
  ['/a/**/x.nc', '/a/%x.nc', '^/a/(.*/)?x\\.nc$'],
])('the glob %s becomes patterns for PostgreSQL', (glob, like, regex) => {
  const [term] = parseSearch(glob);
  expect(term).toMatchObject({ kind: 'glob', like, regex });
});

test('a search with too many words or a range in descending order is rejected', () => {
  expect(() => parseSearch('a '.repeat(21))).toThrow('search must have at most 20 words, not 21');
  expect(() => parseSearch('[z-a]')).toThrow('search must not have a range in descending order: "[z-a]"');
  expect(() => parseSearch('[😀-\uFFFD]')).toThrow('descending order');
  expect(() => parseSearch('[a-\uFFFD]')).toThrow(
    'search must not have a range of more than 1000 characters: "[a-\uFFFD]" has 65437',
  );
  expect(() => parseSearch('[ab]'.repeat(21))).toThrow('search must have at most 20 sets in a word, not 21');
  expect(() => parseSearch('[/]')).toThrow('search must not have a set with only a slash: "[/]"');
});

test('the nearest names are the most similar ones, and letter case counts least', () => {
  const names = ['Ocean', 'ocean', 'oceans', 'ice', 'acorn'];
  expect(findNearest('OCEAN', names, 3)).toEqual(['Ocean', 'ocean', 'oceans']);
  expect(findNearest('ocaen', ['ocean', 'oaen', 'ice'], 3)).toEqual(['oaen', 'ocean']);
  expect(findNearest('ice', ['ocean', 'sea'], 3)).toEqual([]);
  expect(findNearest('temprature', ['temperature', 'salinity'], 3)).toEqual(['temperature']);
  expect(findNearest('sst_2024_13.nc', ['sst_2024_12.nc', 'sst_2023_12.nc'], 1)).toEqual(['sst_2024_12.nc']);
});
