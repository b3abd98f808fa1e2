/** Idempotency keys, with which clients safely repeat the call that creates a request. */
import { expect, test } from 'vitest';
import { addSeconds } from '../../src/core/time.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { pruneIdempotencyKeys } from '../../src/domain/idempotency-keys.js';
import { removeQuota, setQuota } from '../../src/domain/quotas/quotas.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { purgeUser } from '../../src/domain/users/purge.js';
import { type Clock, createClock } from '../support/clock.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { AS_AN_IMPORT, whileLocked } from '../support/locks.js';
import { create } from '../support/mutations.js';
import { call, errorBody, readUsed } from '../support/rest.js';
import { useApp } from '../support/use-app.js';

const clock: Clock = createClock();
const app = useApp({ now: clock.now }, async () => {
  await addFiles(app.ctx, [{ path: '/k/1' }, { path: '/k/2' }]);
});

/** Creates a user with room for one file, and returns clients with the user's token. */
async function addUser(user: string, size = 1000n) {
  await addQuota(app.ctx, user, size);
  const { secret } = await createToken({ ...app.ctx, now: () => app.ctx.db.clock.now() }, { name: user, role: 'USER' });
  const headers = { Authorization: `Bearer ${secret}` };
  return {
    post: (key: string, fields: object) => post(key, { quota: user, ...fields }, headers),
    create: (key: string, fields: object) =>
      create({ url: app.url, token: secret }, { quota: user, idempotencyKey: key, ...fields }),
  };
}

const post = (key: string, fields: object, headers: object = {}) =>
  call(app, 'POST', '/requests', { body: fields, headers: { ...headers, 'Idempotency-Key': key } });

async function idsOf(user: string): Promise<number[]> {
  const query = `{ requests(quota: "${user}", states: [QUEUED, RESTORING, COMPLETED, PARTIAL, EXPIRED, CANCELLED]) {
    edges { node { requestId } } } }`;
  const { requests } = await askData<{ requests: { edges: { node: { requestId: number } }[] } }>(app, query);
  return requests.edges.map(({ node }) => node.requestId);
}

const idOf = ({ body }: { body: unknown }) => (body as [{ req_id: number }])[0].req_id;

test('R146 a POST with the same Idempotency-Key and body returns the first id, and creates nothing', async () => {
  const ann = await addUser('ann');
  const first = await ann.post('key-1', { patterns: '/k/1' });
  const again = await ann.post('key-1', { patterns: '/k/1' });
  expect([first.status, again.status, again.text]).toEqual([200, 200, first.text]);
  expect([await idsOf('ann'), await readUsed(app, 'ann')]).toEqual([[idOf(first)], 1000]);
  const { rowCount } = await app.ctx.db.pool.query(
    `SELECT FROM audit WHERE operation = 'createRequest' AND who = 'ann'`,
  );
  expect(rowCount).toBe(1);
});

test('R147 a POST with the same Idempotency-Key and another body returns 422, with the id of the first request', async () => {
  const ben = await addUser('ben', 10_000n);
  const id = idOf(await ben.post('key-1', { patterns: '/k/1' }));
  for (const fields of [{ patterns: '/k/2' }, { patterns: '/k/1', label: 'l' }, { files: ['/k/1'] }]) {
    const { status, body } = await ben.post('key-1', fields);
    const problem = `"key-1" has already created request ${id} from another input: use a new key for each request`;
    expect([status, body]).toEqual([422, errorBody(`Idempotency-Key ${problem}`)]);
  }
  expect(await idsOf('ben')).toEqual([id]);
});

test('R148 an Idempotency-Key that is empty, too long or not visible ASCII returns 400', async () => {
  const cid = await addUser('cid');
  for (const key of ['', 'x'.repeat(256), 'a b', 'é']) {
    const message = `Idempotency-Key must have 1 to 255 visible ASCII characters, not "${key}"`;
    const { status, body } = await cid.post(key, { patterns: '/k/1' });
    expect([status, body]).toEqual([400, errorBody(key.length > 255 ? expect.stringContaining('(256') : message)]);
  }
  expect((await cid.post('""', { patterns: '/k/1' })).status).toBe(400);
  const { status, body } = await cid.post('"open', { patterns: '/k/1' });
  expect([status, body]).toEqual([400, errorBody('Idempotency-Key must be a quoted string, not "open')]);
  expect(await idsOf('cid')).toEqual([]);
});

test('R149 an Idempotency-Key in quotation marks is the same key as without them', async () => {
  const dan = await addUser('dan');
  const id = idOf(await dan.post('"key-1"', { patterns: '/k/1' }));
  expect(idOf(await dan.post('key-1', { patterns: '/k/1' }))).toBe(id);
});

