/**
 * Records and shows libraries that fail. If a drive reports that its library refuses work, Tapegate suspends the
 * library until the end of a pause.
 */

import { oneLine } from '../../core/errors.js';
import { isBefore } from '../../core/time.js';
import { sql } from '../../db/sql.js';
import type { Context } from '../context.js';
import { allow } from '../policy.js';
import { MAX_REASON, pauseOf } from './circuits.js';
import { suspendFailing } from './suspensions.js';

interface Refusal {
  problem: string;
  /** Time at which the drive began to use the volume. */
  since: string;
}

/**
 * Suspends a library that refuses work. Ignores a late report, which comes from a drive that mounted its volume before
 * the library's last pause ended. Reports can be late because a drive can take minutes to unmount a volume.
 */
export async function suspendFailingLibrary(
  ctx: Context,
  { id, name }: { id: number; name: string },
  refusal: Refusal,
): Promise<void> {
  const retryAt = await countRefusal(ctx, id, refusal);
  if (isBefore(ctx.now(), retryAt))
    await suspendFailing(ctx, { kind: 'LIBRARY', name }, { problem: refusal.problem, retryAt });
}

/**
 * Records that a drive library failed. The record stays until a drive reads from the library again. The failure does
 * not count as a refusal, so it does not prolong the pause after the next refusal.
 */
export async function recordLibraryFailure(
  ctx: Context,
  libraryId: number,
  { problem, until }: { problem: string; until: string },
): Promise<void> {
  await ctx.db.pool.query(
    sql`INSERT INTO stager (library_id, read_rest_until, read_problem) VALUES (${libraryId}, ${until}, ${oneLine(problem, MAX_REASON)})
        ON CONFLICT (library_id) DO UPDATE SET read_problem = excluded.read_problem, read_rest_until = excluded.read_rest_until`,
  );
}

export interface LibraryProblem {
  /** Name of the library. */
  library: string;
  /** Error text of the last failed call to the library. */
  problem: string;
  /** Time at which the library's pause ends, and engines call the library again; null if the pause has ended. */
  nextTry: string | null;
}

/** Returns the problems of libraries whose last call failed, by library id. */
export async function readLibraryProblems(ctx: Context, ids: readonly number[]): Promise<Map<number, LibraryProblem>> {
  allow(ctx, 'readLibraryProblems');
  const failed = await readFailedLibraries(ctx);
  return new Map([...failed].filter(([id]) => ids.includes(id)));
}

export async function readFailedLibraries(ctx: Context): Promise<Map<number, LibraryProblem>> {
  const rows = await ctx.db.rows<LibraryProblem & { id: number }>(
    sql`SELECT b.id, b.name AS library, coalesce(y.problem, y.read_problem) AS problem,
          CASE WHEN greatest(y.rest_until, y.read_rest_until) > ${ctx.now()} THEN greatest(y.rest_until, y.read_rest_until) END AS "nextTry"
        FROM stager y JOIN library b ON b.id = y.library_id WHERE coalesce(y.problem, y.read_problem) IS NOT NULL`,
  );
  return new Map(rows.map(({ id, ...problem }) => [id, problem]));
}

/**
 * Counts a library's refusal at most once per pause, because several drives might report the same refusal.
 * @returns the end of the pause
 */
async function countRefusal(ctx: Context, libraryId: number, { problem, since }: Refusal): Promise<string> {
  const at = sql`${ctx.now()}::timestamp`;
  const isNew = sql`coalesce(y.read_rest_until <= ${since}::timestamp, true)`;
  const rows = await ctx.db.rows<{ until: string }>(
    sql`INSERT INTO stager AS y (library_id, read_failures, read_rest_until, read_problem)
        VALUES (${libraryId}, 1, ${at} + ${pauseOf(sql`0`)}, ${problem})
        ON CONFLICT (library_id) DO UPDATE SET read_problem = excluded.read_problem,
          read_failures = y.read_failures + CASE WHEN ${isNew} THEN 1 ELSE 0 END,
          read_rest_until = CASE WHEN ${isNew} THEN ${at} + ${pauseOf(sql`y.read_failures`)} ELSE y.read_rest_until END
        RETURNING read_rest_until AS until`,
  );
  return (rows[0] as { until: string }).until;
}
