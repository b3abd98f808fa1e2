/** Files that wait for volumes which cannot be read, and are on tape once more. */
import type { Context } from '../../context.js';
import { lockFiles, lockRecalls } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { changePlaces, hasOther, triedNowhere } from '../catalogue/second-copies.js';
import { isLeftAlone, isWaiting } from '../conditions.js';

/** The volume `v` can be read at that time, as far as is known: nobody has taken it or its library out of service, and visits do not break down. */
const isReadableVolume = (now: string): Sql => sql`(NOT ${isLeftAlone(now)}
  AND NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id)
  AND NOT EXISTS (SELECT FROM suspended_library s WHERE s.library_id = v.library_id))`;

/** Files whose places are changed together. */
const TURNED = 1000;

/**
 * Files that wait for a volume which cannot be read now are read from their other copies, where these can be; nothing is noted of the first,
 * which may serve another time.
 * @returns how many
 */
export async function leaveUnreadable(ctx: Context): Promise<number> {
  const now = ctx.now();
  const away = sql`SELECT v.id FROM volume v WHERE NOT ${isReadableVolume(now)} AND EXISTS (SELECT FROM recall c WHERE c.volume_id = v.id AND c.state = 'WAITING')`;
  const which = sql`${isWaiting} AND ${hasOther} AND c.volume_id = f.volume_id AND f.volume_id IN (${away})
    AND EXISTS (SELECT FROM volume v WHERE v.id = f.copy_volume_id AND ${isReadableVolume(now)})`;
  const { rows } = await ctx.db.pool.query<{ id: bigint }>(
    sql`SELECT f.id FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE ${which} ORDER BY f.id LIMIT ${TURNED}`,
  );
  if (rows.length === 0) return 0;
  const ids = rows.map(({ id }) => id);
  return await transaction(ctx.db.pool, 'leaveUnreadable', async (tx) => {
    await lockFiles(tx, ids);
    await lockRecalls(tx, sql`c.file_id = ANY(${ids}::bigint[])`);
    const turned = await tx.query<{ id: bigint }>(
      sql`UPDATE tape_file f SET ${changePlaces} FROM recall c WHERE f.id = ANY(${ids}::bigint[]) AND c.file_id = f.id AND ${which} RETURNING f.id`,
    );
    await tx.query(
      sql`UPDATE recall c SET ${triedNowhere} FROM tape_file f WHERE f.id = c.file_id AND ${isWaiting} AND f.id = ANY(${turned.map(({ id }) => id)}::bigint[])`,
    );
    await tx.query(sql`SELECT pg_notify('tapegate', 'recall')`);
    return turned.length;
  });
}
