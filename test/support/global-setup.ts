/**
 * Creates the directory and the PostgreSQL server that all test files of a run share.
 * The directory is in memory if there is enough memory. The server has a migrated template, from which test files copy
 * databases.
 * The sweeper removes everything after the run, even if the run was killed.
 */
import { execFileSync } from 'node:child_process';
import { appendFileSync, chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statfsSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { ClientConfig } from 'pg';
import type { TestProject } from 'vitest/node';
import { startEmbedded } from '../../src/db/embedded/embedded.js';
import { migrate } from '../../src/db/migrate.js';
import { installChromium } from './packed-chromium.js';
import { type ProcessorTime, readProcessorTime } from './processor-time.js';
import { startSweeper } from './sweeping.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** PostgreSQL server of the run; undefined if all test files at the start of the run need no database. */
    postgres: { connection: ClientConfig; template: string };
  }
}

const MEMORY = '/dev/shm';
const ROOM_BYTES = 4 * 2 ** 30;
const DATABASE = 'tapegate';

/** Fast settings without durability, because tests never survive a power failure. */
const FAST = { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' };

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const dir = mkdtempSync(path.join(process.env.TMPDIR ?? (hasRoom(MEMORY) ? MEMORY : os.tmpdir()), 'tapegate-'));
  const disk = mkdtempSync(path.join(os.tmpdir(), 'tapegate-'));
  const sweeper = startSweeper(dir, [disk, project.tmpDir]); // a killed vitest leaves its own directory
  for (const each of [dir, disk]) chmodSync(each, 0o755);
  const temp = path.join(dir, 'tmp');
  mkdirSync(temp);
  chmodSync(temp, 0o1777); // like /tmp, because tests run programs as other users
  process.env.TMPDIR = temp; // workers and their programs inherit the variable
  process.env.TEST_DISK = disk;
  if (project.vitest.state.getPaths().some((file) => file.includes('/test/browser/'))) installChromium();
  const needsServer = project.vitest.state.getPaths().some((file) => !file.includes('/test/pure/'));
  const server = needsServer ? await startServer(project, dir) : undefined;
  return async () => {
    if (server && process.env.MEASURE) appendFileSync(process.env.MEASURE, `${JSON.stringify(server.measure())}\n`);
    await server?.close();
    await sweeper.sweep({ spare: process.pid });
    rmSync(disk, { recursive: true, force: true });
  };
}

/** Returns whether a file system exists, has enough free space, and allows programs to run. */
function hasRoom(place: string): boolean {
  try {
    const mount = readFileSync('/proc/self/mounts', 'utf8')
      .split('\n')
      .find((line) => line.split(' ')[1] === place);
    const { bavail, bsize } = statfsSync(place);
    return mount !== undefined && !/\bnoexec\b/.test(mount) && bavail * bsize >= ROOM_BYTES;
  } catch {
    return false; // this system has no /proc
  }
}

interface Server {
  /** Returns the server's processor time. `childrenMs` is the time of ended server processes. */
  measure(): ProcessorTime & { file: string };
  close(): Promise<void>;
}

async function startServer(project: TestProject, dir: string): Promise<Server> {
  const cluster = path.join(dir, 'cluster');
  await makeCluster(cluster);
  process.env.TEST_CLUSTER = cluster; // workers copy the cluster
  const dataDir = path.join(dir, 'postgres');
  execFileSync('cp', ['-a', cluster, dataDir]);
  const server = await startEmbedded({
    dataDir,
    settings: { max_connections: 300, max_wal_size: '256MB', jit: 'off', autovacuum: 'off' },
  });
  project.provide('postgres', { connection: server.config('postgres'), template: DATABASE });
  const pid = Number(readFileSync(path.join(dataDir, 'postmaster.pid'), 'utf8').split('\n')[0]);
  return { close: server.close, measure: () => ({ file: 'PostgreSQL', ...readProcessorTime(pid) }) };
}

/** Creates a cluster as `start` does, without the demo. */
async function makeCluster(dataDir: string): Promise<void> {
  const server = await startEmbedded({ dataDir, settings: FAST });
  await server.ensureDatabase(DATABASE);
  await migrate(server.config(DATABASE));
  await server.close();
  const settings = Object.entries(FAST).map(([name, value]) => `${name} = ${value}\n`);
  appendFileSync(path.join(dataDir, 'postgresql.conf'), settings.join(''));
}
