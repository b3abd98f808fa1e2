/** Email that a server refuses, loses or never answers, and the servers that get the password of SMTP_URL. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import type { SMTPServerOptions } from 'smtp-server';
import { afterAll, afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { addSeconds, secondsBetween } from '../../src/core/time.js';
import { createMailTransport } from '../../src/domain/notifications/mail/mail.js';
import { sendMail } from '../../src/engine/notifications/notify.js';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { createClock } from '../support/clock.js';
import { ring, ringUntilSeen } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { type MailServer, Refusal, startMailServer } from '../support/mail-server.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { askForMail, type Email, never, readEmail, sendDue } from '../support/outbox.js';
import { listen } from '../support/ports.js';
import { cleanUp, startCli, stop } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { findProgram } from '../support/run-example.js';
import { makeTempDir } from '../support/temp-dir.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const DAY = 86_400;

const clock = createClock();
const library = createMemoryLibrary();
/** Functions that run after each test, the last one first. */
const closers: (() => unknown)[] = [];

const app = useApp({ now: clock.now, limits: { mailRate: 60_000, userMailRate: 60_000 } }, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(async () => {
  clock.goOn();
  for (const close of closers.splice(0).reverse()) await close();
  await app.ctx.db.pool.query('TRUNCATE notification, mail_sender');
});
afterAll(cleanUp);

async function startMailing(smtpUrl: string | undefined): Promise<Engine> {
  const ctx = { ...app.ctx, config: { ...app.ctx.config, smtpUrl } };
  const engine = await startEngine(ctx, library, { drainMs: 100 });
  closers.push(() => engine.stop());
  return engine;
}

async function startServer(options: SMTPServerOptions = {}, port = 0): Promise<MailServer> {
  const server = await startMailServer(port, options);
  closers.push(() => server.close());
  return server;
}

/** Starts a server that accepts connections but never answers. */
async function startSilent(onConnection: (socket: { destroy(): void }) => void = () => {}) {
  const sockets: { destroy(): void }[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    onConnection(socket);
  });
  const port = await listen(server);
  const close = async () => {
    for (const socket of sockets) socket.destroy();
    if (server.listening) await new Promise((resolve) => server.close(resolve));
  };
  closers.push(close);
  return { url: `smtp://127.0.0.1:${port}`, port, sockets, close };
}

const messageIdsOf = ({ mails }: MailServer) => mails.map((mail) => mail.headers.get('message-id'));
const refuseRecipient = (code: number, message: string): SMTPServerOptions => ({
  onRcptTo: (_address, _session, callback) => callback(new Refusal(code, message)),
});

async function waitForEmail(requestId: number, isIt: (email: Email) => boolean): Promise<Email> {
  return await waitFor(`the email of request ${requestId}`, async () => {
    const email = await readEmail(app, requestId);
    return isIt(email) && email;
  });
}
const isSent = ({ state }: Email) => state === 'SENT';

test('while the server is down an engine retries, with longer and longer pauses, and sends the same email later', async () => {
  clock.freeze(); // time stands still, so that no pause ends early
  const broken = await startSilent((socket) => socket.destroy());
  await startMailing(broken.url);
  const id = await askForMail(app, 'down');
  const pauses: number[] = [];
  for (let attempt = 1; attempt <= 7; attempt++) {
    const email = await waitForEmail(id, ({ attempts }) => attempts === attempt);
    expect(email).toMatchObject({ state: 'PENDING', sent_at: null, last_error: expect.any(String) });
    const pause = secondsBetween(clock.now(), email.next_try_at);
    pauses.push(Math.round(pause));
    clock.advance(pause + 0.001);
    if (attempt < 7) await ring(app, 'notification');
  }
  expect(pauses).toEqual([5, 15, 60, 300, 900, 3600, 3600]);
  const { message_id } = await readEmail(app, id);
  await broken.close();
  const server = await startServer({}, broken.port);
  await ring(app, 'notification');
  const sent = await waitForEmail(id, isSent);
  expect(sent).toMatchObject({ attempts: 8, last_error: null, message_id, sent_at: expect.any(String) });
  expect(messageIdsOf(server)).toEqual([message_id]);
});

