/** Webhooks: the events that they send, signatures, retries and limits. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { addSeconds } from '../../src/core/time.js';
import { queueNearEnds } from '../../src/domain/notifications/webhooks/news.js';
import { claimMessage, pruneMessages, recordMessage } from '../../src/domain/notifications/webhooks/outbox.js';
import {
  createWebhook,
  listWebhookMessages,
  readWebhook,
  removeWebhook,
  rotateWebhookSecret,
  testWebhook,
  updateWebhook,
} from '../../src/domain/notifications/webhooks/webhooks.js';
import { removeQuota, setQuota } from '../../src/domain/quotas/quotas.js';
import { pruneEvents } from '../../src/domain/site/pruning.js';
import { startEngine } from '../../src/engine/runner.js';
import type { TestApp } from '../support/app.js';
import { type Clock, createClock } from '../support/clock.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cancel } from '../support/mutations.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest, put } from '../support/rest.js';
import { waitFor } from '../support/wait.js';
import { isSigned, startReceiver, type WebhookReceiver } from '../support/webhook-receiver.js';

const never = new AbortController().signal;
const DAY = 86_400;

let app: TestApp;
let receiver: WebhookReceiver;
let clock: Clock;
const library = createMemoryLibrary();
const hooks = { onMount: library.onMount, onRead: library.onRead };

beforeEach(async () => {
  clock = createClock();
  receiver = await startReceiver();
  const config = { drives: 1, webhookHosts: ['127.0.0.1'], publicUrl: 'https://tapes.example/archive' };
  app = await start({ library, config });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addQuota(app.ctx, 'bob', 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/d/a', stage: 'ONDISK' }]);
});
afterEach(async () => {
  Object.assign(library, hooks);
  await receiver.close();
});
const start = createFreshApp({ now: () => clock.now() });

const create = (options: Partial<Parameters<typeof createWebhook>[1]> & { path?: string } = {}) => {
  const { path = '', ...rest } = options;
  return createWebhook(app.ctx, { quota: 'alice', url: `${receiver.url}${path}`, ...rest });
};
/** Creates a webhook with a waiting test message. */
async function createTested(options: Parameters<typeof create>[0] = {}) {
  const made = await create(options);
  await testWebhook(app.ctx, made.webhook.id);
  return made;
}
/** Waits until a webhook meets a condition. */
const waitForWebhook = (id: number, isIt: (row: Awaited<ReturnType<typeof readWebhook>>) => boolean) =>
  waitFor(`webhook ${id}`, async () => {
    const row = await readWebhook(app.ctx, id);
    return isIt(row) && row;
  });

/** Advances the clock, and lets engines send all messages that are due. */
async function goOn(seconds: number): Promise<void> {
  clock.advance(seconds);
  await app.ctx.db.pool.query(`SELECT pg_notify('tapegate', 'webhook')`);
}

const request = (fields: object) => makeRequest(app, { quota: 'alice', label: 'mine', ...fields });
const retention = (days: number) => addSeconds(clock.now(), days * DAY).slice(0, 19);
const messagesOf = (webhookId: number) => listWebhookMessages(app.ctx, { webhookId, limit: 100 });

/** Returns the types of the messages about a request, in the order of their arrival. */
const typesOf = (id: number) =>
  receiver.messages.filter(({ data }) => data.requestId === id).map(({ type }) => type.split('.')[1]);

test('a webhook gets signed messages of a request from its first recall to its end, with its figures', async () => {
  const { secret, webhook } = await create({ path: '/hook?a=1' });
  expect(secret).toMatch(/^whsec_[\w+/]{43}=$/);
  await addTaped(app.ctx, library, [
    { path: '/all/a', size: 2000 },
    { path: '/all/b', size: 1500 },
  ]);
  const id = await request({ patterns: '/all/', label: 'ocean "7"' });
  const last = await receiver.waitFor('request.completed');
  expect(typesOf(id)).toEqual(['started', 'first_file', 'completed']);
  expect(last.data).toEqual({
    ...{ requestId: id, user: 'alice', label: 'ocean "7"', state: 'COMPLETED' },
    ...{ filesTotal: 2, filesOnDisk: 2, filesFailed: 0, bytesTotal: 3500, bytesOnDisk: 3500 },
    retention: expect.stringMatching(/^\d{4}-.*Z$/),
    link: `https://tapes.example/archive/#/requests/${id}`,
  });
  expect(last.path).toBe('/hook?a=1');
  expect(last.timestamp).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
  expect(last.headers).toMatchObject({
    'content-type': 'application/json',
    'user-agent': expect.stringMatching(/^Tapegate\/\d/),
  });
  for (const message of receiver.messages) expect(isSigned(message, secret)).toBe(true);
  expect(isSigned({ ...last, body: last.body.replace('3500', '3501') }, secret)).toBe(false);
  expect(new Set(receiver.messages.map((message) => message.id)).size).toBe(3);
  await cancel(app, id);
  expect((await receiver.waitFor('request.ended')).data).toMatchObject({ requestId: id, state: 'CANCELLED' });
  await waitForWebhook(webhook.id, (row) => row.waiting === 0);
  expect(await readWebhook(app.ctx, webhook.id)).toMatchObject({ failures: 0, sentAt: expect.any(String) });
});

