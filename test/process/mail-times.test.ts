/** When email is sent: rates, the queue, and the notice before a request expires. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Limits } from '../../src/config/config.js';
import { addSeconds } from '../../src/core/time.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { queueExpiring } from '../../src/domain/notifications/mail/notifications.js';
import { type ClaimedMail, claimMail, recordSender } from '../../src/domain/notifications/mail/outbox.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import type { TestApp } from '../support/app.js';
import { currentTime } from '../support/clock.js';
import { addFiles, addQuota } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData, type Edges } from '../support/graphql.js';
import { type MailServer, Refusal, startMailServer } from '../support/mail-server.js';
import { askForMail, never, sendDue } from '../support/outbox.js';
import { runCli } from '../support/process.js';
import { countRows } from '../support/writes.js';

let app: TestApp;
let server: MailServer;
/** The time of the clock, which a test advances. */
let now: string;

const startFresh = createFreshApp({ now: () => now });

beforeAll(async () => {
  server = await startMailServer();
});
afterAll(() => server.close());

async function start(limits: Partial<Limits>): Promise<void> {
  now = currentTime();
  app = await startFresh({ limits });
  server.mails.length = 0;
  server.onMail = () => {};
  for (const user of ['alice', 'bob', 'carol']) await addQuota(app.ctx, user, 10n ** 9n);
}

const send = () => sendDue(app, server.url);

/**
 * Creates requests that match no file, so that an email for each request is due at once.
 * @returns the labels of the requests
 */
async function write(user: string, count: number): Promise<string[]> {
  const labels = Array.from({ length: count }, (_, n) => `${user} ${n}`);
  for (const label of labels) await askForMail(app, 'recipient', { quota: user, label });
  return labels;
}

const readLabels = () => server.mails.map((mail) => mail.headers.get('subject')?.replace(/^.*: /, ''));

test('a user and all users together get as many emails a minute as their rates allow, in order', async () => {
  await start({ mailRate: 6, userMailRate: 4 });
  const alices = await write('alice', 5);
  const bobs = await write('bob', 3);
  const sent = [await send()];
  for (const seconds of [59, 1]) {
    now = addSeconds(now, seconds);
    sent.push(await send());
  }
  expect(sent).toEqual([6, 0, 2]);
  const labels = readLabels();
  expect(labels.filter((label) => label?.startsWith('alice'))).toEqual(alices);
  expect(labels.filter((label) => label?.startsWith('bob'))).toEqual(bobs);
});

test('the rate of a user delays no other user', async () => {
  await start({ userMailRate: 2 });
  await write('alice', 4);
  await write('bob', 1);
  expect(await send()).toBe(3);
});

test('engines that send at the same time share the rates', async () => {
  await start({ mailRate: 1000, userMailRate: 8 });
  await write('alice', 10);
  await write('bob', 10);
  await Promise.all([send(), send(), send()]);
  const labels = readLabels();
  expect(labels.filter((label) => label?.startsWith('alice'))).toHaveLength(8);
  expect(labels.filter((label) => label?.startsWith('bob'))).toHaveLength(8);
  expect(new Set(labels).size).toBe(16);
});

test.each([true, false])(
  'engines that claim at the same moment send each email once (with rates: %s)',
  async (inTurn) => {
    await start({ mailRate: 1000, userMailRate: 1000 });
    for (const user of ['alice', 'bob']) await write(user, 12);
    await recordSender(app.ctx);
    const sent: bigint[] = [];
    const claimAll = async () => {
      const claim = {
        inTurn,
        send: async ({ id }: ClaimedMail) => ({ state: sent.push(id) > 0 ? 'SENT' : 'LOGGED' }) as const,
      };
      while (await claimMail(app.ctx, claim));
    };
    await Promise.all([claimAll(), claimAll(), claimAll(), claimAll()]);
    expect(sent).toHaveLength(24);
    expect(new Set(sent).size).toBe(24);
  },
);

test('users take turns at the rate of all, so that a user with many emails delays no other user', async () => {
  await start({ mailRate: 1, userMailRate: 1000 });
  const many = await write('alice', 8);
  await send();
  now = addSeconds(now, 60);
  await send();
  const more = await write('bob', 3);
  const [one] = await write('carol', 1);
  for (let n = 0; n < 10; n++) {
    now = addSeconds(now, 60);
    expect(await send()).toBe(1);
  }
  // users take turns, and the emails of each user stay in order
  const [, , a2, ...rest] = many;
  const [b0, b1, b2] = more;
  expect(readLabels()).toEqual([many[0], many[1], b0, one, a2, b1, rest[0], b2, ...rest.slice(1)]);
});

