/**
 * The embedded PostgreSQL: starts by itself under a directory, or attaches to the server that already runs there.
 *
 * - The server is detached: it outlives a killed parent, and the next process attaches to it.
 * - postmaster.pid is the mutual exclusion: of two processes that start at once, one starts and both attach.
 * - Each process keeps one connection open as its sign of life; who leaves last stops the server.
 * - A server that dies while a process is attached is started again.
 *
 * It listens on a Unix socket only.
 */
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { codeOf, messageOf } from '../errors.js';
import { findBinaries, findServerUser, isReachable } from './binaries.js';

export interface Embedded {
  config(database: string): pg.ClientConfig;
  /** Creates the database unless it exists. */
  ensureDatabase(name: string, template?: string): Promise<void>;
  /** Lets go of the server; the last process to do so stops it. */
  close(): Promise<void>;
}

export interface EmbeddedOptions {
  /** The cluster's directory; made when missing. */
  dataDir: string;
  /** Server settings beside the defaults below. */
  settings?: Record<string, string | number>;
}

const START_TIMEOUT_MS = 60_000;
const PORT = 5432; // only names the socket's file
const USER = 'postgres';

/** @throws Error that names the server's log when it does not start within a minute */
export async function startEmbedded(options: EmbeddedOptions): Promise<Embedded> {
  const server = prepare(options);
  let isClosed = false;
  let presence: pg.Client | undefined;
  let mending: Promise<void> = Promise.resolve();

  async function attach(): Promise<void> {
    const client = await connectOrStart(server);
    if (isClosed) return client.end();
    presence = client;
    client.on('end', () => {
      if (!isClosed) mending = attach().catch((error) => console.error(`PostgreSQL: ${messageOf(error)}`));
    });
  }
  await attach();

  return {
    config: (database) => clientConfig(server, database),
    ensureDatabase: (name, template) => ensureDatabase(server, name, template),
    close: async () => {
      isClosed = true;
      await mending;
      if (!presence) return;
      const { rows } = await presence.query<{ others: string }>(
        `SELECT count(*) AS others FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`,
      );
      const pid = readPidFile(server.dataDir)?.pid;
      const isLast = rows[0]?.others === '0';
      if (isLast && pid !== undefined) process.kill(pid, 'SIGINT'); // fast shutdown
      await presence.end().catch(() => {}); // the server may have closed it already
      while (isLast && pid !== undefined && isServer(pid)) await sleep(20);
    },
  };
}

interface Server {
  dataDir: string;
  /** The same directory as the server sees it. */
  serverDataDir: string;
  socketDir: string;
  bin: string;
  user: { uid?: number; gid?: number };
  settings: Record<string, string | number>;
}

function prepare(options: EmbeddedOptions): Server {
  const dataDir = path.resolve(options.dataDir);
  const user = findServerUser();
  fs.mkdirSync(path.dirname(dataDir), { recursive: true });
  // Root may keep its data where the server's user cannot search. The server starts in that directory, and the
  // kernel leads it back there through its own link, whatever lies above.
  const isHidden = user.uid !== undefined && !isReachable(path.dirname(dataDir));
  // a socket's path holds 107 bytes
  const isLong = Buffer.byteLength(dataDir) > 80;
  const server: Server = {
    dataDir,
    serverDataDir: isHidden ? '/proc/self/cwd' : dataDir,
    socketDir: isHidden || isLong ? makeSocketDir(dataDir, user) : dataDir,
    bin: findBinaries(user),
    user,
    settings: {
      listen_addresses: '',
      unix_socket_permissions: '0700',
      timezone: 'UTC',
      max_connections: 200,
      shared_buffers: '128MB',
      ...options.settings,
    },
  };
  if (!fs.existsSync(path.join(dataDir, 'PG_VERSION'))) initialise(server);
  return server;
}

function makeSocketDir(dataDir: string, user: Server['user']): string {
  const hash = createHash('sha256').update(dataDir).digest('hex').slice(0, 12);
  const dir = path.join(os.tmpdir(), `tapegate-${hash}`);
  fs.mkdirSync(dir, { recursive: true, mode: 0o700 });
  const { uid } = fs.lstatSync(dir);
  const expected = user.uid ?? os.userInfo().uid;
  if (uid !== expected && uid !== os.userInfo().uid) throw new Error(`${dir} belongs to another user: remove it`);
  if (user.uid !== undefined && user.gid !== undefined) fs.chownSync(dir, user.uid, user.gid);
  return dir;
}

