import { once } from 'node:events';
import { type AddressInfo, createServer, type Server } from 'node:net';
import type { SMTPServerOptions } from 'smtp-server';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { sendMail } from '../../src/engine/notify.js';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { createMailTransport } from '../../src/mail.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { addSeconds, secondsBetween } from '../../src/time.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { Refusal, startMailServer } from '../support/mail-server.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const clock = createClock();
const backend = createMemoryBackend();
/** Ended after each test, last first. */
const closers: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  app = await startApp({ now: clock.now, limits: { mailRate: 60_000, userMailRate: 60_000 } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
  // what is left of mail, and of an engine that has sent it
  await app.ctx.db.pool.query('TRUNCATE notification, mail_sender');
});
afterAll(() => app.close());

async function startMailing(smtpUrl: string | undefined): Promise<Engine> {
  const ctx = { ...app.ctx, config: { ...app.ctx.config, smtpUrl } };
  const engine = await startEngine(ctx, backend, { drainMs: 100 });
  closers.push(() => engine.stop());
  return engine;
}

async function startServer(options: SMTPServerOptions = {}, port = 0) {
  const server = await startMailServer(port, options);
  closers.push(() => server.close());
  return server;
}

/** A server that does what it likes with each connection. */
async function startRaw(onConnection: Parameters<typeof createServer>[1]): Promise<{ server: Server; port: number }> {
  const server = createServer(onConnection as never);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, port: (server.address() as AddressInfo).port };
}

/** A request that finds nothing, so that its last mail is due at once. */
function askForMail(name: string, retention = '2099-01-01'): Promise<number> {
  const fields = { files: [`/${name}`], notify_on_last_file: `${name}@example.org`, retention };
  return makeRequest(app, { quota: 'alice', ...fields });
}

const never = new AbortController().signal;

interface Letter {
  state: string;
  attempts: number;
  last_error: string | null;
  message_id: string;
  next_try_at: string;
  sent_at: string | null;
}

async function readLetter(requestId: number): Promise<Letter> {
  const { rows } = await app.ctx.db.pool.query<Letter>('SELECT * FROM notification WHERE request_id = $1', [requestId]);
  const [letter] = rows;
  if (!letter) throw new Error(`request ${requestId} has no letter`);
  return letter;
}

async function waitForLetter(requestId: number, is: (letter: Letter) => boolean, pass = false): Promise<Letter> {
  return await waitFor(`the letter of request ${requestId}`, async () => {
    if (pass) clock.advance(3600);
    if (pass) await ring(app, 'notification');
    const letter = await readLetter(requestId);
    return is(letter) && letter;
  });
}

test('while the server is down mail waits, longer from try to try, and goes out later as the same letter', async () => {
  const { server: broken, port } = await startRaw((socket) => socket.destroy());
  await startMailing(`smtp://127.0.0.1:${port}`);
  const id = await askForMail('down');
  const pauses: number[] = [];
  for (let attempt = 1; attempt <= 7; attempt++) {
    const letter = await waitForLetter(id, ({ attempts }) => attempts === attempt);
    expect(letter).toMatchObject({ state: 'PENDING', sent_at: null });
    expect(letter.last_error).not.toBeNull();
    const pause = secondsBetween(clock.now(), letter.next_try_at);
    pauses.push(Math.ceil(pause / 5) * 5);
    clock.advance(pause + 0.001);
    if (attempt < 7) await ring(app, 'notification');
  }
  expect(pauses).toEqual([5, 15, 60, 300, 900, 3600, 3600]);
  const { message_id } = await readLetter(id);
  await new Promise((resolve) => broken.close(resolve));
  const server = await startServer({}, port);
  const sent = await waitForLetter(id, ({ state }) => state === 'SENT', true);
  expect(sent).toMatchObject({ attempts: 8, last_error: null, message_id });
  expect(sent.sent_at).not.toBeNull();
  expect(server.mails.map((mail) => mail.headers.get('message-id'))).toEqual([message_id]);
});

