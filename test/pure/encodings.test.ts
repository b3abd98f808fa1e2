/** The content encoding chosen by Accept-Encoding. */
import zlib from 'node:zlib';
import { expect, test } from 'vitest';
import { chooseEncoding } from '../../src/encodings.js';

const best = 'createZstdCompress' in zlib ? 'zstd' : 'br';

test.each([
  [undefined, undefined],
  ['', undefined],
  ['gzip', 'gzip'],
  ['GZIP', 'gzip'],
  ['x-gzip', 'gzip'],
  ['deflate', undefined],
  ['br', 'br'],
  // as browsers send it
  ['gzip, deflate, br', 'br'],
  ['gzip, deflate, br, zstd', best],
  ['*', best],
  ['gzip;q=1.0, br;q=0.5', 'gzip'],
  ['gzip;q=0.5,br;q=0.500', 'br'],
  ['gzip ; q = 0.2', 'gzip'],
  ['gzip;q=0', undefined],
  ['gzip;q=0, *;q=0.1', best],
  ['*;q=0', undefined],
  ['*;q=0, gzip', 'gzip'],
  // identity preferred, or refused
  ['identity, gzip;q=0.5', undefined],
  ['identity;q=0.5, gzip', 'gzip'],
  ['identity;q=0', undefined],
  ['identity', undefined],
  // malformed parts are ignored
  ['gzip;q=x', undefined],
  ['gzip;q=-1', undefined],
  ['gzip;q=9', undefined],
  ['gzip;q=1.5', 'gzip'],
  ['gzip;level=9', undefined],
  [',,;q=1, ,gzip', 'gzip'],
  ['gzip gzip', undefined],
  ['__proto__, constructor', undefined],
])('%j chooses %j', (header, encoding) => {
  expect(chooseEncoding(header)).toBe(encoding);
});

test('a header with thousands of encodings is read', () => {
  expect(chooseEncoding(`${'a,'.repeat(5000)}gzip`)).toBe('gzip');
});