test('failures have their own event, and a request that completes again after more files joined sends it again', async () => {
  await create();
  await addTaped(app.ctx, library, [
    { path: '/f/a', position: 1n },
    { path: '/f/bad', position: 2n },
  ]);
  library.onRead = async (_volume, position) => {
    if (position === 2n) throw new TapeError('PERMANENT', 'torn');
  };
  const id = await request({ patterns: '/f/' });
  expect((await receiver.waitFor('request.partial')).data).toMatchObject({ state: 'PARTIAL', filesFailed: 1 });
  await waitForState(app, id, 'PARTIAL');
  const other = await request({ patterns: '/g/' });
  await receiver.waitFor('request.completed');
  await addTaped(app.ctx, library, [{ path: '/g/late', position: 3n }]);
  await receiver.waitFor('request.completed', 2);
  expect(typesOf(other)).toEqual(['completed', 'started', 'first_file', 'completed']);
});

test('a webhook gets the chosen events of its quota, or of all quotas', async () => {
  await create({ quota: 'bob', path: '/bob' });
  await create({ quota: undefined, path: '/all', events: ['REQUEST_COMPLETED'] });
  await create({ path: '/alice', events: ['REQUEST_ENDED'] });
  const id = await request({ patterns: '/d/' });
  await receiver.waitFor('request.completed');
  await cancel(app, id);
  await receiver.waitFor('request.ended');
  const bobs = await makeRequest(app, { quota: 'bob', patterns: '/d/' });
  await receiver.waitFor('request.completed', 3);
  const got = receiver.messages.map(({ path, type, data }) => [path, type, data.requestId]);
  expect(got.sort()).toEqual([
    ['/alice', 'request.ended', id],
    ['/all', 'request.completed', id],
    ['/all', 'request.completed', bobs],
    ['/bob', 'request.completed', bobs],
    // a file that is already on disk counts as the first file too
    ['/bob', 'request.first_file', bobs],
  ]);
});

test('a new webhook gets no events of the past', async () => {
  await addTaped(app.ctx, library, [{ path: '/old/a' }]);
  const id = await request({ patterns: '/old/' });
  await waitForState(app, id, 'COMPLETED');
  await create();
  await put(app, id, { quota: 'alice', label: 'renamed', retention: retention(50) });
  await cancel(app, id);
  await receiver.waitFor('request.ended');
  // a revived request sends its events again
  await put(app, id, { quota: 'alice', retention: retention(60) });
  await receiver.waitFor('request.completed');
  expect(typesOf(id).filter((type) => type !== 'started')).toEqual(['ended', 'first_file', 'completed']);
});

test('a message is retried with the same id until the receiver accepts it', async () => {
  receiver.answer = (_message, response) => response.writeHead(receiver.messages.length < 3 ? 503 : 200).end('x');
  const { secret, webhook } = await createTested();
  await waitForWebhook(webhook.id, (row) => row.failures === 1);
  await testWebhook(app.ctx, webhook.id); // no second message is added
  expect(await readWebhook(app.ctx, webhook.id)).toMatchObject({
    ...{ failures: 1, waiting: 1, lastError: 'the receiver answered 503', failingSince: expect.any(String) },
  });
  await goOn(120);
  await waitForWebhook(webhook.id, (row) => row.failures === 2);
  await goOn(600);
  await receiver.waitFor('webhook.test', 3);
  await waitForWebhook(webhook.id, (row) => row.failures === 0);
  expect(new Set(receiver.messages.map(({ id, body }) => id + body)).size).toBe(1);
  const [message] = await messagesOf(webhook.id);
  expect(message).toMatchObject({ state: 'SENT', attempts: 3, lastError: null });
  // each try has its own timestamp, so that the receiver can recognise replays
  const times = receiver.messages.map(({ headers }) => Number(headers['webhook-timestamp']));
  expect((times[2] as number) - (times[0] as number)).toBeGreaterThanOrEqual(720);
  expect(isSigned(receiver.messages[0] as never, secret)).toBe(true);
});

