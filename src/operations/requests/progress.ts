/** How far requests are: their counts, and the states, times, mail and events that follow from them. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { recordProgress } from '../../events.js';
import { isLive } from '../conditions.js';
import { queueMail } from '../mail/notifications.js';

/** Counts and bytes (`files`, `on_disk`, `failed`, `bytes`, `bytes_on_disk`) of some holds `h`. */
export const holdCounts = sql`count(h.file_id) AS files,
  count(*) FILTER (WHERE h.state = 'ON_DISK') AS on_disk, count(*) FILTER (WHERE h.state = 'FAILED') AS failed,
  coalesce(sum(h.size), 0) AS bytes, coalesce(sum(h.size) FILTER (WHERE h.state = 'ON_DISK'), 0) AS bytes_on_disk`;

/** Nothing is left to do for the request `r`. */
const isDone = sql`r.files_on_disk + r.files_failed = r.files_total`;

/**
 * The state that follows from the counts of the live request `r`. It is complete when each of its files is on disk or has
 * failed for good; files that join a complete request make it incomplete again.
 */
export const dueState = sql`CASE
  WHEN NOT (${isDone}) THEN CASE WHEN r.tapestore_request_start IS NULL THEN 'QUEUED' ELSE 'RESTORING' END
  WHEN r.files_failed > 0 THEN 'PARTIAL' ELSE 'COMPLETED' END`;

/**
 * Counts the holds of requests anew. The requests are locked.
 * @param holds a table of holds `h` with them; those of ended requests may be in bundles
 */
export async function recountRequests(
  tx: Transaction,
  requestIds: readonly number[],
  now: string,
  holds = sql`hold h`,
): Promise<void> {
  await tx.query(
    sql`UPDATE request r SET files_total = c.files, files_on_disk = c.on_disk, files_failed = c.failed,
          bytes_total = c.bytes, bytes_on_disk = c.bytes_on_disk,
          last_arrival = CASE WHEN c.on_disk > r.files_on_disk THEN ${now}::timestamp ELSE r.last_arrival END
        FROM (
          SELECT i.id, ${holdCounts} FROM unnest(${requestIds}::int[]) AS i (id)
            LEFT JOIN ${holds} ON h.request_id = i.id AND h.state <> 'RELEASED' GROUP BY i.id
        ) c WHERE r.id = c.id`,
  );
}

/** Gives live requests the state and the times that follow from their counts, and queues the mail that is due. */
export async function advanceRequests(
  ctx: Context,
  tx: Transaction,
  requestIds: readonly number[],
  now = ctx.now(),
): Promise<void> {
  if (requestIds.length === 0) return;
  await tx.query(
    sql`UPDATE request r SET state = ${dueState}::"RequestState",
          first_files_on_disk =
            coalesce(r.first_files_on_disk, CASE WHEN r.files_on_disk > 0 THEN ${now}::timestamp END),
          last_files_on_disk = CASE WHEN ${isDone}
            THEN coalesce(r.last_files_on_disk, CASE WHEN r.files_on_disk > 0 THEN r.last_arrival END) END,
          tapestore_request_end = CASE WHEN ${isDone} AND r.tapestore_request_start IS NOT NULL
            THEN coalesce(r.tapestore_request_end, ${now}::timestamp) END
        WHERE r.id = ANY(${requestIds}::int[]) AND ${isLive}`,
  );
  await queueMail(ctx, tx, requestIds);
  recordProgress(tx, requestIds);
}
