/** What tells those who show the site, or lists of requests, that there is something new to be read. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createToken } from '../../src/operations/access/tokens.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { updateRequest } from '../../src/operations/requests/update.js';
import { resume, suspend } from '../../src/operations/suspensions.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { recordStatements } from '../support/statements.js';
import { postOperation, type Stream, take, waitForReaders } from '../support/streams.js';

let app: TestApp;
const tokens: Record<string, string> = {};
const gatewayOf = (caller: string) => ({ url: app.url, token: tokens[caller] });

beforeAll(async () => {
  app = await startApp({ config: { access: { auth: new Set(['token']) } } });
  for (const user of ['alice', 'bob']) {
    await addQuota(app.ctx, user, 10n ** 9n);
    tokens[user] = (await createToken(app.ctx, { name: user, role: 'USER' })).secret;
  }
  tokens.auditor = (await createToken(app.ctx, { name: 'auditor', role: 'VIEWER' })).secret;
  await addFiles(app.ctx, [{ path: '/a/1', stage: 'ONTAPE' }]);
  await app.ctx.db.pool.query(`INSERT INTO volume (name) VALUES ('V1')`);
  await app.ctx.db.pool.query(`INSERT INTO drive (name) VALUES ('drive-1')`);
});
afterAll(() => app.close());

const SITE = { query: 'subscription { siteChanges { at parts } }' };
const REQUESTS = { query: 'subscription { requestChanges { at hasMore requests { requestId quota state } } }' };

interface Site {
  siteChanges: { parts: string[] };
}
interface Requests {
  requestChanges: { hasMore: boolean; requests: { requestId: number; quota: string; state: string }[] };
}

test('who watches the site is told of all parts at first, and then of those that change', async () => {
  const stream = postOperation<Site>(gatewayOf('auditor'), SITE);
  const next = async () => (await take(stream, 1))[0]?.siteChanges.parts;
  const all = ['DRIVES', 'QUEUE', 'DISKS', 'SUSPENSIONS', 'LIBRARIES', 'PROCESSES', 'HISTORY', 'AUDIT'];
  expect(await next()).toEqual(all);
  await suspend(app.ctx, { kind: 'VOLUME', name: 'V1', mode: 'HELD', reason: 'cleaning' });
  expect(await next()).toEqual(['SUSPENSIONS', 'AUDIT']);
  await setDisk(app.ctx, { mountpoint: '/mnt/a', size: 5000n });
  expect(await next()).toEqual(['DISKS', 'AUDIT']);
  await app.ctx.db.pool.query(`UPDATE drive SET volume_id = (SELECT id FROM volume WHERE name = 'V1')`);
  expect(await next()).toEqual(['DRIVES']);
  await createRequest(app.ctx, { quota: 'alice', pattern: '/a/' });
  expect(await next()).toEqual(['QUEUE', 'AUDIT']);
  stream.close();
});

/** Looks at the marks of the site while something is done. */
async function looksDuring(work: () => Promise<unknown>): Promise<number> {
  return (await recordStatements(work, { isFeedToo: true })).filter(({ text }) => text.includes('"SUSPENSIONS"'))
    .length;
}

test('all who watch share one look a second, and none is made once they have gone', async () => {
  const streams = Array.from({ length: 8 }, () => postOperation<Site>(gatewayOf('auditor'), SITE));
  await Promise.all(streams.map((stream) => take(stream, 1)));
  const startedAt = performance.now();
  const looks = await looksDuring(async () => {
    for (const size of [1n, 2n, 3n]) {
      await setDisk(app.ctx, { mountpoint: '/mnt/b', size });
      await Promise.all(streams.map((stream) => take(stream, 1)));
    }
  });
  expect(looks).toBeGreaterThanOrEqual(3);
  expect(looks).toBeLessThanOrEqual(1 + (performance.now() - startedAt) / 1000);
  for (const stream of streams) stream.close();
  // that nothing is asked is seen by time alone
  await expect.poll(() => looksDuring(() => sleep(1500)), { timeout: 20_000 }).toBe(0);
});

test('a request that is made, changed or ends is told to those who may see it, and to nobody else', async () => {
  const open = (who: string) => postOperation<Requests>(gatewayOf(who), REQUESTS);
  const [alice, bob, auditor] = [open('alice'), open('bob'), open('auditor')];
  const next = async (stream: Stream<Requests>) => (await take(stream, 1))[0]?.requestChanges;
  for (const stream of [alice, bob, auditor]) expect(await next(stream)).toMatchObject({ hasMore: true, requests: [] });
  await waitForReaders(app, 1);
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/a/' });
  const made = { hasMore: false, requests: [{ requestId: id, quota: 'alice', state: 'QUEUED' }] };
  expect(await next(alice)).toMatchObject(made);
  expect(await next(auditor)).toMatchObject(made);
  await updateRequest(app.ctx, { id, label: 'another' });
  expect(await next(alice)).toMatchObject(made);
  await cancelRequest(app.ctx, id);
  const ended = { requests: [{ requestId: id, quota: 'alice', state: 'CANCELLED' }] };
  expect(await next(alice)).toMatchObject(ended);
  const own = await createRequest(app.ctx, { quota: 'bob', pattern: '/a/' });
  // nothing of the other's before it
  expect(await next(bob)).toMatchObject({ requests: [{ requestId: own, quota: 'bob', state: 'QUEUED' }] });
  for (const stream of [alice, bob, auditor]) stream.close();
  await waitForReaders(app, 0);
});

test('users are not told of the site, nor is whoever shows nothing', async () => {
  const stream = postOperation(gatewayOf('alice'), SITE);
  expect((await stream.next()).value.errors?.[0]?.extensions).toMatchObject({ code: 'FORBIDDEN' });
  stream.close();
  await resume(app.ctx, { kind: 'VOLUME', name: 'V1' });
});
