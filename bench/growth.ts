/**
 * Measures how a Tapegate grows with its catalogue: import, search, large requests, the plan, expiry, backup, and an
 * idle engine. Prints a table with a column for each size.
 *
 * FILES (default 1000000,3000000) lists the sizes, in multiples of PIECE (default 1,000,000). The server's import
 * command adds one piece after another. Sizes above SQL_ABOVE (default: none) are filled by SQL statements instead, in the
 * same shape, and their GIN indexes are created afterwards. The list request names REQUEST (default 100,000) files, evenly spread over the
 * catalogue. The pattern request takes the 446,400 files of a month, or fewer in a smaller catalogue. Requests are
 * repeated ROUNDS (default 3) times, and medians are printed. ONLY=search measures only rows whose names contain the
 * text.
 *
 * With BENCH_KEEP, the database stays in this directory. After MINUTES (default: no limit), the benchmark stops before
 * the next piece or size, and the next run continues. Sizes below that of a kept catalogue are not measured again.
 *
 * Usage: npm run compile && FILES=1000000,3000000 node dist/bench/growth.js
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { to as copyTo } from 'pg-copy-streams';
import { packageRoot } from '../src/core/package-root.js';
import { secondsOf } from '../src/core/time.js';
import type { Context } from '../src/domain/context.js';
import { setQuota } from '../src/domain/quotas/quotas.js';
import { readShares } from '../src/domain/quotas/shares.js';
import { readDriveWork } from '../src/domain/recalls/drive-work.js';
import { readQueues, readVolumeQueue } from '../src/domain/recalls/queue.js';
import { expireRequests } from '../src/domain/requests/ends.js';
import { readDueWork } from '../src/domain/site/due-work.js';
import { groupByVolume } from '../src/planner/queue.js';
import { chooseNext, defaultPolicy, openBacklog } from '../src/planner/schedule.js';
import { removeUnheld } from '../src/restore-area/copies/removal.js';
import { chooseSearches, pathsOf } from './catalogue.js';
import { digits } from './figures.js';
import { median, seconds, withBench } from './kit.js';
import { readProc, readTree } from './process-tree.js';

const PIECE = Number(process.env.PIECE ?? 1_000_000);
const REQUEST_FILES = Number(process.env.REQUEST ?? 100_000);
const rounds = Number(process.env.ROUNDS ?? 3);
const sizes = (process.env.FILES ?? '1000000,3000000').split(',').map(Number);
const sqlAbove = Number(process.env.SQL_ABOVE ?? Number.POSITIVE_INFINITY);
const endsAt = performance.now() + Number(process.env.MINUTES ?? Number.POSITIVE_INFINITY) * 60_000;
const PER_VOLUME = 20_000;
const MONTH = '/2016/01/';
const IDLE_SECONDS = 30;
const program = path.join(packageRoot, 'dist/program/tapegate.cjs');

/** Measured values by row of the table and size of the catalogue. */
class Table {
  private readonly rows = new Map<string, Map<number, string>>();
  private files = 0;

  begin(files: number): void {
    this.files = files;
  }

  add(row: string, value: number, unit: string): void {
    const text = `${digits(value)} ${unit}`;
    console.log(`${this.files.toLocaleString('en-US')} files, ${row}: ${text}`);
    this.rows.set(row, (this.rows.get(row) ?? new Map<number, string>()).set(this.files, text));
  }

  print(): void {
    const columns = [...new Set([...this.rows.values()].flatMap((row) => [...row.keys()]))];
    console.log(`\n| files | ${columns.map((files) => files.toLocaleString('en-US')).join(' | ')} |`);
    console.log(`|---${'|---:'.repeat(columns.length)}|`);
    for (const [name, row] of this.rows)
      console.log(`| ${name} | ${columns.map((files) => row.get(files) ?? '').join(' | ')} |`);
  }
}

const table = new Table();

const isWanted = (row: string) => row.includes(process.env.ONLY ?? '');

async function measure(row: string, work: () => Promise<unknown>, times = 5): Promise<void> {
  if (!isWanted(row)) return;
  const all: number[] = [];
  for (let n = 0; n < times; n++) all.push(await seconds(work));
  addSeconds(row, median(all));
}

function addSeconds(row: string, value: number): void {
  if (value < 1) table.add(row, value * 1000, 'ms');
  else table.add(row, value, 's');
}

