/**
 * Reads pages of lists by keyset, so that the next page is correct even if the last row of the previous page was
 * deleted.
 */

import { NotFoundError } from '../core/errors.js';
import { askAtLength, askSoon } from '../db/lists/snapshot.js';
import { prepared } from '../db/prepared.js';
import { allOf, empty, raw, type Sql, sql } from '../db/sql.js';
import type { Context } from './context.js';
import { atListServer } from './list-server.js';

/**
 * A page: at most `limit` rows between two keys. An inverted page contains the last rows before the second key, in
 * reverse order.
 */
export interface KeyPage<Key> {
  after?: Key | undefined;
  before?: Key | undefined;
  limit: number;
  inverted?: boolean;
  /** Whether the list begins with the largest key. Default: false. */
  descending?: boolean;
}

/**
 * Writes the limit as a literal. If the limit is a parameter, PostgreSQL chooses a query plan for reading a tenth of
 * the list.
 */
const pageLimit = (limit: number): Sql => raw(`LIMIT ${Math.trunc(limit)}`);

/** Returns the conditions, order and limit of a page. */
export function boundsOf(
  key: Sql,
  { after, before, limit, inverted = false, descending = false }: KeyPage<unknown>,
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

function selectPage(columns: Sql, all: Sql, key: Sql, page: KeyPage<unknown>): Sql {
  const { conditions, order } = boundsOf(key, page);
  return sql`SELECT ${columns} FROM ${all} AND ${allOf(conditions)} ${order}`;
}

/**
 * Reads the ids of the rows on a page, and then loads the rows in a second query. If a row was deleted between the two
 * queries, reads the page again, because a short page would look like the last page.
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

/** Counts the rows of a list. Excludes the rows that the FROM clause `less` selects. */
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

/** Yields all rows in pages. Each page begins after the last row of the previous page. */
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

type Ids<Id> = { in: Id[] };

/**
 * Returns functions that count a list, read a page of it, and read one row by id. `load` must return rows in key order.
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
      if (row === undefined) throw new NotFoundError('the object was removed meanwhile');
      return row;
    },
  };
}

export interface RowCount {
  count: number;
  isEstimated: boolean;
  /** Total size of the files. Null if the count is estimated, or if the caller did not ask for the size. */
  bytes: bigint | null;
}

/**
 * Counts files, at most `limit` of them, and adds up their sizes.
 * @param list.rows a FROM clause with the files `f`
 * @param list.hasBytes whether to add up the sizes. Without sizes, PostgreSQL might read only an index
 */
export async function countFiles(
  ctx: Context,
  { rows, hasBytes, limit, reader }: Pick<KeyedList, 'rows' | 'reader'> & { hasBytes: boolean; limit?: number },
): Promise<{ count: number; bytes: bigint | null }> {
  const [row] = await askAtLength<Sums>(ctx, selectSums({ rows, hasBytes, limit }), reader);
  return readSums(row);
}

interface Sums {
  count: bigint;
  bytes: string | null;
}

const readSums = (row: Sums | undefined) => ({
  count: Number(row?.count ?? 0n),
  bytes: row?.bytes == null ? null : BigInt(row.bytes),
});

function selectSums({ rows, hasBytes, limit }: { rows: Sql; hasBytes: boolean; limit?: number | undefined }): Sql {
  const bytes = hasBytes ? sql`coalesce(sum(c.size), 0)::text` : sql`NULL`;
  const counted = sql`SELECT ${hasBytes ? sql`f.size` : empty} FROM ${rows} ${limit === undefined ? empty : pageLimit(limit)}`;
  return sql`SELECT count(*) AS count, ${bytes} AS bytes FROM (${counted}) c`;
}

/** Largest number of files that is counted exactly. PostgreSQL counts this number of files in a few milliseconds. */
const COUNTED = 10_000;

/** Milliseconds in which files are counted exactly if an estimate is known already. */
const COUNT_MS = 50;

/** Number of rows in a sample. PostgreSQL reads a sample in a tenth of a second. */
const SAMPLED = 200_000;

/**
 * Counts files exactly if the list is short, and PostgreSQL finds the files quickly. Otherwise, estimates the number of
 * files.
 * @param list.isSecret whether an estimate would reveal hidden files; if true, all files are counted
 * @param list.inBlocks counts or estimates the files with an index; returns undefined if the index does not help
 */
