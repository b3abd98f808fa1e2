/**
 * Copies that were taken over and that no request holds: the system before kept them, and no end of a request lets them go here. They stay until
 * the adoption is finished, since a later one may bring a request for them.
 */
import type { PoolClient } from 'pg';
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { plural } from '../../plural.js';
import { isUnheld } from '../conditions.js';
import { copyColumns, type NotedCopy } from '../disks/copies.js';
import { isUnheldForGood } from '../disks/removals.js';
import type { AdoptedRequest } from '../requests/adopt.js';
import type { Adopting } from './report.js';

/** For a trial, which writes nothing here: what would be taken over, and what would be asked for. They go with the source. */
export async function createTrialTables(client: PoolClient): Promise<void> {
  await client.query(sql`CREATE TEMPORARY TABLE source_taken (path text, size bigint, mountpoint text)`);
  await client.query(sql`CREATE TEMPORARY TABLE source_wanted (path text, pattern text)`);
}

export async function noteTrialCopies(
  client: PoolClient,
  copies: readonly { path: string; size: bigint; mountpoint: string | null }[],
): Promise<void> {
  await client.query(
    sql`INSERT INTO source_taken SELECT * FROM unnest(${copies.map(({ path }) => path)}::text[], ${copies.map(({ size }) => size)}::bigint[],
      ${copies.map(({ mountpoint }) => mountpoint)}::text[])`,
  );
}

export async function noteTrialRequest(client: PoolClient, { pattern, files }: AdoptedRequest): Promise<void> {
  if (files) await client.query(sql`INSERT INTO source_wanted (path) SELECT unnest(${files}::text[])`);
  else await client.query(sql`INSERT INTO source_wanted (pattern) VALUES (${pattern})`);
}

const ofAdopted = sql`adopted a JOIN tape_file f ON f.id = a.id JOIN restore_disk k ON k.id = f.disk_id`;
const isRestoredAdopted = sql`(a.kind = 'COPY' AND f.stage = 'RESTORED')`;

/** Once all else of the source is here, by restore disk. @param client on which the source is loaded */
export async function tellUnheld(client: PoolClient, { tell }: Adopting): Promise<void> {
  const { rows } = await client.query<{ mountpoint: string; files: number; bytes: string }>(
    sql`SELECT c.mountpoint, count(*)::int AS files, sum(c.size)::text AS bytes FROM (
          SELECT t.path, t.size, t.mountpoint FROM source_taken t LEFT JOIN tape_file f ON f.path = t.path
          WHERE f.id IS NULL OR ${isUnheldForGood}
          UNION ALL SELECT f.path, f.size, k.mountpoint FROM ${ofAdopted} WHERE ${isRestoredAdopted} AND ${isUnheldForGood}
        ) c WHERE NOT EXISTS (SELECT FROM source_wanted w WHERE w.path = c.path)
          AND NOT EXISTS (SELECT FROM source_wanted w WHERE strpos(c.path, w.pattern) > 0)
        GROUP BY 1 ORDER BY 1`,
  );
  for (const { mountpoint, files, bytes } of rows) {
    const there = `${plural(files, 'restored file')} of ${bytes} bytes that no request has`;
    tell({ kind: 'copy-unheld', thing: mountpoint, there, here: 'held by nobody; let go by adopt --finish' });
  }
}

/** In order of their files' ids. */
export async function readUnheldAdopted(ctx: Context, page: { after: bigint; limit: number }): Promise<NotedCopy[]> {
  const { rows } = await ctx.db.pool.query<NotedCopy>(
    sql`SELECT ${copyColumns} FROM ${ofAdopted} WHERE ${isRestoredAdopted} AND ${isUnheld} AND f.id > ${page.after}
        ORDER BY f.id LIMIT ${page.limit}`,
  );
  return rows;
}
