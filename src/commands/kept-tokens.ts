/**
 * The tokens that a user keeps for servers, by URL: `tapegate/tokens.json` in XDG_CONFIG_HOME (default `~/.config`),
 * readable only by the user.
 */
import { type FileHandle, mkdir, open, rename, rm, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Environment, readConfigDir } from '../environment.js';
import { codeOf } from '../errors.js';
import { CommandError } from './failure.js';

export interface Kept {
  token: string;
  /** Set if an identity provider issued the token. */
  login?: Login;
}

export interface Login {
  issuer: string;
  clientId: string;
  audience: string;
  /** Unset: a new token needs a new login. */
  refreshToken?: string | undefined;
  /** Milliseconds since 1970 by this host's clock; unset if the provider does not say. */
  renewAt?: number | undefined;
  expiresAt?: number | undefined;
}

type AllKept = Record<string, Kept>;

export function keptTokensFile(env: Environment): string {
  return path.join(readConfigDir(env, homedir()), 'tapegate', 'tokens.json');
}

/** @param url of the server @throws CommandError if others may read or write the file, or it is damaged */
export async function readKept(url: string, env: Environment): Promise<Kept | undefined> {
  return (await readAll(keptTokensFile(env)))[keyOf(url)];
}

/** Replaces the server's token. @returns the file @throws CommandError */
export async function keep(url: string, kept: Kept, env: Environment): Promise<string> {
  await changeKept(url, env, async () => kept);
  return keptTokensFile(env);
}

/**
 * Changes a server's token, one process at a time: the next version of the file is the lock meanwhile.
 * @param change returns the new value; undefined removes it, and the same object is no change
 * @returns the new value
 * @throws CommandError; errors of `change`, with nothing changed
 */
export async function changeKept(
  url: string,
  env: Environment,
  change: (kept: Kept | undefined) => Promise<Kept | undefined>,
): Promise<Kept | undefined> {
  const file = keptTokensFile(env);
  const folder = path.dirname(file);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const next = `${file}.lock`;
  const handle = await createAlone(next);
  const isOwn = async () => (await stat(next).catch(() => undefined))?.ino === (await handle.stat()).ino;
  try {
    const { [keyOf(url)]: known, ...others } = await readAll(file);
    const kept = await change(known);
    if (kept === known) return kept;
    await handle.writeFile(`${JSON.stringify({ ...others, ...(kept && { [keyOf(url)]: kept }) }, null, 2)}\n`);
    await handle.sync();
    if (!(await isOwn())) throw new CommandError(`another command has removed ${next}: log in again`);
    await rename(next, file);
    await syncFolder(folder);
    return kept;
  } finally {
    if (await isOwn()) await rm(next, { force: true });
    await handle.close();
  }
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder);
  await handle.sync().finally(() => handle.close());
}

/** Returns one key for all forms of a URL, without credentials. */
function keyOf(url: string): string {
  const { origin, pathname } = new URL(url);
  return `${origin}${pathname.replace(/\/+$/, '')}`;
}

const OTHERS = 0o077;

async function readAll(file: string): Promise<AllKept> {
  const handle = await open(file).catch((error) => {
    if (['ENOENT', 'ENOTDIR'].includes(codeOf(error) ?? '')) return undefined;
    throw error;
  });
  if (!handle) return {};
  try {
    const { uid, mode } = await handle.stat();
    if (uid !== process.getuid?.() || (mode & OTHERS) !== 0) {
      throw new CommandError(`${file} must be yours, and for nobody else to read: chmod 600, and make new tokens`);
    }
    return checkKept(file, await handle.readFile('utf8'));
  } finally {
    await handle.close();
  }
}

function checkKept(file: string, text: string): AllKept {
  try {
    const kept = JSON.parse(text) as AllKept;
    const isLogin = ({ issuer, clientId, audience, refreshToken = '' }: Login) =>
      [issuer, clientId, audience, refreshToken].every((part) => typeof part === 'string');
    const isKept = ({ token, login }: Kept) => typeof token === 'string' && (!login || isLogin(login));
    if (Object.values(kept).every(isKept)) return kept;
  } catch {
    // reported below, without the contents
  }
  throw new CommandError(`${file} is damaged: remove it, and log in again`);
}

/** A lock of this age was left by a process that was killed: a change takes half of it at most. */
const STALE_MS = 60_000;

const WAIT_MS = 90_000;

/** Creates a file once no other process has it. */
async function createAlone(name: string): Promise<FileHandle> {
  const deadline = performance.now() + WAIT_MS;
  for (;;) {
    try {
      return await open(name, 'wx', 0o600);
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error;
    }
    const known = await stat(name).catch(() => undefined); // it may just have gone
    if (known && Date.now() - known.mtimeMs > STALE_MS) await rm(name, { force: true });
    else if (performance.now() > deadline) throw new CommandError(`another command does not release ${name}`);
    else await sleep(20 + Math.random() * 80);
  }
}
