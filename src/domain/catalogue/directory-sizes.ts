/** Counts the files below directories, and adds up their sizes. Estimates both for large directories. */
import { askAtLength } from '../../db/lists/snapshot.js';
import { type Sql, sql } from '../../db/sql.js';
import { mayMissFiles, mayPath } from '../access/paths.js';
import { isOffered } from '../conditions.js';
import type { Context } from '../context.js';
import { atListServer } from '../list-server.js';
import { allow } from '../policy.js';

export interface DirectorySize {
  fileCount: number;
  bytes: bigint;
  isEstimated: boolean;
}

/** Number of files that are counted in one directory, and in all directories of a query together. */
const COUNTED = { least: 500, most: 20_000, together: 400_000 };

/**
 * Returns the number and total size of the files that the caller may list below each directory, at any depth. Counts a
 * limited number of files in each directory. If a directory contains more, returns PostgreSQL's estimate, or, if the
 * estimate would reveal hidden files, the files counted so far.
 */
export async function readDirectorySizes(ctx: Context, paths: readonly string[]): Promise<Map<string, DirectorySize>> {
  allow(ctx, 'listFiles');
  const most = Math.round(Math.max(COUNTED.least, Math.min(COUNTED.most, COUNTED.together / paths.length)));
  return await atListServer(ctx, async (at) => {
    const counted = await askAtLength<{ path: string; count: number; bytes: string }>(
      at,
      sql`SELECT p.path, c.count, c.bytes FROM unnest(${paths}::text[]) AS p (path) CROSS JOIN LATERAL (
            SELECT count(*)::int AS count, coalesce(sum(s.size), 0)::text AS bytes FROM (
              SELECT f.size FROM tape_file f WHERE ${isBelow(sql`p.path || '/'`, sql`p.path || '0'`)} AND ${mayPath(at, 'LIST')} LIMIT ${most + 1}
            ) s) c`,
      at.reader,
    );
    const large = counted.filter(({ count }) => count > most);
    const estimates = large.length > 0 && !(await mayMissFiles(at)) ? await estimateBelow(at, large) : new Map();
    return new Map(
      counted.map(({ path, count, bytes }) => {
        const isEstimated = count > most;
        const fileCount = isEstimated ? Math.max(count, estimates.get(path) ?? 0) : count;
        // assume that the other files have the average size of the counted files
        const all = isEstimated ? (BigInt(bytes) * BigInt(fileCount)) / BigInt(count) : BigInt(bytes);
        return [path, { fileCount, bytes: all, isEstimated }];
      }),
    );
  });
}

const isBelow = (from: Sql, before: Sql) => sql`f.path ~>=~ (${from}) AND f.path ~<~ (${before}) AND ${isOffered}`;

/** Returns PostgreSQL's estimate of the number of files below each directory. */
async function estimateBelow({ db }: Context, directories: readonly { path: string }[]): Promise<Map<string, number>> {
  const estimates = new Map<string, number>();
  for (const { path } of directories) {
    const { rows } = await db.pool.query<{ 'QUERY PLAN': [{ Plan: { 'Plan Rows': number } }] }>(
      sql`EXPLAIN (FORMAT JSON) SELECT FROM tape_file f WHERE ${isBelow(sql`${`${path}/`}`, sql`${`${path}0`}`)}`,
    );
    estimates.set(path, rows[0]?.['QUERY PLAN'][0].Plan['Plan Rows'] ?? 0);
  }
  return estimates;
}
