/**
 * The tokens that a user keeps for servers, by URL: `tapegate/tokens.json` in XDG_CONFIG_HOME (default `~/.config`),
 * readable only by the user.
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
  /** Milliseconds since 1970 by this host's clock; unset if neither the provider nor the token says it. */
  expiresAt?: number | undefined;
  /** Milliseconds from its issue to its end. */
  lifeMs?: number | undefined;
}

/** A token is renewed this long before its end, or halfway if its lifetime is less than twice that. */
const RENEW_MS = 60_000;

export function isDue({ login }: Kept): boolean {
  if (login?.expiresAt === undefined) return false;
  const { expiresAt, lifeMs = Number.POSITIVE_INFINITY } = login;
  return Date.now() >= expiresAt - Math.min(RENEW_MS, lifeMs / 2);
}

type AllKept = Record<string, Kept>;

export function keptTokensFile(env: Environment): string {
  return path.join(readConfigDir(env, homedir()), 'tapegate', 'tokens.json');
}

/** @param url of the server @throws CommandError if others may read or write the file, or it is damaged */
export function readKept(url: string, env: Environment): Kept | undefined {
  return readAll(keptTokensFile(env))[keyOf(url)];
}

/** Replaces the server's token. @returns the file @throws CommandError */
export async function keep(url: string, kept: Kept, env: Environment): Promise<string> {
  await changeKept(url, env, async () => kept);
  return keptTokensFile(env);
}

/**
 * Changes a server's token, one process at a time.
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
  const next = await lock(file);
  try {
    const { [keyOf(url)]: known, ...others } = readAll(file);
    const kept = await change(known);
    if (kept === known) return kept;
    await writeNext(next, { ...others, ...(kept && { [keyOf(url)]: kept }) });
    await rename(next, file).catch((error) => {
      throw codeOf(error) === 'ENOENT' ? new CommandError(LOST) : error;
    });
    const handle = await open(folder);
    await handle.sync().finally(() => handle.close());
    return kept;
  } finally {
    await rm(next, { force: true });
    await rmdir(path.dirname(next)).catch(() => {}); // another process has the lock already
  }
}

const LOST = 'another command has taken over the change of the kept tokens, which took too long: log in again';

/** @throws CommandError if another process has taken the lock */
async function writeNext(next: string, all: AllKept): Promise<void> {
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

function readAll(file: string): AllKept {
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
      throw new CommandError(`${file} must be yours, and for nobody else to read: chmod 600, and make new tokens`);
    }
    return parseKept(file, readFileSync(fd, 'utf8'));
  } finally {
    closeSync(fd);
  }
}

/** Does not show the contents if they are damaged. */
function parseKept(file: string, text: string): AllKept {
  try {
    return JSON.parse(text);
  } catch {
    throw new CommandError(`${file} is damaged: remove it, and log in again`);
  }
}

/** A change takes half of this time at most. */
const STALE_MS = 60_000;

/**
 * Waits for the lock of a file, and takes it. The lock is a directory with one file, which names its holder and becomes
 * the next version. A directory with a file takes the place of no other that has one, so that one process gets the
 * lock. Its file has a name that no other will have: to remove that of a killed process takes the lock from no other.
 * @returns the file in the lock, which is gone if another process has taken the lock for stale
 */
async function lock(file: string): Promise<string> {
  const place = `${file}.lock.d`; // older commands may have left a file of the name without `.d`
  const own = `${process.pid}.${randomUUID()}.${readPidSpace()}`;
  let seen = { holder: '', since: 0 };
  for (;;) {
    const [holder] = await readdir(place).catch(() => []);
    if (holder === undefined) {
      if (await takeFree(place, own)) return path.join(place, own);
      continue;
    }
    if (holder !== seen.holder) seen = { holder, since: performance.now() };
    // nothing tells whether a process of another host or container lives
    const isStale = hasEnded(holder) || performance.now() - seen.since > STALE_MS;
    if (isStale) await rm(path.join(place, holder), { force: true });
    else await sleep(20 + Math.random() * 80);
  }
}

async function takeFree(place: string, own: string): Promise<boolean> {
  const made = await mkdtemp(`${place}-`);
  try {
    const handle = await open(path.join(made, own), 'wx', 0o600);
    await handle.close();
    await rename(made, place);
    return true;
  } catch (error) {
    await rm(made, { recursive: true, force: true });
    if (['ENOTEMPTY', 'EEXIST'].includes(codeOf(error) ?? '')) return false;
    throw error;
  }
}

/** Returns a name for all processes that this one can look up by their id: those of its host and PID namespace. */
function readPidSpace(): string {
  try {
    return `${readlinkSync('/proc/self/ns/pid').replace(/\D/g, '')}.${hostname()}`;
  } catch {
    return `.${hostname()}`; // no Linux
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
