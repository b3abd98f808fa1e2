/** Settings of the library type `s3`, its sources of credentials, and its estimates of restore prices and durations. */

import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import { parseSettings } from '../../src/tape/kind.js';
import { stagingTermsOf } from '../../src/tape/kinds.js';
import { s3Settings } from '../../src/tape/s3/settings.js';
import { addSecret, secretFile } from '../support/library-dir.js';
import { createS3Bench } from '../support/s3-bench.js';
import { errorOf, putFiles } from '../support/staging-bench.js';
import { quiet } from '../support/tape-library.js';

const LEAST = { bucket: 'archive', region: 'eu-west-2' };

test('a bucket and a region suffice: all other settings have defaults', () => {
  expect(parseSettings(s3Settings, LEAST)).toMatchObject({
    ...LEAST,
    endpoint: undefined,
    forcePathStyle: false,
    prefixes: [{ path: '/', key: '' }],
    tier: 'Standard',
    fallbackTiers: [],
    days: 3,
    credentials: undefined,
    pollSeconds: { least: 300, most: 1200 },
    concurrency: 16,
    readParts: 4,
    partBytes: 4 * 1024 * 1024,
    timeoutSeconds: 60,
    charges: undefined,
    waitSeconds: { least: 10_800, most: 18_000 },
  });
});

test('longer prefixes come first, in whatever order they are given', () => {
  const { prefixes } = parseSettings(s3Settings, { ...LEAST, prefixes: ['/=rest/', '/badc/=badc=2024/'] });
  expect(prefixes).toEqual([
    { path: '/badc/', key: 'badc=2024/' },
    { path: '/', key: 'rest/' },
  ]);
});

const secrets = [
  'AKIAIOSFODNN7EXAMPLE',
  'ASIAIOSFODNN7EXAMPLE',
  'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY',
  'wJalrXUtnFEMIaK7MDENGabPxRfiCYEXAMPLEKEY',
];

test.each<[settings: object, message: string]>([
  [{ bucket: undefined }, 'bucket must be given'],
  [{ bucket: 'a/b' }, 'bucket must be the name of a bucket, not "a/b"'],
  [{ region: undefined }, 'region must be given'],
  [{ region: 'eu west' }, 'region must be the name of a region, not "eu west"'],
  [{ tier: 'Fast' }, 'tier must be one of Expedited, Standard, Bulk, not "Fast"'],
  [{ fallbackTiers: ['Slow'] }, 'fallbackTiers must be of Expedited, Standard, Bulk, not "Slow"'],
  [{ days: 0 }, 'days must be a whole number from 1 to 3650, not 0'],
  [{ day: 1 }, 'day is not a setting of this library type'],
  [
    { prefixes: ['a/=x'] },
    'prefixes must contain entries <path prefix>=<key prefix>, such as /data/=archive/, not "a/=x"',
  ],
  [{ endpoint: 'https://me:hush@s3.example.org' }, 'endpoint must be an http or https URL without credentials'],
  [{ endpoint: 'ftp://s3.example.org' }, 'endpoint must be an http or https URL'],
  [{ profile: 'tapes' }, 'profile "tapes" is a section of credentialsFile, which is not set'],
  ...['/etc/passwd', '../keys', 'a/b', '.keys', 'keys.hosts', ...secrets.map((secret) => `${secret}/`)].map(
    (credentialsFile): [object, string] => [
      { credentialsFile },
      'credentialsFile must be the name of a file in TAPEGATE_LIBRARY_DIR/secrets, not the given value',
    ],
  ),
  [
    { endpoint: 'https://s3.example.org' },
    "credentialsFile is required with endpoint: the host's own credentials are sent only to AWS",
  ],
  [{ accessKeyIdEnv: 'PGPASSWORD' }, 'accessKeyIdEnv is not a setting of this library type'],
  [{ pollSeconds: 60, pollSecondsMost: 30 }, 'pollSecondsMost must be at least pollSeconds (60), not 30'],
  [{ waitMinutes: 9, waitMinutesMost: 8 }, 'waitMinutesMost must be at least waitMinutes (9), not 8'],
  [{ waitMinutes: 'long' }, 'waitMinutes must be a whole number from 0 to 43200, not "long"'],
  [{ currency: 'euro' }, 'currency must be three letters, such as EUR, not "euro"'],
  [{ pricePerGb: '0.01' }, 'currency is required with pricePerGb, for example EUR'],
  [{ currency: 'EUR', pricePerGb: '-1' }, 'pricePerGb must be an amount such as 0.0025, not "-1"'],
])('settings %j are refused without a secret in the message', (settings, message) => {
  expect(() => parseSettings(s3Settings, { ...LEAST, ...settings })).toThrow(message);
  expect(() => parseSettings(s3Settings, { ...LEAST, ...settings })).not.toThrow(/hush|EXAMPLE/);
});

