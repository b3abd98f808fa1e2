/**
 * What is past its retention goes, in small steps: each is a transaction of its own, which may be killed, and the next pass goes
 * on. Batches are marked first, in the order of their numbers, so that nobody is told a part of what is about to go. Of several
 * engines one does it: who finds another one at it leaves the rest to that one.
 */
import type { Context } from '../../context.js';
import { tryAdvisory } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { addSeconds } from '../../time.js';

const DAY_SECONDS = 24 * 3600;
/** Batches, and events, of a step. */
const BATCHES = 500;
const EVENTS = 5000;

/** Deletes the events that are older than `TAPEGATE_EVENT_DAYS`. */
export async function pruneEvents(ctx: Context, stop: AbortSignal): Promise<void> {
  const before = addSeconds(ctx.now(), -ctx.config.eventDays * DAY_SECONDS);
  for (let isMore = true; isMore && !stop.aborted; ) {
    const marked = await prune(ctx, markBatches(before));
    for (let deleted = 1; deleted > 0 && !stop.aborted; ) deleted = await prune(ctx, deleteEvents);
    if (stop.aborted) return;
    // an earlier pass may have been killed
    const deleted = await prune(ctx, deleteBatches);
    isMore = marked === BATCHES || deleted >= BATCHES;
  }
}

/**
 * One step.
 * @param change gives a row for each that it has changed
 * @returns how many; none where another engine is at it
 */
async function prune(ctx: Context, change: Sql): Promise<number> {
  return await transaction(ctx.db.pool, 'pruneEvents', async (tx) => {
    if (!(await tryAdvisory(tx, 'history'))) return 0;
    const [row] = await tx.query<{ count: number }>(
      sql`WITH changed AS (${change} RETURNING true) SELECT count(*)::int AS count FROM changed`,
    );
    return row?.count ?? 0;
  });
}

/** Webhooks are told of what is in the batch `b`: until then it stays, however old it is. */
const isLookedThrough = sql`(NOT EXISTS (SELECT FROM webhook) OR b.last_number <= (SELECT last FROM webhook_cursor))`;

/** The oldest ones, up to the first that is young enough. */
const markBatches = (before: string) => sql`
  UPDATE event_batch SET is_pruned = true WHERE id IN (
    WITH oldest AS (
      SELECT b.id, b.last_number, coalesce(e.at < ${before}::timestamp, true) AND ${isLookedThrough} AS is_old
      FROM event_batch b LEFT JOIN event e ON e.id = b.last_id
      WHERE b.last_number IS NOT NULL AND NOT b.is_pruned ORDER BY b.last_number LIMIT ${BATCHES}
    )
    SELECT o.id FROM oldest o WHERE NOT EXISTS (
      SELECT FROM oldest y WHERE NOT y.is_old AND y.last_number <= o.last_number))`;

/** One more than a step marks: the last one stays. */
const OLDEST_PRUNED = sql`(SELECT * FROM event_batch WHERE is_pruned ORDER BY last_number LIMIT ${BATCHES + 1})`;

const deleteEvents = sql`
  DELETE FROM event WHERE id = ANY(ARRAY(
    SELECT e.id FROM ${OLDEST_PRUNED} b
      CROSS JOIN LATERAL (
        SELECT id FROM event WHERE batch_id = b.id AND id BETWEEN b.first_id AND b.last_id ORDER BY id LIMIT ${EVENTS}
      ) e LIMIT ${EVENTS}))`;

/**
 * Those that have no events any more, but the last: nothing else leads to an event. (`OFFSET 0` has them looked up batch by
 * batch: as a join all events would be read.)
 */
const deleteBatches = sql`
  DELETE FROM event_batch WHERE id IN (
    SELECT b.id FROM ${OLDEST_PRUNED} b
    WHERE b.last_number < (SELECT max(last_number) FROM event_batch WHERE is_pruned)
      AND NOT EXISTS (SELECT FROM event e WHERE e.batch_id = b.id AND e.id BETWEEN b.first_id AND b.last_id OFFSET 0))`;
