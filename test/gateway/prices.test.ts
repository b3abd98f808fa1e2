/** What a request would cost, told before it is made. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { addLibrary } from '../../src/operations/libraries/add.js';
import { removeLibrary } from '../../src/operations/libraries/remove.js';
import { setLibrary } from '../../src/operations/libraries/set.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { cleanUp, runCli } from '../support/process.js';
import { makeRequest } from '../support/rest.js';

const GB = 2n ** 30n;
const prices = { currency: 'EUR', pricePerGb: '0.1', pricePerThousandRequests: '0.2' };

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'ann', 10_000n * GB);
  await add('glacier', prices);
  await add('deep', { ...prices, pricePerGb: '0.02', pricePerThousandRequests: '0' });
  await add('free', {});
  const file = (path: string, given: object = {}) => ({
    path,
    size: 10n * GB,
    volume: 'G1',
    library: 'glacier',
    ...given,
  });
  await addFiles(app.ctx, [
    ...['/g/1', '/g/2', '/g/3', '/g/4', '/g/5', '/g/6', '/g/7', '/g/8'].map((path) => file(path)),
    file('/g/disk', { stage: 'ONDISK' }),
    file('/d/1', { volume: 'D1', library: 'deep' }),
    file('/f/1', { volume: 'F1', library: 'free' }),
    file('/t/1', { volume: 'T1', library: 'directory' }),
  ]);
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

async function add(name: string, settings: object): Promise<void> {
  const place = { bucket: 'archive', region: 'eu-west-2', tier: 'Bulk', ...settings };
  await addLibrary(app.ctx, { name, kind: 's3', settings: place });
}

const ESTIMATE = `query ($input: CreateRequestInput!) { estimateRequest(input: $input) { ... on Estimate {
  price { amount currency } prices { library files bytes amount currency note } } } }`;

interface Told {
  price: { amount: string; currency: string } | null;
  prices: { library: string; files: number; bytes: string; amount: string; currency: string; note: string }[];
}

async function estimate(files: string[]): Promise<Told> {
  const input = { quota: 'ann', files };
  return (await askData<{ estimateRequest: Told }>(app, ESTIMATE, { input })).estimateRequest;
}

/** As if the library had been asked for it. */
async function note(path: string, state: string, readyUntil: string | null = null): Promise<void> {
  await app.ctx.db.pool.query(
    `INSERT INTO staging (file_id, library_id, state, batch, size, asked_at, since, due_at, ready_until)
     SELECT f.id, v.library_id, $2::"StagingState", gen_random_uuid(), f.size, now(), now(), now(), $3::timestamp
     FROM tape_file f JOIN volume v ON v.id = f.volume_id WHERE f.path = $1`,
    [path, state, readyUntil],
  );
}

test('a request costs what its libraries charge, one by one and together', async () => {
  expect(await estimate(['/g/1', '/g/2', '/g/disk', '/d/1', '/f/1', '/t/1'])).toEqual({
    price: { amount: '2.2004', currency: 'EUR' },
    prices: [
      {
        ...{ library: 'glacier', files: 2, bytes: String(20n * GB), amount: '2.0004', currency: 'EUR' },
        note: '2.00 to retrieve 20.0 GB (Bulk), 0.0004 for 2 restore requests',
      },
      {
        ...{ library: 'deep', files: 1, bytes: String(10n * GB), amount: '0.20', currency: 'EUR' },
        note: '0.20 to retrieve 10.0 GB (Bulk)',
      },
    ],
  });
});

test('where nobody charges for anything there is no price', async () => {
  expect(await estimate(['/f/1', '/t/1', '/g/disk'])).toEqual({ price: null, prices: [] });
});

test('prices in several currencies are not added', async () => {
  await setLibrary(app.ctx, { name: 'deep', settings: { currency: 'USD' } });
  const { price, prices: told } = await estimate(['/g/1', '/d/1']);
  expect(price).toBeNull();
  expect(told.map(({ amount, currency }) => `${amount} ${currency}`)).toEqual(['1.0002 EUR', '0.20 USD']);
  await setLibrary(app.ctx, { name: 'deep', settings: { currency: 'EUR' } });
});

test('what is there for whomever, or was asked for already, costs nothing more', async () => {
  await makeRequest(app, { quota: 'ann', files: ['/g/1'], retention: '2099-01-01' });
  await note('/g/2', 'ASKED');
  await note('/g/3', 'READY');
  await note('/g/4', 'KEPT', '2099-01-01');
  await note('/g/5', 'KEPT', '2020-01-01');
  await note('/g/6', 'RELEASING');
  await note('/g/7', 'KEPT');
  const { prices: told } = await estimate(['1', '2', '3', '4', '5', '6', '7', '8'].map((name) => `/g/${name}`));
  expect(told).toMatchObject([{ library: 'glacier', files: 3, bytes: String(30n * GB), amount: '3.0006' }]);
  expect(await estimate(['/g/3', '/g/4'])).toMatchObject({
    price: { amount: '0.00', currency: 'EUR' },
    prices: [{ files: 0, bytes: '0', amount: '0.00' }],
  });
});

test('the command line tells the price by library, and together where there are several', async () => {
  const options = ['--dry-run', '--quota', 'ann', '--file', '-'];
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  const { stdout } = await runCli(['request', ...options], { env, stdin: '/g/8\n/d/1\n' });
  const lines = stdout.split('\n');
  const first = lines.findIndex((line) => line.startsWith('cost'));
  expect(lines.slice(first, first + 3)).toEqual([
    'cost        1.0002 EUR at glacier for 1 file, 10.7 GB: 1.00 to retrieve 10.0 GB (Bulk), 0.0002 for 1 restore requests',
    '            0.20 EUR at deep for 1 file, 10.7 GB: 0.20 to retrieve 10.0 GB (Bulk)',
    '            1.2002 EUR together',
  ]);
  const free = await runCli(['request', ...options], { env, stdin: '/f/1\n' });
  expect(free.stdout).not.toContain('cost');
});

test('a library is not set so that files of it have no name there any more', async () => {
  const set = (prefixes: string[]) => setLibrary(app.ctx, { name: 'deep', settings: { prefixes } });
  await expect(set(['/deep/=', '/e/='])).rejects.toThrow(
    'settings must have a name for each file of the library, and "/d/1" is below none of "/deep/", "/e/"',
  );
  expect(await set(['/d/=cold/', '/e/='])).toMatchObject({ settings: { prefixes: ['/d/=cold/', '/e/='] } });
  expect(await set(['/d/='])).toMatchObject({ name: 'deep' });
  expect(await set(['/='])).toMatchObject({ name: 'deep' });
});

test('a library that is set to other prices has them at once, and one that is removed charges for nothing', async () => {
  await add('spare', prices);
  await setLibrary(app.ctx, { name: 'glacier', settings: { pricePerGb: '1', pricePerThousandRequests: '' } });
  expect((await estimate(['/g/8'])).price).toEqual({ amount: '10.00', currency: 'EUR' });
  await setLibrary(app.ctx, { name: 'glacier', settings: { currency: null, pricePerGb: null } });
  expect(await estimate(['/g/8'])).toEqual({ price: null, prices: [] });
  await removeLibrary(app.ctx, 'spare');
  expect(await estimate(['/d/1'])).toMatchObject({ price: { amount: '0.20' } });
});
