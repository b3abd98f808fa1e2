/**
 * Starts the embedded PostgreSQL of a directory, or attaches to the server that already runs there. It listens on a
 * Unix socket only.
 * - The server is detached (`pg_ctl`): it survives a killed parent, and the next process attaches to it.
 * - If several processes start it at once, PostgreSQL's lock file lets one server run, and all attach to it.
 * - Each process holds a shared lock on an open connection. The last process to release it stops the server.
 * - If the server ends while a process is attached, that process starts it again.
 */
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { codeOf, messageOf } from '../../core/errors.js';
import { destroy, SocketClient } from '../line.js';
import { PRESENCE_LOCK } from '../locks.js';
import { DATABASE_USER, HERE, prepareCluster, readSmall, runProgram, type Server } from './cluster.js';
import { createDatabase } from './presence.js';

export interface Embedded {
  config(database: string): pg.ClientConfig;
  ensureDatabase(name: string): Promise<void>;
  close(): Promise<void>;
}

/** Only part of the socket's file name. */
const PORT = 5432;
const SETTINGS = {
  listen_addresses: '',
  unix_socket_permissions: '0700',
  timezone: 'UTC',
  max_connections: 200,
  shared_buffers: '128MB',
};

/** A start may include a crash recovery. */
const START_TIMEOUT_MS = 60_000;
/** Pause between attempts to reach or start the server. Each failed start doubles it, up to `last`. */
const PAUSE_MS = { first: 20, last: 1000 };
/** A server that does not answer for this long hangs. */
const ANSWER_MS = 5000;
/** Interval of checks for a server that waits for its clients before it stops. */
const WATCH_MS = 2000;

/**
 * @param options.dataDir the cluster's directory; created if it is missing
 * @param options.settings of the server, added to `SETTINGS`
 * @throws Error with the path of the server's log if the server does not start in time
 */
