import { chmodSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/package-root.js';
import { createStagingLibrary } from '../../src/tape/kinds.js';
import { parseS3Settings } from '../../src/tape/s3/settings.js';
import { createS3Bench } from '../support/s3-bench.js';
import { errorOf, putFiles, staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-backend.js';
import { makeTempDir } from '../support/temp-dir.js';

const LEAST = { bucket: 'archive', region: 'eu-west-2' };

test('a bucket and a region are enough', () => {
  expect(parseS3Settings(LEAST)).toEqual({
    bucket: 'archive',
    region: 'eu-west-2',
    endpoint: undefined,
    forcePathStyle: false,
    prefixes: [{ path: '/', key: '' }],
    tier: 'Standard',
    fallbackTiers: [],
    days: 3,
    stateBy: 'list',
    credentials: { from: 'chain' },
    pollSeconds: { least: 300, most: 1200 },
    concurrency: 16,
    readParts: 4,
    partBytes: 4 * 1024 * 1024,
    compareChecksums: true,
    timeoutSeconds: 60,
    charges: undefined,
    waitSeconds: { least: 10_800, most: 18_000 },
  });
});

test('the longest prefix of a path decides, in whatever order they are given', () => {
  const { prefixes } = parseS3Settings({ ...LEAST, prefixes: ['/=rest/', '/badc/=badc=2024/'] });
  expect(prefixes).toEqual([
    { path: '/badc/', key: 'badc=2024/' },
    { path: '/', key: 'rest/' },
  ]);
});

const refused: [object, string][] = [
  [{ region: 'x' }, 'bucket must be given'],
  [{ ...LEAST, bucket: 'a/b' }, 'bucket must be the name of a bucket, not "a/b"'],
  [{ bucket: 'archive' }, 'region must be given'],
  [{ ...LEAST, region: 'eu west' }, 'region must be the name of a region, not "eu west"'],
  [{ ...LEAST, tier: 'Fast' }, 'tier must be one of Expedited, Standard, Bulk, not "Fast"'],
  [{ ...LEAST, fallbackTiers: ['Slow'] }, 'fallbackTiers must be of Expedited, Standard, Bulk, not "Slow"'],
  [{ ...LEAST, days: 0 }, 'days must be a whole number from 1 to 3650, not 0'],
  [{ ...LEAST, day: 1 }, 'day is no setting of this kind'],
  [
    { ...LEAST, prefixes: ['badc/=x'] },
    'prefixes must each be a beginning of paths, "=", and that of keys, not "badc/=x"',
  ],
  [
    { ...LEAST, endpoint: 'https://me:hush@s3.example.org' },
    'endpoint must be an http or https URL without credentials',
  ],
  [{ ...LEAST, endpoint: 'ftp://s3.example.org' }, 'endpoint must be an http or https URL'],
  [{ ...LEAST, accessKeyIdEnv: 'A' }, 'accessKeyIdEnv and secretAccessKeyEnv must be given both, not "A" alone'],
  [
    { ...LEAST, accessKeyIdEnv: 'A', credentialsFile: '/b' },
    'credentialsFile cannot be "/b" where the variable "A" is named',
  ],
  [{ ...LEAST, profile: 'tapes' }, 'profile "tapes" is a section of credentialsFile, which is not given'],
  [{ ...LEAST, credentialsFile: 'keys' }, 'credentialsFile must be an absolute path, not what is given'],
  ...[
    'AKIAIOSFODNN7EXAMPLE',
    'ASIAIOSFODNN7EXAMPLE',
    'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY',
    'wJalrXUtnFEMIaK7MDENGabPxRfiCYEXAMPLEKEY',
  ].flatMap((secret) =>
    ['accessKeyIdEnv', 'secretAccessKeyEnv', 'sessionTokenEnv'].map((name): [object, string] => [
      { ...LEAST, accessKeyIdEnv: 'A', secretAccessKeyEnv: 'B', [name]: secret },
      `${name} must be the name of a variable that has it, not what is given`,
    ]),
  ),
  [
    { ...LEAST, pollSeconds: 60, pollSecondsMost: 30 },
    'pollSecondsMost must be a whole number from 60 to 86400, not 30',
  ],
  [{ ...LEAST, waitMinutes: 9, waitMinutesMost: 8 }, 'waitMinutesMost must be a whole number from 9 to 43200, not 8'],
  [{ ...LEAST, waitMinutes: 'long' }, 'waitMinutes must be a whole number from 0 to 43200, not "long"'],
  [{ ...LEAST, currency: 'euro' }, 'currency must have three letters, such as EUR, not "euro"'],
  [{ ...LEAST, pricePerGb: '0.01' }, 'currency must be given, such as EUR, where there is a pricePerGb'],
  [{ ...LEAST, currency: 'EUR', pricePerGb: '-1' }, 'pricePerGb must be an amount such as 0.0025, not "-1"'],
];

test.each(refused)('%j is refused by the name of the setting, with what came', (settings, told) => {
  expect(() => parseS3Settings(settings)).toThrow(told);
  expect(() => parseS3Settings(settings)).not.toThrow('hush');
});

test('settings are taken as texts, as a command line has them', () => {
  const texts = {
    ...LEAST,
    days: '7',
    forcePathStyle: 'true',
    currency: 'EUR',
    pricePerGb: '0.0025',
    partMegabytes: '16',
  };
  expect(parseS3Settings(texts)).toMatchObject({
    days: 7,
    forcePathStyle: true,
    partBytes: 16 * 1024 * 1024,
    charges: { currency: 'EUR', nanosPerGb: 2_500_000n, nanosPerThousandRequests: 0n, nanosPerGbMonth: 0n },
  });
});

test('credentials come from a section of a file that is read anew, and that others may not read', async () => {
  const bench = await createS3Bench();
  await putFiles(bench, ['/a']);
  const file = path.join(makeTempDir(), 'credentials');
  const { accessKeyId, secretAccessKey } = bench.server.account;
  const write = (secret: string) =>
    writeFileSync(
      file,
      `[default]\naws_access_key_id = x\n\n[tapes]\naws_access_key_id=${accessKeyId}\naws_secret_access_key = ${secret}\n`,
    );
  const library = bench.open({
    accessKeyIdEnv: null,
    secretAccessKeyEnv: null,
    credentialsFile: file,
    profile: 'tapes',
  });
  const look = () => library.poll({ id: null, files: [staged('/a')] }, quiet());
  const refusal = async () => ((await errorOf(look())) as Error).message;

  expect(await refusal()).toContain(`cannot be read from ${file}: ENOENT`);
  write(secretAccessKey);
  chmodSync(file, 0o640);
  expect(await refusal()).toContain('others may use it (mode 0640): chmod 600');
  chmodSync(file, 0o600);
  expect(await look()).toEqual([{ path: '/a', state: 'forgotten' }]);
  const other = bench.open({ accessKeyIdEnv: null, secretAccessKeyEnv: null, credentialsFile: file });
  const missing = await errorOf(other.poll({ id: null, files: [staged('/a')] }, quiet()));
  expect((missing as Error).message).toContain(
    'its section [default] has no aws_access_key_id and aws_secret_access_key',
  );
  await bench.close();
});

test('the client of S3 is loaded when a library makes its first request, and by nothing before', () => {
  const folder = path.join(packageRoot, 'src');
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));
  const loads = names.flatMap((name) =>
    [
      ...readFileSync(path.join(folder, name), 'utf8').matchAll(
        /^import (?!type )[^;]*'@aws-sdk[^']*';|import\('@aws-sdk[^']*'\)\.then/gm,
      ),
    ].map(([load]) => [name, load]),
  );
  expect(loads).toEqual([['tape/s3/calls.ts', "import('@aws-sdk/client-s3').then"]]);
});

test('a library of the kind s3 is one of the registry, and finds its credentials in the environment of its process', async () => {
  const bench = await createS3Bench();
  const [file = staged('')] = await putFiles(bench, ['/a']);
  const { accessKeyId, secretAccessKey, region } = bench.server.account;
  const place = { bucket: bench.server.bucket, region, endpoint: bench.server.url, forcePathStyle: true };
  const settings = { ...place, accessKeyIdEnv: 'KEY', secretAccessKeyEnv: 'SECRET', prefixes: ['/=cold/'] };
  const env = { KEY: accessKeyId, SECRET: secretAccessKey };
  const library = createStagingLibrary({ name: 'glacier', kind: 's3', settings }, { dataDir: '/data', env });
  expect(await library.poll({ id: null, files: [file] }, quiet())).toEqual([{ path: '/a', state: 'forgotten' }]);
  await bench.close();
});
