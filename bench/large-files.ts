/**
 * Compares a restore of large files with `cp` and `sha256sum` of the same files. Tapegate and the reference run ROUNDS
 * times each (default 5), in alternating order. One request restores COUNT (default 8) files of SIZE bytes (default 256
 * MB) from the directory library to a restore disk, with SHA-256. The engine has a process for each drive, as with
 * `work`.
 *
 * Tapegate syncs each file and its directory. The reference is measured without a sync, and with `sync -f` after `cp`.
 * Copies of `cp` are not durable without a sync.
 *
 * Usage: npm run compile && node dist/bench/large-files.js
 */
import path from 'node:path';
import { setQuota } from '../src/domain/quotas/quotas.js';
import { archiveTree } from '../src/engine/archive/archive.js';
import { createFirstLibrary } from '../src/tape/kinds.js';
import { inTurns, tellFigure } from './figures.js';
import { withBench, writeFiles } from './kit.js';
import { copyAll, restoreAll } from './restores.js';

const count = Number(process.env.COUNT ?? 8);
const size = Number(process.env.SIZE ?? 256 * 1024 * 1024);
const rounds = Number(process.env.ROUNDS ?? 5);

await withBench(async (ctx, dir, startEngine) => {
  const source = path.join(dir, 'source');
  await writeFiles(source, count, size);
  const library = createFirstLibrary({ dataDir: ctx.config.dataDir });
  const signal = new AbortController().signal;
  const volumeSize = BigInt((count * size) / ctx.config.drives);
  await archiveTree(ctx, library, { dir: source, prefix: '/bench', volumeSize, move: true }, { signal });
  await setQuota(ctx, { user: 'bench', size: 10n ** 15n });
  const bench = { dir, bytes: count * size };
  const stopEngine = await startEngine();
  const times = await inTurns(
    {
      tapegate: () => restoreAll(ctx, bench),
      unsynced: () => copyAll(ctx, bench, { isSynced: false }),
      synced: () => copyAll(ctx, bench, { isSynced: true }),
    },
    rounds,
  );
  await stopEngine();

  for (const [name, { all }] of Object.entries(times)) {
    console.log(`${name.padEnd(8)} ${all.map((each) => each.toFixed(2)).join(', ')} s`);
  }
  const rate = ({ median }: { median: number }) => (count * size) / 1e6 / median;
  const figure = { work: `restore of ${count} files of ${size / 1e6} MB`, unit: 'MB/s', ours: rate(times.tapegate) };
  tellFigure({ ...figure, beside: 'cp, sha256sum', reference: rate(times.unsynced) });
  tellFigure({ ...figure, beside: 'cp, sync, sha256sum', reference: rate(times.synced), bound: 1 });
});