test('an engine without a free descriptor for the mail server retries soon, however often that happens', async () => {
  const server = await startServer();
  const transport = await createMailTransport(server.url);
  closers.push(() => transport.close());
  const id = await askForMail(app, 'exhausted');
  // the form in which nodemailer reports a socket error
  const codes = { code: 'ESOCKET', originalCode: 'EMFILE', command: 'CONN' };
  const error = Object.assign(new Error('connect EMFILE'), codes);
  const { transporter } = transport as unknown as { transporter: { getSocket?: unknown } };
  const { getSocket } = transporter;
  transporter.getSocket = (_options: unknown, callback: (error: Error) => void) => callback(error);
  for (let attempts = 1; attempts <= 4; attempts++) {
    await sendMail(app.ctx, transport, { stop: never, abort: never });
    const email = await readEmail(app, id);
    expect(email).toMatchObject({ state: 'PENDING', attempts, last_error: expect.stringContaining('EMFILE') });
    expect(secondsBetween(clock.now(), email.next_try_at)).toBeLessThanOrEqual(5);
    clock.advance(5);
  }
  transporter.getSocket = getSocket;
  await sendMail(app.ctx, transport, { stop: never, abort: never });
  expect(await readEmail(app, id)).toMatchObject({ state: 'SENT' });
});

test('an email that the server took, and then refused for now, is sent again with the same Message-ID', async () => {
  const server = await startServer();
  server.onMail = () => {
    if (server.mails.length === 1) throw new Refusal(421, 'closing in the middle of it');
  };
  const id = await askForMail(app, 'lost');
  await sendDue(app, server.url);
  clock.advance(3600);
  await sendDue(app, server.url);
  const { state, message_id } = await readEmail(app, id);
  expect([state, messageIdsOf(server)]).toEqual(['SENT', [message_id, message_id]]);
});

test('an email to a recipient that is refused for now is retried, and rejected after five days', async () => {
  const server = await startServer(refuseRecipient(452, 'mailbox full'));
  const id = await askForMail(app, 'full');
  const { created_at } = await readEmail(app, id);
  while ((await readEmail(app, id)).state === 'PENDING') {
    const days = secondsBetween(created_at, clock.now()) / DAY;
    if (days >= 5) {
      app.ctx.db.clock.isPlausible = false;
      await sendDue(app, server.url);
      expect(await readEmail(app, id)).toMatchObject({ state: 'PENDING' });
      app.ctx.db.clock.isPlausible = true;
      clock.advance(DAY / 2);
    }
    await sendDue(app, server.url);
    const { state, last_error } = await readEmail(app, id);
    expect([state, last_error]).toEqual(
      days < 5
        ? ['PENDING', expect.stringMatching(/^(?!given up).*mailbox full/)]
        : ['REJECTED', expect.stringMatching(/^Tapegate gave up after 5 days: .*mailbox full/)],
    );
    clock.advance(DAY / 2);
  }
});

test('an email that has waited for days is not rejected at one of its first four refusals', async () => {
  const server = await startServer(refuseRecipient(451, 'greylisted'));
  const id = await askForMail(app, 'queued');
  const last_error = expect.stringMatching(/^(?!given up).*greylisted/);
  for (let attempts = 1; attempts <= 4; attempts++) {
    clock.advance(6 * DAY);
    await sendDue(app, server.url);
    expect(await readEmail(app, id)).toMatchObject({ state: 'PENDING', attempts, last_error });
  }
});

test('an email that is sent after its request has ended says so, and when it was written', async () => {
  const server = await startServer();
  await askForMail(app, 'lives');
  await askForMail(app, 'ended', { retention: addSeconds(clock.now(), 3600) });
  clock.advance(3601);
  await sendDue(app, server.url);
  const [lives, ended] = ['lives@example.org', 'ended@example.org'].map(
    (address) => server.mails.find(({ to }) => to.includes(address))?.body.split('\n')[0],
  );
  expect(lives).toMatch(/^Your request \d+ \("\/lives"\) matches no file/);
  expect(ended).toMatch(/^This email was written at [-:0-9 ]{19} UTC\. The request has ended since then/);
});