test('sending an email reads few rows, however many wait', async () => {
  await start({ mailRate: 20 });
  await write('alice', 1);
  await write('bob', 1);
  await app.ctx.db.pool.query(
    `WITH made AS (INSERT INTO request (quota_id, pattern, label, request_date, retention, state)
       SELECT q.id, 'x', 'x', r.request_date, r.retention, 'COMPLETED' FROM quota q JOIN request r ON r.id = 1, generate_series(1, 2000)
       WHERE q."user" = 'alice' RETURNING id)
     INSERT INTO notification (request_id, kind, recipient, subject, body, message_id, next_try_at, created_at)
     SELECT id, 'LAST_FILE', 'a@example.org', 's', 'b', id::text, $1, $1 FROM made`,
    [now],
  );
  await app.ctx.db.pool.query('VACUUM (ANALYZE) notification');
  const runs = await countRows(() => send());
  expect(runs.length).toBeGreaterThan(10);
  for (const { read } of runs) expect(read.notification ?? 0).toBeLessThan(60);
});

test('a new rate applies at once, and a clock that was set back delays no email for longer than the rate', async () => {
  await start({ userMailRate: 1 });
  await write('alice', 4);
  expect(await send()).toBe(1);
  now = addSeconds(now, -3600);
  await app.ctx.db.pool.query('UPDATE notification SET next_try_at = $1', [now]);
  expect(await send()).toBe(1);
  expect(await send()).toBe(0);
  Object.assign(app.ctx.config.limits, { userMailRate: 600 });
  now = addSeconds(now, 61);
  expect(await send()).toBe(2);
});

const WAITING = '{ waitingMail { edges { node { user emailCount since waitsFor nextAt lastError } } } }';

interface Waiting {
  waitingMail: Edges<{ user: string; emailCount: number; waitsFor: string; nextAt: string; lastError: string | null }>;
}

const readQueue = async (gateway: { url: string; token?: string } = app) =>
  (await askData<Waiting>(gateway, WAITING)).waitingMail.edges.map(({ node }) => node);

test('the queue shows how many emails wait and why: users see their own, operators all', async () => {
  await start({ mailRate: 1000, userMailRate: 2 });
  await write('alice', 5);
  await write('bob', 1);
  const from = now;
  expect(await readQueue()).toMatchObject([
    { user: 'alice', emailCount: 5, waitsFor: 'ENGINE', nextAt: `${from}Z`, lastError: null },
    { user: 'bob', emailCount: 1, waitsFor: 'ENGINE' },
  ]);
  server.onMail = () => {
    throw new Refusal(450, 'greylisted');
  };
  await send();
  expect(await readQueue()).toMatchObject([
    { user: 'alice', emailCount: 5, waitsFor: 'USER_RATE', nextAt: `${addSeconds(from, 60)}Z`, lastError: null },
    {
      user: 'bob',
      emailCount: 1,
      waitsFor: 'RETRY',
      nextAt: `${addSeconds(from, 5)}Z`,
      lastError: expect.stringContaining('greylisted'),
    },
  ]);
  Object.assign(app.ctx.config.limits, { mailRate: 1, userMailRate: 1000 });
  now = addSeconds(now, 1);
  expect(await readQueue()).toMatchObject([
    { user: 'alice', waitsFor: 'RATE', nextAt: `${addSeconds(from, 60)}Z` },
    { user: 'bob', waitsFor: 'RETRY', nextAt: `${addSeconds(from, 60)}Z` },
  ]);
  const { secret } = await createToken(app.ctx, { name: 'bob', role: 'USER' });
  expect((await readQueue({ url: app.url, token: secret })).map(({ user }) => user)).toEqual(['bob']);
  type First = { waitingMail: { pageInfo: { endCursor: string } } };
  const first = await askData<First>(
    app,
    '{ waitingMail(first: 1) { pageInfo { endCursor } edges { node { user } } } }',
  );
  const after = first.waitingMail.pageInfo.endCursor;
  const next = '{ waitingMail(after: $after) { edges { node { user } } } }';
  const rest = await askData<Waiting>(app, `query ($after: String) ${next}`, { after });
  expect(rest.waitingMail.edges.map(({ node }) => node.user)).toEqual(['bob']);
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  const { stdout } = await runCli(['mail'], { env });
  expect(stdout).toMatch(
    /^USER +EMAILS +SINCE +WAITING FOR +NEXT +ERROR\nalice +5 .* the rate limit for all email .*\nbob +1 .*greylisted/,
  );
  const json = await runCli(['mail', '--json', '--limit', '1'], { env });
  expect(JSON.parse(json.stdout)).toMatchObject({ user: 'alice', emailCount: 5, waitsFor: 'RATE' });
});

test('email that goes to the log has no rate', async () => {
  await start({ mailRate: 1, userMailRate: 1 });
  await write('alice', 3);
  expect(await sendDue(app, undefined)).toBe(3);
  expect(await readQueue()).toEqual([]);
  const { stdout } = await runCli(['mail'], { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } });
  expect(stdout).toBe('no email is waiting\n');
});

