/**
 * Starts the embedded PostgreSQL of a directory, or attaches to the server that already runs there.
 *
 * - The server is detached (`pg_ctl`): it survives a killed parent, and the next process attaches to it.
 * - If two processes start at once, one starts the server and both attach.
 * - Each process holds a shared lock on an open connection. The last process to release it stops the server.
 * - If the server ends while a process is attached, that process starts it again.
 *
 * It listens on a Unix socket only, and the operating system says who connects (server-access.ts).
 */
import fs from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { messageOf } from '../errors.js';
import { findBinaries, findServerUser } from './binaries.js';
import { findCluster, initialise, makeFolder, refuseForeign } from './cluster-folder.js';
import { destroy, SocketClient } from './line.js';
import { PRESENCE_LOCK } from './locks.js';
import { findServer, hurryUp, PORT, runControl, type Server, startServer, stopServer } from './postmaster.js';
import { createDatabase } from './presence.js';
import { admitUser, DATABASE_USER } from './server-access.js';

export interface Embedded {
  config(database: string): pg.ClientConfig;
  /** Creates the database unless it exists. */
  ensureDatabase(name: string): Promise<void>;
  /** Detaches from the server; the last process to do so stops it. */
  close(): Promise<void>;
}

export interface EmbeddedOptions {
  /** The cluster's directory; created if it is missing. */
  dataDir: string;
  /** Server settings beside the defaults below. */
  settings?: Record<string, string | number>;
  /** Limits a start, which may include a recovery. Default: one minute. */
  startTimeoutMs?: number;
}

const START_TIMEOUT_MS = 60_000;
/** Between attempts to reach or start the server. A failed start doubles it, up to the second figure. */
const PAUSE_MS = { first: 20, last: 1000 };
/** A server that does not answer for this long hangs. */
const ANSWER_MS = 5000;
/** Between checks for a server that waits for its clients before it stops. */
const WATCH_MS = 2000;

/** @throws Error that names the server's log if it does not start in time */
export async function startEmbedded(options: EmbeddedOptions): Promise<Embedded> {
  const server = await prepare(options);
  const { folder, close } = openSocketFolder(server.dataDir);
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
  const watch = setInterval(() => hurryUp(server.dataDir), WATCH_MS).unref();
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

async function prepare(options: EmbeddedOptions): Promise<Server> {
  const dataDir = path.resolve(options.dataDir);
  findCluster(dataDir); // fails if anything else is in its place
  const user = findServerUser(dataDir);
  makeFolder(path.dirname(dataDir));
  refuseForeign(dataDir);
  const server: Server = {
    dataDir,
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
  if (!fs.existsSync(path.join(dataDir, 'PG_VERSION'))) await initialise(server);
  else if (admitUser(dataDir, user) && findServer(dataDir)) await runControl(server, ['reload']);
  return server;
}

/** The path of a socket has at most 107 bytes. On Linux, an open descriptor of the directory is a shorter path to it. */
function openSocketFolder(dataDir: string): { folder: string; close(): void } {
  if (Buffer.byteLength(dataDir) <= 80) return { folder: dataDir, close: () => {} };
  if (process.platform !== 'linux') throw new Error(`${dataDir} is too long for a socket: name a shorter DATA_DIR`);
  const fd = fs.openSync(dataDir, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
  return { folder: `/proc/${process.pid}/fd/${fd}`, close: () => fs.closeSync(fd) };
}

/** @returns undefined if it was cancelled */
async function connectOrStart(
  server: Server,
  config: pg.ClientConfig,
  isCancelled: () => boolean,
): Promise<pg.Client | undefined> {
  const deadline = performance.now() + server.startTimeoutMs;
  let hasStarted = false;
  let pauseMs = PAUSE_MS.first;
  let problem = '';
  while (performance.now() < deadline) {
    const found = findServer(server.dataDir);
    if (isCancelled() && !(hasStarted && found)) return undefined; // a server that it has started it must stop again
    if (found?.status === 'ready') {
      const client = await connect(server, config, found.pid);
      if (client instanceof pg.Client) return client;
      problem = ` (${client})`;
    } else if (!found) {
      hasStarted = await startServer(server, deadline);
      if (findServer(server.dataDir)) continue;
      pauseMs = Math.min(2 * pauseMs, PAUSE_MS.last);
    }
    await sleep(found ? PAUSE_MS.first : pauseMs);
  }
  const seconds = server.startTimeoutMs / 1000;
  throw new Error(
    `PostgreSQL did not start within ${seconds} seconds${problem}; see ${path.join(server.dataDir, 'server.log')}`,
  );
}

/** @returns the text of an error, which may be temporary */
async function connect(server: Server, config: pg.ClientConfig, pid: number): Promise<pg.Client | string> {
  const client = new SocketClient({ ...config, connectionTimeoutMillis: ANSWER_MS, query_timeout: ANSWER_MS });
  client.on('error', () => {}); // 'end' follows
  try {
    await client.connect();
    await client.query('SELECT pg_advisory_lock_shared($1)', [PRESENCE_LOCK]); // waits while the last process leaves
    const found = findServer(server.dataDir);
    if (found?.pid !== pid || found.status !== 'ready') throw new Error('the server is stopping');
    return client;
  } catch (error) {
    destroy(client);
    return messageOf(error);
  }
}

/** If several processes leave at once, exactly one of them is the last. */
async function leave(server: Server, presence: pg.Client): Promise<void> {
  try {
    await presence.query('SELECT pg_advisory_unlock_shared($1)', [PRESENCE_LOCK]);
    const { rows } = await presence.query('SELECT WHERE pg_try_advisory_lock($1)', [PRESENCE_LOCK]);
    // the server ends the connection, and so the lock: no other process takes the ending server for a live one
    if (rows.length > 0) await stopServer(server);
  } catch {
    // the server has ended already
  }
  const ended = presence.end().catch(() => {});
  await Promise.race([ended, sleep(ANSWER_MS, undefined, { ref: false })]);
  destroy(presence);
}