test('a receiver that hangs delays no other, and Retry-After is obeyed', async () => {
  receiver.answer = (message, response) => {
    if (message.path === '/hangs') return; // no answer
    if (message.path === '/busy') return void response.writeHead(429, { 'Retry-After': '5000' }).end();
    response.writeHead(200).end();
  };
  await createTested({ path: '/hangs' });
  const busy = await createTested({ path: '/busy' });
  await create({ path: '/fine' });
  await receiver.waitFor('webhook.test', 2);
  await request({ patterns: '/d/' });
  const fine = await receiver.waitFor('request.completed');
  expect(fine.path).toBe('/fine');
  const { nextTryAt } = await waitForWebhook(busy.webhook.id, ({ failures }) => failures === 1);
  expect(nextTryAt > addSeconds(clock.now(), 4900)).toBe(true);
  expect(receiver.messages.filter(({ path }) => path === '/hangs')).toHaveLength(1);
});

test('twenty webhooks that hang, the most of a quota, delay no other quota', async () => {
  receiver.answer = (message, response) => {
    if (message.path !== '/hangs') response.writeHead(200).end();
  };
  for (let n = 0; n < 20; n++) {
    await createTested({ quota: 'bob', path: '/hangs' });
  }
  await receiver.waitFor('webhook.test', 4);
  await create({ path: '/fine' });
  await request({ patterns: '/d/' });
  expect((await receiver.waitFor('request.completed')).path).toBe('/fine');
  await expect(create({ quota: 'bob' })).rejects.toThrow(
    'url cannot be added: there are already 20 webhooks for quota "bob", the maximum',
  );
});

test('an event that is sent again, as after a restore of the database, has the same id', async () => {
  const { webhook } = await create();
  const other = await create({ path: '/other' });
  const id = await request({ patterns: '/d/' });
  await receiver.waitFor('request.completed', 2);
  await cancel(app, id);
  await receiver.waitFor('request.ended', 2);
  const idsOf = async (of: number) => (await messagesOf(of)).map(({ messageId }) => messageId).reverse();
  const before = [await idsOf(webhook.id), await idsOf(other.webhook.id)];
  expect(new Set(before.flat()).size).toBe(6);
  await app.ctx.db.pool.query(
    'DELETE FROM webhook_message; DELETE FROM webhook_request; UPDATE webhook_cursor SET last = 0',
  );
  await app.ctx.db.pool.query(`SELECT pg_notify('tapegate', 'event')`);
  await receiver.waitFor('request.ended', 4);
  expect([await idsOf(webhook.id), await idsOf(other.webhook.id)]).toEqual(before);
});

test('a response with status 301 or 404 is a failure, and redirects are not followed', async () => {
  const other = await startReceiver();
  receiver.answer = ({ path }, response) => response.writeHead(Number(path.slice(1)), { Location: other.url }).end();
  const errors = {
    301: 'the receiver answered 301; redirects are not followed',
    404: 'the receiver answered 404',
  };
  for (const [status, error] of Object.entries(errors)) {
    const { webhook } = await createTested({ path: `/${status}` });
    await waitForWebhook(webhook.id, ({ lastError }) => lastError === error);
  }
  expect(other.messages).toEqual([]);
  await other.close();
});

test('a webhook that answers 410 is disabled, and gets its waiting messages when it is enabled', async () => {
  receiver.answer = (_message, response) => response.writeHead(410).end();
  const { webhook } = await createTested();
  const off = await waitForWebhook(webhook.id, ({ disabledAt }) => disabledAt !== null);
  expect(off).toMatchObject({ disabledReason: 'switched off: the receiver answered 410 (Gone)', waiting: 1 });
  const id = await request({ patterns: '/d/' });
  receiver.answer = (_message, response) => response.writeHead(200).end();
  await create({ path: '/other', events: ['REQUEST_ENDED'] });
  await cancel(app, id);
  await receiver.waitFor('request.ended');
  const on = await updateWebhook(app.ctx, { id: webhook.id, isEnabled: true });
  expect(on).toMatchObject({ disabledAt: null, disabledReason: null, failures: 0 });
  await receiver.waitFor('webhook.test', 2);
  // events from the time when the webhook was disabled are not sent
  expect(receiver.messages.filter(({ path }) => path === '/').map(({ type }) => type)).toEqual([
    'webhook.test',
    'webhook.test',
  ]);
});

