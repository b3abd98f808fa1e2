/**
 * Stores requests that ended some time ago in a compact form: their files and unresolved paths are bundles, with an
 * array for each column.
 *
 * One statement converts rows to a bundle, or a bundle to rows, so the views `any_hold` and `any_awaited_path` show
 * each exactly once. Each step is a transaction; after a crash the next run continues. Compaction need not wait for
 * pending mail, whose text is stored, or for pending removals of copies, which find either form.
 */
import type { Context } from '../../context.js';
import { locking, tryAdvisory } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { addSeconds } from '../../time.js';
import { isLive } from '../conditions.js';

const DAY_SECONDS = 24 * 3600;
/** Rows of a bundle, all of which are unpacked to read one of them. */
const BUNDLE = 1000;
/** Rows of a step, which takes some tens of milliseconds. */
const STEP = 10_000;
const LETTERS = 1000;

/** Compacts the requests that ended more than `TAPEGATE_REQUEST_DAYS` ago. Several engines may do so at once. */
export async function compactRequests(ctx: Context, stop: AbortSignal): Promise<void> {
  const before = addSeconds(ctx.now(), -ctx.config.requestDays * DAY_SECONDS);
  while (!stop.aborted && (await compactNext(ctx, before)));
  while (!stop.aborted && (await emptyLetters(ctx)) > 0);
}

/**
 * Runs a step for the unlocked request that ended first; cancelling also sets `retention`. @returns false if there is
 * none
 */
async function compactNext(ctx: Context, before: string): Promise<boolean> {
  return await transaction(ctx.db.pool, 'compactRequest', async (tx) => {
    const [request] = await tx.query<{ id: number }>(
      sql`SELECT r.id FROM request r WHERE r.state IN ('EXPIRED', 'CANCELLED') AND r.form <> 'COMPACT' AND r.retention <= ${before}
          ORDER BY r.retention, r.id LIMIT 1 ${locking.freeRequest}`,
    );
    if (!request) return false;
    const moved = [await count(tx, bundleHolds(request.id)), await count(tx, bundlePaths(request.id))];
    const form = moved.some((rows) => rows >= STEP) ? 'MIXED' : 'COMPACT';
    await tx.query(sql`UPDATE request SET form = ${form} WHERE id = ${request.id}`);
    return true;
  });
}

async function count(tx: Transaction, move: Sql): Promise<number> {
  const [row] = await tx.query<{ moved: number }>(move);
  return row?.moved ?? 0;
}

/** Selects by a range of ordinals, so that the second lookup needs no statistics. */
const bundleHolds = (requestId: number) => sql`
  WITH next AS (
    SELECT ordinal FROM hold WHERE request_id = ${requestId} ORDER BY ordinal LIMIT ${STEP}
  ), gone AS (
    DELETE FROM hold h WHERE h.request_id = ${requestId} AND h.ordinal <= (SELECT max(ordinal) FROM next) RETURNING h.*
  ), numbered AS (
    SELECT *, (row_number() OVER (ORDER BY ordinal) - 1) / ${BUNDLE}::int AS bundle FROM gone
  ), bundled AS (
    INSERT INTO hold_bundle (request_id, first_ordinal, last_ordinal, file_ids, ordinals, sizes, states, error_classes, errors)
    SELECT request_id, min(ordinal), max(ordinal), array_agg(file_id ORDER BY ordinal), array_agg(ordinal ORDER BY ordinal),
      array_agg(size ORDER BY ordinal), array_agg(state ORDER BY ordinal),
      CASE WHEN count(error_class) > 0 THEN array_agg(error_class ORDER BY ordinal) END,
      CASE WHEN count(error) > 0 THEN array_agg(error ORDER BY ordinal) END
    FROM numbered GROUP BY request_id, bundle RETURNING cardinality(ordinals) AS rows
  ) SELECT coalesce(sum(rows), 0)::int AS moved FROM bundled`;

const bundlePaths = (requestId: number) => sql`
  WITH next AS (
    SELECT ordinal FROM awaited_path WHERE request_id = ${requestId} ORDER BY ordinal LIMIT ${STEP}
  ), gone AS (
    DELETE FROM awaited_path a WHERE a.request_id = ${requestId} AND a.ordinal <= (SELECT max(ordinal) FROM next) RETURNING a.*
  ), numbered AS (
    SELECT *, (row_number() OVER (ORDER BY ordinal) - 1) / ${BUNDLE}::int AS bundle FROM gone
  ), bundled AS (
    INSERT INTO path_bundle (request_id, first_ordinal, last_ordinal, paths, ordinals, reasons)
    SELECT request_id, min(ordinal), max(ordinal), array_agg(path ORDER BY ordinal), array_agg(ordinal ORDER BY ordinal),
      array_agg(reason ORDER BY ordinal)
    FROM numbered GROUP BY request_id, bundle RETURNING cardinality(ordinals) AS rows
  ) SELECT coalesce(sum(rows), 0)::int AS moved FROM bundled`;

