/**
 * Files leave the restore area when nobody holds them any more.
 *
 * First the file moves to ONTAPE while its copy is still noted (`disk_id`), then the copy is removed, then the note.
 * A process killed anywhere leaves a note, and the next one removes the copy; until then no recall of the file starts.
 *
 * Nothing is locked while a disk is looked at or written to, which may take as long as it likes. Whoever removes a copy claims
 * it for a while, so that others turn to other copies; only that. What keeps a copy of later from being taken for this one is
 * that it is recognised first, then the database is asked whether it is still to go, and then exactly what was recognised
 * is taken away. The note goes only where nothing was written of the file since it was read.
 */

import type { Context } from '../../context.js';
import { lockFiles, locking, lockRequests } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { addSeconds } from '../../time.js';
import { moveFiles } from '../catalogue/moves.js';
import { isHeldByKeys, isLive, isOrphan, isUnheld } from '../conditions.js';
import { isLinked } from '../links/links.js';
import { lockHolders, lockRequestsOf, settleRequests } from '../requests/holds.js';
import { CHANGED_BY_HAND, copyColumns, isAsRead, type NotedCopy } from './copies.js';
import { ringRoom } from './disks.js';
import { isOnFailingDisk } from './failing.js';
import { takesAgain } from './full.js';

/** A restored file that is to go; the disk is null where the catalogue only says that there is a copy somewhere. */
export type UnheldCopy = Omit<NotedCopy, 'diskId' | 'mountpoint'> & {
  diskId: number | null;
  mountpoint: string | null;
};

/** A request whose files that were let go have not all left: it has ended, or some of its files were released before its end. */
export interface UnclearedRequest {
  id: number;
  /** Another one whenever something was written of the request. */
  version: string;
}

/** In order of their ids. */
export async function listUncleared(ctx: Context, page: { after: number; limit: number }): Promise<UnclearedRequest[]> {
  const { rows } = await ctx.db.pool.query<UnclearedRequest>(
    sql`SELECT id, xmin::text AS version FROM request WHERE NOT is_released AND id > ${page.after} ORDER BY id LIMIT ${page.limit}`,
  );
  return rows;
}

/** The file `f` of a hold `o`, file by file. */
const fileOfHold = (stages: Sql) => sql`CROSS JOIN LATERAL (
  SELECT f.*, f.xmin FROM tape_file f WHERE f.id = o.file_id AND f.stage IN (${stages}) OFFSET 0) f`;

/** A file `f` that the request `r` let go (hold `o`), and that nobody holds. The first part spares a look at the others. */
const isLeft = sql`(o.state = 'RELEASED' OR NOT (${isLive})) AND NOT ${isHeldByKeys(sql`f.id`)}`;

/**
 * Looks through the next `limit` files that a request let go, in order of their ordinals, for restored ones that nobody holds; those
 * on a failing disk wait for it. Of one that lives on, what it still holds is only passed by: a copy that cannot be removed has it looked
 * through every second.
 * @returns the copies, and the last ordinal; undefined where no files are left
 */
export async function readUnheld(
  ctx: Context,
  page: { requestId: number; after: number; limit: number },
): Promise<{ copies: UnheldCopy[]; last: number | undefined }> {
  const { rows } = await ctx.db.pool.query<{ seen: number; last: number } & (UnheldCopy | { fileId: null })>(
    sql`WITH page AS MATERIALIZED (
          SELECT o.ordinal, o.file_id, o.state FROM any_hold o
          WHERE o.request_id = ${page.requestId} AND o.ordinal > ${page.after} AND o.last_ordinal > ${page.after}
            AND (o.state = 'RELEASED' OR (SELECT NOT (${isLive}) FROM request r WHERE r.id = ${page.requestId}))
          ORDER BY o.ordinal LIMIT ${page.limit}
        )
        SELECT p.*, c.* FROM (SELECT count(*)::int AS seen, max(ordinal) AS last FROM page) p LEFT JOIN (
          SELECT ${copyColumns} FROM page o JOIN request r ON r.id = ${page.requestId} ${fileOfHold(sql`'RESTORED'`)}
            LEFT JOIN restore_disk k ON k.id = f.disk_id
          WHERE ${isLeft} AND NOT ${isOnFailingDisk} ORDER BY o.ordinal
        ) c ON true`,
  );
  const copies = rows.filter((row): row is { seen: number; last: number } & UnheldCopy => row.fileId !== null);
  const [first] = rows;
  return { copies, last: first && first.seen === page.limit ? first.last : undefined };
}

