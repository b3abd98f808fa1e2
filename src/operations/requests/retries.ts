/** Files that were given up are tried again, for their owner or an operator. */

import type { Context } from '../../context.js';
import { lockFiles } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InvalidInputError } from '../../errors.js';
import { isBefore } from '../../time.js';
import { audited, type Note } from '../audit/audited.js';
import { checkText } from '../input.js';
import { findQuotaOf } from '../quotas/charges.js';
import { settleRequests } from './holds.js';
import { isEnded, lockOwnRequest } from './rows.js';

export interface RetryRequestInput {
  id: number;
  /** When given, it must be the request's own. */
  quota?: string | null | undefined;
}

/**
 * Has all files of a live request that have failed for good tried again, with all their tries before them; what it holds,
 * and what it is charged, stays as it is. Where another request has the same file in the queue, its pause ends as well.
 * A request without failed files is left as it is.
 * @returns the id of the request
 * @throws NotFoundError, UnknownUserError, WrongQuotaError; InvalidInputError when the request has ended
 */
export async function retryRequest(ctx: Context, input: RetryRequestInput): Promise<number> {
  const { id, ...given } = input;
  await audited(ctx, { operation: 'retryRequest', kind: 'REQUEST', object: id, given }, (note) =>
    retry(ctx, input, note),
  );
  return id;
}

async function retry(ctx: Context, input: RetryRequestInput, note: Note): Promise<void> {
  const user = input.quota === undefined || input.quota === null ? undefined : checkText('quota', input.quota);
  await transaction(ctx.db.pool, 'retryRequest', async (tx) => {
    const request = await lockOwnRequest(ctx, tx, 'retryRequest', input.id);
    await findQuotaOf(ctx, tx, request, user);
    if (isEnded(request.state) || !isBefore(ctx.now(), request.retention)) {
      throw new InvalidInputError('id', `${request.id} is a request that has ended: a later retention revives it`);
    }
    const failed = await tx.query<{ fileId: bigint }>(
      sql`UPDATE hold SET state = 'WAITING', error_class = NULL, error = NULL
          WHERE request_id = ${request.id} AND state = 'FAILED' RETURNING file_id AS "fileId"`,
    );
    const away = await tx.query<{ fileId: bigint }>(
      sql`SELECT h.file_id AS "fileId" FROM hold h JOIN tape_file f ON f.id = h.file_id
          WHERE h.request_id = ${request.id} AND h.state = 'WAITING' AND f.copy_error IS NOT NULL AND f.stage = 'ONTAPE'`,
    );
    if (failed.length === 0 && away.length === 0) return;
    await tx.query(note());
    await giveCopiesAnotherTry(
      tx,
      [...failed, ...away].map(({ fileId }) => fileId),
    );
    await settleRequests(ctx, tx, [request.id]);
    const fileIds = failed.map(({ fileId }) => fileId);
    await tx.query(
      sql`UPDATE recall c SET not_before = NULL, attempts = 0, earlier_tries = earlier_tries + attempts
          WHERE c.file_id = ANY(${fileIds}::bigint[]) AND c.state = 'WAITING'`,
    );
  });
}

/** Of files with two copies both are tried again. */
async function giveCopiesAnotherTry(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  const which = sql`f.id = ANY(${fileIds}::bigint[]) AND f.copy_error IS NOT NULL`;
  const rows = await tx.query<{ id: bigint }>(sql`SELECT f.id FROM tape_file f WHERE ${which}`);
  if (rows.length === 0) return;
  await lockFiles(
    tx,
    rows.map(({ id }) => id),
  );
  await tx.query(sql`UPDATE tape_file f SET copy_error = NULL, copy_failed_at = NULL WHERE ${which}`);
}
