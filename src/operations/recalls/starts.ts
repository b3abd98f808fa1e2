/** How recalls begin: on a drive that is held, with room reserved, and with their requests dated. */

import type { Context } from '../../context.js';
import { lockFiles, locking } from '../../database/locks.js';
import { byKeys } from '../../database/planning.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { time } from '../../signals.js';
import { onDiskStages, type Stage } from '../../stages.js';
import { addSeconds, secondsBetween } from '../../time.js';
import type { FileAttributes } from '../catalogue/attributes.js';
import { moveFiles } from '../catalogue/moves.js';
import { isMisplaced, placeOfFile } from '../catalogue/versions.js';
import { hasPlace, isChanged, isStagedAt, isWaiting, pathOnTape } from '../conditions.js';
import type { DiskRow } from '../disks/disks.js';
import { choosePlaces } from '../disks/renamed-places.js';
import { lookAtDisks, type MeasureDisks, reserve } from '../disks/reservations.js';
import { lockHolders, lockUnstartedOf, markHolds } from '../requests/holds.js';
import { advanceRequests, noteStep } from '../requests/progress.js';
import { mayBegin } from '../suspensions.js';
import { isHeldUnder, type Lease } from './drives.js';

/** A recall that runs: all that is needed to bring the file back. */
export interface RunningRecall extends FileAttributes {
  fileId: bigint;
  logicalPath: string;
  /** By which its library knows it. */
  tapePath: string;
  /** Where it is put, below the mount point. */
  path: string;
  size: bigint;
  /** Null where the catalogue knows none, and the library finds the file by its path. */
  position: bigint | null;
  checksum: string | null;
  /** It was taken at the file's first restore: nobody has told it. */
  isChecksumTaken: boolean;
  attempts: number;
  /** Tries before its volume was put back into service, or somebody asked for it again. */
  earlierTries: number;
  /** Of its volume: see doubts.ts. */
  doubtedSince: string | null;
  diskId: number;
  mountpoint: string;
}

/**
 * Starts waiting recalls on a drive: reserves room for each, moves its file to RESTORING and dates its requests. What is
 * read, and where, is what the file says now; what lies on another volume than the drive has mounted stays in the queue.
 * A recall without room stays there, too, and says so. Recalls that are no longer waiting, and those that an operator has
 * suspended since they were planned, are left out.
 * @param what.stagedAt the id of a staging library: what is ready there is started, be it on whatever volume
 * @returns what was started, in the order of `fileIds`
 */
export async function startRecalls(
  ctx: Context,
  lease: Lease,
  { fileIds, measure, stagedAt }: { fileIds: readonly bigint[]; measure: MeasureDisks; stagedAt?: number | undefined },
): Promise<RunningRecall[]> {
  const seen = await lookAtDisks(ctx, measure); // before anything is locked
  const { started, queuedAt, idle } = await transaction(ctx.db.pool, 'startRecalls', async (begun) => {
    const tx = byKeys(begun);
    // requests that have started are not changed here, and stay free for recalls that end meanwhile
    const requestIds = await lockUnstartedOf(tx, fileIds);
    await lockFiles(tx, fileIds);
    const waiting = await lockWaiting(ctx, tx, lease, { fileIds, stagedAt });
    const mounted = await lockDrive(tx, lease);
    if (!mounted) return { started: [], queuedAt: [], idle: [] };
    await followFiles(tx, fileIds);
    const isHere = ({ volumeId, isStaged }: WaitingRecall) =>
      stagedAt === undefined ? volumeId !== null && volumeId === mounted.volumeId : isStaged;
    const startable = waiting.filter((recall) => isStartable(recall) && isHere(recall));
    const placed = await reserve(
      ctx,
      tx,
      startable.filter(({ hasPlace }) => hasPlace),
      seen,
    );
    const places = await storeStarts(ctx, tx, lease, placed);
    const startedIds = placed.map(({ recall }) => recall.fileId);
    await dateRequests(ctx, tx, requestIds, startedIds);
    await delayShortly(ctx, tx, waiting.filter(isOnItsWay).map(toFileId));
    const queuedAt = placed.map(({ recall }) => recall.queuedAt);
    return {
      started: placed.map((one) => toRunning(one, places)),
      queuedAt,
      idle: waiting.filter(isOnDisk).map(toFileId),
    };
  });
  for (const at of queuedAt) noteWait(at, ctx.now());
  await dropIdle(ctx, idle);
  return started;
}

function noteWait(queuedAt: string, now: string): void {
  time('tapegate_recall_wait_seconds', {}, Math.max(0, secondsBetween(queuedAt, now)));
}

/**
 * So that nobody takes the drive over and cleans up in the middle of a start; its lease is renewed all the same, however
 * long the start waits for others. @returns undefined when the lease is lost
 */
async function lockDrive(tx: Transaction, lease: Lease): Promise<{ volumeId: number | null } | undefined> {
  const [held] = await tx.query<{ volumeId: number | null }>(
    sql`SELECT d.volume_id AS "volumeId" FROM drive d WHERE ${isHeldUnder(lease)} ${locking.driveKept}`,
  );
  return held;
}

/** A recall that was left with another place than its file has would be planned for its old volume again and again. */
async function followFiles(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  await tx.query(
    sql`UPDATE recall c SET ${placeOfFile} FROM tape_file f
        WHERE c.file_id = ANY(${fileIds}::bigint[]) AND ${isWaiting} AND f.id = c.file_id AND ${isMisplaced}`,
  );
}

