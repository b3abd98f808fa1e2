/** A password of SMTP_URL is for the mail server alone: it goes over TLS, or stays on this host. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { SMTPServerOptions } from 'smtp-server';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { sendMail } from '../../src/engine/notify.js';
import { createMailTransport } from '../../src/mail.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { startMailServer } from '../support/mail-server.js';
import { cleanUp, startCli, stop } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { findProgram } from '../support/run-example.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const closers: (() => Promise<void>)[] = [];

beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

/** What the server was told, in the clear or not: `true password` over TLS. */
interface Heard {
  passwords: string[];
  mails: number;
  port: number;
}

async function startServer(options: SMTPServerOptions): Promise<() => Heard> {
  const passwords: string[] = [];
  const server = await startMailServer(0, {
    allowInsecureAuth: true,
    onAuth: ({ username, password }, { secure }, callback) => {
      passwords.push(`${secure} ${password}`);
      callback(null, { user: username });
    },
    ...options,
  });
  closers.push(() => server.close());
  return () => ({ passwords, mails: server.mails.length, port: server.port });
}

/** 0.0.0.0 is this host, too, but nothing says so: it stands for a server that is elsewhere. */
const urlOf = (heard: () => Heard, host = '0.0.0.0') => `smtp://tapes:s3cret-word@${host}:${heard().port}`;

async function askForMail(name: string): Promise<number> {
  const fields = { files: [`/${name}`], notify_on_last_file: `${name}@example.org`, retention: '2099-01-01' };
  return await makeRequest(app, { quota: 'alice', ...fields });
}

async function readLetter(requestId: number): Promise<{ state: string; last_error: string | null }> {
  const { rows } = await app.ctx.db.pool.query('SELECT * FROM notification WHERE request_id = $1', [requestId]);
  return rows[0] as { state: string; last_error: string | null };
}

async function send(smtpUrl: string, requestId: number) {
  const transport = await createMailTransport(smtpUrl);
  const never = new AbortController().signal;
  await app.ctx.db.pool.query('UPDATE notification SET next_try_at = created_at WHERE request_id = $1', [requestId]);
  await sendMail(app.ctx, transport, { stop: never, abort: never });
  transport.close();
  return await readLetter(requestId);
}

test('a server without TLS gets no password, mail waits and says why, and goes out without one', async () => {
  const heard = await startServer({ disabledCommands: ['STARTTLS'] });
  const id = await askForMail('clear');
  const waiting = await send(urlOf(heard), id);
  expect(waiting).toMatchObject({ state: 'PENDING', last_error: expect.stringContaining('gets no password') });
  expect(heard()).toMatchObject({ passwords: [], mails: 0 });
  expect(await send(`smtp://0.0.0.0:${heard().port}`, id)).toMatchObject({ state: 'SENT' });
});

test('a server that refuses to greet as one with TLS does gets no password', async () => {
  const heard = await startServer({ disabledCommands: ['STARTTLS', 'EHLO'] });
  const id = await askForMail('old');
  const waiting = await send(urlOf(heard), id);
  expect(waiting).toMatchObject({ state: 'PENDING', last_error: expect.stringContaining('gets no password') });
  expect(heard()).toMatchObject({ passwords: [], mails: 0 });
  await send(`smtp://0.0.0.0:${heard().port}`, id);
});

test('a certificate that nobody vouches for gets no password, and mail waits', async () => {
  const heard = await startServer({ disabledCommands: [] });
  const id = await askForMail('self');
  const waiting = await send(urlOf(heard), id);
  expect(waiting).toMatchObject({ state: 'PENDING', last_error: expect.stringContaining('certificate') });
  expect(heard()).toMatchObject({ passwords: [], mails: 0 });
  expect(await send(urlOf(heard, '127.0.0.1'), id)).toMatchObject({ state: 'SENT' });
  expect(heard().passwords).toEqual(['true s3cret-word']);
});

test('a server on this host gets its password without TLS as well', async () => {
  const heard = await startServer({ disabledCommands: ['STARTTLS'] });
  const id = await askForMail('here');
  expect(await send(urlOf(heard, 'localhost'), id)).toMatchObject({ state: 'SENT' });
  expect(heard().passwords).toEqual(['false s3cret-word']);
});

const openssl = findProgram('openssl');
if (!openssl) console.warn('there is no openssl here: a certificate of the house is not tried');

test.runIf(openssl)('a server whose certificate the host trusts gets the password over TLS', async () => {
  const dir = makeTempDir();
  const [key, cert] = [path.join(dir, 'key.pem'), path.join(dir, 'cert.pem')];
  const kind = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=tapes'];
  const files = ['-keyout', key, '-out', cert, '-addext', 'subjectAltName=IP:0.0.0.0'];
  execFileSync('openssl', [...kind, ...files], { stdio: 'ignore' });
  const heard = await startServer({ disabledCommands: [], key: readFileSync(key), cert: readFileSync(cert) });
  const env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, LOG_LEVEL: 'warn', NODE_EXTRA_CA_CERTS: cert };
  const engine = { TAPE_BACKEND: 'memory', SMTP_URL: urlOf(heard) }; // with that library it is one process
  const working = startCli(['work'], { env: { ...env, ...engine } });
  const id = await askForMail('trusted');
  await waitFor('the letter to be sent', async () => (await readLetter(id)).state === 'SENT');
  expect(heard()).toMatchObject({ passwords: ['true s3cret-word'], mails: 1 });
  expect((await stop(working)).stderr).toBe('');
});
