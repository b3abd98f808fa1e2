/** Passwords that servers reject appear in no output and in no command line of a process. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { type Embedded, startEmbedded } from '../../src/db/embedded/embedded.js';
import { bundle } from '../support/bundle.js';
import { queryOnce } from '../support/database.js';
import { addQuota } from '../support/factories.js';
import { Refusal, startMailServer } from '../support/mail-server.js';
import {
  cleanUp,
  makeDataDir,
  type Result,
  runCli,
  runProgram,
  startCli,
  startProcess,
  stop,
} from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

/** A password with characters that must be encoded in a URL and in JSON. */
const PASSWORD = 'hunter2/"@#?: correct';
const FORMS = /hunter2|correct|aHVudGVyM|dGFwZXM6aHVudGVy/;

let server: Embedded;
let databaseUrl: string;

const app = useApp({}, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  const dataDir = path.join(makeDataDir(), 'postgres');
  server = await startEmbedded({ dataDir });
  await server.ensureDatabase('tapes');
  const config = server.config('tapes');
  await queryOnce(config, `CREATE ROLE tapes LOGIN PASSWORD 'another one'`);
  const rules = path.join(dataDir, 'pg_hba.conf');
  writeFileSync(rules, `local all tapes scram-sha-256\n${readFileSync(rules, 'utf8')}`);
  await queryOnce(config, 'SELECT pg_reload_conf()');
  const login = `tapes:${encodeURIComponent(PASSWORD)}`;
  databaseUrl = `postgresql://${login}@${encodeURIComponent(String(config.host))}:${config.port}/tapes`;
});
afterAll(async () => {
  await server.close();
  await cleanUp();
});

/** Returns the command lines of all processes of this host. */
function readCommandLines(): string[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.flatMap((pid) => {
    try {
      return [readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')];
    } catch {
      return []; // the process has ended
    }
  });
}

function expectNoSecret({ stdout, stderr }: Pick<Result, 'stdout' | 'stderr'>): void {
  expect(stdout).not.toMatch(FORMS);
  expect(stderr).not.toMatch(FORMS);
}

test.each([
  ['quota list', runCli],
  ['migrate', runCli],
  ['start', runCli],
  ['work', runProgram],
])(
  '"%s" reports that the database refuses the password of DATABASE_URL, without the password',
  async (command, run) => {
    const env = { DATABASE_URL: databaseUrl, DATA_DIR: app.dataDir, LOG_LEVEL: 'trace', PORT: '0' };
    const result = await run(command.split(' '), { env });
    expect(result).toMatchObject({ code: 1, stderr: expect.stringContaining('password authentication failed') });
    expectNoSecret(result);
  },
);

test('a password that the database asks for and DATABASE_URL does not have is reported as such', async () => {
  const env = { DATABASE_URL: databaseUrl.replace(/:[^/@]*@/, '@'), DATA_DIR: app.dataDir };
  expect(await runCli(['quota', 'list'], { env })).toEqual({
    code: 1,
    stdout: '',
    stderr:
      'tapegate: the database requires a password, but the URL contains none: add the password, percent-encoded, after the user name, or set PGPASSWORD\n',
  });
});

test.each([
  '127.0.0.1:1/tapes',
  '[::1]:1/tapes',
  '%2Fnowhere/tapes',
  'no.such.host.invalid/tapes',
  '127.0.0.1:x/tapes',
])('the error of a database at %s has no password, also if the URL is malformed', async (place) => {
  for (const login of [`tapes:${encodeURIComponent(PASSWORD)}`, `tapes:12/${PASSWORD}`, `tapes:${PASSWORD}`]) {
    const env = { DATABASE_URL: `postgresql://${login}@${place}`, LOG_LEVEL: 'trace' };
    const result = await runCli(['quota', 'list'], { env });
    expect(result.code).toBeGreaterThan(0);
    expectNoSecret(result);
  }
});

test('a login that a mail server refuses and repeats is in no log, no outbox and no command line', async () => {
  const mail = await startMailServer(0, {
    authOptional: false,
    disabledCommands: ['STARTTLS'],
    allowInsecureAuth: true,
    onAuth: ({ username, password }, _session, callback) => {
      const login = Buffer.from(`\0${username}\0${password}`).toString('base64');
      callback(
        new Refusal(535, `AUTH PLAIN ${login}: ${password}, or ${encodeURIComponent(password ?? '')}, is wrong`),
      );
    },
  });
  const smtpUrl = mail.url.replace('//', `//tapes:${encodeURIComponent(PASSWORD)}@`);
  const env = {
    DATABASE_URL: app.databaseUrl,
    DATA_DIR: app.dataDir,
    SMTP_URL: smtpUrl,
    LOG_LEVEL: 'trace',
    DRIVES: '1',
  };
  const working = startCli(['work'], { env });
  const fields = { files: ['/a'], notify_on_last_file: 'a@example.org', retention: '2099-01-01' };
  await makeRequest(app, { quota: 'alice', ...fields });
  const email = await waitFor('the refusal', async () => {
    const { rows } = await app.ctx.db.pool.query('SELECT * FROM notification WHERE attempts > 0');
    return rows[0];
  });
  expect(readCommandLines().some((line) => line.includes('engine-process'))).toBe(true);
  expect(readCommandLines().filter((line) => FORMS.test(line))).toEqual([]);
  const result = await stop(working);
  await mail.close();
  expect(email.last_error).toMatch(/535 AUTH PLAIN …: …, or …, is wrong/);
  expect(result.stderr).toContain('cannot send the email');
  expectNoSecret(result);
});

test('the error of a gateway that does not answer has no credentials of TAPEGATE_URL', async () => {
  for (const login of ['tapes:hunter2', 'hunter2', encodeURIComponent(PASSWORD)]) {
    for (const command of [['requests'], ['watch', '1']]) {
      const env = { TAPEGATE_URL: `http://${login}@127.0.0.1:1`, LOG_LEVEL: 'trace' };
      const result = await runCli(command, { env });
      expect(result.code).toBeGreaterThan(0);
      expectNoSecret(result);
    }
  }
});

test('an uncaught error that ends a process is printed without secrets', async () => {
  const program = await bundle('crash');
  const result = await startProcess(process.execPath, [program], { env: { DATABASE_URL: databaseUrl } }).ended;
  expect(result).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/TypeError: postgresql:\/\/…@[\s\S]*crash\.cjs:\d/),
  });
  expectNoSecret(result);
});
