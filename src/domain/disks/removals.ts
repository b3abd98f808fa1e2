/**
 * Removes copies from the restore area when no live request needs them any more. A removal has three steps:
 * - The file moves to the stage ONTAPE, while its row still records the copy (`disk_id`).
 * - An engine removes the copy from the disk.
 * - The engine deletes the record of the copy, unless the file's row has changed since the engine read the record.
 *
 * If an engine crashes while it removes a copy, another engine finds the record and removes the copy. The file cannot
 * be recalled until the copy's record is deleted.
 *
 * An engine does not lock rows while it accesses a disk. An engine's claim on a copy only prevents other engines from
 * choosing the same copy.
 *
 * An engine examines a copy on disk, then checks the copy in the database, and then removes exactly the examined copy.
 * Therefore, an engine never removes a copy that another process has restored after the examination.
 */

import { addSeconds } from '../../core/time.js';
import { lockFiles, locking, lockRequests } from '../../db/locks.js';
import { empty, type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import { moveFiles } from '../catalogue/moves.js';
import { deleteVerifications } from '../catalogue/verifications.js';
import { diskPath, isChanged, isLive, isOrphan, isRequestedByKeys, isUnrequested } from '../conditions.js';
import type { Context } from '../context.js';
import { takesAgain } from '../health/circuits.js';
import { isOnFailingDisk } from '../health/failing-disks.js';
import { isLinked } from '../links/links.js';
import {
  lockRequestsAndFiles,
  lockRequestsOf,
  markOnDisk,
  settleRequests,
  waitAgain,
} from '../requests/request-files.js';
import { CHANGED_BY_HAND, copyColumns, isAsRead, NOT_OURS, type RecordedCopy } from './disk-copies.js';
import { notifyRoom } from './disks.js';

export interface UnclearedRequest {
  id: number;
  version: string;
}

export async function listUncleared(ctx: Context, page: { after: number; limit: number }): Promise<UnclearedRequest[]> {
  return await ctx.db.rows<UnclearedRequest>(
    sql`SELECT id, xmin::text AS version FROM request WHERE NOT is_released AND id > ${page.after} ORDER BY id LIMIT ${page.limit}`,
  );
}

const inRequestFile = (stages: Sql) => sql`CROSS JOIN LATERAL (
  SELECT f.*, f.xmin FROM tape_file f WHERE f.id = o.file_id AND f.stage IN (${stages}) OFFSET 0) f`;

/**
 * SQL condition that is true if no live request contains the file `f`, and the request file `o` is released or its
 * request `r` has ended. The condition checks the request file first, because looking up live requests takes longer.
 */
const isLeft = sql`(o.state = 'RELEASED' OR NOT (${isLive})) AND NOT ${isRequestedByKeys(sql`f.id`)}`;

/**
 * Reads the next `limit` released files of a request, and selects those that are RESTORED and not in a live request.
 * @returns `last`: the ordinal of the last file read; undefined if no files follow
 */
export async function readUnheld(
  ctx: Context,
  page: { requestId: number; after: number; limit: number },
): Promise<{ copies: RecordedCopy[]; last: number | undefined }> {
  const rows = await ctx.db.rows<{ seen: number; last: number } & (RecordedCopy | { fileId: null })>(
    sql`WITH page AS MATERIALIZED (
          SELECT o.ordinal, o.file_id, o.state FROM request_file o
          WHERE o.request_id = ${page.requestId} AND o.ordinal > 0 AND o.ordinal > ${page.after}
            AND (o.state = 'RELEASED' OR (SELECT NOT (${isLive}) FROM request r WHERE r.id = ${page.requestId}))
          ORDER BY o.ordinal LIMIT ${page.limit}
        )
        SELECT p.*, c.* FROM (SELECT count(*)::int AS seen, max(ordinal) AS last FROM page) p LEFT JOIN (
          SELECT ${copyColumns} FROM page o JOIN request r ON r.id = ${page.requestId} ${inRequestFile(sql`'RESTORED'`)}
            JOIN restore_disk k ON k.id = f.disk_id
          WHERE ${isLeft} AND NOT ${isOnFailingDisk} ORDER BY o.ordinal
        ) c ON true`,
  );
  const copies = rows.filter((row): row is { seen: number; last: number } & RecordedCopy => row.fileId !== null);
  const [first] = rows;
  return { copies, last: first && first.seen === page.limit ? first.last : undefined };
}

const MARKED = 10_000;

/**
 * Checks whether all of a request's released files have left the restore area, and if so, records this in the request.
 * If the request has ended, also sets `is_ended` in its request files, so that lookups of live requests skip these
 * rows.
 */
export async function markCleared(ctx: Context, requestId: number): Promise<boolean> {
  await markEnded(ctx, requestId);
  return await transaction(ctx.db.pool, 'markCleared', async (tx) => {
    // lock the request in a separate statement, so that the next statement sees files that other transactions released
    // while this transaction waited for the lock
    await lockRequests(tx, sql`r.id = ${requestId}`);
    const cleared = await tx.query(
      sql`UPDATE request r SET is_released = true WHERE r.id = ${requestId} AND NOT EXISTS (
            SELECT FROM request_file o ${inRequestFile(sql`'RESTORED', 'RESTORING'`)}
            WHERE o.request_id = ${requestId} AND ${isLeft}
          ) AND ((${isLive}) OR NOT EXISTS (
            SELECT FROM request_file h WHERE h.request_id = ${requestId} AND h.ordinal > 0 AND NOT h.is_ended)) RETURNING r.id`,
    );
    return cleared.length > 0;
  });
}

/**
 * Sets `is_ended` in the request files of an ended request, in several transactions. If the process is killed, a later
 * call sets the remaining rows.
 */
async function markEnded(ctx: Context, requestId: number): Promise<void> {
  const rows = await ctx.db.rows<{ last: number | null }>(
    sql`SELECT max(ordinal) AS last FROM request_file WHERE request_id = ${requestId} AND ordinal > 0`,
  );
  const last = rows[0]?.last ?? 0;
  let isOver = true;
  for (let after = 0; isOver && after < last; after += MARKED) {
    isOver = await transaction(ctx.db.pool, 'markEnded', async (tx) => {
      const ended = await lockRequests(tx, sql`r.id = ${requestId} AND NOT (${isLive})`);
      tx.send(
        sql`UPDATE request_file SET is_ended = true WHERE request_id = ANY(${ended}::int[])
              AND ordinal > 0 AND ordinal > ${after} AND ordinal <= ${after + MARKED} AND NOT is_ended`,
      );
      return ended.length > 0;
    });
  }
}

/**
 * SQL condition that is true if the file `f` is not in a live request, nor in a request whose releases are still being
 * processed.
 */
export const isUnrequestedForGood = sql`(${isUnrequested} AND f.id NOT IN (SELECT o.file_id FROM request r CROSS JOIN LATERAL (
  SELECT h.file_id FROM request_file h WHERE h.request_id = r.id OFFSET 0) o WHERE NOT r.is_released))`;

type SeenCopy = Pick<RecordedCopy, 'fileId' | 'version'>;

/**
 * If no live request contains a RESTORED file, moves the file to the stage ONTAPE. If the file's copy was changed,
 * moves the file to UNVERIFIED instead. A changed copy stays on disk, and no longer counts towards the disk's used
 * bytes.
 */
export async function releaseCopies(
  ctx: Context,
  copies: { unchanged: readonly SeenCopy[]; changed: readonly SeenCopy[] },
): Promise<bigint[]> {
  const all = [...copies.unchanged, ...copies.changed];
  return await transaction(ctx.db.pool, 'releaseCopies', async (tx) => {
    // lock the files in a separate statement, so that the next statement sees request files that other transactions
    // added during the wait for the locks
    await lockFiles(tx, sql`f.id = ANY(${all.map(({ fileId }) => fileId)}::bigint[])`);
    const rows = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE ${isAsRead(all)} AND f.stage = 'RESTORED' AND ${isUnrequested}`,
    );
    const unheld = new Set(rows.map((row) => row.id));
    const pick = (seen: readonly SeenCopy[]) => seen.map(({ fileId }) => fileId).filter((id) => unheld.has(id));
    const unchanged = await moveFiles(ctx, tx, pick(copies.unchanged), { from: 'RESTORED', to: 'ONTAPE' });
    const changed = await moveFiles(ctx, tx, pick(copies.changed), { from: 'RESTORED', to: 'UNVERIFIED' });
    await recordChanged(tx, changed);
    await clearCopies(tx, changed);
    await keepUnverified(ctx, tx, changed, CHANGED_BY_HAND);
    return [...unchanged, ...changed];
  });
}

async function recordChanged(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  await tx.query(sql`UPDATE tape_file f SET changed_disk_id = f.disk_id WHERE f.id = ANY(${fileIds}::bigint[])`);
}

/**
 * Records why files are UNVERIFIED. Tapegate does not verify the tape copy of a file with a recorded reason, so the
 * file does not become ONDISK. The caller must have locked the files.
 */
export async function keepUnverified(
  ctx: Context,
  tx: Transaction,
  fileIds: readonly bigint[],
  why: string,
): Promise<void> {
  await tx.query(
    sql`INSERT INTO verification (file_id, attempts, error_class, error, at)
     SELECT id, 0, 'POLICY', ${why}, ${ctx.now()}
     FROM unnest(${fileIds}::bigint[]) AS c (id)
     ON CONFLICT (file_id) DO UPDATE SET error_class = excluded.error_class, error = excluded.error, at = excluded.at,
       not_before = NULL`,
  );
}

const CLAIM_SECONDS = 10;

/** Claims the next copies that this engine will remove from disk. Other engines then choose other copies. */
export async function claimLeaving(
  ctx: Context,
  page: { after: bigint; limit: number },
): Promise<{ copies: RecordedCopy[]; seen: number; last: bigint | undefined }> {
  const now = ctx.now();
  const rows = await ctx.db.rows<RecordedCopy & { isClaimed: boolean }>(
    sql`WITH due AS (
          SELECT f.id FROM tape_file f JOIN restore_disk k ON k.id = f.disk_id
          WHERE f.stage <> 'RESTORED' AND f.id > ${page.after} AND NOT ${isOnFailingDisk} AND NOT ${isBeingRemoved(now)}
            AND NOT ${isLinked}
          ORDER BY f.id LIMIT ${page.limit}
        ), claimed AS (
          INSERT INTO removal (file_id, claimed_until)
          SELECT id, ${addSeconds(now, CLAIM_SECONDS)}::timestamp FROM due ORDER BY id
          ON CONFLICT (file_id) DO UPDATE SET claimed_until = excluded.claimed_until
            WHERE removal.claimed_until <= ${now}::timestamp RETURNING file_id
        )
        SELECT ${copyColumns}, l.file_id IS NOT NULL AS "isClaimed"
        FROM due JOIN tape_file f ON f.id = due.id JOIN restore_disk k ON k.id = f.disk_id
          LEFT JOIN claimed l ON l.file_id = f.id ORDER BY f.id`,
  );
  const copies = rows.filter((row) => row.isClaimed);
  return { copies, seen: rows.length, last: rows.at(-1)?.fileId };
}

function isBeingRemoved(now: string): Sql {
  return sql`EXISTS (SELECT FROM removal m WHERE m.file_id = f.id AND m.claimed_until > ${now}::timestamp)`;
}

export async function findLeaving(ctx: Context, copies: readonly RecordedCopy[]): Promise<Set<bigint>> {
  const rows = await ctx.db.rows<{ id: bigint }>(
    sql`SELECT f.id FROM tape_file f WHERE ${isAsRead(copies)} AND f.disk_id IS NOT NULL AND f.stage <> 'RESTORED'`,
  );
  return new Set(rows.map((row) => row.id));
}

/**
 * Releases the claims on removed copies. Also deletes the records of the removed copies. Keeps a record if the file's
 * row has changed since the copy was read. Repeating a call is safe.
 * @param copies `gone`: removed copies; `changed`: copies that were changed outside Tapegate, and stay on disk
 */
export async function deleteRemovedCopies(
  ctx: Context,
  { gone, changed, claimed }: Record<'gone' | 'changed' | 'claimed', readonly RecordedCopy[]>,
): Promise<bigint[]> {
  const over = [...gone, ...changed];
  const ids = over.map((copy) => copy.fileId);
  return await transaction(ctx.db.pool, 'deleteRemovedCopies', async (tx) => {
    // skip files that are locked by another transaction, such as a long import; a later run processes the skipped files
    const free = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${ids}::bigint[]) ORDER BY f.id ${locking.freeFile}`,
    );
    const rows = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${free.map((file) => file.id)}::bigint[]) AND ${isAsRead(over)}
            AND f.stage <> 'RESTORED'`,
    );
    const forgotten = rows.map((row) => row.id);
    await tx.query(sql`DELETE FROM removal WHERE file_id = ANY(${claimed.map((copy) => copy.fileId)}::bigint[])`);
    if (forgotten.length === 0) return [];
    const changedIds = changed.map((copy) => copy.fileId).filter((id) => forgotten.includes(id));
    await keepChanged(ctx, tx, changedIds);
    await clearCopies(tx, forgotten);
    await notifyRoom(tx);
    return forgotten.filter((id) => !changedIds.includes(id));
  });
}

/**
 * Moves a file with a changed copy to the stage UNVERIFIED, unless the copy was restored from another version of the
 * file. The caller must have locked the files.
 */
async function keepChanged(ctx: Context, tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  if (fileIds.length === 0) return;
  const rows = await tx.query<{ id: bigint }>(
    sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${fileIds}::bigint[]) AND f.disk_checksum = f.checksum`,
  );
  const same = rows.map((row) => row.id);
  const kept = await moveFiles(ctx, tx, same, { from: 'ONTAPE', to: 'UNVERIFIED' });
  await recordChanged(tx, kept);
  await keepUnverified(ctx, tx, kept, CHANGED_BY_HAND);
}