/** Runs a command of the program. @returns its seconds, and its peak memory in bytes */
async function runCommand(ctx: Context, args: readonly string[]): Promise<{ spent: number; peak: number }> {
  const env = { ...process.env, DATA_DIR: ctx.config.dataDir };
  const child = spawn(process.execPath, [program, ...args], { env, stdio: ['ignore', 'ignore', 'inherit'] });
  let peak = 0;
  const timer = setInterval(() => {
    peak = Math.max(peak, peakOf(child));
  }, 50);
  let code: unknown;
  const spent = await seconds(async () => {
    [code] = await once(child, 'close');
  });
  clearInterval(timer);
  if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}`);
  return { spent, peak };
}

/** Returns the peak memory of a process in bytes; 0 if the process has ended. */
function peakOf({ pid }: ChildProcess): number {
  try {
    return Number(/VmHWM:\s+(\d+)/.exec(readProc(pid ?? 0, 'status'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}

async function countFiles({ db }: Context): Promise<number> {
  const rows = await db.rows<{ files: number }>({ text: 'SELECT count(*)::int AS files FROM tape_file' });
  return rows[0]?.files ?? 0;
}

/** Imports the next piece of the catalogue. @returns the command's seconds and peak memory */
async function importPiece(ctx: Context, dir: string, first: number): Promise<{ spent: number; peak: number }> {
  const csv = path.join(dir, 'rows.csv');
  const client = new ctx.db.Client({ ...ctx.db.config, statement_timeout: false });
  await client.connect();
  const { text, values } = pathsOf(first, first + PIECE - 1, PIECE);
  await client.query('CREATE TEMP TABLE p (path text, size bigint)');
  await client.query({ text: `INSERT INTO p ${text}`, values });
  const volume = `'V' || (p.size - 1000000) / ${PER_VOLUME} + 1`;
  const place = `mod(p.size, ${PER_VOLUME}) AS position, 'adler32:' || substr(md5(p.path), 1, 8) AS checksum`;
  const rows = `SELECT p.path, p.size, 'T' AS stage, '2026-01-02T03:04:05' AS verified, ${volume} AS volume, ${place} FROM p`;
  await pipeline(client.query(copyTo(`COPY (${rows}) TO STDOUT (FORMAT csv, HEADER)`)), createWriteStream(csv));
  await client.end();
  const imported = await runCommand(ctx, ['import', '--json', csv]);
  rmSync(csv);
  return imported;
}

/**
 * Adds files by SQL until the catalogue has `files` files, and then creates the GIN indexes, whose definitions are kept
 * in a table meanwhile. The next run continues after MINUTES.
 * @returns whether the catalogue is complete
 */
async function fillUpTo({ db }: Context, files: number, first: number): Promise<boolean> {
  const client = new db.Client({ ...db.config, statement_timeout: false });
  await client.connect();
  await client.query(`SET maintenance_work_mem = '2GB'`);
  await client.query(
    `CREATE TABLE IF NOT EXISTS bench_index AS SELECT indexname AS name, replace(indexdef, 'CREATE INDEX', 'CREATE INDEX IF NOT EXISTS') AS definition
     FROM pg_indexes WHERE tablename = 'tape_file' AND indexdef LIKE '% USING gin %'`,
  );
  const { rows } = await client.query<{ name: string; definition: string }>('SELECT name, definition FROM bench_index');
  if (first < files) for (const { name } of rows) await client.query(`DROP INDEX IF EXISTS "${name}"`);
  await client.query(
    `INSERT INTO volume (name) SELECT 'V' || n FROM generate_series(1, ${Math.ceil(files / PER_VOLUME)}) n ON CONFLICT DO NOTHING`,
  );
  const pieces = Array.from({ length: Math.ceil((files - first) / PIECE) }, (_, n) => first + n * PIECE);
  const inserts = pieces.map((from) => insertOf(from));
  for (const statement of [...inserts, ...rows.map(({ definition }) => ({ text: definition, values: [] }))]) {
    if (performance.now() >= endsAt) break;
    const spent = await seconds(() => client.query(statement));
    console.log(`${statement.text.slice(0, 60)}: ${digits(spent)} s`);
  }
  const isComplete = performance.now() < endsAt;
  if (isComplete) await client.query('DROP TABLE bench_index');
  await client.end();
  return isComplete;
}

function insertOf(first: number): { text: string; values: unknown[] } {
  const { text, values = [] } = pathsOf(first, first + PIECE - 1, PIECE);
  return {
    text: `INSERT INTO tape_file (path, size, stage, verified, volume_id, position, checksum)
      SELECT p.path, p.size, 'ONTAPE', timestamp '2026-01-02 03:04:05', v.id, mod(p.size, ${PER_VOLUME}), 'adler32:' || substr(md5(p.path), 1, 8)
      FROM (${text}) p JOIN volume v ON v.name = 'V' || (p.size - 1000000) / ${PER_VOLUME} + 1 ORDER BY p.path`,
    values,
  };
}

/** Imports pieces until the catalogue has `files` files. @returns whether it has them before the time is over */
async function importUpTo(ctx: Context, dir: string, files: number): Promise<boolean> {
  const start = performance.now();
  let peak = 0;
  if (files > sqlAbove && !(await fillUpTo(ctx, files, await countFiles(ctx)))) return false;
  for (let have = await countFiles(ctx); have < files; have += PIECE) {
    if (performance.now() >= endsAt) return false;
    table.begin(have + PIECE);
    const piece = await importPiece(ctx, dir, have);
    peak = Math.max(peak, piece.peak);
    table.add(`import of the last ${PIECE.toLocaleString('en-US')} rows`, piece.spent, 's');
    table.add('import, peak memory of the command', peak / 1e6, 'MB');
  }
  console.log(`filling the catalogue took ${digits((performance.now() - start) / 1000)} s in all`);
  return true;
}

/** Starts the program with a command that runs until it is stopped. @returns the first line that it prints */
async function startProgram(ctx: Context, command: string): Promise<{ child: ChildProcess; line: string }> {
  const env = {
    ...process.env,
    DATA_DIR: ctx.config.dataDir,
    PORT: '0',
    ENGINE: 'off',
    DEMO: 'off',
    LOG_LEVEL: 'warn',
  };
  const child = spawn(process.execPath, [program, command], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  for await (const line of createInterface(child.stdout)) return { child, line };
  throw new Error(`${command} did not start`);
}

async function stopProgram(child: ChildProcess): Promise<void> {
  child.kill('SIGTERM');
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
}

async function fetchOk(url: string, init: RequestInit = {}): Promise<string> {
  const response = await fetch(url, init);
  const text = await response.text();
  if (!response.ok || text.startsWith('{"errors"')) throw new Error(`${url}: ${response.status} ${text.slice(0, 500)}`);
  return text;
}

const askGraphQL = (url: string, query: string) =>
  fetchOk(`${url}/graphql`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ query }),
  });

async function measureSearches(ctx: Context, url: string, files: number): Promise<void> {
  for (const { shape, match } of await chooseSearches(ctx, files)) {
    // the number of hits of these shapes grows with the catalogue
    if (['three letters', 'two letters', 'percent sign'].includes(shape)) continue;
    const address = `${url}/tape_control/api/v1/files?match=${encodeURIComponent(match)}`;
    await measure(`search: ${shape}`, () => fetchOk(address));
  }
  const page = '{ tapeFiles(match: "/neodc/s3a/", first: 50) { edges { node { path } } } }';
  await measure('search: first 50 files of a fifth of the catalogue', () => askGraphQL(url, page));
}

async function buildList({ db }: Context, files: number): Promise<string> {
  const step = Math.max(Math.floor(files / REQUEST_FILES), 1);
  const rows = await db.rows<{ path: string }>({
    text: 'SELECT path FROM tape_file WHERE mod(size, $1) = 0 ORDER BY size LIMIT $2',
    values: [step, REQUEST_FILES],
  });
  return JSON.stringify([{ quota: 'bench', files: rows.map((row) => row.path) }]);
}

const PLAN =
  '{ plan { filesWaiting drives { name users } queue(first: 50) { totalCount edges { node { volumeName } } } } }';

const WAITING =
  '{ requests(last: 1) { edges { node { waiting { at parts(first: 10) { edges { node { reason } } } } } } } }';

/** Measures what a drive does before a mount, and while it reads. The functions are those of src/engine/drive. */
async function measureDrive(ctx: Context): Promise<void> {
  const choose = async () => {
    const queues = groupByVolume(await readQueues(ctx, { libraryId: 1 }));
    const state = { shares: await readShares(ctx), now: secondsOf(ctx.now()), policy: defaultPolicy };
    return chooseNext(openBacklog(queues, state), state)?.queue;
  };
  await measure('drive: choose a volume', choose);
  const volume = await choose();
  if (!volume) throw new Error('no volume waits');
  const users = volume.users.map(({ user }) => user);
  await measure('drive: read the queue of a volume', () => readVolumeQueue(ctx, { volumeId: volume.volumeId, users }));
  await measure('engine: search for work for drives', () => readDriveWork(ctx));
  await measure('engine: search for due jobs', () => readDueWork(ctx));
}

async function measureRequests(ctx: Context, url: string, files: number): Promise<void> {
  if (!['request', 'plan', 'drive', 'engine', 'expiry', 'dashboard'].some((row) => isWanted(row))) return;
  const list = await buildList(ctx, files);
  const post = (body: string) =>
    fetchOk(`${url}/tape_control/api/v1/requests`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body,
    });
  const times = { list: [] as number[], pattern: [] as number[], expiry: [] as number[], release: [] as number[] };
  for (let round = 0; round < rounds; round++) {
    times.list.push(await seconds(() => post(list)));
    times.pattern.push(await seconds(() => post(JSON.stringify([{ quota: 'bench', patterns: MONTH }]))));
    if (round === 0) {
      const rows = await ctx.db.rows<{ n: number }>({ text: 'SELECT count(*)::int AS n FROM recall' });
      console.log(`${rows[0]?.n} files wait`);
      await measure('plan', () => askGraphQL(url, PLAN));
      await measure('plan: why the second request waits', () => askGraphQL(url, WAITING));
      await measure('metrics', () => fetchOk(`${url}/metrics`));
      await measureDrive(ctx);
    }
    await ctx.db.pool.query(
      `UPDATE request SET retention = now() - interval '1 minute' WHERE state NOT IN ('EXPIRED', 'CANCELLED')`,
    );
    times.expiry.push(await seconds(() => expireRequests(ctx)));
    times.release.push(await seconds(() => removeUnheld(ctx, new AbortController().signal)));
  }
  addSeconds(`request of ${REQUEST_FILES.toLocaleString('en-US')} listed files`, median(times.list));
  addSeconds('request of a pattern with 446,400 files', median(times.pattern));
  addSeconds('expiry of both requests', median(times.expiry));
  addSeconds('expiry: release their files', median(times.release));
}

async function measureIdleEngine(ctx: Context): Promise<void> {
  if (!isWanted('idle engine')) return;
  const { child } = await startProgram(ctx, 'work');
  const postmaster = Number(
    readFileSync(path.join(ctx.config.dataDir, 'postgres/postmaster.pid'), 'utf8').split('\n')[0],
  );
  const cpu = () =>
    [child.pid ?? 0, postmaster]
      .flatMap((pid) => [...readTree(pid).values()])
      .reduce((sum, each) => sum + each.cpuSeconds, 0);
  await sleep(IDLE_SECONDS * 1000);
  const before = cpu();
  await sleep(IDLE_SECONDS * 1000);
  table.add('idle engine and database', ((cpu() - before) / IDLE_SECONDS) * 100, '% of a core');
  await stopProgram(child);
}

async function measureCommands(ctx: Context, dir: string): Promise<void> {
  if (isWanted('backup')) {
    const target = path.join(dir, 'backup');
    const backup = await runCommand(ctx, ['backup', target]);
    addSeconds('backup', backup.spent);
    table.add('backup, peak memory of the command', backup.peak / 1e6, 'MB');
    rmSync(target, { recursive: true });
  }
  if (isWanted('doctor')) addSeconds('doctor', (await runCommand(ctx, ['doctor'])).spent);
}

async function measureSize(ctx: Context, dir: string, files: number): Promise<void> {
  table.begin(files);
  await setQuota(ctx, { user: 'bench', size: 10n ** 15n });
  await ctx.db.pool.query('VACUUM (ANALYZE) tape_file');
  const rows = await ctx.db.rows<{ bytes: number; table: number }>({
    text: `SELECT pg_database_size(current_database())::float8 AS bytes, pg_table_size('tape_file')::float8 AS table`,
  });
  table.add('database', (rows[0]?.bytes ?? 0) / 1e9, 'GB');
  table.add('database: table of files without indexes', (rows[0]?.table ?? 0) / 1e9, 'GB');
  const { child, line } = await startProgram(ctx, 'start');
  try {
    const url = /http:\S+/.exec(line)?.[0] ?? '';
    await measureSearches(ctx, url, files);
    await measureRequests(ctx, url, files);
    table.add('gateway, peak memory', peakOf(child) / 1e6, 'MB');
  } finally {
    await stopProgram(child);
  }
  await measureIdleEngine(ctx);
  await measureCommands(ctx, dir);
}

const { BENCH_KEEP } = process.env;
await withBench(
  async (ctx, dir) => {
    for (const files of sizes) {
      if ((await countFiles(ctx)) > files) continue;
      if (!(await importUpTo(ctx, dir, files)) || performance.now() >= endsAt) break;
      await measureSize(ctx, dir, files);
    }
    table.print();
  },
  { PORT: '0', ...(BENCH_KEEP && { DATA_DIR: BENCH_KEEP }) },
);
