/**
 * How recalls end. Whoever runs recalls holds a drive's lease; a write of a holder whose lease is lost finds no recall
 * with its epoch, and changes nothing.
 */
import type { Context } from '../../context.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import type { ErrorClass } from '../../errors.js';
import { moveFiles, type NewCopy } from '../../stages.js';
import { IS_LIVE, IS_UNHELD } from '../conditions.js';
import { freeReserved, type Reservation } from '../disks/reservations.js';
import { advanceRequests, lockFiles, lockRequestsOf, markHolds } from '../requests/holds.js';
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
  return await transaction(ctx.db.pool, async (tx) => {
    await lockRequestsOf(tx, fileIds);
    await lockFiles(tx, fileIds);
    await dateLateRequests(ctx, tx, lease, fileIds);
    const ended = new Map<bigint, Reservation>();
    for (const recall of await endRecalls(tx, lease, outcomes)) ended.set(recall.fileId, recall);
    // once more: a request that was made since must not end between the look at who holds the files and the commit, or
    // its end would be dealt with while the files are not there yet, and they would stay for ever
    await lockRequestsOf(tx, fileIds);
    const written = outcomes.filter((outcome) => ended.has(outcome.fileId));
    const restored = written.filter((outcome) => outcome.kind === 'restored');
    const failed = written.filter((outcome) => outcome.kind === 'failed');
    const others = written.filter((outcome) => outcome.kind !== 'restored');

    const restoredIds = restored.map((outcome) => outcome.fileId);
    await placeCopies(
      tx,
      restored.flatMap(({ fileId, mtimeNs }) => {
        const recall = ended.get(fileId);
        return recall ? [{ fileId, mtimeNs, diskId: recall.diskId }] : [];
      }),
    );
    await moveFiles(
      tx,
      others.map((outcome) => outcome.fileId),
      { from: 'RESTORING', to: 'ONTAPE' },
    );
    const unheld = await tx.query<{ id: bigint }>(
      `SELECT f.id FROM tape_file f WHERE f.id = ANY($1::bigint[]) AND ${IS_UNHELD}`,
      [restoredIds],
    );
    await moveFiles(
      tx,
      unheld.map((file) => file.id),
      { from: 'RESTORED', to: 'ONTAPE' },
    );
    await markHolds(ctx, tx, [
      ...restored.map(({ fileId }) => ({ fileId })),
      ...failed.map(({ fileId, errorClass, error }) => ({ fileId, failure: { errorClass, error } })),
    ]);
    // last, since recalls that start wait for the disks
    await freeReserved(tx, [...ended.values()], new Set(restoredIds));
    return [...ended.keys()];
  });
}

/** Moves files to RESTORED and notes their copies; that of a file that an import has moved meanwhile is noted as well. */
async function placeCopies(tx: Transaction, copies: readonly (NewCopy & { fileId: bigint })[]): Promise<void> {
  const move = { from: 'RESTORING', to: 'RESTORED' } as const;
  const fileIds = copies.map((copy) => copy.fileId);
  const moved = new Set(await moveFiles(tx, fileIds, move, copies));
  const others = copies.filter((copy) => !moved.has(copy.fileId));
  if (others.length === 0) return;
  await tx.query(
    `UPDATE tape_file f SET disk_id = r.disk_id, disk_mtime_ns = r.mtime_ns
     FROM unnest($1::bigint[], $2::int[], $3::bigint[]) AS r (id, disk_id, mtime_ns) WHERE f.id = r.id`,
    [others.map((c) => c.fileId), others.map((c) => c.diskId), others.map((c) => c.mtimeNs)],
  );
}

/** A request that was made while its recall began was not seen then: it starts with the recall all the same. */
async function dateLateRequests(
  ctx: Context,
  tx: Transaction,
  lease: Lease,
  fileIds: readonly bigint[],
): Promise<void> {
  const late = await tx.query<{ id: number }>(
    `UPDATE request r SET tapestore_request_start = greatest(s.started_at, r.request_date) FROM (
       SELECT h.request_id, min(c.started_at) AS started_at FROM recall c JOIN hold h ON h.file_id = c.file_id
       WHERE c.file_id = ANY($1::bigint[]) AND c.drive_id = $2 AND c.epoch = $3 AND h.state = 'WAITING'
       GROUP BY h.request_id
     ) s WHERE r.id = s.request_id AND r.tapestore_request_start IS NULL AND ${IS_LIVE} RETURNING r.id`,
    [fileIds, lease.driveId, lease.epoch],
  );
  // it is RESTORING from now on, also where no file came of it
  const ids = late.map((request) => request.id);
  await advanceRequests(ctx, tx, ids);
}

/** Takes the recalls that have ended out of the queue and puts the others back, as far as the lease holds them. */
async function endRecalls(tx: Transaction, lease: Lease, outcomes: readonly RecallOutcome[]): Promise<Reservation[]> {
  const isOver = (outcome: RecallOutcome) => outcome.kind === 'restored' || outcome.kind === 'failed';
  const gone = await tx.query<Reservation>(
    `DELETE FROM recall WHERE file_id = ANY($1::bigint[]) AND state = 'RUNNING' AND drive_id = $2 AND epoch = $3
     RETURNING file_id AS "fileId", size, disk_id AS "diskId"`,
    [outcomes.filter(isOver).map((o) => o.fileId), lease.driveId, lease.epoch],
  );
  const back = outcomes.filter((outcome) => !isOver(outcome));
  if (back.length === 0) return gone;
  const error = (o: RecallOutcome) => (o.kind === 'retry' ? o : undefined);
  const queued = await tx.query<Reservation>(
    `UPDATE recall c SET state = 'WAITING', drive_id = NULL, epoch = NULL, disk_id = NULL, started_at = NULL,
       attempts = c.attempts + CASE WHEN b.error_class IS NULL THEN 0 ELSE 1 END, not_before = b.not_before,
       error_class = coalesce(b.error_class, c.error_class), error = coalesce(b.error, c.error)
     FROM unnest($1::bigint[], $4::"ErrorClass"[], $5::text[], $6::timestamp[]) AS b (file_id, error_class, error, not_before),
       recall old
     WHERE c.file_id = b.file_id AND old.file_id = c.file_id
       AND c.state = 'RUNNING' AND c.drive_id = $2 AND c.epoch = $3
     RETURNING c.file_id AS "fileId", c.size, old.disk_id AS "diskId"`,
    [
      back.map((o) => o.fileId),
      lease.driveId,
      lease.epoch,
      back.map((o) => error(o)?.errorClass ?? null),
      back.map((o) => error(o)?.error ?? null),
      back.map((o) => error(o)?.notBefore ?? null),
    ],
  );
  // a recall that went back into the queue while its last request ended has nobody left to wait for it
  await tx.query(
    `DELETE FROM recall c USING tape_file f WHERE c.file_id = ANY($1::bigint[]) AND c.state = 'WAITING'
       AND f.id = c.file_id AND ${IS_UNHELD}`,
    [queued.map((recall) => recall.fileId)],
  );
  return [...gone, ...queued];
}
