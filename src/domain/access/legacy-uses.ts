/**
 * Counts unauthenticated requests by day, so that operators see whether any client still needs unauthenticated access.
 */

import { locking } from '../../db/locks.js';
import { allOf, sql } from '../../db/sql.js';
import type { LegacyUse } from '../../generated/prisma/client.js';
import type { Context } from '../context.js';
import { boundsOf, type KeyPage } from '../page-keys.js';
import { allow } from '../policy.js';

const KEPT_DAYS = 90;

export interface CountedUses {
  endpoint: string;
  address: string;
  /** User name that the caller sent; empty if the caller did not send a name. A user with this name might not exist. */
  user: string;
  uses: number;
  refused: number;
  lastAt: string;
}

/**
 * Adds counts of unauthenticated requests and deletes old counts, in one statement. Stores a user name only if a user
 * with that name has a quota, because an unauthenticated caller can send any name. Locks the quotas of the stored
 * users, so that another transaction cannot purge a user before the commit.
 */
export async function addLegacyUses(ctx: Context, counted: readonly CountedUses[]): Promise<void> {
  await ctx.db.pool.query(
    sql`WITH gone AS (DELETE FROM legacy_use WHERE ${ctx.db.clock.isPlausible} AND day < ${ctx.now()}::timestamp - ${KEPT_DAYS} * interval '1 day'),
          known AS (SELECT q."user" FROM quota q WHERE q."user" = ANY(${counted.map((each) => each.user)}::text[]) ORDER BY q.id ${locking.quotaKept})
        INSERT INTO legacy_use (day, endpoint, address, "user", uses, refused, last_at)
        SELECT date_trunc('day', c.at), c.endpoint, c.address, coalesce(q."user", ''), sum(c.uses), sum(c.refused), max(c.at)
        FROM unnest(${counted.map((each) => each.endpoint)}::text[], ${counted.map((each) => each.address)}::text[],
               ${counted.map((each) => each.user)}::text[], ${counted.map((each) => each.uses)}::int[],
               ${counted.map((each) => each.refused)}::int[], ${counted.map((each) => each.lastAt)}::timestamp[])
             AS c (endpoint, address, named, uses, refused, at)
        LEFT JOIN known q ON q."user" = c.named
        GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
        ON CONFLICT (day, endpoint, address, "user") DO UPDATE
          SET uses = legacy_use.uses + excluded.uses, refused = legacy_use.refused + excluded.refused,
            last_at = greatest(legacy_use.last_at, excluded.last_at)`,
  );
}

export async function countLegacyUses(ctx: Context): Promise<number> {
  allow(ctx, 'listLegacyUses');
  return await ctx.db.prisma.legacyUse.count();
}

export async function listLegacyUses(ctx: Context, page: KeyPage<bigint>): Promise<LegacyUse[]> {
  allow(ctx, 'listLegacyUses');
  const { conditions, order } = boundsOf(sql`l.id`, { ...page, descending: true });
  return await ctx.db.rows<LegacyUse>(
    sql`SELECT l.id, l.day, l.endpoint, l.address, l."user", l.uses, l.refused, l.last_at AS "lastAt" FROM legacy_use l
        WHERE ${allOf(conditions)} ${order}`,
  );
}
