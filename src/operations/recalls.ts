/**
 * Recalls: the queue, and how each of them ends. Whoever runs recalls holds a drive's lease; a write of a holder whose
 * lease is lost finds no recall with its epoch, and changes nothing.
 */
import type { Context } from '../context.js';
import { type Transaction, transaction } from '../database/transaction.js';
import type { ErrorClass } from '../errors.js';
import { moveFiles, onDiskStages } from '../stages.js';
import { addSeconds } from '../time.js';
import type { Lease } from './drives.js';
import { advanceRequests, lockRequestsOf, markHolds } from './holds.js';
import { IS_LIVE, IS_UNHELD } from './live.js';
import { type MeasureDisks, reserve } from './reservations.js';
import { MAY_BEGIN } from './suspensions.js';

/** A recall that runs: all that is needed to bring the file back. */
export interface RunningRecall {
  fileId: bigint;
  path: string;
  size: bigint;
  position: bigint;
  checksum: string | null;
  attempts: number;
  diskId: number;
  mountpoint: string;
}

/**
 * Starts waiting recalls on a drive: reserves room for each, moves its file to RESTORING and dates its requests.
 * A recall without room stays in the queue and says so. Recalls that are no longer waiting, and those that an operator
 * has suspended since they were planned, are left out.
 * @returns what was started, in the order of `fileIds`
 */
export async function startRecalls(
  ctx: Context,
  lease: Lease,
  { fileIds, measure }: { fileIds: readonly bigint[]; measure: MeasureDisks },
): Promise<RunningRecall[]> {
  return await transaction(ctx.db.pool, async (tx) => {
    // locked, so that nobody takes the drive over and cleans up in the middle of this
    const held = await tx.query('SELECT FROM drive WHERE id = $1 AND epoch = $2 FOR SHARE', [
      lease.driveId,
      lease.epoch,
    ]);
    if (held.length === 0) return [];
    const requestIds = await lockRequestsOf(tx, fileIds);
    await lockFiles(tx, fileIds);
    await setAside(ctx, tx, fileIds);
    const waiting = await tx.query<{ fileId: bigint; size: bigint }>(
      `SELECT c.file_id AS "fileId", c.size FROM recall c JOIN tape_file f ON f.id = c.file_id
       WHERE c.file_id = ANY($1::bigint[]) AND c.state = 'WAITING'
         AND f.stage = 'ONTAPE' AND f.disk_id IS NULL AND ${MAY_BEGIN}
       ORDER BY array_position($1::bigint[], c.file_id) FOR UPDATE OF c SKIP LOCKED`,
      [fileIds, lease.driveName, ctx.config.tapeBackend],
    );
    const placed = await reserve(ctx, tx, waiting, measure);
    const started = placed.map((p) => p.fileId);
    await tx.query(
      `UPDATE recall c SET state = 'RUNNING', drive_id = $1, epoch = $2, started_at = $3, disk_id = p.disk_id
       FROM unnest($4::bigint[], $5::int[]) AS p (file_id, disk_id) WHERE c.file_id = p.file_id`,
      [lease.driveId, lease.epoch, ctx.now(), started, placed.map((p) => p.disk.id)],
    );
    await moveFiles(tx, started, { from: 'ONTAPE', to: 'RESTORING' });
    await dateRequests(ctx, tx, requestIds, started);
    const rows = await tx.query<RunningRecall>(
      `SELECT c.file_id AS "fileId", f.path, c.size, c.position, f.checksum, c.attempts,
         d.id AS "diskId", d.mountpoint
       FROM recall c JOIN tape_file f ON f.id = c.file_id JOIN restore_disk d ON d.id = c.disk_id
       WHERE c.file_id = ANY($1::bigint[]) ORDER BY array_position($1::bigint[], c.file_id)`,
      [started],
    );
    return rows;
  });
}

/**
 * Deals with recalls that cannot start: a file that is on disk after all satisfies its holds, and one that is not back
 * on tape yet, or whose last copy has not left the restore area, is tried again in a moment.
 */
async function setAside(ctx: Context, tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  const idle = await tx.query<{ fileId: bigint }>(
    `DELETE FROM recall c USING tape_file f
     WHERE c.file_id = ANY($1::bigint[]) AND c.state = 'WAITING' AND f.id = c.file_id AND f.stage = ANY($2::"Stage"[])
     RETURNING c.file_id AS "fileId"`,
    [fileIds, onDiskStages],
  );
  await markHolds(ctx, tx, idle);
  await tx.query(
    `UPDATE recall c SET not_before = $2 FROM tape_file f
     WHERE c.file_id = ANY($1::bigint[]) AND c.state = 'WAITING' AND f.id = c.file_id
       AND (f.disk_id IS NOT NULL OR f.stage = 'RESTORING')`,
    [fileIds, addSeconds(ctx.now(), 1)],
  );
}

