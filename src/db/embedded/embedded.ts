/**
 * Starts a directory's embedded PostgreSQL server, or attaches to the server if it is already running. The server
 * listens only on a Unix socket.
 * - The server is detached: it keeps running if its parent is killed, and later processes attach to the server.
 * - If several processes start the server at the same time, PostgreSQL's lock file lets only one server run.
 * - Each process holds a shared lock through an open connection. The last process to release the lock stops the server.
 * - If the server ends while a process is attached, that process starts the server again.
 */
import { execFileSync, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { codeOf, messageOf } from '../../core/errors.js';
import { destroy, SocketClient } from '../line.js';
import { PRESENCE_LOCK } from '../locks.js';
import {
  DATABASE_USER,
  describeEnd,
  findReason,
  HERE,
  prepareCluster,
  readSmall,
  runProgram,
  SERVER_ENV,
  type Server,
} from './cluster.js';
import { createDatabase } from './presence.js';

export interface Embedded {
  config(database: string): pg.ClientConfig;
  ensureDatabase(name: string): Promise<void>;
  close(): Promise<void>;
}

const PORT = 5432;
const SETTINGS = {
  listen_addresses: '',
  unix_socket_permissions: '0700',
  timezone: 'UTC',
  max_connections: 200,
  shared_buffers: '128MB',
  // nothing replicates a server without a network address logically
  max_logical_replication_workers: 0,
};

const START_TIMEOUT_MS = 60_000;
/**
 * Pause between attempts to reach or start the server, in milliseconds. The pause doubles after each failed start, from
 * `first` up to `last`.
 */
const PAUSE_MS = { first: 20, last: 1000 };
const ANSWER_MS = 5000;
const WATCH_MS = 2000;

/** @throws Error if the server ends while it starts, or does not start in time */
export async function startEmbedded(options: {
  dataDir: string;
  settings?: Record<string, string | number>;
  startTimeoutMs?: number;
}): Promise<Embedded> {
  const { settings, startTimeoutMs = START_TIMEOUT_MS } = options;
  const dataDir = path.resolve(options.dataDir);
  const server = { ...(await prepareCluster(dataDir)), settings: { ...SETTINGS, ...settings }, startTimeoutMs };
  if (findServer(dataDir) && server.hasNewUser) await runProgram(server, 'pg_ctl', dataDir, ['reload']);
  const { directory, close } = openSocketDirectory(dataDir);
  const config = (database: string) => ({ host: directory, port: PORT, user: DATABASE_USER, database });
  let isClosed = false;
  let presence: pg.Client | undefined;
  let mending = Promise.resolve();

  async function attach(): Promise<void> {
    presence = await connectOrStart(server, config('postgres'), () => isClosed);
    presence?.on('end', () => {
      presence = undefined;
      if (!isClosed) mending = mend();
    });
  }
  async function mend(): Promise<void> {
    let reported = '';
    while (!isClosed && !presence) {
      await attach().catch(async (error) => {
        if (messageOf(error) !== reported) console.error(`PostgreSQL: ${messageOf(error)}`);
        reported = messageOf(error);
        await sleep(PAUSE_MS.last);
      });
    }
  }
  await attach().catch((error) => {
    close();
    throw error;
  });
  const watch = setInterval(() => hurryUp(dataDir), WATCH_MS).unref();
  return {
    config,
    ensureDatabase: (name) => createDatabase(config('postgres'), name),
    close: async () => {
      isClosed = true;
      clearInterval(watch);
      await mending;
      if (presence) await leave(server, presence);
      close();
    },
  };
}

/**
 * Returns a short path to the socket's directory, because a socket's path can have at most 107 bytes. On Linux, a long
 * path is replaced with a path through an open file descriptor.
 */
function openSocketDirectory(dataDir: string): { directory: string; close(): void } {
  if (Buffer.byteLength(dataDir) <= 80) return { directory: dataDir, close: () => {} };
  if (process.platform !== 'linux')
    throw new Error(`${dataDir} is too long for the path of a Unix socket: set DATA_DIR to a shorter path`);
  const fd = fs.openSync(dataDir, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
  return { directory: `/proc/${process.pid}/fd/${fd}`, close: () => fs.closeSync(fd) };
}

interface StartedServer extends Server {
  settings: Record<string, string | number>;
  startTimeoutMs: number;
}

/**
 * Waits until the server accepts this process's connection, and starts the server if no other process does.
 * @returns the connected client; undefined if `isCancelled` returned true
 */
async function connectOrStart(
  server: StartedServer,
  config: pg.ClientConfig,
  isCancelled: () => boolean,
): Promise<pg.Client | undefined> {
  const { dataDir, startTimeoutMs } = server;
  const deadline = performance.now() + startTimeoutMs;
  let hasStarted = false;
  let pauseMs = PAUSE_MS.first;
  let problem: string | undefined;
  while (performance.now() < deadline) {
    const found = findServer(dataDir);
    // continue even if `isCancelled` returns true, because this process must stop a server that it started
    if (isCancelled() && !(hasStarted && found)) return undefined;
    if (found?.status === 'ready') {
      const client = await connect(dataDir, config, found.pid);
      if (client instanceof pg.Client) return client;
      problem = client;
    } else if (!found) {
      hasStarted = true;
      problem = (await startServer(server, deadline)) ?? problem;
      if (findServer(dataDir)) continue;
      pauseMs = Math.min(2 * pauseMs, PAUSE_MS.last);
    }
    await sleep(found ? PAUSE_MS.first : pauseMs);
  }
  const reason = problem === undefined ? '' : ` (${problem})`;
  throw new Error(`PostgreSQL did not start within ${startTimeoutMs / 1000} seconds${reason}; see ${logOf(dataDir)}`);
}

/**
 * Returns a connected client. If connecting fails with an error that might be temporary, returns the error's message.
 */
async function connect(dataDir: string, config: pg.ClientConfig, pid: number): Promise<pg.Client | string> {
  const client = new SocketClient({ ...config, connectionTimeoutMillis: ANSWER_MS, query_timeout: ANSWER_MS });
  client.on('error', () => {});
  try {
    await client.connect();
    // while another process stops the server, this query waits for the lock
    await client.query('SELECT pg_advisory_lock_shared($1)', [PRESENCE_LOCK]);
    const found = findServer(dataDir);
    if (found?.pid !== pid || found.status !== 'ready') throw new Error('the server is stopping');
    return client;
  } catch (error) {
    destroy(client);
    return messageOf(error);
  }
}

/**
 * Releases this process's lock, and stops the server if no other process holds a lock. Exactly one of several
 * concurrent calls stops the server.
 */
async function leave(server: StartedServer, presence: pg.Client): Promise<void> {
  try {
    await presence.query('SELECT pg_advisory_unlock_shared($1)', [PRESENCE_LOCK]);
    const { rows } = await presence.query('SELECT WHERE pg_try_advisory_lock($1)', [PRESENCE_LOCK]);
    // keep the lock until the server has ended, so that other processes do not try to use the stopping server
    if (rows.length > 0) await stopServer(server);
  } catch {
    // the server has already ended
  }
  const ended = presence.end().catch(() => {});
  await Promise.race([ended, sleep(ANSWER_MS, undefined, { ref: false })]);
  destroy(presence);
}

const SCRIPT = 'umask 077; exec "$@" >> server.log 2>&1';

/**
 * Log messages of failed starts that might succeed if repeated, for example because another process is stopping the
 * server.
 */
const PASSING =
  /lock file ".*" (already exists|is empty)|pre-existing shared memory block|received \w+ shutdown request/;

const logOf = (dataDir: string): string => path.join(dataDir, 'server.log');

/**
 * Starts the server, and waits until it accepts connections or another process has started the server.
 * @param deadline the time limit, as a value of `performance.now()`
 * @returns why the server ended, if another start might succeed; otherwise undefined
 * @throws Error if the server ended for a permanent reason
 */
async function startServer(server: StartedServer, deadline: number): Promise<string | undefined> {
  const { dataDir } = server;
  const log = logOf(dataDir);
  const logged = fs.lstatSync(log, { throwIfNoEntry: false });
  if (logged?.isFile() === false) throw new Error(`${log} is not a regular file: move it elsewhere`);
  removeStaleLocks(dataDir);
  const child = spawnServer(server);
  let errors = '';
  let end: { text: string; isPassing: boolean } | undefined;
  child.stderr.on('data', (chunk) => {
    errors += chunk;
  });
  child.on('error', (error) => {
    end = { text: `could not be started: ${messageOf(error)}`, isPassing: false };
  });
  child.on('close', (code, signal) => {
    end ??= { text: describeEnd(code, signal), isPassing: code === 0 || signal === 'SIGKILL' };
  });
  while (end === undefined && performance.now() < deadline) {
    const found = findServer(dataDir);
    if (found && (found.pid !== child.pid || found.status === 'ready')) return undefined;
    await sleep(PAUSE_MS.first);
  }
  if (end === undefined) return undefined;
  const output = errors + (readSmall(log, logged?.size) ?? '');
  const isFull = fs.statfsSync(dataDir).bavail === 0; // a server on a full disk might not log why it ended
  const reason = findReason(output, dataDir) ?? (isFull ? 'the disk is full' : 'the server did not log a reason');
  if (end.isPassing || PASSING.test(output) || findServer(dataDir)) return `it ${end.text}: ${reason}`;
  throw new Error(`PostgreSQL ${end.text} during its start: ${reason}; see ${log}`);
}

/** Starts the server directly, because `pg_ctl start` does not report how a server ended. */
function spawnServer({ dataDir, bin, user, settings }: StartedServer) {
  const all = { ...settings, unix_socket_directories: HERE };
  const flags = Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const command = [path.join(bin, 'postgres'), '-D', HERE, '-p', String(PORT), ...flags];
  const child = spawn('/bin/sh', ['-c', SCRIPT, 'sh', ...command], {
    ...{ ...user, env: SERVER_ENV, cwd: dataDir, detached: true },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  child.unref();
  return child;
}

/**
 * Stops the server and waits until it has ended. `pg_ctl stop` would also wait for a server that another process starts
 * later.
 */
async function stopServer({ dataDir, startTimeoutMs }: StartedServer): Promise<void> {
  const pid = findServer(dataDir)?.pid;
  if (pid === undefined) return;
  interrupt(pid);
  const deadline = performance.now() + startTimeoutMs;
  while (isServer(pid, dataDir) && performance.now() < deadline) await sleep(PAUSE_MS.first);
}

/**
 * Interrupts a server that is stopping, because such a server waits until its clients disconnect. The clients are
 * Tapegate processes, which wait for the server.
 */
function hurryUp(dataDir: string): void {
  const found = findServer(dataDir);
  if (found?.status === 'stopping') interrupt(found.pid);
}

function interrupt(pid: number): void {
  try {
    process.kill(pid, 'SIGINT');
  } catch (error) {
    if (codeOf(error) !== 'ESRCH') throw error;
  }
}

/** Returns the server that runs in a directory, with its status from postmaster.pid: starting, ready or stopping. */
export function findServer(dataDir: string): { pid: number; status: string } | undefined {
  const lines = readSmall(path.join(dataDir, 'postmaster.pid'))?.split('\n') ?? [];
  const pid = Number(lines[0]);
  return isServer(pid, dataDir) ? { pid, status: (lines[7] ?? '').trim() } : undefined;
}

/**
 * Removes an ended server's lock files if PostgreSQL would mistake another process with the same pid for the server. If
 * another process has just replaced a lock file, restores the new lock file.
 */
function removeStaleLocks(dataDir: string): void {
  for (const file of ['postmaster.pid', `.s.PGSQL.${PORT}.lock`].map((name) => path.join(dataDir, name))) {
    const stale = readSmall(file);
    const pid = Number(stale?.split('\n')[0]);
    if (!isRunning(pid) || isServer(pid, dataDir)) continue;
    const temporary = `${file}.${randomUUID()}`;
    try {
      fs.renameSync(file, temporary);
    } catch (error) {
      if (codeOf(error) === 'ENOENT') continue;
      throw error;
    }
    if (readSmall(temporary) === stale) fs.rmSync(temporary);
    else fs.renameSync(temporary, file);
  }
}

export function isRunning(pid: number): boolean {
  try {
    return pid > 0 && process.kill(pid, 0);
  } catch (error) {
    return codeOf(error) === 'EPERM';
  }
}

/**
 * Returns whether a process is the server that runs in a directory. In case of doubt, returns true, because starting a
 * second server on the same cluster would damage the cluster.
 */
function isServer(pid: number, dataDir: string): boolean {
  if (!isRunning(pid)) return false;
  try {
    if (process.platform !== 'linux') {
      return execFileSync('ps', ['-p', String(pid), '-o', 'args='], { encoding: 'utf8' }).includes('postgres');
    }
    // a zombie has an empty command line
    if (!fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('postgres')) return false;
    const [there, here] = [fs.statSync(`/proc/${pid}/cwd`), fs.statSync(dataDir)];
    return there.dev === here.dev && there.ino === here.ino;
  } catch (error) {
    return codeOf(error) === 'EACCES' || codeOf(error) === 'EPERM'; // other errors mean that the process ended
  }
}
