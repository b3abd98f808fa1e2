/**
 * Finds the first files of a search in path order. The catalogue is divided into blocks of about a thousand files in
 * path order. Each block lists the trigrams of its paths, so that a search skips the blocks that cannot contain a hit.
 *
 * The blocks can lag behind the catalogue. Triggers therefore record new and renamed files as ranges of ids, and a search
 * does not skip the blocks of these files. If there are many, the blocks are not used until a job has updated them.
 */
import { askSoon } from '../../db/lists/snapshot.js';
import { allOf, raw, type Sql, sql } from '../../db/sql.js';
import type { Context } from '../context.js';
import type { KeyPage } from '../page-keys.js';

/** Maximum number of blocks that a search reads. Reading a block takes about 2 ms. */
const MAX_BLOCKS = 16;

/** Maximum number of files that the blocks might not cover. Finding the block of each takes about 5 µs. */
const MAX_CHANGED = 1000;

/** Milliseconds for a search in blocks. If it takes longer, the search uses another index. */
const SEARCH_MS = 250;

export interface BlockSearch {
  grams: readonly string[];
  /** A condition on the files `f`. */
  where: Sql;
  reader: AbortSignal | undefined;
}

const MOST = raw(String(MAX_BLOCKS));
/** Maximum number of blocks in which files are counted. */
const COUNTED = raw('8');
/** PostgreSQL does not know how long it takes to read the grams of all blocks. */
const BY_INDEX = { ms: SEARCH_MS, settings: { enable_seqscan: 'off', jit: 'off' } };

/**
 * Names the order of paths. The first block has this name as a gram, because blocks are useless after a change of the
 * database's collation.
 */
export const pathOrder = sql`(SELECT concat_ws(' ', 'order', d.datcollate, d.datctype, pg_database_collation_actual_version(d.oid))
  FROM pg_database d WHERE d.datname = current_database())`;

export const isInOrder = sql`EXISTS (SELECT FROM path_block b WHERE b.low = '' AND b.grams @> ARRAY[${pathOrder}])`;

/** The blocks of new and renamed files. The limit gives PostgreSQL's planner an idea of their number. */
const changed = sql`SELECT (SELECT k.low FROM path_block k WHERE k.low <= c.path ORDER BY k.low DESC LIMIT 1)
  FROM (SELECT f.path FROM path_change c JOIN tape_file f ON f.id BETWEEN c.first_id AND c.last_id LIMIT ${raw(String(MAX_CHANGED))}) c`;

/** The blocks that can contain paths with all the grams, as a table. */
const withGrams = (grams: readonly string[]) =>
  sql`(WITH k AS MATERIALIZED (SELECT g.low FROM path_block g WHERE g.grams @> ${grams}::text[]
    UNION SELECT g.low FROM path_block g WHERE g.grams @> '{*}' UNION ${changed}) SELECT k.low FROM k)`;

/** The condition that the blocks exist and cover nearly all files. */
const isCurrent = sql`(${isInOrder} AND (SELECT coalesce(sum(c.files), 0) FROM (
  SELECT p.last_id - p.first_id + 1 AS files FROM path_change p LIMIT ${raw(String(MAX_CHANGED + 1))}) c) <= ${raw(String(MAX_CHANGED))})`;

/**
 * Returns the beginning of a statement: the table `s` says whether the blocks can be used, and the table `b` contains the
 * chosen blocks. `high` is the first path of the next block; null for the last block.
 * @param select chooses the blocks. Its FROM clause is a table of blocks `k`
 */
function withBlocks(grams: readonly string[], select: (from: Sql) => Sql): Sql {
  const from = sql`${withGrams(grams)} k WHERE s.is_current`;
  return sql`WITH s AS MATERIALIZED (SELECT ${isCurrent} AS is_current), b AS MATERIALIZED (
      SELECT c.*, (SELECT n.low FROM path_block n WHERE n.low > c.low ORDER BY n.low LIMIT 1) AS high
      FROM s CROSS JOIN LATERAL (${select(from)}) c ORDER BY c.low)`;
}