/**
 * Deletes the records of copies, and subtracts their sizes from their disks' used bytes. The caller must have locked
 * the files, and moved them out of the stage RESTORED.
 */
export async function clearCopies(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  await tx.query(
    sql`WITH copy AS (
          SELECT f.id, f.disk_id, f.size FROM tape_file f
          WHERE f.id = ANY(${fileIds}::bigint[]) AND f.disk_id IS NOT NULL AND f.stage <> 'RESTORED'
        ), forgotten AS (
          UPDATE tape_file f SET disk_id = NULL, disk_ino = NULL, disk_mtime_ns = NULL, disk_ctime_ns = NULL,
            disk_checksum = NULL FROM copy WHERE f.id = copy.id
        ), given_back AS (
          DELETE FROM removal m USING copy WHERE m.file_id = copy.id
        ), locked AS (
          SELECT k.id FROM restore_disk k WHERE k.id IN (SELECT disk_id FROM copy) ORDER BY k.id ${locking.disk}
        )
        UPDATE restore_disk k SET used = k.used - s.bytes, ${takesAgain}
        FROM (SELECT disk_id, sum(size) AS bytes FROM copy GROUP BY disk_id) s, locked l
        WHERE k.id = s.disk_id AND l.id = k.id`,
  );
}

/**
 * Finds files in the stage RESTORING that have no running recall. Moves these files back to the stage ONTAPE, and
 * queues recalls for waiting requests.
 */