/** The cluster is made elsewhere and renamed, so that a crash or a race never leaves half of one. */
function initialise(server: Server): void {
  const partial = fs.mkdtempSync(`${server.dataDir}.init-`);
  try {
    if (server.user.uid !== undefined && server.user.gid !== undefined) {
      fs.chownSync(partial, server.user.uid, server.user.gid);
    }
    const target = server.serverDataDir === server.dataDir ? partial : server.serverDataDir;
    const locale = ['--locale-provider=builtin', '--locale=C.UTF-8'];
    execFileSync(
      path.join(server.bin, 'initdb'),
      ['-D', target, '-U', USER, '-A', 'trust', '-E', 'UTF8', ...locale, '--no-instructions'],
      { ...server.user, env: serverEnv(), cwd: partial, stdio: ['ignore', 'ignore', 'pipe'] },
    );
    fs.renameSync(partial, server.dataDir);
  } catch (error) {
    if (!fs.existsSync(path.join(server.dataDir, 'PG_VERSION'))) throw error; // otherwise another process was faster
  } finally {
    fs.rmSync(partial, { recursive: true, force: true });
  }
}

async function connectOrStart(server: Server): Promise<pg.Client> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  let child: { hasExited: boolean } | undefined;
  while (Date.now() < deadline) {
    const lock = readPidFile(server.dataDir);
    const isServing = lock !== undefined && isServer(lock.pid);
    if (isServing && lock.status === 'ready') {
      const client = await tryConnect(server);
      if (client) return client;
    }
    if (lock && !isServing && isRunning(lock.pid)) {
      // after a reboot the number may be another process's, which PostgreSQL would take for a server of its own
      fs.rmSync(path.join(server.dataDir, 'postmaster.pid'), { force: true });
    }
    // a server that lives but is not ready is starting or stopping
    if (!isServing && (!child || child.hasExited)) child = spawnServer(server);
    await sleep(20);
  }
  throw new Error(`PostgreSQL did not start within a minute; see ${path.join(server.dataDir, 'server.log')}`);
}

function spawnServer(server: Server): { hasExited: boolean } {
  const settings = { ...server.settings, unix_socket_directories: server.socketDir };
  const log = fs.openSync(path.join(server.dataDir, 'server.log'), 'a', 0o600);
  try {
    if (server.user.uid !== undefined && server.user.gid !== undefined) {
      fs.fchownSync(log, server.user.uid, server.user.gid);
    }
    const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const child = spawn(path.join(server.bin, 'postgres'), ['-D', server.serverDataDir, '-p', String(PORT), ...flags], {
      ...server.user,
      env: serverEnv(),
      cwd: server.dataDir,
      detached: true,
      stdio: ['ignore', log, log],
    });
    const state = { hasExited: false };
    const ended = () => {
      state.hasExited = true;
    };
    child.on('exit', ended);
    child.on('error', ended);
    child.unref();
    return state;
  } finally {
    fs.closeSync(log);
  }
}

async function tryConnect(server: Server): Promise<pg.Client | undefined> {
  const client = new pg.Client({ ...clientConfig(server, 'postgres'), connectionTimeoutMillis: 5000 });
  client.on('error', () => {}); // 'end' follows, and is what counts
  try {
    await client.connect();
    return client;
  } catch (error) {
    if (codeOf(error) === 'EACCES') {
      throw new Error(`another user runs the PostgreSQL server of ${server.dataDir}: ${messageOf(error)}`);
    }
    return undefined;
  }
}

async function ensureDatabase(server: Server, name: string, template?: string): Promise<void> {
  const client = new pg.Client(clientConfig(server, 'postgres'));
  await client.connect();
  try {
    const from = template ? ` TEMPLATE ${pg.escapeIdentifier(template)} STRATEGY wal_log` : '';
    await client.query(`CREATE DATABASE ${pg.escapeIdentifier(name)}${from}`);
  } catch (error) {
    const isThere = ['42P04', '23505'].includes(codeOf(error) ?? '');
    if (!isThere) throw error;
  } finally {
    await client.end();
  }
}

function clientConfig(server: Server, database: string): pg.ClientConfig {
  return { host: server.socketDir, port: PORT, user: USER, database };
}

function serverEnv(): Record<string, string | undefined> {
  return { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' };
}

function readPidFile(dataDir: string): { pid: number; status: string } | undefined {
  try {
    const lines = fs.readFileSync(path.join(dataDir, 'postmaster.pid'), 'utf8').split('\n');
    return { pid: Number(lines[0]), status: (lines[7] ?? '').trim() };
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) === 'EPERM';
  }
}

/** Is this process a PostgreSQL server? One that has ended and waits for its parent is none. */
function isServer(pid: number): boolean {
  if (!isRunning(pid)) return false;
  try {
    if (process.platform === 'linux') return fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('postgres');
    return execFileSync('ps', ['-p', String(pid), '-o', 'args='], { encoding: 'utf8' }).includes('postgres');
  } catch {
    return false; // it ended meanwhile
  }
}