test('an engine without a descriptor for the mail server tries again soon, however often that was so', async () => {
  const server = await startServer();
  const transport = await createMailTransport(server.url);
  closers.push(async () => transport.close());
  const id = await askForMail('exhausted');
  // as nodemailer tells it of its socket
  const error = Object.assign(new Error('connect EMFILE'), {
    code: 'ESOCKET',
    originalCode: 'EMFILE',
    command: 'CONN',
  });
  const { transporter } = transport as unknown as { transporter: { getSocket?: unknown } };
  const { getSocket } = transporter;
  transporter.getSocket = (_options: unknown, callback: (error: Error) => void) => callback(error);
  for (let n = 1; n <= 4; n++) {
    await sendMail(app.ctx, transport, { stop: never, abort: never });
    const letter = await readLetter(id);
    expect(letter).toMatchObject({ state: 'PENDING', attempts: n, last_error: expect.stringContaining('EMFILE') });
    expect(secondsBetween(clock.now(), letter.next_try_at)).toBeLessThanOrEqual(5);
    clock.advance(5);
  }
  transporter.getSocket = getSocket;
  await sendMail(app.ctx, transport, { stop: never, abort: never });
  expect(await readLetter(id)).toMatchObject({ state: 'SENT' });
});

test('a letter whose answer got lost is sent again under the same Message-ID', async () => {
  const server = await startServer();
  server.onMail = () => {
    if (server.mails.length === 1) throw new Refusal(421, 'closing in the middle of it');
  };
  await startMailing(server.url);
  const id = await askForMail('lost');
  await waitForLetter(id, ({ state }) => state === 'SENT', true);
  const { message_id } = await readLetter(id);
  expect(server.mails.map((mail) => mail.headers.get('message-id'))).toEqual([message_id, message_id]);
});

test('a recipient that is refused for now is tried again', async () => {
  let refusals = 0;
  const server = await startServer({
    onRcptTo: (_address, _session, callback) => callback(refusals++ < 2 ? new Refusal(450, 'greylisted') : null),
  });
  await startMailing(server.url);
  const id = await askForMail('grey');
  const first = await waitForLetter(id, ({ attempts }) => attempts === 1);
  expect(first).toMatchObject({ state: 'PENDING', last_error: expect.stringContaining('greylisted') });
  expect(await waitForLetter(id, ({ state }) => state === 'SENT', true)).toMatchObject({ attempts: 3 });
  expect(server.mails).toHaveLength(1);
});

test('a recipient that is refused for now without end is given up after five days, and why is noted', async () => {
  const server = await startServer({
    onRcptTo: (_address, _session, callback) => callback(new Refusal(452, 'mailbox full')),
  });
  await startMailing(server.url);
  const id = await askForMail('full');
  const given = await waitForLetter(id, ({ state }) => state !== 'PENDING', true);
  expect(given).toMatchObject({ state: 'REJECTED', sent_at: null });
  expect(given.last_error).toMatch(/^given up after 5 days: .*mailbox full/);
  const { rows } = await app.ctx.db.pool.query<{ created_at: string }>('SELECT created_at FROM notification');
  expect(secondsBetween(rows[0]?.created_at ?? '', clock.now())).toBeGreaterThanOrEqual(5 * 86_400);
});

test('a letter that has waited for long is not given up at its first refusal for now, nor at its fourth', async () => {
  const server = await startServer({
    onRcptTo: (_address, _session, callback) => callback(new Refusal(451, 'greylisted')),
  });
  const transport = await createMailTransport(server.url);
  closers.push(async () => transport.close());
  const id = await askForMail('queued');
  const last_error = expect.stringMatching(/^(?!given up).*greylisted/);
  for (let attempts = 1; attempts <= 4; attempts++) {
    clock.advance(6 * 86_400);
    await sendMail(app.ctx, transport, { stop: never, abort: never });
    expect(await readLetter(id)).toMatchObject({ state: 'PENDING', attempts, last_error });
  }
});

