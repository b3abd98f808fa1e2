import { expect, test } from 'vitest';
import { remember } from '../../src/remembered.js';

test('the same text is worked out once, whatever comes of it, and what is long each time', () => {
  const asked: string[] = [];
  const lengthOf = remember((text) => {
    asked.push(text);
    return text === '' ? undefined : text.length;
  });
  const long = 'x'.repeat(301);
  for (let n = 0; n < 2; n++) expect([lengthOf('ab'), lengthOf(''), lengthOf(long)]).toEqual([2, undefined, 301]);
  expect(asked).toEqual(['ab', '', long, long]);
});

test('however many come, few are kept', () => {
  const asked: string[] = [];
  const keep = remember((text) => {
    asked.push(text);
    return text;
  });
  for (let n = 0; n < 1000; n++) expect(keep(String(n))).toBe(String(n));
  expect([keep('999'), keep('0')]).toEqual(['999', '0']);
  expect(asked).toHaveLength(1001);
});

test('what fails is told each time', () => {
  let asked = 0;
  const fail = remember(() => {
    asked++;
    throw new Error('no');
  });
  for (let n = 0; n < 2; n++) expect(() => fail('a')).toThrow('no');
  expect(asked).toBe(2);
});