test('an engine without a mail server leaves email to one that has had it within a week, and logs it after that', async () => {
  const server = await startServer();
  await askForMail(app, 'first');
  await sendDue(app, server.url);
  await startMailing(undefined);
  const left = await askForMail(app, 'left');
  clock.advance(6 * DAY);
  await ringUntilSeen(app, 'notification', 'mail');
  expect(await sendDue(app, undefined)).toBe(0);
  expect(await readEmail(app, left)).toMatchObject({ state: 'PENDING', attempts: 0 });
  await sendDue(app, server.url);
  expect(server.mails.flatMap(({ to }) => to)).toEqual(['first@example.org', 'left@example.org']);
  const logged = await askForMail(app, 'logged');
  clock.advance(7 * DAY + 61);
  await ring(app, 'notification');
  const email = await waitForEmail(logged, ({ state }) => state === 'LOGGED');
  expect(email).toMatchObject({ attempts: 1, last_error: null, sent_at: null });
});

const refuseContent: SMTPServerOptions = {
  onData: (stream, _session, callback) => {
    stream.resume().on('end', () => callback(new Refusal(554, 'looks like spam')));
  },
};
test.each([
  ['a recipient', refuseRecipient(550, 'no such user'), 'no such user'],
  ['an email', refuseContent, 'looks like spam'],
])('%s that is refused for good is not retried, and the reason is recorded', async (_what, options, reason) => {
  const server = await startServer(options);
  const id = await askForMail(app, 'refused');
  await sendDue(app, server.url);
  const rejected = await readEmail(app, id);
  expect(rejected).toMatchObject({ state: 'REJECTED', attempts: 1, sent_at: null });
  expect(rejected.last_error).toContain(reason);
  clock.advance(3600);
  expect(await sendDue(app, server.url)).toBe(0);
});

test('a sender or a login that the server refuses loses no email: it is sent once the server takes them', async () => {
  let isMended = false;
  const passwords: string[] = [];
  const choose = (refusal: Refusal) => (isMended ? null : refusal);
  const options: Record<string, SMTPServerOptions> = {
    'not from here': {
      onMailFrom: (_address, _session, callback) => callback(choose(new Refusal(550, 'not from here'))),
    },
    'wrong password': {
      ...{ authOptional: false, disabledCommands: ['STARTTLS'], allowInsecureAuth: true },
      onAuth: ({ username, password }, _session, callback) => {
        passwords.push(`${username} ${password}`);
        callback(choose(new Refusal(535, 'wrong password')), { user: username });
      },
    },
  };
  for (const [reason, each] of Object.entries(options)) {
    isMended = false;
    const { url } = await startServer(each);
    const smtpUrl = each.onAuth ? url.replace('//', '//us%40er:p%3Ass%2F@') : url;
    const id = await askForMail(app, 'mended');
    await sendDue(app, smtpUrl);
    expect(await readEmail(app, id)).toMatchObject({ state: 'PENDING', last_error: expect.stringContaining(reason) });
    isMended = true;
    clock.advance(3600);
    await sendDue(app, smtpUrl);
    expect(await readEmail(app, id)).toMatchObject({ state: 'SENT' });
  }
  expect(passwords).toEqual(['us@er p:ss/', 'us@er p:ss/']);
});

test('a server that never answers delays no restore, and an engine that stops leaves the email to the next one', async () => {
  const silent = await startSilent();
  const engine = await startMailing(silent.url);
  const id = await askForMail(app, 'silent');
  await waitFor('the connection', async () => silent.sockets.length > 0);
  await addTaped(app.ctx, library, [{ path: '/silent/a', volume: 'SILENT' }]);
  await waitForState(app, await makeRequest(app, { quota: 'alice', patterns: '/silent/' }), 'COMPLETED');
  await engine.stop();
  const left = await readEmail(app, id);
  expect(left).toMatchObject({ state: 'PENDING', last_error: expect.stringMatching(/abort/i) });
  const server = await startServer();
  await startMailing(server.url);
  expect(await waitForEmail(id, isSent)).toMatchObject({ message_id: left.message_id });
});

