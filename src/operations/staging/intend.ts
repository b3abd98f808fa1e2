/**
 * What a staging library is asked for next. What is intended is noted before the library is asked, in a transaction of its own; what
 * was intended and not answered is asked for again, by whoever has the library then.
 */
import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import type { QueueEntry } from '../../planner/queue.js';
import { isServed, isUnasked } from '../conditions.js';
import { findPlaceable } from '../disks/placeable.js';
import { lookAtDisks, type MeasureDisks } from '../disks/reservations.js';
import { KEPT_BEFORE, NEVER_ASKED } from './answers.js';
import { isStagedUnder, type StagerLease } from './stagers.js';

/** What waits and was not asked for, by volume and user. A file that two users wait for counts for both. */
export async function readUnasked(ctx: Context, libraryId: number): Promise<QueueEntry[]> {
  const { rows } = await ctx.db.pool.query<QueueEntry>(
    sql`SELECT w.*, v.name AS volume, v.medium, false AS "isMounted"
        FROM (
          SELECT c.volume_id AS "volumeId", q."user", count(DISTINCT c.file_id)::int AS files,
            sum(c.size) AS bytes, min(h.request_date) AS oldest, max(h.priority) AS priority
          FROM recall c JOIN live_hold h ON h.file_id = c.file_id JOIN quota q ON q.id = h.quota_id
          WHERE c.volume_id IN (SELECT v.id FROM volume v WHERE v.library_id = ${libraryId})
            AND ${isUnasked(ctx.now(), libraryId)} AND ${isServed}
          GROUP BY c.volume_id, q."user"
        ) w JOIN volume v ON v.id = w."volumeId"
        WHERE NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id)`,
  );
  return rows;
}

/** A file that may be asked for. */
export interface Unasked {
  fileId: bigint;
  size: bigint;
  /** Of the request that asked first. */
  user: string;
}

/** What waits on a volume for one of the users, in order of position as far as these are known. */
export async function readUnaskedOf(
  ctx: Context,
  {
    libraryId,
    volumeId,
    users,
    limit,
  }: { libraryId: number; volumeId: number; users: readonly string[]; limit: number },
): Promise<Unasked[]> {
  const served = sql`SELECT q.id FROM quota q WHERE q."user" = ANY(${users}::text[])
    AND NOT EXISTS (SELECT FROM suspended_quota s WHERE s.quota_id = q.id)`;
  const { rows } = await ctx.db.pool.query<Unasked>(
    sql`SELECT c.file_id AS "fileId", c.size, w."user"
        FROM recall c CROSS JOIN LATERAL (
          SELECT q."user" FROM live_hold h JOIN quota q ON q.id = h.quota_id
          WHERE h.file_id = c.file_id AND q.id = ANY(ARRAY(${served}))
          ORDER BY h.priority DESC, h.request_id LIMIT 1
        ) w
        WHERE c.volume_id = ${volumeId} AND ${isUnasked(ctx.now(), libraryId)}
        ORDER BY c.position, c.file_id LIMIT ${limit}`,
  );
  return rows;
}

/** What the system behind may have for Tapegate now. Bytes. */
export interface Staged {
  files: number;
  bytes: bigint;
  /** Of all libraries that are not away: what is to come into the restore area, and has no room there reserved yet. */
  unplacedBytes: bigint;
  /** By user, of this library; a file that two wait for counts for both. */
  users: Map<string, { files: number; bytes: number }>;
}

/** The library of `s` is not away: what one was asked for that is out of service, or cannot answer, keeps no room from the others. */
const isInReach = sql`(NOT EXISTS (SELECT FROM suspended_library x WHERE x.library_id = s.library_id AND x.mode = 'HELD')
  AND NOT EXISTS (SELECT FROM stager t WHERE t.library_id = s.library_id AND (t.failures > 0 OR t.read_failures > 0)))`;

export async function countStaged(ctx: Context, libraryId: number): Promise<Staged> {
  const isCounted = sql`s.state IN ('INTENDED', 'ASKED', 'READY')`;
  const { rows } = await ctx.db.pool.query<{ files: number; bytes: bigint; unplaced: bigint }>(
    sql`SELECT count(*) FILTER (WHERE s.library_id = ${libraryId})::int AS files,
          coalesce(sum(s.size) FILTER (WHERE s.library_id = ${libraryId}), 0) AS bytes,
          coalesce(sum(s.size) FILTER (WHERE c.state = 'WAITING' AND (s.library_id = ${libraryId} OR ${isInReach})), 0) AS unplaced
        FROM staging s LEFT JOIN recall c ON c.file_id = s.file_id WHERE ${isCounted}`,
  );
  const { rows: users } = await ctx.db.pool.query<{ user: string; files: number; bytes: number }>(
    sql`SELECT q."user", count(*)::int AS files, sum(s.size)::float8 AS bytes
        FROM staging s JOIN live_hold h ON h.file_id = s.file_id JOIN quota q ON q.id = h.quota_id
        WHERE s.library_id = ${libraryId} AND ${isCounted} GROUP BY q."user"`,
  );
  const [all] = rows;
  return {
    files: all?.files ?? 0,
    bytes: BigInt(all?.bytes ?? 0n),
    unplacedBytes: BigInt(all?.unplaced ?? 0n),
    users: new Map(users.map(({ user, ...figures }) => [user, figures])),
  };
}

