/**
 * Pages of lists by key values, so that the page after a deleted row is still right. One statement reads inner lists
 * (files of a request, requests of a quota) of all parents; Prisma would read each list whole.
 */

import { NotFoundError } from '../core/errors.js';
import { prepared } from '../db/prepared.js';
import { askAtLength, askSoon } from '../db/snapshot.js';
import { allOf, empty, raw, type Sql, sql } from '../db/sql.js';
import type { Context } from './context.js';
import { atListServer } from './list-server.js';

/** A page by the keys around it; `inverted`: from the end of the list, the last row first. */
export interface KeyPage<Key> {
  after?: Key | undefined;
  before?: Key | undefined;
  limit: number;
  inverted?: boolean;
}

/** As a parameter, the planner would expect a tenth of the list. */
const pageLimit = (limit: number): Sql => raw(`LIMIT ${Math.trunc(limit)}`);

/** Returns the conditions, order and limit of a page. @param descending the list begins with the greatest key */
export function boundsOf(
  key: Sql,
  { after, before, limit, inverted = false }: KeyPage<unknown>,
  { descending = false } = {},
): { conditions: Sql[]; order: Sql } {
  const [above, below] = descending ? [before, after] : [after, before];
  const conditions: Sql[] = [];
  if (above !== undefined) conditions.push(sql`${key} > ${above}`);
  if (below !== undefined) conditions.push(sql`${key} < ${below}`);
  return {
    conditions,
    order: sql`ORDER BY ${key} ${raw(inverted === descending ? 'ASC' : 'DESC')} ${pageLimit(limit)}`,
  };
}

interface KeyedList {
  rows: Sql;
  id: Sql;
  key: Sql;
  reader?: AbortSignal | undefined;
}

/** Selects a page of rows `all`, which end with a condition. */
function selectPage(columns: Sql, all: Sql, key: Sql, page: KeyPage<unknown>): Sql {
  const { conditions, order } = boundsOf(key, page);
  return sql`SELECT ${columns} FROM ${all} AND ${allOf(conditions)} ${order}`;
}

/**
 * Reads the rows of a page by key, in the order of `load`. Reads again if a row was deleted, since the page would look
 * like the last one.
 */
async function readPageRows<Id, Row>(
  ctx: Context,
  list: KeyedList,
  page: KeyPage<unknown>,
  load: (ids: Id[]) => Promise<Row[]>,
): Promise<Row[]> {
  for (;;) {
    const statement = selectPage(sql`${list.id} AS id`, list.rows, list.key, page);
    const found = await askAtLength<{ id: Id }>(ctx, statement, list.reader);
    const rows = await load(found.map(({ id }) => id));
    if (rows.length === found.length) return rows;
  }
}

/** @param list.less rows that do not count */
export async function countRows(
  ctx: Context,
  { rows, less, reader }: Pick<KeyedList, 'rows' | 'reader'> & { less?: Sql },
): Promise<number> {
  const all = sql`(SELECT count(*) FROM ${rows})`;
  const statement = less ? sql`SELECT ${all} - (SELECT count(*) FROM ${less}) AS count` : sql`SELECT ${all} AS count`;
  const [row] = await askAtLength<{ count: bigint }>(ctx, statement, reader);
  return Number(row?.count ?? 0n);
}

const FILES = 200;

/** Yields all rows by the page, each read after the last row of the page before. */
export async function* pagesByFile<Row extends { fileId: bigint }>(
  read: (page: { after: bigint; limit: number }) => Promise<Row[]>,
): AsyncGenerator<Row[]> {
  for (let after = 0n; ; ) {
    const rows = await read({ after, limit: FILES });
    yield rows;
    if (rows.length < FILES) return;
    after = rows.at(-1)?.fileId ?? after;
  }
}

/** Which rows to load. */
type Ids<Id> = { in: Id[] };

