import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { errorBody, makeRequest, post, readRequest, readUsed } from '../support/rest.js';
import { dumpTables, emptyTables } from '../support/tables.js';

let now: string;
let app: TestApp;
beforeAll(async () => {
  app = await startApp({ now: () => now });
});
beforeEach(async () => {
  now = '2026-11-20T10:00:00.000007';
  await emptyTables(app.ctx);
  await addQuota(app.ctx, 'alice', 1000n);
});
afterAll(() => app.close());

test('R76 a path that the catalogue does not know is taken and not charged', async () => {
  await addFiles(app.ctx, [{ path: '/a/one.nc', size: 300n }]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/a/one.nc', '/a/later.nc'] });
  expect((await readRequest(app, id)).files).toEqual(['/a/one.nc', '/a/later.nc']);
  expect(await readUsed(app, 'alice')).toBe(300);
});

test('R77 a listed path joins its request and is charged when it appears', async () => {
  const id = await makeRequest(app, { quota: 'alice', files: ['/a/one.nc', '/a/later.nc'] });
  await addFiles(app.ctx, [
    { path: '/a/later.nc', size: 70n },
    { path: '/a/other.nc', size: 500n },
  ]);
  expect((await readRequest(app, id)).files).toEqual(['/a/one.nc', '/a/later.nc']);
  expect(await readUsed(app, 'alice')).toBe(70);
});

test('R78 a file that appears when the quota is full is listed and not charged', async () => {
  await addQuota(app.ctx, 'bob', 1000n);
  const listing = await makeRequest(app, { quota: 'alice', files: ['/a/big.nc'] });
  const matching = await makeRequest(app, { quota: 'bob', patterns: '/b/' });
  await addFiles(app.ctx, [
    { path: '/a/big.nc', size: 1001n },
    { path: '/b/big.nc', size: 1001n },
    { path: '/b/a.nc', size: 30n },
  ]);
  expect((await readRequest(app, listing)).files).toEqual(['/a/big.nc']);
  expect((await readRequest(app, matching)).files).toEqual(['/b/a.nc', '/b/big.nc']);
  expect([await readUsed(app, 'alice'), await readUsed(app, 'bob')]).toEqual([0, 30]);
});

test('R88 the quota is charged the sizes of the files of a pattern and of a list', async () => {
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

test('R89 each request is charged for each of its files, shared or not', async () => {
  await addQuota(app.ctx, 'bob', 1000n);
  await addFiles(app.ctx, [{ path: '/a/one.nc', size: 300n }]);
  for (const quota of ['alice', 'alice', 'bob']) await makeRequest(app, { quota, files: ['/a/one.nc'] });
  expect([await readUsed(app, 'alice'), await readUsed(app, 'bob')]).toEqual([600, 300]);
});

test('R90 files that exceed the quota answer 403 with the user and all figures', async () => {
  await addFiles(app.ctx, [
    { path: '/a/one.nc', size: 400n },
    { path: '/b/two.nc', size: 601n },
  ]);
  await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  const figures = (needed: number) => `${needed} bytes are requested, and 600 of its 1000 bytes are available`;
  const pattern = await post(app, { quota: 'alice', patterns: '.nc' });
  const list = await post(app, { quota: 'alice', files: ['/b/two.nc'] });
  expect([pattern.status, pattern.body]).toEqual([
    403,
    errorBody(`the quota of user "alice" has no room for the files: ${figures(1001)}`),
  ]);
  expect([list.status, list.body]).toEqual([
    403,
    errorBody(`the quota of user "alice" has no room for the files: ${figures(601)}`),
  ]);
});

test('R91 a request that is refused stores nothing', async () => {
  await addFiles(app.ctx, [{ path: '/a/one.nc', size: 1001n }]);
  const before = await dumpTables(app.ctx);
  const pattern = await post(app, { quota: 'alice', patterns: '/a/' });
  const list = await post(app, { quota: 'alice', files: ['/a/one.nc', '/a/unknown.nc'] });
  expect([pattern.status, list.status]).toEqual([403, 403]);
  expect(await dumpTables(app.ctx)).toEqual(before);
});

test('R92 files that fill the quota to the last byte fit', async () => {
  await addFiles(app.ctx, [
    { path: '/a/one.nc', size: 400n },
    { path: '/b/two.nc', size: 600n },
    { path: '/c/none.nc', size: 0n },
  ]);
  for (const patterns of ['/a/', '/b/', '/c/']) {
    expect((await post(app, { quota: 'alice', patterns })).status).toBe(200);
  }
  expect(await readUsed(app, 'alice')).toBe(1000);
});

test('R93 a request past its retention leaves its room to the next, though nobody has noticed its end', async () => {
  await addFiles(app.ctx, [{ path: '/a/one.nc', size: 1000n }]);
  await makeRequest(app, { quota: 'alice', patterns: '/a/', retention: '2026-11-21' });
  now = '2026-11-20T23:59:59.999999';
  expect((await post(app, { quota: 'alice', patterns: '/a/' })).status).toBe(403);
  now = '2026-11-21T00:00:00';
  expect((await post(app, { quota: 'alice', patterns: '/a/' })).status).toBe(200);
  expect(await readUsed(app, 'alice')).toBe(1000);
});

test('R94 of requests that race for the last bytes exactly those are taken that fit', async () => {
  await addFiles(app.ctx, [{ path: '/a/one.nc', size: 400n }]);
  const answers = await Promise.all(Array.from({ length: 8 }, () => post(app, { quota: 'alice', patterns: '/a/' })));
  const statuses = answers.map(({ status }) => status).sort();
  expect(statuses).toEqual([200, 200, 403, 403, 403, 403, 403, 403]);
  expect(await readUsed(app, 'alice')).toBe(800);
});

test('R95 the charge follows the catalogue when the size of a file changes', async () => {
  await addFiles(app.ctx, [{ path: '/a/one.nc', size: 400n }]);
  await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  await makeRequest(app, { quota: 'alice', files: ['/a/one.nc'] });
  await addFiles(app.ctx, [{ path: '/a/one.nc', size: 150n }]);
  expect(await readUsed(app, 'alice')).toBe(300);
});
