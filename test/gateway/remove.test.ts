/** Quotas and restore disks that are removed while other transactions use them. */
import { expect, test } from 'vitest';
import { addSeconds } from '../../src/core/time.js';
import { setQuotaMember } from '../../src/domain/access/members.js';
import { addPathRule } from '../../src/domain/access/path-rules.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { removeRestoreDisk, setDisk } from '../../src/domain/disks/disks.js';
import { removeQuota } from '../../src/domain/quotas/quotas.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { updateRequest } from '../../src/domain/requests/update.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData, type Edges, sendGraphql } from '../support/graphql.js';
import { whileLocked } from '../support/locks.js';
import { mutate } from '../support/payloads.js';
import { call } from '../support/rest.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const app = useApp({}, async () => {
  await addFiles(app.ctx, [{ path: '/race/known', size: 1000n, stage: 'ONDISK' }]);
});

test('if a request and the removal of its quota race, one of them is refused, also if nothing is charged', async () => {
  for (let round = 0; round < 12; round++) {
    const user = `racer-${round}`;
    await addQuota(app.ctx, user, 10_000n);
    const files = round % 2 === 0 ? ['/race/known'] : ['/race/unknown'];
    const ask = () => createRequest(app.ctx, { quota: user, files });
    const [removed, ...made] = await Promise.allSettled([removeQuota(app.ctx, user), ask(), ask()]);
    const { quota } = await askData<{ quota: object | null }>(app, `{ quota(user: "${user}") { user } }`);
    const isMade = made.some(({ status }) => status === 'fulfilled');
    const isKept = removed.status === 'rejected';
    expect([isMade, quota !== null]).toEqual([isKept, isKept]);
  }
});

