/**
 * How recalls end. Whoever runs recalls holds a drive's lease; a write of a holder whose lease is lost finds no recall
 * with its epoch, and changes nothing.
 */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import type { ErrorClass } from '../../errors.js';
import { moveFiles, type NewCopy } from '../catalogue/moves.js';
import { isLive, isUnheld } from '../conditions.js';
import { freeReserved, type Reservation } from '../disks/reservations.js';
import { type HoldOutcome, lockHolders, markHolds } from '../requests/holds.js';
import { advanceRequests } from '../requests/progress.js';
import type { Lease } from './drives.js';

/** How a running recall ended. */
export type RecallOutcome = { fileId: bigint } & (
  | { kind: 'restored'; mtimeNs: bigint }
  /** For good. */
  | { kind: 'failed'; errorClass: ErrorClass; error: string }
  /** To be tried again, not before the time given. */
  | { kind: 'retry'; errorClass: ErrorClass; error: string; notBefore: string }
  /** Not tried: back into the queue as it was. */
  | { kind: 'returned' }
);

/**
 * Writes down how recalls of a drive ended, together: stages, holds, requests, reserved and used room, mail.
 * Recalls that this lease does not hold any more are passed over.
 * @returns the ids of the files whose outcome was written
 */
export async function finishRecalls(ctx: Context, lease: Lease, outcomes: readonly RecallOutcome[]): Promise<bigint[]> {
  const fileIds = outcomes.map((outcome) => outcome.fileId);
  return await transaction(ctx.db.pool, 'finishRecalls', async (tx) => {
    // none of these requests ends before the commit: else its end would be dealt with while its files are not there yet,
    // and they would stay for ever
    await lockHolders(tx, fileIds);
    await dateLateRequests(ctx, tx, lease, fileIds);
    const reservations = await endRecalls(tx, lease, outcomes);
    const ended = new Map(reservations.map((reservation) => [reservation.fileId, reservation]));
    const written = outcomes.filter((outcome) => ended.has(outcome.fileId));
    const restoredIds = await placeFinished(tx, written, ended);
    await markHolds(ctx, tx, written.flatMap(toHoldOutcome));
    // last, since recalls that start wait for the disks
    await freeReserved(tx, reservations, new Set(restoredIds));
    return [...ended.keys()];
  });
}

/**
 * Moves files to where their recalls have brought them; one that is restored and that nobody holds any more leaves at once.
 * @returns the ids of those that are restored
 */