/**
 * Removes the text of sent emails of compact requests. The rows stay, so that none is sent twice. @returns the number
 */
async function emptyLetters(ctx: Context): Promise<number> {
  const { rowCount } = await ctx.db.pool.query(
    sql`UPDATE notification SET body = '' WHERE id IN (
          SELECT n.id FROM notification n JOIN request r ON r.id = n.request_id
          WHERE n.state <> 'PENDING' AND n.body <> '' AND NOT (${isLive}) AND r.form = 'COMPACT'
          LIMIT ${LETTERS} ${locking.freeLetter})`,
  );
  return rowCount ?? 0;
}

/** Converts a compact request back to rows before it is revived. It is locked. */
export async function unpackRequest(tx: Transaction, requestId: number): Promise<void> {
  await tx.query(
    sql`WITH gone AS (DELETE FROM hold_bundle WHERE request_id = ${requestId} RETURNING *)
        INSERT INTO hold (request_id, file_id, ordinal, size, state, error_class, error)
        SELECT g.request_id, u.* FROM gone g
          CROSS JOIN LATERAL unnest(g.file_ids, g.ordinals, g.sizes, g.states, g.error_classes, g.errors) AS u`,
  );
  await tx.query(
    sql`WITH gone AS (DELETE FROM path_bundle WHERE request_id = ${requestId} RETURNING *)
        INSERT INTO awaited_path (request_id, path, ordinal, reason)
        SELECT g.request_id, u.* FROM gone g CROSS JOIN LATERAL unnest(g.paths, g.ordinals, g.reasons) AS u`,
  );
  await tx.query(sql`UPDATE request SET form = 'ROWS' WHERE id = ${requestId}`);
}

const BATCHES = 500;
const EVENTS = 5000;

/**
 * Deletes events older than `TAPEGATE_EVENT_DAYS` in small transactions. After a crash the next run continues. Marks
 * batches first, in order of their numbers, so that no reader gets part of a batch that is being deleted. Only one
 * engine prunes at a time.
 */
export async function pruneEvents(ctx: Context, stop: AbortSignal): Promise<void> {
  const before = addSeconds(ctx.now(), -ctx.config.eventDays * DAY_SECONDS);
  for (let isMore = true; isMore && !stop.aborted; ) {
    const marked = await prune(ctx, markBatches(before));
    for (let deleted = 1; deleted > 0 && !stop.aborted; ) deleted = await prune(ctx, deleteEvents);
    if (stop.aborted) return;
    // an earlier run may have died before this
    const deleted = await prune(ctx, deleteBatches);
    isMore = marked === BATCHES || deleted >= BATCHES;
  }
}

/** Runs one step. @returns the number of changed rows; 0 if another engine is pruning */
async function prune(ctx: Context, change: Sql): Promise<number> {
  return await transaction(ctx.db.pool, 'pruneEvents', async (tx) => {
    if (!(await tryAdvisory(tx, 'history'))) return 0;
    const [row] = await tx.query<{ count: number }>(
      sql`WITH changed AS (${change} RETURNING true) SELECT count(*)::int AS count FROM changed`,
    );
    return row?.count ?? 0;
  });
}

/** All webhooks have processed the batch `b`. Until then it is kept, however old it is. */
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

/** One more than a step marks, since the last one is kept. */
const OLDEST_PRUNED = sql`(SELECT * FROM event_batch WHERE is_pruned ORDER BY last_number LIMIT ${BATCHES + 1})`;

const deleteEvents = sql`
  DELETE FROM event WHERE id = ANY(ARRAY(
    SELECT e.id FROM ${OLDEST_PRUNED} b
      CROSS JOIN LATERAL (
        SELECT id FROM event WHERE batch_id = b.id AND id BETWEEN b.first_id AND b.last_id ORDER BY id LIMIT ${EVENTS}
      ) e LIMIT ${EVENTS}))`;

/** Deletes empty batches except the last one. `OFFSET 0` forces lookups; a join would read all events. */
const deleteBatches = sql`
  DELETE FROM event_batch WHERE id IN (
    SELECT b.id FROM ${OLDEST_PRUNED} b
    WHERE b.last_number < (SELECT max(last_number) FROM event_batch WHERE is_pruned)
      AND NOT EXISTS (SELECT FROM event e WHERE e.batch_id = b.id AND e.id BETWEEN b.first_id AND b.last_id OFFSET 0))`;
