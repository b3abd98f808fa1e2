import { expect, test } from 'vitest';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { expectError, useContract } from '../support/contract.js';
import { addFiles, addQuota } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { get, makeRequest, read, readUsed } from '../support/rest.js';

const { app, time } = useContract(10_000n, async () => {
  await setQuota(app.ctx, { user: 'alice', size: 10_000n, email: 'alice@example.org', notes: 'ocean project' });
  await addFiles(app.ctx, [
    { path: '/a/one.nc', size: 600n },
    { path: '/d/two.nc', size: 40n, stage: 'ONDISK' },
  ]);
});

const listIds = async (user: string) =>
  (await read<{ requests: { id: number }[] }>(app, `/quota/${user}`)).requests.map(({ id }) => id);

test('R131 a quota has the fields of the contract in their order', async () => {
  const { status, text } = await get(app, '/quota/alice');
  expect([status, text]).toEqual([
    200,
    '[{"id":1,"user":"alice","size":10000,"used":0,"email":"alice@example.org","notes":"ocean project","requests":[]}]',
  ]);
});

test('R132 the requests of a quota have the fields of the contract in their order', async () => {
  await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  await makeRequest(app, { quota: 'alice', files: ['/x', '/y'], label: 'mine', retention: '2027-01-01' });
  const { text } = await get(app, '/quota/alice');
  expect(text.slice(text.indexOf('"requests"'))).toBe(
    '"requests":[{"id":1,"request_date":"2026-11-20T10:00:00.000007","retention":"2026-11-25T10:00:00.000007",' +
      '"label":"/a/"},{"id":2,"request_date":"2026-11-20T10:00:00.000007","retention":"2027-01-01T00:00:00",' +
      '"label":"mine"}]}]',
  );
});

test('R134 a quota lists its own requests, oldest first', async () => {
  await addQuota(app.ctx, 'bob', 100n);
  for (const quota of ['alice', 'bob', 'alice', 'alice']) await makeRequest(app, { quota, files: ['/x'] });
  expect([await listIds('alice'), await listIds('bob')]).toEqual([[1, 3, 4], [2]]);
});

test('R135 a quota lists only live requests', async () => {
  await makeRequest(app, { quota: 'alice', files: ['/x'], retention: '2026-11-21' });
  await makeRequest(app, { quota: 'alice', files: ['/x'] });
  await makeRequest(app, { quota: 'alice', files: ['/x'] });
  await cancel(app, 3);
  time.now = '2026-11-20T23:59:59.999999';
  expect(await listIds('alice')).toEqual([1, 2]);
  time.now = '2026-11-21T00:00:00';
  expect(await listIds('alice')).toEqual([2]);
});

test('R136 used is the bytes of live requests, also before the end of others was recorded', async () => {
  await makeRequest(app, { quota: 'alice', files: ['/a/one.nc'], retention: '2026-11-21' });
  await makeRequest(app, { quota: 'alice', files: ['/d/two.nc'] });
  expect(await readUsed(app, 'alice')).toBe(640);
  time.now = '2026-11-21T00:00:00';
  expect(await readUsed(app, 'alice')).toBe(40);
  await cancel(app, 2);
  expect(await readUsed(app, 'alice')).toBe(0);
});

test('R137 a missing address and missing notes are empty', async () => {
  await setQuota(app.ctx, { user: 'bob', size: 1n });
  expect((await get(app, '/quota/bob')).text).toContain('"used":0,"email":"","notes":"","requests":[]');
});

test('R138 the user in the path is percent-decoded', async () => {
  for (const user of ['a/b', 'jürgen x', '50%', '+1', 'a?b#c']) {
    await addQuota(app.ctx, user, 5n, '');
    expect(await read(app, `/quota/${encodeURIComponent(user)}`)).toMatchObject({ user, size: 5 });
  }
});

test('R139 an unknown user returns 404 and is named', async () => {
  for (const user of ['nobody', 'alic', '%', '\0', '1']) {
    await expectError(get(app, `/quota/${encodeURIComponent(user)}`), 404, `there is no user ${JSON.stringify(user)}`);
  }
});
