import { expect, test } from 'vitest';
import { useContract } from '../support/contract.js';
import { addFiles, addQuota } from '../support/factories.js';
import { made, release } from '../support/mutations.js';
import { errorBody, makeRequest, post, readRequest, readUsed } from '../support/rest.js';
import { dumpTables } from '../support/tables.js';

const { app, time } = useContract(1000n);

const addSizes = (sizes: Record<string, bigint>) =>
  addFiles(
    app.ctx,
    Object.entries(sizes).map(([path, size]) => ({ path, size })),
  );

test('R76 an unknown path is accepted and not charged', async () => {
  await addSizes({ '/a/one.nc': 300n });
  const id = await makeRequest(app, { quota: 'alice', files: ['/a/one.nc', '/a/later.nc'] });
  expect((await readRequest(app, id)).files).toEqual(['/a/one.nc', '/a/later.nc']);
  expect(await readUsed(app, 'alice')).toBe(300);
});

test('R77 a listed path is charged when it appears in the catalogue', async () => {
  const id = await makeRequest(app, { quota: 'alice', files: ['/a/one.nc', '/a/later.nc'] });
  await addSizes({ '/a/later.nc': 70n, '/a/other.nc': 500n });
  expect((await readRequest(app, id)).files).toEqual(['/a/one.nc', '/a/later.nc']);
  expect(await readUsed(app, 'alice')).toBe(70);
});

test('R78 a file that appears while the quota is full is listed and not charged', async () => {
  await addQuota(app.ctx, 'bob', 1000n);
  const listing = await makeRequest(app, { quota: 'alice', files: ['/a/big.nc'] });
  const matching = await makeRequest(app, { quota: 'bob', patterns: '/b/' });
  await addSizes({ '/a/big.nc': 1001n, '/b/big.nc': 1001n, '/b/a.nc': 30n });
  expect((await readRequest(app, listing)).files).toEqual(['/a/big.nc']);
  expect((await readRequest(app, matching)).files).toEqual(['/b/a.nc', '/b/big.nc']);
  expect([await readUsed(app, 'alice'), await readUsed(app, 'bob')]).toEqual([0, 30]);
});

test('R88 the quota is charged with the sizes of the files, of a pattern and of a list', async () => {
  await addFiles(app.ctx, [
    { path: '/a/one.nc', size: 300n },
    { path: '/a/two.nc', size: 40n },
    { path: '/b/three.nc', size: 5n, stage: 'ONDISK' },
  ]);
  await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  expect(await readUsed(app, 'alice')).toBe(340);
  await makeRequest(app, { quota: 'alice', files: ['/b/three.nc', '/b/three.nc'] });
  expect(await readUsed(app, 'alice')).toBe(345);
});

test('R89 each request is charged for each of its files, also if others request them too', async () => {
  await addQuota(app.ctx, 'bob', 1000n);
  await addSizes({ '/a/one.nc': 300n });
  for (const quota of ['alice', 'alice', 'bob']) await makeRequest(app, { quota, files: ['/a/one.nc'] });
  expect([await readUsed(app, 'alice'), await readUsed(app, 'bob')]).toEqual([600, 300]);
});

test('R90 files over quota return 403 with the user and the sizes', async () => {
  await addSizes({ '/a/one.nc': 400n, '/b/two.nc': 601n });
  await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  const remedy = 'release files or cancel requests that are no longer needed, or ask an operator for a larger quota';
  const pattern = await post(app, { quota: 'alice', patterns: '.nc' });
  const list = await post(app, { quota: 'alice', files: ['/b/two.nc'] });
  const fewer = 'request fewer files, or ask an operator for a larger quota';
  expect([pattern.status, pattern.body]).toEqual([
    403,
    errorBody(
      `the request does not fit in quota "alice": 1001 bytes requested, 600 bytes of 1000 bytes free; ${fewer}`,
    ),
  ]);
  expect([list.status, list.body]).toEqual([
    403,
    errorBody(`quota "alice" is full: 601 bytes requested, 600 bytes of 1.00 kB free; ${remedy}`),
  ]);
});

test('R91 a refused request stores nothing', async () => {
  await addSizes({ '/a/one.nc': 1001n });
  const before = await dumpTables(app.ctx);
  const pattern = await post(app, { quota: 'alice', patterns: '/a/' });
  const list = await post(app, { quota: 'alice', files: ['/a/one.nc', '/a/unknown.nc'] });
  expect([pattern.status, list.status]).toEqual([403, 403]);
  expect(await dumpTables(app.ctx)).toEqual(before);
});

test('R92 files that fill the quota to the last byte are accepted', async () => {
  await addSizes({ '/a/one.nc': 400n, '/b/two.nc': 600n, '/c/none.nc': 0n });
  for (const patterns of ['/a/', '/b/', '/c/']) {
    expect((await post(app, { quota: 'alice', patterns })).status).toBe(200);
  }
  expect(await readUsed(app, 'alice')).toBe(1000);
});

test('R93 a request past its retention frees its charge, before its end was recorded', async () => {
  await addSizes({ '/a/one.nc': 1000n });
  await makeRequest(app, { quota: 'alice', patterns: '/a/', retention: '2026-11-21' });
  time.now = '2026-11-20T23:59:59.999999';
  expect((await post(app, { quota: 'alice', patterns: '/a/' })).status).toBe(403);
  time.now = '2026-11-21T00:00:00';
  expect((await post(app, { quota: 'alice', patterns: '/a/' })).status).toBe(200);
  expect(await readUsed(app, 'alice')).toBe(1000);
});

test('R94 of concurrent requests exactly those that fit are accepted', async () => {
  await addSizes({ '/a/one.nc': 400n });
  const answers = await Promise.all(Array.from({ length: 8 }, () => post(app, { quota: 'alice', patterns: '/a/' })));
  const statuses = answers.map(({ status }) => status).sort();
  expect(statuses).toEqual([200, 200, 403, 403, 403, 403, 403, 403]);
  expect(await readUsed(app, 'alice')).toBe(800);
});

test('R95 the charge changes with the size of a file', async () => {
  await addSizes({ '/a/one.nc': 400n });
  await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  await makeRequest(app, { quota: 'alice', files: ['/a/one.nc'] });
  await addSizes({ '/a/one.nc': 150n });
  expect(await readUsed(app, 'alice')).toBe(300);
});

test('R140 a released file or path is not in the files of its request, and not charged', async () => {
  await addSizes({ '/r/a': 1n, '/r/b': 10n, '/r/c': 100n });
  const listed = await makeRequest(app, { quota: 'alice', files: ['/r/x', '/r/c', '/r/b', '/r/a', '/r/y'] });
  const matched = await makeRequest(app, { quota: 'alice', patterns: '/r/' });
  await release(app, { requestId: listed, paths: ['/r/b', '/r/x'] });
  await release(app, { requestId: matched, match: 'c' });
  expect((await readRequest(app, listed)).files).toEqual(['/r/c', '/r/a', '/r/y']);
  expect((await readRequest(app, matched)).files).toEqual(['/r/a', '/r/b']);
  expect(await readUsed(app, 'alice')).toBe(101 + 11);
});

test('R141 a file that appears beyond the limits of its request is listed and not charged', async () => {
  const id = await made(app, { quota: 'alice', pattern: '/l/', maxFiles: 1 });
  await addSizes({ '/l/a': 1n, '/l/b': 10n });
  expect((await readRequest(app, id)).files).toEqual(['/l/a', '/l/b']);
  expect(await readUsed(app, 'alice')).toBe(1);
});
