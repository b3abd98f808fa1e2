/**
 * Files leave the restore area when nobody holds them any more.
 *
 * First the file moves to ONTAPE while its copy is still noted (`disk_id`), then the copy is removed, then the note.
 * A process killed anywhere leaves a note, and the next one removes the copy; until then no recall of the file starts.
 */
import type { Context } from '../../context.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { moveFiles } from '../../stages.js';
import { IS_LIVE, IS_UNHELD } from '../conditions.js';
import { lockRequestsOf, settleRequests } from '../requests/holds.js';

/** A copy in the restore area. */
export interface Copy {
  fileId: bigint;
  path: string;
  size: bigint;
  /** Null where the catalogue only says that there is a copy somewhere. */
  diskId: number | null;
  mountpoint: string | null;
  /** Modification time it was left with, in nanoseconds. */
  mtimeNs: bigint | null;
}

const COPY = `f.id AS "fileId", f.path, f.size, d.id AS "diskId", d.mountpoint, f.disk_mtime_ns AS "mtimeNs"`;

/**
 * The next request after an id whose files that were let go have not been looked at yet: it has ended, or some of its
 * files were released before its end.
 */
export async function findUnreleased(ctx: Context, after: number): Promise<number | undefined> {
  const { rows } = await ctx.db.pool.query<{ id: number }>(
    'SELECT id FROM request WHERE NOT is_released AND id > $1 ORDER BY id LIMIT 1',
    [after],
  );
  return rows[0]?.id;
}

/** A file `f` that the request `r` let go (hold `o`), and that nobody holds. The first part spares a look at the others. */
const IS_LEFT = `(o.state = 'RELEASED' OR NOT (${IS_LIVE})) AND ${IS_UNHELD}`;

/** Restored files that a request let go and nobody holds, in order of their ids. */
export async function readUnheld(
  ctx: Context,
  page: { requestId: number; after: bigint; limit: number },
): Promise<Copy[]> {
  const { rows } = await ctx.db.pool.query<Copy>(
    `SELECT ${COPY} FROM hold o JOIN request r ON r.id = o.request_id JOIN tape_file f ON f.id = o.file_id
       LEFT JOIN restore_disk d ON d.id = f.disk_id
     WHERE o.request_id = $1 AND f.id > $2 AND f.stage = 'RESTORED' AND ${IS_LEFT} ORDER BY f.id LIMIT $3`,
    [page.requestId, page.after, page.limit],
  );
  return rows;
}

/**
 * The request needs no more looking after, unless there is again, or still, something to let go: it was revived and
 * ended once more, more of its files were released, or a file that nobody holds is just being brought back.
 */
export async function markReleased(ctx: Context, requestId: number): Promise<void> {
  await transaction(ctx.db.pool, async (tx) => {
    // locked first and judged in a second statement, which sees what whoever had it locked before has let go
    await tx.query('SELECT FROM request WHERE id = $1 FOR NO KEY UPDATE', [requestId]);
    await tx.query(
      `UPDATE request r SET is_released = true WHERE r.id = $1 AND NOT EXISTS (
         SELECT FROM hold o JOIN tape_file f ON f.id = o.file_id
         WHERE o.request_id = r.id AND f.stage IN ('RESTORED', 'RESTORING') AND ${IS_LEFT})`,
      [requestId],
    );
  });
}

/**
 * Lets restored files go that nobody holds. One that was changed by hand is left alone: it becomes UNVERIFIED and its
 * room on the restore disk is no longer counted.
 */
export async function letGo(ctx: Context, files: { unchanged: bigint[]; changed: bigint[] }): Promise<void> {
  await transaction(ctx.db.pool, async (tx) => {
    const all = [...files.unchanged, ...files.changed];
    // locked first and judged in a second statement, which sees the holds of requests that looked at the files before
    await tx.query(
      `SELECT count(*) FROM (
         SELECT FROM tape_file WHERE id = ANY($1::bigint[]) ORDER BY id FOR NO KEY UPDATE) locked`,
      [all],
    );
    const rows = await tx.query<{ id: bigint }>(
      `SELECT f.id FROM tape_file f WHERE f.id = ANY($1::bigint[]) AND f.stage = 'RESTORED' AND ${IS_UNHELD}`,
      [all],
    );
    const unheld = new Set(rows.map((row) => row.id));
    const pick = (ids: bigint[]) => ids.filter((id) => unheld.has(id));
    await moveFiles(tx, pick(files.unchanged), { from: 'RESTORED', to: 'ONTAPE' });
    const changed = await moveFiles(tx, pick(files.changed), { from: 'RESTORED', to: 'UNVERIFIED' });
    await forgetCopies(tx, changed);
    await keepUnverified(ctx, tx, changed);
  });
}

