/**
 * A database with FILES (1,000,000) files in its catalogue is backed up by the command while it is open, and put back, beside `cp -r` and a
 * sync of the same folder, which gives no backup. ROUNDS (3) in turns of alternating order, medians of bytes a second.
 *
 *   npm run compile && FILES=10000000 ROUNDS=1 node dist/bench/backup.js
 */
import { execFileSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import path from 'node:path';
import type { Context } from '../src/context.js';
import { packageRoot } from '../src/package-root.js';
import { fillCatalogue } from './catalogue.js';
import { inTurns, tellFigure } from './figures.js';
import { seconds, withBench } from './kit.js';

const files = Number(process.env.FILES ?? 1_000_000);
const rounds = Number(process.env.ROUNDS ?? 3);

/** @returns what the command says */
function tapegate(dataDir: string, ...args: string[]): string {
  const script = path.join(packageRoot, 'dist/program/tapegate.cjs');
  const env = { ...process.env, DATA_DIR: dataDir };
  return execFileSync(process.execPath, [script, ...args], { env, encoding: 'utf8' });
}

/** A copy as others make it, until it is on disk. */
async function copy(from: string, to: string): Promise<void> {
  execFileSync('cp', ['-r', '--reflink=never', from, to]);
  execFileSync('sync', ['-f', to]);
  rmSync(to, { recursive: true });
}

async function measure({ config, db }: Context, dir: string): Promise<void> {
  await db.pool.query('CHECKPOINT');
  const [kept, aside] = [path.join(dir, 'backup'), path.join(dir, 'aside')];
  const cluster = path.join(config.dataDir, 'postgres');
  const { bytes } = JSON.parse(tapegate(config.dataDir, 'backup', kept, '--json')) as { bytes: number };
  const rates = await inTurns(
    {
      backup: async () => {
        const took = await seconds(async () => tapegate(config.dataDir, 'backup', aside));
        rmSync(aside, { recursive: true });
        return bytes / 1e6 / took;
      },
      copyOut: async () => bytes / 1e6 / (await seconds(() => copy(cluster, aside))),
      restore: async () => {
        const took = await seconds(async () => tapegate(aside, 'restore', kept));
        rmSync(aside, { recursive: true });
        return bytes / 1e6 / took;
      },
      copyBack: async () => bytes / 1e6 / (await seconds(() => copy(kept, aside))),
    },
    rounds,
  );
  const of = `of ${files.toLocaleString('en-US')} files, ${Math.round(bytes / 1e6)} MB`;
  const beside = 'cp and a sync';
  const { backup, copyOut, restore, copyBack } = rates;
  tellFigure({ work: `backup ${of}`, ours: backup.median, reference: copyOut.median, beside, unit: 'MB/s' });
  tellFigure({ work: `restore ${of}`, ours: restore.median, reference: copyBack.median, beside, unit: 'MB/s' });
}

await withBench(async (ctx, dir) => {
  await fillCatalogue(ctx, files);
  await measure(ctx, dir);
});
