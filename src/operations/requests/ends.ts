/** How requests end: expired, or cancelled. Their holds are let go and their charges given back. Single files: releases.ts. */
import type { Context } from '../../context.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { recordProgress } from '../../events.js';
import { IS_LIVE } from '../conditions.js';
import { release } from '../quotas/charges.js';
import { lockRequest } from './rows.js';

/**
 * Ends a request now: its holds are let go and its charge is given back. Cancelling one that has ended changes nothing.
 * @throws NotFoundError
 */
export async function cancelRequest(ctx: Context, id: number): Promise<number> {
  await transaction(ctx.db.pool, async (tx) => {
    await lockRequest(tx, id);
    await endRequests(ctx, tx, `r.id = ${id}`, 'CANCELLED');
  });
  return id;
}

/**
 * Ends the requests that are past their retention.
 * @returns how many
 */
export async function expireRequests(ctx: Context): Promise<number> {
  return await transaction(ctx.db.pool, async (tx) => {
    return await endRequests(ctx, tx, 'r.retention <= $2', 'EXPIRED');
  });
}

/** A request that nobody has noticed to be over must not count against its quota. */
export async function endOverdue(ctx: Context, tx: Transaction, quota: { id: number }): Promise<void> {
  await endRequests(ctx, tx, `r.quota_id = ${quota.id} AND r.retention <= $2`, 'EXPIRED');
}

/** `condition` may use `r` and, as `$2`, the present time. */
export async function endRequests(
  ctx: Context,
  tx: Transaction,
  condition: string,
  state: 'EXPIRED' | 'CANCELLED',
): Promise<number> {
  const now = ctx.now();
  const ended = await tx.query<{ id: number; quotaId: number; bytes: bigint }>(
    `WITH ended AS (
       SELECT r.id FROM request r WHERE ${IS_LIVE} AND (${condition}) AND $2::timestamp IS NOT NULL
       ORDER BY r.id FOR NO KEY UPDATE
     )
     UPDATE request r SET state = $1::"RequestState", is_released = false,
       retention = CASE WHEN $1::"RequestState" = 'CANCELLED' THEN least(r.retention, $2::timestamp) ELSE r.retention END
     FROM ended WHERE r.id = ended.id RETURNING r.id, r.quota_id AS "quotaId", r.bytes_total AS bytes`,
    [state, now],
  );
  if (ended.length === 0) return 0;
  await release(tx, ended);
  await dropRecalls(tx, 'SELECT file_id FROM hold WHERE request_id = ANY($1::int[])', [
    ended.map((request) => request.id),
  ]);
  recordProgress(
    tx,
    ended.map((request) => request.id),
  );
  return ended.length;
}

/**
 * Drops the waiting recalls that nobody waits for any more; a running one is stopped by its engine (recalls/abandoned.ts).
 * @param files SQL that gives the ids of the files that were let go, with its values
 */
export async function dropRecalls(tx: Transaction, files: string, values: unknown[] = []): Promise<void> {
  // locked first and judged in a second statement, which sees the holds of whoever had them locked before, and also
  // that a recall which was running until now waits again
  await tx.query(
    `SELECT count(*) FROM (
       SELECT FROM recall c WHERE c.file_id IN (${files}) ORDER BY c.file_id FOR UPDATE
     ) locked`,
    values,
  );
  await tx.query(
    `DELETE FROM recall c WHERE c.state = 'WAITING' AND c.file_id IN (${files})
       AND NOT EXISTS (SELECT FROM live_hold h WHERE h.file_id = c.file_id)`,
    values,
  );
}
