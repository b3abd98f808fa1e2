/**
 * What a quota is charged. The check and the charge are one statement, so that of two requests that race for the last
 * bytes exactly what fits is taken. Equal to the size still fits.
 */
import type { Transaction } from '../../database/transaction.js';
import { QuotaExceededError, UnknownUserError } from '../../errors.js';

export interface QuotaRow {
  id: number;
  user: string;
  email: string;
}

/** @throws UnknownUserError */
export async function findQuota(tx: Transaction, user: string): Promise<QuotaRow> {
  const [row] = await tx.query<QuotaRow>(`SELECT id, "user", email FROM quota WHERE "user" = $1`, [user]);
  if (!row) throw new UnknownUserError(user);
  return row;
}

/** @throws QuotaExceededError with the figures of the refusal */
export async function charge(tx: Transaction, quota: QuotaRow, bytes: bigint): Promise<void> {
  if (bytes === 0n) return;
  const charged = await tx.query('UPDATE quota SET used = used + $2 WHERE id = $1 AND used + $2 <= size RETURNING id', [
    quota.id,
    bytes,
  ]);
  if (charged.length === 0) await refuse(tx, quota, bytes);
}

/** Refuses early, before a long list is stored only to be taken back. @throws QuotaExceededError */
export async function checkRoom(tx: Transaction, quota: QuotaRow, bytes: bigint): Promise<void> {
  const room = await tx.query('SELECT FROM quota WHERE id = $1 AND used + $2 <= size', [quota.id, bytes]);
  if (room.length === 0 && bytes > 0n) await refuse(tx, quota, bytes);
}

async function refuse(tx: Transaction, quota: QuotaRow, requested: bigint): Promise<never> {
  const [figures] = await tx.query<{ size: bigint; used: bigint }>('SELECT size, used FROM quota WHERE id = $1', [
    quota.id,
  ]);
  throw new QuotaExceededError({ user: quota.user, size: figures?.size ?? 0n, used: figures?.used ?? 0n, requested });
}

/** Gives back what ended requests were charged. */
export async function release(tx: Transaction, requests: readonly { quotaId: number; bytes: bigint }[]): Promise<void> {
  await tx.query(
    `WITH back AS (
       SELECT quota_id, sum(bytes) AS bytes FROM unnest($1::int[], $2::bigint[]) AS b (quota_id, bytes) GROUP BY quota_id
     ), locked AS (
       SELECT id FROM quota WHERE id IN (SELECT quota_id FROM back) ORDER BY id FOR NO KEY UPDATE
     )
     UPDATE quota q SET used = q.used - b.bytes FROM back b, locked l WHERE q.id = b.quota_id AND l.id = q.id`,
    [requests.map((r) => r.quotaId), requests.map((r) => r.bytes)],
  );
}
