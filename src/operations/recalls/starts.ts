/** How recalls begin: on a drive that is held, with room reserved, and with their requests dated. */
import type { Context } from '../../context.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { moveFiles, onDiskStages, type Stage } from '../../stages.js';
import { addSeconds } from '../../time.js';
import { type MeasureDisks, reserve } from '../disks/reservations.js';
import { advanceRequests, lockFiles, lockRequestsOf, markHolds } from '../requests/holds.js';
import { MAY_BEGIN } from '../suspensions.js';
import type { Lease } from './drives.js';

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
  const { started, idle } = await transaction(ctx.db.pool, async (tx) => {
    // locked, so that nobody takes the drive over and cleans up in the middle of this
    const held = await tx.query('SELECT FROM drive WHERE id = $1 AND epoch = $2 FOR SHARE', [
      lease.driveId,
      lease.epoch,
    ]);
    if (held.length === 0) return { started: [], idle: [] };
    // requests that have started are not changed here, and stay free for recalls that end meanwhile
    const requestIds = await lockRequestsOf(tx, fileIds, 'unstarted');
    await lockFiles(tx, fileIds);
    const waiting = await lockWaiting(ctx, tx, lease, fileIds);
    const placed = await reserve(ctx, tx, waiting.filter(isStartable), measure);
    const startedIds = placed.map(({ recall }) => recall.fileId);
    await tx.query(
      `UPDATE recall c SET state = 'RUNNING', drive_id = $1, epoch = $2, started_at = $3, disk_id = p.disk_id
       FROM unnest($4::bigint[], $5::int[]) AS p (file_id, disk_id) WHERE c.file_id = p.file_id`,
      [lease.driveId, lease.epoch, ctx.now(), startedIds, placed.map(({ disk }) => disk.id)],
    );
    await moveFiles(tx, startedIds, { from: 'ONTAPE', to: 'RESTORING' });
    await dateRequests(ctx, tx, requestIds, startedIds);
    await postpone(ctx, tx, waiting.filter(isOnItsWay).map(toFileId));
    return {
      started: placed.map(({ recall: { stage, hasCopy, mayBegin, ...recall }, disk }) => ({
        ...recall,
        diskId: disk.id,
        mountpoint: disk.mountpoint,
      })),
      idle: waiting.filter(isOnDisk).map(toFileId),
    };
  });
  await dropIdle(ctx, idle);
  return started;
}

/** A recall of the queue, with what its file says now. */
interface WaitingRecall extends Omit<RunningRecall, 'diskId' | 'mountpoint'> {
  stage: Stage;
  /** Its last copy has not left the restore area. */
  hasCopy: boolean;
  /** Nothing that it would use is suspended. */
  mayBegin: boolean;
}

/** @returns those that still wait, in the order of `fileIds` */
async function lockWaiting(
  ctx: Context,
  tx: Transaction,
  lease: Lease,
  fileIds: readonly bigint[],
): Promise<WaitingRecall[]> {
  const rows = await tx.query<WaitingRecall>(
    `SELECT c.file_id AS "fileId", f.path, c.size, c.position, f.checksum, c.attempts, f.stage,
       f.disk_id IS NOT NULL AS "hasCopy", ${MAY_BEGIN} AS "mayBegin"
     FROM recall c JOIN tape_file f ON f.id = c.file_id
     WHERE c.file_id = ANY($1::bigint[]) AND c.state = 'WAITING' FOR UPDATE OF c SKIP LOCKED`,
    [fileIds, lease.driveName, ctx.config.tapeBackend],
  );
  const found = new Map(rows.map((row) => [row.fileId, row]));
  return fileIds.flatMap((fileId) => found.get(fileId) ?? []);
}

function isStartable(recall: WaitingRecall): boolean {
  return recall.stage === 'ONTAPE' && !recall.hasCopy && recall.mayBegin;
}

function isOnDisk(recall: WaitingRecall): boolean {
  return onDiskStages.includes(recall.stage);
}

/** Not back on tape, or its last copy is still to be removed. */
function isOnItsWay(recall: WaitingRecall): boolean {
  return !isOnDisk(recall) && (recall.stage === 'RESTORING' || recall.hasCopy);
}

function toFileId({ fileId }: { fileId: bigint }): bigint {
  return fileId;
}

/** Recalls of files that are not back on tape, or whose last copy is still to be removed, are tried again in a moment. */
async function postpone(ctx: Context, tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  if (fileIds.length === 0) return;
  const notBefore = addSeconds(ctx.now(), 1);
  await tx.query('UPDATE recall SET not_before = $2 WHERE file_id = ANY($1::bigint[])', [fileIds, notBefore]);
}

/** Drops recalls of files that are on disk after all, which satisfies their holds. */
async function dropIdle(ctx: Context, fileIds: readonly bigint[]): Promise<void> {
  if (fileIds.length === 0) return;
  await transaction(ctx.db.pool, async (tx) => {
    await lockRequestsOf(tx, fileIds);
    await lockFiles(tx, fileIds);
    const idle = await tx.query<{ fileId: bigint }>(
      `DELETE FROM recall c USING tape_file f
       WHERE c.file_id = ANY($1::bigint[]) AND c.state = 'WAITING' AND f.id = c.file_id AND f.stage = ANY($2::"Stage"[])
       RETURNING c.file_id AS "fileId"`,
      [fileIds, onDiskStages],
    );
    await markHolds(ctx, tx, idle);
  });
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
