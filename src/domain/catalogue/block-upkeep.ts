/** Keeps the blocks of paths up to date, which searches use (path-blocks.ts). */
import { triesAdvisory } from '../../db/locks.js';
import { raw, type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import type { Context } from '../context.js';
import { isInOrder, pathOrder } from './path-blocks.js';

/** Number of files in a new block. A block with more than twice as many files is divided. Tests use smaller blocks. */
export const blockSize = { files: 1000 };

/** If more files have changed, all blocks are built again, because each changed block is read whole. */
const MAX_CHANGED = 100_000;

/** A part of the catalogue in path order, from one block to another. */
interface Range {
  low: string;
  high: string | null;
}

/**
 * Updates the blocks that contain new or renamed files. A killed update leaves the blocks unchanged.
 * @param stop ends the update after the current block, without a change
 */
export async function updatePathBlocks(ctx: Context, stop: AbortSignal): Promise<void> {
  await update(ctx, stop).catch((error: unknown) => {
    if (!stop.aborted) throw error;
  });
}

async function update(ctx: Context, stop: AbortSignal): Promise<void> {
  const [state] = await ctx.db.rows<{ isInOrder: boolean; changed: number }>(
    sql`SELECT ${isInOrder} AS "isInOrder", (SELECT coalesce(sum(c.last_id - c.first_id + 1), 0)::float8 FROM path_change c) AS changed`,
  );
  if (!state || (state.isInOrder && state.changed === 0)) return;
  const isAll = !state.isInOrder || state.changed > MAX_CHANGED;
  await transaction(ctx.db.pool, 'updatePathBlocks', async (tx) => {
    const [lock] = await tx.query<{ isFree: boolean }>(sql`SELECT ${triesAdvisory('pathBlocks')} AS "isFree"`);
    if (!lock?.isFree) return; // another engine updates the blocks
    for (const range of isAll ? await takeAll(tx) : await takeChanged(tx)) await rebuild(tx, range, stop);
    stop.throwIfAborted();
  });
}

// a file that is added later has a change of its own, which stays
async function takeAll(tx: Transaction): Promise<Range[]> {
  await tx.query(sql`DELETE FROM path_change`);
  return [{ low: '', high: null }];
}

/** Deletes the changes, and returns the blocks of the changed files. */
async function takeChanged(tx: Transaction): Promise<Range[]> {
  const rows = await tx.query<Range>(
    sql`WITH c AS (DELETE FROM path_change RETURNING first_id, last_id)
        SELECT k.low, (SELECT n.low FROM path_block n WHERE n.low > k.low ORDER BY n.low LIMIT 1) AS high FROM (
          SELECT DISTINCT (SELECT b.low FROM path_block b WHERE b.low <= f.path ORDER BY b.low DESC LIMIT 1) AS low
          FROM c JOIN tape_file f ON f.id BETWEEN c.first_id AND c.last_id
        ) k ORDER BY k.low`,
  );
  return rows;
}

async function rebuild(tx: Transaction, { low, high }: Range, stop: AbortSignal): Promise<void> {
  const inRange = (column: Sql) =>
    high === null ? sql`${column} >= ${low}` : sql`${column} >= ${low} AND ${column} < ${high}`;
  await tx.query(sql`DELETE FROM path_block k WHERE ${inRange(sql`k.low`)}`);
  for (let next: string | null = low; next !== null; ) {
    stop.throwIfAborted();
    next = await addBlock(tx, { low: next, high });
  }
}

/** Adds the first block of a range. @returns the first path of the next block; null if the block is the last one */
async function addBlock(tx: Transaction, { low, high }: Range): Promise<string | null> {
  const size = raw(String(blockSize.files));
  const end = high === null ? sql`true` : sql`f.path < ${high}`;
  // a trigram of more than three characters is a hash, which stands for characters that are not ASCII
  const [row] = await tx.query<{ next: string | null }>(
    sql`WITH p AS MATERIALIZED (SELECT f.path FROM tape_file f WHERE f.path >= ${low}::text AND ${end} ORDER BY f.path LIMIT 2 * ${size} + 1),
          next AS MATERIALIZED (SELECT CASE WHEN (SELECT count(*) FROM p) > 2 * ${size} THEN (SELECT path FROM p ORDER BY path OFFSET ${size} LIMIT 1) END AS path),
          g AS MATERIALIZED (SELECT DISTINCT t AS gram FROM p, next, unnest(show_trgm(p.path)) t WHERE next.path IS NULL OR p.path < next.path),
          added AS (INSERT INTO path_block (low, grams) SELECT ${low}::text, ARRAY(
            SELECT gram FROM g WHERE length(gram) = 3
            UNION SELECT substr(gram, n, 2) FROM g, generate_series(1, 2) n WHERE length(gram) = 3 AND substr(gram, n, 2) !~ ' '
            UNION SELECT '*' FROM g WHERE length(gram) > 3
            UNION SELECT ${pathOrder} WHERE ${low}::text = ''))
        SELECT path AS next FROM next`,
  );
  return row?.next ?? null;
}