describe('the notice that a request expires', () => {
  const DAY = 86_400;
  /** The time at which the test began. */
  let begin: string;

  beforeEach(async () => {
    await start({ mailRate: 60_000, userMailRate: 60_000 });
    begin = now;
    await addFiles(app.ctx, [{ path: '/a', stage: 'ONDISK' }]);
  });

  /** Creates a request with a retention of `days` days. */
  const keep = (label: string, days: number, fields: object = {}) =>
    askForMail(app, 'last', { files: ['/a'], label, retention: addSeconds(begin, days * DAY), ...fields });

  /** Runs the jobs of two engines, `days` days after the start. @returns the labels of all notices sent so far */
  async function noticesAfter(days: number): Promise<(string | undefined)[]> {
    now = addSeconds(begin, days * DAY);
    await Promise.all([queueExpiring(app.ctx, never), queueExpiring(app.ctx, never)]);
    await Promise.all([send(), send()]);
    return readNotices();
  }

  function readNotices(): (string | undefined)[] {
    const subjects = server.mails.map((mail) => mail.headers.get('subject') ?? '');
    return subjects.filter((subject) => subject.startsWith('Expires')).map((subject) => subject.split(': ')[1]);
  }

  function extend(id: number, days: number) {
    const retention = addSeconds(begin, days * DAY);
    return app.ctx.db.pool.query('UPDATE request SET retention = $1 WHERE id = $2', [retention, id]);
  }

  test('two days before a request expires, one email says so, with the command that extends it', async () => {
    const id = await keep('ocean', 5);
    expect(await noticesAfter(2.9)).toEqual([]);
    expect(await noticesAfter(3.1)).toEqual(['ocean']);
    expect(await noticesAfter(4)).toEqual(['ocean']);
    expect(await noticesAfter(6)).toEqual(['ocean']);
    const email = server.mails.find((mail) => mail.headers.get('subject') === 'Expires soon: ocean');
    expect(email?.to).toEqual(['last@example.org']);
    expect(email?.body).toContain(`\n  tapegate update ${id} --retention 7d\n`);
  });

  test('the command of the email extends the request, and the next email comes before the new date', async () => {
    await keep('ocean', 5);
    await noticesAfter(3.1);
    const body = server.mails.at(-1)?.body ?? '';
    const line = /^ {2}tapegate (.+)$/m.exec(body)?.[1]?.split(' ') ?? [];
    const env = { TAPEGATE_URL: app.url };
    expect(await runCli(line, { env })).toMatchObject({ code: 0 });
    expect(await noticesAfter(8)).toEqual(['ocean']);
    expect(await noticesAfter(8.5)).toEqual(['ocean', 'ocean']);
    expect(await noticesAfter(9)).toEqual(['ocean', 'ocean']);
  });

  test('a request that is extended or cancelled in time sends no email, even if one was queued', async () => {
    const extended = await keep('extended', 5);
    const cancelled = await keep('cancelled', 5);
    now = addSeconds(begin, 3.1 * DAY);
    expect(await queueExpiring(app.ctx, never)).toBe(2);
    await extend(extended, 30);
    await cancelRequest(app.ctx, cancelled);
    await send();
    expect(readNotices()).toEqual([]);
    expect(await noticesAfter(4)).toEqual([]);
    expect(await noticesAfter(28.5)).toEqual(['extended']);
  });

  test('requests that are shorter than the notice, have no address or no files send no email', async () => {
    await keep('short', 2);
    await keep('silent', 5, { notify_on_last_file: undefined });
    await keep('empty', 5, { files: ['/nowhere'] });
    await keep('first', 5, { notify_on_last_file: undefined, notify_on_first_file: 'first@example.org' });
    expect(await noticesAfter(1)).toEqual([]);
    expect(await noticesAfter(3.5)).toEqual(['first']);
  });

  test('an email that is being sent while the request is extended leaves the notice of the new date due', async () => {
    const id = await keep('ocean', 5);
    await send();
    now = addSeconds(begin, 3.5 * DAY);
    await queueExpiring(app.ctx, never);
    const inHand = async () => {
      await extend(id, 5.25);
      expect(await queueExpiring(app.ctx, never)).toBe(1);
      return { state: 'SENT' } as const;
    };
    expect(await claimMail(app.ctx, { inTurn: false, send: inHand })).toBe(true);
    await send();
    expect(readNotices()).toEqual(['ocean']);
  });

  test('TAPEGATE_EXPIRY_NOTICE_HOURS=0 sends none', async () => {
    app.ctx.config.expiryNoticeHours = 0; // the next test starts an app with default settings
    await keep('ocean', 5);
    expect(await noticesAfter(4.99)).toEqual([]);
  });
});
