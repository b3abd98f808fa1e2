/**
 * The stored tokens of a user, by the URL of the server: `tapegate/tokens.json` in XDG_CONFIG_HOME (default `~/.config`),
 * which only the user can read.
 */
import { randomUUID } from 'node:crypto';
import { closeSync, fstatSync, openSync, readFileSync, readlinkSync } from 'node:fs';
import { mkdir, mkdtemp, open, readdir, rename, rm, rmdir } from 'node:fs/promises';
import { homedir, hostname } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Environment, readConfigDir } from '../../core/environment.js';
import { codeOf } from '../../core/errors.js';
import { CommandError } from '../terminal/failure.js';

export interface StoredToken {
  token: string;
  /** Set if an identity provider issued the token. */
  login?: Login;
}

export interface Login {
  issuer: string;
  clientId: string;
  audience: string;
  /** Unset if a new token needs a new login. */
  refreshToken?: string | undefined;
  /** Milliseconds since 1970 by this host's clock; unset if neither the provider nor the token contains it. */
  expiresAt?: number | undefined;
  /** Milliseconds from its issue to its end. */
  lifeMs?: number | undefined;
}

/** A token is renewed this long before its end, or halfway if its lifetime is less than twice that. */
const RENEW_MS = 60_000;

export function isDue({ login }: StoredToken): boolean {
  if (login?.expiresAt === undefined) return false;
  const { expiresAt, lifeMs = Number.POSITIVE_INFINITY } = login;
  return Date.now() >= expiresAt - Math.min(RENEW_MS, lifeMs / 2);
}

type StoredTokens = Record<string, StoredToken>;

export function storedTokensFile(env: Environment): string {
  return path.join(readConfigDir(env, homedir()), 'tapegate', 'tokens.json');
}

/** @param url of the server @throws CommandError if others may read or write the file, or it is damaged */
export function readStoredToken(url: string, env: Environment): StoredToken | undefined {
  return readAll(storedTokensFile(env))[keyOf(url)];
}

/** Stores a server's token. @returns the file @throws CommandError */
export async function storeToken(url: string, token: StoredToken, env: Environment): Promise<string> {
  await changeToken(url, env, async () => token);
  return storedTokensFile(env);
}

/**
 * Changes a server's token, one process at a time.
 * @param change returns the new value; undefined removes it, and the same object is no change
 * @returns the new value
 * @throws CommandError; errors of `change`, with nothing changed
 */
export async function changeToken(
  url: string,
  env: Environment,
  change: (token: StoredToken | undefined) => Promise<StoredToken | undefined>,
): Promise<StoredToken | undefined> {
  const file = storedTokensFile(env);
  const directory = path.dirname(file);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const next = await lock(file);
  try {
    const { [keyOf(url)]: known, ...others } = readAll(file);
    const token = await change(known);
    if (token === known) return token;
    await writeNext(next, { ...others, ...(token && { [keyOf(url)]: token }) });
    await rename(next, file).catch((error) => {
      throw codeOf(error) === 'ENOENT' ? new CommandError(LOST) : error;
    });
    const handle = await open(directory);
    await handle.sync().finally(() => handle.close());
    return token;
  } finally {
    await rm(next, { force: true });
    await rmdir(path.dirname(next)).catch(() => {}); // another process has the lock already
  }
}

const LOST =
  'the stored tokens were not changed: the change took too long, and another command took the lock; log in again';

/** @throws CommandError if another process has taken the lock */
async function writeNext(next: string, all: StoredTokens): Promise<void> {
  const handle = await open(next, 'r+').catch((error) => {
    throw codeOf(error) === 'ENOENT' ? new CommandError(LOST) : error;
  });
  await handle.writeFile(`${JSON.stringify(all, null, 2)}\n`);
  await handle.sync().finally(() => handle.close());
}

/** Returns one key for all forms of a URL, without credentials. */
function keyOf(url: string): string {
  const { origin, pathname } = new URL(url);
  return `${origin}${pathname.replace(/\/+$/, '')}`;
}

const OTHERS = 0o077;

function readAll(file: string): StoredTokens {
  let fd: number;
  try {
    fd = openSync(file, 'r');
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(codeOf(error) ?? '')) return {};
    throw error;
  }
  try {
    const { uid, mode } = fstatSync(fd);
    if (uid !== process.getuid?.() || (mode & OTHERS) !== 0) {
      throw new CommandError(
        `${file} must belong to you, and other users must not be able to read it: run chmod 600, and create new tokens`,
      );
    }
    return parseTokens(file, readFileSync(fd, 'utf8'));
  } finally {
    closeSync(fd);
  }
}

/** Parses the file. Its error message does not contain the damaged text, which may be a token. */
function parseTokens(file: string, text: string): StoredTokens {
  try {
    return JSON.parse(text);
  } catch {
    throw new CommandError(`${file} is damaged: remove it, and log in again`);
  }
}

/** The age at which a lock is stale. A change takes at most half of this time. */
const STALE_MS = 60_000;

/**
 * Waits for the lock of a file, and takes it. The lock is a directory with one file, which names its holder and becomes
 * the next version. A rename does not replace a directory that contains a file, so that only one process gets the lock.
 * The name of the file is unique, so that removing the file of a killed process does not release the lock of another one.
 * @returns the file in the lock, which does not exist if another process has removed a stale lock
 */
async function lock(file: string): Promise<string> {
  const directory = `${file}.lock.d`; // older versions may have left a file with the name without `.d`
  const own = `${process.pid}.${randomUUID()}.${readPidSpace()}`;
  let seen = { holder: '', since: 0 };
  for (;;) {
    const [holder] = await readdir(directory).catch(() => []);
    if (holder === undefined) {
      if (await takeFree(directory, own)) return path.join(directory, own);
      continue;
    }
    if (holder !== seen.holder) seen = { holder, since: performance.now() };
    // this process cannot check a process of another host or container
    const isStale = hasEnded(holder) || performance.now() - seen.since > STALE_MS;
    if (isStale) await rm(path.join(directory, holder), { force: true });
    else await sleep(20 + Math.random() * 80);
  }
}

async function takeFree(directory: string, own: string): Promise<boolean> {
  const made = await mkdtemp(`${directory}-`);
  try {
    const handle = await open(path.join(made, own), 'wx', 0o600);
    await handle.close();
    await rename(made, directory);
    return true;
  } catch (error) {
    await rm(made, { recursive: true, force: true });
    if (['ENOTEMPTY', 'EEXIST'].includes(codeOf(error) ?? '')) return false;
    throw error;
  }
}

/** Returns a name for all processes that this one can look up by their id: its host and PID namespace. */
function readPidSpace(): string {
  try {
    return `${readlinkSync('/proc/self/ns/pid').replace(/\D/g, '')}.${hostname()}`;
  } catch {
    return `.${hostname()}`; // the system is not Linux
  }
}

function hasEnded(holder: string): boolean {
  const [pid, , ...space] = holder.split('.');
  if (space.join('.') !== readPidSpace()) return false;
  try {
    return !process.kill(Number(pid), 0);
  } catch (error) {
    return codeOf(error) === 'ESRCH';
  }
}