export async function returnOrphans(ctx: Context): Promise<number> {
  return await transaction(ctx.db.pool, 'returnOrphans', async (tx) => {
    const found = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE ${isOrphan} ORDER BY f.id LIMIT 1000`,
    );
    if (found.length === 0) return 0;
    const fileIds = found.map((file) => file.id);
    await lockRequestsAndFiles(tx, fileIds);
    const orphans = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${fileIds}::bigint[]) AND ${isOrphan}`,
    );
    const orphanIds = orphans.map((file) => file.id);
    const moved = await moveFiles(ctx, tx, orphanIds, { from: 'RESTORING', to: 'ONTAPE' });
    await settleRequests(ctx, tx, await lockRequestsOf(tx, moved));
    return moved.length;
  });
}

export interface ChangedCopy {
  fileId: bigint;
  path: string;
  diskId: number;
  mountpoint: string;
}

/**
 * A copy that was changed outside Tapegate, or another file at the copy's path with the same bytes as the file on tape.
 */
export interface ExaminedCopy extends ChangedCopy, Pick<RecordedCopy, 'size' | 'mtimeNs' | 'ctimeNs' | 'copyChecksum'> {
  /**
   * Whether another program wrote the file at the copy's path. When Tapegate found the foreign file, it had the same
   * bytes as the file on tape. A later change of its mtime or ctime means that its bytes might have changed.
   */
  isForeign: boolean;
}