export async function startEmbedded(options: {
  dataDir: string;
  settings?: Record<string, string | number>;
  startTimeoutMs?: number;
}): Promise<Embedded> {
  const { settings, startTimeoutMs = START_TIMEOUT_MS } = options;
  const dataDir = path.resolve(options.dataDir);
  const server = { ...(await prepareCluster(dataDir)), settings: { ...SETTINGS, ...settings }, startTimeoutMs };
  if (findServer(dataDir) && server.hasNewUser) await runProgram(server, 'pg_ctl', dataDir, ['reload']);
  const { folder, close } = openSocketFolder(dataDir);
  const config = (database: string) => ({ host: folder, port: PORT, user: DATABASE_USER, database });
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
    while (!isClosed && !presence) {
      await attach().catch(async (error) => {
        console.error(`PostgreSQL: ${messageOf(error)}`);
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
 * The path of a socket has at most 107 bytes. On Linux, an open descriptor of the directory is a shorter path to it.
 */
function openSocketFolder(dataDir: string): { folder: string; close(): void } {
  if (Buffer.byteLength(dataDir) <= 80) return { folder: dataDir, close: () => {} };
  if (process.platform !== 'linux') throw new Error(`${dataDir} is too long for a socket: name a shorter DATA_DIR`);
  const fd = fs.openSync(dataDir, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
  return { folder: `/proc/${process.pid}/fd/${fd}`, close: () => fs.closeSync(fd) };
}

interface StartedServer extends Server {
  settings: Record<string, string | number>;
  startTimeoutMs: number;
}

/** @returns undefined if cancelled */
async function connectOrStart(
  server: StartedServer,
  config: pg.ClientConfig,
  isCancelled: () => boolean,
): Promise<pg.Client | undefined> {
  const { dataDir, startTimeoutMs } = server;
  const deadline = performance.now() + startTimeoutMs;
  let hasStarted = false;
  let pauseMs = PAUSE_MS.first;
  let problem = '';
  while (performance.now() < deadline) {
    const found = findServer(dataDir);
    if (isCancelled() && !(hasStarted && found)) return undefined; // it must stop a server that it has started
    if (found?.status === 'ready') {
      const client = await connect(dataDir, config, found.pid);
      if (client instanceof pg.Client) return client;
      problem = ` (${client})`;
    } else if (!found) {
      hasStarted = true;
      await startServer(server, deadline);
      if (findServer(dataDir)) continue;
      pauseMs = Math.min(2 * pauseMs, PAUSE_MS.last);
    }
    await sleep(found ? PAUSE_MS.first : pauseMs);
  }
  const log = path.join(dataDir, 'server.log');
  throw new Error(`PostgreSQL did not start within ${startTimeoutMs / 1000} seconds${problem}; see ${log}`);
}

/** @returns the message of an error, which may be temporary */
async function connect(dataDir: string, config: pg.ClientConfig, pid: number): Promise<pg.Client | string> {
  const client = new SocketClient({ ...config, connectionTimeoutMillis: ANSWER_MS, query_timeout: ANSWER_MS });
  client.on('error', () => {}); // 'end' follows
  try {
    await client.connect();
    await client.query('SELECT pg_advisory_lock_shared($1)', [PRESENCE_LOCK]); // waits while the last process leaves
    const found = findServer(dataDir);
    if (found?.pid !== pid || found.status !== 'ready') throw new Error('the server is stopping');
    return client;
  } catch (error) {
    destroy(client);
    return messageOf(error);
  }
}

/** If several processes leave at once, exactly one of them is the last. */
async function leave(server: StartedServer, presence: pg.Client): Promise<void> {
  try {
    await presence.query('SELECT pg_advisory_unlock_shared($1)', [PRESENCE_LOCK]);
    const { rows } = await presence.query('SELECT WHERE pg_try_advisory_lock($1)', [PRESENCE_LOCK]);
    // the server's end releases the lock, so no other process mistakes the ending server for a live one
    if (rows.length > 0) await stopServer(server);
  } catch {
    // the server has ended already
  }
  const ended = presence.end().catch(() => {});
  await Promise.race([ended, sleep(ANSWER_MS, undefined, { ref: false })]);
  destroy(presence);
}

/**
 * Starts the server and waits until it accepts connections, unless another process has just started it. The server's
 * log has a failure.
 * @param deadline of `performance.now()`
 */
async function startServer(server: StartedServer, deadline: number): Promise<void> {
  const { dataDir } = server;
  const log = path.join(dataDir, 'server.log');
  if (fs.lstatSync(log, { throwIfNoEntry: false })?.isFile() === false)
    throw new Error(`${log} is no plain file of its own`);
  removeStaleLocks(dataDir);
  const settings = { ...server.settings, unix_socket_directories: HERE };
  const flags = Object.entries(settings).map(([name, value]) => `-c ${quote(`${name}=${value}`)}`);
  const seconds = Math.max(1, Math.ceil((deadline - performance.now()) / 1000));
  const options = ['-t', String(seconds), '-l', 'server.log', '-o', `-p ${PORT} ${flags.join(' ')}`];
  await runProgram(server, 'pg_ctl', dataDir, ['start', ...options]).catch(() => {}); // the log says why
}

/** Quotes for the shell of `pg_ctl`. */
const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/**
 * Stops the server and waits for its end. `pg_ctl stop` would also wait for a server that another process starts
 * afterwards.
 */
async function stopServer({ dataDir, startTimeoutMs }: StartedServer): Promise<void> {
  const pid = findServer(dataDir)?.pid;
  if (pid === undefined) return;
  interrupt(pid);
  const deadline = performance.now() + startTimeoutMs;
  while (isServer(pid, dataDir) && performance.now() < deadline) await sleep(PAUSE_MS.first);
}

/** Interrupts a server that waits for its clients to leave (SIGTERM): those clients wait for the server. */
function hurryUp(dataDir: string): void {
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

/** Returns the server that runs in a directory, with its status from postmaster.pid: starting, ready, stopping. */
export function findServer(dataDir: string): { pid: number; status: string } | undefined {
  const lines = readSmall(path.join(dataDir, 'postmaster.pid'))?.split('\n') ?? [];
  const pid = Number(lines[0]);
  return isServer(pid, dataDir) ? { pid, status: (lines[7] ?? '').trim() } : undefined;
}

/**
 * Removes the lock files of a server that has ended if PostgreSQL would take their pid for a live server. After a
 * reboot the pid may be another process's, and a zombie keeps its pid. Puts back a file that another process has
 * written meanwhile.
 */
function removeStaleLocks(dataDir: string): void {
  for (const file of ['postmaster.pid', `.s.PGSQL.${PORT}.lock`].map((name) => path.join(dataDir, name))) {
    const stale = readSmall(file);
    const pid = Number(stale?.split('\n')[0]);
    if (!isRunning(pid) || isServer(pid, dataDir)) continue;
    const aside = `${file}.${randomUUID()}`;
    try {
      fs.renameSync(file, aside);
    } catch (error) {
      if (codeOf(error) === 'ENOENT') continue; // another process was faster
      throw error;
    }
    if (readSmall(aside) === stale) fs.rmSync(aside);
    else fs.renameSync(aside, file);
  }
}

export function isRunning(pid: number): boolean {
  try {
    return pid > 0 && process.kill(pid, 0);
  } catch (error) {
    return codeOf(error) === 'EPERM';
  }
}

/** Returns whether a process is the server of this directory. In doubt it is: two servers would be worse than none. */
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
