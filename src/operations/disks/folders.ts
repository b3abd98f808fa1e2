/**
 * Directories that Tapegate has made on restore disks. Equal ones may belong to others, so the path is recorded before
 * the directory is made, and its inode afterwards. The record outlives the directory.
 */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';

export interface FolderTraits {
  ino: bigint;
  /** Nanoseconds; null if the file system has none. */
  birthNs: bigint | null;
}

export interface MadeFolder extends FolderTraits {
  path: string;
}

export interface FolderNote {
  diskId: number;
  path: string;
  /** Null if an engine was about to make it. */
  ino: bigint | null;
  birthNs: bigint | null;
  /** Version of the row, which changes with each write. */
  version: string;
}

const noteColumns = sql`m.disk_id AS "diskId", m.path, m.ino, m.birth_ns AS "birthNs", m.xmin::text AS version`;

/** Call before directories are made. Replaces records of earlier ones. */
export async function noteMaking(ctx: Context, diskId: number, paths: readonly string[]): Promise<FolderNote[]> {
  const { rows } = await ctx.db.pool.query<FolderNote>(
    sql`INSERT INTO made_folder AS m (disk_id, path) SELECT ${diskId}, p FROM unnest(${paths}::text[]) AS p ORDER BY p
        ON CONFLICT (disk_id, path) DO UPDATE SET ino = NULL, birth_ns = NULL RETURNING ${noteColumns}`,
  );
  return rows;
}

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

/** Deletes the unchanged records of removed directories. @returns their paths */
export async function forgetFolders(ctx: Context, diskId: number, notes: readonly FolderNote[]): Promise<Set<string>> {
  const [paths, versions] = [notes.map((note) => note.path), notes.map((note) => note.version)];
  const { rows } = await ctx.db.pool.query<{ path: string }>(
    sql`DELETE FROM made_folder m WHERE m.disk_id = ${diskId} AND m.path = ANY(${paths}::text[])
          AND (m.path, m.xmin::text) IN (SELECT * FROM unnest(${paths}::text[], ${versions}::text[])) RETURNING m.path`,
  );
  return new Set(rows.map((row) => row.path));
}
