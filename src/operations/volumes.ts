/** Volumes as `archive` fills them. */
import type { Context } from '../context.js';
import { lockVolumes, transaction } from '../database/transaction.js';

/**
 * Gives a file the next place on the newest volume, or on a new one when it would not fit. A file larger than a volume
 * gets one of its own. A place is given out once, whatever becomes of it.
 */
export async function placeFile(
  ctx: Context,
  file: { size: bigint; volumeSize: bigint },
): Promise<{ volume: string; position: bigint }> {
  return await transaction(ctx.db.pool, async (tx) => {
    await lockVolumes(tx);
    const [place] = await tx.query<{ volume: string; position: bigint }>(
      `UPDATE volume SET used = used + $1, next_position = next_position + 1
       WHERE id = (SELECT id FROM volume WHERE name ~ '^TG[0-9]{4,}$' ORDER BY id DESC LIMIT 1)
         AND (used + $1 <= $2 OR used = 0)
       RETURNING name AS volume, next_position - 1 AS position`,
      [file.size, file.volumeSize],
    );
    if (place) return place;
    const [fresh] = await tx.query<{ volume: string }>(
      `INSERT INTO volume (name, used, next_position)
       SELECT 'TG' || lpad((coalesce(max(substr(name, 3)::bigint), 0) + 1)::text, 4, '0'), $1, 2
       FROM volume WHERE name ~ '^TG[0-9]{4,18}$'
       RETURNING name AS volume`,
      [file.size],
    );
    return { volume: fresh?.volume ?? '', position: 1n };
  });
}