test('GraphQL and REST share keys, and the same input in another form is the same', async () => {
  const eva = await addUser('eva');
  const retention = '2999-01-02';
  const id = idOf(await eva.post('key-1', { files: '/k/1\n/x\n/k/1', retention, label: '', notify_on_last_file: '' }));
  const input = { files: ['/k/1', '/x'], retention: `${retention}T00:00:00Z`, notifyOnLastFile: '' };
  await cancelRequest(app.ctx, id);
  expect(await eva.create('key-1', input)).toMatchObject({ requestId: id, state: 'CANCELLED' });
  expect(await eva.create('key-1', { pattern: '/k/1' })).toEqual({
    ...{ __typename: 'InvalidInput', field: 'idempotencyKey' },
    message: expect.stringMatching(`^idempotencyKey "key-1" has already created request ${id} `),
  });
});

test('concurrent calls with the same key create one request, although the quota has no room for a second', async () => {
  const fay = await addUser('fay');
  const { calls } = await whileLocked(app, AS_AN_IMPORT, async (waiters) => {
    const calls = [1, 2, 3, 4].map(async (n) => {
      if (n % 2 === 0) return idOf(await fay.post('key-1', { patterns: '/k/1' }));
      return (await fay.create('key-1', { pattern: '/k/1' })).requestId;
    });
    await waiters(2); // the other calls wait for a slot
    return { calls };
  });
  const ids = await Promise.all(calls);
  expect([[...new Set(ids)], await readUsed(app, 'fay')]).toEqual([await idsOf('fay'), 1000]);
});

test('a failed call stores no key', async () => {
  const gil = await addUser('gil');
  const full = await gil.post('key-1', { patterns: '/k/' });
  const late = await gil.post('key-1', { patterns: '/k/1', retention: '2020-01-01' });
  const made = await gil.post('key-1', { patterns: '/k/1' });
  expect([full.status, late.status, made.status]).toEqual([403, 400, 200]);
});

test('another caller may use the same key, and anonymous callers share the keys of each quota', async () => {
  const [hal, ida] = [await addUser('hal'), await addUser('ida')];
  await setQuota(app.ctx, { user: 'hal', size: 2000n });
  await setQuota(app.ctx, { user: 'ida', size: 2000n });
  const ofUsers = [
    idOf(await hal.post('key-1', { patterns: '/k/1' })),
    idOf(await ida.post('key-1', { patterns: '/k/1' })),
  ];
  const anonymous = async (quota: string) => idOf(await post('key-1', { quota, patterns: '/k/1' }));
  const ofAnonymous = [await anonymous('hal'), await anonymous('ida')];
  expect(new Set([...ofUsers, ...ofAnonymous]).size).toBe(4);
  expect([await anonymous('hal'), await anonymous('ida')]).toEqual(ofAnonymous);
});

test('a key expires after 24 hours, even if its row has not been deleted yet', async () => {
  const jan = await addUser('jan', 10_000n);
  const made = async (fields: object) => idOf(await jan.post('key-1', fields));
  const retention = addSeconds(clock.now(), 3600);
  const first = await made({ patterns: '/k/1', retention });
  clock.advance(86_000);
  expect(await made({ patterns: '/k/1', retention })).toBe(first); // although the retention is in the past
  clock.advance(401);
  const second = await made({ patterns: '/k/2' });
  expect([second === first, await made({ patterns: '/k/2' })]).toEqual([false, second]);
});

test('expired keys are deleted', async () => {
  const count = async () => (await app.ctx.db.pool.query('SELECT FROM idempotency_key')).rowCount;
  const kim = await addUser('kim');
  clock.advance(86_401);
  await kim.post('key-1', { patterns: '/k/1' });
  expect(await count()).toBeGreaterThan(1);
  await pruneIdempotencyKeys(app.ctx, new AbortController().signal);
  expect(await count()).toBe(1);
});

test.each([
  ['removed', removeQuota],
  ['purged', purgeUser],
])('the keys of a user who is %s are deleted', async (how, remove) => {
  const user = `user-${how}`;
  await addQuota(app.ctx, user, 1000n);
  const keysOf = async () =>
    (await app.ctx.db.pool.query(`SELECT FROM idempotency_key WHERE owner LIKE '%${user}'`)).rowCount;
  for (const by of [await addUser(user), { post }]) {
    const id = idOf(await by.post('key-1', { quota: user, patterns: '/k/1' }));
    await cancelRequest(app.ctx, id);
  }
  expect(await keysOf()).toBe(2);
  await remove(app.ctx, user);
  expect(await keysOf()).toBe(0);
});
