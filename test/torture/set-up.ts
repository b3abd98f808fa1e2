/** Sets up the archive, the servers and the processes of a torture test, and removes them afterwards. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openRuntime } from '../../src/cli/connection/runtime.js';
import { readConfig } from '../../src/config/config.js';
import { packageRoot } from '../../src/core/package-root.js';
import { prepareCluster } from '../../src/db/embedded/cluster.js';
import type { Context } from '../../src/domain/context.js';
import { setDisk } from '../../src/domain/disks/disks.js';
import { addLibrary } from '../../src/domain/libraries/changes.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { archiveTree } from '../../src/engine/archive/archive.js';
import { createFirstLibrary } from '../../src/tape/kinds.js';
import { prepareClock } from '../support/moved-clock.js';
import { startSweeper } from '../support/sweeping.js';
import { makeTempDir } from '../support/temp-dir.js';
import { MAIL_RATES } from './check-messages.js';
import { WATCH_ENDS } from './clock-jumps.js';
import './moved-server.js';
import { createObserved } from './facts.js';
import { cliFile, engineFiles, type KeptProcess, keepRunning, movedServer, WATCH_CLAIMS } from './processes.js';
import { type Random, randomFile, type Source } from './random.js';
import { addWebhooks, startMail, startWebhooks } from './receivers.js';
import type { TortureOptions } from './run.js';
import { addStagingLibraries } from './staging-systems.js';
import { createClients } from './tokens.js';
import { EAST, noCounts, type TortureDisk, VOLUME_BYTES, type World } from './world.js';

/** Quota of each user, in percent of the size of all files. */
const QUOTAS: Record<string, bigint> = { ample: 1000n, enough: 100n, short: 20n, tight: 5n };
/**
 * Number of drives for each engine. All engines compete for the first drives.
 * The first engine is the real program, with a process for each drive. The other engines have short leases and a
 * library
 * that fails.
 */
const DRIVES = [2, 4, 6];
/** Weight of an engine, and offset of its wall clock in seconds. Each start of an engine draws new values. */
const WEIGHTS = [1, 2, 5];
const CLOCK_OFFSETS = [0, 0, 0, 0, 0, 0, 6 * 24 * 3600, -6 * 24 * 3600];
const SMALL_DISK_BYTES = 16n * 1024n * 1024n;
const FILE_SYSTEM_BYTES = 2n * 1024n * 1024n;
const CLOSE_MS = 10_000;

export interface Ready {
  world: World;
  dir: string;
  /** Ends all processes, unmounts the file system, and removes the directory unless `keepDir` is set. */
  tearDown(keepDir: boolean): Promise<void>;
}

export async function setUp(random: Random, options: TortureOptions): Promise<Ready> {
  const dir = makeTempDir('torture');
  const sweeper = startSweeper(dir);
  const [dataDir, logDir, linkRoot] = ['data', 'logs', 'archive'].map((name) => path.join(dir, name)) as [
    string,
    string,
    string,
  ];
  mkdirSync(logDir);
  mkdirSync(linkRoot);
  const closers: (() => unknown)[] = [];
  const tearDown = async (keepDirectory: boolean) => {
    for (const close of closers) {
      const closed = Promise.resolve(close()).catch((error) => console.error(error));
      await Promise.race([closed, sleep(CLOSE_MS, undefined, { ref: false })]);
    }
    await sweeper.sweep({ keepDirectory });
  };
  try {
    const disks = makeDisks(dir);
    const clusterDir = path.join(dataDir, 'postgres');
    await prepareCluster(clusterDir);
    const clock = prepareClock(clusterDir);
    if (clock) closers.push(async () => clock.close());
    const config = readConfig({ DATA_DIR: dataDir, LOG_LEVEL: 'silent', TAPEGATE_WEBHOOK_HOSTS: '127.0.0.1' });
    const runtime = await openRuntime(config);
    closers.unshift(() => runtime.close());
    const { ctx } = runtime;
    await ctx.db.pool.query(WATCH_CLAIMS);
    if (clock) await ctx.db.pool.query(WATCH_ENDS);
    const { sources, lateTrees } = await fillArchive(ctx, random, { ...options, dir });
    await splitLibrary(ctx);
    const stagingSystems = await addStagingLibraries(ctx, random, { sources, ...options });
    closers.unshift(() => stagingSystems.end());
    const totalBytes = [...sources.values()].reduce((sum, { size }) => sum + size, 0n);
    for (const { mountpoint } of disks) await setDisk(ctx, { mountpoint, size: totalBytes / 3n });
    const users = Object.keys(QUOTAS);
    for (const [user, percent] of Object.entries(QUOTAS))
      await setQuota(ctx, { user, size: (totalBytes * percent) / 100n });
    const mail = await startMail(random.fork());
    closers.unshift(() => mail.goAway());
    const webhooks = await startWebhooks(random.fork());
    closers.unshift(() => webhooks.goAway());
    await addWebhooks(ctx, webhooks, 'ample');
    const [gateway, ...engines] = startProcesses(random, { dataDir, logDir, linkRoot, smtpUrl: mail.url });
    closers.unshift(() => {
      for (const kept of [gateway, ...engines]) kept.end();
    });
    const { mails } = mail;
    const { messages } = webhooks;
    const world: World = {
      ...{ ctx, dataDir, logDir, linkRoot, users, totalBytes, lateTrees, disks, mail, webhooks, stagingSystems },
      ...{ engines, gateway, counts: { ...noCounts }, answeredAt: undefined },
      clock: clock && { shiftTo: clock.shiftTo, isJumping: false, quietUntil: 0 },
      clients: await createClients(ctx, users),
      observed: createObserved({ sources, mails, messages, archivePaths: { root: linkRoot, losses: [] } }),
    };
    return { world, dir, tearDown };
  } catch (error) {
    await tearDown(false);
    throw error;
  }
}