export async function estimateFiles(
  ctx: Context,
  {
    where,
    hasBytes,
    reader,
    isSecret,
    inBlocks = async () => undefined,
  }: Pick<KeyedList, 'reader'> & {
    where: Sql;
    hasBytes: boolean;
    isSecret: () => Promise<boolean>;
    inBlocks?: () => Promise<Pick<RowCount, 'count' | 'isEstimated'> | undefined>;
  },
): Promise<RowCount> {
  const { db, share } = ctx;
  const asker = { db, share, reader };
  const rows = sql`tape_file f WHERE ${where}`;
  const blocks = hasBytes ? undefined : await inBlocks();
  if (blocks && !blocks.isEstimated) return { ...blocks, bytes: null };
  const isLarge = blocks !== undefined && blocks.count > 2 * COUNTED;
  const all = selectSums({ rows, hasBytes, limit: COUNTED + 1 });
  const [found] = isLarge
    ? []
    : ((await askSoon<Sums>(asker, all, blocks && blocks.count > 0 ? { ms: COUNT_MS } : undefined)) ?? []);
  if (found && found.count <= COUNTED) return { ...readSums(found), isEstimated: false };
  if (await isSecret()) return { ...(await countFiles(ctx, { rows, hasBytes, reader })), isEstimated: false };
  if (blocks && blocks.count > 0)
    return { count: Math.max(blocks.count, found ? COUNTED + 1 : 0), isEstimated: true, bytes: null };
  const explained = await db.pool.query<{ 'QUERY PLAN': [{ Plan: { 'Plan Rows': number } }] }>(
    sql`EXPLAIN (FORMAT JSON) SELECT FROM ${rows}`,
  );
  const planned = explained.rows[0]?.['QUERY PLAN'][0].Plan['Plan Rows'] ?? 0;
  if (found && planned > COUNTED) return { count: planned, isEstimated: true, bytes: null };
  // count the matches in a sample, because PostgreSQL's own estimates for substring searches are poor: in one case,
  // PostgreSQL estimated 13 files instead of 200,000
  const [sample] = (await askSoon<{ count: number }>(asker, sampleOf(where))) ?? [];
  const count = Math.max(Math.round(sample?.count ?? 0) || planned, found ? COUNTED + 1 : 0);
  return { count, isEstimated: true, bytes: null };
}

const sampleOf = (where: Sql): Sql => {
  const percent = sql`(SELECT least(100, 100.0 * ${raw(String(SAMPLED))} / greatest(reltuples, 1)) FROM pg_class WHERE oid = 'tape_file'::regclass)`;
  return sql`SELECT (count(*) * 100 / ${percent})::float8 AS count FROM tape_file f TABLESAMPLE SYSTEM (${percent}) WHERE ${where}`;
};

/**
 * Maximum number of statements to prepare. The number is limited, because each page size that a client chooses leads to
 * a different statement.
 */
const MAX_PREPARED = 200;
const known = new Set<string>();

function preparedPage(statement: Sql): Sql {
  const { text } = statement;
  if (known.size < MAX_PREPARED) known.add(text);
  return known.has(text) ? prepared(statement) : statement;
}

/** Keeps PostgreSQL from reading an index in the order of keys until it has found a page. */
const SORTED = { ms: 1000, settings: { enable_indexscan: 'off' } };

/**
 * Reads the rows of a page by key with one statement.
 * @param list.walk a faster query, tried first. If the caller may not see some rows of the page, the query `walk`
 * returns no rows.
 * @param list.isFar whether the first rows are known to be far away in the order of keys. If true, PostgreSQL first finds
 * all rows, and then sorts them
 */
export async function readPage<Row extends object>(
  ctx: Context,
  list: Pick<KeyedList, 'rows' | 'key' | 'reader'> & { columns: Sql; walk?: Sql | undefined; isFar?: boolean },
  page: KeyPage<unknown>,
): Promise<Row[]> {
  const pageOf = (all: Sql) => selectPage(list.columns, all, list.key, page);
  const walked = list.walk && (await ctx.db.pool.query<Row>(preparedPage(pageOf(list.walk)))).rows;
  const isFound = walked && (walked.length > 0 || list.walk === list.rows);
  if (isFound) return walked;
  const asker = { db: ctx.db, share: ctx.share, reader: list.reader };
  const sorted = list.isFar ? await askSoon<Row>(asker, pageOf(list.rows), SORTED) : undefined;
  return sorted ?? (await askAtLength<Row>(ctx, pageOf(list.rows), list.reader));
}

/**
 * A list that belongs to a parent row, such as the files of a request. The list is ordered by the integer column `key`.
 */
interface InnerList {
  table: 'request_file' | 'unresolved_path' | 'request' | 'event' | 'tape_file' | 'volume' | 'drive';
  parent: 'request_id' | 'quota_id' | 'volume_id' | 'disk_id' | 'library_id' | 'file_id';
  key: 'ordinal' | 'id' | 'request_id';
  columns: Sql;
  /** A condition on the rows `c` of the list. */
  where?: Sql;
  join?: Sql;
  isSeen?: Sql;
  /**
   * A condition on the rows `c`, which selects the rows that the caller may see. PostgreSQL checks the condition after
   * it has sorted the rows, because the condition is slow, and most pages need only the first rows.
   */
  isAllowed?: Sql | undefined;
  /** Whether a page may read many rows that are not on the page. */
  isLong?: boolean;
}

