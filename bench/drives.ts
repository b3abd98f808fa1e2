/**
 * Measures how a Tapegate grows with its drives.
 *
 * - Planning: for each number of drives in DRIVES (default 10,100,1000), the milliseconds in which the planner chooses
 *   the next volume, and in which it plans the whole queue. Twenty volumes per drive wait, with files of 100 users.
 * - Engine: an engine in one process reads MOUNTS (default 5) volumes with each drive, from a library in memory. A mount
 *   takes MOUNT_MS (default 2000), and a volume has 20 files of 4 kB. WAITING (default 0) more files wait on suspended
 *   volumes. Prints how long the drives take, and the processor time per mount.
 * - Processes: `work` reads a directory library with each number of drives in PROCESSES (default 10,50). Prints the
 *   memory of a drive's process, and the most database connections.
 *
 * ONLY=planning, engine or processes measures one part. Needs Linux.
 *
 * Usage: npm run compile && node dist/bench/drives.js
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '../src/core/package-root.js';
import type { Context } from '../src/domain/context.js';
import { setQuota } from '../src/domain/quotas/quotas.js';
import { createRequest } from '../src/domain/requests/create.js';
import { archiveTree } from '../src/engine/archive/archive.js';
import { startEngine } from '../src/engine/runner.js';
import { planAhead } from '../src/planner/ahead.js';
import { findMedium } from '../src/planner/media.js';
import type { WaitingVolume } from '../src/planner/queue.js';
import { chooseNext, defaultPolicy, openBacklog } from '../src/planner/schedule.js';
import { createRandom } from '../src/simulator/workload.js';
import type { DriveLibrary } from '../src/tape/drive-library.js';
import { createFirstLibrary } from '../src/tape/kinds.js';
import { digits } from './figures.js';
import { median, seconds, untilFinished, withBench, writeFiles } from './kit.js';
import { isConnection, type ProcessFigures, readTree } from './process-tree.js';

const numbers = (text: string) => text.split(',').map(Number);
const driveCounts = numbers(process.env.DRIVES ?? '10,100,1000');
const processCounts = numbers(process.env.PROCESSES ?? '10,50');
const mounts = Number(process.env.MOUNTS ?? 5);
const mountMs = Number(process.env.MOUNT_MS ?? 2000);
const waiting = Number(process.env.WAITING ?? 0);
const only = process.env.ONLY;
const FILES = 20;
const SIZE = 4096;
const USERS = 100;

function buildQueues(drives: number): WaitingVolume[] {
  const random = createRandom(7);
  const medium = findMedium('lto-8');
  return Array.from({ length: drives * 20 }, (_, n) => ({
    volumeId: n + 1,
    volume: `V${n}`,
    libraryId: 1,
    isMounted: false,
    medium,
    measured: medium,
    users: Array.from({ length: 3 }, (_, k) => ({
      user: `user${Math.floor((random() * USERS) / 3) * 3 + k}`,
      files: 1 + Math.floor(random() * 100),
      bytes: 1e9 + random() * 1e11,
      oldest: Math.floor(random() * 3600),
      priority: 0,
    })),
  }));
}

async function measurePlanning(drives: number): Promise<void> {
  const queues = buildQueues(drives);
  const state = { shares: new Map<string, number>(), now: 7200, policy: defaultPolicy };
  const mediansOf = async (work: () => unknown) => {
    const all: number[] = [];
    for (let n = 0; n < 5; n++) all.push(await seconds(async () => work()));
    return median(all) * 1000;
  };
  const choose = await mediansOf(() => chooseNext(openBacklog(queues, state), state));
  const names = Array.from({ length: drives }, (_, n) => `drive-${n + 1}`);
  const idle = { libraryId: 1, volumeId: null, mounted: undefined, running: { files: 0, bytes: 0 } };
  const plan = await mediansOf(() =>
    planAhead({ queues, drives: names.map((name) => ({ name, ...idle })), ...state, shares: new Map() }),
  );
  console.log(
    `${drives} drives, ${queues.length} volumes: choose a volume ${digits(choose)} ms, plan the queue ${digits(plan)} ms`,
  );
}

const memoryLibrary: DriveLibrary = {
  async mount(_volume, _drive, signal) {
    await sleep(mountMs, undefined, { signal });
    return {
      async *read({ size }) {
        yield new Uint8Array(Number(size));
      },
      unmount: async () => {},
    };
  },
};

/** Adds volumes with `FILES` files each below `/read/`, and `waiting` files on other volumes below `/wait/`. */
async function fillVolumes(ctx: Context, volumes: number): Promise<void> {
  const { pool } = ctx.db;
  await setQuota(ctx, { user: 'bench', size: 10n ** 15n });
  const add = async (prefix: string, files: number, perVolume: number) => {
    await pool.query(
      `INSERT INTO volume (name) SELECT '${prefix}' || n FROM generate_series(0, ${Math.ceil(files / perVolume) - 1}) n`,
    );
    await pool.query(
      `INSERT INTO tape_file (path, size, stage, volume_id, position)
       SELECT '/${prefix}/' || n / 1000 || '/' || n, ${SIZE}, 'ONTAPE', v.id, n % ${perVolume} + 1
       FROM generate_series(0, ${files - 1}) n JOIN volume v ON v.name = '${prefix}' || n / ${perVolume}`,
    );
  };
  await add('read', volumes * FILES, FILES);
  if (waiting > 0) await add('wait', waiting, 10_000);
  await pool.query('ANALYZE');
}