const isForeign = sql`EXISTS (SELECT FROM verification w WHERE w.file_id = f.id AND w.error = ${NOT_OURS})`;

/** Reads a page of copies that were changed outside Tapegate, ordered by file id. */
export async function readChanged(
  ctx: Context,
  page: { isWanted: boolean; after: bigint; limit: number },
): Promise<ExaminedCopy[]> {
  const wanted = page.isWanted
    ? sql`AND EXISTS (SELECT FROM live_request_file h WHERE h.file_id = f.id AND h.state = 'WAITING')`
    : empty;
  return await ctx.db.rows<ExaminedCopy>(
    sql`SELECT f.id AS "fileId", ${diskPath} AS path, k.id AS "diskId", k.mountpoint, f.size, f.disk_mtime_ns AS "mtimeNs",
          f.disk_ctime_ns AS "ctimeNs", coalesce(f.disk_checksum, f.checksum) AS "copyChecksum", ${isForeign} AS "isForeign"
        FROM tape_file f JOIN restore_disk k ON k.id = f.changed_disk_id
        WHERE f.changed_disk_id IS NOT NULL AND ${isChanged} AND f.id > ${page.after} ${wanted}
          AND NOT EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id)
        ORDER BY f.id LIMIT ${page.limit}`,
  );
}

