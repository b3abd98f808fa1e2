/** The embedded PostgreSQL of a data directory, as its processes see it from outside. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isServer, readPidFile } from '../../src/database/postmaster.js';

function pidOf(dataDir: string): number | undefined {
  const cluster = path.join(dataDir, 'postgres');
  const pid = readPidFile(cluster)?.pid;
  return pid !== undefined && isServer(pid, cluster) ? pid : undefined;
}

/** Its processes, the first one last: it would take the others for dead. */
function processesOf(dataDir: string): number[] {
  const server = pidOf(dataDir);
  if (server === undefined) return [];
  const children = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && parentOf(name) === server);
  return [...children.map(Number), server];
}

function parentOf(pid: string): number | undefined {
  try {
    // after the name of the program, which may hold anything
    return Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ')[1]);
  } catch {
    return undefined; // it has just ended
  }
}

/** Nobody is answered, and no connection ends. @returns false when no server runs just now */
export async function hangDatabase(dataDir: string, forMs: number): Promise<boolean> {
  const pids = processesOf(dataDir);
  try {
    for (const pid of pids) trySignal(pid, 'SIGSTOP');
    await sleep(forMs);
  } finally {
    for (const pid of pids.reverse()) trySignal(pid, 'SIGCONT');
  }
  return pids.length > 0;
}

function trySignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // it has just ended
  }
}

/** @returns false when no server runs just now */
export function signalDatabase(dataDir: string, signal: NodeJS.Signals): boolean {
  const pid = pidOf(dataDir);
  if (pid !== undefined) process.kill(pid, signal);
  return pid !== undefined;
}