export async function lockFiles(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  await tx.query(
    `SELECT count(*) FROM (
       SELECT FROM tape_file WHERE id = ANY($1::bigint[]) ORDER BY id FOR NO KEY UPDATE) locked`,
    [fileIds],
  );
}

/** A request starts when its first recall does. */
async function dateRequests(
  ctx: Context,
  tx: Transaction,
  requestIds: readonly number[],
  started: readonly bigint[],
): Promise<void> {
  const fresh = await tx.query<{ id: number }>(
    `UPDATE request r SET tapestore_request_start = $2::timestamp
     WHERE r.id = ANY($1::int[]) AND r.tapestore_request_start IS NULL
       AND EXISTS (SELECT FROM live_hold h WHERE h.request_id = r.id AND h.file_id = ANY($3::bigint[]))
     RETURNING id`,
    [requestIds, ctx.now(), started],
  );
  await advanceRequests(
    ctx,
    tx,
    fresh.map((request) => request.id),
  );
}

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

interface EndedRecall {
  fileId: bigint;
  size: bigint;
  diskId: number;
}

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
    const ended = new Map<bigint, EndedRecall>();
    for (const recall of await endRecalls(tx, lease, outcomes)) ended.set(recall.fileId, recall);
    // once more: a request that was made since must not end between the look at who holds the files and the commit, or
    // its end would be dealt with while the files are not there yet, and they would stay for ever
    await lockRequestsOf(tx, fileIds);
    const written = outcomes.filter((outcome) => ended.has(outcome.fileId));
    const restored = written.filter((outcome) => outcome.kind === 'restored');
    const failed = written.filter((outcome) => outcome.kind === 'failed');
    const others = written.filter((outcome) => outcome.kind !== 'restored');

    await freeReserved(tx, [...ended.values()], new Set(restored.map((outcome) => outcome.fileId)));
    await tx.query(
      `UPDATE tape_file f SET disk_id = r.disk_id, disk_mtime_ns = r.mtime_ns
       FROM unnest($1::bigint[], $2::int[], $3::bigint[]) AS r (id, disk_id, mtime_ns) WHERE f.id = r.id`,
      [restored.map((o) => o.fileId), restored.map((o) => ended.get(o.fileId)?.diskId), restored.map((o) => o.mtimeNs)],
    );
    const restoredIds = restored.map((outcome) => outcome.fileId);
    await moveFiles(tx, restoredIds, { from: 'RESTORING', to: 'RESTORED' });
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
    return [...ended.keys()];
  });
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
async function endRecalls(tx: Transaction, lease: Lease, outcomes: readonly RecallOutcome[]): Promise<EndedRecall[]> {
  const isOver = (outcome: RecallOutcome) => outcome.kind === 'restored' || outcome.kind === 'failed';
  const gone = await tx.query<EndedRecall>(
    `DELETE FROM recall WHERE file_id = ANY($1::bigint[]) AND state = 'RUNNING' AND drive_id = $2 AND epoch = $3
     RETURNING file_id AS "fileId", size, disk_id AS "diskId"`,
    [outcomes.filter(isOver).map((o) => o.fileId), lease.driveId, lease.epoch],
  );
  const back = outcomes.filter((outcome) => !isOver(outcome));
  const error = (o: RecallOutcome) => (o.kind === 'retry' ? o : undefined);
  const queued = await tx.query<EndedRecall>(
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

/** Turns what was reserved into what is used, or frees it. */
export async function freeReserved(
  tx: Transaction,
  ended: readonly EndedRecall[],
  restored: ReadonlySet<bigint>,
): Promise<void> {
  await tx.query(
    `WITH sums AS (
       SELECT disk_id, sum(size) AS reserved, coalesce(sum(size) FILTER (WHERE is_used), 0) AS used
       FROM unnest($1::int[], $2::bigint[], $3::bool[]) AS e (disk_id, size, is_used) GROUP BY disk_id
     ), locked AS (
       SELECT id FROM restore_disk WHERE id IN (SELECT disk_id FROM sums) ORDER BY id FOR NO KEY UPDATE
     )
     UPDATE restore_disk d SET reserved = d.reserved - s.reserved, used = d.used + s.used
     FROM sums s, locked l WHERE d.id = s.disk_id AND l.id = d.id`,
    [ended.map((r) => r.diskId), ended.map((r) => r.size), ended.map((r) => restored.has(r.fileId))],
  );
}