/** What was changed by hand is another file than the one on tape: no reading of the tape copy confirms it. */
async function keepUnverified(ctx: Context, tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  await tx.query(
    `INSERT INTO verification (file_id, attempts, error_class, error, at)
     SELECT id, 0, 'POLICY', 'its copy in the restore area was changed: it is not the file that is on tape', $2
     FROM unnest($1::bigint[]) AS c (id)
     ON CONFLICT (file_id) DO UPDATE SET error_class = excluded.error_class, error = excluded.error, at = excluded.at,
       not_before = NULL`,
    [fileIds, ctx.now()],
  );
}

/**
 * Has the next copies removed that are to go. Their files stay locked meanwhile, so that of two engines one removes
 * them, and neither removes a copy that a later recall has put in the same place.
 * @param remove tells whether the copy is gone; calling it again for one that is gone must be safe
 * @returns how many copies were looked at and how many are gone, and the last file among them
 */
export async function removeNext(
  ctx: Context,
  page: { after: bigint; limit: number },
  remove: (copy: Copy) => Promise<boolean>,
): Promise<{ seen: number; removed: number; last: bigint | undefined }> {
  return await transaction(ctx.db.pool, async (tx) => {
    const copies = await tx.query<Copy>(
      `SELECT ${COPY} FROM tape_file f JOIN restore_disk d ON d.id = f.disk_id
       WHERE f.stage <> 'RESTORED' AND f.id > $1 ORDER BY f.id LIMIT $2 FOR NO KEY UPDATE OF f SKIP LOCKED`,
      [page.after, page.limit],
    );
    const removed: bigint[] = [];
    for (const copy of copies) if (await remove(copy)) removed.push(copy.fileId);
    if (removed.length > 0) {
      await forgetCopies(tx, removed);
      await wakeWaiting(tx);
    }
    return { seen: copies.length, removed: removed.length, last: copies.at(-1)?.fileId };
  });
}

/** Recalls that wait for room may try again; those that are being tried right now see the room that has come free. */
export async function wakeWaiting(tx: Transaction): Promise<void> {
  const woken = await tx.query(
    `UPDATE recall SET not_before = NULL WHERE file_id IN (
       SELECT file_id FROM recall WHERE state = 'WAITING' AND error_class = 'SPACE' AND not_before IS NOT NULL
       FOR UPDATE SKIP LOCKED) RETURNING file_id`,
  );
  if (woken.length > 0) await tx.query(`SELECT pg_notify('tapegate', 'recall')`);
}

/** The files are locked, and not RESTORED any more. */
export async function forgetCopies(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  await tx.query(
    `WITH copy AS (
       SELECT id, disk_id, size FROM tape_file
       WHERE id = ANY($1::bigint[]) AND disk_id IS NOT NULL AND stage <> 'RESTORED' ORDER BY id FOR NO KEY UPDATE
     ), forgotten AS (
       UPDATE tape_file f SET disk_id = NULL, disk_mtime_ns = NULL FROM copy WHERE f.id = copy.id
     )
     UPDATE restore_disk d SET used = d.used - s.bytes
     FROM (SELECT disk_id, sum(size) AS bytes FROM copy GROUP BY disk_id ORDER BY disk_id) s WHERE d.id = s.disk_id`,
    [fileIds],
  );
}

/** `f` is the file. */
export const IS_ORPHAN = `f.stage = 'RESTORING'
  AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = f.id AND c.state = 'RUNNING')`;

/**
 * Files that are said to be on their way although no recall runs, after an import for instance, go back to ONTAPE, and
 * are recalled for the requests that wait for them.
 * @returns how many
 */
export async function returnOrphans(ctx: Context): Promise<number> {
  return await transaction(ctx.db.pool, async (tx) => {
    const found = await tx.query<{ id: bigint }>(
      `SELECT f.id FROM tape_file f WHERE ${IS_ORPHAN} ORDER BY f.id LIMIT 1000`,
    );
    if (found.length === 0) return 0;
    const fileIds = found.map((file) => file.id);
    await lockRequestsOf(tx, fileIds);
    const orphans = await tx.query<{ id: bigint }>(
      `SELECT f.id FROM tape_file f WHERE f.id = ANY($1::bigint[]) AND ${IS_ORPHAN} ORDER BY f.id FOR NO KEY UPDATE`,
      [fileIds],
    );
    const moved = await moveFiles(
      tx,
      orphans.map((file) => file.id),
      { from: 'RESTORING', to: 'ONTAPE' },
    );
    // looked up once more, since a request may have taken one of the files before it was locked
    await settleRequests(ctx, tx, await lockRequestsOf(tx, moved));
    return moved.length;
  });
}
