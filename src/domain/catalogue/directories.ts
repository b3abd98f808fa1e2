/** Reads the catalogue as a tree of directories, derived from file paths. */

import { askAtLength } from '../../db/lists/snapshot.js';
import { type Sql, sql } from '../../db/sql.js';
import { firstListed, mayPath } from '../access/paths.js';
import { isOffered } from '../conditions.js';
import type { Context } from '../context.js';
import { checkPath } from '../input.js';
import { allow } from '../policy.js';

export interface Entry {
  path: string;
  isDirectory: boolean;
  size: bigint | null;
  /** Modification time of a file; null if unknown. */
  mtime: string | null;
}

/**
 * Reads a file or directory by its logical path. The root directory has an empty path.
 * @returns undefined if the caller may not list any file at or below the path
 */
export async function readEntry(ctx: Context, path: string): Promise<Entry | undefined> {
  allow(ctx, 'getFile');
  const rows = await ctx.db.rows<Entry>(
    sql`SELECT f.path, false AS "isDirectory", f.size, f.mtime FROM tape_file f WHERE f.path = ${path} AND ${isOffered} AND ${mayPath(ctx, 'LIST')}
        UNION ALL SELECT ${path}::text, true, NULL, NULL WHERE ${path}::text = '' OR ${firstBelow(ctx, { path, from: sql`${path}::text || '/'` })} IS NOT NULL
        LIMIT 1`,
  );
  return rows[0];
}

/**
 * Lists a directory's entries in byte order. Returns at most `limit` + 1 entries: if the caller receives `limit` + 1
 * entries, the directory contains more than `limit`.
 * @param page.hasFiles whether to list files as well as subdirectories
 */
export async function listDirectory(
  ctx: Context,
  path: string,
  {
    limit,
    after,
    hasFiles = true,
  }: { limit: number; after?: Pick<Entry, 'path' | 'isDirectory'> | undefined; hasFiles?: boolean },
): Promise<Entry[]> {
  allow(ctx, 'listFiles');
  if (!hasFiles) return await listSubdirectories(ctx, path, { limit, after });
  const name = sql`split_part(substr(e.path, length(${path}::text) + 2), '/', 1)`;
  const child = sql`${path}::text || '/' || ${name}`;
  const from = after ? sql`${after.path}::text || ${after.isDirectory ? '0' : '\u0001'}` : sql`${path}::text || '/'`;
  // list a subdirectory once: after its first file, continue after the last path below the subdirectory
  const next = sql`CASE WHEN e.path = ${child} THEN e.path || chr(1) ELSE ${child} || '0' END`;
  return await askAtLength<Entry>(
    ctx,
    sql`WITH RECURSIVE e AS (
          SELECT ${firstBelow(ctx, { path, from })} AS path
          UNION ALL SELECT ${firstBelow(ctx, { path, from: next })} FROM e WHERE e.path IS NOT NULL
        ), listed AS (SELECT e.path, ${child} AS child FROM e WHERE e.path IS NOT NULL LIMIT ${limit + 1})
        SELECT s.child AS path, s.path <> s.child AS "isDirectory", f.size, f.mtime
        FROM listed s LEFT JOIN tape_file f ON f.path = s.child AND ${isOffered} ORDER BY s.child COLLATE "C"`,
    ctx.reader,
  );
}

/**
 * Returns the path of a directory in the form that `listDirectory` expects: without a trailing slash, and empty for the
 * root.
 * @throws InvalidInputError
 */
export function parseDirectory(ctx: Context, path: string): string {
  allow(ctx, 'listFiles');
  const directory = path.replace(/\/+$/, '');
  if (path === '' || directory !== '') checkPath('path', directory);
  return directory;
}

