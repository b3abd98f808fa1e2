import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { errorBody, get, makeRequest, put, read, readRequest, readUsed } from '../support/rest.js';
import { dumpTables, emptyTables } from '../support/tables.js';

const ADDRESSES = { notify_on_first_file: 'first@example.org', notify_on_last_file: 'last@example.org' };

let now: string;
let id: number;
let app: TestApp;
beforeAll(async () => {
  app = await startApp({ now: () => now });
});
beforeEach(async () => {
  now = '2026-11-20T10:00:00.000007';
  await emptyTables(app.ctx);
  await addQuota(app.ctx, 'alice', 1000n);
  await addQuota(app.ctx, 'bob', 1000n);
  await addFiles(app.ctx, [{ path: '/a/one.nc', size: 600n }]);
  id = await makeRequest(app, { quota: 'alice', patterns: '/a/', label: 'mine', ...ADDRESSES });
});
afterAll(() => app.close());

const listIds = async () => (await read<{ requests: { id: number }[] }>(app, '/requests')).requests.map((r) => r.id);

test('R96 a change that is made answers the id', async () => {
  const { status, text } = await put(app, id, { quota: 'alice', label: 'new' });
  expect([status, text]).toEqual([200, '[{"req_id":1}]']);
});

test('R97 retention, label and both addresses are changed', async () => {
  const before = await readRequest(app, id);
  const changes = { label: 'new', notify_on_first_file: 'a@example.org', notify_on_last_file: 'b@example.org' };
  await put(app, id, { quota: 'alice', retention: '2027-01-02T03:04:05.678900', ...changes });
  expect(await readRequest(app, id)).toEqual({ ...before, ...changes, retention: '2027-01-02T03:04:05.678900' });
});

test('R98 what is not given stays as it is, the retention too', async () => {
  await put(app, id, { quota: 'alice', retention: '2027-01-01' });
  const before = await readRequest(app, id);
  now = '2026-11-21T00:00:00';
  const changes = [{}, { label: 'new' }, { notify_on_last_file: 'b@example.org' }, { retention: '2027-02-01' }];
  let expected = { ...before };
  for (const change of changes) {
    await put(app, id, { quota: 'alice', ...change });
    expected = { ...expected, ...change, ...('retention' in change ? { retention: '2027-02-01T00:00:00' } : {}) };
    expect(await readRequest(app, id)).toEqual(expected);
  }
});

test('R99 a label or retention that is null or empty stays as it is', async () => {
  const before = await readRequest(app, id);
  for (const blank of [null, '']) {
    expect((await put(app, id, { quota: 'alice', label: blank, retention: blank })).status).toBe(200);
    expect(await readRequest(app, id)).toEqual(before);
  }
});

test('R100 the pattern and the files of a request stay as they are', async () => {
  const before = await readRequest(app, id);
  const { status } = await put(app, id, { quota: 'alice', patterns: '/b/', files: ['/b/two.nc'] });
  expect([status, await readRequest(app, id)]).toEqual([200, before]);
});

test('R101 a missing quota answers 400', async () => {
  const { status, body } = await put(app, id, { label: 'new' });
  expect([status, body]).toEqual([400, errorBody('quota must name a user, and is missing')]);
});

test('R102 a user without a quota answers 403 and is named', async () => {
  for (const quota of ['nobody', '']) {
    const { status, body } = await put(app, id, { quota, label: 'new' });
    expect([status, body]).toEqual([403, errorBody(`there is no quota for user "${quota}"`)]);
  }
});

test("R103 a quota other than the request's answers 403", async () => {
  const { status, body } = await put(app, id, { quota: 'bob', label: 'new' });
  expect([status, body]).toEqual([403, errorBody('request 1 belongs to quota "alice", not to "bob"')]);
});

test('R104 an unknown id answers 404, whatever the quota', async () => {
  for (const quota of ['alice', 'nobody']) {
    const { status, body } = await put(app, 2, { quota });
    expect([status, body]).toEqual([404, errorBody('there is no request with id 2')]);
  }
});

