/**
 * Ends recalls. An engine that has lost a drive's lease cannot end recalls that a later engine started on the drive.
 * These recalls have a newer epoch.
 */

import type { ErrorClass } from '../../core/errors.js';
import type { Move } from '../../core/stages.js';
import { addSeconds } from '../../core/time.js';
import { locking } from '../../db/locks.js';
import { byKeys, queryByKeys } from '../../db/planning.js';
import { sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import {
  type CopyTraits,
  moveFiles,
  type NewCopy,
  newCopies,
  setCopy,
  setMissingChecksums,
} from '../catalogue/moves.js';
import { isSameSource, isSameVersion, requeueRecall, switchToCopies } from '../catalogue/versions.js';
import {
  diskPath,
  isHeldUnder,
  isLive,
  isRecalledNoMore,
  isUnplaced,
  isUnrequested,
  isWaiting,
  isWithdrawn,
  whyWithdrawn,
} from '../conditions.js';
import type { Context } from '../context.js';
import { NOT_OURS } from '../disks/disk-copies.js';
import { keepUnverified } from '../disks/removals.js';
import { freeReserved, type Reservation } from '../disks/reservations.js';
import { recordStaleFiles } from '../disks/stale-files.js';
import { advanceRequests } from '../requests/progress.js';
import { lockRequestsAndFiles, markRequestFiles, type RequestFileOutcome } from '../requests/request-files.js';
import type { Lease } from './drives.js';

/** Result of a recall. If `isUnseen` is set, the recall might have left partial files on the disk. */
export type RecallOutcome = { fileId: bigint; isUnseen?: boolean } & (
  | ({ kind: 'restored' } & CopyTraits)
  /**
   * The destination path already contains an identical file that Tapegate did not create. The recall left the file
   * unchanged.
   */
  | { kind: 'existing'; checksum: string; adler32: string | null; mtimeNs: bigint; ctimeNs: bigint }
  | { kind: 'failed'; errorClass: ErrorClass; error: string; isOfTape?: boolean }
  | { kind: 'retry'; errorClass: ErrorClass; error: string; notBefore: string }
  /** The recall failed with an error that the file did not cause, so the recall does not count as a try. */
  | { kind: 'postponed'; errorClass: ErrorClass; error: string; notBefore?: string }
  | { kind: 'returned' }
);

type Restored = Extract<RecallOutcome, { kind: 'restored' }>;

/**
 * Result of a recall that must be repeated. Either an import has changed the file, or Tapegate has switched the file to
 * its other tape copy (`isTurned`). If the recall has restored a copy (`copy`), an engine removes the copy.
 */
type Superseded = {
  fileId: bigint;
  kind: 'superseded';
  copy: Restored | undefined;
  notBefore: string;
  isTurned?: boolean;
};

type Judged = RecallOutcome | Superseded;

/** Seconds to wait before a recall is repeated because its file has changed. */
const SUPERSEDED_PAUSE_SECONDS = 1;

/**
 * Records the results of a drive's recalls in one transaction. Skips recalls that were started under an earlier or
 * later lease of the drive. A result counts only if the file's catalogue entry has not changed since the recall began.
 * @returns the ids of files that an import has changed since their recalls began
 */
export async function finishRecalls(
  ctx: Context,
  lease: Lease,
  reported: readonly RecallOutcome[],
): Promise<Set<bigint>> {
  return await transaction(ctx.db.pool, 'finishRecalls', async (begun) => {
    const tx = byKeys(begun);
    // lock the requests, so that no request ends before the commit; otherwise, the files of an ended request could
    // remain on disk
    await lockRequestsAndFiles(
      tx,
      reported.map(({ fileId }) => fileId),
    );
    // read the running recalls in a single statement: another engine might claim the drive between two statements
    const held = await findRunUnder(tx, lease, reported);
    const outcomes = reported.filter(({ fileId }) => held.has(fileId));
    await dateLateRequests(ctx, tx, [...held]);
    const judged = await turnFailed(ctx, tx, await judgeOutcomes(ctx, tx, outcomes));
    await recordUnseen(tx, outcomes);
    const reservations = await endRecalls(tx, judged);
    const ended = new Map(reservations.map((reservation) => [reservation.fileId, reservation]));
    const written = judged.filter((outcome) => ended.has(outcome.fileId));
    const placedIds = await moveFinished(ctx, tx, written, ended);
    await acceptUnrecorded(ctx, tx, written, ended);
    await markRequestFiles(ctx, tx, written.flatMap(toRequestFileOutcome));
    // release the disk reservations last, because no recall can start while the disks are locked
    await freeReserved(tx, reservations, new Set(placedIds));
    const isOther = (outcome: Judged) => outcome.kind === 'superseded' && !outcome.isTurned;
    return new Set(written.filter(isOther).map(({ fileId }) => fileId));
  });
}

/**
 * Returns the files whose recalls began in the lease's epoch, or no files if the engine has lost the drive. The caller
 * must have locked the recalls.
 */
async function findRunUnder(
  tx: Transaction,
  { driveId, epoch, engineId }: Lease,
  outcomes: readonly RecallOutcome[],
): Promise<Set<bigint>> {
  const rows = await tx.query<{ fileId: bigint }>(
    sql`SELECT c.file_id AS "fileId" FROM recall c JOIN drive d ON d.id = c.drive_id
        WHERE c.file_id = ANY(${outcomes.map(({ fileId }) => fileId)}::bigint[]) AND c.state = 'RUNNING'
          AND c.drive_id = ${driveId} AND c.epoch = ${epoch} AND d.engine_id = ${engineId}::uuid`,
  );
  return new Set(rows.map(({ fileId }) => fileId));
}

/**
 * Compares each recall's result with the file's current catalogue entry. If a file was withdrawn, its recall fails and
 * is not retried.
 */
async function judgeOutcomes(ctx: Context, tx: Transaction, outcomes: readonly RecallOutcome[]): Promise<Judged[]> {
  const fileIds = outcomes.map((outcome) => outcome.fileId);
  const rows = await tx.query<{ fileId: bigint; isOther: boolean; isSame: boolean; withdrawn: string | null }>(
    sql`SELECT c.file_id AS "fileId", NOT ${isSameSource('c', 'f')} AS "isOther", ${isSameVersion('c', 'f')} AS "isSame",
          CASE WHEN ${isWithdrawn} THEN ${whyWithdrawn} END AS withdrawn FROM recall c JOIN tape_file f ON f.id = c.file_id
        WHERE c.file_id = ANY(${fileIds}::bigint[]) AND (${isWithdrawn} OR NOT ${isSameSource('c', 'f')})`,
  );
  const changed = new Map(rows.map((row) => [row.fileId, row]));
  const notBefore = addSeconds(ctx.now(), SUPERSEDED_PAUSE_SECONDS);
  return outcomes.map((outcome) => {
    const { fileId, kind } = outcome;
    const change = changed.get(fileId);
    const isTriedAgain = kind === 'retry' || kind === 'postponed' || kind === 'returned';
    if (isTriedAgain && typeof change?.withdrawn === 'string') {
      const isUnseen = outcome.isUnseen ?? false;
      return { fileId, kind: 'failed', errorClass: 'POLICY', error: change.withdrawn, isUnseen };
    }
    if (!change?.isOther) return outcome;
    // if an import has changed only the tape position, accept a complete copy, but ignore an error at the old position
    if (change.isSame && (kind === 'restored' || kind === 'existing')) return outcome;
    return { fileId, kind: 'superseded', copy: kind === 'restored' ? outcome : undefined, notBefore };
  });
}

async function turnFailed(ctx: Context, tx: Transaction, outcomes: readonly Judged[]): Promise<Judged[]> {
  const failed = outcomes.flatMap((outcome) => (outcome.kind === 'failed' ? [outcome] : []));
  if (failed.length === 0) return [...outcomes];
  const { switched, bothFailed } = await switchToCopies(ctx, tx, failed);
  const notBefore = addSeconds(ctx.now(), SUPERSEDED_PAUSE_SECONDS);
  return outcomes.map((outcome) => {
    const { fileId, kind } = outcome;
    if (kind !== 'failed') return outcome;
    if (switched.has(fileId)) return { fileId, kind: 'superseded', copy: undefined, notBefore, isTurned: true };
    return { ...outcome, error: bothFailed.get(fileId) ?? outcome.error };
  });
}

/**
 * Changes each file's stage according to the recall's result.
 * @returns the ids of files whose copies were recorded
 */
async function moveFinished(
  ctx: Context,
  tx: Transaction,
  outcomes: readonly Judged[],
  ended: ReadonlyMap<bigint, Reservation>,
): Promise<bigint[]> {
  const toCopy = (outcome: Restored) => {
    const recall = ended.get(outcome.fileId);
    return recall ? [{ ...outcome, diskId: recall.diskId }] : [];
  };
  const copies = outcomes.flatMap((outcome) => (outcome.kind === 'restored' ? toCopy(outcome) : []));
  const stale = outcomes.flatMap((outcome) =>
    outcome.kind === 'superseded' && outcome.copy ? toCopy(outcome.copy) : [],
  );
  await recordCopies(ctx, tx, copies, { from: 'RESTORING', to: 'RESTORED' });
  await recordCopies(ctx, tx, stale, { from: 'RESTORING', to: 'ONTAPE' });
  const placed = new Set([...copies, ...stale].map((copy) => copy.fileId));
  const isElsewhere = ({ fileId, kind }: Judged) => kind !== 'existing' && !placed.has(fileId);
  const others = outcomes.filter(isElsewhere).map((outcome) => outcome.fileId);
  await moveFiles(ctx, tx, others, { from: 'RESTORING', to: 'ONTAPE' });
  const restoredIds = copies.map((copy) => copy.fileId);
  const rows = await tx.query<{ id: bigint }>(
    sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${restoredIds}::bigint[]) AND ${isUnrequested}`,
  );
  const unheld = rows.map((file) => file.id);
  await moveFiles(ctx, tx, unheld, { from: 'RESTORED', to: 'ONTAPE' });
  return [...placed];
}

/**
 * Accepts a file on disk that Tapegate did not create, but that is identical to the recalled file. Tapegate never
 * removes the file.
 */
async function acceptUnrecorded(
  ctx: Context,
  tx: Transaction,
  outcomes: readonly Judged[],
  ended: ReadonlyMap<bigint, Reservation>,
): Promise<void> {
  const sums = new Map(outcomes.flatMap((o) => (o.kind === 'existing' ? [[o.fileId, o] as const] : [])));
  const moved = await moveFiles(ctx, tx, [...sums.keys()], { from: 'RESTORING', to: 'UNVERIFIED' });
  if (moved.length === 0) return;
  const diskIds = moved.map((fileId) => ended.get(fileId)?.diskId ?? null);
  const checksums = moved.map((fileId) => sums.get(fileId)?.checksum ?? null);
  const adler32s = moved.map((fileId) => sums.get(fileId)?.adler32 ?? null);
  const mtimes = moved.map((fileId) => sums.get(fileId)?.mtimeNs ?? null);
  const ctimes = moved.map((fileId) => sums.get(fileId)?.ctimeNs ?? null);
  await tx.query(
    sql`UPDATE tape_file f SET changed_disk_id = m.disk_id, disk_mtime_ns = m.mtime_ns, disk_ctime_ns = m.ctime_ns, disk_checksum = m.checksum, ${setMissingChecksums}
        FROM unnest(${moved}::bigint[], ${diskIds}::int[], ${checksums}::text[], ${adler32s}::text[], ${mtimes}::bigint[], ${ctimes}::bigint[])
          AS m (id, disk_id, checksum, adler32, mtime_ns, ctime_ns) WHERE f.id = m.id`,
  );
  await keepUnverified(ctx, tx, moved, NOT_OURS);
}

/**
 * Changes the stage of files and records their copies. Records a file's copy even if the file is not in the expected
 * stage.
 */
async function recordCopies(
  ctx: Context,
  tx: Transaction,
  copies: readonly (NewCopy & { fileId: bigint })[],
  move: Move,
): Promise<void> {
  const fileIds = copies.map((copy) => copy.fileId);
  const moved = new Set(await moveFiles(ctx, tx, fileIds, move, copies));
  const others = copies.filter((copy) => !moved.has(copy.fileId));
  if (others.length === 0) return;
  const ids = others.map((copy) => copy.fileId);
  await tx.query(sql`UPDATE tape_file f SET ${setCopy} FROM ${newCopies(ids, others)} WHERE f.id = m.id`);
}

function toRequestFileOutcome(outcome: Judged): RequestFileOutcome[] {
  const { fileId } = outcome;
  if (outcome.kind === 'restored' || outcome.kind === 'existing') return [{ fileId }];
  if (outcome.kind !== 'failed') return [];
  return [{ fileId, errorClass: outcome.errorClass, error: outcome.error }];
}

/** Sets the start times of requests that were created while the recalls of their files were starting. */
async function dateLateRequests(ctx: Context, tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  const late = await tx.query<{ id: number }>(
    sql`UPDATE request r SET tapestore_request_start = greatest(s.started_at, r.request_date) FROM (
          SELECT h.request_id, min(c.started_at) AS started_at FROM recall c JOIN request_file h ON h.file_id = c.file_id
          WHERE c.file_id = ANY(${fileIds}::bigint[]) AND NOT h.is_ended AND h.state = 'WAITING'
          GROUP BY h.request_id
        ) s WHERE r.id = s.request_id AND r.tapestore_request_start IS NULL AND ${isLive} RETURNING r.id`,
  );
  const ids = late.map((request) => request.id);
  await advanceRequests(ctx, tx, ids);
}

async function endRecalls(tx: Transaction, outcomes: readonly Judged[]): Promise<Reservation[]> {
  const isOver = ({ kind }: Judged) => kind === 'restored' || kind === 'existing' || kind === 'failed';
  const over = outcomes.filter(isOver).map((outcome) => outcome.fileId);
  const gone = await tx.query<Reservation>(
    sql`DELETE FROM recall c WHERE c.file_id = ANY(${over}::bigint[])
        RETURNING file_id AS "fileId", size, disk_id AS "diskId"`,
  );
  const back = outcomes.filter((outcome) => !isOver(outcome));
  return back.length === 0 ? gone : [...gone, ...(await requeue(tx, back))];
}

async function recordUnseen(tx: Transaction, outcomes: readonly RecallOutcome[]): Promise<void> {
  const unseen = outcomes.filter((outcome) => outcome.isUnseen);
  if (unseen.length === 0) return;
  const fileIds = unseen.map((outcome) => outcome.fileId);
  await recordStaleFiles(tx, sql`c.file_id = ANY(${fileIds}::bigint[])`);
}

/**
 * Returns recalls to the queue. If a recall must now read a different version or tape copy of its file, resets the
 * number of tries to zero.
 */
async function requeue(tx: Transaction, back: readonly Judged[]): Promise<Reservation[]> {
  const retried = back.map((outcome) =>
    outcome.kind === 'retry' || outcome.kind === 'postponed' ? outcome : undefined,
  );
  const isTry = back.map((outcome) => outcome.kind === 'retry');
  const isOther = back.map((outcome) => outcome.kind === 'superseded');
  const fileIds = back.map((outcome) => outcome.fileId);
  const [classes, errors] = [retried.map((o) => o?.errorClass ?? null), retried.map((o) => o?.error ?? null)];
  const notBefore = back.map((o) => ('notBefore' in o ? (o.notBefore ?? null) : null));
  const queued = await tx.query<Reservation>(
    sql`UPDATE recall c SET ${requeueRecall}, not_before = b.not_before,
          attempts = CASE WHEN b.is_other THEN 0 ELSE c.attempts + b.is_try::int END,
          earlier_tries = CASE WHEN b.is_other THEN 0 ELSE c.earlier_tries END,
          error_class = CASE WHEN b.is_other THEN NULL ELSE coalesce(b.error_class, c.error_class) END,
          error = CASE WHEN b.is_other THEN NULL ELSE coalesce(b.error, c.error) END
        FROM unnest(${fileIds}::bigint[], ${classes}::"ErrorClass"[], ${errors}::text[], ${notBefore}::timestamp[],
            ${isOther}::bool[], ${isTry}::bool[]) AS b (file_id, error_class, error, not_before, is_other, is_try), recall old, tape_file f
        WHERE c.file_id = b.file_id AND old.file_id = c.file_id AND f.id = c.file_id
        RETURNING c.file_id AS "fileId", old.size, old.disk_id AS "diskId"`,
  );
  const queuedIds = queued.map((recall) => recall.fileId);
  // another transaction might have ended the last request for a file, so remove the recalls that no request needs
  await tx.query(
    sql`DELETE FROM recall c USING tape_file f WHERE c.file_id = ANY(${queuedIds}::bigint[]) AND ${isWaiting}
          AND f.id = c.file_id AND ${isUnrequested}`,
  );
  return queued;
}

/**
 * Returns whether the engine still has the lease. Asks the database instead of comparing times, because the host's
 * clock might be wrong after the host was paused.
 */
export async function isHeld(ctx: Context, lease: Lease): Promise<boolean> {
  const rows = await queryByKeys(ctx.db.pool, sql`SELECT FROM drive d WHERE ${isHeldUnder(lease)}`);
  return rows.length === 1;
}

/** A complete copy at its temporary path. */
export type ReadyCopy = Pick<CopyTraits, 'ino' | 'mtimeNs'> & { fileId: bigint };

/**
 * Records the inodes of complete copies before the copies are published. After a crash, the drive's next engine
 * recognizes the copies by inode.
 * @returns the ids of files to publish
 */
export async function recordReady(ctx: Context, lease: Lease, copies: readonly ReadyCopy[]): Promise<Set<bigint>> {
  const fileIds = copies.map((copy) => copy.fileId);
  const [inos, mtimes] = [copies.map((copy) => copy.ino), copies.map((copy) => copy.mtimeNs)];
  const rows = await queryByKeys<{ fileId: bigint }>(
    ctx.db.pool,
    sql`WITH held AS (
       SELECT c.file_id FROM recall c JOIN drive d ON d.id = c.drive_id AND d.epoch = c.epoch
       WHERE c.file_id = ANY(${fileIds}::bigint[]) AND c.state = 'RUNNING'
         AND ${isHeldUnder(lease)}
       ORDER BY c.file_id ${locking.recall})
     UPDATE recall c SET copy_ino = n.ino, copy_mtime_ns = n.mtime_ns
     FROM unnest(${fileIds}::bigint[], ${inos}::bigint[], ${mtimes}::bigint[]) AS n (file_id, ino, mtime_ns), held
     WHERE c.file_id = n.file_id AND held.file_id = n.file_id RETURNING c.file_id AS "fileId"`,
  );
  return new Set(rows.map((row) => row.fileId));
}

export interface StaleFile {
  fileId: bigint;
  path: string;
  diskId: number;
  mountpoint: string;
  /** Whether the copy's disk is failing, and therefore must not be accessed. */
  isFailing: boolean;
  epoch: bigint;
}

/** Returns recalls that an earlier holder of the drive's lease left running. */
export async function readStaleFiles(ctx: Context, lease: Lease): Promise<StaleFile[]> {
  return await ctx.db.rows<StaleFile>(
    sql`SELECT c.file_id AS "fileId", ${diskPath} AS path, d.mountpoint, c.epoch, c.disk_id AS "diskId",
       EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = c.disk_id) AS "isFailing"
     FROM recall c JOIN tape_file f ON f.id = c.file_id JOIN restore_disk d ON d.id = c.disk_id
     WHERE c.state = 'RUNNING' AND c.drive_id = ${lease.driveId} AND c.epoch < ${lease.epoch}`,
  );
}

/** Requeues recalls that earlier holders of the drive's lease left running. */
export async function endStaleFiles(
  ctx: Context,
  lease: Lease,
  left: readonly Pick<StaleFile, 'fileId' | 'epoch'>[],
): Promise<void> {
  for (const epoch of new Set(left.map((recall) => recall.epoch))) {
    const recalls = left.filter((recall) => recall.epoch === epoch);
    const outcomes = recalls.map(({ fileId }) => ({ fileId, kind: 'returned' as const, isUnseen: true }));
    await finishRecalls(ctx, { ...lease, epoch }, outcomes);
  }
}

const UNPLACED = 'the catalogue does not contain the volume and position of the file';

/**
 * Fails recalls of files whose tape position is unknown, because no drive can read these files.
 * @returns the number of failed recalls
 */
export async function failUnplaced(ctx: Context): Promise<number> {
  return await transaction(ctx.db.pool, 'failUnplaced', async (tx) => {
    const rows = await tx.query<{ fileId: bigint }>(
      sql`SELECT c.file_id AS "fileId" FROM recall c WHERE c.state = 'WAITING' AND ${isUnplaced} ORDER BY c.file_id LIMIT 1000`,
    );
    const fileIds = rows.map((row) => row.fileId);
    if (fileIds.length === 0) return 0;
    await lockRequestsAndFiles(tx, fileIds);
    const unplaced = await tx.query<{ fileId: bigint }>(
      sql`SELECT c.file_id AS "fileId" FROM recall c WHERE c.file_id = ANY(${fileIds}::bigint[]) AND ${isWaiting} AND ${isUnplaced}`,
    );
    const { bothFailed } = await switchToCopies(
      ctx,
      tx,
      unplaced.map(({ fileId }) => ({ fileId, errorClass: 'PERMANENT', error: UNPLACED })),
    );
    const failed = await tx.query<{ fileId: bigint }>(
      sql`DELETE FROM recall c WHERE c.file_id = ANY(${fileIds}::bigint[]) AND ${isWaiting}
            AND ${isUnplaced} RETURNING file_id AS "fileId"`,
    );
    const outcomes = failed.map(({ fileId }) => ({
      fileId,
      errorClass: 'PERMANENT',
      error: bothFailed.get(fileId) ?? UNPLACED,
    }));
    await markRequestFiles(ctx, tx, outcomes);
    return failed.length;
  });
}

/**
 * Fails waiting recalls of withdrawn files.
 * @returns the number of failed recalls
 */
export async function failWithdrawnRecalls(ctx: Context): Promise<number> {
  const which = sql`c.state = 'WAITING' AND f.id = c.file_id AND ${isRecalledNoMore}`;
  return await transaction(ctx.db.pool, 'failWithdrawnRecalls', async (tx) => {
    const rows = await tx.query<{ fileId: bigint }>(
      sql`SELECT c.file_id AS "fileId" FROM recall c JOIN tape_file f ON ${which} ORDER BY c.file_id LIMIT 1000`,
    );
    const fileIds = rows.map((row) => row.fileId);
    if (fileIds.length === 0) return 0;
    await lockRequestsAndFiles(tx, fileIds);
    const failed = await tx.query<RequestFileOutcome>(
      sql`DELETE FROM recall c USING tape_file f WHERE c.file_id = ANY(${fileIds}::bigint[]) AND ${which}
          RETURNING c.file_id AS "fileId", 'POLICY' AS "errorClass", ${whyWithdrawn} AS error`,
    );
    await markRequestFiles(ctx, tx, failed);
    return failed.length;
  });
}
