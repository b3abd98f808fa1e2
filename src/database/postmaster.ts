/** The server's process, as postmaster.pid and the system tell of it. */
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { codeOf } from '../errors.js';
import { readSmall } from './server-access.js';

/** What the server has written of itself; undefined while there is none. */
export function readPidFile(dataDir: string): { pid: number; status: string } | undefined {
  const lines = readSmall(path.join(dataDir, 'postmaster.pid'))?.split('\n');
  return lines && { pid: Number(lines[0]), status: (lines[7] ?? '').trim() };
}

/**
 * Takes away the lock files of a server that has ended, where PostgreSQL would take their process for a living server:
 * the number may be another process's after a reboot, and a process that nobody has waited for keeps its number. Only
 * for who has the start lock.
 */
export function removeStaleLocks(dataDir: string, socketLock: string): void {
  for (const file of [path.join(dataDir, 'postmaster.pid'), socketLock]) {
    const pid = readPid(file);
    if (pid !== undefined && isRunning(pid) && !isServer(pid, dataDir)) fs.rmSync(file, { force: true });
  }
}

function readPid(file: string): number | undefined {
  const text = readSmall(file);
  return text === undefined ? undefined : Number(text.split('\n')[0]);
}

export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) === 'EPERM';
  }
}

/** Is this process the server of this directory? One that has ended and waits for its parent is none. */
export function isServer(pid: number, dataDir: string): boolean {
  if (!isRunning(pid)) return false;
  try {
    if (process.platform !== 'linux') {
      return execFileSync('ps', ['-p', String(pid), '-o', 'args='], { encoding: 'utf8' }).includes('postgres');
    }
    return fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('postgres') && isWorkingIn(pid, dataDir);
  } catch {
    return false; // it ended meanwhile
  }
}

/** A server works in its data directory. When in doubt it is taken to be there: two servers would be worse than none. */
function isWorkingIn(pid: number, dataDir: string): boolean {
  try {
    const [there, here] = [fs.statSync(`/proc/${pid}/cwd`), fs.statSync(dataDir)];
    return there.dev === here.dev && there.ino === here.ino;
  } catch (error) {
    return codeOf(error) === 'EACCES' || codeOf(error) === 'EPERM';
  }
}