test('R105 an id that is no number or out of range answers 404', async () => {
  for (const text of ['-1', '1.0', '2147483648', '9223372036854775808', 'one', '%00']) {
    const { status, body } = await put(app, text, { quota: 'alice' });
    const quoted = JSON.stringify(decodeURIComponent(text));
    expect([status, body]).toEqual([404, errorBody(`there is no request with id ${quoted}`)]);
  }
});

test("R106 an empty address means the quota's own", async () => {
  for (const name of ['notify_on_first_file', 'notify_on_last_file']) {
    await put(app, id, { quota: 'alice', ...ADDRESSES, [name]: '' });
    expect(await readRequest(app, id)).toMatchObject({ ...ADDRESSES, [name]: 'alice@example.org' });
  }
});

test('R107 null removes an address', async () => {
  for (const name of ['notify_on_first_file', 'notify_on_last_file']) {
    await put(app, id, { quota: 'alice', ...ADDRESSES, [name]: null });
    expect(await readRequest(app, id)).toMatchObject({ ...ADDRESSES, [name]: null });
  }
});

test('R108 a retention that has passed ends the request at once and gives its charge back', async () => {
  const retention = '2026-11-20T10:00:00.000007';
  const { status } = await put(app, id, { quota: 'alice', retention });
  expect([status, await listIds(), await readUsed(app, 'alice')]).toEqual([200, [], 0]);
  expect((await readRequest(app, id)).retention).toBe(retention);
});

test('R109 a later retention revives a request that has ended, charged again', async () => {
  await put(app, id, { quota: 'alice', retention: '2026-11-19' });
  const { status } = await put(app, id, { quota: 'alice', retention: '2026-11-30' });
  expect([status, await listIds(), await readUsed(app, 'alice')]).toEqual([200, [id], 600]);
  const { retention, files } = await readRequest(app, id);
  expect([retention, files]).toEqual(['2026-11-30T00:00:00', ['/a/one.nc']]);
});

test('R110 a revived request takes the files that match it now', async () => {
  const listing = await makeRequest(app, { quota: 'bob', files: ['/a/two.nc', '/a/one.nc'] });
  for (const [request, quota] of [[id, 'alice'] as const, [listing, 'bob'] as const]) {
    await put(app, request, { quota, retention: '2026-11-19' });
  }
  await addFiles(app.ctx, [{ path: '/a/two.nc', size: 40n }]);
  await put(app, id, { quota: 'alice', retention: '2026-11-30' });
  await put(app, listing, { quota: 'bob', retention: '2026-11-30' });
  expect([await readUsed(app, 'alice'), await readUsed(app, 'bob')]).toEqual([640, 640]);
  expect((await readRequest(app, id)).files).toEqual(['/a/one.nc', '/a/two.nc']);
  expect((await read<{ files: string[] }>(app, `/requests/${listing}`)).files.sort()).toEqual([
    '/a/one.nc',
    '/a/two.nc',
  ]);
});

test('R111 a revival that the quota has no room for answers 403 and changes nothing', async () => {
  await put(app, id, { quota: 'alice', retention: '2026-11-19' });
  await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  const before = await dumpTables(app.ctx);
  const { status, body } = await put(app, id, { quota: 'alice', retention: '2026-11-30', label: 'new' });
  const message =
    'the quota of user "alice" has no room for the files: 600 bytes are requested, and 400 of its 1000 bytes are available';
  expect([status, body]).toEqual([403, errorBody(message)]);
  expect(await dumpTables(app.ctx)).toEqual(before);
});

test('R112 a change that is refused changes nothing', async () => {
  const before = await dumpTables(app.ctx);
  const change = { label: 'new', retention: '2026-11-19', notify_on_first_file: 'a@example.org' };
  const refused = [
    await put(app, id, { ...change, quota: 'bob' }),
    await put(app, id, { ...change, quota: 'nobody' }),
    await put(app, id, { ...change, quota: 'alice', notify_on_last_file: 'nobody' }),
    await put(app, id, { ...change, quota: 'alice', label: 'a\nb' }),
    await put(app, id, { ...change, quota: 'alice', retention: 'soon' }),
    await put(app, id, { ...change }),
  ];
  expect(refused.map(({ status }) => status)).toEqual([403, 403, 400, 400, 400, 400]);
  expect(await dumpTables(app.ctx)).toEqual(before);
  expect((await get(app, '/requests')).status).toBe(200);
});
