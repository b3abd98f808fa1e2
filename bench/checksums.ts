/**
 * Checksums of restores, as a drive computes them chunk by chunk while it reads: SIZE bytes (1 GB) of each kind, in chunks of 128 kB that are in
 * memory, by processor time, ROUNDS times (5) in turn, in one run. Beside them SHA-256, which native code computes on the same thread.
 *
 *   npm run compile && node dist/bench/checksums.js
 */
import { randomBytes } from 'node:crypto';
import { startChecksum } from '../src/engine/checksum.js';
import { inTurns, tellFigure } from './figures.js';

const size = Number(process.env.SIZE ?? 1e9);
const rounds = Number(process.env.ROUNDS ?? 5);
/** More than the caches of a processor have. */
const chunks = Array.from({ length: 256 }, () => randomBytes(128 * 1024));

/** @returns MB in a second of processor time */
async function rateOf(algorithm: string): Promise<number> {
  const checksum = await startChecksum(`${algorithm}:`);
  const before = process.cpuUsage();
  let bytes = 0;
  while (bytes < size) {
    for (const chunk of chunks) {
      checksum.update(chunk);
      bytes += chunk.length;
    }
  }
  checksum.digest();
  const { user, system } = process.cpuUsage(before);
  return bytes / (user + system);
}

const rates = await inTurns(
  { adler32: () => rateOf('adler32'), sha256: () => rateOf('sha256'), md5: () => rateOf('md5') },
  rounds,
);
const figure = { unit: 'MB/s', reference: rates.sha256.median, beside: 'SHA-256' };
tellFigure({ ...figure, work: 'Adler-32 of one processor', ours: rates.adler32.median, bound: 2 });
tellFigure({ ...figure, work: 'MD5 of one processor', ours: rates.md5.median });