test('a letter that is sent when its request has ended says so, and from when it is', async () => {
  const server = await startServer();
  const transport = await createMailTransport(server.url);
  closers.push(async () => transport.close());
  await askForMail('lives');
  await askForMail('ended', addSeconds(clock.now(), 3600));
  clock.advance(3601);
  await sendMail(app.ctx, transport, { stop: never, abort: never });
  const [lives, ended] = ['lives@example.org', 'ended@example.org'].map(
    (address) => server.mails.find(({ to }) => to.includes(address))?.body.split('\n')[0],
  );
  expect(lives).toMatch(/^Your request \d+ \("\/lives"\) matches no file/);
  expect(ended).toMatch(/^This was written at [-:0-9 ]{19} UTC\. The request has ended since/);
});

test('an engine without a mail server leaves the letters to one that has it, also while that one is away', async () => {
  const server = await startServer();
  const sending = await startMailing(server.url);
  const first = await askForMail('first');
  await waitForLetter(first, ({ state }) => state === 'SENT');
  await sending.stop();
  await startMailing(undefined);
  const id = await askForMail('left');
  clock.advance(6 * 86_400);
  await ring(app, 'notification');
  await sendMail(app.ctx, undefined, { stop: never, abort: never });
  expect(await readLetter(id)).toMatchObject({ state: 'PENDING', attempts: 0 });
  await startMailing(server.url);
  await waitForLetter(id, ({ state }) => state === 'SENT');
  expect(server.mails.flatMap(({ to }) => to)).toEqual(['first@example.org', 'left@example.org']);
});

test('once no engine with a mail server was there for a week, mail is written to the log again', async () => {
  const server = await startServer();
  const sending = await startMailing(server.url);
  await waitForLetter(await askForMail('first'), ({ state }) => state === 'SENT');
  await sending.stop();
  await startMailing(undefined);
  const id = await askForMail('nobody');
  clock.advance(7 * 86_400 + 61);
  await ring(app, 'notification');
  await waitForLetter(id, ({ state }) => state === 'LOGGED');
});

test.each([
  [
    'a recipient',
    { onRcptTo: (_address, _session, callback) => callback(new Refusal(550, 'no such user')) } as SMTPServerOptions,
    'no such user',
  ],
  [
    'a letter',
    {
      onData: (stream, _session, callback) => {
        stream.resume().on('end', () => callback(new Refusal(554, 'looks like spam')));
      },
    } as SMTPServerOptions,
    'looks like spam',
  ],
])('%s that is refused for good is given up, and why is noted', async (_what, options, reason) => {
  const server = await startServer(options);
  await startMailing(server.url);
  const id = await askForMail('refused');
  const given = await waitForLetter(id, ({ state }) => state === 'REJECTED');
  expect(given).toMatchObject({ attempts: 1, sent_at: null, last_error: expect.stringContaining(reason) });
  const other = await askForMail('other');
  await waitForLetter(other, ({ state }) => state === 'REJECTED', true); // the outbox has been gone through again
  expect(await readLetter(id)).toEqual(given);
});

test('a sender that the server refuses costs no mail: it goes out once that is mended', async () => {
  let isMended = false;
  const server = await startServer({
    onMailFrom: (_address, _session, callback) => callback(isMended ? null : new Refusal(550, 'not from here')),
  });
  await startMailing(server.url);
  const id = await askForMail('sender');
  const waiting = await waitForLetter(id, ({ attempts }) => attempts === 1);
  expect(waiting).toMatchObject({ state: 'PENDING', last_error: expect.stringContaining('not from here') });
  isMended = true;
  await waitForLetter(id, ({ state }) => state === 'SENT', true);
});

test('a login that the server refuses costs no mail, and user and password are taken from SMTP_URL', async () => {
  const seen: string[] = [];
  const server = await startServer({
    authOptional: false,
    disabledCommands: ['STARTTLS'],
    allowInsecureAuth: true,
    onAuth: ({ username, password }, _session, callback) => {
      seen.push(`${username} ${password}`);
      callback(seen.length > 1 ? null : new Refusal(535, 'wrong password'), { user: username });
    },
  });
  await startMailing(server.url.replace('//', '//us%40er:p%3Ass%2F@'));
  const id = await askForMail('login');
  const waiting = await waitForLetter(id, ({ attempts }) => attempts === 1);
  expect(waiting).toMatchObject({ state: 'PENDING', last_error: expect.stringContaining('wrong password') });
  await waitForLetter(id, ({ state }) => state === 'SENT', true);
  expect(seen).toEqual(['us@er p:ss/', 'us@er p:ss/']);
});