async function placeFinished(
  tx: Transaction,
  outcomes: readonly RecallOutcome[],
  ended: ReadonlyMap<bigint, Reservation>,
): Promise<bigint[]> {
  const copies = outcomes.flatMap((outcome) => {
    const recall = ended.get(outcome.fileId);
    if (outcome.kind !== 'restored' || !recall) return [];
    return [{ fileId: outcome.fileId, mtimeNs: outcome.mtimeNs, diskId: recall.diskId }];
  });
  await noteCopies(tx, copies);
  const others = outcomes.filter((outcome) => outcome.kind !== 'restored').map((outcome) => outcome.fileId);
  await moveFiles(tx, others, { from: 'RESTORING', to: 'ONTAPE' });
  const restoredIds = copies.map((copy) => copy.fileId);
  const rows = await tx.query<{ id: bigint }>(
    sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${restoredIds}::bigint[]) AND ${isUnheld}`,
  );
  const unheld = rows.map((file) => file.id);
  await moveFiles(tx, unheld, { from: 'RESTORED', to: 'ONTAPE' });
  return restoredIds;
}

/** Moves files to RESTORED and notes their copies; that of a file that an import has moved meanwhile is noted as well. */
async function noteCopies(tx: Transaction, copies: readonly (NewCopy & { fileId: bigint })[]): Promise<void> {
  const move = { from: 'RESTORING', to: 'RESTORED' } as const;
  const fileIds = copies.map((copy) => copy.fileId);
  const moved = new Set(await moveFiles(tx, fileIds, move, copies));
  const others = copies.filter((copy) => !moved.has(copy.fileId));
  if (others.length === 0) return;
  const [ids, diskIds] = [others.map((c) => c.fileId), others.map((c) => c.diskId)];
  const mtimes = others.map((c) => c.mtimeNs);
  await tx.query(
    sql`UPDATE tape_file f SET disk_id = r.disk_id, disk_mtime_ns = r.mtime_ns
        FROM unnest(${ids}::bigint[], ${diskIds}::int[], ${mtimes}::bigint[]) AS r (id, disk_id, mtime_ns)
        WHERE f.id = r.id`,
  );
}

/** What those who hold the file are told; nothing while it is still to be recalled. */
function toHoldOutcome(outcome: RecallOutcome): HoldOutcome[] {
  const { fileId } = outcome;
  if (outcome.kind === 'restored') return [{ fileId }];
  if (outcome.kind !== 'failed') return [];
  return [{ fileId, failure: { errorClass: outcome.errorClass, error: outcome.error } }];
}

/** A request that was made while its recall began was not seen then: it starts with the recall all the same. */
async function dateLateRequests(
  ctx: Context,
  tx: Transaction,
  lease: Lease,
  fileIds: readonly bigint[],
): Promise<void> {
  const late = await tx.query<{ id: number }>(
    sql`UPDATE request r SET tapestore_request_start = greatest(s.started_at, r.request_date) FROM (
          SELECT h.request_id, min(c.started_at) AS started_at FROM recall c JOIN hold h ON h.file_id = c.file_id
          WHERE c.file_id = ANY(${fileIds}::bigint[]) AND c.drive_id = ${lease.driveId} AND c.epoch = ${lease.epoch}
            AND h.state = 'WAITING'
          GROUP BY h.request_id
        ) s WHERE r.id = s.request_id AND r.tapestore_request_start IS NULL AND ${isLive} RETURNING r.id`,
  );
  // it is RESTORING from now on, also where no file came of it
  const ids = late.map((request) => request.id);
  await advanceRequests(ctx, tx, ids);
}

/** Takes the recalls that have ended out of the queue and puts the others back, as far as the lease holds them. */
async function endRecalls(tx: Transaction, lease: Lease, outcomes: readonly RecallOutcome[]): Promise<Reservation[]> {
  const isOver = (outcome: RecallOutcome) => outcome.kind === 'restored' || outcome.kind === 'failed';
  const over = outcomes.filter(isOver).map((outcome) => outcome.fileId);
  const gone = await tx.query<Reservation>(
    sql`DELETE FROM recall WHERE file_id = ANY(${over}::bigint[]) AND state = 'RUNNING'
          AND drive_id = ${lease.driveId} AND epoch = ${lease.epoch}
        RETURNING file_id AS "fileId", size, disk_id AS "diskId"`,
  );
  const back = outcomes.filter((outcome) => !isOver(outcome));
  return back.length === 0 ? gone : [...gone, ...(await requeue(tx, lease, back))];
}

async function requeue(tx: Transaction, lease: Lease, back: readonly RecallOutcome[]): Promise<Reservation[]> {
  const tries = back.map((outcome) => (outcome.kind === 'retry' ? outcome : undefined));
  const fileIds = back.map((outcome) => outcome.fileId);
  const [classes, errors] = [tries.map((o) => o?.errorClass ?? null), tries.map((o) => o?.error ?? null)];
  const notBefore = tries.map((o) => o?.notBefore ?? null);
  const queued = await tx.query<Reservation>(
    sql`UPDATE recall c SET state = 'WAITING', drive_id = NULL, epoch = NULL, disk_id = NULL, started_at = NULL,
          attempts = c.attempts + CASE WHEN b.error_class IS NULL THEN 0 ELSE 1 END, not_before = b.not_before,
          error_class = coalesce(b.error_class, c.error_class), error = coalesce(b.error, c.error)
        FROM unnest(${fileIds}::bigint[], ${classes}::"ErrorClass"[], ${errors}::text[], ${notBefore}::timestamp[])
            AS b (file_id, error_class, error, not_before), recall old
        WHERE c.file_id = b.file_id AND old.file_id = c.file_id
          AND c.state = 'RUNNING' AND c.drive_id = ${lease.driveId} AND c.epoch = ${lease.epoch}
        RETURNING c.file_id AS "fileId", c.size, old.disk_id AS "diskId"`,
  );
  const queuedIds = queued.map((recall) => recall.fileId);
  // a recall that went back into the queue while its last request ended has nobody left to wait for it
  await tx.query(
    sql`DELETE FROM recall c USING tape_file f WHERE c.file_id = ANY(${queuedIds}::bigint[]) AND c.state = 'WAITING'
          AND f.id = c.file_id AND ${isUnheld}`,
  );
  return queued;
}
