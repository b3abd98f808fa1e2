/**
 * Starts a second Tapegate on a copy of the database, as in a drill. The copy is a restored backup or a copy of the
 * files.
 * Users cancel and create requests in the copy. Before a takeover, the copy must not change disks, use libraries or
 * send
 * messages. The libraries, webhooks and emails of the copy use a server that only the copy knows and that records all
 * calls.
 * The checks of the restore disks find other changes.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openRuntime, type Runtime } from '../../src/cli/connection/runtime.js';
import { readConfig } from '../../src/config/config.js';
import { findServer } from '../../src/db/embedded/embedded.js';
import { sendGraphql } from '../support/graphql.js';
import { startMailServer } from '../support/mail-server.js';
import { TORTURE_TYPE } from './library-type.js';
import {
  cliFile,
  engineFiles,
  hangDatabase,
  type KeptProcess,
  keepRunning,
  movedServer,
  runProcess,
  signalDatabase,
} from './processes.js';
import type { Random } from './random.js';
import type { World } from './world.js';

const LOOK_MS = 200;
const START_MS = 120_000;
/** Run time of the copy, longer than the pauses between an engine's jobs. */
const WATCH_MS = { low: 4000, high: 10_000 };
const END_MS = 10_000;
/** Number of attempts, because the database may be killed during the copy. */
const TRIES = 4;

let last = 0;
let isRunning = false;

export async function runClone(world: World, random: Random): Promise<void> {
  const forMs = random.integer(WATCH_MS.low, WATCH_MS.high);
  const ownRandom = random.fork();
  if (isRunning) return;
  isRunning = true;
  try {
    for (let triesLeft = TRIES; triesLeft > 0; triesLeft--) {
      const isDone = await makeClone(world, ownRandom, async (dataDir) => {
        await useClone(world, { dataDir, random: ownRandom, forMs });
      });
      if (isDone) return;
    }
  } finally {
    isRunning = false;
  }
}

/** @returns false if the database could not be copied */
async function makeClone(world: World, random: Random, use: (dataDir: string) => Promise<void>): Promise<boolean> {
  const dataDir = path.join(path.dirname(world.dataDir), `clone-${++last}`);
  mkdirSync(dataDir);
  try {
    const isMade = random.chance(0.6) ? await restoreBackup(world, dataDir) : await copyFiles(world, dataDir);
    if (isMade) await use(dataDir);
    return isMade;
  } finally {
    await removeClone(dataDir);
  }
}

async function restoreBackup(world: World, dataDir: string): Promise<boolean> {
  const backup = path.join(dataDir, 'backup');
  for (const { args, of } of [
    { args: ['backup', backup], of: world.dataDir },
    { args: ['restore', backup], of: dataDir },
  ]) {
    const options = { name: 'clone', args: [...movedServer, cliFile, ...args], logDir: world.logDir };
    if ((await runProcess({ ...options, env: () => ({ DATA_DIR: of }) }, () => {})) !== 0) return false;
  }
  return true;
}

/** Copies the database's files while the database server is stopped with SIGSTOP, like a snapshot of a file system. */
async function copyFiles(world: World, dataDir: string): Promise<boolean> {
  const [from, to] = [world.dataDir, dataDir].map((dir) => path.join(dir, 'postgres')) as [string, string];
  let isCopied = false;
  const copy = async () => {
    const [code] = (await once(spawn('cp', ['-a', from, to], { stdio: 'ignore' }), 'exit')) as [number | null];
    isCopied = code === 0;
  };
  if (!(await hangDatabase(world.dataDir, copy)) || !isCopied) return false;
  rmSync(path.join(to, 'postmaster.pid'), { force: true });
  return true;
}

/** A server that only the copy of the database knows, and that records all emails and calls. */
interface Trap {
  mailUrl: string;
  url: string;
  reached: string[];
  close(): Promise<void>;
}

