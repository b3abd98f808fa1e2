/** The process of the embedded server: how it is started, by one process at a time, and hurried when it ends. */
import { spawn } from 'node:child_process';
import fs, { constants } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { codeOf } from '../errors.js';
import { isServer, readPidFile, removeStaleLocks } from './postmaster.js';
import { openPlainFile } from './server-access.js';
import { takeStartLock } from './start-lock.js';

/** Only names the socket's file. */
export const PORT = 5432;
const LOOK_MS = 20;

export interface Server {
  dataDir: string;
  /** The same directory as the server sees it. */
  serverDataDir: string;
  socket: {
    folder: string;
    /** The same as the server and its clients see it. */
    serverDir: string;
    clientDir: string;
    /** What holds it open, where that takes one. */
    fd?: number;
  };
  bin: string;
  user: { uid?: number; gid?: number };
  settings: Record<string, string | number>;
  startTimeoutMs: number;
}

/**
 * Starts the server once.
 * @param deadline of `performance.now()`
 * @returns undefined when another process starts it, or has
 */
export async function tryStart(server: Server, deadline: number): Promise<Child | undefined> {
  const unlock = await takeStartLock(server.dataDir);
  if (!unlock) return undefined;
  try {
    const pid = readPidFile(server.dataDir)?.pid;
    if (pid !== undefined && isServer(pid, server.dataDir)) return undefined;
    removeStaleLocks(server.dataDir, path.join(server.socket.folder, `.s.PGSQL.${PORT}.lock`));
    const child = spawnServer(server);
    // until others see it
    while (!child.hasExited && readPidFile(server.dataDir)?.pid !== child.pid && performance.now() < deadline) {
      await sleep(LOOK_MS);
    }
    return child;
  } finally {
    unlock();
  }
}

export interface Child {
  pid: number | undefined;
  hasExited: boolean;
}

function spawnServer(server: Server): Child {
  const settings = { ...server.settings, unix_socket_directories: server.socket.serverDir };
  const log = openLog(server);
  try {
    const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const child = spawn(path.join(server.bin, 'postgres'), ['-D', server.serverDataDir, '-p', String(PORT), ...flags], {
      ...server.user,
      env: serverEnv(),
      cwd: server.dataDir,
      detached: true,
      stdio: ['ignore', log, log],
    });
    const state = { pid: child.pid, hasExited: false };
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

/** The server's user owns the folder where root runs Tapegate: a link there must not have root write, or give away, another file. */
function openLog({ dataDir, user }: Server): number {
  const file = path.join(dataDir, 'server.log');
  const log = openPlainFile(file, constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT, 0o600);
  if (log === undefined) throw new Error(`${file} cannot be made: its folder is gone`);
  if (user.uid !== undefined && user.gid !== undefined) fs.fchownSync(log, user.uid, user.gid);
  return log;
}

/** Has a server that is ending end without waiting for anybody. */
export function hurryUp(server: Server): void {
  const lock = readPidFile(server.dataDir);
  if (lock?.status === 'stopping' && isServer(lock.pid, server.dataDir)) shutDown(lock.pid);
}

/** Has a server end now, in good order; does nothing to one that has ended. */
export function shutDown(pid: number): void {
  try {
    process.kill(pid, 'SIGINT');
  } catch (error) {
    if (codeOf(error) !== 'ESRCH') throw error;
  }
}

export function serverEnv(): Record<string, string> {
  return { PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' };
}
