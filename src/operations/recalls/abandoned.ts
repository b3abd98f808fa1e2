/** Running recalls that are to be stopped: nobody waits for them any more, or an operator has held what they run on. */
import type { Context } from '../../context.js';

/** @returns ids of files whose recalls this engine runs, and must stop */
export async function findAbandoned(ctx: Context, engineId: string): Promise<bigint[]> {
  const { rows } = await ctx.db.pool.query<{ fileId: bigint }>(
    `SELECT c.file_id AS "fileId" FROM recall c JOIN drive d ON d.id = c.drive_id AND d.epoch = c.epoch
       LEFT JOIN volume v ON v.id = c.volume_id LEFT JOIN restore_disk k ON k.id = c.disk_id
     WHERE c.state = 'RUNNING' AND d.engine_id = $1::uuid AND (
       EXISTS (SELECT FROM suspension s WHERE s.mode = 'HELD' AND (s.kind, s.name) IN (
         ('DRIVE', d.name), ('VOLUME', v.name), ('DISK', k.mountpoint), ('BACKEND', $2)))
       OR NOT EXISTS (SELECT FROM live_hold h JOIN quota q ON q.id = h.quota_id
         WHERE h.file_id = c.file_id
           AND NOT EXISTS (SELECT FROM suspension s WHERE s.mode = 'HELD' AND s.kind = 'USER' AND s.name = q."user")))`,
    [engineId, ctx.config.tapeBackend],
  );
  return rows.map((row) => row.fileId);
}
