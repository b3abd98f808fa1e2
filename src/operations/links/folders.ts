/**
 * Folders that were made for links. Somebody else's may look the same, so it is noted before one is made that it will be, and then which one it
 * is; its note goes after it.
 */
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';

export interface LinkFolder {
  /** Absolute. */
  path: string;
  /** Null of one that an engine was about to make: nobody has noted which it is. */
  ino: bigint | null;
  /** In nanoseconds; null where the file system has none. */
  birthNs: bigint | null;
  /** Of the row: another one whenever something was noted of the folder, or it is about to be made again. */
  version: string;
}

/** To be called before one is made that is not there. What was known of one of an earlier time is forgotten. */
export async function noteMakingLinkFolder(ctx: Context, path: string): Promise<void> {
  await ctx.db.pool.query(
    sql`INSERT INTO link_folder (path) VALUES (${path}) ON CONFLICT (path) DO UPDATE SET ino = NULL, birth_ns = NULL`,
  );
}

/** Calling twice is safe. */
export async function noteMadeLinkFolder(
  ctx: Context,
  { path, ino, birthNs }: Omit<LinkFolder, 'version'>,
): Promise<void> {
  await ctx.db.pool.query(
    sql`INSERT INTO link_folder (path, ino, birth_ns) VALUES (${path}, ${ino}, ${birthNs})
        ON CONFLICT (path) DO UPDATE SET ino = excluded.ino, birth_ns = excluded.birth_ns`,
  );
}

/** By path; what nobody has noted is left out. */
export async function readLinkFolders(ctx: Context, paths: readonly string[]): Promise<Map<string, LinkFolder>> {
  const rows = await selectFolders(ctx, sql`n.path = ANY(${paths}::text[])`);
  return new Map(rows.map((row) => [row.path, row]));
}

/** A folder and those in it, the innermost first; none where the folder itself is not noted. */
export async function readLinkFoldersIn(ctx: Context, path: string): Promise<LinkFolder[]> {
  const rows = await selectFolders(ctx, sql`(n.path = ${path} OR starts_with(n.path, ${`${path}/`}))`);
  return rows.at(-1)?.path === path ? rows : [];
}

async function selectFolders(ctx: Context, which: Sql): Promise<LinkFolder[]> {
  const { rows } = await ctx.db.pool.query<LinkFolder>(
    sql`SELECT n.path, n.ino, n.birth_ns AS "birthNs", n.xmin::text AS version FROM link_folder n WHERE ${which} ORDER BY n.path DESC`,
  );
  return rows;
}

/** Forgets folders that have gone, where nothing was noted of them since. */
export async function forgetLinkFolders(ctx: Context, gone: readonly LinkFolder[]): Promise<void> {
  if (gone.length === 0) return;
  await ctx.db.pool.query(
    sql`DELETE FROM link_folder n WHERE (n.path, n.xmin::text) IN (
          SELECT * FROM unnest(${gone.map(({ path }) => path)}::text[], ${gone.map(({ version }) => version)}::text[]))`,
  );
}
