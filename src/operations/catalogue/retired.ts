/** What is told of volumes that were retired. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { quote } from '../../errors.js';
import { allow } from '../policy.js';

/** `volume "V00001" was retired: worn out` */
export function tellRetired(name: string, why: string | null): string {
  return `volume ${quote(name)} was retired: ${why ?? 'nothing is put there any more'}`;
}

/** The same of a volume, for whoever is about to register what is on it; undefined where it is in use, or not known. */
export async function findRetired(ctx: Context, volume: string): Promise<string | undefined> {
  allow(ctx, 'importRows');
  const { rows } = await ctx.db.pool.query<{ why: string | null }>(
    sql`SELECT v.retired_why AS why FROM volume v WHERE v.name = ${volume} AND v.retired_at IS NOT NULL`,
  );
  return rows[0] && tellRetired(volume, rows[0].why);
}
