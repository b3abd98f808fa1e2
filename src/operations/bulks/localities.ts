/** Where files are, as far as a client that wants to read them here is concerned. */
import type { Context } from '../../context.js';
import { askAtLength } from '../../database/snapshot.js';
import { sql } from '../../database/sql.js';
import type { BulkProblem } from '../../generated/prisma/enums.js';
import { mayPath } from '../access/paths.js';
import { hasOther, isOffered } from '../conditions.js';
import { allow } from '../policy.js';
import { isFolder } from '../requests/bulk-files.js';

/** As the WLCG Tape REST API has them; UNAVAILABLE may pass by itself. */
export type Locality = 'TAPE' | 'DISK_AND_TAPE' | 'UNAVAILABLE';

/** Why a file is UNAVAILABLE, or is none. */
export type LocalityProblem =
  | Exclude<BulkProblem, 'QUOTA_FULL'>
  | 'NOT_YOURS'
  | 'DISK_FAILS'
  | 'VOLUME_AWAY'
  | 'NO_PLACE';

export interface LocalityRow {
  path: string;
  /** Null where there is no such file. */
  locality: Locality | null;
  problem: LocalityProblem | null;
}

interface Located {
  path: string;
  isFile: boolean;
  stage: string;
  problem: LocalityProblem | null;
}

/**
 * What is told is what can be served here: of a file with a copy in the restore area, that it is on disk; of one that could be brought there, that it
 * is on tape. What the caller may not list is as if it were not there.
 * @param paths distinct logical paths; in no order
 */
export async function readLocalities(ctx: Context, paths: readonly string[]): Promise<LocalityRow[]> {
  allow(ctx, 'listFiles');
  const rows = await askAtLength<Located>(
    ctx,
    sql`SELECT l.path, f.id IS NOT NULL AS "isFile", f.stage, CASE
          WHEN f.id IS NULL THEN CASE WHEN ${isFolder(ctx)} THEN 'FOLDER' ELSE 'UNKNOWN' END
          WHEN NOT ${mayPath(ctx, 'FETCH')} THEN 'NOT_YOURS'
          WHEN f.stage IN ('UNVERIFIED', 'ONDISK') THEN 'ELSEWHERE'
          WHEN f.stage = 'RESTORED' THEN
            CASE WHEN f.disk_id IS NULL OR EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = f.disk_id) THEN 'DISK_FAILS' END
          WHEN f.volume_id IS NULL THEN 'NO_PLACE'
          WHEN f.stage = 'ONTAPE' AND EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = f.volume_id)
            AND NOT (${hasOther} AND NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = f.copy_volume_id)) THEN 'VOLUME_AWAY' END AS problem
        FROM unnest(${paths}::text[]) AS l (path) LEFT JOIN tape_file f ON f.path = l.path AND (${isOffered} OR f.stage = 'RESTORED') AND ${mayPath(ctx, 'LIST')}`,
    ctx.reader,
  );
  return rows.map(({ path, isFile, stage, problem }) => ({
    path,
    locality: isFile ? localityOf(stage, problem) : null,
    problem,
  }));
}

function localityOf(stage: string, problem: LocalityProblem | null): Locality {
  if (problem !== null) return 'UNAVAILABLE';
  return stage === 'RESTORED' ? 'DISK_AND_TAPE' : 'TAPE';
}
