/** `login` and `logout`: the token that a user's commands show to a server. */
import { buffer as readAll } from 'node:stream/consumers';
import type { Command } from 'commander';
import { isLoopback } from '../address-ranges.js';
import { environment } from '../config.js';
import { askAs, readUrl } from './client.js';
import { CommandError } from './failure.js';
import { forgetToken, keepToken } from './kept-tokens.js';
import { noteLine, printLine } from './output.js';

export function registerLogin(program: Command): void {
  program
    .command('login')
    .description('keep a token for the server, which all commands show to it from then on')
    .addHelpText('after', LOGIN_HELP)
    .action(() => login(readUrl()));
  program
    .command('logout')
    .description('keep the token for the server no longer; it stays good until it is revoked')
    .action(() => logout(readUrl()));
}

const LOGIN_HELP = `
TAPEGATE_URL names the server. The token is asked for, or read from standard input: "tapegate login < ann.token". It is kept
in tapegate/tokens.json of the user's own configuration (XDG_CONFIG_HOME, ~/.config), for nobody else to read.`;

async function login(url: string): Promise<void> {
  const { protocol, hostname } = new URL(url);
  if (protocol === 'http:' && !isLoopback(hostname.replace(/^\[|\]$/g, ''))) {
    noteLine(`${url} is not encrypted: whoever is on the way reads the token`);
  }
  const token = await readToken();
  // a token that is not known there is told now, and not by the next command
  await askAs({ url, headers: { Authorization: `Bearer ${token}` } }, '{ __typename }');
  printLine(`the token for ${url} is kept in ${await keepToken(url, token, environment)}`);
}

async function logout(url: string): Promise<void> {
  const wasKept = await forgetToken(url, environment);
  printLine(wasKept ? `no token is kept for ${url} any more` : `no token was kept for ${url}`);
}

/** From the terminal, without showing it; else all of standard input. @throws CommandError */
async function readToken(): Promise<string> {
  const { stdin } = process;
  const text = stdin.isTTY ? await readHidden('token: ') : (await readAll(stdin)).toString('utf8');
  const token = text.trim();
  if (/^[\x21-\x7e]{1,16000}$/.test(token)) return token;
  throw new CommandError(token === '' ? 'no token was given' : 'that is no token: one is a single word');
}

/** A line from the terminal, which shows nothing of it. */
async function readHidden(prompt: string): Promise<string> {
  const { createInterface } = await import('node:readline/promises');
  const { Writable } = await import('node:stream');
  process.stderr.write(prompt);
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({ input: process.stdin, output: nowhere, terminal: true });
  const end = new AbortController();
  terminal.on('SIGINT', () => end.abort());
  terminal.on('close', () => end.abort());
  try {
    return await terminal.question('', { signal: end.signal });
  } catch {
    throw new CommandError('no token was given');
  } finally {
    terminal.close();
    process.stderr.write('\n');
  }
}