test('each call reads the credentials from a section of their file, which must be private', async () => {
  const bench = await createS3Bench();
  const files = await putFiles(bench, ['/a']);
  const credentialsFile = addSecret('');
  const file = secretFile(credentialsFile);
  rmSync(file);
  const { accessKeyId, secretAccessKey } = bench.server.account;
  const process = `credential_process = /bin/echo {"Version":1,"AccessKeyId":"${accessKeyId}","SecretAccessKey":"${secretAccessKey}"}`;
  const sections = `[default]\naws_access_key_id = x\n[run]\n${process}\n[tapes]\naws_access_key_id=${accessKeyId}\naws_secret_access_key = ${secretAccessKey}\n`;
  const byFile = { credentialsFile };
  const library = bench.open({ ...byFile, profile: 'tapes' });
  const poll = (from = library) => from.poll({ id: null, files }, quiet());
  const refusal = async (from = library) => ((await errorOf(poll(from))) as Error).message;

  expect(await refusal()).toContain(`cannot read the S3 credentials from ${file}: ENOENT`);
  writeFileSync(file, sections);
  chmodSync(file, 0o640);
  expect(await refusal()).toContain('other users can access it (mode 0640): run chmod 600 on it');
  chmodSync(file, 0o600);
  expect(await poll()).toEqual([{ path: '/a', state: 'forgotten' }]);
  const directory = addSecret('');
  rmSync(secretFile(directory));
  mkdirSync(secretFile(directory));
  const refusalOf = (profile: string) => refusal(bench.open({ ...byFile, profile }));
  expect(await refusalOf('other')).toContain('the profile "other" has no aws_access_key_id');
  expect(await refusalOf('default')).toContain('the profile "default" has no aws_secret_access_key');
  expect(await refusalOf('run')).toMatch(
    /: the profile "run" has no aws_access_key_id \(only keys are supported, [^{]*$/,
  );
  expect(await refusal(bench.open({ credentialsFile: directory }))).toContain('not a regular file');
  truncateSync(file, 2 ** 20 + 1);
  expect(await refusalOf('tapes')).toContain('at most 1048576 are allowed');
  await bench.close();
});

test('only the first request of a library loads the S3 client', () => {
  const root = path.join(packageRoot, 'src');
  const names = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));
  const imports = /^import (?!type )[^;]*'@aws-sdk[^']*';|import\('@aws-sdk[^']*'\)\.then/gm;
  const loads = names.flatMap((name) =>
    [...readFileSync(path.join(root, name), 'utf8').matchAll(imports)].map(([load]) => [name, load]),
  );
  expect(loads).toEqual([['tape/s3/signed-requests.ts', "import('@aws-sdk/client-s3').then"]]);
});

test('a library of the type s3 sends its credentials only to the hosts of their file', async () => {
  const bench = await createS3Bench();
  const files = await putFiles(bench, ['/a']);
  const { credentialsFile } = bench.settings as { credentialsFile: string };
  const hosts = `${secretFile(credentialsFile)}.hosts`;
  const poll = () => bench.open().poll({ id: null, files }, quiet());
  writeFileSync(hosts, 's3.example.org\n');
  const asked = bench.server.asked.length;
  expect(await errorOf(poll())).toMatchObject({
    constructor: LibraryError,
    errorClass: 'POLICY',
    message: expect.stringContaining(`${hosts} does not list "${new URL(bench.server.url).host}"`),
  });
  rmSync(hosts);
  expect(await errorOf(poll())).toMatchObject({
    message: expect.stringContaining(`cannot read ${hosts}, the list of hosts`),
  });
  expect(bench.server.asked.length).toBe(asked);
  writeFileSync(hosts, `s3.example.org\n${new URL(bench.server.url).host}\n`);
  expect(await poll()).toEqual([{ path: '/a', state: 'forgotten' }]);
  await bench.close();
});

const GB = 2n ** 30n;
const terms = (settings: object) => stagingTermsOf({ kind: 's3', settings: { ...LEAST, ...settings } });
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
  // 90 PiB and a byte: a number cannot represent this size exactly
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
  const script = ['script'];
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
  expect(stagingTermsOf({ kind: 'directory', settings: { directory: '/tapes' } })).toEqual({});
  expect(stagingTermsOf({ kind: 'of tomorrow', settings: {} })).toEqual({});
  expect(stagingTermsOf({ kind: 's3', settings: { bucket: 'archive', ofTomorrow: 1 } })).toEqual({});
});
