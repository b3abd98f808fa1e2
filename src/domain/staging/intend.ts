/**
 * Chooses the next files to request from a staging library. The engine stores the files in state INTENDED before it
 * calls the library. If the library does not answer, the engine that holds the library's lease requests the files
 * again.
 */

import { locking } from '../../db/locks.js';
import { queryByKeys } from '../../db/planning.js';
import { type Sql, sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import type { QueueEntry } from '../../planner/queue.js';
import { isReadBackDue } from '../catalogue/verifications.js';
import { isServed, isUnasked } from '../conditions.js';
import type { Context } from '../context.js';
import { findPlaceable, type MeasureDisks, measureDisks } from '../disks/reservations.js';
import { firstRequestOf, readQueueOf } from '../recalls/queue.js';
import { KEPT_BEFORE, NEVER_ASKED, type StagingRow, stagingColumns, stagingFiles } from './call-results.js';
import { isStagedUnder, type StagerLease } from './stagers.js';

/**
 * Returns the waiting files that are not yet requested from the library, grouped by volume and user. A file for which
 * several users wait is counted once for each of these users.
 */
export async function readUnasked(ctx: Context, libraryId: number): Promise<QueueEntry[]> {
  const isHere = sql`c.volume_id IN (SELECT v.id FROM volume v WHERE v.library_id = ${libraryId})`;
  return await readQueueOf(ctx, sql`${isHere} AND ${isUnasked(ctx.now(), libraryId)}`, sql`true`);
}

export interface Unasked {
  fileId: bigint;
  size: bigint;
  /** User whose quota is charged for the first request that contains the file. */
  user: string;
}

export async function readUnaskedOf(
  ctx: Context,
  {
    libraryId,
    volumeId,
    users,
    limit,
  }: { libraryId: number; volumeId: number; users: readonly string[]; limit: number },
): Promise<Unasked[]> {
  return await ctx.db.rows<Unasked>(
    sql`SELECT c.file_id AS "fileId", c.size, w."user"
        FROM recall c ${firstRequestOf(users)}
        WHERE c.volume_id = ${volumeId} AND ${isUnasked(ctx.now(), libraryId)}
        ORDER BY c.position, c.file_id LIMIT ${limit}`,
  );
}

export interface Staged {
  files: number;
  bytes: bigint;
  /**
   * Total size in bytes of the staged files for which no room on disk is reserved yet. The total includes files staged
   * in other libraries, except libraries that are suspended or failing.
   */
  unplacedBytes: bigint;
  users: Map<string, { files: number; bytes: number }>;
}

const isInReach = sql`(NOT EXISTS (SELECT FROM suspended_library x WHERE x.library_id = s.library_id AND x.mode = 'IMMEDIATE')
  AND NOT EXISTS (SELECT FROM stager t WHERE t.library_id = s.library_id AND (t.failures > 0 OR t.read_failures > 0)))`;

export async function countStaged(ctx: Context, libraryId: number): Promise<Staged> {
  const isCounted = sql`s.state IN ('INTENDED', 'ASKED', 'READY')`;
  const rows = await ctx.db.rows<{ files: number; bytes: bigint; unplaced: bigint }>(
    sql`SELECT count(*) FILTER (WHERE s.library_id = ${libraryId})::int AS files,
          coalesce(sum(s.size) FILTER (WHERE s.library_id = ${libraryId}), 0) AS bytes,
          coalesce(sum(s.size) FILTER (WHERE c.state = 'WAITING' AND (s.library_id = ${libraryId} OR ${isInReach})), 0) AS unplaced
        FROM staging s LEFT JOIN recall c ON c.file_id = s.file_id WHERE ${isCounted}`,
  );
  const { rows: users } = await ctx.db.pool.query<{ user: string; files: number; bytes: number }>(
    sql`SELECT q."user", count(*)::int AS files, sum(s.size)::float8 AS bytes
        FROM staging s JOIN live_request_file h ON h.file_id = s.file_id JOIN quota q ON q.id = h.quota_id
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

export async function readWeights(ctx: Context, users: readonly string[]): Promise<Map<string, number>> {
  const rows = await ctx.db.rows<{ user: string; weight: number }>(
    sql`SELECT q."user", q.weight FROM quota q WHERE q."user" = ANY(${users}::text[])`,
  );
  return new Map(rows.map((row) => [row.user, row.weight]));
}

export interface Room {
  files: number;
  /**
   * Maximum total size of the files that can still be requested from the library; null if only the restore area limits
   * the size.
   */
  bytes: bigint | null;
  /** Whether no files are staged in the library. If no files are staged, Tapegate can request one file of any size. */
  isEmpty: boolean;
}

/**
 * Stores files in state INTENDED, in the order of `fileIds`, up to the limits of the library and of the restore area.
 * If a file does not fit on any restore disk, the file keeps waiting and the reason is recorded.
 * @returns the stored files' ids; `isFull` is true if there was no room for further files
 * @throws Error if the engine has lost its lease on the library
 */
export async function intendFiles(
  ctx: Context,
  lease: StagerLease,
  { fileIds, room, measure }: { fileIds: readonly bigint[]; room: Room; measure: MeasureDisks },
): Promise<{ intended: Set<bigint>; isFull: boolean }> {
  // measure the disks before locking any rows, because a disk might respond slowly
  const seen = await measureDisks(ctx, measure);
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

/**
 * Chooses tape copies to verify (catalogue/verifications.ts), and stores their files in state INTENDED. Callers must
 * first request the files that recalls need.
 * @returns the number of stored files
 */
export async function intendReadBacks(ctx: Context, lease: StagerLease, limit: number): Promise<number> {
  const now = ctx.now();
  const { rowCount } = await ctx.db.pool.query(
    sql`INSERT INTO staging (file_id, library_id, state, batch, size, asked_at, since, due_at)
        SELECT f.id, v.library_id, 'INTENDED', gen_random_uuid(), f.size, ${now}, ${now}, ${now}
        FROM verification w JOIN tape_file f ON f.id = w.file_id JOIN volume v ON v.id = f.volume_id
        WHERE v.library_id = ${lease.libraryId} AND ${isReadBackDue(now)}
          AND NOT EXISTS (SELECT FROM suspended_volume x WHERE x.volume_id = v.id)
          AND NOT EXISTS (SELECT FROM staging s WHERE s.file_id = f.id AND s.library_id = v.library_id AND s.state <> 'KEPT')
          AND EXISTS (SELECT FROM stager y WHERE ${isStagedUnder(lease)})
        ORDER BY f.volume_id, f.position, f.id LIMIT ${limit}
        ON CONFLICT (file_id, library_id) DO UPDATE SET state = 'INTENDED', batch = excluded.batch, size = excluded.size, attempts = 0,
          asked_at = excluded.asked_at, since = excluded.since, due_at = excluded.due_at, ready_until = NULL WHERE staging.state = 'KEPT'`,
  );
  return rowCount ?? 0;
}

export interface ReadyCopy extends StagingRow {
  volumeId: number;
  checksum: string;
  isChecksumTaken: boolean;
  tries: number;
}

/** Hours for which an engine reserves a tape copy that it will verify. */
const TAKEN_HOURS = 1;

export async function takeReadBack(ctx: Context, libraryId: number): Promise<ReadyCopy | undefined> {
  const now = ctx.now();
  const isReady: Sql = sql`g.library_id = ${libraryId} AND g.state = 'READY' AND g.due_at <= ${now} AND (g.ready_until IS NULL OR g.ready_until > ${now})`;
  const rows = await ctx.db.rows<ReadyCopy>(
    sql`WITH next AS (
          SELECT g.file_id FROM staging g JOIN verification w ON w.file_id = g.file_id JOIN tape_file f ON f.id = g.file_id
          WHERE ${isReady} AND ${isReadBackDue(now)} AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = g.file_id)
          ORDER BY g.since, g.file_id LIMIT 1 ${locking.freeStaging}
        ), taken AS (
          UPDATE staging s SET due_at = ${now}::timestamp + make_interval(hours => ${TAKEN_HOURS}) FROM next n
          WHERE s.library_id = ${libraryId} AND s.file_id = n.file_id RETURNING s.*
        )
        SELECT ${stagingColumns}, f.volume_id AS "volumeId", f.checksum, f.checksum_taken AS "isChecksumTaken",
          w.attempts AS tries
        FROM taken s ${stagingFiles} JOIN verification w ON w.file_id = s.file_id`,
  );
  return rows[0];
}

export async function leaveReadBack(ctx: Context, libraryId: number, { fileId, batch }: ReadyCopy): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE staging SET due_at = ${ctx.now()}
        WHERE library_id = ${libraryId} AND file_id = ${fileId} AND batch = ${batch}::uuid AND state = 'READY'`,
  );
}

