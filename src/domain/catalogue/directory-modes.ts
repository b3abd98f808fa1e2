/**
 * Modes and groups of archived directories (table `directory`). A restored directory gets its recorded mode, because
 * the mode determines which users can reach the files below it.
 */

import { sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import type { Context } from '../context.js';

export interface DirectoryMode {
  path: string;
  mode: number;
  gid: bigint | null;
}

export type Access = Omit<DirectoryMode, 'path'>;

/** Mode that a restored directory gets if the catalogue has no recorded mode for it. */
export const DIRECTORY_MODE = 0o750;

/**
 * Directory on a restore disk for copies that cannot be stored at their logical path. For example, the copy of a
 * renamed file might still be at that path. The name of each subdirectory begins with a file id.
 */
export const RENAMED = '/.tapegate-renamed';

/**
 * Records the modes of archived directories. If two trees are archived to the same path, a directory might already have
 * a recorded mode. Then records only the permissions that both modes grant.
 * @param prefix logical path of the archived tree. Directories above the tree that have no recorded mode get the mode
 * and group of `prefix`, unless they contain files outside the tree.
 */
export async function recordDirectories(
  ctx: Context,
  directories: readonly DirectoryMode[],
  prefix = '/',
): Promise<void> {
  if (directories.length === 0) return;
  await ctx.db.pool.query(
    sql`INSERT INTO directory AS o (path, mode, gid)
        SELECT * FROM unnest(${directories.map(({ path }) => path)}::text[], ${directories.map(({ mode }) => mode)}::int[],
          ${directories.map(({ gid }) => gid)}::bigint[]) AS n (path, mode, gid) ORDER BY path
        ON CONFLICT (path) DO UPDATE SET mode = o.mode & excluded.mode & CASE WHEN o.gid IS NOT DISTINCT FROM excluded.gid THEN 4095
          ELSE (4095 - 56) | ((o.mode & excluded.mode & 5) << 3) END`,
  );
  const root = prefix.replace(/\/+$/, '');
  for (let above = parentOf(root); above !== ''; above = parentOf(above)) {
    await ctx.db.pool.query(
      sql`INSERT INTO directory (path, mode, gid) SELECT ${above}, o.mode, o.gid FROM directory o WHERE o.path = ${root}
            AND NOT EXISTS (SELECT FROM tape_file f WHERE f.path >= ${`${above}/`} AND f.path < ${`${above}0`} AND NOT starts_with(f.path, ${`${root}/`}))
          ON CONFLICT DO NOTHING`,
    );
  }
}

const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf('/')));

/** Returns the recorded modes of directories by path. Omits directories without a recorded mode. */
export async function readDirectoryModes(ctx: Context, paths: readonly string[]): Promise<Map<string, Access>> {
  if (paths.length === 0) return new Map();
  const rows = await ctx.db.rows<DirectoryMode>(
    sql`SELECT path, mode, gid FROM directory WHERE path = ANY(${paths}::text[])`,
  );
  const modes = new Map(rows.map(({ path, ...access }) => [path, access]));
  for (const path of paths) {
    const access = isBelow(path, RENAMED) && (await readRenamed(ctx, path));
    if (access) modes.set(path, access);
  }
  return modes;
}

const isBelow = (path: string, dir: string): boolean => `${path}/`.startsWith(`${dir}/`);

/**
 * Returns the mode and group of a directory at or below RENAMED. All users may enter RENAMED itself, but not list it.
 */
async function readRenamed(ctx: Context, path: string): Promise<Access | undefined> {
  if (path === RENAMED) return { mode: 0o711, gid: null };
  const fileId = /^\d+/.exec(path.slice(RENAMED.length + 1))?.[0] ?? null;
  const [file] = await ctx.db.rows<{ path: string }>(sql`SELECT path FROM tape_file WHERE id = ${fileId}::bigint`);
  if (!file) return undefined;
  const dirs: string[] = [];
  for (let dir = parentOf(file.path); dir !== ''; dir = parentOf(dir)) dirs.unshift(dir);
  const modes = await readDirectoryModes(ctx, dirs);
  const chain = dirs.map((dir) => modes.get(dir) ?? { mode: DIRECTORY_MODE, gid: null });
  return chain.reduce(restrictAccess, { mode: 0o755, gid: null });
}

/**
 * Copies the recorded modes of a renamed directory and its subdirectories to the new path. If a mode is already
 * recorded at the new path, keeps that mode. Both `from` and `to` end with a slash.
 */
export async function renameDirectories(tx: Transaction, { from, to }: { from: string; to: string }): Promise<void> {
  const length = [...from].length;
  await tx.query(
    sql`INSERT INTO directory (path, mode, gid)
        SELECT rtrim(${to}::text || substr(o.path || '/', ${length + 1}), '/'), o.mode, o.gid FROM directory o
        WHERE starts_with(o.path || '/', ${from}) ORDER BY 1 ON CONFLICT DO NOTHING`,
  );
}

const PERMISSIONS = 0o777;

/**
 * Restricts access to a directory to the permissions that its parent directory also grants. The caller must pass the
 * parent directory's access as `above`, after restricting it with this function too.
 */
export function restrictAccess(above: Access, { mode, gid }: Access): Access {
  const [group, others] = [(mode >> 3) & 7, mode & 7];
  if (mayEnter(above.mode & 7) && mayEnter((above.mode >> 3) & 7)) return { mode: mode & PERMISSIONS, gid };
  const passing = !mayEnter((above.mode >> 3) & 7) ? 0 : above.gid === gid ? group : group & others;
  return { mode: (mode & 0o700) | (passing << 3), gid: above.gid };
}

const mayEnter = (bits: number): boolean => (bits & 1) !== 0;

/**
 * Returns the mode for a copy that is stored outside its file's directory. The mode grants only permissions that the
 * directory also grants.
 */
export function restrictFile(above: Access, file: { mode: number; gid: bigint | null }): number {
  const { mode, gid } = restrictAccess(above, file);
  return gid === file.gid ? mode : mode & 0o700;
}
