/** How the gateways of a database are open: each says so by its connection, since nobody comes in by the one that is closed who may by another. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';

/** Names of connections have 63 bytes in PostgreSQL, which all of the ways together do not fill. */
const DOOR = 'tapegate events AUTH=';

/** What a gateway's connection for events is called, by which an operator knows it in pg_stat_activity. */
export function nameOfDoor({ config }: Pick<Context, 'config'>): string {
  return `${DOOR}${[...config.access.auth].join(',')}`;
}

/** The ways of gateways that let in others than this one does, as TAPEGATE_AUTH has them: those of this database that run now. */
export async function findOtherDoors(ctx: Context): Promise<string[]> {
  const { rows } = await ctx.db.pool.query<{ auth: string }>(
    sql`SELECT DISTINCT substr(application_name, length(${DOOR}) + 1) AS auth FROM pg_stat_activity
        WHERE datname = current_database() AND starts_with(application_name, ${DOOR}) AND application_name <> ${nameOfDoor(ctx)}
        ORDER BY 1`,
  );
  return rows.map(({ auth }) => auth);
}
