/** Estimated prices of requests. */
import { afterAll, expect, test } from 'vitest';
import { addLibrary, updateLibrary } from '../../src/domain/libraries/changes.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { cleanUp, runCli } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { useApp } from '../support/use-app.js';

const GB = 2n ** 30n;
const prices = { currency: 'EUR', pricePerGb: '0.1', pricePerThousandRequests: '0.2' };

const app = useApp({}, async () => {
  await addQuota(app.ctx, 'ann', 10_000n * GB);
  await add('glacier', prices);
  await add('deep', { ...prices, pricePerGb: '0.02', pricePerThousandRequests: '0' });
  await add('free', {});
  const base = { size: 10n * GB, volume: 'G1', library: 'glacier' };
  const file = (path: string, given: object = {}) => ({ ...base, path, ...given });
  await addFiles(app.ctx, [
    ...[1, 2, 3, 4, 5, 6, 7, 8].map((n) => file(`/g/${n}`)),
    file('/g/disk', { stage: 'ONDISK' }),
    file('/d/1', { volume: 'D1', library: 'deep' }),
    file('/f/1', { volume: 'F1', library: 'free' }),
    file('/t/1', { volume: 'T1', library: 'directory' }),
  ]);
});
afterAll(cleanUp);

async function add(name: string, settings: object): Promise<void> {
  const place = { bucket: 'archive', region: 'eu-west-2', tier: 'Bulk', ...settings };
  await addLibrary(app.ctx, { name, kind: 's3', settings: place });
}

const ESTIMATE = `query ($input: CreateRequestInput!) { estimateRequest(input: $input) { estimate {
  price { amount currency } prices { libraryName fileCount bytes amount currency note } } } }`;

interface Told {
  price: { amount: string; currency: string } | null;
  prices: { libraryName: string; fileCount: number; bytes: string; amount: string; currency: string; note: string }[];
}

async function estimate(files: string[]): Promise<Told> {
  const input = { quota: 'ann', files };
  return (await askData<{ estimateRequest: { estimate: Told } }>(app, ESTIMATE, { input })).estimateRequest.estimate;
}

/** Adds a staging row, as if the library had been asked for a file. */
async function addStaging(path: string, state: string, readyUntil: string | null = null): Promise<void> {
  await app.ctx.db.pool.query(
    `INSERT INTO staging (file_id, library_id, state, batch, size, asked_at, since, due_at, ready_until)
     SELECT f.id, v.library_id, $2::"StagingState", gen_random_uuid(), f.size, now(), now(), now(), $3::timestamp
     FROM tape_file f JOIN volume v ON v.id = f.volume_id WHERE f.path = $1`,
    [path, state, readyUntil],
  );
}

test('an estimate contains the price of each library, and the total unless currencies differ', async () => {
  const both = await estimate(['/g/1', '/g/2', '/g/disk', '/d/1', '/f/1', '/t/1']);
  expect(both.price).toEqual({ amount: '2.2004', currency: 'EUR' });
  const [glacier, deep] = [
    { libraryName: 'glacier', fileCount: 2, bytes: String(20n * GB), amount: '2.0004', currency: 'EUR' },
    { libraryName: 'deep', fileCount: 1, bytes: String(10n * GB), amount: '0.20', currency: 'EUR' },
  ];
  expect(both.prices).toEqual([
    { ...glacier, note: '2.00 to retrieve 20.0 GB (Bulk), 0.0004 for 2 restore requests' },
    { ...deep, note: '0.20 to retrieve 10.0 GB (Bulk)' },
  ]);
  expect(await estimate(['/f/1', '/t/1', '/g/disk'])).toEqual({ price: null, prices: [] });
  await updateLibrary(app.ctx, { name: 'deep', settings: { currency: 'USD' } });
  const { price, prices: told } = await estimate(['/g/1', '/d/1']);
  expect(price).toBeNull();
  expect(told.map(({ amount, currency }) => `${amount} ${currency}`)).toEqual(['1.0002 EUR', '0.20 USD']);
  await updateLibrary(app.ctx, { name: 'deep', settings: { currency: 'EUR' } });
});

test('files that are requested or staged already cost nothing', async () => {
  await makeRequest(app, { quota: 'ann', files: ['/g/1'], retention: '2099-01-01' });
  await addStaging('/g/2', 'ASKED');
  await addStaging('/g/3', 'READY');
  await addStaging('/g/4', 'KEPT', '2099-01-01');
  await addStaging('/g/5', 'KEPT', '2020-01-01');
  await addStaging('/g/6', 'RELEASING');
  await addStaging('/g/7', 'KEPT');
  const { prices: told } = await estimate([1, 2, 3, 4, 5, 6, 7, 8].map((n) => `/g/${n}`));
  expect(told).toMatchObject([{ libraryName: 'glacier', fileCount: 3, bytes: String(30n * GB), amount: '3.0006' }]);
  const free = { price: { amount: '0.00', currency: 'EUR' }, prices: [{ fileCount: 0, bytes: '0', amount: '0.00' }] };
  expect(await estimate(['/g/3', '/g/4'])).toMatchObject(free);
});

test('the request command prints the price per library, and the total of several', async () => {
  const options = ['--dry-run', '--quota', 'ann', '--file', '-'];
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  const { stdout } = await runCli(['request', ...options], { env, stdin: '/g/8\n/d/1\n' });
  const lines = stdout.split('\n');
  const first = lines.findIndex((line) => line.startsWith('cost'));
  expect(lines.slice(first, first + 3)).toEqual([
    'cost        1.0002 EUR at glacier for 1 file, 10.7 GB: 1.00 to retrieve 10.0 GB (Bulk), 0.0002 for 1 restore requests',
    '            0.20 EUR at deep for 1 file, 10.7 GB: 0.20 to retrieve 10.0 GB (Bulk)',
    '            1.2002 EUR in total',
  ]);
  const free = await runCli(['request', ...options], { env, stdin: '/f/1\n' });
  expect(free.stdout).not.toContain('cost');
});

test('changed prices apply at once', async () => {
  await updateLibrary(app.ctx, { name: 'glacier', settings: { pricePerGb: '1', pricePerThousandRequests: '' } });
  expect((await estimate(['/g/8'])).price).toEqual({ amount: '10.00', currency: 'EUR' });
  await updateLibrary(app.ctx, { name: 'glacier', settings: { currency: null, pricePerGb: null } });
  expect(await estimate(['/g/8'])).toEqual({ price: null, prices: [] });
});
