/**
 * Files leave the restore area when nobody holds them any more.
 *
 * First the file moves to ONTAPE while its copy is still noted (`disk_id`), then the copy is removed, then the note.
 * A process killed anywhere leaves a note, and the next one removes the copy; until then no recall of the file starts.
 */
import type { Context } from '../context.js';
import { type Transaction, transaction } from '../database/transaction.js';
import { moveFiles } from '../stages.js';
import { IS_UNHELD } from './live.js';

/** A copy in the restore area. */
export interface Copy {
  fileId: bigint;
  path: string;
  size: bigint;
  /** Null where the catalogue only says that there is a copy somewhere. */
  mountpoint: string | null;
  /** Modification time it was left with, in nanoseconds. */
  mtimeNs: bigint | null;
}

const COPY = `f.id AS "fileId", f.path, f.size, d.mountpoint, f.disk_mtime_ns AS "mtimeNs"`;

/** An ended request whose files have not been looked at yet. */
export async function findUnreleased(ctx: Context): Promise<number | undefined> {
  const { rows } = await ctx.db.pool.query<{ id: number }>(
    'SELECT id FROM request WHERE NOT is_released ORDER BY id LIMIT 1',
  );
  return rows[0]?.id;
}

/** Restored files of a request that nobody holds, in order of their ids. */
export async function readUnheld(
  ctx: Context,
  page: { requestId: number; after: bigint; limit: number },
): Promise<Copy[]> {
  const { rows } = await ctx.db.pool.query<Copy>(
    `SELECT ${COPY} FROM hold o JOIN tape_file f ON f.id = o.file_id LEFT JOIN restore_disk d ON d.id = f.disk_id
     WHERE o.request_id = $1 AND f.id > $2 AND f.stage = 'RESTORED' AND ${IS_UNHELD} ORDER BY f.id LIMIT $3`,
    [page.requestId, page.after, page.limit],
  );
  return rows;
}

/** The request needs no more looking after, unless it has been revived. */
export async function markReleased(ctx: Context, requestId: number): Promise<void> {
  await ctx.db.pool.query('UPDATE request SET is_released = true WHERE id = $1', [requestId]);
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
    await forgetCopies(tx, await moveFiles(tx, pick(files.changed), { from: 'RESTORED', to: 'UNVERIFIED' }));
  });
}

/** Copies that are to be removed. */
export async function readRemovals(ctx: Context, page: { after: bigint; limit: number }): Promise<Copy[]> {
  const { rows } = await ctx.db.pool.query<Copy>(
    `SELECT ${COPY} FROM tape_file f JOIN restore_disk d ON d.id = f.disk_id
     WHERE f.stage <> 'RESTORED' AND f.id > $1 ORDER BY f.id LIMIT $2`,
    [page.after, page.limit],
  );
  return rows;
}

/** The copies are gone: their room is free, and recalls that wait for room may try again. */
export async function finishRemovals(ctx: Context, fileIds: readonly bigint[]): Promise<void> {
  await transaction(ctx.db.pool, async (tx) => {
    await forgetCopies(tx, fileIds);
    await tx.query(`UPDATE recall SET not_before = NULL WHERE state = 'WAITING' AND error_class = 'SPACE'`);
  });
}

async function forgetCopies(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
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

/**
 * Files that are said to be on their way although no recall runs, after an import for instance, go back to ONTAPE.
 * @returns how many
 */
export async function returnOrphans(ctx: Context): Promise<number> {
  return await transaction(ctx.db.pool, async (tx) => {
    const rows = await tx.query<{ id: bigint }>(
      `SELECT f.id FROM tape_file f WHERE f.stage = 'RESTORING'
         AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = f.id AND c.state = 'RUNNING')
       ORDER BY f.id LIMIT 1000 FOR NO KEY UPDATE`,
    );
    const moved = await moveFiles(
      tx,
      rows.map((row) => row.id),
      { from: 'RESTORING', to: 'ONTAPE' },
    );
    return moved.length;
  });
}
