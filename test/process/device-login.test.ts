/** `login` at an identity provider, and the renewal of its tokens by commands. */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { changeToken } from '../../src/cli/connection/stored-tokens.js';
import { readConfig } from '../../src/config/config.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import {
  AUDIENCE,
  DEVICE_CLIENT,
  type IdentityProvider,
  logInAt,
  startIdentityProvider,
} from '../support/identity-provider.js';
import {
  cleanUp,
  cliFile,
  makeDataDir,
  type Result,
  type RunningCommand,
  runCli,
  startCli,
  startCommand,
  startProcess,
} from '../support/process.js';
import { findProgram } from '../support/run-example.js';
import { waitFor } from '../support/wait.js';

let provider: IdentityProvider;
let app: TestApp;
let home: string;
let file: string;

const accessOf = (settings: Record<string, string>) => readConfig(settings).access;

const settings = () => ({
  TAPEGATE_AUTH: 'token,oidc',
  TAPEGATE_OIDC_ISSUER: provider.url,
  TAPEGATE_OIDC_AUDIENCE: AUDIENCE,
  TAPEGATE_OIDC_CLIENT_ID: DEVICE_CLIENT,
});

beforeAll(async () => {
  provider = await startIdentityProvider();
  app = await startApp({ config: { access: accessOf(settings()) } });
  await setQuota(app.ctx, { user: 'alice', size: 1000n });
});
beforeEach(() => {
  home = makeDataDir();
  file = path.join(home, '.config/tapegate/tokens.json');
});
afterEach(() => {
  provider.isAway = false;
  provider.instead = undefined;
  provider.lifeSeconds = 600;
});
afterAll(async () => {
  await cleanUp();
  await app.close();
  await provider.close();
});

const env = (url = app.url) => ({ TAPEGATE_URL: url, HOME: home, DATA_DIR: path.join(home, 'none') });
const run = (...args: string[]): Promise<Result> => runCli(args, { env: env() });
const refused = (code: number, message: string) => ({ code, stdout: '', stderr: `tapegate: ${message}\n` });

interface Entry {
  token: string;
  login: { issuer: string; refreshToken: string; expiresAt: number };
}
const readEntry = (): Entry => JSON.parse(readFileSync(file, 'utf8'))[app.url];
function changeLogin(changes: Partial<Record<keyof Entry['login'], unknown>>): void {
  const { token, login } = readEntry();
  const entry = { token, login: { ...login, ...changes } };
  writeFileSync(file, JSON.stringify({ [app.url]: entry }), { mode: 0o600 });
}

/** Creates the lock file of another process. */
function placeLock(pid: number | undefined, namespace: string): void {
  mkdirSync(`${file}.lock.d`, { recursive: true });
  writeFileSync(path.join(`${file}.lock.d`, `${pid}.1.${namespace}.${hostname()}`), '');
}

const LOGIN = ['login', '--device'];

/** Reads the address and the code that `login` prints. */
async function readPlace(running: { stderr(): string }): Promise<{ place: string; code: string }> {
  const told = await waitFor(
    'the place',
    async () => /^or at (\S+user_code=(\S+)), which contains the code\n/m.exec(running.stderr()) ?? undefined,
  );
  return { place: told[1] ?? '', code: told[2] ?? '' };
}

/** Starts `login`, up to the point where a user must confirm. */
async function begin(): Promise<{ running: RunningCommand; place: string; code: string }> {
  const running = startCommand(LOGIN, { env: env() });
  return { running, ...(await readPlace(running)) };
}

async function logIn(user = 'alice'): Promise<Result> {
  const { running, place } = await begin();
  await logInAt(place, { user });
  return await running.ended;
}

const list = () => run('requests', '--quota', 'alice');

/** Counts calls of the token endpoint, without the first `since` calls of the provider. */
const tokensAsked = (since: number) => provider.asked.slice(since).filter((asked) => asked === '/token').length;

test('login prints where to log in, waits, and keeps a token for all commands in a private file', async () => {
  const { running, place, code } = await begin();
  expect(running.stderr()).toContain(`log in at ${provider.url}/device with the code ${code}, within 10 min\n`);
  const since = provider.asked.length;
  await waitFor('some polls', async () => tokensAsked(since) > 1);
  expect(existsSync(file)).toBe(false);
  await logInAt(place, { user: 'alice' });
  const { code: exitCode, stdout, stderr } = await running.ended;
  expect([exitCode, stdout]).toEqual([0, `the token for ${app.url} is stored in ${file}\n`]);
  const { token, login } = readEntry();
  expect([statSync(file).mode & 0o777, statSync(path.dirname(file)).mode & 0o777]).toEqual([0o600, 0o700]);
  expect(readdirSync(path.dirname(file))).toEqual(['tokens.json']);
  for (const secret of [token, login.refreshToken]) expect(stdout + stderr).not.toContain(secret);
  expect(login).toMatchObject({ issuer: provider.url, clientId: DEVICE_CLIENT, audience: AUDIENCE });
  expect(await list()).toMatchObject({ code: 0, stderr: '' });
});

