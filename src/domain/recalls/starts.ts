/** Starts recalls on a claimed drive. */

import path from 'node:path';
import { time } from '../../core/signals.js';
import { onDiskStages, type Stage } from '../../core/stages.js';
import { addSeconds, secondsBetween } from '../../core/time.js';
import { lockFiles, locking } from '../../db/locks.js';
import { byKeys } from '../../db/planning.js';
import { sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import type { FileAttributes } from '../catalogue/attributes.js';
import { RENAMED } from '../catalogue/directory-modes.js';
import { moveFiles } from '../catalogue/moves.js';
import { hasStalePosition, positionOfFile } from '../catalogue/versions.js';
import { foldedPath, hasPosition, isChanged, isHeldUnder, isStagedAt, isWaiting, pathOnTape } from '../conditions.js';
import type { Context } from '../context.js';
import type { DiskRow } from '../disks/disks.js';
import { type MeasureDisks, measureDisks, reserve } from '../disks/reservations.js';
import { mayBegin } from '../health/suspensions.js';
import { advanceRequests, logStep } from '../requests/progress.js';
import { lockRequestsAndFiles, lockUnstartedOf, markRequestFiles } from '../requests/request-files.js';
import type { Lease } from './drives.js';

export interface RunningRecall extends FileAttributes {
  fileId: bigint;
  logicalPath: string;
  tapePath: string;
  path: string;
  size: bigint;
  /** Position of the file on tape; null if the library finds the file by its path. */
  position: bigint | null;
  checksum: string | null;
  /** Whether Tapegate computed the checksum at the first restore, because the catalogue had no checksum. */
  isChecksumTaken: boolean;
  hasAdler32: boolean;
  attempts: number;
  /** Number of earlier tries that no longer count, for example because an operator has resumed the volume. */
  earlierTries: number;
  diskId: number;
  mountpoint: string;
}

/**
 * Starts waiting recalls on a drive: reserves room on disk, sets the files' stage to RESTORING, and sets the requests'
 * start times. Skips recalls that are no longer waiting or must not begin yet. If no restore disk has room for a file,
 * skips the file and records the reason.
 * @param what.stagedAt id of the staging library whose staged files are recalled, regardless of the files' volumes
 * @returns the started recalls, in the order of `fileIds`
 */
export async function startRecalls(
  ctx: Context,
  lease: Lease,
  { fileIds, measure, stagedAt }: { fileIds: readonly bigint[]; measure: MeasureDisks; stagedAt?: number | undefined },
): Promise<RunningRecall[]> {
  const seen = await measureDisks(ctx, measure); // measure the restore disks before locking any rows, because a slow disk must not prolong the locks
  const { started, queuedAt, idle } = await transaction(ctx.db.pool, 'startRecalls', async (begun) => {
    const tx = byKeys(begun);
    // lock only requests whose first recall has not begun, because other transactions might be ending recalls of the
    // other requests
    const requestIds = await lockUnstartedOf(tx, fileIds);
    await lockFiles(tx, sql`f.id = ANY(${fileIds}::bigint[])`);
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
      startable.filter(({ hasPosition }) => hasPosition),
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
  for (const at of queuedAt) recordWait(at, ctx.now());
  await dropIdle(ctx, idle);
  return started;
}

function recordWait(queuedAt: string, now: string): void {
  time('tapegate_recall_wait_seconds', {}, Math.max(0, secondsBetween(queuedAt, now)));
}

/**
 * Locks the drive's row, so that no other engine can claim the drive. The engine with the lease can still renew the
 * lease.
 * @returns undefined if the lease is lost
 */
async function lockDrive(tx: Transaction, lease: Lease): Promise<{ volumeId: number | null } | undefined> {
  const [held] = await tx.query<{ volumeId: number | null }>(
    sql`SELECT d.volume_id AS "volumeId" FROM drive d WHERE ${isHeldUnder(lease)} ${locking.driveKept}`,
  );
  return held;
}

/**
 * Updates recalls of files whose tape positions have changed. Without this update, drives would look for these files on
 * their earlier volumes.
 */
async function followFiles(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  await tx.query(
    sql`UPDATE recall c SET ${positionOfFile} FROM tape_file f
        WHERE c.file_id = ANY(${fileIds}::bigint[]) AND ${isWaiting} AND f.id = c.file_id AND ${hasStalePosition}`,
  );
}

interface Placed {
  recall: WaitingRecall;
  disk: DiskRow;
}

/**
 * Records that recalls have started.
 * @returns the restore paths that differ from the files' logical paths, by file id
 */
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
  return await chooseOtherPaths(
    tx,
    placed.map(({ recall }) => recall),
  );
}

function toRunning(
  { recall: { stage, volumeId, queuedAt, hasPosition, hasCopy, mayBegin, isStaged, ...recall }, disk }: Placed,
  places: ReadonlyMap<bigint, string>,
): RunningRecall {
  const path = places.get(recall.fileId) ?? recall.logicalPath;
  return { ...recall, path, diskId: disk.id, mountpoint: disk.mountpoint };
}

interface WaitingRecall extends Omit<RunningRecall, 'diskId' | 'mountpoint' | 'path'> {
  stage: Stage;
  volumeId: number | null;
  queuedAt: string;
  /** Whether the file's tape position is known, or the library can read the file without a position. */
  hasPosition: boolean;
  /** Whether a copy of the file from an earlier recall is still on disk. */
  hasCopy: boolean;
  mayBegin: boolean;
  isStaged: boolean;
}

/**
 * Locks the recalls that are still waiting. The caller must have locked the files.
 * @returns the recalls in the order of `fileIds`
 */
async function lockWaiting(
  ctx: Context,
  tx: Transaction,
  lease: Lease,
  { fileIds, stagedAt }: { fileIds: readonly bigint[]; stagedAt: number | undefined },
): Promise<WaitingRecall[]> {
  const isStaged = stagedAt === undefined ? sql`false` : isStagedAt(ctx.now(), stagedAt);
  const rows = await tx.query<WaitingRecall>(
    sql`SELECT c.file_id AS "fileId", f.path AS "logicalPath", ${pathOnTape} AS "tapePath", f.size, f.volume_id AS "volumeId", c.created_at AS "queuedAt", f.position, ${hasPosition} AS "hasPosition", f.checksum,
          f.checksum_taken AS "isChecksumTaken", f.adler32 IS NOT NULL AS "hasAdler32", c.attempts,
          c.earlier_tries AS "earlierTries", f.stage, f.mode, f.mtime, f.uid, f.gid,
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

function isOnItsWay(recall: WaitingRecall): boolean {
  return !isOnDisk(recall) && (recall.stage === 'RESTORING' || recall.hasCopy);
}

function toFileId({ fileId }: { fileId: bigint }): bigint {
  return fileId;
}

async function delayShortly(ctx: Context, tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  if (fileIds.length === 0) return;
  const notBefore = addSeconds(ctx.now(), 1);
  await tx.query(sql`UPDATE recall SET not_before = ${notBefore} WHERE file_id = ANY(${fileIds}::bigint[])`);
}

/**
 * Deletes recalls of files that are already on disk, and marks the request files ON_DISK. If a file's copy has changed,
 * the file's request files wait until an engine has checked the copy.
 */
async function dropIdle(ctx: Context, fileIds: readonly bigint[]): Promise<void> {
  if (fileIds.length === 0) return;
  await transaction(ctx.db.pool, 'dropIdle', async (tx) => {
    await lockRequestsAndFiles(tx, fileIds);
    const idle = await tx.query<{ fileId: bigint; isChanged: boolean }>(
      sql`DELETE FROM recall c USING tape_file f
          WHERE c.file_id = ANY(${fileIds}::bigint[]) AND ${isWaiting} AND f.id = c.file_id
            AND f.stage = ANY(${onDiskStages}::"Stage"[]) RETURNING c.file_id AS "fileId", ${isChanged} AS "isChanged"`,
    );
    const asRead = idle.filter((file) => !file.isChanged);
    await markRequestFiles(ctx, tx, asRead);
  });
}

async function dateRequests(
  ctx: Context,
  tx: Transaction,
  requestIds: readonly number[],
  started: readonly bigint[],
): Promise<void> {
  const fresh = await tx.query<{ id: number }>(
    sql`UPDATE request r SET tapestore_request_start = ${ctx.now()}::timestamp
     WHERE r.id = ANY(${requestIds}::int[]) AND r.tapestore_request_start IS NULL
       AND EXISTS (SELECT FROM live_request_file h WHERE h.request_id = r.id AND h.file_id = ANY(${started}::bigint[]))
     RETURNING id`,
  );
  const ids = fresh.map((request) => request.id);
  logStep(ctx, tx, 'started', ids);
  await advanceRequests(ctx, tx, ids);
}

interface WantedFile {
  fileId: bigint;
  logicalPath: string;
}

/**
 * Chooses restore paths for files whose logical paths are taken. A path is taken if another copy exists at the path, or
 * at a path that the disk's file system treats as equal. Chosen paths begin with a reserved name that no catalogue path
 * contains. The caller must have locked the files.
 * @returns the chosen paths, relative to the mount point, by file id
 */
export async function chooseOtherPaths(tx: Transaction, files: readonly WantedFile[]): Promise<Map<bigint, string>> {
  const [any] = await tx.query<{ isRenamed: boolean; isFolded: boolean }>(
    sql`SELECT EXISTS (SELECT FROM renamed_place) AS "isRenamed", EXISTS (SELECT FROM restore_disk WHERE folds_names) AS "isFolded"`,
  );
  if (files.length === 0) return new Map();
  const taken = any?.isRenamed ? await findTaken(tx, files) : new Set<bigint>();
  if (any?.isFolded) for (const id of await findFolded(tx, files)) taken.add(id);
  const others = files.filter(({ fileId }) => taken.has(fileId));
  if (others.length === 0) return new Map();
  const ids = others.map(({ fileId }) => fileId);
  // the directory `<file id>` might already contain a changed copy that Tapegate kept
  const kept = await findLastKept(tx, ids);
  const directoryOf = (id: bigint) => [id, ...(kept.get(id) ?? [])].join('-');
  const places = others.map((file) => `${RENAMED}/${directoryOf(file.fileId)}/${path.basename(file.logicalPath)}`);
  await tx.query(
    sql`UPDATE tape_file f SET disk_path = p.path, folded_path = NULL FROM unnest(${ids}::bigint[], ${places}::text[]) AS p (id, path) WHERE f.id = p.id`,
  );
  return new Map(others.map(({ fileId }, index) => [fileId, places[index] ?? '']));
}

async function findLastKept(tx: Transaction, fileIds: readonly bigint[]): Promise<Map<bigint, [bigint]>> {
  const rows = await tx.query<{ fileId: bigint; last: bigint }>(
    sql`SELECT file_id AS "fileId", max(id) AS last FROM kept_copy WHERE file_id = ANY(${fileIds}::bigint[]) GROUP BY file_id`,
  );
  return new Map(rows.map(({ fileId, last }) => [fileId, [last]]));
}

/**
 * Returns files whose paths conflict with another copy's path: the paths are equal, or one is a parent directory of the
 * other.
 */
async function findTaken(tx: Transaction, files: readonly WantedFile[]): Promise<Set<bigint>> {
  const around = files.flatMap(({ fileId, logicalPath }) =>
    [logicalPath, ...directoriesAround(logicalPath)].map((name) => ({ fileId, name })),
  );
  const [ids, names] = [around.map(({ fileId }) => fileId), around.map(({ name }) => name)];
  const rows = await tx.query<{ id: bigint }>(
    sql`SELECT w.id FROM unnest(${ids}::bigint[], ${names}::text[]) AS w (id, name)
          WHERE EXISTS (SELECT FROM renamed_place p WHERE p.path = w.name AND p.file_id IS DISTINCT FROM w.id)
        UNION SELECT f.id FROM unnest(${files.map(({ fileId }) => fileId)}::bigint[]) AS w (id) JOIN tape_file f ON f.id = w.id
          WHERE EXISTS (SELECT FROM renamed_place p WHERE p.path ~>=~ (f.path || '/') AND p.path ~<~ (f.path || '0') AND p.file_id IS DISTINCT FROM f.id)`,
  );
  return new Set(rows.map(({ id }) => id));
}

/**
 * Returns files whose paths might equal another file's path on a file system that ignores case or Unicode
 * normalisation. Checks only files on disks with such a file system (column `folds_names`). Compares folded paths
 * (`foldedPath` in domain/conditions.ts), and records them for later comparisons. The caller must have locked the
 * disks.
 */
async function findFolded(tx: Transaction, files: readonly WantedFile[]): Promise<bigint[]> {
  const wanted = await tx.query<{ id: bigint; name: string }>(
    sql`UPDATE tape_file f SET folded_path = ${foldedPath(sql`f.path`)} FROM recall c JOIN restore_disk k ON k.id = c.disk_id AND k.folds_names
        WHERE c.file_id = ANY(${files.map(({ fileId }) => fileId)}::bigint[]) AND f.id = c.file_id
        RETURNING f.id, f.folded_path AS name`,
  );
  const [ids, names] = [wanted.map(({ id }) => id), wanted.map(({ name }) => name)];
  const rows = await tx.query<{ id: bigint }>(
    sql`SELECT w.id FROM unnest(${ids}::bigint[], ${names}::text[]) AS w (id, name)
        WHERE EXISTS (SELECT FROM tape_file f WHERE f.folded_path = w.name AND f.id <> w.id)`,
  );
  return rows.map(({ id }) => id);
}

function directoriesAround(file: string): string[] {
  const directories: string[] = [];
  for (let directory = path.dirname(file); directory !== '/'; directory = path.dirname(directory))
    directories.push(directory);
  return directories;
}
