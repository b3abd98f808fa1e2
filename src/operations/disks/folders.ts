/**
 * Folders of restore disks that Tapegate has made. A folder that somebody else has made may look the same, so it is noted before one
 * is made that it will be, and then which one it is; its note goes after it. Killed anywhere in between, whoever looks for
 * the folder next, or puts in order what a dead engine left, finds a note.
 */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';

/** What a folder is known by. */
export interface FolderTraits {
  ino: bigint;
  /** In nanoseconds; null where the file system has none. */
  birthNs: bigint | null;
}

export interface MadeFolder extends FolderTraits {
  /** Below the mount point, as a logical path is. */
  path: string;
}

export interface FolderNote {
  diskId: number;
  path: string;
  /** Null of one that an engine was about to make: nobody has noted which it is. */
  ino: bigint | null;
  birthNs: bigint | null;
  /** Of the row: another one whenever something was noted of the folder, or it is about to be made again. */
  version: string;
}

const noteColumns = sql`m.disk_id AS "diskId", m.path, m.ino, m.birth_ns AS "birthNs", m.xmin::text AS version`;

/** To be called before folders are made that are not there. What was known of one of an earlier time is forgotten. */
export async function noteMaking(ctx: Context, diskId: number, paths: readonly string[]): Promise<FolderNote[]> {
  const { rows } = await ctx.db.pool.query<FolderNote>(
    sql`INSERT INTO made_folder AS m (disk_id, path) SELECT ${diskId}, p FROM unnest(${paths}::text[]) AS p ORDER BY p
        ON CONFLICT (disk_id, path) DO UPDATE SET ino = NULL, birth_ns = NULL RETURNING ${noteColumns}`,
  );
  return rows;
}

/** Of folders that were made, or are there and were being made. Calling twice is safe. */
export async function noteMade(ctx: Context, diskId: number, made: readonly MadeFolder[]): Promise<void> {
  const [paths, inos, births] = [
    made.map((folder) => folder.path),
    made.map((folder) => folder.ino),
    made.map((folder) => folder.birthNs),
  ];
  await ctx.db.pool.query(
    sql`INSERT INTO made_folder (disk_id, path, ino, birth_ns)
        SELECT ${diskId}, m.path, m.ino, m.birth_ns
        FROM unnest(${paths}::text[], ${inos}::bigint[], ${births}::bigint[]) AS m (path, ino, birth_ns) ORDER BY m.path
        ON CONFLICT (disk_id, path) DO UPDATE SET ino = excluded.ino, birth_ns = excluded.birth_ns`,
  );
}

/** By path; what nobody has noted is left out. */
export async function readFolderNotes(
  ctx: Context,
  diskId: number,
  paths: readonly string[],
): Promise<Map<string, FolderNote>> {
  const { rows } = await ctx.db.pool.query<FolderNote>(
    sql`SELECT ${noteColumns} FROM made_folder m WHERE m.disk_id = ${diskId} AND m.path = ANY(${paths}::text[])`,
  );
  return new Map(rows.map((row) => [row.path, row]));
}

/** All of a disk, in order of their paths. */
export async function listFolderNotes(
  ctx: Context,
  page: { diskId: number; after: string; limit: number },
): Promise<FolderNote[]> {
  const { rows } = await ctx.db.pool.query<FolderNote>(
    sql`SELECT ${noteColumns} FROM made_folder m WHERE m.disk_id = ${page.diskId} AND m.path > ${page.after}
        ORDER BY m.path LIMIT ${page.limit}`,
  );
  return rows;
}

/** Forgets folders that have gone, or were never made, where nothing was noted of them since. @returns their paths */
export async function forgetFolders(ctx: Context, diskId: number, notes: readonly FolderNote[]): Promise<Set<string>> {
  const [paths, versions] = [notes.map((note) => note.path), notes.map((note) => note.version)];
  const { rows } = await ctx.db.pool.query<{ path: string }>(
    sql`DELETE FROM made_folder m WHERE m.disk_id = ${diskId} AND m.path = ANY(${paths}::text[])
          AND (m.path, m.xmin::text) IN (SELECT * FROM unnest(${paths}::text[], ${versions}::text[])) RETURNING m.path`,
  );
  return new Set(rows.map((row) => row.path));
}