/** By user. */
export async function readWeights(ctx: Context, users: readonly string[]): Promise<Map<string, number>> {
  const { rows } = await ctx.db.pool.query<{ user: string; weight: number }>(
    sql`SELECT q."user", q.weight FROM quota q WHERE q."user" = ANY(${users}::text[])`,
  );
  return new Map(rows.map((row) => [row.user, row.weight]));
}

/** What may be intended beside what is staged already. */
export interface Room {
  files: number;
  /** Null: as many as there is room for in the restore area. */
  bytes: bigint | null;
  /** Nothing is staged: one file may be asked for, however large it is. */
  isEmpty: boolean;
}

/**
 * Notes that files are about to be asked for, in the order given, as far as there is room for them: in the depth of the library, and in
 * the restore area beside all that is to come there. A file for which no restore disk has room, whatever else goes, is told so and waits as any recall
 * without room does. Files that wait no longer, or were intended meanwhile, are left out.
 * @returns the ids of those that are intended now; `isFull` where others are left for which there was no room
 * @throws where the lease is lost
 */
export async function intendFiles(
  ctx: Context,
  lease: StagerLease,
  { fileIds, room, measure }: { fileIds: readonly bigint[]; room: Room; measure: MeasureDisks },
): Promise<{ intended: Set<bigint>; isFull: boolean }> {
  const seen = await lookAtDisks(ctx, measure); // before anything is locked
  const { unplacedBytes } = await countStaged(ctx, lease.libraryId);
  const now = ctx.now();
  return await transaction(ctx.db.pool, 'intendStaging', async (tx) => {
    const rows = await tx.query<{ fileId: bigint; size: bigint }>(
      sql`SELECT c.file_id AS "fileId", c.size FROM recall c
          WHERE c.file_id = ANY(${fileIds}::bigint[]) AND ${isUnasked(now, lease.libraryId)}
            AND c.volume_id IN (SELECT v.id FROM volume v WHERE v.library_id = ${lease.libraryId})
          ORDER BY c.file_id ${locking.freeRecall}`,
    );
    const waiting = new Map(rows.map((row) => [row.fileId, row]));
    const found = fileIds.flatMap((fileId) => waiting.get(fileId) ?? []);
    const { placeable, roomBytes } = await findPlaceable(ctx, tx, found, seen);
    const held = await tx.query(sql`SELECT FROM stager y WHERE ${isStagedUnder(lease)} ${locking.stagerKept}`);
    if (held.length === 0) throw new Error(`the lease of library ${lease.libraryId} is lost`);
    const chosen = takeWithin(placeable, room, roomBytes - unplacedBytes);
    await tx.query(
      sql`INSERT INTO staging AS s (file_id, library_id, batch, size, asked_at, since, due_at)
          SELECT n.file_id, ${lease.libraryId}, ${NEVER_ASKED}::uuid, n.size, ${now}, ${now}, ${now}
          FROM unnest(${chosen.map(({ fileId }) => fileId)}::bigint[], ${chosen.map(({ size }) => size)}::bigint[]) AS n (file_id, size)
          ORDER BY n.file_id
          ON CONFLICT (file_id, library_id) DO UPDATE SET state = 'INTENDED', batch = ${KEPT_BEFORE}::uuid, size = excluded.size, attempts = 0,
            asked_at = excluded.asked_at, since = excluded.since, due_at = excluded.due_at WHERE s.state = 'KEPT'`,
    );
    const intended = new Set(chosen.map(({ fileId }) => fileId));
    return { intended, isFull: chosen.length < placeable.length };
  });
}

/** The first of them, up to one that is too much. */
function takeWithin<F extends { size: bigint }>(files: readonly F[], room: Room, areaBytes: bigint): F[] {
  const chosen: F[] = [];
  let bytes = 0n;
  for (const file of files) {
    bytes += file.size;
    if (chosen.length >= room.files || bytes > areaBytes) break;
    const isFirst = room.isEmpty && chosen.length === 0;
    if (room.bytes !== null && bytes > room.bytes && !isFirst) break;
    chosen.push(file);
  }
  return chosen;
}