export interface ReadyFile {
  fileId: bigint;
  size: bigint;
}

/**
 * Returns the next staged files to read, ordered by priority, then by the users' fair shares, then by staging time.
 * @param how.shares each user's recent drive seconds divided by the user's weight
 */
export async function readReady(
  ctx: Context,
  {
    libraryId,
    shares,
    isShuffled,
    limit,
  }: { libraryId: number; shares: ReadonlyMap<string, number>; isShuffled: boolean; limit: number },
): Promise<ReadyFile[]> {
  const now = ctx.now();
  return await ctx.db.rows<ReadyFile>(
    sql`SELECT s.file_id AS "fileId", c.size
        FROM staging s JOIN recall c ON c.file_id = s.file_id JOIN volume v ON v.id = c.volume_id AND v.library_id = s.library_id
          CROSS JOIN LATERAL (
            SELECT h.priority, coalesce(u.share, 0) AS share FROM live_request_file h JOIN quota q ON q.id = h.quota_id
              LEFT JOIN unnest(${[...shares.keys()]}::text[], ${[...shares.values()]}::float8[]) AS u (name, share) ON u.name = q."user"
            WHERE h.file_id = c.file_id AND ${isServed} ORDER BY h.priority DESC, share LIMIT 1
          ) w
        WHERE s.library_id = ${libraryId} AND s.state = 'READY' AND (s.ready_until IS NULL OR s.ready_until > ${now})
          AND c.state = 'WAITING' AND (c.not_before IS NULL OR c.not_before <= ${now})
          AND NOT EXISTS (SELECT FROM suspended_volume x WHERE x.volume_id = v.id)
        ORDER BY ${isShuffled ? sql`random()` : sql`w.priority DESC, w.share, s.since, s.file_id`} LIMIT ${limit}`,
  );
}

export async function readStagingOf(
  ctx: Context,
  { libraryId, fileIds }: { libraryId: number; fileIds: readonly bigint[] },
): Promise<StagingRow[]> {
  return await queryByKeys<StagingRow>(
    ctx.db.pool,
    sql`SELECT ${stagingColumns} FROM staging s ${stagingFiles}
        WHERE s.library_id = ${libraryId} AND s.file_id = ANY(${fileIds}::bigint[])`,
  );
}
