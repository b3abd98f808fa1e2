/** Single requests as they are stored. */

import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { prepared } from '../../database/prepared.js';
import { sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { NotFoundError, quote } from '../../errors.js';
import { Prisma, type Request } from '../../generated/prisma/client.js';
import type { RequestForm, RequestState } from '../../generated/prisma/enums.js';
import { allow, allowChange, isVisibleQuota, type Operation } from '../policy.js';
import { columnsOf } from '../row-columns.js';
import { checkAsked } from '../turn.js';
import type { Limits } from './limits.js';

export interface LockedRequest extends Limits {
  id: number;
  pattern: string;
  label: string;
  retention: string;
  first: string | null;
  last: string | null;
  state: RequestState;
  form: RequestForm;
  /** Null where nothing was left out without being noted (left-out.ts). */
  leftOutSize: bigint | null;
  quotaId: number;
  user: string;
  /** The caller's name; null where nobody noted it. */
  madeBy: string | null;
  /** Charged for it while it is live. */
  bytesTotal: bigint;
  filesTotal: number;
}

export function isEnded(state: RequestState): boolean {
  return state === 'EXPIRED' || state === 'CANCELLED';
}

/**
 * A request that is about to be changed, locked.
 * @throws NotFoundError, also where the caller may not see it; ForbiddenError
 */
export async function lockOwnRequest(
  ctx: Context,
  tx: Transaction,
  operation: Operation,
  id: number,
): Promise<LockedRequest> {
  const request = await lockRequest(tx, id, isVisibleQuota(ctx)); // nobody waits for what it may not know of
  checkAsked(ctx);
  allowChange(ctx, operation, request);
  return request;
}

/** @throws NotFoundError */
export async function lockRequest(tx: Transaction, id: number, isVisible = sql`true`): Promise<LockedRequest> {
  const [row] = await tx.query<LockedRequest>(
    sql`SELECT r.id, r.pattern, r.label, r.retention, r.notify_on_first_file AS first, r.notify_on_last_file AS last,
          r.max_files AS "maxFiles", r.max_bytes AS "maxBytes", r.state, r.form, r.left_out_size AS "leftOutSize", q.id AS "quotaId", q."user", r.made_by AS "madeBy",
          r.bytes_total AS "bytesTotal", r.files_total AS "filesTotal"
        FROM request r JOIN quota q ON q.id = r.quota_id WHERE r.id = ${id} AND ${isVisible} ${locking.request}`,
  );
  if (!row) throw notFound(id);
  return row;
}

/** Before anything is waited for on behalf of a change. @throws NotFoundError */
export async function checkVisible(ctx: Context, id: number): Promise<void> {
  if (ctx.caller.reads === 'all') return;
  const { rowCount } = await ctx.db.pool.query(
    sql`SELECT FROM request r JOIN quota q ON q.id = r.quota_id WHERE r.id = ${id} AND ${isVisibleQuota(ctx)}`,
  );
  if (rowCount === 0) throw notFound(id);
}

export function notFound(id: number | string): NotFoundError {
  return new NotFoundError(`there is no request with id ${id}`);
}

export const requestColumns = columnsOf(Prisma.RequestScalarFieldEnum, 'r');

/** A request by its id, past its retention too: history is kept. @throws NotFoundError */
export async function getRequest(ctx: Context, id: number): Promise<Request> {
  allow(ctx, 'getRequest');
  const { rows } = await ctx.db.pool.query<Request>(
    prepared(sql`SELECT ${requestColumns} FROM request r JOIN quota q ON q.id = r.quota_id
      WHERE r.id = ${id}::int AND ${isVisibleQuota(ctx)}`),
  );
  const [request] = rows;
  if (!request) throw notFound(id);
  return request;
}

/** @throws NotFoundError for a text that is no id */
export function parseRequestId(text: string): number {
  const id = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (!(id <= 0x7fffffff)) throw notFound(quote(text));
  return id;
}
