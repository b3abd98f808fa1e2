/** The letter before a request expires. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sendMail } from '../../src/engine/notify.js';
import { createMailTransport } from '../../src/mail.js';
import { queueExpiring } from '../../src/operations/mail/expiring.js';
import { claimMail } from '../../src/operations/mail/outbox.js';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { addSeconds } from '../../src/time.js';
import { startApp, type TestApp } from '../support/app.js';
import { currentTime } from '../support/clock.js';
import { addFiles, addQuota } from '../support/factories.js';
import { type MailServer, startMailServer } from '../support/mail-server.js';
import { runCli } from '../support/process.js';
import { makeRequest } from '../support/rest.js';

const DAY = 86_400;
const never = new AbortController().signal;

let app: TestApp;
let server: MailServer;
/** Stands still but for what a test adds. */
let now: string;
/** Of the test's begin. */
let start: string;

beforeEach(async () => {
  start = now = currentTime();
  server = await startMailServer();
  app = await startApp({ now: () => now, limits: { mailRate: 60_000, userMailRate: 60_000 } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/a', stage: 'ONDISK' }]);
});
afterEach(async () => {
  await app.close();
  await server.close();
});

/** A request that is kept for so long. */
function keep(label: string, days: number, fields: object = {}): Promise<number> {
  const retention = addSeconds(start, days * DAY);
  return makeRequest(app, {
    quota: 'alice',
    files: ['/a'],
    label,
    notify_on_last_file: 'last@example.org',
    retention,
    ...fields,
  });
}

async function send(): Promise<void> {
  const transport = await createMailTransport(server.url);
  try {
    await sendMail(app.ctx, transport, { stop: never, abort: never });
  } finally {
    transport.close();
  }
}

/** What two engines do so many days after the begin. @returns the labels of all letters that have told of an end until then */
async function passAt(days: number): Promise<(string | undefined)[]> {
  now = addSeconds(start, days * DAY);
  await Promise.all([queueExpiring(app.ctx, never), queueExpiring(app.ctx, never)]);
  await Promise.all([send(), send()]);
  return told();
}

function told(): (string | undefined)[] {
  const subjects = server.mails.map((mail) => mail.headers.get('subject') ?? '');
  return subjects.filter((subject) => subject.startsWith('Expires')).map((subject) => subject.split(': ')[1]);
}

function extend(id: number, days: number) {
  const retention = addSeconds(start, days * DAY);
  return app.ctx.db.pool.query('UPDATE request SET retention = $1 WHERE id = $2', [retention, id]);
}

test('two days before a request expires one letter says so, with the line that extends it', async () => {
  const id = await keep('ocean', 5);
  expect(await passAt(2.9)).toEqual([]);
  expect(await passAt(3.1)).toEqual(['ocean']);
  expect(await passAt(4)).toEqual(['ocean']);
  expect(await passAt(6)).toEqual(['ocean']);
  const letter = server.mails.find((mail) => mail.headers.get('subject') === 'Expires soon: ocean');
  expect(letter?.to).toEqual(['last@example.org']);
  expect(letter?.body).toContain(`\n  tapegate update ${id} --retention 7d\n`);
});

test('the line of the letter extends the request, and the next letter is of the new date', async () => {
  await keep('ocean', 5);
  await passAt(3.1);
  const body = server.mails.at(-1)?.body ?? '';
  const line = /^ {2}tapegate (.+)$/m.exec(body)?.[1]?.split(' ') ?? [];
  const env = { TAPEGATE_URL: app.url };
  expect(await runCli(line, { env })).toMatchObject({ code: 0 });
  expect(await passAt(8)).toEqual(['ocean']);
  expect(await passAt(8.5)).toEqual(['ocean', 'ocean']);
  expect(await passAt(9)).toEqual(['ocean', 'ocean']);
});

test('who has extended or ended a request in time is not written to, even where a letter waits', async () => {
  const extended = await keep('extended', 5);
  const cancelled = await keep('cancelled', 5);
  now = addSeconds(start, 3.1 * DAY);
  expect(await queueExpiring(app.ctx, never)).toBe(2);
  await extend(extended, 30);
  await cancelRequest(app.ctx, cancelled);
  await send();
  expect(told()).toEqual([]);
  expect(await passAt(4)).toEqual([]);
  expect(await passAt(28.5)).toEqual(['extended']);
});

test('requests that live no longer than the notice, nobody gets mail about, or that hold nothing, have none', async () => {
  await keep('short', 2);
  await keep('silent', 5, { notify_on_last_file: undefined });
  await keep('empty', 5, { files: ['/nowhere'] });
  await keep('first', 5, { notify_on_last_file: undefined, notify_on_first_file: 'first@example.org' });
  expect(await passAt(1)).toEqual([]);
  expect(await passAt(3.5)).toEqual(['first']);
});

test('a letter that another engine has in hand while its request gets another end notes nothing of the next one', async () => {
  const id = await keep('ocean', 5);
  await send();
  now = addSeconds(start, 3.5 * DAY);
  await queueExpiring(app.ctx, never);
  const inHand = async () => {
    await extend(id, 5.25);
    expect(await queueExpiring(app.ctx, never)).toBe(1);
    return { state: 'SENT' } as const;
  };
  expect(await claimMail(app.ctx, { inTurn: false, send: inHand })).toBe(true);
  await send();
  expect(told()).toEqual(['ocean']);
});

test('EXPIRY_NOTICE_HOURS=0 writes none', async () => {
  app.ctx.config.expiryNoticeHours = 0;
  await keep('ocean', 5);
  expect(await passAt(4.99)).toEqual([]);
});
