/** How requests end: expired, or cancelled. Their holds are let go and their charges given back. Single files: releases.ts. */
import type { Context } from '../../context.js';
import { lockRecalls, lockRequests } from '../../database/locks.js';
import { planFor, plannedFreely } from '../../database/planning.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { recordProgress } from '../../event-writes.js';
import { audited } from '../audit/audited.js';
import { isHeldByKeys, isLive, isWaiting } from '../conditions.js';
import { type Charge, refund } from '../quotas/charges.js';
import { unknownPathsOf } from '../quotas/counts.js';
import { takeTurn } from '../turn.js';
import { noteStep } from './life.js';
import { lockOwnRequest } from './rows.js';

/**
 * Ends a request now: its holds are let go and its charge is given back. Cancelling one that has ended changes nothing.
 * @throws NotFoundError
 */
export async function cancelRequest(ctx: Context, id: number): Promise<number> {
  await audited(ctx, { operation: 'cancelRequest', kind: 'REQUEST', object: id }, (note) =>
    transaction(ctx.db.pool, 'cancelRequest', async (tx) => {
      await lockOwnRequest(ctx, tx, 'cancelRequest', id);
      if ((await endRequests(ctx, tx, sql`r.id = ${id}`, 'CANCELLED')) > 0) tx.send(note());
    }),
  );
  return id;
}

/**
 * Ends the requests that are past their retention.
 * @returns how many
 */
export async function expireRequests(ctx: Context): Promise<number> {
  return await transaction(ctx.db.pool, 'expireRequests', async (tx) => {
    return await endRequests(ctx, tx, sql`r.retention <= ${ctx.now()}`, 'EXPIRED');
  });
}

/**
 * Ends the requests of a quota that nobody has noticed to be over, so that they do not count against it. In a transaction
 * of its own, since it locks recalls, and what follows locks quotas and files.
 * @param quota a condition on the request `r`
 */
export async function endOverdue(ctx: Context, quota: Sql): Promise<void> {
  const which = sql`${quota} AND r.retention <= ${ctx.now()}`;
  const { rowCount } = await ctx.db.pool.query(findOverdue(which));
  if (rowCount === 0) return;
  await takeTurn(ctx, 'rows', () =>
    transaction(ctx.db.pool, 'endOverdue', async (tx) => {
      await endRequests(ctx, tx, which, 'EXPIRED');
    }),
  );
}

/** Whether anybody has such a request, as a column: the first of all live ones tells, however many there are. */
export function isAnyOverdue(now: string): Sql {
  return sql`coalesce((SELECT min(r.retention) <= ${now}::timestamp FROM request r WHERE ${isLive}), false)`;
}

/** Whether a quota has such requests. */
export async function hasOverdue(tx: Transaction, quotaId: number, now: string): Promise<boolean> {
  return (await tx.query(findOverdue(sql`r.quota_id = ${quotaId} AND r.retention <= ${now}`))).length > 0;
}

const findOverdue = (which: Sql) => sql`SELECT FROM request r WHERE ${isLive} AND ${which} LIMIT 1`;

/**
 * @param which a condition on the request `r`; those that have ended already are left out
 * @returns how many have ended
 */
export async function endRequests(
  ctx: Context,
  tx: Transaction,
  which: Sql,
  state: 'EXPIRED' | 'CANCELLED',
): Promise<number> {
  const ids = await lockRequests(tx, sql`${isLive} AND (${which})`);
  if (ids.length === 0) return 0;
  const retention = state === 'CANCELLED' ? sql`least(retention, ${ctx.now()}::timestamp)` : sql`retention`;
  const ended = await tx.query<Charge & { files: number }>(
    sql`UPDATE request SET state = ${state}, is_released = false, retention = ${retention}
        WHERE id = ANY(${ids}::int[]) RETURNING quota_id AS "quotaId", bytes_total AS bytes, files_total AS files, 1 AS "openRequests",
          (pattern <> '')::int AS "standingPatterns", ${unknownPathsOf('request')} AS "awaitedPaths"`,
  );
  refund(tx, ended);
  const files = ended.reduce((sum, request) => sum + request.files, 0);
  await dropRecalls(tx, { files: sql`SELECT file_id FROM hold WHERE request_id = ANY(${ids}::int[])`, count: files });
  recordProgress(ctx, tx, ids);
  noteStep(ctx, tx, state === 'EXPIRED' ? 'expired' : 'cancelled', ids);
  return ids.length;
}

/**
 * Drops the waiting recalls that nobody waits for any more; a running one is stopped by its engine (recalls/abandoned.ts).
 * @param what.files a query that gives the ids of the files that were let go; `count` is about how many
 */
export async function dropRecalls(tx: Transaction, { files, count }: { files: Sql; count: number }): Promise<void> {
  const isTogether = await planFor(tx, count, ['hold']);
  const isOne = isTogether ? sql`c.file_id IN (${files})` : sql`c.file_id = ANY(ARRAY(${files}))`;
  // locked first and judged in a second statement, which sees the holds of whoever had them locked before, and also
  // that a recall which was running until now waits again
  await lockRecalls(tx, isOne);
  const isHeld = isTogether
    ? sql`EXISTS (SELECT FROM live_hold h WHERE h.file_id = c.file_id)`
    : isHeldByKeys(sql`c.file_id`);
  tx.send(sql`DELETE FROM recall c WHERE ${isWaiting} AND ${isOne} AND NOT ${isHeld}`);
  tx.send(plannedFreely());
}
