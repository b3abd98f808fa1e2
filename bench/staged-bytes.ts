/**
 * Measures restores through staging libraries of each type, or of the types in KIND, from a stand-in in another
 * process. The engine is the one of `work`, with two drives. All files are already on the stand-in's disk: no tape is
 * involved. SHAPES lists sets of files as number and size in MiB (`1x1024,8x256,64x16`). One request restores each set.
 *
 * The reference is one process of `curl --parallel --parallel-max 2`, followed by `sync`. The curl process writes the
 * same bytes from the same stand-in to files on the same disk. Two more figures are printed: curl without `sync`, and
 * curl with `sync` and a checksum of each file.
 *
 * The catalogue contains an Adler-32 of each file, as WLCG catalogues do, and the restore compares the checksum. With
 * CHECKSUM=none the catalogue has no checksums, and the restore computes SHA-256. Tapegate and curl run ROUNDS times
 * each (default 5), in alternating order, and medians are compared. Processor time is measured for curl, and for all
 * engine processes with their scripts. The time of the stand-in and of PostgreSQL is not counted.
 *
 * Usage: npm run compile && node dist/bench/staged-bytes.js
 */
import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { startHash } from '../src/core/running-hash.js';
import type { Context } from '../src/domain/context.js';
import { importRows } from '../src/domain/import/import.js';
import { addLibrary } from '../src/domain/libraries/changes.js';
import { setQuota } from '../src/domain/quotas/quotas.js';
import { createRequest } from '../src/domain/requests/create.js';
import { cancelRequest } from '../src/domain/requests/ends.js';
import { inTurns, tellFigure } from './figures.js';
import { median, seconds, touchMemory, untilFinished, untilRemoved, withBench, writeFiles } from './kit.js';
import { childrenSeconds, endedChildrenSeconds } from './processor-time.js';
import { type StandIn, stagedKinds } from './staged-kinds.js';

const MIB = 1024 * 1024;
const kinds = (process.env.KIND ?? Object.keys(stagedKinds).join(',')).split(',');
const shapes = (process.env.SHAPES ?? '1x1024,8x256,64x16').split(',').map(readShape);
const rounds = Number(process.env.ROUNDS ?? 5);
const isCatalogued = process.env.CHECKSUM !== 'none';
const run = promisify(execFile);

/** Set of files that one request restores. */
interface Shape {
  count: number;
  /** In bytes, of each file. */
  size: number;
  name: string;
}

/** Durations of one turn, in seconds. */
interface Spent {
  processor: number;
  /** Only for curl. */
  sync?: number;
  checksums?: number;
}

function readShape(text: string): Shape {
  const [count = 0, mebibytes = 0] = text.split('x').map(Number);
  return { count, size: mebibytes * MIB, name: text };
}

for (const kind of kinds) {
  const start = stagedKinds[kind];
  if (!start) throw new Error(`KIND must be of ${Object.keys(stagedKinds).join(', ')}, not ${kind}`);
  await withBench(async (ctx, dir, startEngine) => {
    const source = path.join(dir, 'source');
    const files = new Map<string, CatalogueFile[]>();
    for (const { name, count, size } of shapes) {
      await writeFiles(path.join(source, name), count, size);
      files.set(name, await listFiles(source, name));
    }
    const standIn = await start(dir, source);
    rmSync(source, { recursive: true }); // the stand-in has the files in memory
    try {
      const { settings } = standIn;
      await addLibrary(ctx, { name: 'element', kind, settings, drives: 2 });
      await addFiles(ctx, [...files.values()].flat());
      await setQuota(ctx, { user: 'bench', size: 10n ** 15n });
      const stopEngine = await startEngine();
      for (const shape of shapes) await measure(ctx, dir, { kind, shape, standIn, files: files.get(shape.name) ?? [] });
      await stopEngine();
    } finally {
      standIn.process.kill();
    }
  });
}

interface CatalogueFile {
  /** Logical path. */
  path: string;
  size: number;
  checksum: string | null;
}

async function listFiles(source: string, name: string): Promise<CatalogueFile[]> {
  const entries = readdirSync(path.join(source, name), { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name));
  return await Promise.all(
    files.map(async (file) => {
      const bytes = readFileSync(file);
      const checksum = isCatalogued ? `adler32:${await adler32Of(bytes)}` : null;
      return { path: `/${path.relative(source, file)}`, size: bytes.length, checksum };
    }),
  );
}

interface Work {
  kind: string;
  shape: Shape;
  standIn: StandIn;
  files: readonly CatalogueFile[];
}

