/** A small archive of real bytes on a few volumes, and two users, so that there is something to try at once. */
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import type { Context } from './context.js';
import { archiveTree } from './engine/archive.js';
import { setQuota } from './operations/quotas.js';
import type { TapeBackend } from './tape/backend.js';

const YEARS = [2023, 2024, 2025];
const FILES_A_YEAR = 8;
const FILE_BYTES = 1_500_000;
/** A year a volume. */
const VOLUME_BYTES = BigInt(FILES_A_YEAR * FILE_BYTES);

/** Does nothing where the catalogue or the list of quotas has an entry. */
export async function makeDemo(ctx: Context, backend: TapeBackend): Promise<boolean> {
  const { rows } = await ctx.db.pool.query(
    'SELECT EXISTS (SELECT FROM tape_file) OR EXISTS (SELECT FROM quota) AS "isUsed"',
  );
  if (rows[0]?.isUsed) return false;
  const dir = await mkdtemp(path.join(os.tmpdir(), 'tapegate-demo-'));
  try {
    for (const year of YEARS) {
      await mkdir(path.join(dir, String(year)));
      for (let month = 1; month <= FILES_A_YEAR; month++) {
        const name = `sst_${year}${String(month).padStart(2, '0')}.nc`;
        await writeFile(path.join(dir, String(year), name), randomBytes(FILE_BYTES));
      }
    }
    const input = { dir, prefix: '/demo/ocean', spot: 'spot-demo', volumeSize: VOLUME_BYTES };
    await archiveTree(ctx, backend, input, { signal: new AbortController().signal });
  } finally {
    await rm(dir, { recursive: true });
  }
  await setQuota(ctx, { user: 'alice', size: 100_000_000n, email: 'alice@example.org', notes: 'demo' });
  await setQuota(ctx, { user: 'bob', size: 10_000_000n, email: 'bob@example.org', notes: 'demo, small on purpose' });
  return true;
}
