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
 */
export async function listDirectory(
  ctx: Context,
  path: string,
  { limit, after }: { limit: number; after?: Pick<Entry, 'path' | 'isDirectory'> | undefined },
): Promise<Entry[]> {
  allow(ctx, 'listFiles');
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

const firstBelow = (ctx: Context, { path, from }: { path: string; from: Sql }) =>
  firstListed(ctx, { from, before: sql`${path}::text || '0'` });
