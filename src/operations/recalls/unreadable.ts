/** Files that wait for volumes which cannot be read, and are on tape once more. */
import type { Context } from '../../context.js';
import { lockFiles, lockRecalls } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { addSeconds } from '../../time.js';
import { changePlaces } from '../catalogue/second-copies.js';
import { placeOfFile } from '../catalogue/versions.js';
import { hasOther, isLeftAlone, isWaiting } from '../conditions.js';

/** Nobody reads the volume `v`: it or its library is out of service, or all drives of that are. */
const isAway = sql`(EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id)
  OR EXISTS (SELECT FROM suspended_library s WHERE s.library_id = v.library_id)
  OR NOT EXISTS (SELECT FROM drive d WHERE d.library_id = v.library_id
    AND NOT EXISTS (SELECT FROM suspended_drive s WHERE s.drive_id = d.id)))`;

/** What breaks down may pass by itself: the catalogue changes for good, and the other copy may cost money. */
const PATIENCE_SECONDS = 300;

/** Files whose places are changed together. */
const TURNED = 1000;

/**
 * Files that wait for a volume which cannot be read now are read from their other copies, where these can be; nothing is noted of the first,
 * which may serve another time.
 * @returns how many
 */
export async function leaveUnreadable(ctx: Context): Promise<number> {
  const now = ctx.now();
  const away = sql`SELECT v.id FROM volume v WHERE (${isAway} OR (${isLeftAlone(now)} AND v.failing_since < ${addSeconds(now, -PATIENCE_SECONDS)}::timestamp)) AND EXISTS (SELECT FROM recall c WHERE c.volume_id = v.id AND c.state = 'WAITING')`;
  const which = sql`${isWaiting} AND ${hasOther} AND c.volume_id = f.volume_id AND f.volume_id IN (${away})
    AND NOT EXISTS (SELECT FROM staging g JOIN volume v ON v.id = f.volume_id AND v.library_id = g.library_id
      WHERE g.file_id = f.id AND g.state = 'READY' AND NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id)
        AND NOT EXISTS (SELECT FROM suspended_library s WHERE s.library_id = v.library_id AND s.mode = 'HELD'))
    AND EXISTS (SELECT FROM volume v WHERE v.id = f.copy_volume_id AND NOT ${isAway} AND NOT ${isLeftAlone(now)})`;
  const { rows } = await ctx.db.pool.query<{ id: bigint }>(
    sql`SELECT f.id FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE ${which} ORDER BY f.id LIMIT ${TURNED}`,
  );
  if (rows.length === 0) return 0;
  const ids = rows.map(({ id }) => id);
  return await transaction(ctx.db.pool, 'leaveUnreadable', async (tx) => {
    await lockFiles(tx, ids);
    await lockRecalls(tx, sql`c.file_id = ANY(${ids}::bigint[])`);
    const turned = await tx.query<{ id: bigint }>(
      sql`UPDATE tape_file f SET ${changePlaces}, copy_error = NULL, copy_failed_at = NULL FROM recall c WHERE f.id = ANY(${ids}::bigint[]) AND c.file_id = f.id AND ${which} RETURNING f.id`,
    );
    await tx.query(
      sql`UPDATE recall c SET ${placeOfFile}, earlier_tries = c.earlier_tries + c.attempts, attempts = 0, not_before = NULL, error_class = NULL, error = NULL FROM tape_file f WHERE f.id = c.file_id AND ${isWaiting} AND f.id = ANY(${turned.map(({ id }) => id)}::bigint[])`,
    );
    await tx.query(sql`SELECT pg_notify('tapegate', 'recall')`);
    return turned.length;
  });
}

/** As long as there are more: a queue of a million is not left at a thousand in ten seconds. */
export async function leaveAllUnreadable(ctx: Context, stop: AbortSignal): Promise<void> {
  while (!stop.aborted && (await leaveUnreadable(ctx)) > 0);
}
