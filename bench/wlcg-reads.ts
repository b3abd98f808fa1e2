/**
 * Reading from a storage element: a file of SIZE bytes (1 GB) from a stand-in for one in another process, by a library of the kind `wlcg`, which compares the
 * Adler-32 that the server tells. Beside it `curl` of the same bytes from the same stand-in, which compares nothing. ROUNDS times (7) in turn, over
 * HTTPS, and over plain HTTP, which is for one host alone and shows what the library itself takes.
 *
 *   npm run compile && node dist/bench/wlcg-reads.js
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { wlcg } from '../src/tape/wlcg/index.js';
import { inTurns, tellFigure } from './figures.js';
import { seconds, writeFiles } from './kit.js';

const size = Number(process.env.SIZE ?? 1024 * 1024 * 1024);
const rounds = Number(process.env.ROUNDS ?? 7);
const run = promisify(execFile);

const dir = mkdtempSync(path.join(process.env.BENCH_DIR ?? os.tmpdir(), 'tapegate-bench-'));
const source = path.join(dir, 'source');
mkdirSync(source);
await writeFiles(source, 1, size);
try {
  for (const protocol of ['https', 'http'])
    await measure(protocol, protocol === 'https' ? path.join(dir, 'ca.pem') : '');
} finally {
  rmSync(dir, { recursive: true });
}

async function measure(protocol: string, caFile: string): Promise<void> {
  const script = fileURLToPath(new URL('wlcg-stand-in.js', import.meta.url));
  const env = { ...process.env, STAGED: 'on', TLS: caFile };
  const standIn = spawn(process.execPath, [script, source], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    const [line] = (await once(createInterface(standIn.stdout), 'line')) as [string];
    const settings = JSON.parse(line) as { url: string };
    const file = { path: '/0000/file-000000.nc', volume: 'V1', position: null, size: BigInt(size) };
    const library = wlcg.create(wlcg.parse(settings), { name: 'tape', dataDir: dir, env: {} });
    const read = async () => {
      let bytes = 0;
      for await (const chunk of library.read(file, 0n, new AbortController().signal)) bytes += chunk.length;
      if (bytes !== size) throw new Error(`${bytes} bytes came, of ${size}`);
    };
    const trusted = caFile === '' ? [] : ['--cacert', caFile];
    const given = ['--silent', '--fail', '--output', '/dev/null', ...trusted, `${settings.url}${file.path}`];
    await read(); // the stand-in works out the checksum once
    const times = await inTurns(
      { tapegate: () => seconds(read), curl: () => seconds(() => run('curl', given)) },
      rounds,
    );
    for (const [name, { all }] of Object.entries(times)) {
      console.log(`${protocol.padEnd(5)} ${name.padEnd(8)} ${all.map((each) => each.toFixed(2)).join(', ')} s`);
    }
    const rate = ({ median }: { median: number }) => size / 1e6 / median;
    const figure = { work: `reading ${size / 1e6} MB over ${protocol} from a storage element`, unit: 'MB/s' };
    const bound = protocol === 'https' ? { bound: 0.8 } : {};
    tellFigure({ ...figure, ours: rate(times.tapegate), beside: 'curl', reference: rate(times.curl), ...bound });
  } finally {
    standIn.kill();
  }
}
