/**
 * Small files, end to end: one request for COUNT files (10,000) of SIZE bytes (4,096), from the directory back end to a
 * restore disk, with SHA-256, sync and the database, against `cp` followed by `sha256sum` of the same files.
 *
 *   npm run build && node dist/bench/small-files.js
 */
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { archiveTree } from '../src/engine/archive.js';
import { startEngine } from '../src/engine/runner.js';
import { setQuota } from '../src/operations/quotas/quotas.js';
import { createRequest } from '../src/operations/requests/create.js';
import { getRequest } from '../src/operations/requests/rows.js';
import { createBackend } from '../src/tape/index.js';
import { secondsBetween } from '../src/time.js';
import { seconds, untilFinished, watchDatabase, withBench, writeFiles } from './kit.js';

const count = Number(process.env.COUNT ?? 10_000);
const size = Number(process.env.SIZE ?? 4096);

await withBench(async (ctx, dir) => {
  const source = path.join(dir, 'source');
  await writeFiles(source, count, size);
  const backend = createBackend('directory', { dataDir: ctx.config.dataDir });
  const signal = new AbortController().signal;
  const archive = await seconds(() =>
    archiveTree(ctx, backend, { dir: source, prefix: '/bench', volumeSize: BigInt((count * size) / 4) }, { signal }),
  );
  await setQuota(ctx, { user: 'bench', size: 10n ** 15n });
  const engine = await startEngine(ctx, backend);
  const stopWatch = watchDatabase();
  const start = performance.now();
  const id = await createRequest(ctx, { quota: 'bench', pattern: '/bench/' });
  const accepted = (performance.now() - start) / 1000;
  const state = await untilFinished(ctx, id);
  const total = (performance.now() - start) / 1000;
  const { busySeconds, statements } = stopWatch();
  const request = await getRequest(ctx, id);
  await engine.stop();

  const copy = path.join(dir, 'copy');
  const reference = await seconds(async () => {
    execFileSync('cp', ['-r', path.join(ctx.config.dataDir, 'library'), copy]);
    execFileSync('sh', ['-c', `find '${copy}' -type f -print0 | xargs -0 sha256sum > /dev/null && sync -f '${copy}'`]);
  });

  const span = secondsBetween(request.tapestoreRequestStart ?? '', request.tapestoreRequestEnd ?? '');
  console.log(`${count} files of ${size} bytes, ${ctx.config.drives} drives: ${state}, ${request.filesOnDisk} on disk`);
  console.log(`archived       ${archive.toFixed(2)} s, ${(count / archive).toFixed(0)} files/s`);
  console.log(`accepted after ${accepted.toFixed(2)} s`);
  console.log(
    `restored after ${total.toFixed(2)} s, ${(count / total).toFixed(0)} files/s (recalls alone ${span.toFixed(2)} s)`,
  );
  console.log(`database busy  ${((100 * busySeconds) / total).toFixed(0)} % of the time, ${statements} statements`);
  console.log(`cp + sha256sum + sync ${reference.toFixed(2)} s, ${(count / reference).toFixed(0)} files/s`);
});
