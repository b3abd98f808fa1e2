/**
 * The embedded PostgreSQL: starts by itself under a directory, or attaches to the server that already runs there.
 *
 * - The server is detached: it outlives a killed parent, and the next process attaches to it.
 * - Of two processes that start at once, one starts the server and both attach.
 * - Each process keeps one connection open with a shared lock as its sign of life; who leaves last stops the server.
 * - A server that dies while a process is attached is started again, and so is one that is told to end: asked to do so
 *   gently it would wait for its clients, which are the processes that wait for it.
 *
 * It listens on a Unix socket only, and takes the word of the operating system for who calls (server-access.ts).
 */
import { execFile, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import pg from 'pg';
import { codeOf, messageOf } from '../errors.js';
import { findBinaries, findServerUser, isReachable } from './binaries.js';
import { findCluster, makeFolder, makePartial, refuseForeign } from './cluster-folder.js';
import { destroy } from './line.js';
import { PRESENCE_LOCK } from './locks.js';
import { isServer, readPidFile } from './postmaster.js';
import { guardCluster } from './server-access.js';
import { type Child, hurryUp, PORT, type Server, serverEnv, shutDown, tryStart } from './server-process.js';

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
  /** How long a start may take; a minute unless given, since a server may have to recover first. */
  startTimeoutMs?: number;
}

const START_TIMEOUT_MS = 60_000;
/** Between attempts to start a server that ends at once, growing up to the second figure. */
const PAUSE_MS = { first: 20, last: 1000 };
/** A server that is silent for so long hangs, and is left to itself. */
const ANSWER_MS = 5000;
const USER = 'postgres';
const run = promisify(execFile);
/** How soon it is noticed that the server takes no new clients while it waits for the old ones to leave. */
const WATCH_MS = 2000;

