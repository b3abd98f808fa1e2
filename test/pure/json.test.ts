/** JSON with exact integers, and limits on JSON from callers. */
import { expect, test } from 'vitest';
import { formatJson } from '../../src/core/text/json.js';
import { parseBounded } from '../../src/gateway/http/http-body.js';

test('bigints are number literals, and all else is as with JSON.stringify', () => {
  expect(formatJson({ size: 9007199254740993n, list: [-1n, { n: 2n ** 63n - 1n }], none: undefined })).toBe(
    '{"size":9007199254740993,"list":[-1,{"n":9223372036854775807}]}',
  );
  const plain = {
    text: 'a "quoted"\u2028 \ud800 é',
    'a "name"': [1.5, -0, 1e300, Number.NaN, true, null, undefined, [], {}],
    none: undefined,
    at: new Date(0),
  };
  expect(formatJson(plain)).toBe(JSON.stringify(plain));
});

test('a text beyond the limits of values, lists or depth is refused, and strings do not count', () => {
  const problemOf = (text: string) => {
    try {
      parseBounded(text);
      return undefined;
    } catch (error) {
      return (error as Error).message;
    }
  };
  const many = (part: string, count: number) => Array(count).fill(part).join(',');
  const depth = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`;
  expect([
    problemOf(`[${many('1', 999_998)}]`),
    problemOf(`[${many('1', 1_000_001)}]`),
    problemOf(`[${many('{}', 9_999)}]`),
    problemOf(`[${many('[]', 10_000)}]`),
    ...[100, 101].map((levels) => problemOf(depth(levels))),
    problemOf(`["${'[{,'.repeat(1_000_000)}\\"${'['.repeat(200)}", "\\\\"]`),
  ]).toEqual([
    undefined,
    'the body has more than 1000000 values',
    undefined,
    'the body has more than 10000 lists and objects',
    undefined,
    'the body is nested more than 100 levels deep',
    undefined,
  ]);
});