export interface PageWish {
  above?: number | undefined;
  below?: number | undefined;
  descending: boolean;
  limit: number;
  states?: readonly string[] | undefined;
  /** A substring of the paths of the files in the list. */
  match?: string | undefined;
}

/** A row of an inner list, with the row's key. `row` is undefined if the caller may not see the row. */
export interface PageItem<Row> {
  key: number;
  row: Row | undefined;
}

interface FlatItem<Id> {
  '#parent': Id;
  '#key': Id;
  '#seen': boolean;
}

/** Reads a page of the inner list of each parent, with one statement. Omits parents with empty pages. */
export async function readInnerPages<Row, Id extends number | bigint = number>(
  ctx: Context,
  {
    table,
    parent,
    key,
    columns,
    where = sql`true`,
    join = empty,
    isSeen = sql`true`,
    isAllowed,
    isLong = false,
  }: InnerList,
  parentIds: readonly Id[],
  wish: PageWish,
): Promise<Map<Id, PageItem<Row>[]>> {
  const order = sql`ORDER BY c.${raw(key)} ${raw(wish.descending ? 'DESC' : 'ASC')}`;
  const all = sql`SELECT c.* FROM ${raw(table)} c WHERE ${whereOnPage({ parent, key }, wish)} AND ${where} ${order}`;
  const allowed = isAllowed ? sql`SELECT c.* FROM (${all} OFFSET 0) c WHERE ${isAllowed} ${order}` : all;
  const statement = sql`SELECT p.id AS "#parent", c.${raw(key)} AS "#key", ${isSeen} AS "#seen", ${columns}
      FROM ${parentsOf(parentIds)} CROSS JOIN LATERAL (${allowed} ${pageLimit(wish.limit)}) c ${join}`;
  const rows = isLong
    ? await askAtLength<FlatItem<Id>>(ctx, statement, ctx.reader)
    : await ctx.db.rows<FlatItem<Id>>(preparedPage(statement));
  rows.sort((a, b) => Number(wish.descending ? b['#key'] - a['#key'] : a['#key'] - b['#key']));
  const pages = new Map<Id, PageItem<Row>[]>();
  for (const row of rows) {
    const page = pages.get(row['#parent']) ?? [];
    pages.set(row['#parent'], page);
    page.push({ key: Number(row['#key']), row: row['#seen'] ? (row as object as Row) : undefined });
  }
  return pages;
}

/**
 * Selects the parents. The text for a single parent lets PostgreSQL reuse the plan of a prepared statement. If there
 * are several parents, PostgreSQL plans the statement each time.
 */
function parentsOf(ids: readonly (number | bigint)[]): Sql {
  const type = raw(typeof ids[0] === 'bigint' ? 'bigint' : 'int');
  return ids.length === 1 ? sql`(SELECT ${ids[0]}::${type} AS id) p` : sql`unnest(${ids}::${type}[]) AS p (id)`;
}

function whereOnPage(list: Pick<InnerList, 'parent' | 'key'>, wish: PageWish): Sql {
  const [parent, key] = [raw(list.parent), raw(list.key)];
  // add optional conditions only if they are needed, so that PostgreSQL can use the index on the first two columns
  const conditions = [sql`c.${parent} = p.id`, sql`c.${key} > 0`];
  if (wish.above !== undefined) conditions.push(sql`c.${key} > ${wish.above}`);
  if (wish.below !== undefined) conditions.push(sql`c.${key} < ${wish.below}`);
  if (wish.states !== undefined) conditions.push(sql`c.state::text = ANY(${wish.states}::text[])`);
  return allOf(conditions);
}

/**
 * Counts the rows of the inner list of each parent, with one statement. Omits parents with empty lists. The list limiter
 * limits how many counts a caller runs at the same time, because a list can contain millions of rows.
 */
export async function countInnerRows<Id extends number | bigint>(
  ctx: Context,
  { rows, parent }: { rows: Sql; parent: Sql },
  parentIds: readonly Id[],
): Promise<Map<Id, number>> {
  const type = raw(typeof parentIds[0] === 'bigint' ? 'bigint' : 'int');
  const counts = await askAtLength<{ id: Id; count: number }>(
    ctx,
    sql`SELECT ${parent} AS id, count(*)::int FROM ${rows} AND ${parent} = ANY(${parentIds}::${type}[]) GROUP BY 1`,
    ctx.reader,
  );
  return new Map(counts.map(({ id, count }) => [id, count]));
}
