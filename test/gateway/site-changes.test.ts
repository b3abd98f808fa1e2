/** Subscriptions that report changed parts of the site, or changed requests. */
import { expect, test } from 'vitest';
import { createToken } from '../../src/domain/access/tokens.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { suspend } from '../../src/domain/health/suspensions.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { updateRequest } from '../../src/domain/requests/update.js';
import { addFiles, addQuota } from '../support/factories.js';
import { recordStatements } from '../support/statements.js';
import { postOperation, type Stream, take } from '../support/streams.js';
import { useApp } from '../support/use-app.js';

const tokens: Record<string, string> = {};
const gatewayOf = (caller: string) => ({ url: app.url, token: tokens[caller] });

const app = useApp({ config: { access: { auth: new Set(['token']) } } }, async () => {
  for (const user of ['alice', 'bob']) {
    await addQuota(app.ctx, user, 10n ** 9n);
    tokens[user] = (await createToken(app.ctx, { name: user, role: 'USER' })).secret;
  }
  tokens.auditor = (await createToken(app.ctx, { name: 'auditor', role: 'VIEWER' })).secret;
  await addFiles(app.ctx, [{ path: '/a/1' }]);
  await app.ctx.db.pool.query(`INSERT INTO volume (name) VALUES ('V1'); INSERT INTO drive (name) VALUES ('drive-1')`);
});

const SITE = { query: 'subscription { siteChanges { at parts } }' };
const REQUESTS = { query: 'subscription { requestChanges { at hasMore requests { requestId user state } } }' };

type Site = { siteChanges: { parts: string[] } };
interface Requests {
  requestChanges: { hasMore: boolean; requests: { requestId: number; quota: string; state: string }[] };
}

/** Counts how often the gateway reads the changes of the site while `work` runs. */
async function countLooks(work: () => Promise<unknown>): Promise<number> {
  const statements = await recordStatements(work, { isFeedToo: true });
  return statements.filter(({ text }) => text.includes('"SUSPENSIONS"')).length;
}

// the first test, because a gateway keeps checking the site for a moment after its last subscriber has left
test('a request that is made, changed or ends is reported to callers who may see it, and without subscribers the site is not queried', async () => {
  const open = (who: string) => postOperation<Requests>(gatewayOf(who), REQUESTS);
  const [alice, bob, auditor] = [open('alice'), open('bob'), open('auditor')];
  const next = async (stream: Stream<Requests>) => (await take(stream, 1))[0]?.requestChanges;
  for (const stream of [alice, bob, auditor]) expect(await next(stream)).toMatchObject({ hasMore: true, requests: [] });
  const looks = await countLooks(async () => {
    const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/a/' });
    const made = { hasMore: false, requests: [{ requestId: id, user: 'alice', state: 'QUEUED' }] };
    expect([await next(alice), await next(auditor)]).toMatchObject([made, made]);
    await updateRequest(app.ctx, { id, label: 'another' });
    expect(await next(alice)).toMatchObject(made);
    await cancelRequest(app.ctx, id);
    const own = await createRequest(app.ctx, { quota: 'bob', pattern: '/a/' });
    expect(await next(alice)).toMatchObject({ requests: [{ requestId: id, user: 'alice', state: 'CANCELLED' }] });
    expect(await next(bob)).toMatchObject({ requests: [{ requestId: own, user: 'bob', state: 'QUEUED' }] });
  });
  expect(looks).toBe(0);
  for (const stream of [alice, bob, auditor]) stream.close();
});

test('a subscription to the site reports all parts at first, and then those that have changed, and is refused to users', async () => {
  const stream = postOperation<Site>(gatewayOf('auditor'), SITE);
  const next = async () => (await take(stream, 1))[0]?.siteChanges.parts ?? [];
  const all = ['DRIVES', 'QUEUE', 'DISKS', 'SUSPENSIONS', 'LIBRARIES', 'PROCESSES', 'HISTORY', 'AUDIT'];
  expect(await next()).toEqual(all);
  await suspend(app.ctx, { kind: 'VOLUME', name: 'V1', mode: 'IMMEDIATE', reason: 'cleaning' });
  expect(await next()).toEqual(['SUSPENSIONS', 'AUDIT']);
  await app.ctx.db.pool.query(`UPDATE drive SET volume_id = (SELECT id FROM volume WHERE name = 'V1')`);
  await setDisk(app.ctx, { mountpoint: '/mnt/a', size: 5000n });
  await createRequest(app.ctx, { quota: 'alice', pattern: '/a/' });
  const changed = new Set<string>();
  while (changed.size < 4) for (const part of await next()) changed.add(part);
  expect([...changed].sort()).toEqual(['AUDIT', 'DISKS', 'DRIVES', 'QUEUE']);
  stream.close();
  const refused = (await postOperation(gatewayOf('alice'), SITE).next()).value;
  expect(refused.errors).toMatchObject([{ extensions: { code: 'FORBIDDEN' } }]);
});

test('all subscribers to the site share one query per second', async () => {
  const streams = Array.from({ length: 4 }, () => postOperation<Site>(gatewayOf('auditor'), SITE));
  await Promise.all(streams.map((stream) => take(stream, 1)));
  const startedAt = performance.now();
  const looks = await countLooks(async () => {
    await setDisk(app.ctx, { mountpoint: '/mnt/b', size: 1n });
    await Promise.all(streams.map((stream) => take(stream, 1)));
  });
  expect(looks).toBeGreaterThanOrEqual(1);
  expect(looks).toBeLessThanOrEqual(1 + (performance.now() - startedAt) / 1000);
  for (const stream of streams) stream.close();
});
