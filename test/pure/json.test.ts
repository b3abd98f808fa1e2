/** JSON with exact integers. */
import { expect, test } from 'vitest';
import { parseJson } from '../../src/json.js';
import { JsonScan } from '../../src/json-scan.js';

test('integers of any size are exact, and all else is as with JSON.parse', () => {
  const texts = [
    '[9007199254740993, -9007199254740993, 16000000000000000000000]',
    '{"a":[12345678901234567],"__proto__":{"b":98765432109876543210},"c":"1234567890123456789"}',
    '[1234567890123456.5, 1234567890123456e2, 0.12345678901234568, 1e400, -0]',
    ' 18446744073709551616 ',
  ];
  expect(texts.map(parseJson)).toEqual([
    [9007199254740993n, -9007199254740993n, 16000000000000000000000n],
    JSON.parse('{"a":["x"],"__proto__":{"b":"y"},"c":"1234567890123456789"}', (_, value) =>
      value === 'x' ? 12345678901234567n : value === 'y' ? 98765432109876543210n : value,
    ),
    [1234567890123456.5, 123456789012345600, 0.12345678901234568, Number.POSITIVE_INFINITY, -0],
    18446744073709551616n,
  ]);
  expect(parseJson('[1234567890123456, 9007199254740991]')).toEqual([1234567890123456, 9007199254740991]);
  expect(parseJson('"a \\" 12345678901234567890"')).toBe('a " 12345678901234567890');
});

test('malformed JSON with long integers is refused', () => {
  for (const text of [
    '{12345678901234567890: 1}',
    '[12345678901234567890',
    '[0123456789012345678901]',
    '[12345678901234567890 1]',
    'x12345678901234567890',
    '12345678901234567890"a"',
    '[--12345678901234567890]',
  ]) {
    expect(() => parseJson(text), text).toThrow(SyntaxError);
    expect(() => parseJson(text), text).not.toThrow(/\uE000/);
  }
  expect(() => parseJson(`[${'1'.repeat(1001)}]`)).toThrow('a number has more than 1000 characters');
});

test('a scan finds the same integers in whatever pieces the text arrives', () => {
  const text = Buffer.from('[{"a\\"[":"é\\\\",\n"b":12345678901234567},-98765432109876543210,1234567890123456.5]');
  const scanOf = (parts: Buffer[]) => {
    const scan = new JsonScan({ values: 7, containers: 2, depth: 2 });
    for (const part of parts) scan.add(part);
    scan.end();
    return { problem: scan.problem, found: scan.integers.map(([from, to]) => text.subarray(from, to).toString()) };
  };
  const whole = { problem: undefined, found: ['12345678901234567', '-98765432109876543210'] };
  for (let at = 0; at <= text.length; at++) {
    expect(scanOf([text.subarray(0, at), text.subarray(at)])).toEqual(whole);
  }
  expect(scanOf([...text].map((byte) => Buffer.from([byte])))).toEqual(whole);
});

test('a scan reports which limit a text exceeds', () => {
  const scan = (text: string) => {
    const found = new JsonScan({ values: 6, containers: 3, depth: 2 });
    found.add(Buffer.from(text));
    return found.problem;
  };
  expect(['[1,2,3]', '[[],[]]', '["[[[,,,,,,{{"]', '[1,2,3,4,5,6]', '[[],[],[]]', '[[[]]]'].map(scan)).toEqual([
    undefined,
    undefined,
    undefined,
    'it has more than 6 values',
    'it has more than 3 lists and objects',
    'it is nested too deeply',
  ]);
});