async function startTrap(): Promise<Trap> {
  const reached: string[] = [];
  const mail = await startMailServer();
  mail.onMail = ({ headers }) => reached.push(`it sent the email ${headers.get('message-id')}`);
  const server = createServer((request, response) => {
    reached.push(`it called ${request.url}`);
    response.writeHead(503).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const close = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await mail.close();
  };
  return { mailUrl: mail.url, url: `http://127.0.0.1:${port}`, reached, close };
}

async function useClone(
  world: World,
  { dataDir, random, forMs }: { dataDir: string; random: Random; forMs: number },
): Promise<void> {
  const trap = await startTrap();
  const kept: KeptProcess[] = [];
  let runtime: Runtime | undefined;
  try {
    runtime = await openRuntime(readConfig({ DATA_DIR: dataDir, LOG_LEVEL: 'silent' }), 'migrations');
    const { pool } = runtime.ctx.db;
    await pool.query('UPDATE webhook SET url = $1 || id', [`${trap.url}/webhook/`]);
    await pool.query(`UPDATE library SET settings = jsonb_build_object('url', $1 || name) WHERE kind = $2`, [
      `${trap.url}/library/`,
      TORTURE_TYPE,
    ]);
    const env = () => ({
      ...{ DATA_DIR: dataDir, PORT: '0', DRIVES: '1', SMTP_URL: trap.mailUrl, TAPEGATE_LINK_ROOT: world.linkRoot },
      ...{ TAPEGATE_WEBHOOK_HOSTS: '127.0.0.1', CLOCK_SECONDS: '0' },
    });
    const start = (name: string, args: readonly string[]) => {
      kept.push(keepRunning({ name: `clone-${name}`, args: [...args], env, logDir: world.logDir }));
    };
    start('gateway', [...movedServer, cliFile, 'serve']);
    const url = await waitFor(() => kept[0]?.find(/ready at (\S+)/));
    if (url === undefined) throw new Error('the copy of the database does not start');
    world.counts.clones++;
    const token = world.clients.operator.secret;
    const ask = async <T>(query: string) => (await sendGraphql({ url, token }, { query })).body.data as T;
    await useRequests(runtime, ask, random);
    const { rows } = await pool.query<{ last: bigint }>('SELECT coalesce(max(id), 0) AS last FROM event');
    start('engine', [...engineFiles, cliFile, 'work']);
    const readFence = async () =>
      (await ask<{ fence: { reason: string } | null }>('{ fence { reason } }')).fence?.reason;
    if ((await waitFor(readFence)) === undefined) trap.reached.push('it is not fenced');
    await sleep(forMs);
    if ((await readFence()) === undefined) trap.reached.push('it is not fenced any more');
    const started = await pool.query<{ count: bigint }>(
      `SELECT count(*) FROM event WHERE id > $1 AND to_stage IN ('RESTORING', 'RESTORED')`,
      [rows[0]?.last],
    );
    if (started.rows[0]?.count !== 0n) trap.reached.push(`it started ${started.rows[0]?.count} recalls`);
  } finally {
    for (const process of kept) process.end();
    await Promise.race([runtime?.close(), sleep(END_MS, undefined, { ref: false })]);
    await trap.close();
    world.observed.cloneActions.push(...trap.reached.map((what) => `${path.basename(dataDir)}: ${what}`));
  }
}

/** Cancels most requests in the copy, and creates a request for all files. */
async function useRequests({ ctx }: Runtime, ask: (query: string) => Promise<unknown>, random: Random): Promise<void> {
  const { rows } = await ctx.db.pool.query<{ id: number }>(
    `SELECT id FROM request WHERE state NOT IN ('EXPIRED', 'CANCELLED') ORDER BY id`,
  );
  for (const { id } of random.sample(rows, Math.ceil(rows.length * 0.8))) {
    await ask(`mutation { cancelRequest(input: { requestId: ${id} }) { errors { code } } }`);
  }
  await ask(`mutation { createRequest(input: { quota: "ample", pattern: "/", notifyOnFirstFile: "clone@example.org",
    notifyOnLastFile: "clone@example.org" }) { errors { code } } }`);
}

async function waitFor<T>(look: () => T | undefined | Promise<T | undefined>): Promise<T | undefined> {
  for (const deadline = performance.now() + START_MS; performance.now() < deadline; await sleep(LOOK_MS)) {
    const found = await look();
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Ends the copy's database server if necessary, and removes the copy. */
async function removeClone(dataDir: string): Promise<void> {
  signalDatabase(dataDir, 'SIGQUIT');
  const cluster = path.join(dataDir, 'postgres');
  for (let left = END_MS; findServer(cluster) && left > 0; left -= LOOK_MS) await sleep(LOOK_MS);
  rmSync(dataDir, { recursive: true, force: true, maxRetries: 5 });
}
