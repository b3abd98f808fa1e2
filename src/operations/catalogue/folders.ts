/** The catalogue as folders: what is at a path, and what a folder has. Folders are made of the paths of files. */
import type { Context } from '../../context.js';
import { askAtLength } from '../../database/snapshot.js';
import { type Sql, sql } from '../../database/sql.js';
import { firstListed, mayPath } from '../access/paths.js';
import { isOffered } from '../conditions.js';
import { checkPath } from '../input.js';
import { allow } from '../policy.js';

export interface Entry {
  /** Logical; empty for the folder of everything. */
  path: string;
  isFolder: boolean;
  /** Bytes; null for a folder. */
  size: bigint | null;
  /** Of the original; null where it is not known, and for a folder. */
  mtime: string | null;
}

/** @param path logical; empty for the folder of everything @returns undefined where the caller may know of nothing there */
export async function readEntry(ctx: Context, path: string): Promise<Entry | undefined> {
  allow(ctx, 'getFile');
  const { rows } = await ctx.db.pool.query<Entry>(
    sql`SELECT f.path, false AS "isFolder", f.size, f.mtime FROM tape_file f WHERE f.path = ${path} AND ${isOffered} AND ${mayPath(ctx, 'LIST')}
        UNION ALL SELECT ${path}::text, true, NULL, NULL WHERE ${path}::text = '' OR ${firstBelow(ctx, { path, from: sql`${path}::text || '/'` })} IS NOT NULL
        LIMIT 1`,
  );
  return rows[0];
}

/**
 * What is directly in a folder, in order of the bytes of the names. Each is looked up by itself, so that it takes no longer for all that is below.
 * @returns one more than `limit` where there are more
 */
export async function listFolder(ctx: Context, path: string, limit: number): Promise<Entry[]> {
  allow(ctx, 'listFiles');
  const name = sql`split_part(substr(e.path, length(${path}::text) + 2), '/', 1)`;
  const child = sql`${path}::text || '/' || ${name}`;
  // what follows the files of a folder begins with what follows a slash
  const next = sql`CASE WHEN e.path = ${child} THEN e.path || chr(1) ELSE ${child} || '0' END`;
  return await askAtLength<Entry>(
    ctx,
    sql`WITH RECURSIVE e AS (
          SELECT ${firstBelow(ctx, { path, from: sql`${path}::text || '/'` })} AS path
          UNION ALL SELECT ${firstBelow(ctx, { path, from: next })} FROM e WHERE e.path IS NOT NULL
        ), listed AS (SELECT e.path, ${child} AS child FROM e WHERE e.path IS NOT NULL LIMIT ${limit + 1})
        SELECT s.child AS path, s.path <> s.child AS "isFolder", f.size, f.mtime
        FROM listed s LEFT JOIN tape_file f ON f.path = s.child AND ${isOffered} ORDER BY s.child COLLATE "C"`,
    ctx.reader,
  );
}

export interface Folder {
  /** As it was asked for, without a slash at its end; `/` for the folder of everything. */
  path: string;
  /** In order of the bytes of the names. */
  entries: Entry[];
  hasMore: boolean;
}

/** Of a folder, as somebody looks at it: so many are told. */
const SHOWN = 1000;

/** @param path absolute; one of which the caller may know nothing has no entries @throws InvalidInputError */
export async function showFolder(ctx: Context, path: string): Promise<Folder> {
  allow(ctx, 'listFiles');
  const folder = path.replace(/\/+$/, '');
  if (path === '' || folder !== '') checkPath('path', folder);
  const entries = await listFolder(ctx, folder, SHOWN);
  return { path: folder === '' ? '/' : folder, entries: entries.slice(0, SHOWN), hasMore: entries.length > SHOWN };
}

const firstBelow = (ctx: Context, { path, from }: { path: string; from: Sql }) =>
  firstListed(ctx, { from, before: sql`${path}::text || '0'` });
