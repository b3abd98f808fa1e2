/**
 * Large files: COUNT files (8) of SIZE bytes (256 MB) by one request, from the directory back end to a restore disk, with
 * SHA-256, against `cp` of the same files followed by `sha256sum` of the copies. ROUNDS times (5) in turn, in one run.
 *
 * Both read from the page cache, filled before each measurement by reading all files once, and both begin with nothing
 * left to be written and with memory that was just in use. Tapegate syncs each file and its folder; the reference is
 * measured as it is, and with one `sync -f` after `cp`, without which its copies are not durable.
 *
 *   npm run build && node dist/bench/large-files.js
 */
import { execFileSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import path from 'node:path';
import { archiveTree } from '../src/engine/archive.js';
import { startEngine } from '../src/engine/runner.js';
import { setQuota } from '../src/operations/quotas/quotas.js';
import { createRequest } from '../src/operations/requests/create.js';
import { cancelRequest } from '../src/operations/requests/ends.js';
import { createBackend } from '../src/tape/index.js';
import { median, seconds, touchMemory, untilFinished, untilRemoved, withBench, writeFiles } from './kit.js';

const count = Number(process.env.COUNT ?? 8);
const size = Number(process.env.SIZE ?? 256 * 1024 * 1024);
const rounds = Number(process.env.ROUNDS ?? 5);

await withBench(async (ctx, dir) => {
  const source = path.join(dir, 'source');
  await writeFiles(source, count, size);
  const backend = createBackend('directory', { dataDir: ctx.config.dataDir });
  const signal = new AbortController().signal;
  const volumeSize = BigInt((count * size) / ctx.config.drives);
  await archiveTree(ctx, backend, { dir: source, prefix: '/bench', volumeSize, move: true }, { signal });
  await setQuota(ctx, { user: 'bench', size: 10n ** 15n });
  const library = path.join(ctx.config.dataDir, 'library');
  const copy = path.join(dir, 'copy');
  const shell = (script: string) => execFileSync('sh', ['-c', script], { cwd: dir });
  const settle = () => {
    shell(`sync; find '${library}' -type f -exec cat {} + > /dev/null`);
    touchMemory(count * size);
  };
  const engine = await startEngine(ctx, backend);

  const restore = async () => {
    let id = 0;
    settle();
    const spent = await seconds(async () => {
      id = await createRequest(ctx, { quota: 'bench', pattern: '/bench/' });
      const state = await untilFinished(ctx, id);
      if (state !== 'COMPLETED') throw new Error(`the request is ${state}, not COMPLETED`);
    });
    await cancelRequest(ctx, id);
    await untilRemoved(ctx);
    return spent;
  };
  const reference = async (sync: string) => {
    settle();
    const spent = await seconds(async () => {
      shell(`cp -r '${library}' '${copy}' ${sync} && find '${copy}' -type f -print0 | xargs -0 sha256sum > /dev/null`);
    });
    rmSync(copy, { recursive: true });
    return spent;
  };

  const times = { tapegate: [] as number[], unsynced: [] as number[], synced: [] as number[] };
  for (let round = 0; round < rounds; round++) {
    times.tapegate.push(await restore());
    times.unsynced.push(await reference(''));
    times.synced.push(await reference(`&& sync -f '${copy}'`));
  }
  await engine.stop();

  console.log(`${count} files of ${size / 1e6} MB, ${ctx.config.drives} drives, ${rounds} rounds, medians:`);
  const rate = (spent: readonly number[]) => (count * size) / 1e6 / median(spent);
  for (const [name, spent] of Object.entries({
    'Tapegate, durable': times.tapegate,
    'cp, sha256sum': times.unsynced,
    'cp, sync, sha256sum': times.synced,
  })) {
    const all = spent.map((each) => each.toFixed(2)).join(', ');
    console.log(`${name.padEnd(20)} ${median(spent).toFixed(2)} s, ${rate(spent).toFixed(0)} MB/s (${all})`);
  }
  console.log(`throughput of Tapegate to cp, sha256sum: ${(rate(times.tapegate) / rate(times.unsynced)).toFixed(2)}`);
  console.log(
    `throughput of Tapegate to cp, sync, sha256sum: ${(rate(times.tapegate) / rate(times.synced)).toFixed(2)}`,
  );
});
