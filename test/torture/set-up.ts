/** Makes the world of a torture, and takes all of it away again. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { readConfig } from '../../src/config.js';
import type { Context } from '../../src/context.js';
import { archiveTree } from '../../src/engine/archive.js';
import { setDisk } from '../../src/operations/disks/disks.js';
import { addLibrary } from '../../src/operations/libraries/add.js';
import { setQuota } from '../../src/operations/quotas/quotas.js';
import { openRuntime, type Runtime } from '../../src/runtime.js';
import { backendNames, createBackend } from '../../src/tape/index.js';
import { startSweeper } from '../support/sweeping.js';
import { makeTempDir } from '../support/temp-dir.js';
import { createCallers } from './callers.js';
import { MAIL_RATES } from './check-mail.js';
import { WATCH_CLAIMS } from './drive-claims.js';
import { type MoodyMail, startMail } from './mail.js';
import { cliFile, clockFile, engineFile, type Kept, keepRunning, kindFile } from './processes.js';
import type { Random } from './random.js';
import { addRemotes } from './remote-libraries.js';
import { scanFolders } from './restore-scan.js';
import type { TortureOptions } from './run.js';
import { type Stranger, startStranger } from './stranger.js';
import { makeTree, type Source } from './tree.js';
import { addHooks, startHooks } from './webhooks.js';
import { EAST, type LateTree, noCounts, type RestoreDisk, VOLUME_BYTES, type World } from './world.js';

const USERS = ['ample', 'enough', 'short', 'tight'];
/** Of the whole archive, in hundredths, that each may hold. */
const QUOTAS = [1000, 100, 20, 5];
/**
 * An engine takes drives up to its number, so that each engine has some and all of them want the first ones. The first is the
 * program's own, a process for each drive; the others have short leases, and a back end that fails.
 */
const DRIVES = [2, 4, 6];
/** Another one each time that an engine starts. */
const WEIGHTS = [1, 2, 5];
const SMALL_DISK_BYTES = 16n * 1024n * 1024n;
/** Of the file system itself. */
const IMAGE_OVERHEAD_BYTES = 2n * 1024n * 1024n;
/** Wall clocks of engines: one of four is wrong until the engine starts anew. */
const CLOCK_OFFSETS = [0, 0, 0, 0, 0, 0, 6 * 24 * 3600, -6 * 24 * 3600];
const CLOSE_MS = 10_000;

export interface Ready {
  world: World;
  dir: string;
  /** Ends every process that was started, unmounts, and removes the folder unless it is to be kept. */
  tearDown(keepFolder: boolean): Promise<void>;
}

export async function setUp(random: Random, options: TortureOptions): Promise<Ready> {
  const dir = makeTempDir('torture');
  const sweeper = startSweeper(dir);
  const dataDir = path.join(dir, 'data');
  const logDir = path.join(dir, 'logs');
  mkdirSync(logDir);
  const closers: (() => Promise<unknown>)[] = [];
  const tearDown = async (keepFolder: boolean) => {
    for (const close of closers) {
      const closed = close().catch((error) => console.error(error));
      await Promise.race([closed, sleep(CLOSE_MS, undefined, { ref: false })]);
    }
    await sweeper.sweep({ keepFolder });
  };
  try {
    const disks = makeDisks(dir);
    const config = readConfig({ DATA_DIR: dataDir, LOG_LEVEL: 'silent', WEBHOOK_HOSTS: '127.0.0.1' }, backendNames);
    const runtime: Runtime = await openRuntime(config);
    closers.unshift(() => runtime.close());
    await runtime.ctx.db.pool.query(WATCH_CLAIMS);
    const { sources, lateTrees } = await fillArchive(runtime.ctx, random, { dir, ...options });
    await splitLibrary(runtime.ctx);
    const remotes = await addRemotes(runtime.ctx, random, { sources, ...options });
    closers.unshift(() => remotes.end());
    const totalBytes = [...sources.values()].reduce((sum, { size }) => sum + size, 0n);
    for (const { mountpoint } of disks) await setDisk(runtime.ctx, { mountpoint, size: totalBytes / 3n });
    for (const [index, user] of USERS.entries()) {
      await setQuota(runtime.ctx, { user, size: (totalBytes * BigInt(QUOTAS[index] ?? 0)) / 100n });
    }
    const mail = await startMail(random.fork());
    closers.unshift(() => mail.goAway());
    const hooks = await startHooks(random.fork());
    closers.unshift(() => hooks.goAway());
    await addHooks(runtime.ctx, hooks, USERS[0] ?? '');
    const linkRoot = path.join(dir, 'archive');
    mkdirSync(linkRoot);
    const processes = startProcesses(random, { dataDir, logDir, linkRoot, mail });
    closers.unshift(async () => {
      for (const kept of processes) kept.end();
    });
    const stranger = await invite(dir, disks, sources);
    closers.unshift(async () => stranger?.end());
    const [gateway, ...engines] = processes;
    const world: World = {
      ctx: runtime.ctx,
      dataDir,
      logDir,
      users: USERS,
      totalBytes,
      sources,
      lateTrees,
      disks,
      mail,
      hooks,
      linkRoot,
      linksLost: [],
      remotes,
      engines,
      gateway,
      counts: { ...noCounts },
      answeredAt: undefined,
      touched: new Set(),
      bulks: new Set(),
      acknowledged: new Set(),
      revivals: new Map(),
      asked: new Map(),
      watches: [],
      miswritten: new Set(),
      withdrawn: new Set(),
      versions: new Map(),
      openRetirements: new Set(),
      stranger,
      stuck: [],
      callers: await createCallers(runtime.ctx, USERS),
    };
    return { world, dir, tearDown };
  } catch (error) {
    await tearDown(false);
    throw error;
  }
}