/**
 * Records the results of checking changed copies. Repeating a call is safe.
 * @param looked ids of the checked files. `existing`: the file at the copy's path has the same bytes as the file on
 *   tape, and satisfies waiting requests. `changed`: the changed copy stays on disk, and the file is recalled to
 *   another path. `gone`: the copy no longer exists, and the file is recalled.
 */
export async function settleChanged(
  ctx: Context,
  looked: { existing?: readonly bigint[]; changed?: readonly bigint[]; gone: readonly bigint[] },
): Promise<bigint[]> {
  const { existing = [], changed = [], gone } = looked;
  const all = [...existing, ...changed, ...gone];
  if (all.length === 0) return [];
  return await transaction(ctx.db.pool, 'settleChanged', async (tx) => {
    await lockRequestsAndFiles(tx, all);
    const rows = await tx.query<{ id: bigint; isForeign: boolean }>(
      sql`SELECT f.id, ${isForeign} AS "isForeign" FROM tape_file f WHERE f.id = ANY(${all}::bigint[]) AND ${isChanged}`,
    );
    const now = new Map(rows.map((row) => [row.id, row.isForeign]));
    const served = existing.filter((id) => now.get(id) === true);
    await markOnDisk(ctx, tx, served);
    const kept = changed.filter((id) => now.has(id));
    await tx.query(
      sql`INSERT INTO kept_copy (file_id, disk_id, path) SELECT f.id, f.changed_disk_id, ${diskPath} FROM tape_file f
          WHERE f.id = ANY(${kept}::bigint[]) ON CONFLICT (path, disk_id) DO NOTHING`,
    );
    const moved = await moveFiles(ctx, tx, [...kept, ...gone.filter((id) => now.has(id))], {
      from: 'UNVERIFIED',
      to: 'ONTAPE',
    });
    await deleteVerifications(tx, moved);
    const requestIds = await lockRequestsOf(tx, moved);
    await waitAgain(tx, requestIds, moved);
    await settleRequests(ctx, tx, requestIds);
    return moved;
  });
}

export interface KeptCopy extends ChangedCopy {
  id: bigint;
}

/** Reads changed copies that stayed on disk when their files were restored to other paths. */
export async function readKeptCopies(ctx: Context, page: { after: bigint; limit: number }): Promise<KeptCopy[]> {
  return await ctx.db.rows<KeptCopy>(
    sql`SELECT c.id, c.file_id AS "fileId", c.path, k.id AS "diskId", k.mountpoint FROM kept_copy c JOIN restore_disk k ON k.id = c.disk_id
        WHERE c.id > ${page.after} AND NOT EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) ORDER BY c.id LIMIT ${page.limit}`,
  );
}

/** Deletes the records of changed copies that no longer exist on disk, so that files can be restored to their paths. */
export async function freeKeptPaths(ctx: Context, gone: readonly KeptCopy[]): Promise<void> {
  if (gone.length === 0) return;
  await ctx.db.pool.query(sql`DELETE FROM kept_copy WHERE id = ANY(${gone.map(({ id }) => id)}::bigint[])`);
}

/** Returns those `paths` at which the disk contains a changed copy, which Tapegate must not replace. */
export async function findKept(ctx: Context, diskId: number, paths: readonly string[]): Promise<Set<string>> {
  const rows = await ctx.db.rows<{ path: string }>(
    sql`SELECT path FROM kept_copy WHERE disk_id = ${diskId} AND path = ANY(${paths}::text[])`,
  );
  return new Set(rows.map(({ path }) => path));
}
