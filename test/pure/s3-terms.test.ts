/** The price and duration of restores, by the settings of a library. */
import { expect, test } from 'vitest';
import { stagingTermsOf } from '../../src/tape/kinds.js';

const GB = 2n ** 30n;
const terms = (settings: object) =>
  stagingTermsOf({ kind: 's3', settings: { bucket: 'archive', region: 'eu-west-2', ...settings } });
const price = { currency: 'EUR', pricePerGb: 0.01, pricePerThousandRequests: 0.05, pricePerGbMonth: 0.023 };

test('the price of S3 has a part for retrieval, one for requests, and one for the copies', () => {
  const found = terms({ ...price, currency: 'USD', tier: 'Bulk', days: 15 }).price?.({ count: 2000, bytes: 100n * GB });
  expect(found).toEqual({
    currency: 'USD',
    parts: [
      { micros: 1_000_000n, what: 'to retrieve 100.0 GB (Bulk)' },
      { micros: 100_000n, what: 'for 2000 restore requests' },
      { micros: 1_150_000n, what: 'to keep the copies for 15 days' },
    ],
  });
  expect(terms({ tier: 'Bulk' }).price).toBeUndefined();
});

test('a part without a price is left out, and amounts are rounded up to a millionth', () => {
  const found = terms({ currency: 'EUR', pricePerGb: '0.000000001', days: 1 }).price?.({ count: 1, bytes: 1n });
  expect(found).toEqual({ currency: 'EUR', parts: [{ micros: 1n, what: 'to retrieve less than 0.1 GB (Standard)' }] });
});

test('amounts are exact integers', () => {
  const { price: priceOf } = terms({ currency: 'EUR', pricePerGb: '0.1', pricePerThousandRequests: '0.2' });
  const found = priceOf?.({ count: 1000, bytes: GB });
  expect(found?.parts.reduce((sum, { micros }) => sum + micros, 0n)).toBe(300_000n);
  // 90 PB and a byte: beyond the precision of a number
  const large = priceOf?.({ count: 0, bytes: 90n * 2n ** 50n + 1n }).parts[0]?.micros;
  expect(large).toBe(90n * 2n ** 20n * 100_000n + 1n);
});

test.each([
  [{}, 3 * 3600, 5 * 3600],
  [{ tier: 'Expedited' }, 60, 300],
  [{ tier: 'Bulk' }, 5 * 3600, 12 * 3600],
  [{ tier: 'Bulk', waitMinutesMost: '2880' }, 5 * 3600, 48 * 3600],
  [{ waitMinutes: 540, waitMinutesMost: 720 }, 9 * 3600, 12 * 3600],
  [{ waitMinutes: 600 }, 10 * 3600, 10 * 3600],
  [{ waitMinutesMost: 60 }, 3600, 3600],
])('with %j a copy takes from %d to %d seconds', (settings, least, most) => {
  expect(terms(settings).waitSeconds).toEqual({ least, most });
});

test('other library types have a duration if their settings have one', () => {
  const script = ['/site/script'];
  const settings = { stage: script, poll: script, fetch: script };
  expect(stagingTermsOf({ kind: 'command-staging', settings })).toEqual({});
  const command = { ...settings, waitMinutes: 5, waitMinutesMost: 90 };
  expect(stagingTermsOf({ kind: 'command-staging', settings: command })).toEqual({
    waitSeconds: { least: 300, most: 5400 },
  });
  const wlcg = { url: 'https://se.example/', waitMinutesMost: 60 };
  expect(stagingTermsOf({ kind: 'wlcg', settings: wlcg })).toEqual({
    ...{ prefixes: ['/'], waitSeconds: { least: 0, most: 3600 } },
  });
});

test('the terms name the prefixes of the paths that the library has', () => {
  expect(terms({}).prefixes).toEqual(['/']);
  expect(terms({ prefixes: ['/badc/=x', '/badc/ice/=y'] }).prefixes).toEqual(['/badc/ice/', '/badc/']);
  const wlcg = { url: 'https://se.example/', pathPrefix: '/atlas' };
  expect(stagingTermsOf({ kind: 'wlcg', settings: wlcg }).prefixes).toEqual(['/atlas/']);
});

test('a library for drives, or one of a newer version, has no terms', () => {
  expect(stagingTermsOf({ kind: 'directory', settings: { folder: '/tapes' } })).toEqual({});
  expect(stagingTermsOf({ kind: 'of tomorrow', settings: {} })).toEqual({});
  expect(stagingTermsOf({ kind: 's3', settings: { bucket: 'archive', ofTomorrow: 1 } })).toEqual({});
});
