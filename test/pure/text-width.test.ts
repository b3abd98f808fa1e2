/** Display widths of texts in a terminal. */
import { expect, test } from 'vitest';
import { padTo, truncate, widthOf } from '../../src/cli/terminal/text-width.js';

test.each([
  ['abc', 3],
  ['é', 1],
  ['e\u0301', 1],
  ['日本', 4],
  ['한국', 4],
  ['ｆｕ', 4],
  ['🎉!', 3],
  ['\u200bx', 1],
  ['█░', 2],
])('%s takes %d columns', (text, width) => {
  expect(widthOf(text)).toBe(width);
  expect(padTo(text, 5)).toBe(text + ' '.repeat(5 - width));
});

test.each([
  ['abcdef', 6, 'abcdef'],
  ['abcdef', 5, 'abcd…'],
  ['日本語', 5, '日本…'],
  ['日本語', 4, '日…'],
  ['ne\u0301e\u0301', 2, 'n…'],
  ['ne\u0301e\u0301x', 3, 'ne\u0301…'],
  ['/archive/2024/sst.nc', 10, '…24/sst.nc'],
])('%s in %d columns is %s', (text, width, shown) => {
  expect(truncate(text, width)).toBe(shown);
});
