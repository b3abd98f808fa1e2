/** Gateways of a database report their authentication methods to each other in the names of their connections. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';

/** PostgreSQL limits connection names to 63 bytes, which all methods together fit. */
const DOOR = 'tapegate events AUTH=';

/** Returns the name of a gateway's event connection, visible in pg_stat_activity. */
export function nameOfDoor({ config }: Pick<Context, 'config'>): string {
  return `${DOOR}${[...config.access.auth].join(',')}`;
}

/** Returns TAPEGATE_AUTH of running gateways of this database that accept other methods than this one. */
export async function findOtherDoors(ctx: Context): Promise<string[]> {
  const { rows } = await ctx.db.pool.query<{ auth: string }>(
    sql`SELECT DISTINCT substr(application_name, length(${DOOR}) + 1) AS auth FROM pg_stat_activity
        WHERE datname = current_database() AND starts_with(application_name, ${DOOR}) AND application_name <> ${nameOfDoor(ctx)}
        ORDER BY 1`,
  );
  return rows.map(({ auth }) => auth);
}
