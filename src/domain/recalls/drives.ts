/**
 * Tape drives and their leases. At most one engine holds a drive's lease. Leases expire by the database server's clock.
 * Each time an engine claims a drive, the drive's epoch increases. If an engine that claimed the drive in an older
 * epoch writes to the database, the write has no effect. Epochs are derived from the clock, so that no epoch is used
 * twice, even after the database is restored from a backup.
 */

import { codeOf } from '../../core/errors.js';
import { locking } from '../../db/locks.js';
import { sql } from '../../db/sql.js';
import type { Drive } from '../../generated/prisma/client.js';
import type { DrivesAndAskers, SharedDrive, SharingEngine } from '../../planner/drive-shares.js';
import { hostOfDrive, isClaimed, isHeldUnder, isManned, isRunning, databaseNow as now } from '../conditions.js';
import type { Context } from '../context.js';
import { FIRST_LIBRARY } from '../libraries/libraries.js';
import { keyedList } from '../page-keys.js';
import { allow, isVisibleQuota } from '../policy.js';

export interface Lease {
  driveId: number;
  driveName: string;
  libraryId: number;
  engineId: string;
  epoch: bigint;
  /** Number of failed attempts to use the drive since the last success. */
  failures: number;
  /** Sums of measured times (src/planner/pace.ts), as stored when the drive was claimed. */
  pace: number[];
}

const UNIQUE_VIOLATION = '23505';

export function listDrives(ctx: Context) {
  allow(ctx, 'listDrives');
  return keyedList<number, Drive>(ctx, { rows: sql`drive d WHERE true`, id: sql`d.id` }, (at, id, query) =>
    at.db.prisma.drive.findMany({ ...query, where: { id }, orderBy: { id: 'asc' } }),
  );
}

export async function readClaimed(ctx: Context, ids: readonly number[]): Promise<Map<number, boolean>> {
  const rows = await ctx.db.rows<{ id: number; isClaimed: boolean }>(
    sql`SELECT d.id, ${isManned} AS "isClaimed" FROM drive d WHERE d.id = ANY(${ids}::int[])`,
  );
  return new Map(rows.map((drive) => [drive.id, drive.isClaimed]));
}

export interface DriveRange {
  id: number;
  name: string;
  drives: number;
}

export function drivePrefix({ id, name }: Pick<DriveRange, 'id' | 'name'>): string {
  return id === FIRST_LIBRARY ? 'drive-' : `${name}-`;
}

export async function ensureDrives(ctx: Context, count: number): Promise<void> {
  await ctx.db.pool.query(
    sql`INSERT INTO drive (name) SELECT 'drive-' || n FROM generate_series(1, ${count}::int) AS n ON CONFLICT (name) DO NOTHING`,
  );
}

/**
 * Leases a drive that no running engine has leased.
 * @param claim.of drives that the engine can claim. Default: drives with an expired lease, and free drives with running
 *   recalls
 * @param claim.except drives that the engine has already leased
 */
export async function claimDrive(
  ctx: Context,
  claim: { engineId: string; of?: DriveRange | undefined; leaseSeconds: number; except?: readonly number[] },
): Promise<Lease | undefined> {
  const { of } = claim;
  const isOfSite = of
    ? sql`(d.library_id = ${of.id}::int AND d.name IN (SELECT ${drivePrefix(of)} || n FROM generate_series(1, ${of.drives}::int) AS n))`
    : sql`false`;
  const rows = await ctx.db.rows<Omit<Lease, 'engineId'>>(
    sql`UPDATE drive SET engine_id = ${claim.engineId}, volume_id = NULL, rate = NULL,
       epoch = greatest(epoch + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
       lease_until = timezone('utc', clock_timestamp()) + make_interval(secs => ${claim.leaseSeconds})
     WHERE id = (
       SELECT d.id FROM drive d
       WHERE d.id <> ALL(${claim.except ?? []}::int[]) AND (${of === undefined} OR ${isOfSite})
         AND (d.lease_until IS NOT NULL AND NOT ${isClaimed}
           -- a start that its engine did not wait for was committed after the drive was given back
           OR (d.engine_id IS NULL AND (${isOfSite} OR EXISTS (
             SELECT FROM recall c WHERE c.drive_id = d.id AND c.state = 'RUNNING'))))
       ORDER BY d.id LIMIT 1 ${locking.freeDrive})
     RETURNING id AS "driveId", name AS "driveName", library_id AS "libraryId", epoch, failures, pace`,
  );
  return rows[0] && { ...rows[0], engineId: claim.engineId };
}