/**
 * The request needs no more looking after, unless there is again, or still, something to let go: it was revived and
 * ended once more, more of its files were released, or a file that nobody holds is just being brought back.
 * @returns whether it is so
 */
export async function markCleared(ctx: Context, requestId: number): Promise<boolean> {
  return await transaction(ctx.db.pool, 'markCleared', async (tx) => {
    // locked first and judged in a second statement, which sees what whoever had it locked before has let go
    await lockRequests(tx, sql`r.id = ${requestId}`);
    const cleared = await tx.query(
      sql`UPDATE request r SET is_released = true WHERE r.id = ${requestId} AND NOT EXISTS (
            SELECT FROM any_hold o ${fileOfHold(sql`'RESTORED', 'RESTORING'`)}
            WHERE o.request_id = ${requestId} AND ${isLeft}) RETURNING r.id`,
    );
    return cleared.length > 0;
  });
}

/** Nobody holds the file `f`, and no request is left that would have it looked after. */
export const isUnheldForGood = sql`(${isUnheld} AND f.id NOT IN (SELECT o.file_id FROM request r CROSS JOIN LATERAL (
  SELECT h.file_id FROM any_hold h WHERE h.request_id = r.id OFFSET 0) o WHERE NOT r.is_released))`;

/** A copy that was looked at, as it was read before. */
type SeenCopy = Pick<NotedCopy, 'fileId' | 'version'>;

/**
 * Lets restored files go that nobody holds. One that was changed by hand is left alone: it becomes UNVERIFIED and its
 * room on the restore disk is no longer counted.
 * @returns the ids of the files that were let go; of the others something else was written since they were read
 */
