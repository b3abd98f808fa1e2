/** The queue of recalls as the planner sees it: by volume and user, and the files of one volume. */

import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import type { ErrorClass } from '../../errors.js';
import type { QueuedRecall, QueueEntry } from '../../planner/queue.js';
import { isLeftAlone, isReadable, isReadyBy, isServed, needsRoom, pathOnTape } from '../conditions.js';
import { isDoubted } from './doubts.js';
import type { Lease } from './drives.js';

const isQueuedForRoom = sql`(c.state = 'WAITING' AND ${isReadable} AND ${needsRoom})`;

/**
 * The queue by volume and user. A file that two users wait for counts for both.
 * @param which.libraryId of one library; unless given, of all
 * @param which.until what is to be tried by then, and what waits for room; unless given, what a drive could try now
 */
export async function readQueues(
  ctx: Context,
  { libraryId, until }: { libraryId?: number; until?: string } = {},
): Promise<QueueEntry[]> {
  const isReady = until === undefined ? isReadyBy(ctx.now()) : sql`(${isReadyBy(until)} OR ${isQueuedForRoom})`;
  const { rows } = await ctx.db.pool.query<QueueEntry>(
    sql`SELECT w.*, v.name AS volume, v.library_id AS "libraryId", v.medium, EXISTS (SELECT FROM drive d WHERE d.volume_id = v.id) AS "isMounted"
        FROM (
          SELECT c.volume_id AS "volumeId", q."user", count(DISTINCT c.file_id)::int AS files,
            sum(c.size) AS bytes, min(h.request_date) AS oldest, max(h.priority) AS priority
          FROM recall c JOIN live_hold h ON h.file_id = c.file_id JOIN quota q ON q.id = h.quota_id
          WHERE ${isReady} AND ${isServed}
          GROUP BY c.volume_id, q."user"
        ) w JOIN volume v ON v.id = w."volumeId"
        WHERE NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id) AND NOT ${isLeftAlone(until ?? ctx.now())}
          AND ${libraryId === undefined ? sql`true` : sql`v.library_id = ${libraryId}`}`,
  );
  return rows;
}

/** Is there anything that a drive could read now? */
export async function hasReadyRecalls(ctx: Context, { driveId, libraryId }: Lease): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`SELECT FROM recall c JOIN live_hold h ON h.file_id = c.file_id
        WHERE ${isReadyBy(ctx.now())} AND ${isServed}
          AND EXISTS (SELECT FROM volume v WHERE v.id = c.volume_id AND v.library_id = ${libraryId} AND NOT ${isLeftAlone(ctx.now())})
          AND NOT EXISTS (SELECT FROM drive d WHERE d.volume_id = c.volume_id AND d.id <> ${driveId})
          AND NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = c.volume_id) LIMIT 1`,
  );
  return rowCount !== 0;
}

/** Why a recall that has not been tried yet waits. */
export interface Delay {
  errorClass: ErrorClass;
  error: string;
  notBefore: string;
}

/** Nothing of the volume is tried before a time; what waits on it says why, and its tries are not counted. */
export async function postponeVolume(ctx: Context, volumeId: number, delay: Delay): Promise<void> {
  const { notBefore, errorClass, error } = delay;
  await ctx.db.pool.query(
    sql`UPDATE recall SET not_before = ${notBefore}, error_class = ${errorClass}, error = ${error} WHERE file_id IN (
          SELECT c.file_id FROM recall c WHERE c.volume_id = ${volumeId} AND c.state = 'WAITING'
            AND (c.not_before IS NULL OR c.not_before < ${notBefore}) ${locking.freeRecall})`,
  );
}

/** Files planned together at most; the rest of a long queue is planned when these are read. */
const PLANNED_FILES = 5000;

/**
 * What waits on a volume, in order of position, and what has none last, by its path; each file once, under the user of the request that asked first. As long as it is in
 * doubt whether anything of it can be read, only what was tried least: so that of many bad files none keeps those behind it from being
 * tried, however often the volume is held for them.
 * @param users only what one of them waits for
 */
export async function readVolumeQueue(
  ctx: Context,
  queue: { volumeId: number; users: readonly string[] },
): Promise<QueuedRecall[]> {
  const served = sql`SELECT q.id FROM quota q WHERE q."user" = ANY(${queue.users}::text[])
    AND NOT EXISTS (SELECT FROM suspended_quota s WHERE s.quota_id = q.id)`;
  // Recall by recall in the order of the index, so that the cost is that of the files planned, however long the queue is
  // and however wrongly PostgreSQL guesses its length just after a large request.
  const tries = sql`c.attempts + c.earlier_tries`;
  const isDoubtful = await isDoubted(ctx, queue.volumeId);
  const order = isDoubtful ? sql`${tries}, c.position` : sql`c.position`;
  const { rows } = await ctx.db.pool.query<Omit<QueuedRecall, 'start'> & { tries: number }>(
    sql`SELECT c.file_id AS "fileId", c.size, w."user", w.priority, ${tries} AS tries
        FROM recall c CROSS JOIN LATERAL (
          SELECT q."user", h.priority FROM live_hold h JOIN quota q ON q.id = h.quota_id
          WHERE h.file_id = c.file_id AND q.id = ANY(ARRAY(${served}))
          ORDER BY h.priority DESC, h.request_id LIMIT 1
        ) w
        WHERE ${isReadyBy(ctx.now())} AND c.volume_id = ${queue.volumeId}
        ORDER BY ${order}, c.file_id LIMIT ${PLANNED_FILES}`,
  );
  const chosen = isDoubtful ? rows.filter((row) => row.tries === rows[0]?.tries) : rows;
  const fileIds = chosen.map(({ fileId }) => fileId);
  const starts = await readStarts(ctx, queue.volumeId, fileIds);
  // also what an import has just moved elsewhere: whoever starts it sees that, and the queue has nothing left of it
  const placeOf = (fileId: bigint): Start => starts.get(fileId) ?? { start: 0n, path: '' };
  return chosen
    .map(({ tries: _tries, ...recall }) => ({ ...recall, start: placeOf(recall.fileId).start }))
    .sort((a, b) => comparePaths(placeOf(a.fileId), placeOf(b.fileId)));
}

/** Where a file begins; of one of which nobody knows that, its path on tape, and else an empty one. */
interface Start {
  start: bigint | null;
  path: string;
}

function comparePaths({ path: a }: Start, { path: b }: Start): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

/** A statement of its own: joined with the queue, it is a product of both whenever PostgreSQL takes the queue for short. */
async function readStarts(ctx: Context, volumeId: number, fileIds: readonly bigint[]): Promise<Map<bigint, Start>> {
  const { rows } = await ctx.db.pool.query<Start & { id: bigint }>(
    sql`SELECT id, start, path FROM (
       SELECT f.id, CASE WHEN f.position IS NULL THEN ${pathOnTape} ELSE '' END AS path, CASE WHEN f.position IS NOT NULL THEN
         coalesce(sum(f.size) OVER (ORDER BY f.position, f.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) END AS start
       FROM tape_file f WHERE f.volume_id = ${volumeId}
     ) place WHERE id = ANY(${fileIds}::bigint[])`,
  );
  return new Map(rows.map(({ id, ...start }) => [id, start]));
}
