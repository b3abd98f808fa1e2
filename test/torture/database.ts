/** The embedded PostgreSQL of a data directory, as its processes see it from outside. */
import path from 'node:path';
import { isServer, readPidFile } from '../../src/database/postmaster.js';

function pidOf(dataDir: string): number | undefined {
  const cluster = path.join(dataDir, 'postgres');
  const pid = readPidFile(cluster)?.pid;
  return pid !== undefined && isServer(pid, cluster) ? pid : undefined;
}

/** @returns false when no server runs just now */
export function signalDatabase(dataDir: string, signal: NodeJS.Signals): boolean {
  const pid = pidOf(dataDir);
  if (pid !== undefined) process.kill(pid, signal);
  return pid !== undefined;
}
