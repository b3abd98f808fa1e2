/**
 * Volumes of which one file after another could not be read, and nothing since. Held for that, they may be put back into service before
 * anybody has mended what was wrong: until something is restored from one, its files are none that are bad, and the volume may be
 * held for them again (engine/drive/drive-failures.ts). It is noted for all engines, since any of them may have it next.
 */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';

/** @param isDoubtful false: something was restored from it again */
export async function noteDoubt(ctx: Context, volume: string, isDoubtful: boolean): Promise<void> {
  const since = isDoubtful ? ctx.now() : null;
  await ctx.db.pool.query(
    sql`UPDATE volume SET doubted_since = ${since}::timestamp WHERE name = ${volume} AND (${isDoubtful} OR doubted_since IS NOT NULL)`,
  );
}

/** Is there such a doubt about it? */
export async function isDoubted(ctx: Context, volumeId: number): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`SELECT FROM volume WHERE id = ${volumeId} AND doubted_since IS NOT NULL`,
  );
  return rowCount !== 0;
}