/** A recall with the disk that its file goes to. */
interface Placed {
  recall: WaitingRecall;
  disk: DiskRow;
}

/** @returns where files are put, by their ids, if not at their paths */
async function storeStarts(
  ctx: Context,
  tx: Transaction,
  lease: Lease,
  placed: readonly Placed[],
): Promise<Map<bigint, string>> {
  const fileIds = placed.map(({ recall }) => recall.fileId);
  const diskIds = placed.map(({ disk }) => disk.id);
  await tx.query(
    sql`UPDATE recall c SET state = 'RUNNING', drive_id = ${lease.driveId}, epoch = ${lease.epoch},
          started_at = ${ctx.now()}, not_before = NULL, disk_id = p.disk_id, checksum = f.checksum
        FROM unnest(${fileIds}::bigint[], ${diskIds}::int[]) AS p (file_id, disk_id) JOIN tape_file f ON f.id = p.file_id
        WHERE c.file_id = p.file_id`,
  );
  await moveFiles(ctx, tx, fileIds, { from: 'ONTAPE', to: 'RESTORING' });
  return await choosePlaces(
    tx,
    placed.map(({ recall }) => recall),
  );
}

function toRunning(
  { recall: { stage, volumeId, queuedAt, hasPlace, hasCopy, mayBegin, isStaged, ...recall }, disk }: Placed,
  places: ReadonlyMap<bigint, string>,
): RunningRecall {
  const path = places.get(recall.fileId) ?? recall.logicalPath;
  return { ...recall, path, diskId: disk.id, mountpoint: disk.mountpoint };
}

/** A recall of the queue, with what its file says now. */
interface WaitingRecall extends Omit<RunningRecall, 'diskId' | 'mountpoint' | 'path'> {
  stage: Stage;
  volumeId: number | null;
  queuedAt: string;
  /** The catalogue says where it is, as far as its library needs that. */
  hasPlace: boolean;
  /** Its last copy has not left the restore area. */
  hasCopy: boolean;
  /** Nothing that it would use is suspended. */
  mayBegin: boolean;
  /** It can be read at the staging library that is asked about. */
  isStaged: boolean;
}

/** @returns those that still wait, in the order of `fileIds`; the files are locked */
async function lockWaiting(
  ctx: Context,
  tx: Transaction,
  lease: Lease,
  { fileIds, stagedAt }: { fileIds: readonly bigint[]; stagedAt: number | undefined },
): Promise<WaitingRecall[]> {
  const isStaged = stagedAt === undefined ? sql`false` : isStagedAt(ctx.now(), stagedAt);
  const rows = await tx.query<WaitingRecall>(
    sql`SELECT c.file_id AS "fileId", f.path AS "logicalPath", ${pathOnTape} AS "tapePath", f.size, f.volume_id AS "volumeId", c.created_at AS "queuedAt", f.position, ${hasPlace} AS "hasPlace", f.checksum,
          f.checksum_taken AS "isChecksumTaken", c.attempts,
          c.earlier_tries AS "earlierTries", (SELECT v.doubted_since FROM volume v WHERE v.id = f.volume_id) AS "doubtedSince", f.stage,
          f.mode, f.mtime, f.uid, f.gid,
          f.disk_id IS NOT NULL AS "hasCopy", ${mayBegin(lease, stagedAt === undefined ? 'mounting' : 'reading')} AS "mayBegin", ${isStaged} AS "isStaged"
        FROM recall c JOIN tape_file f ON f.id = c.file_id
        WHERE c.file_id = ANY(${fileIds}::bigint[]) AND ${isWaiting} ${locking.freeRecall}`,
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
async function delayShortly(ctx: Context, tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  if (fileIds.length === 0) return;
  const notBefore = addSeconds(ctx.now(), 1);
  await tx.query(sql`UPDATE recall SET not_before = ${notBefore} WHERE file_id = ANY(${fileIds}::bigint[])`);
}

/** Drops recalls of files that are on disk after all, which satisfies their holds; changed copies are looked for first. */
async function dropIdle(ctx: Context, fileIds: readonly bigint[]): Promise<void> {
  if (fileIds.length === 0) return;
  await transaction(ctx.db.pool, 'dropIdle', async (tx) => {
    await lockHolders(tx, fileIds);
    const idle = await tx.query<{ fileId: bigint; isChanged: boolean }>(
      sql`DELETE FROM recall c USING tape_file f
          WHERE c.file_id = ANY(${fileIds}::bigint[]) AND ${isWaiting} AND f.id = c.file_id
            AND f.stage = ANY(${onDiskStages}::"Stage"[]) RETURNING c.file_id AS "fileId", ${isChanged} AS "isChanged"`,
    );
    await markHolds(
      ctx,
      tx,
      idle.filter((file) => !file.isChanged).map(({ fileId }) => ({ fileId })),
    );
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
    sql`UPDATE request r SET tapestore_request_start = ${ctx.now()}::timestamp
     WHERE r.id = ANY(${requestIds}::int[]) AND r.tapestore_request_start IS NULL
       AND EXISTS (SELECT FROM live_hold h WHERE h.request_id = r.id AND h.file_id = ANY(${started}::bigint[]))
     RETURNING id`,
  );
  const ids = fresh.map((request) => request.id);
  noteStep(ctx, tx, 'started', ids);
  await advanceRequests(ctx, tx, ids);
}