/** @throws Error that names the server's log when it does not start in time */
export async function startEmbedded(options: EmbeddedOptions): Promise<Embedded> {
  const server = await prepare(options);
  // also where a server runs already: an earlier version may have started it, and let in whoever reaches its socket
  const hasNewRules = guardCluster(server, USER);
  let isClosed = false;
  let presence: pg.Client | undefined;

  async function attach(): Promise<void> {
    presence = await connectOrStart(server, () => isClosed);
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
  let mending = Promise.resolve();
  await attach();
  if (hasNewRules) await presence?.query('SELECT pg_reload_conf()');
  const watch = setInterval(() => hurryUp(server), WATCH_MS).unref();

  return {
    config: (database) => clientConfig(server, database),
    ensureDatabase: (name, template) => ensureDatabase(server, name, template),
    close: async () => {
      isClosed = true;
      clearInterval(watch);
      await mending;
      if (presence) await leave(server, presence);
      if (server.socket.fd !== undefined) fs.closeSync(server.socket.fd);
    },
  };
}

/** Of processes that leave at once, exactly one finds that nobody else is here. */
async function leave(server: Server, presence: pg.Client): Promise<void> {
  let isLast = false;
  try {
    await presence.query('SELECT pg_advisory_unlock_shared($1)', [PRESENCE_LOCK]);
    const { rows } = await presence.query<{ isAlone: boolean }>('SELECT pg_try_advisory_lock($1) AS "isAlone"', [
      PRESENCE_LOCK,
    ]);
    isLast = rows[0]?.isAlone === true;
  } catch {
    // the server ended by itself
  }
  const pid = isLast ? readPidFile(server.dataDir)?.pid : undefined;
  if (pid !== undefined) shutDown(pid);
  // the lock is held until the server ends the connection, so that nobody takes the ending server for a living one
  while (pid !== undefined && isServer(pid, server.dataDir)) await sleep(20);
  const ended = presence.end().catch(() => {}); // the server may have closed it already
  await Promise.race([ended, sleep(ANSWER_MS, undefined, { ref: false })]);
  destroy(presence);
}

async function prepare(options: EmbeddedOptions): Promise<Server> {
  const dataDir = path.resolve(options.dataDir);
  findCluster(dataDir); // first, so that what is in its way is told
  const user = findServerUser(dataDir);
  makeFolder(path.dirname(dataDir)); // whatever the umask is, nobody else may write in it
  // Root may keep its data where the server's user cannot search, and PostgreSQL takes paths of up to 1,023 bytes. The
  // server starts in that directory, and the kernel leads it back there through its own link, whatever lies above.
  const isHidden = Buffer.byteLength(dataDir) > 900 || (user.uid !== undefined && !isReachable(path.dirname(dataDir)));
  // a socket's path holds 107 bytes
  const isLong = Buffer.byteLength(dataDir) > 80;
  const server: Server = {
    dataDir,
    serverDataDir: isHidden ? OWN_FOLDER : dataDir,
    socket: { folder: dataDir, serverDir: dataDir, clientDir: dataDir },
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
    startTimeoutMs: options.startTimeoutMs ?? START_TIMEOUT_MS,
  };
  refuseForeign(dataDir);
  if (!fs.existsSync(path.join(dataDir, 'PG_VERSION'))) await initialise(server);
  if (isHidden || isLong) server.socket = findShortSocket(server);
  return server;
}

/** What a process on Linux works in. */
const OWN_FOLDER = '/proc/self/cwd';

/**
 * The socket is in the cluster's folder however long its path is, and whoever may enter there: the server works in it, and this
 * process, with those that it starts, holds it open. A folder of its own elsewhere anybody could make before.
 */
function findShortSocket({ dataDir, user }: Server): Server['socket'] {
  if (process.platform !== 'linux') {
    const dir = makeSocketDir(dataDir, user);
    return { folder: dir, serverDir: dir, clientDir: dir };
  }
  const fd = fs.openSync(dataDir, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
  return { folder: dataDir, serverDir: OWN_FOLDER, clientDir: `/proc/${process.pid}/fd/${fd}`, fd };
}

/** Where no folder has such a path. In /tmp whatever TMPDIR says: all processes must find the same one. */
function makeSocketDir(dataDir: string, user: Server['user']): string {
  const hash = createHash('sha256').update(dataDir).digest('hex').slice(0, 12);
  const dir = path.join('/tmp', `tapegate-${hash}`);
  fs.mkdirSync(dir, { recursive: true, mode: 0o700 });
  const { uid } = fs.lstatSync(dir);
  const own = process.getuid?.();
  if (uid !== (user.uid ?? own) && uid !== own) throw new Error(`${dir} belongs to another user: remove it`);
  if (user.uid !== undefined && user.gid !== undefined) fs.chownSync(dir, user.uid, user.gid);
  return dir;
}

/** The cluster is made elsewhere and renamed, so that a crash or a race never leaves half of one. */
async function initialise(server: Server): Promise<void> {
  const partial = makePartial(server.dataDir);
  try {
    if (server.user.uid !== undefined && server.user.gid !== undefined) {
      fs.chownSync(partial, server.user.uid, server.user.gid);
    }
    const target = server.serverDataDir === server.dataDir ? partial : server.serverDataDir;
    const locale = ['--locale-provider=builtin', '--locale=C.UTF-8'];
    await run(
      path.join(server.bin, 'initdb'),
      ['-D', target, '-U', USER, '-A', 'peer', '-E', 'UTF8', ...locale, '--no-instructions'],
      { ...server.user, env: serverEnv(), cwd: partial },
    );
    guardCluster(server, USER, partial);
    fs.renameSync(partial, server.dataDir);
  } catch (error) {
    if (!fs.existsSync(path.join(server.dataDir, 'PG_VERSION'))) throw error; // otherwise another process was faster
  } finally {
    removePartials(server.dataDir);
  }
}

/** Once there is a cluster, those that are half made are of no use to anybody, a killed process's included. */
function removePartials(dataDir: string): void {
  const prefix = `${path.basename(dataDir)}.init-`;
  for (const name of fs.readdirSync(path.dirname(dataDir))) {
    const partial = path.join(path.dirname(dataDir), name);
    if (!name.startsWith(prefix)) continue;
    try {
      // what belongs to the server's user may be exchanged for links meanwhile, which this program never follows
      execFileSync('rm', ['-rf', '--', partial], { stdio: 'ignore' });
    } catch {
      // another process is still at it, and removes it when it sees that it is too late
    }
  }
}

/** @returns undefined when it was cancelled */
async function connectOrStart(server: Server, isCancelled: () => boolean): Promise<pg.Client | undefined> {
  const deadline = performance.now() + server.startTimeoutMs;
  let child: Child | undefined;
  let pauseMs = PAUSE_MS.first;
  let refusal = '';
  while (performance.now() < deadline) {
    const isStarting = child !== undefined && !child.hasExited;
    if (isCancelled() && !isStarting) return undefined; // otherwise there is a server to be stopped soon
    const lock = readPidFile(server.dataDir);
    const isServing = lock !== undefined && isServer(lock.pid, server.dataDir);
    if (isServing && lock.status === 'ready') {
      const client = await tryConnect(server, lock.pid);
      if (client instanceof pg.Client) return client;
      refusal = ` (${client})`;
    }
    // a server that lives but is not ready is starting or stopping
    if (!isServing && !isStarting) {
      const started = await tryStart(server, deadline);
      if (child && started) pauseMs = Math.min(2 * pauseMs, PAUSE_MS.last);
      child = started ?? child;
    }
    await sleep(isServing ? PAUSE_MS.first : pauseMs);
  }
  const seconds = server.startTimeoutMs / 1000;
  throw new Error(
    `PostgreSQL did not start within ${seconds} seconds${refusal}; see ${path.join(server.dataDir, 'server.log')}`,
  );
}

/** @returns the text of what was refused, which may pass */
async function tryConnect(server: Server, pid: number): Promise<pg.Client | string> {
  const client = new pg.Client({
    ...clientConfig(server, 'postgres'),
    connectionTimeoutMillis: ANSWER_MS,
    query_timeout: ANSWER_MS,
  });
  client.on('error', () => {}); // 'end' follows, and is what counts
  try {
    await client.connect();
    await client.query('SELECT pg_advisory_lock_shared($1)', [PRESENCE_LOCK]); // waits while the last one is leaving
    const lock = readPidFile(server.dataDir);
    if (lock?.pid !== pid || lock.status !== 'ready') throw new Error('the server is stopping');
    return client;
  } catch (error) {
    client.end().catch(() => {}); // it may never have been there
    if (codeOf(error) === 'EACCES') {
      throw new Error(`another user runs the PostgreSQL server of ${server.dataDir}: ${messageOf(error)}`);
    }
    return messageOf(error);
  }
}

async function ensureDatabase(server: Server, name: string, template?: string): Promise<void> {
  const client = new pg.Client({ ...clientConfig(server, 'postgres'), connectionTimeoutMillis: ANSWER_MS });
  client.on('error', () => {}); // the query in hand fails
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
  return { host: server.socket.clientDir, port: PORT, user: USER, database };
}