/**
 * Creates two restore disks, and a small third disk if mounting is allowed. The small disk can be filled and can fail.
 */
function makeDisks(dir: string): TortureDisk[] {
  const small = path.join(dir, 'small');
  const disks: TortureDisk[] = ['restore-1', 'restore-2'].map((name) => ({ mountpoint: path.join(dir, name) }));
  mkdirSync(small);
  if (mountImage(dir, small) || mountMemory(small)) {
    const ballast = path.join(small, 'ballast');
    disks.push({ mountpoint: path.join(small, 'restore'), capacity: SMALL_DISK_BYTES, ballast, fileSystem: small });
  }
  for (const { mountpoint } of disks) mkdirSync(mountpoint);
  return disks;
}

/** Mounts a file system that can be frozen. @returns false without root privileges and in some containers */
function mountImage(dir: string, at: string): boolean {
  const image = path.join(dir, 'small.ext4');
  writeFileSync(image, '');
  truncateSync(image, Number(SMALL_DISK_BYTES + FILE_SYSTEM_BYTES));
  const isMade = run('mkfs.ext4', ['-q', '-F', '-m', '0', '-O', '^has_journal', image]);
  return isMade && run('mount', ['-o', 'loop', image, at]);
}

function mountMemory(at: string): boolean {
  return run('mount', ['-t', 'tmpfs', '-o', `size=${SMALL_DISK_BYTES},mode=755`, 'tapegate-torture', at]);
}

function run(command: string, args: readonly string[]): boolean {
  return spawnSync(command, args, { stdio: 'ignore' }).status === 0;
}

async function fillArchive(
  ctx: Context,
  random: Random,
  { dir, files, maxBytes, lateTrees: trees }: { dir: string; files: number; maxBytes: number; lateTrees: number },
): Promise<Pick<World, 'lateTrees'> & { sources: Map<string, Source> }> {
  const sources = new Map<string, Source>();
  const makeTree = (name: string, prefix: string, count: number): string => {
    const tree = path.join(dir, 'source', name);
    for (let n = 0; n < count; n++) {
      const [group, file] = [n % Math.ceil(count / 15), n].map((number) => String(number).padStart(3, '0'));
      const { bytes, ...source } = randomFile(random, maxBytes);
      mkdirSync(`${tree}/g${group}`, { recursive: true });
      writeFileSync(`${tree}/g${group}/f${file}.nc`, bytes);
      sources.set(`${prefix}/g${group}/f${file}.nc`, source);
    }
    return tree;
  };
  const base = { dir: makeTree('base', '/data', files), prefix: '/data', volumeSize: BigInt(VOLUME_BYTES) };
  const library = createFirstLibrary({ dataDir: ctx.config.dataDir });
  const { failed } = await archiveTree(ctx, library, base, { signal: new AbortController().signal });
  if (failed.length > 0) throw new Error(`not archived: ${failed.join(', ')}`);
  const lateTrees = Array.from({ length: trees }, (_, n) => {
    const prefix = `/late/t${n}`;
    return { dir: makeTree(`late-${n}`, prefix, random.integer(1, 4)), prefix, isArchived: false };
  });
  return { sources, lateTrees };
}

/** Assigns every second volume to another library with its own drives. */
async function splitLibrary(ctx: Context): Promise<void> {
  const directory = path.resolve(ctx.config.dataDir, 'library');
  const { id } = await addLibrary(ctx, { name: EAST, kind: 'directory', settings: { directory }, drives: 2 });
  await ctx.db.pool.query('UPDATE volume SET library_id = $1 WHERE id % 2 = 0', [id]);
}

function startProcesses(
  random: Random,
  { dataDir, logDir, linkRoot, smtpUrl }: { dataDir: string; logDir: string; linkRoot: string; smtpUrl: string },
): [KeptProcess, ...KeptProcess[]] {
  const env = () => ({ DATA_DIR: dataDir, PORT: '0' });
  const gateway = keepRunning({ name: 'gateway', args: [...movedServer, cliFile, 'serve'], env, logDir });
  const engineFile = path.join(packageRoot, 'dist/test/torture/engine.js');
  const engines = DRIVES.map((drives, index) => {
    const own = random.fork();
    return keepRunning({
      name: `engine-${index + 1}`,
      args: [...engineFiles, ...(index === 0 ? [cliFile, 'work'] : [engineFile])],
      env: () => ({
        DATA_DIR: dataDir,
        DRIVES: String(drives),
        TAPEGATE_ENGINE_WEIGHT: String(own.pick(WEIGHTS)),
        SMTP_URL: smtpUrl,
        TAPEGATE_WEBHOOK_HOSTS: '127.0.0.1',
        TAPEGATE_LINK_ROOT: linkRoot,
        TAPEGATE_MAIL_RATE: String(MAIL_RATES.mailRate),
        TAPEGATE_REQUEST_DAYS: '0', // the next job deletes the texts of ended requests' emails
        CLOCK_SECONDS: String(own.pick(CLOCK_OFFSETS)),
        FAULT_SEED: String(own.integer(0, 2 ** 32 - 1)),
      }),
      logDir,
    });
  });
  return [gateway, ...engines];
}
