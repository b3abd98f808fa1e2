/** Where the catalogue has files, and volumes: for who registers what is on tape already. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { pathOnTape } from '../conditions.js';
import { allow } from '../policy.js';

export interface KnownPlace {
  path: string;
  size: bigint;
  volume: string | null;
  position: bigint | null;
}

/**
 * Of these paths, those that the catalogue knows: by the names that its files have in their library. Of two files that have one name, each in
 * another library, it is the one of this volume, or else the one that was renamed.
 */
export async function readPlaces(
  ctx: Context,
  paths: readonly string[],
  volume: string,
): Promise<Map<string, KnownPlace>> {
  allow(ctx, 'importRows');
  const { rows } = await ctx.db.pool.query<KnownPlace>(
    sql`SELECT ${pathOnTape} AS path, f.size, v.name AS volume, f."position" FROM tape_file f LEFT JOIN volume v ON v.id = f.volume_id
        WHERE (f.path = ANY(${paths}::text[]) AND f.tape_path IS NULL) OR f.tape_path = ANY(${paths}::text[])
        ORDER BY v.name IS NOT DISTINCT FROM ${volume}, f.tape_path IS NOT NULL`,
  );
  return new Map(rows.map((row) => [row.path, row]));
}

/** The id of the library of a volume; undefined where the catalogue knows no such volume. */
export async function findLibraryOf(ctx: Context, volume: string): Promise<number | undefined> {
  allow(ctx, 'importRows');
  const { rows } = await ctx.db.pool.query<{ id: number }>(
    sql`SELECT v.library_id AS id FROM volume v WHERE v.name = ${volume}`,
  );
  return rows[0]?.id;
}
