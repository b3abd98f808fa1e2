/** Suspensions, priorities and weights by GraphQL, without an engine. */
import { expect, test } from 'vitest';
import { setDisk } from '../../src/domain/disks/disks.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { chargeDriveTime } from '../../src/domain/quotas/shares.js';
import { createClock } from '../support/clock.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { cancel } from '../support/mutations.js';
import { mutate } from '../support/payloads.js';
import { makeRequest } from '../support/rest.js';
import { readSuspensions, readTries, resume, suspend } from '../support/suspend.js';
import { useApp } from '../support/use-app.js';

const clock = createClock();
const app = useApp({ now: clock.now }, async () => {
  await addQuota(app.ctx, 'zoë', 10n ** 9n);
  await addFiles(app.ctx, [
    { path: '/s/1', volume: 'V1' },
    { path: '/s/2', volume: 'V2' },
  ]);
  await app.ctx.db.pool.query(`INSERT INTO drive (name) VALUES ('drive-1'), ('drive-2')`);
  await setDisk(app.ctx, { mountpoint: '/mnt/one', size: 10n });
});

test('each kind of resource can be suspended and resumed, and shows that', async () => {
  clock.freeze();
  const things = { VOLUME: 'V1', DRIVE: 'drive-2', USER: 'zoë', LIBRARY: 'directory', DISK: '/mnt/one' };
  const since = `${clock.now()}Z`;
  const stored = Object.entries(things).map(([kind, name]) => ({
    kind,
    name,
    mode: 'IMMEDIATE',
    reason: `for ${kind}`,
    since,
  }));
  for (const suspension of stored) {
    const { since: _, ...input } = suspension;
    expect(await suspend(app, { ...input, mode: 'IMMEDIATE' })).toEqual({ __typename: 'Suspension', ...suspension });
  }
  expect(await readSuspensions(app)).toEqual(stored);
  const shown = `{
    volumes { edges { node { name suspension { mode reason } } } }
    drives { edges { node { name suspension { mode reason } } } }
    restoreDisks { edges { node { mountpoint suspension { mode reason } } } }
    quota(user: "zoë") { suspension { mode reason } }
  }`;
  const of = (kind: string) => ({ mode: 'IMMEDIATE', reason: `for ${kind}` });
  const edges = (...nodes: object[]) => ({ edges: nodes.map((node) => ({ node })) });
  expect(await askData(app, shown)).toEqual({
    volumes: edges({ name: 'V1', suspension: of('VOLUME') }, { name: 'V2', suspension: null }),
    drives: edges({ name: 'drive-1', suspension: null }, { name: 'drive-2', suspension: of('DRIVE') }),
    restoreDisks: edges({ mountpoint: '/mnt/one', suspension: of('DISK') }),
    quota: { suspension: of('USER') },
  });
  for (const { kind, name, ...rest } of stored) {
    expect(await resume(app, kind, name)).toEqual({ __typename: 'Suspension', kind, name, ...rest });
  }
  expect(await readSuspensions(app)).toEqual([]);
  clock.goOn();
});

test('a second suspension changes the mode and the reason, and keeps the time', async () => {
  const first = await suspend(app, { kind: 'VOLUME', name: 'V2', mode: 'IMMEDIATE', reason: 'it squeaks' });
  clock.advance(60);
  const second = { kind: 'VOLUME', name: 'V2', mode: 'DRAINING', reason: null } as const;
  expect(await suspend(app, second)).toEqual({ ...first, mode: 'DRAINING', reason: null });
  expect(await readSuspensions(app)).toHaveLength(1);
  await resume(app, 'VOLUME', 'V2');
});

const notFound = (message: string) => ({ __typename: 'NotFound', code: 'NOT_FOUND', message });
const invalid = (message: string) => ({ __typename: 'InvalidInput', code: 'INVALID_INPUT', message });

test.each([
  ['VOLUME', 'nowhere', 'there is no volume "nowhere"'],
  ['DRIVE', 'V1', 'there is no drive "V1"'],
  ['USER', 'ZOË', 'there is no user "ZOË"'],
  ['DISK', '/mnt/one/', 'there is no disk "/mnt/one/"'],
  ['LIBRARY', 'memory', 'there is no library "memory"'],
])('an unknown %s can be neither suspended nor resumed', async (kind, name, message) => {
  expect(await suspend(app, { kind, name, mode: 'IMMEDIATE' })).toEqual(notFound(message));
  expect(await resume(app, kind, name)).toEqual(notFound(message));
  expect(await readSuspensions(app)).toEqual([]);
});