/**
 * A list that Prisma reads: counted, by the page, or one row by id.
 * @param list.key default: the id @param load returns rows in the order of the key, with the fields of a query
 */
export function keyedList<Id, Row>(
  ctx: Context,
  { rows, id, key = id, reader }: Omit<KeyedList, 'key'> & { key?: Sql },
  load: (at: Context, ids: Ids<Id>, query: object) => Promise<Row[]>,
) {
  return {
    count: () => atListServer(ctx, (at) => countRows(at, { rows, reader })),
    page: <Key>(page: KeyPage<Key>, query: object) =>
      atListServer(ctx, (at) =>
        readPageRows<Id, Row>(at, { rows, id, key, reader }, page, (ids) => load(at, { in: ids }, query)),
      ),
    /** @throws NotFoundError */
    one: async (of: Id, query: object): Promise<Row> => {
      const [row] = await load(ctx, { in: [of] }, query);
      if (row === undefined) throw new NotFoundError('it was removed meanwhile');
      return row;
    },
  };
}

export interface RowCount {
  count: number;
  isEstimated: boolean;
}

/** Limit of an exact count, which takes milliseconds. */
const COUNTED = 10_000;

/** Rows of a sample, which PostgreSQL reads in a tenth of a second. */
const SAMPLED = 200_000;

/**
 * Counts files if they are few and found quickly, else estimates their number, which is never below the counted part.
 * @param list.where a condition on the file `f`
 * @param list.isSecret whether an estimate would reveal hidden files; then all are counted
 */
export async function estimateFiles(
  ctx: Context,
  { where, reader, isSecret }: Pick<KeyedList, 'reader'> & { where: Sql; isSecret: () => Promise<boolean> },
): Promise<RowCount> {
  const { db, share } = ctx;
  const asker = { db, share, reader };
  const rows = sql`tape_file f WHERE ${where}`;
  const few = sql`SELECT count(*) FROM (SELECT FROM ${rows} LIMIT ${raw(String(COUNTED + 1))}) few`;
  const [found] = (await askSoon<{ count: bigint }>(asker, few)) ?? [];
  if (found && found.count <= COUNTED) return { count: Number(found.count), isEstimated: false };
  if (await isSecret()) return { count: await countRows(ctx, { rows, reader }), isEstimated: false };
  const explained = await db.pool.query<{ 'QUERY PLAN': [{ Plan: { 'Plan Rows': number } }] }>(
    sql`EXPLAIN (FORMAT JSON) SELECT FROM ${rows}`,
  );
  const planned = explained.rows[0]?.['QUERY PLAN'][0].Plan['Plan Rows'] ?? 0;
  if (found && planned > COUNTED) return { count: planned, isEstimated: true };
  // PostgreSQL's statistics know little about parts of paths: they have 13 files for 200,000
  const [sample] = (await askSoon<{ count: number }>(asker, sampleOf(where))) ?? [];
  return { count: Math.max(sample?.count || planned, found ? COUNTED + 1 : 0), isEstimated: true };
}

/** Counts files `f` in random blocks of the table, and scales the count to the whole. */
const sampleOf = (where: Sql): Sql => {
  const percent = sql`(SELECT least(100, 100.0 * ${raw(String(SAMPLED))} / greatest(reltuples, 1)) FROM pg_class WHERE oid = 'tape_file'::regclass)`;
  return sql`SELECT (count(*) * 100 / ${percent})::float8 AS count FROM tape_file f TABLESAMPLE SYSTEM (${percent}) WHERE ${where}`;
};

/** The page size, which clients choose, is part of the text, so the number of prepared statements is limited. */
const MAX_PREPARED = 200;
const known = new Set<string>();

function preparedPage(statement: Sql): Sql {
  const { text } = statement;
  if (known.size < MAX_PREPARED) known.add(text);
  return known.has(text) ? prepared(statement) : statement;
}

