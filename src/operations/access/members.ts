/** Who may use a quota beside its user. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';

/** The users of the quotas that somebody may use, and of those that it manages. */
export interface Memberships {
  uses: string[];
  manages: string[];
}

/** Of a user, by name and groups. */
export async function readMemberships(ctx: Context, user: string, groups: readonly string[]): Promise<Memberships> {
  const { rows } = await ctx.db.pool.query<{ user: string; isManager: boolean }>(
    sql`SELECT q."user", bool_or(m.is_manager) AS "isManager"
        FROM quota_member m JOIN quota q ON q.id = m.quota_id
        WHERE (m.kind = 'USER' AND m.name = ${user}) OR (m.kind = 'GROUP' AND m.name = ANY(${groups}::text[]))
        GROUP BY q."user"`,
  );
  return {
    uses: rows.map((row) => row.user),
    manages: rows.filter((row) => row.isManager).map((row) => row.user),
  };
}