test('a webhook that fails for five days by a plausible clock is disabled, and its message given up', async () => {
  receiver.answer = (_message, response) => response.writeHead(500).end();
  const { webhook } = await createTested();
  app.ctx.db.clock.isPlausible = false;
  for (let tries = 1; tries <= 10; tries++) {
    if (tries > 1) await goOn(DAY * 1.3);
    await waitForWebhook(webhook.id, ({ failures, disabledAt }) => failures >= tries || disabledAt !== null);
  }
  expect((await messagesOf(webhook.id))[0]).toMatchObject({ state: 'PENDING', attempts: 10 });
  app.ctx.db.clock.isPlausible = true;
  await goOn(DAY * 1.3);
  await waitForWebhook(webhook.id, ({ disabledAt }) => disabledAt !== null);
  expect((await messagesOf(webhook.id))[0]).toMatchObject({ state: 'GIVEN_UP', attempts: 11 });
  expect(await readWebhook(app.ctx, webhook.id)).toMatchObject({
    disabledReason: 'disabled after 5 days of failed deliveries: the receiver answered 500',
    failures: 11,
  });
  receiver.answer = (_message, response) => response.writeHead(200).end();
  await updateWebhook(app.ctx, { id: webhook.id, isEnabled: true });
  await waitFor('what was given up', async () => (await messagesOf(webhook.id))[0]?.state === 'SENT');
});

test('for a day after a rotation, messages are signed with the old secret as well', async () => {
  const { secret, webhook } = await create();
  const { secret: other } = await rotateWebhookSecret(app.ctx, webhook.id);
  expect(other).not.toBe(secret);
  await testWebhook(app.ctx, webhook.id);
  const both = await receiver.waitFor('webhook.test');
  expect([secret, other].map((each) => isSigned(both, each))).toEqual([true, true]);
  await waitForWebhook(webhook.id, ({ waiting }) => waiting === 0);
  await goOn(DAY + 1);
  await testWebhook(app.ctx, webhook.id);
  const alone = await receiver.waitFor('webhook.test', 2);
  const signatures = String(alone.headers['webhook-signature']).split(' ');
  expect(signatures).toHaveLength(1);
  expect(String(both.headers['webhook-signature']).split(' ')).toHaveLength(2);
});

test('a request that expires soon sends one message per retention, a nearly full quota one until it has room', async () => {
  await create();
  await addFiles(app.ctx, [{ path: '/full/a', stage: 'ONDISK', size: 950n }]);
  const id = await request({ patterns: '/full/', retention: retention(5) });
  await receiver.waitFor('request.completed');
  const look = async (): Promise<string[]> => {
    await queueNearEnds(app.ctx, never);
    await waitFor('all to be sent', async () => {
      const { rowCount } = await app.ctx.db.pool.query(`SELECT FROM webhook_message WHERE state = 'PENDING'`);
      return rowCount === 0;
    });
    return receiver.types().filter((type) => type === 'request.expiring' || type === 'quota.nearly_full');
  };
  // this check does nothing while the engine queues messages for webhooks
  const lookFor = (count: number) =>
    waitFor(`${count} messages`, async () => {
      const found = await look();
      return found.length >= count && found;
    });
  expect(await look()).toEqual([]);
  clock.advance(3.5 * DAY);
  expect(await lookFor(1)).toEqual(['request.expiring']);
  expect(await look()).toEqual(['request.expiring']);
  await put(app, id, { quota: 'alice', retention: retention(1) });
  expect(await lookFor(2)).toEqual(['request.expiring', 'request.expiring']);
  await setQuota(app.ctx, { user: 'alice', size: 1000n });
  const full = await lookFor(3);
  expect(full.slice(2)).toEqual(['quota.nearly_full']);
  expect(receiver.messages.at(-1)?.data).toEqual({ user: 'alice', size: 1000, used: 950 });
  // the used share of the quota is smaller, but not small enough to count as having room
  await setQuota(app.ctx, { user: 'alice', size: 1150n });
  await look();
  await setQuota(app.ctx, { user: 'alice', size: 1000n });
  expect((await look()).slice(2)).toEqual(['quota.nearly_full']);
  await setQuota(app.ctx, { user: 'alice', size: 10_000n });
  await waitFor('the quota to have room again', async () => {
    await look();
    const { rowCount } = await app.ctx.db.pool.query('SELECT FROM nearly_full_quota');
    return rowCount === 0;
  });
  await setQuota(app.ctx, { user: 'alice', size: 1000n });
  expect((await lookFor(4)).slice(2)).toEqual(['quota.nearly_full', 'quota.nearly_full']);
});

