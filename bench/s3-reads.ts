/**
 * Reading from S3: an object of SIZE bytes (1 GB) from a stand-in for S3 in another process, by a library of the kind `s3`, which compares
 * the CRC-64/NVME that S3 has of it. Beside it `curl` of the same bytes from the same stand-in, which compares nothing. ROUNDS times (7)
 * in turn.
 *
 *   npm run compile && node dist/bench/s3-reads.js
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createS3Library } from '../src/tape/s3/library.js';
import { parseS3Settings } from '../src/tape/s3/settings.js';
import { inTurns, tellFigure } from './figures.js';
import { seconds, writeFiles } from './kit.js';

const size = Number(process.env.SIZE ?? 1024 * 1024 * 1024);
const rounds = Number(process.env.ROUNDS ?? 7);
const run = promisify(execFile);

const dir = mkdtempSync(path.join(process.env.BENCH_DIR ?? os.tmpdir(), 'tapegate-bench-'));
await writeFiles(dir, 1, size);
const standIn = spawn(process.execPath, [fileURLToPath(new URL('s3-stand-in.js', import.meta.url)), dir], {
  env: { ...process.env, PUBLIC: 'on' },
  stdio: ['ignore', 'pipe', 'inherit'],
});
try {
  const [line] = (await once(createInterface(standIn.stdout), 'line')) as [string];
  const settings = JSON.parse(line);
  const file = { path: '/0000/file-000000.nc', volume: 'S3', position: null, size: BigInt(size) };
  const known = { accessKeyIdEnv: 'KEY', secretAccessKeyEnv: 'SECRET' };
  const env = { KEY: 'AKIATESTS', SECRET: 'a secret of tests' };
  const library = createS3Library(parseS3Settings({ ...settings, ...known }), env);
  const read = async () => {
    let bytes = 0;
    for await (const chunk of library.read(file, 0n, new AbortController().signal)) bytes += chunk.length;
    if (bytes !== size) throw new Error(`${bytes} bytes came, of ${size}`);
  };
  const url = `${settings.endpoint}/${settings.bucket}${file.path}`;
  const curl = () => run('curl', ['--silent', '--fail', '--output', '/dev/null', url]);
  const times = await inTurns({ tapegate: () => seconds(read), curl: () => seconds(curl) }, rounds);
  for (const [name, { all }] of Object.entries(times))
    console.log(`${name.padEnd(8)} ${all.map((each) => each.toFixed(2)).join(', ')} s`);
  const rate = ({ median }: { median: number }) => size / 1e6 / median;
  const figure = { work: `reading ${size / 1e6} MB from S3`, unit: 'MB/s', ours: rate(times.tapegate) };
  tellFigure({ ...figure, beside: 'curl', reference: rate(times.curl) });
} finally {
  standIn.kill();
  rmSync(dir, { recursive: true });
}
