/** The process of the embedded server: found by its lock file, started and stopped by PostgreSQL's `pg_ctl`. */
import { execFile, execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { codeOf } from '../errors.js';
import type { ServerUser } from './binaries.js';
import { takeFileLock } from './file-lock.js';
import { readSmall } from './server-access.js';

/** Only names the socket's file. */
export const PORT = 5432;

export interface Server {
  dataDir: string;
  /** The directory of PostgreSQL's programs. */
  bin: string;
  user: ServerUser;
  settings: Record<string, string | number>;
  startTimeoutMs: number;
}

/**
 * The directory in which a program works, as that program names it. So a cluster may be where its server's user cannot search the directories
 * above, and its path may contain any character and be longer than PostgreSQL's 1,023 bytes.
 */
const HERE = process.platform === 'linux' ? '/proc/self/cwd' : '.';

const run = promisify(execFile);

/** Runs one of PostgreSQL's programs as the server's user with `folder` as its data directory. */
export async function runProgram(
  { bin, user }: Pick<Server, 'bin' | 'user'>,
  name: 'initdb' | 'pg_ctl',
  folder: string,
  args: readonly string[],
): Promise<void> {
  const env = { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' };
  await run(path.join(bin, name), ['-D', HERE, ...args], { ...user, env, cwd: folder });
}

/** @throws Error if `pg_ctl` fails or its wait takes longer than a minute */
export async function runControl(server: Server, args: readonly string[]): Promise<void> {
  await runProgram(server, 'pg_ctl', server.dataDir, args);
}

/**
 * Starts the server and waits until it accepts connections. A failure is in the server's log.
 * @param deadline of `performance.now()`
 * @returns false if another process starts it or has started it
 */
export async function startServer(server: Server, deadline: number): Promise<boolean> {
  const { dataDir } = server;
  const real = fs.realpathSync(dataDir);
  const unlock = takeFileLock({
    // the directory above belongs to the operator; the cluster's own is used if that one is read-only
    folders: [path.dirname(real), real],
    prefix: `${path.basename(real)}.start-`,
    isMeant: ({ uid }) => [0, process.geteuid?.(), fs.statSync(real).uid].includes(uid), // users who may start this server
  });
  if (!unlock) return false;
  try {
    if (findServer(dataDir)) return false;
    const log = path.join(dataDir, 'server.log');
    if (fs.lstatSync(log, { throwIfNoEntry: false })?.isFile() === false)
      throw new Error(`${log} is no plain file of its own`);
    removeStaleLocks(dataDir);
    const settings = { ...server.settings, unix_socket_directories: HERE };
    const flags = Object.entries(settings).map(([name, value]) => `-c ${quote(`${name}=${value}`)}`);
    const seconds = Math.max(1, Math.ceil((deadline - performance.now()) / 1000));
    const options = ['-t', String(seconds), '-l', 'server.log', '-o', `-p ${PORT} ${flags.join(' ')}`];
    await runControl(server, ['start', ...options]).catch(() => {}); // the log says why
    return true;
  } finally {
    unlock();
  }
}

/** For the shell of `pg_ctl`. */
const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** Stops the server and waits until it has ended. `pg_ctl stop` would also wait for a server that another process starts afterwards. */
export async function stopServer({ dataDir, startTimeoutMs }: Server): Promise<void> {
  const pid = findServer(dataDir)?.pid;
  if (pid === undefined) return;
  interrupt(pid);
  for (let waitedMs = 0; isServer(pid, dataDir) && waitedMs < startTimeoutMs; waitedMs += LOOK_MS) await sleep(LOOK_MS);
}

const LOOK_MS = 20;

/** Makes a server that waits for its clients to leave (SIGTERM) stop now: the clients are the processes that wait for it. */
export function hurryUp(dataDir: string): void {
  const found = findServer(dataDir);
  if (found?.status === 'stopping') interrupt(found.pid);
}

function interrupt(pid: number): void {
  try {
    process.kill(pid, 'SIGINT');
  } catch (error) {
    if (codeOf(error) !== 'ESRCH') throw error; // it has ended
  }
}

/** Returns the server that runs in a directory, and its status as PostgreSQL writes it: starting, ready, stopping. */
export function findServer(dataDir: string): { pid: number; status: string } | undefined {
  const lines = readSmall(path.join(dataDir, 'postmaster.pid'))?.split('\n') ?? [];
  const pid = Number(lines[0]);
  return isServer(pid, dataDir) ? { pid, status: (lines[7] ?? '').trim() } : undefined;
}

/**
 * Removes the lock files of a server that has ended if PostgreSQL would take their process for a live server: after a
 * reboot the number may be another process's, and a zombie keeps its number. The caller has the start lock.
 */
function removeStaleLocks(dataDir: string): void {
  for (const file of ['postmaster.pid', `.s.PGSQL.${PORT}.lock`].map((name) => path.join(dataDir, name))) {
    const pid = Number(readSmall(file)?.split('\n')[0]);
    if (isRunning(pid) && !isServer(pid, dataDir)) fs.rmSync(file, { force: true });
  }
}

export function isRunning(pid: number): boolean {
  try {
    return pid > 0 && process.kill(pid, 0);
  } catch (error) {
    return codeOf(error) === 'EPERM';
  }
}

/** Whether a process is the server of this directory, in which a server works. In doubt it is: two servers would be worse than none. */
function isServer(pid: number, dataDir: string): boolean {
  if (!isRunning(pid)) return false;
  try {
    if (process.platform !== 'linux') {
      return execFileSync('ps', ['-p', String(pid), '-o', 'args='], { encoding: 'utf8' }).includes('postgres');
    }
    if (!fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('postgres')) return false; // a zombie has none
    const [there, here] = [fs.statSync(`/proc/${pid}/cwd`), fs.statSync(dataDir)];
    return there.dev === here.dev && there.ino === here.ino;
  } catch (error) {
    return codeOf(error) === 'EACCES' || codeOf(error) === 'EPERM'; // otherwise it has ended
  }
}