test('a server with TLS and a certificate of its own house takes mail', async () => {
  const isSecure: boolean[] = [];
  const server = await startServer({
    disabledCommands: ['AUTH'],
    logger: false,
    onMailFrom: (_address, session, callback) => {
      isSecure.push(session.secure);
      callback();
    },
  });
  await startMailing(server.url);
  const id = await askForMail('tls');
  await waitForLetter(id, ({ state }) => state === 'SENT');
  expect(isSecure).toEqual([true]);
});

test('a server that never answers holds up no restore, and an engine that stops gives the letter up for later', async () => {
  const sockets = new Set<{ destroy(): void }>();
  const { server: silent, port } = await startRaw((socket) => sockets.add(socket));
  const engine = await startMailing(`smtp://127.0.0.1:${port}`);
  const id = await askForMail('silent');
  await waitFor('the connection', async () => sockets.size > 0);
  await addTaped(app.ctx, backend, [{ path: '/silent/a', volume: 'SILENT' }]);
  await waitForState(app, await makeRequest(app, { quota: 'alice', patterns: '/silent/' }), 'COMPLETED');
  await engine.stop();
  const left = await readLetter(id);
  expect(left).toMatchObject({ state: 'PENDING', last_error: expect.stringMatching(/abort/i) });
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => silent.close(resolve));
  const server = await startServer();
  await startMailing(server.url);
  expect(await waitForLetter(id, ({ state }) => state === 'SENT')).toMatchObject({ message_id: left.message_id });
});

test('without SMTP_URL mail is written to the log, and kept', async () => {
  await startMailing(undefined);
  const id = await askForMail('logged');
  const letter = await waitForLetter(id, ({ state }) => state === 'LOGGED');
  expect(letter).toMatchObject({ attempts: 1, last_error: null, sent_at: null });
});

test('two engines send each letter once', async () => {
  const server = await startServer();
  const ids = [];
  for (let n = 0; n < 10; n++) ids.push(await askForMail(`both-${n}`));
  await Promise.all([startMailing(server.url), startMailing(server.url)]);
  for (const id of ids) await waitForLetter(id, ({ state }) => state === 'SENT');
  expect(new Set(server.mails.map((mail) => mail.headers.get('message-id'))).size).toBe(10);
  expect(server.mails).toHaveLength(10);
});

test('while a letter is sent no transaction is open, nobody else takes it, and a sender that dies loses nothing', async () => {
  const sockets = new Set<{ destroy(): void }>();
  const { server: silent, port } = await startRaw((socket) => sockets.add(socket));
  closers.push(() => new Promise((resolve) => silent.close(resolve)));
  const id = await askForMail('slow');
  const { message_id } = await readLetter(id);
  const abort = new AbortController();
  const slow = await createMailTransport(`smtp://127.0.0.1:${port}`);
  closers.push(async () => slow.close());
  const late = sendMail(app.ctx, slow, { stop: never, abort: abort.signal });
  await waitFor('the connection', async () => sockets.size > 0);
  const { rows } = await app.ctx.db.pool.query(
    `SELECT query FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`,
  );
  expect(rows).toEqual([]);
  const server = await startServer();
  const other = await createMailTransport(server.url);
  expect(await sendMail(app.ctx, other, { stop: never, abort: never })).toBe(0);
  clock.advance(181);
  expect(await sendMail(app.ctx, other, { stop: never, abort: never })).toBe(1);
  const sent = await readLetter(id);
  expect(sent).toMatchObject({ state: 'SENT', attempts: 1, message_id });
  expect(server.mails.map((mail) => mail.headers.get('message-id'))).toEqual([message_id]);
  abort.abort();
  for (const socket of sockets) socket.destroy();
  await late;
  expect(await readLetter(id)).toEqual(sent); // whoever comes too late says nothing
});
