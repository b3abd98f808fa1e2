/**
 * Finds the first files of a search in path order. The catalogue is divided into blocks of about a thousand files in
 * path order. Each block lists the trigrams of its paths, so that a search skips the blocks that cannot contain a hit.
 *
 * The blocks can lag behind the catalogue. Triggers therefore record new and renamed files as ranges of ids, and a search
 * does not skip the blocks of these files. If there are many, the blocks are not used until a job has updated them.
 */
import { askSoon } from '../../db/lists/snapshot.js';
import { allOf, join, raw, type Sql, sql } from '../../db/sql.js';
import type { Context } from '../context.js';
import type { KeyPage } from '../page-keys.js';

/** Maximum number of blocks that a search reads. Reading a block takes about 2 ms. */
const MAX_BLOCKS = 16;

/** Maximum number of files that the blocks might not cover. Finding the block of each takes about 5 µs. */
const MAX_CHANGED = 1000;

/** Milliseconds for a search in blocks. If it takes longer, the search uses another index. */
const SEARCH_MS = 250;

interface Block {
  low: string;
  /** The first path of the next block; null for the last block. */
  high: string | null;
}

export interface BlockSearch {
  grams: readonly string[];
  /** A condition on the files `f`. */
  where: Sql;
  reader: AbortSignal | undefined;
}

const MOST = raw(String(MAX_BLOCKS));
/** Maximum number of blocks in which files are counted. */
const COUNTED = raw('8');
const SOON = { ms: SEARCH_MS };
/** PostgreSQL does not know how long it takes to read the grams of all blocks. */
const BY_INDEX = { enable_seqscan: 'off', enable_indexscan: 'off' };

/** The blocks of new and renamed files. The limit gives PostgreSQL's planner an idea of their number. */
const changed = sql`SELECT (SELECT k.low FROM path_block k WHERE k.low <= c.path ORDER BY k.low DESC LIMIT 1)
  FROM (SELECT f.path FROM path_change c JOIN tape_file f ON f.id BETWEEN c.first_id AND c.last_id LIMIT ${raw(String(MAX_CHANGED))}) c`;

/** The blocks that can contain paths with all the grams, as a table. */
const withGrams = (grams: readonly string[]) =>
  sql`(WITH k AS MATERIALIZED (SELECT g.low FROM path_block g WHERE g.grams @> ${grams}::text[]
    UNION SELECT g.low FROM path_block g WHERE g.grams @> '{*}' UNION ${changed}) SELECT k.low FROM k)`;

/** The condition that the blocks exist and cover nearly all files. */
const isCurrent = sql`EXISTS (SELECT FROM path_block)
  AND (SELECT coalesce(sum(c.last_id - c.first_id + 1), 0) FROM path_change c) <= ${raw(String(MAX_CHANGED))}`;

/**
 * Chooses blocks that can contain files of a search.
 * @param select chooses the blocks. Its FROM clause is a table of blocks `k`
 * @returns undefined if the blocks are not up to date
 */
async function findBlocks<Row extends Block>(
  ctx: Context,
  { grams, reader }: BlockSearch,
  select: (from: Sql) => Sql,
): Promise<Row[] | undefined> {
  const from = sql`${withGrams(grams)} k WHERE s.is_current`;
  const rows = await askSoon<Row & { isCurrent: boolean; low: string | null }>(
    { db: ctx.db, share: ctx.share, reader },
    sql`WITH s AS MATERIALIZED (SELECT ${isCurrent} AS is_current)
        SELECT s.is_current AS "isCurrent", b.*, (SELECT n.low FROM path_block n WHERE n.low > b.low ORDER BY n.low LIMIT 1) AS high
        FROM s LEFT JOIN LATERAL (${select(from)}) b ON true ORDER BY b.low`,
    { ms: SEARCH_MS, settings: BY_INDEX },
  );
  return rows?.[0]?.isCurrent ? rows.filter(({ low }) => low !== null) : undefined;
}