test.each([
  ['revived', 'CANCELLED', 'request_file'],
  ['extended', 'QUEUED', 'unresolved_path'],
])('if a request is %s while its quota is removed, the removal is refused', async (_how, state, table) => {
  const user = `holder-${state}`;
  await addQuota(app.ctx, user, 10_000n);
  const retention = addSeconds(app.ctx.now(), 600);
  const id = await createRequest(app.ctx, { quota: user, files: ['/race/unknown'], retention });
  if (state === 'CANCELLED') await cancelRequest(app.ctx, id);
  const later = { ...app.ctx, now: () => addSeconds(retention, 1) };
  const changed = { id, retention: addSeconds(retention, 3600), maxFiles: 10 };
  const { both } = await whileLocked(app, `LOCK TABLE ${table} IN ACCESS EXCLUSIVE MODE`, async (waiters) => {
    const updated = updateRequest(app.ctx, changed);
    await waiters(1);
    const removed = removeQuota(later, user);
    const both = Promise.allSettled([updated, removed]);
    await Promise.race([both, removed.catch(() => {}), waiters(2)]);
    return { both };
  });
  const ends = await both;
  expect(ends.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
  expect(ends[1]).toMatchObject({ reason: { code: 'IN_USE' } });
});

const QUOTAS = '{ quotas { edges { node { user } } } }';

test('tokens of a removed quota are not valid for a new quota of its name', async () => {
  const token = async (name: string, role: 'USER' | 'SERVICE' | 'VIEWER', quotas: string[] = []) =>
    (await createToken(app.ctx, { name, role, quotas })).secret;
  for (const user of ['erin', 'finn']) await addQuota(app.ctx, user, 10_000n);
  const tokens = {
    own: await token('erin', 'USER'),
    alone: await token('robot', 'SERVICE', ['erin']),
    shared: await token('mover', 'SERVICE', ['erin', 'finn']),
    other: await token('finn', 'USER'),
    viewer: await token('erin', 'VIEWER'),
  };
  const sees = async () => {
    const seen: Record<string, string[] | number> = {};
    for (const [name, secret] of Object.entries(tokens)) {
      const { status, body } = await sendGraphql({ ...app, token: secret }, { query: QUOTAS });
      const { quotas } = (body.data ?? {}) as { quotas?: Edges<{ user: string }> };
      seen[name] = quotas ? quotas.edges.map(({ node }) => node.user).filter((user) => /erin|finn/.test(user)) : status;
    }
    return seen;
  };
  const before = await sees();
  const both = ['erin', 'finn'];
  expect(before).toEqual({ own: ['erin'], alone: ['erin'], shared: both, other: ['finn'], viewer: both });
  const remove = 'mutation { removeQuota(input: { user: "erin" }) { removed { user tokenCount } } }';
  expect(await askData(app, remove)).toEqual({ removeQuota: { removed: { user: 'erin', tokenCount: 3 } } });
  await addQuota(app.ctx, 'erin', 10_000n);
  await waitFor('the tokens to be invalid', async () => (await sees()).own === 401);
  expect(await sees()).toEqual({ ...before, own: 401, alone: 401, shared: ['finn'] });
  expect(await askData(app, remove)).toEqual({ removeQuota: { removed: { user: 'erin', tokenCount: 0 } } });
});

test('a new quota with the name of a removed one has no memberships, and the removal reports rules that name it', async () => {
  for (const user of ['gwen', 'dora']) await addQuota(app.ctx, user, 10_000n);
  const member = { quota: 'dora', kind: 'USER', name: 'gwen', isManager: true } as const;
  await setQuotaMember(app.ctx, member);
  await setQuotaMember(app.ctx, { ...member, kind: 'GROUP', isManager: false });
  await setQuotaMember(app.ctx, { ...member, quota: 'gwen', name: 'dora' });
  await addPathRule(app.ctx, { prefix: '/secret', action: 'LIST', kind: 'USER', name: 'gwen' });
  await addPathRule(app.ctx, { prefix: '/groups', action: 'LIST', kind: 'GROUP', name: 'gwen' });
  const ask = async () => {
    const { secret } = await createToken(app.ctx, { name: 'gwen', role: 'USER' });
    const body = { quota: 'dora', files: '/race/known' };
    return (await call(app, 'POST', '/requests', { headers: { Authorization: `Bearer ${secret}` }, body })).status;
  };
  expect(await ask()).toBe(200);
  const remove = 'mutation { removeQuota(input: { user: "gwen" }) { removed { user memberOf rulePrefixes } } }';
  const removed = { user: 'gwen', memberOf: ['dora'], rulePrefixes: ['/secret'] };
  expect(await askData(app, remove)).toEqual({ removeQuota: { removed } });
  await addQuota(app.ctx, 'gwen', 10_000n);
  expect(await ask()).toBe(403);
  const members = 'SELECT kind, name FROM quota_member';
  expect((await app.ctx.db.pool.query(members)).rows).toEqual([{ kind: 'GROUP', name: 'gwen' }]);
});

test('a disk is removed once', async () => {
  const mountpoint = `${app.dataDir}/forgotten`;
  await setDisk(app.ctx, { mountpoint, size: 1000n });
  const ends = await Promise.allSettled([
    removeRestoreDisk(app.ctx, mountpoint),
    removeRestoreDisk(app.ctx, mountpoint),
  ]);
  expect(ends.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
  expect(ends.find(({ status }) => status === 'rejected')).toMatchObject({ reason: { code: 'NOT_FOUND' } });
});

test('a disk with possible stale files is removed only after an engine has looked, or if the disk fails', async () => {
  const mountpoint = `${app.dataDir}/left`;
  const { id } = await setDisk(app.ctx, { mountpoint, size: 1000n });
  await app.ctx.db.pool.query(
    `INSERT INTO stale_partial_file (file_id, disk_id, drive_id, epoch, size)
     SELECT f.id, $1, 1, 1, f.size FROM tape_file f CROSS JOIN generate_series(1, 2) WHERE f.path = '/race/known'`,
    [id],
  );
  const remove = () => mutate(app, 'removeRestoreDisk', { mountpoint }, 'removed { stalePartialFiles }');
  const message = expect.stringContaining('stale partial files of 1 file, such as "/race/known"');
  expect(await remove()).toEqual({ __typename: 'InUse', message });
  await app.ctx.db.pool.query('UPDATE restore_disk SET retry_at = $2 WHERE id = $1', [id, app.ctx.now()]);
  expect(await remove()).toEqual({ stalePartialFiles: ['/race/known'] });
});
