/** Finds out which libraries have work for drives, so that engines run a process for a drive only while it has work. */

import { sql } from '../../db/sql.js';
import { hasDueVerification } from '../catalogue/verifications.js';
import { isReadyBy, isResting, isServed } from '../conditions.js';
import type { Context } from '../context.js';

export interface DriveWork {
  libraryId: number;
  /** Number of volumes that are in no drive, and that a drive could read now. */
  volumes: number;
  /** Number of drives with a volume. */
  mounted: number;
  /** Whether there is any other work: running recalls, tape copies to verify, or staged files. */
  hasOther: boolean;
}

/** Selects each volume with waiting recalls once, with one index lookup for each volume. */
const waitingVolumes = sql`WITH RECURSIVE waiting (id) AS (
    (SELECT c.volume_id FROM recall c WHERE c.state = 'WAITING' AND c.volume_id IS NOT NULL ORDER BY c.volume_id LIMIT 1)
    UNION ALL
    SELECT (SELECT c.volume_id FROM recall c WHERE c.state = 'WAITING' AND c.volume_id > w.id ORDER BY c.volume_id LIMIT 1)
    FROM waiting w WHERE w.id IS NOT NULL)`;

/** Returns the work of each library. */
export async function readDriveWork(ctx: Context): Promise<DriveWork[]> {
  const now = ctx.now();
  return await ctx.db.rows<DriveWork>(
    sql`${waitingVolumes}, readable AS (
          SELECT v.library_id FROM waiting w JOIN volume v ON v.id = w.id
          WHERE NOT ${isResting(now)} AND NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id)
            AND NOT EXISTS (SELECT FROM drive d WHERE d.volume_id = v.id)
            AND EXISTS (SELECT FROM recall c JOIN live_request_file h ON h.file_id = c.file_id
              WHERE c.volume_id = v.id AND ${isReadyBy(now)} AND ${isServed}))
        SELECT b.id AS "libraryId", (SELECT count(*) FROM readable r WHERE r.library_id = b.id)::int AS volumes,
          (SELECT count(*) FROM drive d WHERE d.library_id = b.id AND d.volume_id IS NOT NULL)::int AS mounted,
          EXISTS (SELECT FROM drive d WHERE d.library_id = b.id AND EXISTS (
              SELECT FROM recall c WHERE c.drive_id = d.id AND c.state = 'RUNNING'))
            OR ${hasDueVerification(now)}
            OR EXISTS (SELECT FROM staging g WHERE g.library_id = b.id AND g.state = 'READY') AS "hasOther"
        FROM library b`,
  );
}