/** A FROM clause with the files `f` of the blocks, in path order. */
function filesIn(blocks: readonly Block[], where: Sql, bounds: readonly Sql[] = []): Sql {
  const last = blocks.find(({ high }) => high === null);
  const closed = blocks.filter(({ high }) => high !== null);
  const [lows, highs] = [closed.map(({ low }) => low), closed.map(({ high }) => high)];
  // OFFSET 0 makes PostgreSQL read one block after the other, by the index on paths
  const filesFrom = (range: readonly Sql[]) =>
    sql`SELECT f.* FROM (SELECT * FROM tape_file f WHERE ${allOf([...range, ...bounds])} ORDER BY f.path OFFSET 0) f WHERE ${where}`;
  const parts = [
    sql`SELECT s.* FROM unnest(${lows}::text[], ${highs}::text[]) AS b (low, high)
        CROSS JOIN LATERAL (${filesFrom([sql`f.path >= b.low`, sql`f.path < b.high`])}) s`,
    ...(last ? [filesFrom([sql`f.path >= ${last.low}::text`])] : []),
  ];
  return sql`(${join(parts, ' UNION ALL ')}) f`;
}

/**
 * Reads a page in path order.
 * @returns undefined if the blocks do not help: if they are not up to date, or the page's files are in too many blocks
 */
export async function readPageInBlocks<Row extends object>(
  ctx: Context,
  search: BlockSearch & { columns: Sql },
  { after, before, limit }: KeyPage<string>,
): Promise<Row[] | undefined> {
  const from = after === undefined ? sql`''` : sql`(SELECT max(n.low) FROM path_block n WHERE n.low <= ${after}::text)`;
  const to = before === undefined ? sql`true` : sql`k.low < ${before}::text`;
  const found = await findBlocks(
    ctx,
    search,
    (blocks) => sql`SELECT k.low FROM ${blocks} AND k.low >= ${from} AND ${to} ORDER BY k.low LIMIT ${MOST} + 1`,
  );
  if (!found || found.length === 0) return found && [];
  const bounds = [
    ...(after === undefined ? [] : [sql`f.path > ${after}`]),
    ...(before === undefined ? [] : [sql`f.path < ${before}`]),
  ];
  const files = filesIn(found.slice(0, MAX_BLOCKS), search.where, bounds);
  const rows = await askSoon<Row>(
    { db: ctx.db, share: ctx.share, reader: search.reader },
    sql`SELECT ${search.columns} FROM ${files} LIMIT ${raw(String(Math.trunc(limit)))}`,
    SOON,
  );
  return rows && (rows.length === limit || found.length <= MAX_BLOCKS) ? rows : undefined;
}

/**
 * Counts the files of a search exactly if they are in few blocks. Otherwise, counts them in some of the blocks, and
 * estimates their number.
 * @returns undefined if the blocks are not up to date
 */
export async function countInBlocks(
  ctx: Context,
  search: BlockSearch,
): Promise<{ count: number; isEstimated: boolean } | undefined> {
  const chosen = await findBlocks<Block & { blocks: number }>(
    ctx,
    search,
    // every nth block, beginning with the first
    (blocks) => sql`SELECT c.low, c.blocks::int FROM (
        SELECT k.low, count(*) OVER () AS blocks, row_number() OVER (ORDER BY k.low) - 1 AS n FROM ${blocks}) c
      WHERE c.n = 0 OR c.n * ${COUNTED} / c.blocks > (c.n - 1) * ${COUNTED} / c.blocks`,
  );
  const [first] = chosen ?? [];
  if (!chosen || !first) return chosen && { count: 0, isEstimated: false };
  const [row] =
    (await askSoon<{ count: number }>(
      { db: ctx.db, share: ctx.share, reader: search.reader },
      sql`SELECT count(*)::int FROM ${filesIn(chosen, search.where)}`,
      SOON,
    )) ?? [];
  if (!row) return undefined;
  const isEstimated = first.blocks > chosen.length;
  return { count: Math.round((row.count * first.blocks) / chosen.length), isEstimated };
}
