/** How fast mail goes out, and what becomes of letters that are too many at once. */
import { afterEach, expect, test } from 'vitest';
import type { Limits } from '../../src/config-limits.js';
import { sendMail } from '../../src/engine/notify.js';
import { createMailTransport } from '../../src/mail.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { addSeconds } from '../../src/time.js';
import type { TestApp } from '../support/app.js';
import { currentTime } from '../support/clock.js';
import { addQuota } from '../support/factories.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData, type Edges } from '../support/graphql.js';
import { Refusal, startMailServer } from '../support/mail-server.js';
import { runCli } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { countRows } from '../support/writes.js';

let app: TestApp;
/** Stands still but for what a test adds. */
let now: string;
/** Ended after each test, last first. */
const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const startFresh = createFreshApp({ now: () => now });

async function start(limits: Partial<Limits>, users = ['alice', 'bob', 'carol']) {
  now = currentTime();
  app = await startFresh({ limits });
  for (const user of users) await addQuota(app.ctx, user, 10n ** 9n);
  const server = await startMailServer();
  closers.push(() => server.close());
  return server;
}

/** Requests that find nothing, so that a letter of each is due at once; they are labelled by user and number. */
async function write(user: string, count: number): Promise<string[]> {
  const labels = Array.from({ length: count }, (_, n) => `${user} ${n}`);
  for (const label of labels) {
    const fields = { files: ['/nowhere'], label, notify_on_last_file: 'stranger@example.net', retention: '2099-01-01' };
    await makeRequest(app, { quota: user, ...fields });
  }
  return labels;
}

const never = new AbortController().signal;

/** What an engine that has just been started sends before it rests, by another one each time. */
async function send({ url }: { url: string }): Promise<number> {
  const transport = await createMailTransport(url);
  try {
    return await sendMail(app.ctx, transport, { stop: never, abort: never });
  } finally {
    transport.close();
  }
}

const labelsOf = ({ mails }: { mails: readonly { headers: Map<string, string> }[] }) =>
  mails.map((mail) => mail.headers.get('subject')?.replace('No files: ', ''));

test('of sixty letters that one has sent to strangers few go within seconds, and all go in order, by any engine', async () => {
  const server = await start({});
  const labels = await write('alice', 60);
  const sent = [await send(server)];
  for (let second = 1; second <= 8; second++) {
    now = addSeconds(now, 1);
    sent.push(await send(server));
  }
  expect(sent).toEqual([15, 1, 1, 1, 1, 1, 1, 1, 1]);
  let seconds = 8;
  for (; server.mails.length < 60; seconds++) {
    now = addSeconds(now, 1);
    await send(server);
  }
  expect([seconds, labelsOf(server)]).toEqual([45, labels]);
});

test('fifty letters of many users do not go within eight seconds either', async () => {
  const users = Array.from({ length: 12 }, (_, n) => `user-${n}`);
  const server = await start({}, users);
  for (const user of users) await write(user, 5);
  let sent = await send(server);
  expect(sent).toBe(30);
  now = addSeconds(now, 8);
  sent += await send(server);
  expect(sent).toBe(46);
});

test('engines that send at the same time share the rates', async () => {
  const server = await start({ mailRate: 1000, userMailRate: 32 });
  await write('alice', 20);
  await write('bob', 20);
  await Promise.all([send(server), send(server), send(server)]);
  const labels = labelsOf(server);
  expect(labels.filter((label) => label?.startsWith('alice'))).toHaveLength(8);
  expect(labels.filter((label) => label?.startsWith('bob'))).toHaveLength(8);
  expect(new Set(labels).size).toBe(16);
});

test('whoever has many letters waiting holds up nobody else, whether the rate is the own or that of all', async () => {
  const server = await start({ mailRate: 8, userMailRate: 1000 });
  const many = await write('alice', 12);
  await send(server);
  const more = await write('bob', 3);
  const [one] = await write('carol', 1);
  for (let n = 0; n < 14; n++) {
    now = addSeconds(now, 7.5);
    expect(await send(server)).toBe(1);
  }
  // by turns, and each user's own in order
  const [, , a2, ...rest] = many;
  const [b0, b1, b2] = more;
  expect(labelsOf(server)).toEqual([many[0], many[1], b0, one, a2, b1, rest[0], b2, ...rest.slice(1)]);
});

