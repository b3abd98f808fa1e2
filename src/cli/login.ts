/** `login` and `logout`: the token that a user's commands show to a server. */
import { buffer as readAll } from 'node:stream/consumers';
import type { Command } from 'commander';
import { isLoopback } from '../core/address-ranges.js';
import { Caller } from '../generated/command-operations.js';
import { askAs } from './connection/client.js';
import { changeKept, type Kept, keep, readKept } from './connection/kept-tokens.js';
import { readUrl } from './connection/where.js';
import { checkListener } from './listener.js';
import { CommandError, InterruptedError, NotKnownError, UsageError } from './terminal/failure.js';
import { environment, onInterrupt, stderr, stdin } from './terminal/io.js';
import { noteLine, printLine } from './terminal/output.js';

export function register(program: Command): void {
  program
    .command('login')
    .option('--token', 'read an existing token from the terminal or standard input')
    .option('--device', "log in at the server's identity provider with any browser")
    .option('--audience <name>', 'accept this audience of the token, if it is not the server')
    .option('--issuer <url>', 'log in at this identity provider (default: the first available one)')
    .addHelpText('after', LOGIN_HELP)
    .action((options) => login(readUrl(), options));
  program.command('logout').action(() => logout(readUrl()));
}

const LOGIN_HELP = `
TAPEGATE_URL names the server. In a terminal, the command logs in at the identity provider that the server names. If the server
names none, it asks for a token. "tapegate login < ann.token" reads the token from standard input. The token is stored in
~/.config/tapegate/tokens.json (or below XDG_CONFIG_HOME), which only you can read. Commands renew a provider's token if the
provider allows it.`;

interface LoginOptions {
  token?: boolean;
  device?: boolean;
  audience?: string;
  issuer?: string;
}

async function login(url: string, options: LoginOptions): Promise<void> {
  const isDevice = options.device || options.audience !== undefined || options.issuer !== undefined;
  if (options.token && isDevice) throw new UsageError('give --token, or --device, --audience and --issuer');
  const mayBeDevice = isDevice || (stdin().isTTY && !options.token);
  const offer = mayBeDevice ? await findOffer(url, options) : undefined;
  if (offer) return await loginByDevice(url, offer);
  const token = await readToken(url);
  await checkToken(url, token);
  await tellKept(url, { token });
}

async function checkToken(url: string, token: string): Promise<void> {
  await checkListener(url, environment());
  // a token that is not known there is told now, and not by the next command
  await askAs({ url, headers: { Authorization: `Bearer ${token}` } }, Caller).catch((error) => {
    throw error instanceof NotKnownError ? new CommandError(error.reason) : error;
  });
}

async function tellKept(url: string, kept: Kept): Promise<void> {
  printLine(`the token for ${url} is kept in ${await keep(url, kept, environment())}`);
}

type Offer = import('./connection/issuer-login.js').DeviceLogin;

/** @throws CommandError where it was asked for, and there is none */
async function findOffer(url: string, options: LoginOptions): Promise<Offer | undefined> {
  const { device, audience, issuer } = options;
  const { findDeviceLogin } = await import('./connection/issuer-login.js');
  const offer = await findDeviceLogin(url, options);
  if (offer || !(device || audience !== undefined || issuer !== undefined)) return offer;
  throw new CommandError(
    `${url} names no identity provider that is known to let a command line log in: over https, or on this host, with TAPEGATE_OIDC_CLIENT_ID`,
  );
}

/** Whoever ends it has nothing kept, and the provider takes back what it may have given. */
async function loginByDevice(url: string, offer: Offer): Promise<void> {
  const { logInByDevice } = await import('./connection/issuer-login.js');
  const end = new AbortController();
  onInterrupt(() => end.abort(), ['SIGINT', 'SIGTERM', 'SIGHUP']);
  let given: Kept | undefined;
  try {
    given = await logInByDevice(offer, end.signal);
    await checkToken(url, given.token);
    end.signal.throwIfAborted();
  } catch (error) {
    if (given) await offer.client.revoke(given.login?.refreshToken ?? given.token).catch(() => {}); // told below
    throw end.signal.aborted ? new InterruptedError('the login was given up, and nothing is kept') : error;
  }
  await tellKept(url, given);
  if (given.login?.refreshToken === undefined) {
    noteLine(`${offer.client.issuer} does not renew it: log in again when it has ended`);
  }
}

async function logout(url: string): Promise<void> {
  const known = readKept(url, environment());
  if (!known) return printLine(`no token was kept for ${url}`);
  let problem: string | undefined;
  await changeKept(url, environment(), async (kept) => {
    problem = await revoke(kept);
    return undefined;
  });
  printLine(`no token is kept for ${url} any more`);
  if (problem !== undefined) noteLine(`it may be good until it ends: ${problem}`);
}

/** @returns why a provider has not taken its token back */
async function revoke(kept: Kept | undefined): Promise<string | undefined> {
  if (!kept?.login) return undefined;
  const { IssuerClient } = await import('./connection/issuer-login.js');
  try {
    const client = await IssuerClient.open(kept.login.issuer, kept.login);
    await client.revoke(kept.login.refreshToken ?? kept.token);
    return undefined;
  } catch (error) {
    if (error instanceof CommandError) return error.message;
    throw error;
  }
}

/** From the terminal, without showing it; else all of standard input. @throws CommandError */
async function readToken(url: string): Promise<string> {
  const { protocol, hostname } = new URL(url);
  if (protocol === 'http:' && !isLoopback(hostname.replace(/^\[|\]$/g, ''))) {
    noteLine(`${url} is not encrypted: whoever is on the way reads the token`);
  }
  const text = stdin().isTTY ? await readHidden('token: ') : (await readAll(stdin())).toString('utf8');
  const token = text.trim();
  if (/^[\x21-\x7e]{1,16000}$/.test(token)) return token;
  throw new CommandError(token === '' ? 'no token was given' : 'that is no token: one is a single word');
}

/** A line from the terminal, which shows nothing of it. */
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