test('a login that the user refuses fails and keeps nothing', async () => {
  const { running, place } = await begin();
  await logInAt(place, { user: 'alice', aborts: true });
  const { code, stderr } = await running.ended;
  expect([code, stderr]).toEqual([1, expect.stringMatching(/^tapegate: the identity provider refused the login$/m)]);
  expect(existsSync(file)).toBe(false);
});

test('Ctrl-C ends the login and leaves no file', async () => {
  const running = startCli(LOGIN, { env: env(), cwd: home });
  const { place } = await readPlace(running);
  running.child.kill('SIGINT');
  const { code, stderr } = await running.ended;
  expect([code, stderr]).toEqual([130, expect.stringContaining('login interrupted; no token was stored\n')]);
  await logInAt(place, { user: 'alice' });
  expect(existsSync(path.dirname(file))).toBe(false);
});

test('a token that the gateway refuses is revoked and not kept', async () => {
  const { running, place } = await begin();
  const { access } = app.ctx.config;
  const since = provider.asked.length;
  app.ctx.config.access = accessOf({ ...settings(), TAPEGATE_OIDC_AUDIENCE: 'https://others.example.org' });
  await logInAt(place, { user: 'alice' });
  const { code, stderr } = await running.ended;
  app.ctx.config.access = access;
  expect([code, stderr]).toEqual([1, expect.stringContaining('tapegate: the token is for another audience (aud)\n')]);
  expect([provider.asked.slice(since).includes('/token/revocation'), existsSync(file)]).toEqual([true, false]);
});

test('login fails if the gateway names no client of a provider, or has no TLS', async () => {
  const error = (url: string) =>
    `${url} does not offer device login: set TAPEGATE_OIDC_CLIENT_ID on the gateway, and use https if the gateway runs on another host`;
  const { TAPEGATE_OIDC_CLIENT_ID: _, ...without } = settings();
  const other = await startBeside(app, { config: { access: accessOf(without) } });
  expect(await runCli(LOGIN, { env: env(other.url) })).toEqual(refused(1, error(other.url)));
  await other.close();
  const plain = 'http://tapes.example.org'; // no request is sent to this address
  expect(await runCli(LOGIN, { env: env(plain) })).toEqual(refused(1, error(plain)));
  expect(await run('login', '--device', '--token')).toEqual(
    refused(2, '--token cannot be used with --device, --audience or --issuer'),
  );
});

test.runIf(findProgram('script'))('in a terminal, login goes to the provider unless --token is given', async () => {
  const inTerminal = (command: string) =>
    startProcess('script', ['-qec', `${process.execPath} ${cliFile} ${command}`, '/dev/null'], {
      env: { ...env(), PATH: process.env.PATH ?? '' },
      cwd: home,
      stdin: null,
    });
  for (const [command, says] of [
    ['login', /log in at http\S+ with the code/],
    ['login --token', /token: /],
  ] as const) {
    const running = inTerminal(command);
    await running.waitForOutput(says);
    running.child.kill('SIGKILL');
    await running.ended;
  }
});

test('of several commands one renews a token that is due, for all of them', async () => {
  await logIn();
  for (let round = 0; round < 2; round++) {
    const old = readEntry();
    changeLogin({ expiresAt: Date.now() + 30_000 });
    const since = provider.asked.length;
    const ends = await Promise.all([list(), list(), list()]);
    expect(ends.map(({ code, stderr }) => [code, stderr])).toEqual([0, 1, 2].map(() => [0, '']));
    const { token, login } = readEntry();
    expect(tokensAsked(since)).toBe(1);
    expect(token).not.toBe(old.token);
    expect(login.refreshToken).not.toBe(old.login.refreshToken);
    expect(login.expiresAt).toBeGreaterThan(Date.now() + 60_000);
  }
  expect(readdirSync(path.dirname(file))).toEqual(['tokens.json']);
});