test('a letter costs a look at the next ones, however many wait', async () => {
  const server = await start({});
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
  const runs = await countRows(() => send(server));
  expect(runs.length).toBeGreaterThan(10);
  for (const { read } of runs) expect(read.notification ?? 0).toBeLessThan(60);
});

test('rates that are set anew, and a clock that was set back, keep no letter for longer than that', async () => {
  const server = await start({ userMailRate: 1 });
  await write('alice', 4);
  expect(await send(server)).toBe(1);
  now = addSeconds(now, -3600);
  await app.ctx.db.pool.query('UPDATE notification SET next_try_at = $1', [now]);
  expect(await send(server)).toBe(1);
  expect(await send(server)).toBe(0);
  Object.assign(app.ctx.config.limits, { userMailRate: 600 });
  now = addSeconds(now, 61);
  expect(await send(server)).toBe(2);
});

const WAITING = '{ waitingMail { edges { node { user letters since waitsFor nextAt lastError } } } }';

interface Waiting {
  waitingMail: Edges<{ user: string; letters: number; waitsFor: string; nextAt: string; lastError: string | null }>;
}

const look = async (gateway: { url: string; token?: string } = app) =>
  (await askData<Waiting>(gateway, WAITING)).waitingMail.edges.map(({ node }) => node);

test('it is told how many letters wait, of whom and why: to users of their own, to operators of all', async () => {
  const server = await start({ mailRate: 1000, userMailRate: 8 });
  await write('alice', 5);
  await write('bob', 1);
  const from = now;
  expect(await look()).toMatchObject([
    { user: 'alice', letters: 5, waitsFor: 'ENGINE', nextAt: `${from}Z`, lastError: null },
    { user: 'bob', letters: 1, waitsFor: 'ENGINE' },
  ]);
  server.onMail = () => {
    throw new Refusal(450, 'greylisted');
  };
  await send(server);
  expect(await look()).toMatchObject([
    { user: 'alice', letters: 5, waitsFor: 'USER_RATE', nextAt: `${addSeconds(from, 7.5)}Z`, lastError: null },
    {
      user: 'bob',
      letters: 1,
      waitsFor: 'RETRY',
      nextAt: `${addSeconds(from, 5)}Z`,
      lastError: expect.stringContaining('greylisted'),
    },
  ]);
  Object.assign(app.ctx.config.limits, { mailRate: 1, userMailRate: 1000 });
  now = addSeconds(now, 1);
  await app.ctx.db.pool.query('UPDATE mail_sender SET used_until = $1', [addSeconds(from, 30)]);
  expect(await look()).toMatchObject([
    { user: 'alice', waitsFor: 'RATE', nextAt: `${addSeconds(from, 30)}Z` },
    { user: 'bob', waitsFor: 'RETRY', nextAt: `${addSeconds(from, 30)}Z` },
  ]);
  const { secret } = await createToken(app.ctx, { name: 'bob', role: 'USER' });
  expect((await look({ url: app.url, token: secret })).map(({ user }) => user)).toEqual(['bob']);
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
    /^USER +LETTERS +SINCE +WAIT FOR +NEXT +ERROR\nalice +5 .* the rate of all mail .*\nbob +1 .*greylisted/,
  );
  const json = await runCli(['mail', '--json', '--limit', '1'], { env });
  expect(JSON.parse(json.stdout)).toMatchObject({ user: 'alice', letters: 5, waitsFor: 'RATE' });
});

test('what is only written to the log waits for no turn, and then no letter waits', async () => {
  await start({ mailRate: 1, userMailRate: 1 });
  await write('alice', 3);
  expect(await sendMail(app.ctx, undefined, { stop: never, abort: never })).toBe(3);
  expect(await look()).toEqual([]);
  const { stdout } = await runCli(['mail'], { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } });
  expect(stdout).toBe('no letter waits to be sent\n');
});
