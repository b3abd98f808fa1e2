/**
 * Compares a restore of small files with `cp`, a sync and `sha256sum` of the same files. Tapegate and the reference run
 * ROUNDS times each (default 5), in alternating order. One request restores COUNT (default 10,000) files of SIZE bytes
 * (default 4,096) from the directory library to a restore disk. The restore includes SHA-256, syncs and database
 * writes. The engine has a process for each drive, as with `work`.
 *
 * Usage: npm run compile && node dist/bench/small-files.js
 */
import path from 'node:path';
import { setQuota } from '../src/domain/quotas/quotas.js';
import { archiveTree } from '../src/engine/archive/archive.js';
import { createFirstLibrary } from '../src/tape/kinds.js';
import { inTurns, tellFigure } from './figures.js';
import { seconds, withBench, writeFiles } from './kit.js';
import { copyAll, restoreAll } from './restores.js';

const count = Number(process.env.COUNT ?? 10_000);
const size = Number(process.env.SIZE ?? 4096);
const rounds = Number(process.env.ROUNDS ?? 5);

await withBench(async (ctx, dir, startEngine) => {
  const source = path.join(dir, 'source');
  await writeFiles(source, count, size);
  const library = createFirstLibrary({ dataDir: ctx.config.dataDir });
  const signal = new AbortController().signal;
  const archive = await seconds(() =>
    archiveTree(ctx, library, { dir: source, prefix: '/bench', volumeSize: BigInt((count * size) / 4) }, { signal }),
  );
  console.log(
    `${count} files of ${size} bytes archived in ${archive.toFixed(2)} s, ${(count / archive).toFixed(0)} a second`,
  );
  await setQuota(ctx, { user: 'bench', size: 10n ** 15n });
  const bench = { dir, bytes: count * size };
  const stopEngine = await startEngine();
  const times = await inTurns(
    { tapegate: () => restoreAll(ctx, bench), copied: () => copyAll(ctx, bench, { isSynced: true }) },
    rounds,
  );
  await stopEngine();

  tellFigure({
    work: `restore of ${count} files of ${size} bytes`,
    ours: count / times.tapegate.median,
    reference: count / times.copied.median,
    beside: 'cp, sync, sha256sum',
    unit: 'files/s',
    bound: 0.35,
  });
});