test('a resource in service cannot be resumed', async () => {
  expect(await resume(app, 'VOLUME', 'V1')).toEqual(notFound('volume "V1" is not suspended'));
});

test('a request has a priority from -1000 to 1000, by default 0', async () => {
  const id = await makeRequest(app, { quota: 'zoë', files: ['/s/1'] });
  const read = () => askData(app, `{ request(requestId: ${id}) { priority } }`);
  const result = 'request { __typename requestId priority }';
  const set = (priority: number, requestId = id) =>
    mutate(app, 'setRequestPriority', { requestId, priority }, result, '__typename message code');
  expect(await read()).toEqual({ request: { priority: 0 } });
  for (const priority of [1000, -1000, 7]) {
    expect(await set(priority)).toEqual({ __typename: 'Request', requestId: id, priority });
  }
  for (const priority of [1001, -1001]) {
    expect(await set(priority)).toEqual(invalid(`priority must be a whole number from -1000 to 1000, not ${priority}`));
  }
  expect(await set(1, 2_147_483_647)).toEqual(
    notFound('there is no request 2147483647, or you are not allowed to see it'),
  );
  expect(await read()).toEqual({ request: { priority: 7 } });
});

test('a quota shows its weight and its recent drive time, which halves in a day', async () => {
  await setQuota(app.ctx, { user: 'wes', size: 10n ** 9n, weight: 2.5 });
  await makeRequest(app, { quota: 'wes', files: ['/s/2'] });
  const { rows } = await app.ctx.db.pool.query<{ id: bigint }>(`SELECT id FROM tape_file WHERE path = '/s/2'`);
  type Told = { quota: { weight: number; driveSeconds: number } };
  const read = async () => (await askData<Told>(app, '{ quota(user: "wes") { weight driveSeconds } }')).quota;
  clock.freeze();
  expect(await read()).toEqual({ weight: 2.5, driveSeconds: 0 });
  await chargeDriveTime(app.ctx, { fileIds: rows.map((row) => row.id), seconds: 100 });
  expect(await read()).toEqual({ weight: 2.5, driveSeconds: 100 });
  clock.advance(24 * 3600);
  expect((await read()).driveSeconds).toBeCloseTo(50, 1);
  clock.goOn();
  clock.advance(10 * 365 * 24 * 3600);
  expect((await read()).driveSeconds).toBeCloseTo(0, 9);
  await chargeDriveTime(app.ctx, { fileIds: rows.map((row) => row.id), seconds: 1 });
  expect((await read()).driveSeconds).toBeCloseTo(1, 1);
});

test('attempts are shown for waiting files, and not for an ended request', async () => {
  await addFiles(app.ctx, [{ path: '/t/1', volume: 'T1' }]);
  const ended = await makeRequest(app, { quota: 'zoë', files: ['/t/1'] });
  const live = await makeRequest(app, { quota: 'zoë', files: ['/t/1'] });
  await cancel(app, ended);
  const later = '2999-01-02T03:04:05.000006';
  await app.ctx.db.pool.query(
    `UPDATE recall SET attempts = 2, error_class = 'MEDIA', error = 'a scratch', not_before = $1
     WHERE file_id = (SELECT id FROM tape_file WHERE path = '/t/1')`,
    [later],
  );
  const last = { attempts: 2, lastErrorClass: 'MEDIA', lastError: 'a scratch' };
  const waiting = { state: 'WAITING', recallState: 'WAITING', ...last };
  const none = { recallState: null, attempts: null, lastErrorClass: null, lastError: null, nextTryAt: null };
  expect(await readTries(app, live)).toEqual({ '/t/1': { ...waiting, nextTryAt: `${later}Z` } });
  expect(await readTries(app, ended)).toEqual({ '/t/1': { state: 'WAITING', ...none } });
  await app.ctx.db.pool.query(`UPDATE recall SET not_before = '2001-01-01' WHERE error = 'a scratch'`);
  expect(await readTries(app, live)).toEqual({ '/t/1': { ...waiting, nextTryAt: null } });
});
