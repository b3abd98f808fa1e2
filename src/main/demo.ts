/**
 * Creates two users, and a small demo archive with actual file contents on a few volumes. If the process is killed, the
 * next start completes the demo. The contents of the files are derived from their paths, so that each start creates the
 * same files. The demo's users are stored last, because their presence shows that the demo is complete.
 */

import { createCipheriv, createHash } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { ADVISORY_SPACE, advisoryKeys } from '../db/locks.js';
import { sql } from '../db/sql.js';
import type { Context } from '../domain/context.js';
import { registerRows } from '../domain/import/import.js';
import type { CatalogueRow } from '../domain/import/import-rows.js';
import { setQuota } from '../domain/quotas/quotas.js';
import { archiveTree } from '../engine/archive/archive.js';
import type { WritableLibrary } from '../tape/drive-library.js';

const YEARS = [2023, 2024, 2025];
const FILES_A_YEAR = 8;
const FILE_BYTES = 1_500_000;
const VOLUME_BYTES = BigInt(FILES_A_YEAR * FILE_BYTES);

const PREFIX = '/demo/ocean';
const BOB = { user: 'bob', size: 10_000_000n, email: 'bob@example.org', notes: 'demo, deliberately small' };
const ALICE = { user: 'alice', size: 100_000_000n, email: 'alice@example.org', notes: 'demo' };

export type Demo = 'made' | 'unused';

/**
 * Creates the demo. Does nothing if the demo is complete, or if the database contains requests, users or files outside
 * the demo.
 * @param archive calls `archiveDemo`
 * @returns undefined if the database contains other data
 */
export async function makeDemo(ctx: Context, archive: () => Promise<void>): Promise<Demo | undefined> {
  const client = await ctx.db.pool.connect();
  try {
    // take a database lock, because several processes might start concurrently on an empty database
    await client.query(sql`SELECT pg_advisory_lock(${ADVISORY_SPACE}::int, ${advisoryKeys.demo}::int)`);
    const { rows } = await client.query<{ isUsed: boolean; isComplete: boolean }>(sql`
      WITH user_of_demo AS (
        SELECT "user", "user" = ${ALICE.user} AS is_last FROM quota
        WHERE ("user", notes) IN ((${BOB.user}, ${BOB.notes}), (${ALICE.user}, ${ALICE.notes})) AND removed_at IS NULL
      )
      SELECT EXISTS (SELECT FROM quota WHERE "user" NOT IN (SELECT "user" FROM user_of_demo))
          OR EXISTS (SELECT FROM tape_file WHERE NOT starts_with(path, ${`${PREFIX}/`}))
          OR EXISTS (SELECT FROM request) AS "isUsed",
        EXISTS (SELECT FROM user_of_demo WHERE is_last) AS "isComplete"`);
    const [state] = rows;
    if (state?.isUsed) return undefined;
    if (state?.isComplete) return 'unused';
    await archive();
    await setQuota(ctx, BOB);
    await setQuota(ctx, ALICE);
    return 'made';
  } finally {
    client.release(true); // the database releases the lock when the connection closes
  }
}

/** Archives the files of the demo. A repeated call archives only the files that are missing. */
export async function archiveDemo(ctx: Context, library: WritableLibrary): Promise<void> {
  const dir = await mkdtemp(path.join(os.tmpdir(), 'tapegate-demo-'));
  try {
    for (const year of YEARS) {
      await mkdir(path.join(dir, String(year)));
      for (let month = 1; month <= FILES_A_YEAR; month++) {
        const name = `${year}/sst_${year}${String(month).padStart(2, '0')}.nc`;
        await writeFile(path.join(dir, name), makeBytes(name));
      }
    }
    const input = { dir, prefix: PREFIX, spot: 'spot-demo', volumeSize: VOLUME_BYTES };
    const { failed } = await archiveTree(ctx, library, input, { signal: new AbortController().signal });
    await registerRows(ctx, [PREFIX, path.dirname(PREFIX)].map(toOpenDirectory));
    if (failed.length > 0) throw new Error(`cannot create the demo archive: ${failed[0]}`);
  } finally {
    await rm(dir, { recursive: true });
  }
}

function toOpenDirectory(directory: string, index: number): CatalogueRow {
  const unknown = {
    verified: undefined,
    spotName: undefined,
    volume: undefined,
    position: undefined,
    checksum: undefined,
  };
  return { ...unknown, line: index + 1, path: `${directory}/`, size: 0n, stage: null, mode: 0o755 };
}

function makeBytes(name: string): Buffer {
  const key = createHash('md5').update(name).digest();
  return createCipheriv('aes-128-ctr', key, Buffer.alloc(16)).update(Buffer.alloc(FILE_BYTES));
}
