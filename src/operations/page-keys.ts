/**
 * Pages of lists, by the value of a key: a page after a row is right even when that row has gone.
 *
 * Which rows are on a page is SQL's, what GraphQL wants of them Prisma's. Pages of lists within a list (the holds of a
 * request, the requests of a quota) are cut by one statement for many parents; Prisma would read each list whole and cut
 * it in memory, and a request may hold a million files.
 */
import type { Context } from '../context.js';
import { askAtLength, askSoon } from '../database/snapshot.js';
import { allOf, empty, raw, type Sql, sql } from '../database/sql.js';

/** A page of a list: so many rows that follow a key, or go before it. */
export interface KeyPage<Key> {
  /** The first or last rows where there is none. */
  from: Key | undefined;
  isBackward: boolean;
  limit: number;
}

/** A list: its tables and filter, the column of its ids, and the one that it is in order of, which is unique. */
export interface KeyedList {
  /** `table alias WHERE condition` */
  rows: Sql;
  id: Sql;
  key: Sql;
  /** Aborts when nobody waits for a page any more. */
  reader?: AbortSignal | undefined;
}

/** The ids of a page, in order of the key. */
async function readPageIds<Id>(ctx: Context, list: KeyedList, page: KeyPage<unknown>): Promise<Id[]> {
  const { from, isBackward, limit } = page;
  const after = from === undefined ? empty : sql`AND ${list.key} ${raw(isBackward ? '<' : '>')} ${from}`;
  const statement = sql`SELECT ${list.id} AS id FROM ${list.rows} ${after}
    ORDER BY ${list.key} ${raw(isBackward ? 'DESC' : 'ASC')} LIMIT ${limit}`;
  const rows = await askAtLength<{ id: Id }>(ctx, statement, list.reader);
  const ids = rows.map((row) => row.id);
  return isBackward ? ids.reverse() : ids;
}

/**
 * The rows of a page, in order of the key, as `load` gives those with some ids. A row that goes between the two reads
 * would make the page look like the last one; then it is read again, which only another such row makes needful once more.
 */
export async function readPageRows<Id, Row>(
  ctx: Context,
  list: KeyedList,
  page: KeyPage<unknown>,
  load: (ids: Id[]) => Promise<Row[]>,
): Promise<Row[]> {
  for (;;) {
    const ids = await readPageIds<Id>(ctx, list, page);
    const rows = await load(ids);
    if (rows.length === ids.length) return rows;
  }
}

/** @param list as a KeyedList; `less`: rows among them that do not count */
export async function countRows(
  ctx: Context,
  { rows, less, reader }: Pick<KeyedList, 'rows' | 'reader'> & { less?: Sql },
): Promise<number> {
  const all = sql`(SELECT count(*) FROM ${rows})`;
  const statement = less ? sql`SELECT ${all} - (SELECT count(*) FROM ${less}) AS count` : sql`SELECT ${all} AS count`;
  const [row] = await askAtLength<{ count: bigint }>(ctx, statement, reader);
  return Number(row?.count ?? 0n);
}

/** How many rows a list has. */
export interface RowCount {
  count: number;
  /** Made of what PostgreSQL knows of the tables, and not counted. */
  isEstimated: boolean;
}

/** So many rows are counted by whoever wants an estimate: some milliseconds where they are found at all soon. */
const COUNTED = 10_000;

/**
 * Counted where they are few and soon found, else estimated as PostgreSQL does for its plans.
 * @param list as a KeyedList
 * @param list.isSecret is there what the caller is not to know of? An estimate would have some of it in it, so that all are counted
 */
export async function estimateRows(
  ctx: Context,
  { rows, reader, isSecret }: Pick<KeyedList, 'rows' | 'reader'> & { isSecret: () => Promise<boolean> },
): Promise<RowCount> {
  const { db, share } = ctx;
  const few = sql`SELECT count(*) FROM (SELECT FROM ${rows} LIMIT ${raw(String(COUNTED + 1))}) few`;
  const [found] = (await askSoon<{ count: bigint }>({ db, share, reader }, few)) ?? [];
  if (found && found.count <= COUNTED) return { count: Number(found.count), isEstimated: false };
  if (await isSecret()) return { count: await countRows(ctx, { rows, reader }), isEstimated: false };
  const explained = await db.pool.query<{ 'QUERY PLAN': [{ Plan: { 'Plan Rows': number } }] }>(
    sql`EXPLAIN (FORMAT JSON) SELECT FROM ${rows}`,
  );
  const planned = explained.rows[0]?.['QUERY PLAN'][0].Plan['Plan Rows'] ?? 0;
  return { count: Math.max(planned, found ? COUNTED + 1 : 0), isEstimated: true };
}

/** Where a list is kept: the column that names the parent, and the one whose integers give the order. */
export interface ListPlace {
  table: 'any_hold' | 'any_awaited_path' | 'request';
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
  const [table, key] = [raw(place.table), raw(place.key)];
  const order = raw(wish.descending ? 'DESC' : 'ASC');
  const { rows } = await ctx.db.pool.query<{ parentId: number; keys: number[] }>(
    sql`SELECT p.id AS "parentId", array_agg(k.key ORDER BY k.key ${order}) AS keys
        FROM unnest(${parentIds}::int[]) AS p (id) CROSS JOIN LATERAL (
          SELECT c.${key} AS key FROM ${table} c WHERE ${whereOnPage(place, wish)} ORDER BY c.${key} ${order} LIMIT ${wish.limit}
        ) k GROUP BY p.id`,
  );
  return new Map(rows.map((row) => [row.parentId, row.keys]));
}

/** Of the rows `c` of a parent `p`, those that a page may have. */
export function whereOnPage(place: ListPlace, wish: PageWish): Sql {
  const [parent, key] = [raw(place.parent), raw(place.key)];
  // conditions are left out rather than made optional, so that the planner sees what it may use an index for
  const conditions = [sql`c.${parent} = p.id`];
  if (wish.above !== undefined) conditions.push(sql`c.${key} > ${wish.above}`);
  if (wish.below !== undefined) conditions.push(sql`c.${key} < ${wish.below}`);
  if (place.key === 'ordinal') {
    // bundles that have none of it are not unpacked
    if (wish.above !== undefined) conditions.push(sql`c.last_ordinal > ${wish.above}`);
    if (wish.below !== undefined) conditions.push(sql`c.first_ordinal < ${wish.below}`);
  }
  if (wish.states !== undefined) conditions.push(sql`c.state::text = ANY(${wish.states}::text[])`);
  return allOf(conditions);
}
