/** Commands that store and remove the token that other commands send to a server. */
import { buffer as readAll } from 'node:stream/consumers';
import type { Command } from 'commander';
import { isLoopback } from '../core/net/address-ranges.js';
import { CallerDocument } from '../generated/operations.js';
import { askAs } from './connection/gateway-client.js';
import { checkListener } from './connection/listener.js';
import { changeToken, readStoredToken, type StoredToken, storeToken } from './connection/stored-tokens.js';
import { readUrl } from './connection/where.js';
import { CommandError, InterruptedError, UnauthenticatedError, UsageError } from './terminal/failure.js';
import { environment, onInterrupt, stderr, stdin } from './terminal/io.js';
import { printLine, printToStderr } from './terminal/output.js';

export function register(program: Command): void {
  program
    .command('login')
    .option('--token', 'read an existing token from the terminal or standard input')
    .option('--device', "log in at the server's identity provider, with a browser on any device")
    .option('--audience <name>', 'accept a token whose audience is <name>, even if <name> does not match TAPEGATE_URL')
    .option('--issuer <url>', 'log in at this identity provider (default: the first available one)')
    .addHelpText('after', LOGIN_HELP)
    .action((options) => login(readUrl(), options));
  program.command('logout').action(() => logout(readUrl()));
}

const LOGIN_HELP = `
TAPEGATE_URL is the URL of the server. In a terminal, the command logs in at the
identity provider that the server names. If the server does not name one, the
command asks for a token. "tapegate login < ann.token" reads the token from
standard input. The command stores the token in tapegate/tokens.json below
XDG_CONFIG_HOME (default: ~/.config). Only you can read this file. Later
commands renew a token from an identity provider if the provider supports
renewal.`;

interface LoginOptions {
  token?: boolean;
  device?: boolean;
  audience?: string;
  issuer?: string;
}

async function login(url: string, options: LoginOptions): Promise<void> {
  const isDevice = options.device || options.audience !== undefined || options.issuer !== undefined;
  if (options.token && isDevice) throw new UsageError('--token cannot be used with --device, --audience or --issuer');
  const mayBeDevice = isDevice || (stdin().isTTY && !options.token);
  const deviceLogin = mayBeDevice ? await findLogin(url, options) : undefined;
  if (deviceLogin) return await loginByDevice(url, deviceLogin);
  const token = await readToken(url);
  await checkToken(url, token);
  await store(url, { token });
}

async function checkToken(url: string, token: string): Promise<void> {
  await checkListener(url, environment());
  const { caller } = await askAs({ url, headers: { Authorization: `Bearer ${token}` } }, CallerDocument).catch(
    (error) => {
      throw error instanceof UnauthenticatedError ? new CommandError(error.reason) : error;
    },
  );
  // a gateway without authentication ignores an invalid token instead of rejecting it
  if (caller.authentication === 'OPEN') throw new CommandError('this token is not valid');
}

async function store(url: string, token: StoredToken): Promise<void> {
  printLine(`the token for ${url} is stored in ${await storeToken(url, token, environment())}`);
}

type DeviceLogin = import('./connection/issuer-login.js').DeviceLogin;

/** @throws CommandError if an option requests a device login but the gateway does not offer one */
async function findLogin(url: string, options: LoginOptions): Promise<DeviceLogin | undefined> {
  const { device, audience, issuer } = options;
  const { findDeviceLogin } = await import('./connection/issuer-login.js');
  const deviceLogin = await findDeviceLogin(url, options);
  if (deviceLogin || !(device || audience !== undefined || issuer !== undefined)) return deviceLogin;
  throw new CommandError(
    `${url} does not offer device login: set TAPEGATE_OIDC_CLIENT_ID on the gateway, and use https if the gateway runs on another host`,
  );
}

/**
 * Logs in with a code that the user enters in a browser. If the user interrupts the command, asks the provider to
 * revoke the token.
 */
async function loginByDevice(url: string, deviceLogin: DeviceLogin): Promise<void> {
  const { logInByDevice } = await import('./connection/issuer-login.js');
  const end = new AbortController();
  onInterrupt(() => end.abort(), ['SIGINT', 'SIGTERM', 'SIGHUP']);
  let given: StoredToken | undefined;
  try {
    given = await logInByDevice(deviceLogin, end.signal);
    await checkToken(url, given.token);
    end.signal.throwIfAborted();
  } catch (error) {
    // ignore a failed revocation, because the command must report the original error, which is thrown below
    if (given) await deviceLogin.client.revoke(given.login?.refreshToken ?? given.token).catch(() => {});
    throw end.signal.aborted ? new InterruptedError('login interrupted; no token was stored') : error;
  }
  await store(url, given);
  if (given.login?.refreshToken === undefined) {
    printToStderr(`${deviceLogin.client.issuer} does not renew the token: log in again when it expires`);
  }
}

async function logout(url: string): Promise<void> {
  const known = readStoredToken(url, environment());
  if (!known) return printLine(`no token is stored for ${url}`);
  let problem: string | undefined;
  await changeToken(url, environment(), async (token) => {
    problem = await revoke(token);
    return undefined;
  });
  printLine(`the stored token for ${url} is removed`);
  if (problem !== undefined)
    printToStderr(`the token was not revoked, and may stay valid until it expires: ${problem}`);
}

/**
 * @returns why the identity provider has not revoked the token; undefined on success, or if no provider issued the
 * token
 */
async function revoke(token: StoredToken | undefined): Promise<string | undefined> {
  if (!token?.login) return undefined;
  const { IssuerClient } = await import('./connection/issuer-login.js');
  try {
    const client = await IssuerClient.open(token.login.issuer, token.login);
    await client.revoke(token.login.refreshToken ?? token.token);
    return undefined;
  } catch (error) {
    if (error instanceof CommandError) return error.message;
    throw error;
  }
}

/**
 * Reads a token from standard input, without showing the token in a terminal.
 * @throws CommandError
 */
async function readToken(url: string): Promise<string> {
  const { protocol, hostname } = new URL(url);
  if (protocol === 'http:' && !isLoopback(hostname.replace(/^\[|\]$/g, ''))) {
    printToStderr(`the connection to ${url} is not encrypted: others on the network can read the token`);
  }
  const text = stdin().isTTY ? await readHidden('token: ') : (await readAll(stdin())).toString('utf8');
  const token = text.trim();
  if (/^[\x21-\x7e]{1,16000}$/.test(token)) return token;
  throw new CommandError(token === '' ? 'no token was given' : 'the input is not a token: expected a single word');
}

async function readHidden(prompt: string): Promise<string> {
  const { createInterface } = await import('node:readline/promises');
  const { Writable } = await import('node:stream');
  stderr().write(prompt);
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({ input: stdin(), output: nowhere, terminal: true });
  const end = new AbortController();
  terminal.on('SIGINT', () => end.abort());
  terminal.on('close', () => end.abort());
  try {
    return await terminal.question('', { signal: end.signal });
  } catch {
    throw new CommandError('no token was given');
  } finally {
    terminal.close();
    stderr().write('\n');
  }
}