/** A FROM clause with the files `f` of the first blocks in the table `b`, in path order. */
function filesInBlocks(where: Sql, bounds: readonly Sql[] = []): Sql {
  const first = sql`(SELECT * FROM b ORDER BY b.low LIMIT ${MOST}) b`;
  // OFFSET 0 makes PostgreSQL read one block after the other, by the index on paths
  const filesFrom = (range: readonly Sql[], high: Sql) =>
    sql`SELECT s.* FROM ${first} CROSS JOIN LATERAL (SELECT f.* FROM (
        SELECT * FROM tape_file f WHERE ${allOf([...range, ...bounds])} ORDER BY f.path OFFSET 0) f WHERE ${where}) s WHERE b.high IS ${high}`;
  const from = sql`f.path >= b.low`;
  return sql`(${filesFrom([from, sql`f.path < b.high`], sql`NOT NULL`)} UNION ALL ${filesFrom([from], sql`NULL`)}) f`;
}

interface Found {
  isCurrent: boolean;
  blocks: number;
  hasFile: boolean;
}

const facts = sql`(SELECT s.is_current AS "isCurrent", (SELECT count(*)::int FROM b) AS blocks FROM s) c`;

/**
 * Reads a page in path order. One statement chooses the blocks and reads the files, so that a concurrent change of a path
 * cannot hide a file.
 * @returns undefined if the blocks are not up to date; `far` if the first blocks that can contain files of the search do
 *   not fill the page
 */
export async function readPageInBlocks<Row extends object>(
  ctx: Context,
  search: BlockSearch & { columns: Sql },
  { after, before, limit }: KeyPage<string>,
): Promise<Row[] | 'far' | undefined> {
  const from = after === undefined ? sql`''` : sql`(SELECT max(n.low) FROM path_block n WHERE n.low <= ${after}::text)`;
  const to = before === undefined ? sql`true` : sql`k.low < ${before}::text`;
  const blocks = withBlocks(
    search.grams,
    (all) => sql`SELECT k.low FROM ${all} AND k.low >= ${from} AND ${to} ORDER BY k.low LIMIT ${MOST} + 1`,
  );
  const bounds = [
    ...(after === undefined ? [] : [sql`f.path > ${after}`]),
    ...(before === undefined ? [] : [sql`f.path < ${before}`]),
  ];
  const files = sql`SELECT true AS "hasFile", ${search.columns} FROM ${filesInBlocks(search.where, bounds)} LIMIT ${raw(String(Math.trunc(limit)))}`;
  const rows = await askSoon<Row & Found>(
    { db: ctx.db, share: ctx.share, reader: search.reader },
    sql`${blocks} SELECT * FROM ${facts} LEFT JOIN (${files}) f ON true`,
    BY_INDEX,
  );
  const [first] = rows ?? [];
  if (!rows || !first?.isCurrent) return undefined;
  const found = rows.filter(({ hasFile }) => hasFile);
  return found.length === limit || first.blocks <= MAX_BLOCKS ? found : 'far';
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
  // every nth block, beginning with the first
  const blocks = withBlocks(
    search.grams,
    (all) => sql`SELECT a.low, a.blocks::int AS all_blocks FROM (
        SELECT k.low, count(*) OVER () AS blocks, row_number() OVER (ORDER BY k.low) - 1 AS n FROM ${all}) a
      WHERE a.n = 0 OR a.n * ${COUNTED} / a.blocks > (a.n - 1) * ${COUNTED} / a.blocks`,
  );
  const [row] =
    (await askSoon<Found & { count: number; allBlocks: number | null }>(
      { db: ctx.db, share: ctx.share, reader: search.reader },
      sql`${blocks} SELECT c.*, (SELECT max(b.all_blocks) FROM b) AS "allBlocks",
          (SELECT count(*)::int FROM ${filesInBlocks(search.where)}) AS count FROM ${facts}`,
      BY_INDEX,
    )) ?? [];
  if (!row?.isCurrent) return undefined;
  const { blocks: counted, count, allBlocks } = row;
  if (allBlocks === null) return { count: 0, isEstimated: false };
  return { count: Math.round((count * allBlocks) / counted), isEstimated: allBlocks > counted };
}