async function measure(ctx: Context, dir: string, work: Work): Promise<void> {
  const { kind, shape } = work;
  const spent: Record<'tapegate' | 'curl', Spent[]> = { tapegate: [], curl: [] };
  const bytes = shape.count * shape.size;
  const ways = {
    tapegate: () => restore(ctx, work, spent.tapegate),
    curl: () => fetchAll(dir, work, spent.curl),
  };
  await inTurns(ways, 1); // warm-up: the stand-in computes checksums once, and V8 compiles hot code
  spent.tapegate.length = 0;
  spent.curl.length = 0;
  const times = await inTurns(ways, rounds);
  const megabytes = (all: readonly number[]) => bytes / 1e6 / median(all);
  for (const [name, { all }] of Object.entries(times)) {
    const processor = megabytes(spent[name as keyof typeof spent].map((each) => each.processor));
    const turns = all.map((each) => each.toFixed(2)).join(', ');
    console.log(`${name.padEnd(8)} ${turns} s; ${processor.toFixed(0)} MB in a second of processor time`);
  }
  const after = (...names: ('sync' | 'checksums')[]) =>
    megabytes(times.curl.all.map((each, n) => names.reduce((sum, name) => sum + (spent.curl[n]?.[name] ?? 0), each)));
  const figure = {
    work: `restore of ${shape.count === 1 ? 'a file' : `${shape.count} files`} of ${shape.size / MIB} MiB through ${kind}`,
    unit: 'MB/s',
    ours: megabytes(times.tapegate.all),
  };
  tellFigure({ ...figure, beside: 'curl', reference: megabytes(times.curl.all) });
  tellFigure({ ...figure, beside: 'curl, sync', reference: after('sync'), bound: 0.8 });
  tellFigure({ ...figure, beside: 'curl, sync, checksum', reference: after('sync', 'checksums') });
}

/**
 * Restores the files with one request, and removes the copies afterwards.
 * @returns the seconds from the request to its end
 */
async function restore(ctx: Context, { shape, standIn }: Work, spent: Spent[]): Promise<number> {
  let id = 0;
  touchMemory(shape.count * shape.size);
  const processor = () => childrenSeconds([standIn.process.pid]);
  const before = processor();
  const elapsed = await seconds(async () => {
    id = await createRequest(ctx, { quota: 'bench', pattern: `/${shape.name}/` });
    const state = await untilFinished(ctx, id);
    if (state !== 'COMPLETED') throw new Error(`the request is ${state}, not COMPLETED`);
  });
  spent.push({ processor: processor() - before });
  await cancelRequest(ctx, id);
  await untilRemoved(ctx);
  return elapsed;
}

/** Fetches the files with curl, then syncs, reads and removes the copies. @returns the seconds of curl alone */
async function fetchAll(dir: string, { shape, standIn, files }: Work, spent: Spent[]): Promise<number> {
  const copies = path.join(dir, 'copies');
  mkdirSync(copies);
  touchMemory(shape.count * shape.size);
  const targets = files.map((_, index) => path.join(copies, String(index)));
  const outputs = files.flatMap((file, index) => ['--output', targets[index] ?? '', standIn.urlOf(file.path)]);
  const options = ['--silent', '--fail', ...standIn.curlOptions, '--parallel', '--parallel-max', '2'];
  const before = endedChildrenSeconds();
  const elapsed = await seconds(() => run('curl', [...options, ...outputs]));
  const processor = endedChildrenSeconds() - before;
  const sync = await seconds(() => run('sync', [...targets, copies]));
  const checksums = await seconds(async () => (isCatalogued ? takeAdler32(targets) : run('sha256sum', targets)));
  spent.push({ processor, sync, checksums });
  rmSync(copies, { recursive: true });
  return elapsed;
}

async function adler32Of(bytes: Uint8Array): Promise<string> {
  const hash = await startHash('adler32');
  hash.update(bytes);
  return hash.digest().toString('hex');
}

/** Computes the checksums in this process: Debian has no program for Adler-32. */
async function takeAdler32(files: readonly string[]): Promise<void> {
  for (const file of files) await adler32Of(readFileSync(file));
}

async function addFiles(ctx: Context, files: readonly CatalogueFile[]): Promise<void> {
  await importRows(
    ctx,
    files.map((file, index) => ({
      line: index + 1,
      path: file.path,
      size: BigInt(file.size),
      stage: 'ONTAPE' as const,
      verified: '2026-01-02T03:04:05',
      spotName: null,
      volume: 'ELEMENT',
      position: null,
      checksum: file.checksum,
      library: 'element',
    })),
  );
}
