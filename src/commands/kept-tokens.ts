/**
 * The tokens that a user keeps for servers: `tapegate/tokens.json` in the user's own configuration (XDG_CONFIG_HOME, else
 * `~/.config`), by the server's URL, for nobody else to read.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, open, rename, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import path from 'node:path';
import { type Environment, readConfigDir } from '../config.js';
import { codeOf } from '../errors.js';
import { CommandError } from './failure.js';

type Kept = Record<string, { token: string }>;

export function keptTokensFile(env: Environment): string {
  return path.join(readConfigDir(env, homedir()), 'tapegate', 'tokens.json');
}

/** @param url of the server @throws CommandError where others may read or write the file, or it is damaged */
export async function readKeptToken(url: string, env: Environment): Promise<string | undefined> {
  return (await readKept(keptTokensFile(env)))[keyOf(url)]?.token;
}

/** In place of one that is kept for the server already. @returns the file @throws CommandError */
export async function keepToken(url: string, token: string, env: Environment): Promise<string> {
  const file = keptTokensFile(env);
  await writeKept(file, { ...(await readKept(file)), [keyOf(url)]: { token } });
  return file;
}

/** @returns whether there was one @throws CommandError */
export async function forgetToken(url: string, env: Environment): Promise<boolean> {
  const file = keptTokensFile(env);
  const { [keyOf(url)]: known, ...others } = await readKept(file);
  if (known) await writeKept(file, others);
  return known !== undefined;
}

/** Two ways to write a URL are one, and what it says of a user is no part of it. */
function keyOf(url: string): string {
  const { origin, pathname } = new URL(url);
  return `${origin}${pathname.replace(/\/+$/, '')}`;
}

const OTHERS = 0o077;

async function readKept(file: string): Promise<Kept> {
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

function checkKept(file: string, text: string): Kept {
  try {
    const kept = JSON.parse(text) as Kept;
    if (Object.values(kept).every(({ token }) => typeof token === 'string')) return kept;
  } catch {
    // told below, without what stands there
  }
  throw new CommandError(`${file} is damaged: remove it, and log in again`);
}

/** Whole or not at all, and never readable by others, also for a moment. */
async function writeKept(file: string, kept: Kept): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  const fresh = `${file}.${randomUUID()}`;
  try {
    await writeFile(fresh, `${JSON.stringify(kept, null, 2)}\n`, { flag: 'wx', mode: 0o600 });
    await rename(fresh, file);
  } finally {
    await rm(fresh, { force: true });
  }
}