function postmasterOf({ config }: Context): number {
  return Number(readFileSync(path.join(config.dataDir, 'postgres/postmaster.pid'), 'utf8').split('\n')[0]);
}

const cpuOf = (pid: number) => [...readTree(pid).values()].reduce((sum, each) => sum + each.cpuSeconds, 0);

/** Samples a process tree twice a second. @returns a function that ends the sampling and returns the samples' maximum */
function watchPeak(of: () => number): () => number {
  let most = 0;
  const timer = setInterval(() => {
    most = Math.max(most, of());
  }, 500);
  return () => {
    clearInterval(timer);
    return most;
  };
}

const countConnections = (ctx: Context) => [...readTree(postmasterOf(ctx)).values()].filter(isConnection).length;

/** Waits until a request is completed. Uses its own connection, because many drives keep all of the pool's in use. */
async function untilCompleted({ db }: Context, requestId: number): Promise<void> {
  const client = new db.Client(db.config);
  await client.connect();
  const read = () => client.query<{ state: string }>('SELECT state FROM request WHERE id = $1', [requestId]);
  while ((await read()).rows[0]?.state !== 'COMPLETED') await sleep(250);
  await client.end();
}

async function measureEngine(site: Context, drives: number): Promise<void> {
  const ctx = { ...site, config: { ...site.config, drives } };
  await fillVolumes(ctx, drives * mounts);
  if (waiting > 0) {
    await createRequest(ctx, { quota: 'bench', pattern: '/wait/' });
    await ctx.db.pool.query(
      `INSERT INTO suspension (kind, name, mode, reason, since) SELECT 'VOLUME', name, 'IMMEDIATE', '', now() FROM volume WHERE name LIKE 'wait%'`,
    );
  }
  const id = await createRequest(ctx, { quota: 'bench', pattern: '/read/' });
  const postmaster = postmasterOf(ctx);
  const [cpu, database] = [process.cpuUsage(), cpuOf(postmaster)];
  const connections = watchPeak(() => countConnections(ctx));
  const engine = await startEngine(ctx, memoryLibrary);
  const spent = await seconds(() => untilCompleted(ctx, id));
  const { user, system } = process.cpuUsage(cpu);
  const [own, theirs] = [(user + system) / 1e6, cpuOf(postmaster) - database];
  const perMount = (value: number) => `${digits((value / (drives * mounts)) * 1000)} ms`;
  console.log(
    `${drives} drives, ${waiting} other files: ${drives * mounts} mounts in ${digits(spent)} s (at best ${digits((mounts * mountMs) / 1000)} s), processor time per mount ${perMount(own)} engine and ${perMount(theirs)} database, ${connections()} connections, ${digits(process.memoryUsage().rss / 1e6)} MB`,
  );
  await engine.stop();
}

function startWork(ctx: Context, drives: number): ChildProcess {
  const env = { ...process.env, DATA_DIR: ctx.config.dataDir, DRIVES: String(drives), LOG_LEVEL: 'error' };
  const program = path.join(packageRoot, 'dist/program/tapegate.cjs');
  return spawn(process.execPath, [program, 'work'], { env, stdio: ['ignore', 'ignore', 'inherit'] });
}

async function measureProcesses(ctx: Context, dir: string, drives: number): Promise<void> {
  const source = path.join(dir, 'source');
  await writeFiles(source, drives * FILES * 2, SIZE);
  const library = createFirstLibrary({ dataDir: ctx.config.dataDir });
  const options = { dir: source, prefix: '/bench', volumeSize: BigInt(FILES * SIZE) };
  await archiveTree(ctx, library, options, { signal: new AbortController().signal });
  await setQuota(ctx, { user: 'bench', size: 10n ** 15n });
  const id = await createRequest(ctx, { quota: 'bench', pattern: '/bench/' });
  const connections = watchPeak(() => countConnections(ctx));
  const work = startWork(ctx, drives);
  const spent = await seconds(() => untilFinished(ctx, id));
  await sleep(5000);
  const isDrive = ({ command }: ProcessFigures) => /engine-process\.cjs drive/.test(command);
  const found = [...readTree(work.pid ?? 0).values()].filter(isDrive).map(({ pssBytes }) => pssBytes / 1e6);
  const database = [...readTree(postmasterOf(ctx)).values()].reduce((sum, { pssBytes }) => sum + pssBytes / 1e6, 0);
  const startedAt = [cpuOf(work.pid ?? 0), cpuOf(postmasterOf(ctx)), performance.now()] as const;
  await sleep(20_000);
  const percent = (cpuOf(work.pid ?? 0) + cpuOf(postmasterOf(ctx)) - startedAt[0] - startedAt[1]) / 0.2;
  console.log(
    `${drives} drives: ${found.length} processes of ${digits(median(found))} MB each, finished after ${digits(spent)} s, at most ${connections()} connections, database ${digits(database)} MB; afterwards ${digits(percent)} % of a core`,
  );
  work.kill('SIGTERM');
  await once(work, 'exit');
}

const quiet = { PORT: '0', LOG_LEVEL: 'error' };
if (only === undefined || only === 'planning') for (const drives of driveCounts) await measurePlanning(drives);
if (only === undefined || only === 'engine')
  for (const drives of driveCounts) await withBench((ctx) => measureEngine(ctx, drives), quiet);
if (only === undefined || only === 'processes')
  for (const drives of processCounts) await withBench((ctx, dir) => measureProcesses(ctx, dir, drives), quiet);
