/** Which index Tapegate uses to find paths that contain a pattern. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { choosePatternLookup, isByRareWord } from '../../src/domain/match.js';

/** Returns the words of the lookup, or the lookup's kind. */
function format(pattern: string): string {
  const lookup = choosePatternLookup(pattern);
  return lookup.by === 'words'
    ? lookup.words.map(({ text, isPrefix }) => text + (isPrefix ? '*' : '')).join(' ')
    : lookup.by;
}

test.each([
  // the first word of a pattern may be the end of a longer word, and the last word may be a prefix
  ['S1A_IW_SLC__1SDV_20180823T05', '1SDV SLC IW 20180823T05*'],
  ['/S1A_IW_SLC__1SDV_20180823T05', '1SDV S1A SLC IW 20180823T05*'],
  ['2018/08/23/S1A_IW_SLC__1SDV_2018082', '08 23 1SDV S1A 2018082*'],
  ['/neodc/sentinel1a/data/IW/L1_SLC/IPF_v2/2018/08/23/S1A_IW_SLC__1S', '2018 sentinel1a 08 23 S1A'],
  ['_029629_', '029629'],
  ['/029629', '029629*'],
  ['_CF4E.zip', 'CF4E'],
  ['_CF4E.zip.part2.tar', 'part2 CF4E zip'],
  ['17T05_029629_', '029629'],
  ['/data/data/data/', 'data'],
  ['/data/Amon_', 'data Amon'],
  ['/Amon', 'Amon*'],
  ['as_Amon', 'Amon*'],
  ['/日本語/', '日本語'],
  ['/q/', 'q'],
  ['/%/', '%'],
  // the pattern is inside a word, or has text that is rarer than all its whole words
  ['029629', 'trigrams'],
  ['zyx', 'trigrams'],
  ['tas_Amon', 'trigrams'],
  ['entinel1a/data/', 'trigrams'],
  ['xqzwvb/2017/12/', 'trigrams'],
  ['sentinel1a/da', 'trigrams'],
  // too many words begin with the pattern
  ['/qz', 'trigrams'],
  ['.nc', 'trigrams'],
  ['.q', 'trigrams'],
  ['qz/', 'trigrams'],
  // no index supports the pattern
  ['qz', 'scan'],
  ['q/', 'scan'],
  ['日本', 'scan'],
  ['%', 'scan'],
  ['_', 'scan'],
  ['//', 'scan'],
  ['\\', 'scan'],
])('%j is found by %s', (pattern, how) => {
  expect(format(pattern)).toBe(how);
});

test.each([
  ['/20180823T05', true],
  ['_20180823_', true],
  ['S1A_IW_SLC__1SDV_20180823T05', true],
  ['_0029629_', true],
  ['/2018/08/23/', false],
  ['/neodc/sentinel1a/data/IW/', false],
  ['0029629', false], // uses trigrams
  ['%', false],
])('%j contains a word that is rare in any catalogue: %s', (pattern, isRareThere) => {
  expect(isByRareWord(pattern)).toBe(isRareThere);
});

test('a long word is cut between characters', () => {
  expect(format(`/${'🧲'.repeat(200)}/`)).toBe(`${'🧲'.repeat(100)}*`);
  expect(format(`/${'x'.repeat(100)}/`)).toBe('x'.repeat(100));
});

test('every path that contains the pattern contains its words', () => {
  const piece = fc.oneof(
    fc.constantFrom(...'/_-.+=,:@~ ', 'a', 'ab', 'abcd', '20180823', '%', "'", '\\', '🧲'),
    fc.string({ unit: 'grapheme', maxLength: 4 }),
  );
  const texts = fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join(''));
  fc.assert(
    fc.property(texts, texts, texts, (before, pattern, after) => {
      const lookup = choosePatternLookup(pattern || '/');
      if (lookup.by !== 'words') return;
      const words = `${before}${pattern || '/'}${after}`.split(/[/_\-.+=,:@~ ]/);
      for (const { text, isPrefix } of lookup.words) {
        expect(words.some((word) => (isPrefix ? word.startsWith(text) : word === text))).toBe(true);
      }
    }),
    { numRuns: 500 },
  );
});