/**
 * Renews a drive's lease, even if the lease has expired, unless another engine has claimed the drive. Also records the
 * drive's read rate in bytes per second and its pace. Does not wait for locks.
 * @returns `lost` if another engine has claimed the drive; `busy` if the drive's row is locked
 */
export async function renewLease(
  ctx: Context,
  lease: Lease,
  leaseSeconds: number,
  { rate, pace }: { rate: number; pace: readonly number[] } = { rate: 0, pace: lease.pace },
): Promise<'renewed' | 'busy' | 'lost'> {
  const rows = await ctx.db.vitalRows<{ answer: 'renewed' | 'busy' | 'lost' }>(
    sql`WITH renewed AS (
       UPDATE drive SET rate = ${rate}::float8, pace = ${pace}::float8[], lease_until = timezone('utc', clock_timestamp()) + make_interval(secs => ${leaseSeconds})
       WHERE id = (SELECT d.id FROM drive d
         WHERE ${isHeldUnder(lease)} ${locking.freeDriveToRenew})
       RETURNING id)
     SELECT CASE WHEN EXISTS (SELECT FROM renewed) THEN 'renewed'
       WHEN EXISTS (SELECT FROM drive d WHERE ${isHeldUnder(lease)}) THEN 'busy'
       ELSE 'lost' END AS answer`,
  );
  return rows[0]?.answer ?? 'lost';
}

/**
 * Releases a drive. If recalls are still running on the drive, marks the lease as expired, so that the next engine to
 * claim the drive recovers the recalls.
 */