/**
 * Reads the rows of a page by key with one statement.
 * @param list.walk the same rows if the caller may see all of them, else none, so that a page is found at once;
 *   undefined if the list has a filter
 */
export async function readPage<Row extends object>(
  ctx: Context,
  list: Pick<KeyedList, 'rows' | 'key' | 'reader'> & { columns: Sql; walk?: Sql | undefined },
  page: KeyPage<unknown>,
): Promise<Row[]> {
  const pageOf = (all: Sql) => selectPage(list.columns, all, list.key, page);
  const walked = list.walk && (await ctx.db.pool.query<Row>(preparedPage(pageOf(list.walk)))).rows;
  const isFound = walked && (walked.length > 0 || list.walk === list.rows);
  return isFound ? walked : await askAtLength<Row>(ctx, pageOf(list.rows), list.reader);
}

/** A list within a list. The integers of `key` give the order. */
interface InnerList {
  table: 'request_file' | 'unresolved_path' | 'request';
  parent: 'request_id' | 'quota_id';
  key: 'ordinal' | 'id';
  /** Of the row `c` and joined tables. */
  columns: Sql;
  join?: Sql;
  isSeen?: Sql;
}

export interface PageWish {
  above?: number | undefined;
  below?: number | undefined;
  descending: boolean;
  limit: number;
  states?: readonly string[] | undefined;
}

/** Undefined row: the caller may not see it. */
export interface PageItem<Row> {
  key: number;
  row: Row | undefined;
}

interface FlatItem {
  '#parent': number;
  '#key': number;
  '#seen': boolean;
}

/** Reads a page of each parent with one statement. Parents with empty pages are absent. */
export async function readInnerPages<Row>(
  ctx: Context,
  { table, parent, key, columns, join = empty, isSeen = sql`true` }: InnerList,
  parentIds: readonly number[],
  wish: PageWish,
): Promise<Map<number, PageItem<Row>[]>> {
  const rows = await ctx.db.rows<FlatItem>(
    preparedPage(sql`SELECT p.id AS "#parent", c.${raw(key)} AS "#key", ${isSeen} AS "#seen", ${columns}
      FROM ${parentsOf(parentIds)} CROSS JOIN LATERAL (
        SELECT c.* FROM ${raw(table)} c WHERE ${whereOnPage({ parent, key }, wish)}
        ORDER BY c.${raw(key)} ${raw(wish.descending ? 'DESC' : 'ASC')} ${pageLimit(wish.limit)}
      ) c ${join}`),
  );
  rows.sort((a, b) => (wish.descending ? b['#key'] - a['#key'] : a['#key'] - b['#key']));
  const pages = new Map<number, PageItem<Row>[]>();
  for (const row of rows) {
    const page = pages.get(row['#parent']) ?? [];
    pages.set(row['#parent'], page);
    page.push({ key: row['#key'], row: row['#seen'] ? (row as Row) : undefined });
  }
  return pages;
}

/** For one parent, PostgreSQL keeps the plan of a prepared statement; for a list it plans each time. */
function parentsOf(ids: readonly number[]): Sql {
  return ids.length === 1 ? sql`(SELECT ${ids[0]}::int AS id) p` : sql`unnest(${ids}::int[]) AS p (id)`;
}

function whereOnPage(place: Pick<InnerList, 'parent' | 'key'>, wish: PageWish): Sql {
  const [parent, key] = [raw(place.parent), raw(place.key)];
  // absent conditions are left out, so that the planner can use its indexes
  const conditions = [sql`c.${parent} = p.id`, sql`c.${key} > 0`]; // see the index of request files by ordinal
  if (wish.above !== undefined) conditions.push(sql`c.${key} > ${wish.above}`);
  if (wish.below !== undefined) conditions.push(sql`c.${key} < ${wish.below}`);
  if (wish.states !== undefined) conditions.push(sql`c.state::text = ANY(${wish.states}::text[])`);
  return allOf(conditions);
}
