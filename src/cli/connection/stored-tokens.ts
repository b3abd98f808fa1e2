/**
 * Stores a user's tokens by server URL, in `tapegate/tokens.json` in XDG_CONFIG_HOME (default `~/.config`). Only the
 * user can read the file.
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
  /** The login at an identity provider that created the token; unset if no identity provider issued the token. */
  login?: Login;
}

export interface Login {
  issuer: string;
  clientId: string;
  audience: string;
  /** The refresh token. Unset if the user must log in again to get a new token. */
  refreshToken?: string | undefined;
  /** When the token expires, in milliseconds since 1970 by this host's clock; unset if unknown. */
  expiresAt?: number | undefined;
  /** Lifetime of the token in milliseconds, from when the provider issued the token. */
  lifeMs?: number | undefined;
}

/**
 * Number of milliseconds before a token's expiry at which commands renew the token. A token with a lifetime below two
 * minutes is renewed after half its lifetime.
 */
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

/** @throws CommandError if the token file is damaged, or other users can access the file */
export function readStoredToken(url: string, env: Environment): StoredToken | undefined {
  return readAll(storedTokensFile(env))[keyOf(url)];
}

/**
 * Stores a server's token, and returns the token file's path.
 * @throws CommandError
 */
export async function storeToken(url: string, token: StoredToken, env: Environment): Promise<string> {
  await changeToken(url, env, async () => token);
  return storedTokensFile(env);
}

/**
 * Changes a server's token under a lock, so that other processes cannot change tokens at the same time.
 * @param change returns the new token, undefined to remove the token, or the token that it received to leave the file
 * unchanged
 * @returns the new token
 * @throws CommandError; errors from `change`, which leave the file unchanged
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
    // ignore a failed removal of the lock directory, because another process might have already taken the lock
    await rmdir(path.dirname(next)).catch(() => {});
  }
}

const LOST =
  'the stored tokens were not changed, because the lock of this command expired and another command took the lock; log in again';

async function writeNext(next: string, all: StoredTokens): Promise<void> {
  const handle = await open(next, 'r+').catch((error) => {
    throw codeOf(error) === 'ENOENT' ? new CommandError(LOST) : error;
  });
  await handle.writeFile(`${JSON.stringify(all, null, 2)}\n`);
  await handle.sync().finally(() => handle.close());
}

/** Returns the key for a server's token: the server's URL without credentials or trailing slashes. */
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
        `${file} must belong to you, and other users must not be able to read it: run chmod 600, and replace the tokens in the file`,
      );
    }
    return parseTokens(file, readFileSync(fd, 'utf8'));
  } finally {
    closeSync(fd);
  }
}

/** Parses the token file. Error messages contain no text from the file, because the text might be a token. */
function parseTokens(file: string, text: string): StoredTokens {
  try {
    return JSON.parse(text);
  } catch {
    throw new CommandError(`${file} is damaged: remove it, and log in again`);
  }
}

/**
 * Age in milliseconds at which a lock becomes stale. The age is safe because a change of the tokens takes at most 30
 * seconds.
 */
const STALE_MS = 60_000;

/**
 * Waits for the lock on the token file, and takes the lock. The lock is a directory that contains one file. The name of
 * this lock file identifies the lock's holder. The holder writes the new tokens to the lock file, and then moves it to
 * the token file's path. Only one process gets the lock, because a rename does not replace a directory that contains a
 * file. Lock files have unique names, so that removing a stale lock never releases another process's lock.
 * @returns the path of the lock file, which no longer exists if another process considered the lock stale
 */
async function lock(file: string): Promise<string> {
  // do not name the lock directory `*.lock`, because an older version might have left a file with that name
  const directory = `${file}.lock.d`;
  const own = `${process.pid}.${randomUUID()}.${readPidSpace()}`;
  let seen = { holder: '', since: 0 };
  for (;;) {
    const [holder] = await readdir(directory).catch(() => []);
    if (holder === undefined) {
      if (await takeFree(directory, own)) return path.join(directory, own);
      continue;
    }
    if (holder !== seen.holder) seen = { holder, since: performance.now() };
    // judge a lock only by its age if the lock's holder is on another host or in another container
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

/**
 * Returns a name for the host and PID namespace of this process. Processes with the same name can check each other's
 * process ids.
 */
function readPidSpace(): string {
  try {
    return `${readlinkSync('/proc/self/ns/pid').replace(/\D/g, '')}.${hostname()}`;
  } catch {
    return `.${hostname()}`;
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
