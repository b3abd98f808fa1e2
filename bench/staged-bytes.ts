/**
 * A restore through a staging library: COUNT files (8) of SIZE bytes (256 MB) by one request, from a stand-in for a storage element in another process, by
 * an engine as `work` starts it, with two drives that read. All of them are on disk there: what is measured are asking, reading, comparing and putting in
 * place, and no tape. Beside it `curl` of the same bytes from the same stand-in, two files at a time, into the same folder, which compares and syncs nothing.
 * ROUNDS times (5) in turn, over HTTPS.
 *
 *   npm run build && node dist/bench/staged-bytes.js
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Context } from '../src/context.js';
import { importRows } from '../src/operations/catalogue/import.js';
import { addLibrary } from '../src/operations/libraries/add.js';
import { setQuota } from '../src/operations/quotas/quotas.js';
import { createRequest } from '../src/operations/requests/create.js';
import { cancelRequest } from '../src/operations/requests/ends.js';
import { inTurns, tellFigure } from './figures.js';
import { seconds, touchMemory, untilFinished, untilRemoved, withBench, writeFiles } from './kit.js';

const count = Number(process.env.COUNT ?? 8);
const size = Number(process.env.SIZE ?? 256 * 1024 * 1024);
const rounds = Number(process.env.ROUNDS ?? 5);
const run = promisify(execFile);

await withBench(async (ctx, dir, startEngine) => {
  const source = path.join(dir, 'source', 'bench');
  const caFile = path.join(dir, 'ca.pem');
  await writeFiles(source, count, size);
  const script = fileURLToPath(new URL('wlcg-stand-in.js', import.meta.url));
  const env = { ...process.env, STAGED: 'on', TLS: caFile };
  const standIn = spawn(process.execPath, [script, path.dirname(source)], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    const [line] = (await once(createInterface(standIn.stdout), 'line')) as [string];
    const settings = JSON.parse(line) as { url: string };
    const paths = filesIn(source).map((name) => `/bench/${name}`);
    await addLibrary(ctx, { name: 'element', kind: 'wlcg', settings, drives: 2 });
    await addFiles(ctx, paths);
    await setQuota(ctx, { user: 'bench', size: 10n ** 15n });
    const stopEngine = await startEngine();
    const urls = paths.map((name) => `${settings.url}${name}`);
    const ways = { tapegate: () => restore(ctx), curl: () => fetchAll(dir, caFile, urls) };
    await restore(ctx); // the stand-in works out the checksums once
    const times = await inTurns(ways, rounds);
    await stopEngine();
    for (const [name, { all }] of Object.entries(times)) {
      console.log(`${name.padEnd(8)} ${all.map((each) => each.toFixed(2)).join(', ')} s`);
    }
    const rate = ({ median }: { median: number }) => (count * size) / 1e6 / median;
    const work = `restore of ${count} files of ${size / 1e6} MB from a storage element`;
    tellFigure({
      work,
      unit: 'MB/s',
      ours: rate(times.tapegate),
      beside: 'curl',
      reference: rate(times.curl),
      bound: 0.8,
    });
  } finally {
    standIn.kill();
  }
});

function filesIn(folder: string): string[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return entries.map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)));
}

/** Seconds from the request to its end; its copies are removed afterwards. */
async function restore(ctx: Context): Promise<number> {
  let id = 0;
  touchMemory(count * size);
  const spent = await seconds(async () => {
    id = await createRequest(ctx, { quota: 'bench', pattern: '/bench/' });
    const state = await untilFinished(ctx, id);
    if (state !== 'COMPLETED') throw new Error(`the request is ${state}, not COMPLETED`);
  });
  await cancelRequest(ctx, id);
  await untilRemoved(ctx);
  return spent;
}

async function fetchAll(dir: string, caFile: string, urls: readonly string[]): Promise<number> {
  const copies = path.join(dir, 'copies');
  touchMemory(count * size);
  const outputs = urls.flatMap((url, index) => ['--output', path.join(copies, String(index)), url]);
  const given = [
    '--silent',
    '--fail',
    '--create-dirs',
    '--cacert',
    caFile,
    '--parallel',
    '--parallel-max',
    '2',
    ...outputs,
  ];
  const spent = await seconds(() => run('curl', given));
  rmSync(copies, { recursive: true });
  return spent;
}

async function addFiles(ctx: Context, paths: readonly string[]): Promise<void> {
  await importRows(
    ctx,
    paths.map((name, index) => ({
      line: index + 1,
      path: name,
      size: BigInt(size),
      stage: 'ONTAPE' as const,
      verified: '2026-01-02T03:04:05',
      spotName: null,
      volume: 'ELEMENT',
      position: null,
      checksum: null,
      library: 'element',
    })),
  );
}