test('sending holds no transaction open and no other engine takes the email, unless the sender is silent for minutes', async () => {
  const silent = await startSilent();
  const id = await askForMail(app, 'slow');
  const { message_id } = await readEmail(app, id);
  const abort = new AbortController();
  const slow = await createMailTransport(silent.url);
  expect(slow.options).toMatchObject({ greetingTimeout: 300_000, socketTimeout: 600_000 });
  closers.push(() => slow.close());
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => {
    vi.useRealTimers();
  });
  const late = sendMail(app.ctx, slow, { stop: never, abort: abort.signal });
  await waitFor('the connection', async () => silent.sockets.length > 0);
  const { rows } = await app.ctx.db.pool.query(
    `SELECT query FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`,
  );
  expect(rows).toEqual([]);
  const server = await startServer();
  expect(await sendDue(app, server.url)).toBe(0);
  const claimed = (await readEmail(app, id)).next_try_at;
  clock.advance(100);
  vi.advanceTimersByTime(60_000);
  await waitFor(
    'the claim to be renewed',
    async () => String((await readEmail(app, id)).next_try_at) !== String(claimed),
  );
  clock.advance(100);
  expect(await sendDue(app, server.url)).toBe(0);
  clock.advance(81);
  expect(await sendDue(app, server.url)).toBe(1);
  const sent = await readEmail(app, id);
  expect(sent).toMatchObject({ state: 'SENT', attempts: 1, message_id });
  expect(messageIdsOf(server)).toEqual([message_id]);
  abort.abort();
  await silent.close();
  await late;
  expect(await readEmail(app, id)).toEqual(sent); // the late sender records nothing
});

/** Starts a server that records, for each login, whether it used TLS, and the password. */
async function startLoginServer(options: SMTPServerOptions) {
  const logins: string[] = [];
  const server = await startServer({
    allowInsecureAuth: true,
    onAuth: ({ username, password }, { secure }, callback) => {
      logins.push(`${secure} ${password}`);
      callback(null, { user: username });
    },
    ...options,
  });
  // 0.0.0.0 leads to this host but is not a loopback address, so it stands for a remote server
  const urlOf = (host = '0.0.0.0') => `smtp://tapes:s3cret-word@${host}:${server.port}`;
  return { server, logins, urlOf };
}

test.each([
  ['without TLS', { disabledCommands: ['STARTTLS'] }, 'does not send the password'],
  ['without TLS and EHLO', { disabledCommands: ['STARTTLS', 'EHLO'] }, 'does not send the password'],
  ['whose certificate the host does not trust', { disabledCommands: [] }, 'certificate'],
])(
  'a remote server %s gets no password: the email waits, and the reason is recorded',
  async (_which, options, reason) => {
    const { server, logins, urlOf } = await startLoginServer(options);
    const id = await askForMail(app, 'remote');
    await sendDue(app, urlOf());
    expect(await readEmail(app, id)).toMatchObject({ state: 'PENDING', last_error: expect.stringContaining(reason) });
    expect([logins, server.mails]).toEqual([[], []]);
    clock.advance(3600);
    await sendDue(app, `smtp://0.0.0.0:${server.port}`);
    expect(await readEmail(app, id)).toMatchObject({ state: 'SENT' });
  },
);

test.each([
  ['127.0.0.1', { disabledCommands: [] }, 'true s3cret-word'],
  ['localhost', { disabledCommands: ['STARTTLS'] }, 'false s3cret-word'],
])('a server at %s gets the password, with a certificate of its own or without TLS', async (host, options, login) => {
  const { server, logins, urlOf } = await startLoginServer(options);
  await askForMail(app, 'local');
  await sendDue(app, urlOf(host));
  expect([logins, server.mails.length]).toEqual([[login], 1]);
});

const openssl = findProgram('openssl');
if (!openssl) console.warn('openssl is missing: the test of a trusted certificate is skipped');

test.runIf(openssl)('a remote server whose certificate the host trusts gets the password over TLS', async () => {
  const dir = makeTempDir();
  const [key, cert] = [path.join(dir, 'key.pem'), path.join(dir, 'cert.pem')];
  const kind = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=tapes'];
  const files = ['-keyout', key, '-out', cert, '-addext', 'subjectAltName=IP:0.0.0.0'];
  execFileSync('openssl', [...kind, ...files], { stdio: 'ignore' });
  const tls = { disabledCommands: [], key: readFileSync(key), cert: readFileSync(cert) };
  const { server, logins, urlOf } = await startLoginServer(tls);
  const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, LOG_LEVEL: 'warn', NODE_EXTRA_CA_CERTS: cert };
  const working = startCli(['work'], { env: { ...env, SMTP_URL: urlOf() } });
  const id = await askForMail(app, 'trusted');
  // due by the real clock of the process as well
  await app.ctx.db.pool.query(`UPDATE notification SET next_try_at = '2000-01-01'`);
  await waitForEmail(id, isSent);
  expect([logins, server.mails.length]).toEqual([['true s3cret-word'], 1]);
  expect((await stop(working)).stderr).toBe('');
});
