import { expect, test } from 'vitest';
import { expectError, useContract } from '../support/contract.js';
import { addFiles, addQuota } from '../support/factories.js';
import { get, makeRequest, put, read, readRequest, readUsed } from '../support/rest.js';
import { dumpTables } from '../support/tables.js';

const ADDRESSES = { notify_on_first_file: 'first@example.org', notify_on_last_file: 'last@example.org' };

let id: number;
const { app, time } = useContract(1000n, async () => {
  await addQuota(app.ctx, 'bob', 1000n);
  await addFiles(app.ctx, [{ path: '/a/one.nc', size: 600n }]);
  id = await makeRequest(app, { quota: 'alice', patterns: '/a/', label: 'mine', ...ADDRESSES });
});

const listIds = async () => (await read<{ requests: { id: number }[] }>(app, '/requests')).requests.map((r) => r.id);

test('R96 a change returns the id', async () => {
  const { status, text } = await put(app, id, { quota: 'alice', label: 'new' });
  expect([status, text]).toEqual([200, '[{"req_id":1}]']);
});

test('R97 retention, label and both addresses are changed', async () => {
  const before = await readRequest(app, id);
  const changes = { label: 'new', notify_on_first_file: 'a@example.org', notify_on_last_file: 'b@example.org' };
  await put(app, id, { quota: 'alice', retention: '2027-01-02T03:04:05.678900', ...changes });
  expect(await readRequest(app, id)).toEqual({ ...before, ...changes, retention: '2027-01-02T03:04:05.678900' });
});

test('R98 fields that are not given stay unchanged, the retention too', async () => {
  await put(app, id, { quota: 'alice', retention: '2027-01-01' });
  const before = await readRequest(app, id);
  time.now = '2026-11-21T00:00:00';
  const changes = [{}, { label: 'new' }, { notify_on_last_file: 'b@example.org' }, { retention: '2027-02-01' }];
  let expected = { ...before };
  for (const change of changes) {
    await put(app, id, { quota: 'alice', ...change });
    expected = { ...expected, ...change, ...('retention' in change ? { retention: '2027-02-01T00:00:00' } : {}) };
    expect(await readRequest(app, id)).toEqual(expected);
  }
});

test('R99 a label or retention that is null or empty stays unchanged', async () => {
  const before = await readRequest(app, id);
  for (const blank of [null, '']) {
    expect((await put(app, id, { quota: 'alice', label: blank, retention: blank })).status).toBe(200);
    expect(await readRequest(app, id)).toEqual(before);
  }
});

test('R100 the pattern and the files of a request cannot be changed', async () => {
  const before = await readRequest(app, id);
  const { status } = await put(app, id, { quota: 'alice', patterns: '/b/', files: ['/b/two.nc'] });
  expect([status, await readRequest(app, id)]).toEqual([200, before]);
});

test('R101 a missing quota returns 400', async () => {
  await expectError(put(app, id, { label: 'new' }), 400, 'quota must name a user, and is missing');
});

test('R102 a user without a quota returns 403 and is named', async () => {
  for (const quota of ['nobody', '']) {
    await expectError(put(app, id, { quota, label: 'new' }), 403, `there is no quota for user "${quota}"`);
  }
});

test("R103 a quota other than the request's returns 403", async () => {
  const message = 'request 1 belongs to quota "alice", not to "bob"';
  await expectError(put(app, id, { quota: 'bob', label: 'new' }), 403, message);
});

test('R104 an unknown id returns 404, whatever the quota', async () => {
  for (const quota of ['alice', 'nobody']) {
    await expectError(put(app, 2, { quota }), 404, 'there is no request with id 2');
  }
});

test('R105 an id that is no number or out of range returns 404', async () => {
  for (const text of ['-1', '1.0', '2147483648', '9223372036854775808', 'one', '%00']) {
    const quoted = JSON.stringify(decodeURIComponent(text));
    await expectError(put(app, text, { quota: 'alice' }), 404, `there is no request with id ${quoted}`);
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

test('R108 a past retention ends the request at once and refunds its charge', async () => {
  const retention = '2026-11-20T10:00:00.000007';
  const { status } = await put(app, id, { quota: 'alice', retention });
  expect([status, await listIds(), await readUsed(app, 'alice')]).toEqual([200, [], 0]);
  expect((await readRequest(app, id)).retention).toBe(retention);
});

test('R109 a later retention revives an ended request and charges it again', async () => {
  await put(app, id, { quota: 'alice', retention: '2026-11-19' });
  const { status } = await put(app, id, { quota: 'alice', retention: '2026-11-30' });
  expect([status, await listIds(), await readUsed(app, 'alice')]).toEqual([200, [id], 600]);
  const { retention, files } = await readRequest(app, id);
  expect([retention, files]).toEqual(['2026-11-30T00:00:00', ['/a/one.nc']]);
});

test('R110 a revived request contains the files that match now', async () => {
  const listing = await makeRequest(app, { quota: 'bob', files: ['/a/two.nc', '/a/one.nc'] });
  for (const [request, quota] of [[id, 'alice'] as const, [listing, 'bob'] as const]) {
    await put(app, request, { quota, retention: '2026-11-19' });
  }
  await addFiles(app.ctx, [{ path: '/a/two.nc', size: 40n }]);
  await put(app, id, { quota: 'alice', retention: '2026-11-30' });
  await put(app, listing, { quota: 'bob', retention: '2026-11-30' });
  expect([await readUsed(app, 'alice'), await readUsed(app, 'bob')]).toEqual([640, 640]);
  expect((await readRequest(app, id)).files).toEqual(['/a/one.nc', '/a/two.nc']);
  const { files } = await read<{ files: string[] }>(app, `/requests/${listing}`);
  expect(files.sort()).toEqual(['/a/one.nc', '/a/two.nc']);
});

test('R111 a revival over quota returns 403 and changes nothing', async () => {
  await put(app, id, { quota: 'alice', retention: '2026-11-19' });
  await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  const before = await dumpTables(app.ctx);
  const message =
    'quota "alice" is full: 600 bytes requested, 400 bytes of 1.00 kB free; release files or cancel requests that are no longer needed, or ask an operator for a larger quota';
  await expectError(put(app, id, { quota: 'alice', retention: '2026-11-30', label: 'new' }), 403, message);
  expect(await dumpTables(app.ctx)).toEqual(before);
});

test('R112 a refused change changes nothing', async () => {
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