test('a message is sent again after a crash during the call, and several engines send each message once', async () => {
  const others = await Promise.all([1, 2].map(() => startEngine(app.ctx, library, { part: 'jobs', drainMs: 200 })));
  const { webhook } = await create();
  await updateWebhook(app.ctx, { id: webhook.id, isEnabled: false });
  await testWebhook(app.ctx, webhook.id);
  await app.ctx.db.pool.query('UPDATE webhook SET disabled_at = NULL, next_try_at = now()');
  const claimed = await claimMessage(app.ctx);
  // this test or an engine claims the message; if claimed here, the message is not sent, as after a crash
  if (claimed) await goOn(100);
  const first = await receiver.waitFor('webhook.test');
  if (claimed) await recordMessage(app.ctx, claimed, { state: 'FAILED', error: 'too late' });
  await waitFor('its note', async () => (await messagesOf(webhook.id))[0]?.state === 'SENT');
  expect(first.id).toBe((await messagesOf(webhook.id))[0]?.messageId);
  const ids = await Promise.all(Array.from({ length: 20 }, () => request({ patterns: '/d/' })));
  await receiver.waitFor('request.completed', ids.length);
  await waitForWebhook(webhook.id, (row) => row.waiting === 0);
  const finished = receiver.messages.filter(({ type }) => type === 'request.completed');
  expect(finished.map(({ data }) => data.requestId).sort()).toEqual(ids.sort());
  await Promise.all(others.map((engine) => engine.stop()));
});

test('events are kept until webhooks have sent them, and messages for thirty days', async () => {
  const { webhook } = await create();
  await request({ patterns: '/d/' });
  await receiver.waitFor('request.completed');
  const { pool } = app.ctx.db;
  const count = async (table: string) => Number((await pool.query(`SELECT count(*) AS n FROM ${table}`)).rows[0]?.n);
  await pool.query('UPDATE webhook_cursor SET last = 0');
  await pool.query(`UPDATE event SET at = at - interval '100 days'`);
  // resets the cursor and holds the lock of the job, as a dead engine would leave them
  const holder = await pool.connect();
  try {
    await holder.query('BEGIN; SELECT pg_advisory_xact_lock(1413563205, 7)');
    await holder.query('UPDATE webhook_cursor SET last = 0');
    await holder.query('COMMIT; BEGIN; SELECT pg_advisory_xact_lock(1413563205, 7)');
    const before = await count('event');
    await pruneEvents(app.ctx, never);
    expect(await count('event')).toBe(before);
    await holder.query('COMMIT');
  } finally {
    holder.release();
  }
  await waitFor('the look', async () => (await pool.query('SELECT FROM webhook_cursor WHERE last > 0')).rowCount === 1);
  await pruneEvents(app.ctx, never);
  expect(await count('event')).toBe(0);
  // an event is sent only once, although the job has read it twice
  expect(receiver.types().filter((type) => type === 'request.completed')).toHaveLength(1);
  clock.advance(29 * DAY);
  await pruneMessages(app.ctx, never);
  expect((await messagesOf(webhook.id)).length).toBe(2);
  clock.advance(2 * DAY);
  await pruneMessages(app.ctx, never);
  expect(await messagesOf(webhook.id)).toEqual([]);
});

test('removing a webhook removes its messages, and removing a quota its webhooks', async () => {
  receiver.answer = (_message, response) => response.writeHead(500).end();
  const { webhook } = await create();
  const bobs = await create({ quota: 'bob' });
  for (const { id } of [webhook, bobs.webhook]) await testWebhook(app.ctx, id);
  await removeWebhook(app.ctx, webhook.id);
  await expect(readWebhook(app.ctx, webhook.id)).rejects.toThrow(`there is no webhook with id ${webhook.id}`);
  await removeQuota(app.ctx, 'bob');
  await expect(readWebhook(app.ctx, bobs.webhook.id)).rejects.toThrow('there is no webhook');
  const { rowCount } = await app.ctx.db.pool.query('SELECT FROM webhook_message');
  expect(rowCount).toBe(0);
});
