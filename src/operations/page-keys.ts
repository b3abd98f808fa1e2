/**
 * Pages of lists that belong to something: the holds of a request, the requests of a quota. The pages of many parents
 * are cut by one statement in the database; Prisma would read each list whole and cut it in memory, and a request may
 * hold a million files.
 */
import type { Context } from '../context.js';

/** Where a list is kept: the column that names the parent, and the one whose integers give the order. */
export interface ListPlace {
  table: 'hold' | 'awaited_path' | 'request';
  parent: 'request_id' | 'quota_id';
  key: 'ordinal' | 'id';
}

export interface PageWish {
  /** Only keys above, and below. */
  above?: number | undefined;
  below?: number | undefined;
  descending: boolean;
  limit: number;
  /** Only rows at one of these states. */
  states?: readonly string[] | undefined;
}

/** The keys of a page of each parent, in order, by the ids of the parents; an empty page is left out. */
export async function readPageKeys(
  ctx: Context,
  place: ListPlace,
  parentIds: readonly number[],
  wish: PageWish,
): Promise<Map<number, number[]>> {
  const values: unknown[] = [parentIds, wish.limit];
  const conditions = [`c.${place.parent} = p.id`];
  // conditions are left out rather than made optional, so that the planner sees what it may use an index for
  if (wish.above !== undefined) conditions.push(`c.${place.key} > $${values.push(wish.above)}`);
  if (wish.below !== undefined) conditions.push(`c.${place.key} < $${values.push(wish.below)}`);
  if (wish.states !== undefined) conditions.push(`c.state::text = ANY($${values.push(wish.states)}::text[])`);
  const { rows } = await ctx.db.pool.query<{ parentId: number; keys: number[] }>(
    `SELECT p.id AS "parentId", array_agg(k.key ORDER BY k.key ${wish.descending ? 'DESC' : 'ASC'}) AS keys
     FROM unnest($1::int[]) AS p (id) CROSS JOIN LATERAL (
       SELECT c.${place.key} AS key FROM ${place.table} c WHERE ${conditions.join(' AND ')}
       ORDER BY c.${place.key} ${wish.descending ? 'DESC' : 'ASC'} LIMIT $2
     ) k GROUP BY p.id`,
    values,
  );
  return new Map(rows.map((row) => [row.parentId, row.keys]));
}
