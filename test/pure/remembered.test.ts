/** The cache of results for short texts. */
import { expect, test } from 'vitest';
import { remember } from '../../src/remembered.js';

test('a result is computed once for a short text, and each time for a long one', () => {
  const asked: string[] = [];
  const lengthOf = remember((text) => {
    asked.push(text);
    return text === '' ? undefined : text.length;
  });
  const long = 'x'.repeat(301);
  for (let n = 0; n < 2; n++) expect([lengthOf('ab'), lengthOf(''), lengthOf(long)]).toEqual([2, undefined, 301]);
  expect(asked).toEqual(['ab', '', long, long]);
});

test('few results are kept', () => {
  const asked: string[] = [];
  const keep = remember((text) => {
    asked.push(text);
    return text;
  });
  for (let n = 0; n < 1000; n++) expect(keep(String(n))).toBe(String(n));
  expect([keep('999'), keep('0')]).toEqual(['999', '0']);
  expect(asked).toHaveLength(1001);
});

test('an error is not kept', () => {
  let asked = 0;
  const fail = remember(() => {
    asked++;
    throw new Error('no');
  });
  for (let n = 0; n < 2; n++) expect(() => fail('a')).toThrow('no');
  expect(asked).toBe(2);
});
