/** Deletes old events, and the text of emails about requests that ended long ago. */

import { addSeconds } from '../../core/time.js';
import { locking, tryAdvisory } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import { isLive } from '../conditions.js';
import type { Context } from '../context.js';

const DAY_SECONDS = 24 * 3600;
const EMAILS = 1000;

/**
 * Deletes the text of sent emails about requests that ended more than TAPEGATE_REQUEST_DAYS ago. The rows of these
 * emails remain without the text, so that no email is sent twice. Several engines can prune at the same time.
 */
export async function pruneEmails(ctx: Context, stop: AbortSignal): Promise<void> {
  const before = addSeconds(ctx.now(), -ctx.config.requestDays * DAY_SECONDS);
  while (!stop.aborted) {
    const { rowCount } = await ctx.db.pool.query(
      sql`UPDATE notification SET body = '' WHERE id IN (
            SELECT n.id FROM notification n JOIN request r ON r.id = n.request_id
            WHERE n.state <> 'PENDING' AND n.body <> '' AND NOT (${isLive}) AND r.retention <= ${before}::timestamp
            LIMIT ${EMAILS} ${locking.freeEmail})`,
    );
    if ((rowCount ?? 0) < EMAILS) return;
  }
}

const BATCHES = 500;
const EVENTS = 5000;

/**
 * Deletes events older than TAPEGATE_EVENT_DAYS in small transactions. After a crash, the next run continues the
 * deletion. The function marks batches of events in id order before it deletes them, so that no reader gets only some
 * events of a batch.
 */
export async function pruneEvents(ctx: Context, stop: AbortSignal): Promise<void> {
  const before = addSeconds(ctx.now(), -ctx.config.eventDays * DAY_SECONDS);
  for (let isMore = true; isMore && !stop.aborted; ) {
    const marked = await prune(ctx, markBatches(before));
    for (let deleted = 1; deleted > 0 && !stop.aborted; ) deleted = await prune(ctx, deleteEvents);
    if (stop.aborted) return;
    const deleted = await prune(ctx, deleteBatches);
    isMore = marked === BATCHES || deleted >= BATCHES;
  }
}

/**
 * Runs one step of the pruning in a transaction.
 * @returns the number of changed rows; 0 if another engine is pruning
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

const isLookedThrough = sql`(NOT EXISTS (SELECT FROM webhook) OR b.last_number <= (SELECT last FROM webhook_cursor))`;

const markBatches = (before: string) => sql`
  UPDATE event_batch SET is_pruned = true WHERE id IN (
    WITH oldest AS (
      SELECT b.id, b.last_number, coalesce(e.at < ${before}::timestamp, true) AND ${isLookedThrough} AS is_old
      FROM event_batch b LEFT JOIN event e ON e.id = b.last_id
      WHERE b.last_number IS NOT NULL AND NOT b.is_pruned ORDER BY b.last_number LIMIT ${BATCHES}
    )
    SELECT o.id FROM oldest o WHERE NOT EXISTS (
      SELECT FROM oldest y WHERE NOT y.is_old AND y.last_number <= o.last_number))`;

const OLDEST_PRUNED = sql`(SELECT * FROM event_batch WHERE is_pruned ORDER BY last_number LIMIT ${BATCHES + 1})`;

const deleteEvents = sql`
  DELETE FROM event WHERE id = ANY(ARRAY(
    SELECT e.id FROM ${OLDEST_PRUNED} b
      CROSS JOIN LATERAL (
        SELECT id FROM event WHERE batch_id = b.id AND id BETWEEN b.first_id AND b.last_id ORDER BY id LIMIT ${EVENTS}
      ) e LIMIT ${EVENTS}))`;

/**
 * Deletes batches that no longer contain events, except the last batch. OFFSET 0 forces index lookups, because a join
 * would read all events.
 */
const deleteBatches = sql`
  DELETE FROM event_batch WHERE id IN (
    SELECT b.id FROM ${OLDEST_PRUNED} b
    WHERE b.last_number < (SELECT max(last_number) FROM event_batch WHERE is_pruned)
      AND NOT EXISTS (SELECT FROM event e WHERE e.batch_id = b.id AND e.id BETWEEN b.first_id AND b.last_id OFFSET 0))`;
