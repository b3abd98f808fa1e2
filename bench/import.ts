/**
 * Compares an import of FILES (default 1,000,000) rows into an empty catalogue with a COPY of the same rows. The COPY
 * writes to a table with the same columns and indexes, but without foreign keys and triggers. The command and the COPY
 * run ROUNDS times each (default 3), in alternating order, and medians are compared. The benchmark also prints the
 * command's peak memory above that of an import of one row.
 *
 * Usage: npm run compile && FILES=10000000 ROUNDS=1 node dist/bench/import.js
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream, createWriteStream, readFileSync } from 'node:fs';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { from as copyFrom, to as copyTo } from 'pg-copy-streams';
import { packageRoot } from '../src/core/package-root.js';
import type { Context } from '../src/domain/context.js';
import { pathsOf } from './catalogue.js';
import { inTurns, tellFigure } from './figures.js';
import { seconds, withBench } from './kit.js';

const files = Number(process.env.FILES ?? 1_000_000);
const rounds = Number(process.env.ROUNDS ?? 3);
const PER_VOLUME = 20_000;
const MEMORY_BYTES = 100 * 1024 * 1024;

/** Runs `work` on a connection without a statement timeout. */
async function atLength(ctx: Context, work: (client: pg.Client) => Promise<void>): Promise<void> {
  const client = new ctx.db.Client({ ...ctx.db.config, statement_timeout: false });
  await client.connect();
  try {
    await work(client);
  } finally {
    await client.end();
  }
}

/** Writes the rows to two CSV files: one for the command, and one for COPY, which needs the ids of volumes. */
async function writeRows(ctx: Context, dir: string): Promise<{ ours: string; bare: string }> {
  const [ours, bare] = [path.join(dir, 'rows.csv'), path.join(dir, 'bare.csv')];
  const volume = `(p.size - 1000000) / ${PER_VOLUME} + 1`;
  const place = `mod(p.size, ${PER_VOLUME}) AS position, 'adler32:' || substr(md5(p.path), 1, 8) AS checksum`;
  const forms = {
    [ours]: `p.path, p.size, 'T' AS stage, '2026-01-02T03:04:05' AS verified, 'V' || ${volume} AS volume, ${place}`,
    [bare]: `p.path, p.size, 'ONTAPE', '2026-01-02T03:04:05', ${volume}, ${place}`,
  };
  await atLength(ctx, async (client) => {
    await client.query('CREATE TEMP TABLE p (path text, size bigint)');
    await client.query({ ...pathsOf(0, files - 1, files), text: `INSERT INTO p ${pathsOf(0, files - 1, files).text}` });
    for (const [file, columns] of Object.entries(forms)) {
      const rows = client.query(copyTo(`COPY (SELECT ${columns} FROM p) TO STDOUT (FORMAT csv, HEADER)`));
      await pipeline(rows, createWriteStream(file));
    }
  });
  return { ours, bare };
}

/** @returns the peak memory of the command, in bytes */
async function runImport(ctx: Context, file: string, count: number): Promise<number> {
  const script = path.join(packageRoot, 'dist/program/tapegate.cjs');
  const env = { ...process.env, DATA_DIR: ctx.config.dataDir };
  const child = spawn(process.execPath, [script, 'import', '--json', file], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let peak = 0;
  const look = () => {
    try {
      peak =
        Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1] ?? peak / 1024) * 1024;
    } catch {} // the process has ended, or the system has no /proc
  };
  const timer = setInterval(look, 50);
  let told = '';
  child.stdout.on('data', (chunk) => {
    told += chunk;
    look();
  });
  const [code] = await once(child, 'close');
  clearInterval(timer);
  if (code !== 0 || JSON.parse(told).added !== count) throw new Error(`the import ended with ${code}: ${told}`);
  return peak;
}

async function measure(ctx: Context, dir: string): Promise<void> {
  const rows = await writeRows(ctx, dir);
  const one = path.join(dir, 'one.csv');
  await pipeline(['path,size\n/one,1\n'], createWriteStream(one));
  const idle = await runImport(ctx, one, 1);
  let peak = 0;
  const empty = async () => {
    await ctx.db.pool.query('TRUNCATE tape_file CASCADE');
    await ctx.db.pool.query('TRUNCATE bare');
    await ctx.db.pool.query('CHECKPOINT');
  };
  const rates = await inTurns(
    {
      ours: async () => {
        await empty();
        return (
          files /
          (await seconds(async () => {
            peak = Math.max(peak, await runImport(ctx, rows.ours, files));
          }))
        );
      },
      bare: async () => {
        await empty();
        const columns = 'path, size, stage, verified, volume_id, position, checksum';
        const copy = (client: pg.Client) =>
          pipeline(
            createReadStream(rows.bare),
            client.query(copyFrom(`COPY bare (${columns}) FROM STDIN (FORMAT csv, HEADER)`)),
          );
        return files / (await seconds(() => atLength(ctx, copy)));
      },
    },
    rounds,
  );
  const work = `import of ${files.toLocaleString('en-US')} rows`;
  const [ours, reference] = [rates.ours.median, rates.bare.median];
  tellFigure({ work, ours, reference, beside: '\\copy into the same indexes', unit: 'rows/s', bound: 0.6 });
  const cost = { unit: 'MB', beside: 'at most', isCost: true, bound: 1 };
  tellFigure({
    work: `${work}: memory of the command above that of one row`,
    ours: (peak - idle) / 1e6,
    reference: MEMORY_BYTES / 1e6,
    ...cost,
  });
}

await withBench(async (ctx, dir) => {
  await ctx.db.pool.query('CREATE TABLE bare (LIKE tape_file INCLUDING ALL)');
  for (const table of ['tape_file', 'bare'])
    await ctx.db.pool.query(`ALTER TABLE ${table} SET (autovacuum_enabled = off)`);
  await measure(ctx, dir);
});