/** Before anything is restored; the folders that are there are the site's, and none is Tapegate's. */
async function invite(
  dir: string,
  disks: readonly RestoreDisk[],
  sources: ReadonlyMap<string, Source>,
): Promise<Stranger | undefined> {
  const folders = new Set(
    [...sources.keys()].filter((file) => file.startsWith('/data/')).map((file) => path.dirname(file)),
  );
  const stranger = startStranger(dir, disks, [...folders].sort());
  for (const { mountpoint } of stranger ? disks : []) {
    for (const { path: folder, found } of await scanFolders(mountpoint, [])) {
      if (found) stranger?.folders.set(mountpoint + folder, found.ino);
    }
  }
  return stranger;
}

/** Two folders, and where mounting is allowed a small disk that can really fill up, and fail. */
function makeDisks(dir: string): RestoreDisk[] {
  const small = path.join(dir, 'small');
  const disks: RestoreDisk[] = [
    { mountpoint: path.join(dir, 'restore-1') },
    { mountpoint: path.join(dir, 'restore-2') },
  ];
  mkdirSync(small);
  if (mountImage(dir, small) || mountMemory(small)) {
    const ballast = path.join(small, 'ballast');
    disks.push({ mountpoint: path.join(small, 'restore'), capacity: SMALL_DISK_BYTES, ballast, fileSystem: small });
  }
  for (const { mountpoint } of disks) mkdirSync(mountpoint);
  return disks;
}

/** One that can be frozen. @returns false for who is not root, and in some containers */
function mountImage(dir: string, at: string): boolean {
  const image = path.join(dir, 'small.ext4');
  writeFileSync(image, '');
  truncateSync(image, Number(SMALL_DISK_BYTES + IMAGE_OVERHEAD_BYTES));
  const isMade = run('mkfs.ext4', ['-q', '-F', '-m', '0', '-O', '^has_journal', image]);
  return isMade && run('mount', ['-o', 'loop', image, at]);
}

function mountMemory(at: string): boolean {
  return run('mount', ['-t', 'tmpfs', '-o', `size=${SMALL_DISK_BYTES},mode=755`, 'tapegate-torture', at]);
}

function run(command: string, args: readonly string[]): boolean {
  return spawnSync(command, args, { stdio: 'ignore' }).status === 0;
}

interface Archive {
  sources: Map<string, Source>;
  lateTrees: LateTree[];
}

async function fillArchive(
  ctx: Context,
  random: Random,
  options: { dir: string; files: number; maxBytes: number; lateTrees: number },
): Promise<Archive> {
  const { files, maxBytes } = options;
  const base = { dir: path.join(options.dir, 'source/base'), prefix: '/data' };
  const sources = await makeTree(random, { ...base, folders: Math.ceil(files / 15), files, maxBytes });
  const backend = createBackend('directory', { dataDir: ctx.config.dataDir });
  const { failed } = await archiveTree(
    ctx,
    backend,
    { ...base, volumeSize: BigInt(VOLUME_BYTES) },
    {
      signal: new AbortController().signal,
    },
  );
  if (failed.length > 0) throw new Error(`not archived: ${failed.join(', ')}`);
  const lateTrees: LateTree[] = [];
  for (let n = 0; n < options.lateTrees; n++) {
    const tree = { dir: path.join(options.dir, `source/late-${n}`), prefix: `/late/t${n}`, isArchived: false };
    const late = await makeTree(random, { ...tree, folders: 1, files: random.integer(1, 4), maxBytes });
    for (const [file, source] of late) sources.set(file, source);
    lateTrees.push(tree);
  }
  return { sources, lateTrees };
}

/** Every second volume is in a library of its own, with drives of its own, be it in the same folder. */
async function splitLibrary(ctx: Context): Promise<void> {
  const folder = path.resolve(ctx.config.dataDir, 'library');
  const { id } = await addLibrary(ctx, { name: EAST, kind: 'directory', settings: { folder }, drives: 2 });
  await ctx.db.pool.query('UPDATE volume SET library_id = $1 WHERE id % 2 = 0', [id]);
}

function startProcesses(
  random: Random,
  options: { dataDir: string; logDir: string; linkRoot: string; mail: MoodyMail },
): [Kept, ...Kept[]] {
  const { dataDir, logDir, linkRoot, mail } = options;
  const gateway = keepRunning({
    name: 'gateway',
    args: [cliFile, 'serve'],
    env: () => ({ DATA_DIR: dataDir, PORT: '0' }),
    logDir,
  });
  const engines = DRIVES.map((drives, index) => {
    const own = random.fork();
    return keepRunning({
      name: `engine-${index + 1}`,
      args: [...[clockFile, kindFile].flatMap(load), ...(index === 0 ? [cliFile, 'work'] : [engineFile])],
      env: () => ({
        DATA_DIR: dataDir,
        DRIVES: String(drives),
        ENGINE_WEIGHT: String(own.pick(WEIGHTS)),
        SMTP_URL: mail.url,
        WEBHOOK_HOSTS: '127.0.0.1',
        LINK_ROOT: linkRoot,
        MAIL_RATE: String(MAIL_RATES.mailRate),
        USER_MAIL_RATE: String(MAIL_RATES.userMailRate),
        REQUEST_DAYS: '0', // what has ended becomes compact with the next pass
        CLOCK_OFFSET_SECONDS: String(own.pick(CLOCK_OFFSETS)),
        FAULT_SEED: String(own.integer(0, 2 ** 32 - 1)),
      }),
      logDir,
    });
  });
  return [gateway, ...engines];
}

/** Before the program, in its child processes as well. */
function load(file: string): string[] {
  return ['--import', pathToFileURL(file).href];
}
