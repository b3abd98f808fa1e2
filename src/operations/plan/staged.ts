/** Libraries that order their tapes by themselves, as the plan sees them: how long they take, and what waits there. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import type { StagedAhead } from '../../planner/staged.js';
import { DEPTH_FILES, type Library } from '../libraries/libraries.js';

export interface StagedLibrary extends StagedAhead {
  name: string;
  /** It could not answer lately: nobody knows when it will. */
  isAway: boolean;
}

interface Row {
  id: number;
  waits: number[];
  isAway: boolean;
  files: number;
  bytes: number;
}

/**
 * By the ids of libraries; those with drives are left out.
 * @param more what somebody thinks of asking for, by volume
 */
export async function readStagedLibraries(
  ctx: Context,
  libraries: readonly Library[],
  more: readonly { libraryId: number; files: number; bytes: bigint }[] = [],
): Promise<Map<number, StagedLibrary>> {
  const staging = libraries.filter(({ contract }) => contract === 'STAGING');
  if (staging.length === 0) return new Map();
  const { rows } = await ctx.db.pool.query<Row>(
    sql`SELECT b.id, coalesce(y.waits, '{}') AS waits, coalesce(y.failures > 0, false) AS "isAway",
          w.files, w.bytes
        FROM library b LEFT JOIN stager y ON y.library_id = b.id CROSS JOIN LATERAL (
          SELECT count(*)::int AS files, coalesce(sum(c.size), 0)::float8 AS bytes
          FROM recall c JOIN volume v ON v.id = c.volume_id WHERE v.library_id = b.id AND c.state = 'WAITING') w
        WHERE b.id = ANY(${staging.map(({ id }) => id)}::int[])`,
  );
  const found = new Map(rows.map((row) => [row.id, row]));
  return new Map(
    staging.map((library) => {
      const { waits = [], isAway = false, ...waiting } = found.get(library.id) ?? { files: 0, bytes: 0 };
      const wished = more.filter(({ libraryId }) => libraryId === library.id);
      const ahead: StagedLibrary = {
        name: library.name,
        isAway,
        waits: isAway ? [] : waitsOf(ctx, library, waits),
        depth: {
          files: library.depthFiles ?? DEPTH_FILES,
          bytes: library.depthBytes === null ? undefined : Number(library.depthBytes),
        },
        waiting: {
          files: wished.reduce((sum, { files }) => sum + files, waiting.files),
          bytes: wished.reduce((sum, { bytes }) => sum + Number(bytes), waiting.bytes),
        },
      };
      return [library.id, ahead];
    }),
  );
}

/** What files have taken tells more than what the settings say. */
function waitsOf(ctx: Context, library: Library, taken: readonly number[]): number[] {
  if (taken.length > 0) return [...taken].sort((a, b) => a - b);
  const { waitSeconds } = ctx.stagingTermsOf(library);
  return waitSeconds ? [waitSeconds.least, waitSeconds.most] : [];
}
