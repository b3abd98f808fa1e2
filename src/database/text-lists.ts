/**
 * Lists of which the database makes the text, from one snapshot: no row becomes an object of this process, and memory holds two
 * pages however long the list is. A list that is short is one statement, with its count.
 */
import { PARALLEL, setLocally } from './pipeline.js';
import { prepared } from './prepared.js';
import { type Asker, askSoon, atPace, PAGE, type Paced, type Snapshot, withSnapshot } from './snapshot.js';
import { empty, raw, type Sql, sql } from './sql.js';

export interface TextList {
  /** `table f WHERE condition` */
  rows: Sql;
  /** The columns of `f` that `item` and `order` need. */
  columns: Sql;
  /** An expression: the text of a row, which is not null and contains no control characters, as no JSON does. */
  item: Sql;
  /** An expression. */
  order: Sql;
  /** The same rows where nothing keeps any from whoever asks, and else none: found sooner, since nobody looks at each. */
  free?: { rows: Sql; isFree: Sql };
  /** Where few rows are found, each of the table was looked at. */
  isScan?: boolean;
  /** One plan is good for all that is looked for so. */
  isPlannedOnce?: boolean;
  /** Where it takes long to find the rows: how they are found again, by keys that are whole numbers, when they are to be told. */
  again?: { key: Sql; rows: (keys: Sql) => Sql };
}

/** Texts of rows in UTF-8, with commas between them; a part may end in the middle of a text. */
export type TextPages = Paced<Buffer[]>;

/**
 * Gives `consume` the texts of a list at its own pace, and first of all how many they are.
 * @throws UnavailableError when too many readers are at lists, or the reader itself at too many
 */
export async function readTextList<T>(
  asker: Asker,
  list: TextList,
  consume: (count: bigint, pages: TextPages) => Promise<T>,
): Promise<T> {
  const { db, share, reader } = asker;
  const soon = await askShort(asker, list);
  if (soon && isShort(soon)) return await consume(...pageOf(soon));
  const place = await db.longReads.enter(share, reader);
  try {
    return await withSnapshot(db.streamPool, async ({ query, copy }) => {
      if (list.isScan) await query(setLocally(PARALLEL));
      const late = soon ?? (await query<Short>(shortOf(list)));
      if (isShort(late)) return await consume(...pageOf(late));
      const { count, found } = await findLong(list, query);
      return await consume(count, atPace(withCommas(copy(longOf(found))), place));
    });
  } finally {
    place.leave();
  }
}

/** Of so many rows the keys are kept, which take ten bytes each. */
const KEPT = raw('200000');
const ONE_MORE_THAN_KEPT = raw('200001');

/** @returns how many they are, and where they are read from: what was looked for is not looked for again, unless it is too much to be kept */
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
  /** Null where there are none, or more than are short. */
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
 * The rows before their order, so that no index is walked for it: where few match, that would go on for long. It is the number of
 * rows that ends the search.
 */
function shortOf({ rows, columns, item, order }: TextList, more = empty): Sql {
  return sql`SELECT count(*) AS count, CASE WHEN count(*) <= ${MOST} THEN string_agg(${item}, ',' ORDER BY ${order}) END AS text${more}
    FROM (SELECT ${columns} FROM ${rows} LIMIT ${ONE_MORE}) f`;
}

/** The order before the texts: they are longer than what they are made of, and are not to be sorted. */
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

/** Puts a comma in the place of each end of a line but the last one. */
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