export async function letGo(
  ctx: Context,
  copies: { unchanged: readonly SeenCopy[]; changed: readonly SeenCopy[] },
): Promise<bigint[]> {
  const all = [...copies.unchanged, ...copies.changed];
  return await transaction(ctx.db.pool, 'letGo', async (tx) => {
    // locked first and judged in a second statement, which sees the holds of requests that looked at the files before
    await lockFiles(
      tx,
      all.map(({ fileId }) => fileId),
    );
    const rows = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE ${isAsRead(all)} AND f.stage = 'RESTORED' AND ${isUnheld}`,
    );
    const unheld = new Set(rows.map((row) => row.id));
    const pick = (seen: readonly SeenCopy[]) => seen.map(({ fileId }) => fileId).filter((id) => unheld.has(id));
    const unchanged = await moveFiles(ctx, tx, pick(copies.unchanged), { from: 'RESTORED', to: 'ONTAPE' });
    const changed = await moveFiles(ctx, tx, pick(copies.changed), { from: 'RESTORED', to: 'UNVERIFIED' });
    await noteChanged(tx, changed);
    await forgetCopies(tx, changed);
    await keepUnverified(ctx, tx, changed, CHANGED_BY_HAND);
    return [...unchanged, ...changed];
  });
}

/** Before the copies are forgotten: what stands there now stands for the files, as long as it is there. */
async function noteChanged(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  await tx.query(sql`UPDATE tape_file f SET changed_disk_id = f.disk_id WHERE f.id = ANY(${fileIds}::bigint[])`);
}

/**
 * What was changed by hand is another file than the one on tape: no reading of the tape copy confirms it. The files are locked.
 * @param why for people
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

/** A copy that somebody removes is left to them for so long; they may have been killed. */
const CLAIM_SECONDS = 10;

/**
 * Claims the next copies that are to go, for whoever removes them.
 * @returns the copies; how many were looked at, and the last file among them: others may have claimed some at the same time
 */
export async function claimLeaving(
  ctx: Context,
  page: { after: bigint; limit: number },
): Promise<{ copies: NotedCopy[]; seen: number; last: bigint | undefined }> {
  const now = ctx.now();
  const { rows } = await ctx.db.pool.query<NotedCopy & { isClaimed: boolean }>(
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

/** Somebody removes the copy of the file `f` just now. */
export function isBeingRemoved(now: string): Sql {
  return sql`EXISTS (SELECT FROM removal m WHERE m.file_id = f.id AND m.claimed_until > ${now}::timestamp)`;
}

/** Of copies that were recognised on disk, those that are still to go: the ids of their files. */
export async function findLeaving(ctx: Context, copies: readonly NotedCopy[]): Promise<Set<bigint>> {
  const { rows } = await ctx.db.pool.query<{ id: bigint }>(
    sql`SELECT f.id FROM tape_file f WHERE ${isAsRead(copies)} AND f.disk_id IS NOT NULL AND f.stage <> 'RESTORED'`,
  );
  return new Set(rows.map((row) => row.id));
}

/**
 * Forgets copies that are to go and have gone, as far as nothing else was written of their files since they were read, and
 * gives back the claims of all. Calling twice is safe.
 * @param copies `changed`: were changed by hand since their files were let go, and are left alone: such a file is UNVERIFIED, as
 *   it would be had it been changed before, unless the copy is of another version than the file
 * @returns the ids of the files of which they were forgotten, and of which nothing is there
 */
export async function forgetGone(
  ctx: Context,
  {
    gone,
    changed = [],
    claimed,
  }: { gone: readonly NotedCopy[]; changed?: readonly NotedCopy[]; claimed: readonly NotedCopy[] },
): Promise<bigint[]> {
  const over = [...gone, ...changed];
  const ids = over.map((copy) => copy.fileId);
  return await transaction(ctx.db.pool, 'forgetGone', async (tx) => {
    // what somebody else has locked, for as long as an import may take, is left to a later pass
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
    await forgetCopies(tx, forgotten);
    await ringRoom(tx);
    return forgotten.filter((id) => !changedIds.includes(id));
  });
}

/** The files are locked, and their copies still noted. */
async function keepChanged(ctx: Context, tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  if (fileIds.length === 0) return;
  const rows = await tx.query<{ id: bigint }>(
    sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${fileIds}::bigint[]) AND f.disk_checksum = f.checksum`,
  );
  const same = rows.map((row) => row.id);
  const kept = await moveFiles(ctx, tx, same, { from: 'ONTAPE', to: 'UNVERIFIED' });
  await noteChanged(tx, kept);
  await keepUnverified(ctx, tx, kept, CHANGED_BY_HAND);
}

/** The files are locked, and not RESTORED any more. */
export async function forgetCopies(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
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
 * Files that are said to be on their way although no recall runs, after an import for instance, go back to ONTAPE, and
 * are recalled for the requests that wait for them.
 * @returns how many
 */
export async function returnOrphans(ctx: Context): Promise<number> {
  return await transaction(ctx.db.pool, 'returnOrphans', async (tx) => {
    const found = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE ${isOrphan} ORDER BY f.id LIMIT 1000`,
    );
    if (found.length === 0) return 0;
    const fileIds = found.map((file) => file.id);
    await lockHolders(tx, fileIds);
    const orphans = await tx.query<{ id: bigint }>(
      sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${fileIds}::bigint[]) AND ${isOrphan}`,
    );
    const orphanIds = orphans.map((file) => file.id);
    const moved = await moveFiles(ctx, tx, orphanIds, { from: 'RESTORING', to: 'ONTAPE' });
    await settleRequests(ctx, tx, await lockRequestsOf(tx, moved)); // some of those that are locked
    return moved.length;
  });
}
