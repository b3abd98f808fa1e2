/**
 * What is past its retention goes, in small steps: each is a statement of its own, which may be killed, and the next pass goes
 * on. Batches are marked first, in the order of their numbers, so that nobody is told a part of what is about to go.
 */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { addSeconds } from '../../time.js';

const DAY_SECONDS = 24 * 3600;
/** Batches, and events, of a step. */
const BATCHES = 500;
const EVENTS = 5000;

/** Deletes the events that are older than `EVENT_DAYS`. */
export async function pruneEvents(ctx: Context, stop: AbortSignal): Promise<void> {
  const before = addSeconds(ctx.now(), -ctx.config.eventDays * DAY_SECONDS);
  for (let isMore = true; isMore && !stop.aborted; ) {
    const marked = await markBatches(ctx, before);
    while (!stop.aborted && (await deleteEvents(ctx)) > 0);
    if (stop.aborted) return;
    // an earlier pass may have been killed, and another engine have marked as many
    const deleted = await deleteBatches(ctx);
    isMore = marked === BATCHES || deleted >= BATCHES;
  }
}

/** The oldest ones, up to the first that is young enough. @returns how many */
async function markBatches(ctx: Context, before: string): Promise<number> {
  const { rowCount } = await ctx.db.pool.query(
    sql`WITH oldest AS (
          SELECT b.id, b.last_number, coalesce(e.at < ${before}::timestamp, true) AS is_old
          FROM event_batch b LEFT JOIN event e ON e.id = b.last_id
          WHERE b.last_number IS NOT NULL AND NOT b.is_pruned ORDER BY b.last_number LIMIT ${BATCHES}
        )
        UPDATE event_batch SET is_pruned = true WHERE id IN (
          SELECT o.id FROM oldest o WHERE NOT EXISTS (
            SELECT FROM oldest y WHERE NOT y.is_old AND y.last_number <= o.last_number))`,
  );
  return rowCount ?? 0;
}

/** One more than a step marks: the last one stays. */
const OLDEST_PRUNED = sql`(SELECT * FROM event_batch WHERE is_pruned ORDER BY last_number LIMIT ${BATCHES + 1})`;

/** @returns how many */
async function deleteEvents(ctx: Context): Promise<number> {
  const { rowCount } = await ctx.db.pool.query(
    sql`DELETE FROM event WHERE id = ANY(ARRAY(
          SELECT e.id FROM ${OLDEST_PRUNED} b
            CROSS JOIN LATERAL (
              SELECT id FROM event WHERE batch_id = b.id AND id BETWEEN b.first_id AND b.last_id ORDER BY id LIMIT ${EVENTS}
            ) e LIMIT ${EVENTS}))`,
  );
  return rowCount ?? 0;
}

/**
 * Those that have no events any more, but the last: nothing else leads to an event. Whoever else prunes may have marked some
 * meanwhile. (`OFFSET 0` has them looked up batch by batch: as a join all events would be read.)
 * @returns how many
 */
async function deleteBatches(ctx: Context): Promise<number> {
  const { rowCount } = await ctx.db.pool.query(
    sql`DELETE FROM event_batch WHERE id IN (
          SELECT b.id FROM ${OLDEST_PRUNED} b
          WHERE b.last_number < (SELECT max(last_number) FROM event_batch WHERE is_pruned)
            AND NOT EXISTS (SELECT FROM event e WHERE e.batch_id = b.id AND e.id BETWEEN b.first_id AND b.last_id OFFSET 0))`,
  );
  return rowCount ?? 0;
}
