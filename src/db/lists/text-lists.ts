/**
 * Reads lists from one snapshot, as JSON text that the database produces, so that this process does not convert rows to
 * objects. Only two pages of a list are in memory at a time.
 */
import { PARALLEL, setLocally } from '../pipeline.js';
import { prepared } from '../prepared.js';
import { empty, raw, type Sql, sql } from '../sql.js';
import { type Asker, askSoon, atPace, PAGE, type Paced, type Snapshot, withSnapshot } from './snapshot.js';

interface TextList {
  /** The rows to list, as SQL of the form `table f WHERE condition`. */
  rows: Sql;
  columns: Sql;
  /** SQL expression for a row's JSON, which must not be null or contain control characters. */
  item: Sql;
  order: Sql;
  /**
   * A faster variant of `rows` without access checks, for callers that may see all rows. `isFree` is an SQL condition
   * that is true if the caller may see all rows. If `isFree` is false, the faster variant returns no rows.
   */
  free?: { rows: Sql; isFree: Sql };
  /** Whether the statement scans the whole table if only a few rows match. */
  isScan?: boolean;
  isPlannedOnce?: boolean;
  /**
   * Splits a slow search into two queries. The first query selects only each row's integer `key`. The second query
   * reads the rows with the selected keys.
   */
  again?: { key: Sql; rows: (keys: Sql) => Sql };
}

/** The rows as JSON in UTF-8, separated by commas. A buffer can end in the middle of a row. */
export type TextPages = Paced<Buffer[]>;

/**
 * Calls `consume` with the number of rows, and with the rows as JSON. The function `consume` may read the rows slowly.
 * @throws UnavailableError if the list limiter does not have a free slot for the caller
 */
export async function readTextList<T>(
  asker: Asker,
  list: TextList,
  consume: (count: bigint, pages: TextPages) => Promise<T>,
): Promise<T> {
  const { db, share, reader } = asker;
  const soon = await askShort(asker, list);
  if (soon && isShort(soon)) return await consume(...pageOf(soon));
  const slot = await db.longReads.enter(share, reader);
  try {
    return await withSnapshot(db.streamPool, async ({ query, copy }) => {
      if (list.isScan) await query(setLocally(PARALLEL));
      const late = soon ?? (await query<Short>(shortOf(list)));
      if (isShort(late)) return await consume(...pageOf(late));
      const { count, found } = await findLong(list, query);
      return await consume(count, atPace(withCommas(copy(longOf(found))), slot));
    });
  } finally {
    slot.leave();
  }
}

/** Maximum number of keys that this process keeps in memory for a slow search. */
const KEPT = raw('200000');
const ONE_MORE_THAN_KEPT = raw('200001');

/**
 * Counts a list's rows, and returns the list to read. If a slow search finds at most `KEPT` keys, the returned list
 * reads its rows by key.
 */
async function findLong(list: TextList, query: Snapshot['query']): Promise<{ count: bigint; found: TextList }> {
  const { rows, again } = list;
  if (again) {
    const [kept] = await query<{ count: bigint; keys: string | null }>(
      sql`SELECT count(*) AS count, CASE WHEN count(*) <= ${KEPT} THEN array_agg(key)::text END AS keys
          FROM (SELECT ${again.key} AS key FROM ${rows} LIMIT ${ONE_MORE_THAN_KEPT}) f`,
    );
    const keys = kept?.keys ?? null;
    if (kept && keys !== null)
      return { count: kept.count, found: { ...list, rows: again.rows(sql`${keys}::bigint[]`) } };
  }
  const [row] = await query<{ count: bigint }>(sql`SELECT count(*) FROM ${rows}`);
  return { count: row?.count ?? 0n, found: list };
}

interface Short {
  count: bigint;
  /** The JSON of all rows; null if there are no rows, or more rows than fit on a page. */
  text: string | null;
}

async function askShort(asker: Asker, list: TextList): Promise<Short[] | undefined> {
  const { free, isScan, isPlannedOnce } = list;
  const ask = <Row extends Short>(statement: Sql) =>
    askSoon<Row>(asker, isPlannedOnce ? prepared(statement) : statement, isScan ? 'scan' : 'index');
  if (free) {
    const soon = await ask<Short & { isFree: boolean }>(
      shortOf({ ...list, ...free }, sql`, ${free.isFree} AS "isFree"`),
    );
    if (!soon?.some(({ isFree }) => !isFree)) return soon;
  }
  return await ask(shortOf(list));
}

const MOST = raw(String(PAGE));
const ONE_MORE = raw(String(PAGE + 1));

/**
 * Limits the number of rows before sorting. Otherwise, PostgreSQL might scan an index in sort order, which takes long
 * if only a few rows match.
 */
function shortOf({ rows, columns, item, order }: TextList, more = empty): Sql {
  return sql`SELECT count(*) AS count, CASE WHEN count(*) <= ${MOST} THEN string_agg(${item}, ',' ORDER BY ${order}) END AS text${more}
    FROM (SELECT ${columns} FROM ${rows} LIMIT ${ONE_MORE}) f`;
}

/** Sorts the rows before converting them to JSON, because sorting the longer JSON would take more memory. */
function longOf({ rows, columns, item, order }: TextList): Sql {
  return sql`SELECT ${item} FROM (SELECT ${columns} FROM ${rows} ORDER BY ${order} OFFSET 0) f`;
}

const isShort = ([short]: Short[]) => short !== undefined && short.count <= PAGE;

function pageOf([short]: Short[]): [bigint, AsyncGenerator<Buffer[]>] {
  const text = short?.text ?? '';
  async function* page() {
    if (text !== '') yield [Buffer.from(text)];
  }
  return [short?.count ?? 0n, page()];
}

const COMMA = ','.charCodeAt(0);
const LINE_FEED = '\n'.charCodeAt(0);
const SEPARATOR = Buffer.from(',');

/** Replaces each line feed except the last one with a comma. */
async function* withCommas(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer[]> {
  let isBetween = false;
  for await (const chunk of chunks) {
    const isEnd = chunk.at(-1) === LINE_FEED;
    for (let at = chunk.indexOf(LINE_FEED); at !== -1; at = chunk.indexOf(LINE_FEED, at + 1)) chunk[at] = COMMA;
    const rows = isEnd ? chunk.subarray(0, -1) : chunk;
    yield isBetween ? [SEPARATOR, rows] : [rows];
    isBetween = isEnd;
  }
}
