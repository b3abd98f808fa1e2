/**
 * Requests that ended some time ago are kept in a compact form: what they held and what they waited for is in bundles, an array for
 * each column. Whoever looks at the holds of a file does not meet them any more, and history takes a fraction of the room.
 *
 * Rows become a bundle in one statement, and a bundle rows: at any moment each is in one of both, and whoever reads the views
 * `any_hold` and `any_awaited_path` sees it once. A step is a transaction of its own, which may be killed, and the next pass goes on.
 * It waits for nothing but time: mail that is still to be sent has its text already, and copies that are still to be removed are
 * found by either form.
 */
import type { Context } from '../../context.js';
import { locking, tryAdvisory } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { addSeconds } from '../../time.js';
import { isLive } from '../conditions.js';

const DAY_SECONDS = 24 * 3600;
/** Of a bundle: what is read and unpacked for one hold of it. */
const BUNDLE = 1000;
/** Holds, and awaited paths, of a step: some tens of milliseconds. */
const STEP = 10_000;
const LETTERS = 1000;

/** Brings the requests that ended more than `TAPEGATE_REQUEST_DAYS` ago into their compact form. Any number of engines may do so at once. */
export async function compactRequests(ctx: Context, stop: AbortSignal): Promise<void> {
  const before = addSeconds(ctx.now(), -ctx.config.requestDays * DAY_SECONDS);
  while (!stop.aborted && (await compactNext(ctx, before)));
  while (!stop.aborted && (await emptyLetters(ctx)) > 0);
}

/**
 * One step of the request that ended first, of those that nobody has locked. A request has ended when its retention was over, which is
 * moved forward when it is cancelled.
 * @returns false when there is none
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

/** By a range of ordinals, so that no statistics are needed to find the next ones. */
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
 * What letters of compact requests said is not kept once it was told; that it was told is, so that a request that is revived tells
 * nothing twice.
 * @returns how many
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

/** Everything in rows again, before a request is revived. It is locked. */
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

/** Batches, and events, of a step. */
const BATCHES = 500;
const EVENTS = 5000;

/**
 * Deletes the events that are older than `TAPEGATE_EVENT_DAYS`, in small steps: each is a transaction, and a run that is killed is completed by the next
 * one. Batches are marked first, in the order of their numbers, so that no reader gets a part of what is about to be deleted. One engine does it at
 * a time.
 */
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