/** Returns SQL that selects the first path in a directory's subdirectories, from a path on. */
const firstNested = (path: string, from: Sql) =>
  sql`(SELECT f.path FROM tape_file f WHERE f.path ~>=~ (${from}) AND f.path ~<~ (${path}::text || '0')
        AND strpos(substr(f.path, length(${path}::text) + 2), '/') > 0 ORDER BY f.path USING ~<~ LIMIT 1)`;

/** Returns SQL for the path of the directory's entry that contains `nested`. */
const childOf = (path: string, nested: Sql) =>
  sql`(${path}::text || '/' || split_part(substr(${nested}, length(${path}::text) + 2), '/', 1))`;

/**
 * Returns a FROM clause, with the alias `f`, for the files directly in a directory. Skips the files in subdirectories,
 * however many there are.
 */
export function filesDirectlyIn(path: string): Sql {
  // OFFSET 0 keeps the planner from reading the whole table in parallel, because it overestimates each range
  const after = sql`${childOf(path, sql`d.nested`)} || '0'`;
  return sql`(WITH RECURSIVE d AS (
      SELECT ${path}::text || '/' AS low, ${firstNested(path, sql`${path}::text || '/'`)} AS nested
      UNION ALL SELECT ${after}, ${firstNested(path, after)} FROM d WHERE d.nested IS NOT NULL
    ) SELECT s.* FROM d CROSS JOIN LATERAL (SELECT * FROM tape_file t WHERE t.path ~>=~ d.low
        AND t.path ~<~ coalesce(${childOf(path, sql`d.nested`)} || '/', ${path}::text || '0') OFFSET 0) s) f`;
}

/**
 * Returns a FROM clause, with the alias `f`, for the first files directly in a directory, in byte order. PostgreSQL
 * finds each entry with an index, and stops when it has found enough files.
 */
export function firstFilesIn(
  ctx: Context,
  path: string,
  { after, where }: { after: string | undefined; where: Sql },
): Sql {
  const from = after === undefined ? sql`${path}::text || '/'` : sql`${after}::text || chr(1)`;
  const child = childOf(path, sql`e.path`);
  const next = sql`CASE WHEN e.path = ${child} THEN e.path || chr(1) ELSE ${child} || '0' END`;
  return sql`(WITH RECURSIVE e AS (
      SELECT ${firstBelow(ctx, { path, from })} AS path
      UNION ALL SELECT ${firstBelow(ctx, { path, from: next })} FROM e WHERE e.path IS NOT NULL
    ) SELECT s.* FROM e CROSS JOIN LATERAL (SELECT * FROM tape_file f WHERE f.path = e.path AND e.path = ${child} AND ${where} LIMIT 1) s) f`;
}

/** Lists a directory's subdirectories in byte order, like `listDirectory`. */
async function listSubdirectories(
  ctx: Context,
  path: string,
  { limit, after }: { limit: number; after?: Pick<Entry, 'path'> | undefined },
): Promise<Entry[]> {
  const from = after ? sql`${after.path}::text || '0'` : sql`${path}::text || '/'`;
  const child = childOf(path, sql`e.nested`);
  const isListed = sql`${firstListed(ctx, { from: sql`c.child || '/'`, before: sql`c.child || '0'` })} IS NOT NULL`;
  return await askAtLength<Entry>(
    ctx,
    sql`WITH RECURSIVE e AS (
          SELECT ${firstNested(path, from)} AS nested
          UNION ALL SELECT ${firstNested(path, sql`${child} || '0'`)} FROM e WHERE e.nested IS NOT NULL
        ) SELECT c.child AS path, true AS "isDirectory", NULL::bigint AS size, NULL::timestamp AS mtime
        FROM e CROSS JOIN LATERAL (SELECT ${child} AS child) c WHERE e.nested IS NOT NULL AND ${isListed} LIMIT ${limit + 1}`,
    ctx.reader,
  );
}

const firstBelow = (ctx: Context, { path, from }: { path: string; from: Sql }) =>
  firstListed(ctx, { from, before: sql`${path}::text || '0'` });
