/**
 * Files are withdrawn: they are in no list any more, and nobody can ask for them. What was asked for before stays what it was as far as it
 * is on disk; who waits for one is told, unless it is being read just then. Nothing is forgotten, so that they can come back.
 */
import type { Context } from '../../context.js';
import { lockQuotas, lockRecalls, lockRequests } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InvalidInputError, quote } from '../../errors.js';
import { recordProgress } from '../../event-writes.js';
import { audited } from '../audit/audited.js';
import { isLive, isOffered, isRecalledNoMore, isWaiting, isWithdrawn, whyWithdrawn } from '../conditions.js';
import { checkText } from '../input.js';
import { allow } from '../policy.js';
import { markHolds } from '../requests/holds.js';
import { findJoining, leaveWithdrawn, storeJoining } from '../requests/joins.js';
import {
  type ChosenFiles,
  type ChosenPaths,
  chosenFiles,
  concernedBy,
  countChosen,
  inSteps,
  lockLeaving,
  stepSize,
  whyNone,
} from './chosen-files.js';

export interface WithdrawFilesInput extends ChosenPaths {
  /** For people; those who wait for one of the files are told. */
  why?: string | null | undefined;
}

/** @throws InvalidInputError; NotFoundError where there is none, or all are withdrawn already */
export async function withdrawFiles(ctx: Context, input: WithdrawFilesInput): Promise<ChosenFiles> {
  const { path, why, isDryRun } = input;
  return await audited(
    ctx,
    { operation: 'withdrawFiles', kind: 'CATALOGUE', object: path, given: { why, isDryRun } },
    async (note) => {
      allow(ctx, 'withdrawFiles');
      const which = chosenFiles(path);
      const reason = why ? checkReason(why) : null;
      // what a list has withdrawn comes back with a list, and what somebody withdraws does not
      const leaves = sql`${which} AND (${isOffered} OR f.is_unlisted)`;
      const chosen = await countChosen(ctx, leaves);
      if (chosen.files === 0) throw await whyNone(ctx, { path, which, done: 'withdrawn already' });
      if (isDryRun) return chosen;
      const done = await inSteps(
        ctx,
        { which: leaves, note: (step) => note({ given: { ...step, why } }) },
        (tx) => withdrawStep(ctx, tx, reason),
        (work) => transaction(ctx.db.pool, 'withdrawFiles', work),
      );
      return { ...done, requests: chosen.requests };
    },
  );
}

/**
 * Brings withdrawn files back, by hand or by a list withdrawn. Requests that wait for them take them in; those that were told that they are
 * withdrawn ask for them anew (`retryRequest`).
 * @throws InvalidInputError; NotFoundError where none is withdrawn
 */
export async function reinstateFiles(ctx: Context, input: ChosenPaths): Promise<ChosenFiles> {
  const { path, isDryRun } = input;
  return await audited(
    ctx,
    { operation: 'reinstateFiles', kind: 'CATALOGUE', object: path, given: { isDryRun } },
    async (note) => {
      allow(ctx, 'reinstateFiles');
      const which = chosenFiles(path); // what is forgotten is below no folder that can be named
      const chosen = await countChosen(ctx, sql`${which} AND ${isWithdrawn}`);
      if (chosen.files === 0) throw await whyNone(ctx, { path, which, done: 'not withdrawn' });
      if (isDryRun) return chosen;
      const done = await inSteps(
        ctx,
        { which: sql`${which} AND ${isWithdrawn}`, note: (step) => note({ given: { ...step } }) },
        (tx) => reinstateStep(ctx, tx),
        (work) => transaction(ctx.db.pool, 'reinstateFiles', work),
      );
      return { ...done, requests: chosen.requests };
    },
  );
}

/** It stays with the requests that are told of it, whoever is forgotten. @throws InvalidInputError */
export function checkReason(why: string): string {
  if (/[^\s@]@[^\s@]/.test(why)) throw new InvalidInputError('why', `must not hold an address of mail: ${quote(why)}`);
  return checkText('why', why);
}

async function withdrawStep(ctx: Context, tx: Transaction, why: string | null): Promise<void> {
  const requestIds = await lockRequests(tx, sql`${isLive} AND r.id IN (${concernedBy})`);
  await lockQuotas(tx, sql`q.id IN (SELECT quota_id FROM request WHERE id = ANY(${requestIds}::int[]))`);
  await lockLeaving(tx);
  await withdrawLeaving(ctx, tx, { requestIds, why, isUnlisted: false });
}

interface Leave {
  /** The live requests that hold or await one of the files; they are locked, and so are their quotas. */
  requestIds: readonly number[];
  why: string | null;
  isUnlisted: boolean;
}

/** Withdraws the files of the temporary table `leaving`, which are locked, as is the catalogue: nobody else begins to hold one. */
export async function withdrawLeaving(
  ctx: Context,
  tx: Transaction,
  { requestIds, why, isUnlisted }: Leave,
): Promise<void> {
  await lockRecalls(tx, sql`c.file_id IN (SELECT id FROM leaving)`);
  await tx.query(
    sql`UPDATE tape_file f SET withdrawn_at = ${ctx.now()}::timestamp, withdrawn_why = ${why}, is_unlisted = ${isUnlisted}
        FROM leaving l WHERE f.id = l.id`,
  );
  await tx.query(sql`DELETE FROM recall c USING leaving l WHERE c.file_id = l.id AND ${isWaiting}`);
  const told = await tx.query<{ fileId: bigint; error: string }>(
    sql`SELECT f.id AS "fileId", ${whyWithdrawn} AS error FROM leaving l JOIN tape_file f ON f.id = l.id
        WHERE ${isRecalledNoMore} AND EXISTS (SELECT FROM live_hold h WHERE h.file_id = f.id AND h.state = 'WAITING') ORDER BY f.id`,
  );
  for (let from = 0; from < told.length; from += stepSize.files) {
    const some = told.slice(from, from + stepSize.files);
    await markHolds(
      ctx,
      tx,
      some.map(({ fileId, error }) => ({ fileId, failure: { errorClass: 'POLICY', error } })),
    );
  }
  await leaveAwaited(ctx, tx, requestIds);
}

async function leaveAwaited(ctx: Context, tx: Transaction, requestIds: readonly number[]): Promise<void> {
  const unknown = await leaveWithdrawn(tx, sql`r.id = ANY(${requestIds}::int[]) AND f.id IN (SELECT id FROM leaving)`);
  await tx.query(
    sql`UPDATE quota q SET awaited_paths = q.awaited_paths + u.paths
        FROM unnest(${unknown.map(({ quotaId }) => quotaId)}::int[], ${unknown.map(({ paths }) => paths)}::int[]) AS u (id, paths) WHERE q.id = u.id`,
  );
  recordProgress(ctx, tx, requestIds);
}

async function reinstateStep(ctx: Context, tx: Transaction): Promise<void> {
  await findJoining(ctx, tx, sql`SELECT id FROM leaving`, { isNew: true });
  await lockRequests(tx, sql`r.id IN (SELECT request_id FROM joining)`);
  await lockQuotas(tx, sql`q.id IN (SELECT quota_id FROM joining)`);
  await reinstateLeaving(tx);
  await storeJoining(ctx, tx);
}

async function reinstateLeaving(tx: Transaction): Promise<void> {
  await lockLeaving(tx);
  await tx.query(
    sql`UPDATE tape_file f SET withdrawn_at = NULL, withdrawn_why = NULL, is_unlisted = false FROM leaving l WHERE f.id = l.id`,
  );
}
