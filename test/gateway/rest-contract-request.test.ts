import { expect, test } from 'vitest';
import { expectError, useContract } from '../support/contract.js';
import { addFiles, addPaths, addQuota } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { errorBody, get, makeRequest, read, readRequest } from '../support/rest.js';

const { app, time } = useContract(100_000n);

test('R34 a request has the fields of the contract in their order', async () => {
  await addPaths(app.ctx, '/a/one.nc', '/a/two.nc');
  const addresses = { notify_on_first_file: 'first@example.org', notify_on_last_file: 'last@example.org' };
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', label: 'mine', ...addresses });
  const { status, text } = await get(app, `/requests/${id}`);
  expect([status, text]).toEqual([
    200,
    '[{"id":1,"quota":"alice","retention":"2026-11-25T10:00:00.000007","request_date":"2026-11-20T10:00:00.000007",' +
      '"request_patterns":"/a/","notify_on_first_file":"first@example.org","notify_on_last_file":"last@example.org",' +
      '"label":"mine","files":["/a/one.nc","/a/two.nc"]}]',
  ]);
});

test('R35 a missing address is null', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', notify_on_last_file: 'last@example.org' });
  const { notify_on_first_file, notify_on_last_file } = await readRequest(app, id);
  expect([notify_on_first_file, notify_on_last_file]).toEqual([null, 'last@example.org']);
});

test('R36 the pattern of a request that lists files is empty', async () => {
  const id = await makeRequest(app, { quota: 'alice', files: ['/a/one.nc'] });
  expect((await readRequest(app, id)).request_patterns).toBe('');
});

test('R37 listed files are in the order of the request, known or not', async () => {
  await addPaths(app.ctx, '/a/a.nc', '/a/z.nc');
  const files = ['/a/z.nc', '/unknown/b.nc', '/a/a.nc', '/unknown/a.nc'];
  const id = await makeRequest(app, { quota: 'alice', files });
  expect((await readRequest(app, id)).files).toEqual(files);
});

test('R38 files of a pattern are sorted by path, and those added later follow', async () => {
  await addPaths(app.ctx, '/a/c.nc', '/b/x.nc', '/a/b.nc');
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  await addPaths(app.ctx, '/a/z.nc', '/a/a.nc');
  expect((await readRequest(app, id)).files).toEqual(['/a/b.nc', '/a/c.nc', '/a/a.nc', '/a/z.nc']);
});

test('R39 all files of a request are listed, on either side of a page of 2,000', async () => {
  const all = Array.from({ length: 4001 }, (_, n) => `/many/${String(n).padStart(4, '0')} "a\tb\\c\u2028🛰`);
  await addFiles(
    app.ctx,
    all.filter((_, n) => n % 2 === 0).map((path) => ({ path, size: 1n })),
  );
  for (const count of [2000, 4001]) {
    const files = all.slice(0, count);
    const id = await makeRequest(app, { quota: 'alice', files });
    expect((await get(app, `/requests/${id}`)).text).toContain(`"files":${JSON.stringify(files)}}]`);
  }
});

test('R40 an expired or cancelled request can still be read', async () => {
  const retention = '2026-11-21T00:00:00';
  const expired = await makeRequest(app, { quota: 'alice', files: ['/a'], retention });
  const cancelled = await makeRequest(app, { quota: 'alice', files: ['/a'], label: 'off' });
  await cancel(app, cancelled);
  time.now = '2026-11-22T10:00:00';
  expect(await readRequest(app, expired)).toMatchObject({ id: expired, retention, files: ['/a'] });
  expect(await readRequest(app, cancelled)).toMatchObject({ id: cancelled, label: 'off', files: ['/a'] });
});

test('R41 an unknown id returns 404', async () => {
  const id = await makeRequest(app, { quota: 'alice', files: ['/a'] });
  await expectError(get(app, `/requests/${id + 1}`), 404, `there is no request with id ${id + 1}`);
});

test('R42 an id that is no number or out of range returns 404', async () => {
  await makeRequest(app, { quota: 'alice', files: ['/a'] });
  const numbers = ['2147483648', '4294967297', '9223372036854775808', '18446744073709551617', '9'.repeat(400)];
  for (const id of ['-1', '+1', '1.0', '1e0', '0x1', '%201', '1%20', 'one', '%D9%A1', '1,2', '%00', ...numbers]) {
    const message = expect.stringMatching(/^there is no request with id "/);
    await expectError(get(app, `/requests/${id}`), 404, message);
  }
  expect((await get(app, '/requests/0')).body).toEqual(errorBody('there is no request with id 0'));
  expect((await get(app, '/requests/2147483647')).status).toBe(404);
});

test('R55 the list has the fields of the contract in their order', async () => {
  await addQuota(app.ctx, 'bob', 100n);
  await makeRequest(app, { quota: 'alice', patterns: '/a/', label: 'mine' });
  time.now = '2026-11-20T11:00:00';
  await makeRequest(app, { quota: 'bob', files: ['/a/one.nc', '/a/two.nc'], retention: '2027-01-01' });
  const { status, text } = await get(app, '/requests');
  expect([status, text]).toEqual([
    200,
    '[{"requests":[{"id":1,"quota":"alice","retention":"2026-11-25T10:00:00.000007",' +
      '"request_date":"2026-11-20T10:00:00.000007","label":"mine"},' +
      '{"id":2,"quota":"bob","retention":"2027-01-01T00:00:00","request_date":"2026-11-20T11:00:00",' +
      '"label":"/a/one.nc"}]}]',
  ]);
});

test('R56 without requests the list is empty', async () => {
  const { status, text } = await get(app, '/requests');
  expect([status, text]).toEqual([200, '[{"requests":[]}]']);
});

const listIds = async () => (await read<{ requests: { id: number }[] }>(app, '/requests')).requests.map(({ id }) => id);

test('R57 a request is listed until the microsecond before its retention', async () => {
  await makeRequest(app, { quota: 'alice', files: ['/a'], retention: '2026-11-21T00:00:00.000001' });
  await makeRequest(app, { quota: 'alice', files: ['/a'] });
  time.now = '2026-11-21T00:00:00';
  expect(await listIds()).toEqual([1, 2]);
  time.now = '2026-11-21T00:00:00.000001';
  expect(await listIds()).toEqual([2]);
});

test('R58 a cancelled request is not listed', async () => {
  await makeRequest(app, { quota: 'alice', files: ['/a'] });
  await makeRequest(app, { quota: 'alice', files: ['/a'] });
  await cancel(app, 1);
  expect(await listIds()).toEqual([2]);
});

test('R59 the oldest request comes first, whatever was changed last', async () => {
  for (const label of ['c', 'a', 'b']) await makeRequest(app, { quota: 'alice', files: ['/a'], label });
  await app.ctx.db.pool.query(`UPDATE request SET label = 'd' WHERE id = 1`);
  expect(await listIds()).toEqual([1, 2, 3]);
});

test('R60 all live requests are listed, also more than a page', async () => {
  await app.ctx.db.pool.query(
    `INSERT INTO request (quota_id, pattern, label, request_date, retention)
     SELECT 1, '/a/', 'n', '2026-11-20', '2026-11-25' FROM generate_series(1, 4001)`,
  );
  expect(await listIds()).toEqual(Array.from({ length: 4001 }, (_, n) => n + 1));
});