test('a valid token is used while the provider is down; an expired one needs the provider or another login', async () => {
  await logIn();
  changeLogin({ expiresAt: Date.now() + 30_000 });
  provider.isAway = true;
  expect(await list()).toMatchObject({ code: 0, stderr: '' });
  changeLogin({ expiresAt: 0 });
  expect(await list()).toEqual(
    refused(4, `the token for ${app.url} cannot be renewed: ${provider.url} responds with status 503`),
  );
  provider.isAway = false;
  expect((await list()).code).toBe(0);
  changeLogin({ expiresAt: 0, refreshToken: 'spent' });
  const ended = `the login for ${app.url} at ${provider.url} has expired: run "tapegate login"`;
  expect(await list()).toEqual(refused(1, ended));
  changeLogin({ expiresAt: 0, refreshToken: undefined });
  expect(await list()).toEqual(refused(1, ended));
  expect((await logIn()).code).toBe(0);
});

test('a token of 40 s is renewed in its second half, and one without a stated lifetime before its own end', async () => {
  provider.lifeSeconds = 40;
  await logIn();
  const since = provider.asked.length;
  expect((await list()).code).toBe(0);
  expect(tokensAsked(since)).toBe(0);
  changeLogin({ expiresAt: Date.now() + 15_000 });
  expect((await list()).code).toBe(0);
  expect(tokensAsked(since)).toBe(1);

  const exp = Math.floor(Date.now() / 1000) + 600;
  const body = { access_token: await provider.sign({ exp }), token_type: 'Bearer' };
  provider.instead = async (asked) => (asked === '/token' ? { status: 200, body } : undefined);
  expect((await startCommand(LOGIN, { env: env() }).ended).code).toBe(0);
  expect(Math.abs(readEntry().login.expiresAt - exp * 1000)).toBeLessThan(10_000);
});

test('the lock of a killed process blocks no renewal, and one of several waiting commands takes it', async () => {
  await logIn();
  changeLogin({ expiresAt: 0 });
  const killed = startProcess('sleep', ['60']);
  writeFileSync(`${file}.lock`, '');
  placeLock(killed.pid, readlinkSync('/proc/self/ns/pid').replace(/\D/g, ''));
  const since = provider.asked.length;
  const lists = [list(), list(), list()];
  killed.child.kill('SIGKILL');
  expect((await Promise.all(lists)).map(({ code, stderr }) => [code, stderr])).toEqual([0, 1, 2].map(() => [0, '']));
  expect(tokensAsked(since)).toBe(1);
  expect(readdirSync(path.dirname(file))).toEqual(['tokens.json', 'tokens.json.lock']);
});

test('a process of another container holds its lock for a minute', async () => {
  placeLock(2 ** 22 + 1, '1');
  const elapsed = vi.spyOn(performance, 'now').mockReturnValue(0);
  let isDone = false;
  const changed = changeToken(app.url, env(), async () => ({ token: 'x' })).finally(() => {
    isDone = true;
  });
  await waitFor('it to look again', async () => isDone || elapsed.mock.calls.length > 2);
  expect(isDone).toBe(false);
  elapsed.mockReturnValue(60_001);
  await changed;
  elapsed.mockRestore();
});

test('a command whose lock was taken from it keeps nothing', async () => {
  await logIn();
  const before = readFileSync(file, 'utf8');
  const changed = changeToken(app.url, env(), async () => {
    rmSync(`${file}.lock.d`, { recursive: true });
    return { token: 'late' };
  });
  await expect(changed).rejects.toThrow('the stored tokens were not changed');
  expect(readFileSync(file, 'utf8')).toBe(before);
});

test('logout revokes the token at the provider', async () => {
  await logIn();
  const { login } = readEntry();
  expect(await run('logout')).toEqual({ code: 0, stdout: `the stored token for ${app.url} is removed\n`, stderr: '' });
  const body = new URLSearchParams({
    grant_type: 'refresh_token',
    refresh_token: login.refreshToken,
    client_id: DEVICE_CLIENT,
  });
  const answer = await fetch(`${provider.url}/token`, { method: 'POST', body });
  expect([answer.status, await answer.json()]).toEqual([400, expect.objectContaining({ error: 'invalid_grant' })]);
  await logIn();
  provider.isAway = true;
  expect(await run('logout')).toEqual({
    code: 0,
    stdout: `the stored token for ${app.url} is removed\n`,
    stderr: `the token was not revoked, and may stay valid until it expires: ${provider.url} responds with status 503\n`,
  });
  expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual({});
});
