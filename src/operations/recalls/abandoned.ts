/**
 * Running recalls that are to be stopped: nobody waits for them any more, an operator has held what they run on, or an
 * import has said that other bytes are the file's.
 */

import type { Context } from '../../context.js';
import { queryByKeys } from '../../database/planning.js';
import { sql } from '../../database/sql.js';
import { isSameVersion } from '../catalogue/versions.js';

/** @param engineIds by which the drives are claimed @returns ids of files whose recalls run there, and must stop */
export async function findAbandoned(ctx: Context, engineIds: readonly string[]): Promise<bigint[]> {
  const rows = await queryByKeys<{ fileId: bigint }>(
    ctx.db.pool,
    sql`SELECT c.file_id AS "fileId" FROM recall c JOIN tape_file f ON f.id = c.file_id JOIN drive d ON d.id = c.drive_id AND d.epoch = c.epoch
        WHERE c.state = 'RUNNING' AND d.engine_id = ANY(${engineIds}::uuid[]) AND (
          NOT ${isSameVersion('c', 'f')}
          OR EXISTS (SELECT FROM suspended_drive s WHERE s.drive_id = d.id AND s.mode = 'HELD')
          OR EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = c.volume_id AND s.mode = 'HELD')
          OR EXISTS (SELECT FROM suspended_disk s WHERE s.disk_id = c.disk_id AND s.mode = 'HELD')
          OR EXISTS (SELECT FROM suspended_library s WHERE s.library_id = d.library_id AND s.mode = 'HELD')
          OR NOT EXISTS (SELECT FROM live_hold h WHERE h.file_id = c.file_id
            AND NOT EXISTS (SELECT FROM suspended_quota s WHERE s.quota_id = h.quota_id AND s.mode = 'HELD')))`,
  );
  return rows.map((row) => row.fileId);
}
