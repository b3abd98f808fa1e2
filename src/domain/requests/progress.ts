/**
 * Updates requests' progress: their file counts, and the states, times, emails and events that follow from the counts.
 */

import { plannedFreely } from '../../db/planning.js';
import { prepared } from '../../db/prepared.js';
import { type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import { recordProgress } from '../../events/event-writes.js';
import { isLive } from '../conditions.js';
import type { Context } from '../context.js';
import { queueMail } from '../notifications/mail/notifications.js';

export const requestFileCounts = sql`count(h.file_id) AS files,
  count(*) FILTER (WHERE h.state = 'ON_DISK') AS on_disk, count(*) FILTER (WHERE h.state = 'FAILED') AS failed,
  coalesce(sum(h.size), 0) AS bytes, coalesce(sum(h.size) FILTER (WHERE h.state = 'ON_DISK'), 0) AS bytes_on_disk`;

const isDone = sql`r.files_on_disk + r.files_failed = r.files_total`;

/**
 * A live request's state, derived from its counts. A request without pending files is finished (PARTIAL or COMPLETED)
 * until more files are added to the request.
 */
export const dueState = sql`CASE
  WHEN NOT (${isDone}) THEN CASE WHEN r.tapestore_request_start IS NULL THEN 'QUEUED' ELSE 'RESTORING' END
  WHEN r.files_failed > 0 THEN 'PARTIAL' ELSE 'COMPLETED' END`;

const dueColumns = sql`state, first_files_on_disk, last_files_on_disk, tapestore_request_end`;

function dueValues(now: string): Sql {
  return sql`${dueState}::"RequestState",
    coalesce(r.first_files_on_disk, CASE WHEN r.files_on_disk > 0 THEN ${now}::timestamp END),
    CASE WHEN ${isDone} THEN coalesce(r.last_files_on_disk, CASE WHEN r.files_on_disk > 0 THEN r.last_arrival END) END,
    CASE WHEN ${isDone} AND r.tapestore_request_start IS NOT NULL THEN coalesce(r.tapestore_request_end, ${now}::timestamp) END`;
}

/**
 * Returns the SQL condition that is true if a recall of a file in the request `r` has begun. The recall might have
 * begun before the request was created.
 * @param which SQL condition on the request file (`h`)
 */
export function hasBegun(which = sql`true`): Sql {
  // use a scalar subquery, because PostgreSQL might execute an EXISTS condition by scanning the files of all requests
  return sql`coalesce((SELECT true FROM request_file h JOIN tape_file f ON f.id = h.file_id
    WHERE h.request_id = r.id AND ${which} AND h.state = 'WAITING' AND f.stage = 'RESTORING' LIMIT 1), false)`;
}

/**
 * Recomputes the file counts of live requests, and updates the requests' states and times, in one statement. The caller
 * must have locked the requests, and must have set PostgreSQL's planner options (db/planning.ts).
 */
export async function recountAndAdvance(
  ctx: Context,
  tx: Transaction,
  requestIds: readonly number[],
  { now = ctx.now(), queuesMail = true }: { now?: string; queuesMail?: boolean } = {},
): Promise<void> {
  tx.send(prepared(recountOf(requestIds, now)));
  if (queuesMail) {
    tx.send(plannedFreely());
    await queueMail(ctx, tx, requestIds);
  }
  recordProgress(ctx, tx, requestIds);
}

const recountOf = (requestIds: readonly number[], now: string) => sql`
  UPDATE request t SET files_total = n.files_total, files_on_disk = n.files_on_disk, files_failed = n.files_failed,
    bytes_total = n.bytes_total, bytes_on_disk = n.bytes_on_disk, last_arrival = n.last_arrival,
    tapestore_request_start = n.tapestore_request_start, (${dueColumns}) = (n.due_state, n.due_first, n.due_last, n.due_end)
  FROM (
    SELECT r.*, d.* FROM (
      SELECT r.id, r.first_files_on_disk, r.last_files_on_disk, r.tapestore_request_end,
        CASE WHEN r.tapestore_request_start IS NOT NULL THEN r.tapestore_request_start
          WHEN ${hasBegun()} THEN ${now}::timestamp END AS tapestore_request_start, c.files AS files_total, c.on_disk AS files_on_disk, c.failed AS files_failed,
        c.bytes AS bytes_total, c.bytes_on_disk,
        CASE WHEN c.on_disk > r.files_on_disk THEN ${now}::timestamp ELSE r.last_arrival END AS last_arrival
      FROM request r CROSS JOIN LATERAL (
        SELECT ${requestFileCounts} FROM request_file h WHERE h.request_id = r.id AND h.state <> 'RELEASED'
      ) c WHERE r.id = ANY(${requestIds}::int[]) AND ${isLive}
      OFFSET 0
    ) r CROSS JOIN LATERAL (SELECT ${dueValues(now)}) AS d (due_state, due_first, due_last, due_end)
  ) n WHERE t.id = n.id`;

/** Recomputes the file counts of locked requests, but leaves the requests' states unchanged. */
export async function recountRequests(tx: Transaction, requestIds: readonly number[], now: string): Promise<void> {
  await tx.query(
    sql`UPDATE request r SET files_total = c.files, files_on_disk = c.on_disk, files_failed = c.failed,
          bytes_total = c.bytes, bytes_on_disk = c.bytes_on_disk,
          last_arrival = CASE WHEN c.on_disk > r.files_on_disk THEN ${now}::timestamp ELSE r.last_arrival END
        FROM (
          SELECT i.id, ${requestFileCounts} FROM unnest(${requestIds}::int[]) AS i (id)
            LEFT JOIN request_file h ON h.request_id = i.id AND h.state <> 'RELEASED' GROUP BY i.id
        ) c WHERE r.id = c.id`,
  );
}

/** Updates states and times of live requests from their counts, and queues emails that are due. */
export async function advanceRequests(
  ctx: Context,
  tx: Transaction,
  requestIds: readonly number[],
  now = ctx.now(),
): Promise<void> {
  if (requestIds.length === 0) return;
  tx.send(
    sql`UPDATE request r SET (${dueColumns}) = (${dueValues(now)}) WHERE r.id = ANY(${requestIds}::int[]) AND ${isLive}`,
  );
  await queueMail(ctx, tx, requestIds);
  await logSteps(ctx, tx, requestIds, now);
  recordProgress(ctx, tx, requestIds);
}

type Step = 'made' | 'started' | 'expired' | 'cancelled';

const MAX_LINES = 100;

/** After the transaction commits, logs that requests were created, started, expired or cancelled. */
export function logStep(ctx: Context, tx: Transaction, step: Step, ids: readonly number[], figures: object = {}): void {
  if (ids.length === 0) return;
  tx.afterCommit(() => {
    for (const request of ids.slice(0, MAX_LINES)) ctx.log.info({ request, ...figures }, `request ${step}`);
    if (ids.length > MAX_LINES) ctx.log.info({ requests: ids.length - MAX_LINES }, `more requests ${step}`);
  });
}

interface ReachedSteps {
  id: number;
  state: string;
  isFirst: boolean;
  isFinished: boolean;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
}

async function logSteps(ctx: Context, tx: Transaction, requestIds: readonly number[], now: string): Promise<void> {
  if (!ctx.log.isLevelEnabled('info')) return;
  const rows = await tx.query<ReachedSteps>(
    sql`SELECT * FROM (
          SELECT r.id, r.state, coalesce(r.first_files_on_disk = ${now}::timestamp, false) AS "isFirst",
            r.state IN ('COMPLETED', 'PARTIAL') AND coalesce(r.tapestore_request_end = ${now}::timestamp, false) AS "isFinished",
            r.files_total AS "filesTotal", r.files_on_disk AS "filesOnDisk", r.files_failed AS "filesFailed"
          FROM request r WHERE r.id = ANY(${requestIds}::int[])
        ) r WHERE r."isFirst" OR r."isFinished" ORDER BY r.id`,
  );
  if (rows.length === 0) return;
  tx.afterCommit(() => {
    for (const { id: request, state, isFirst, isFinished, ...files } of rows) {
      if (isFirst) ctx.log.info({ request }, 'the first file of the request is on disk');
      if (isFinished) ctx.log.info({ request, state, ...files }, 'request finished');
    }
  });
}