export async function releaseDrive(ctx: Context, lease: Lease, pace: readonly number[] = lease.pace): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE drive d SET engine_id = NULL, volume_id = NULL, rate = NULL, pace = ${pace}::float8[], lease_until = CASE
       WHEN EXISTS (SELECT FROM recall c WHERE c.drive_id = d.id AND c.state = 'RUNNING') THEN timezone('utc', clock_timestamp())
     END WHERE ${isHeldUnder(lease)}`,
  );
}

/**
 * Records which volume is mounted in a drive. If the drive is empty, `volumeId` is null.
 * @returns false if the volume is mounted in another drive, or the lease is lost
 */
export async function setMount(ctx: Context, lease: Lease, volumeId: number | null): Promise<boolean> {
  try {
    const { rowCount } = await ctx.db.pool.query(
      sql`UPDATE drive d SET volume_id = ${volumeId} WHERE ${isHeldUnder(lease)}
            AND NOT EXISTS (SELECT FROM drive o WHERE o.volume_id = ${volumeId} AND o.id <> d.id)`,
    );
    return rowCount === 1;
  } catch (error) {
    if (codeOf(error) === UNIQUE_VIOLATION) return false;
    throw error;
  }
}

export async function isReadElsewhere(ctx: Context, { driveId, libraryId }: Lease): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`SELECT FROM drive d WHERE d.library_id = ${libraryId} AND d.id <> ${driveId} AND d.rate > 0 AND ${isClaimed} LIMIT 1`,
  );
  return rowCount !== 0;
}

export interface EngineProcess {
  id: string;
  engineId: string;
  host: string;
  library: Pick<DriveRange, 'id' | 'name'>;
  drives: number;
  /** Highest drive number that the process can claim. */
  reach: number;
  weight: number;
}

/** Seconds for which Tapegate keeps the row of a process that has no drive and whose drive request has expired. */
export const KEPT_SECONDS = 60;

/** Seconds after which an engine that does not repeat `recordReadyEngine` no longer counts as ready. */
const READY_SECONDS = 30;

/**
 * Records that an engine process requests another drive. The request expires after `askSeconds`. If `askSeconds` is 0,
 * the process withdraws its request for a drive.
 */
export async function recordEngineProcess(ctx: Context, process: EngineProcess, askSeconds: number): Promise<void> {
  const { id, engineId, host, library, drives, reach, weight } = process;
  await ctx.db.pool.query(
    sql`INSERT INTO engine_process (id, engine_id, host, library_id, drives, reach, weight, asks_until)
        VALUES (${id}::uuid, ${engineId}::uuid, ${host}, ${library.id}, ${drives}, ${reach}, ${weight}, ${now} + make_interval(secs => ${askSeconds}))
        ON CONFLICT (id) DO UPDATE SET asks_until = excluded.asks_until`,
  );
}

/**
 * Records for `READY_SECONDS` that an engine is ready to start processes for a library's drives. Such an engine requests
 * no drives.
 */
export async function recordReadyEngine(ctx: Context, process: EngineProcess): Promise<void> {
  const { id, engineId, host, library, drives, reach, weight } = process;
  const until = sql`${now} + make_interval(secs => ${READY_SECONDS})`;
  await ctx.db.pool.query(
    sql`INSERT INTO engine_process (id, engine_id, host, library_id, drives, reach, weight, asks_until, ready_until)
        VALUES (${id}::uuid, ${engineId}::uuid, ${host}, ${library.id}, ${drives}, ${reach}, ${weight}, ${now} - interval '1 minute', ${until})
        ON CONFLICT (id) DO UPDATE SET drives = excluded.drives, reach = excluded.reach, ready_until = excluded.ready_until`,
  );
}

export async function deleteEngineProcess(ctx: Context, id: string): Promise<void> {
  await ctx.db.pool.query(sql`DELETE FROM engine_process WHERE id = ${id}::uuid`);
}

/** Deletes the rows of killed engine processes. */
export async function deleteGoneProcesses(ctx: Context): Promise<void> {
  await ctx.db.pool.query(
    sql`DELETE FROM engine_process WHERE id IN (
          SELECT p.id FROM engine_process p
          WHERE NOT ${isRunning(sql`greatest(p.asks_until, p.ready_until) + make_interval(secs => ${KEPT_SECONDS})`)} AND NOT EXISTS (SELECT FROM drive d WHERE d.engine_id = p.id)
          ${locking.freeProcess})`,
  );
}

/**
 * Returns a library's drives, and the other engines that request drives in the library. If no other engine requests a
 * drive, the returned list of drives is empty.
 */
export async function readDrivesAndAskers(
  ctx: Context,
  { engineId, library }: Pick<EngineProcess, 'engineId' | 'library'>,
): Promise<DrivesAndAskers> {
  const prefix = drivePrefix(library);
  const { rows: askers } = await ctx.db.pool.query<SharingEngine>(
    sql`SELECT p.engine_id AS id, max(p.weight) AS weight, max(p.reach) AS reach FROM engine_process p
        WHERE p.engine_id <> ${engineId}::uuid AND p.library_id = ${library.id} AND ${isRunning(sql`p.asks_until`)}
          AND (SELECT count(*) FROM drive d WHERE d.engine_id = p.id AND ${isClaimed}) < p.drives
        GROUP BY p.engine_id`,
  );
  if (askers.length === 0) return { drives: [], askers };
  const { rows: drives } = await ctx.db.pool.query<{
    id: number;
    number: number;
    holder: string | null;
    isMounted: boolean;
  }>(
    sql`SELECT d.id, substring(d.name FROM length(${prefix}::text) + 1)::int AS number, d.volume_id IS NOT NULL AS "isMounted", CASE WHEN ${isClaimed} THEN coalesce(p.engine_id, d.engine_id) END AS holder
        FROM drive d LEFT JOIN engine_process p ON p.id = d.engine_id
        WHERE d.library_id = ${library.id} AND starts_with(d.name, ${prefix}) AND substring(d.name FROM length(${prefix}::text) + 1) ~ '^[0-9]{1,9}$'
          AND NOT EXISTS (SELECT FROM suspended_drive s WHERE s.drive_id = d.id)`,
  );
  return { drives: drives.map((drive): SharedDrive => ({ ...drive, holder: drive.holder ?? undefined })), askers };
}

export async function readDriveHosts(ctx: Context, driveIds: readonly number[]): Promise<Map<number, string>> {
  allow(ctx, 'readDriveHosts');
  const rows = await ctx.db.rows<{ id: number; host: string | null }>(
    sql`SELECT d.id, ${hostOfDrive} AS host FROM drive d WHERE d.id = ANY(${driveIds}::int[])`,
  );
  return new Map(rows.flatMap(({ id, host }) => (host === null ? [] : [[id, host] as const])));
}

/** Number of users that are listed for each drive. */
const MAX_DRIVE_USERS = 10;

/**
 * Returns the users for whom drives are reading files, by the name of the drive. Omits users whom the caller may not
 * see, and drives without such users.
 */
export async function readDriveUsers(ctx: Context, names: readonly string[]): Promise<Map<string, string[]>> {
  const rows = await ctx.db.rows<{ name: string; user: string }>(
    sql`SELECT d.name, u."user" FROM drive d CROSS JOIN LATERAL (
          SELECT DISTINCT q."user" FROM recall c JOIN live_request_file h ON h.file_id = c.file_id JOIN quota q ON q.id = h.quota_id
          WHERE c.drive_id = d.id AND c.state = 'RUNNING' AND ${isVisibleQuota(ctx)} ORDER BY q."user" LIMIT ${MAX_DRIVE_USERS}) u
        WHERE d.name = ANY(${names}::text[]) ORDER BY d.name, u."user"`,
  );
  const users = new Map<string, string[]>();
  for (const { name, user } of rows) users.set(name, [...(users.get(name) ?? []), user]);
  return users;
}
