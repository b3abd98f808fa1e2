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
import { present } from './io.js';

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
 * Changes a server's token, one process at a time. Reserves disk space before it calls `change`, so that a token in
 * exchange for a spent one is not lost.
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
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  const next = await lockFile(file);
  try {
    const { [keyOf(url)]: known, ...others } = await readAll(file);
    // the exchanged token is invalid, and the next one is not stored yet
    return await holdSignals(async () => {
      const kept = await change(known);
      if (kept !== known) await next.put({ ...others, ...(kept && { [keyOf(url)]: kept }) });
      return kept;
    });
  } finally {
    await next.close();
  }
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

const ROOM_BYTES = 65_536;

/** Creates the next version of `file`, which is the lock meanwhile, and which only this user can read. */
async function lockFile(file: string): Promise<{ put(kept: AllKept): Promise<void>; close(): Promise<void> }> {
  const name = `${file}.lock`;
  const handle = await createAlone(name);
  const isOwn = async () => (await stat(name).catch(() => undefined))?.ino === (await handle.stat()).ino;
  const close = async () => {
    if (await isOwn()) await rm(name, { force: true });
    await handle.close();
  };
  try {
    const { size } = await stat(file).catch(() => ({ size: 0 }));
    await write(handle, ' '.repeat(size + ROOM_BYTES));
  } catch (error) {
    await close();
    throw error;
  }
  return {
    put: async (kept) => {
      await write(handle, `${JSON.stringify(kept, null, 2)}\n`);
      if (!(await isOwn())) throw new CommandError(`another command has removed ${name}: log in again`);
      await rename(name, file);
      const folder = await open(path.dirname(file));
      await folder.sync().finally(() => folder.close());
    },
    close,
  };
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

async function write(handle: FileHandle, text: string): Promise<void> {
  const bytes = Buffer.from(text);
  const { bytesWritten } = await handle.write(bytes, 0, bytes.length, 0);
  if (bytesWritten < bytes.length) throw new Error(`only ${bytesWritten} of ${bytes.length} bytes could be written`);
  await handle.truncate(bytes.length); // not before: the room would be gone
  await handle.sync();
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** Delays signals until short work that must not be interrupted has ended. */
async function holdSignals<T>(work: () => Promise<T>): Promise<T> {
  if (present().signal) return await work(); // the process is not the command's
  let held: NodeJS.Signals | undefined;
  const hold = (signal: NodeJS.Signals) => {
    held ??= signal;
  };
  const others = SIGNALS.map((signal) => ({
    signal,
    listeners: process.rawListeners(signal) as NodeJS.SignalsListener[],
  }));
  for (const { signal } of others) process.removeAllListeners(signal).on(signal, hold);
  try {
    return await work();
  } finally {
    for (const { signal, listeners } of others) {
      process.off(signal, hold);
      for (const listener of listeners) process.on(signal, listener);
    }
    if (held) process.kill(process.pid, held);
  }
}
