/**
 * Drives and their leases. A drive belongs to one engine at a time, which renews its lease while it lives; the epoch
 * grows with each claim, and whatever an earlier holder still writes carries an old epoch and changes nothing.
 * Leases are timed by the database's clock, since engines may run on several hosts.
 *
 * A database that has lost its last transactions (a standby that took over, a backup) knows nothing of claims that engines
 * still go by. No epoch of theirs is given again: an epoch is the time of the claim, which has passed, as long as the
 * clock of the database that goes on is not behind that of the claim. Where it is, the engine's id still tells who has the drive.
 */

import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { codeOf } from '../../errors.js';
import type { Prisma } from '../../generated/prisma/client.js';
import { isClaimed } from '../conditions.js';
import { FIRST_LIBRARY } from '../libraries/libraries.js';
import { countRows, type KeyPage, readPageRows } from '../page-keys.js';
import { allow } from '../policy.js';

/** A claimed drive. */
export interface Lease {
  driveId: number;
  driveName: string;
  /** Of which volumes it mounts. */
  libraryId: number;
  engineId: string;
  epoch: bigint;
  /** How often it could not be used, one time after another, when it was claimed. */
  failures: number;
}

/** The drive `d` is held under the lease. */
export function isHeldUnder({ driveId, epoch, engineId }: Pick<Lease, 'driveId' | 'epoch' | 'engineId'>): Sql {
  return sql`(d.id = ${driveId} AND d.epoch = ${epoch} AND d.engine_id = ${engineId}::uuid)`;
}

const UNIQUE_VIOLATION = '23505';

/** In order of their ids: counted, or by the page. */
export function listDrives(ctx: Context) {
  allow(ctx, 'listDrives');
  const rows = sql`drive d WHERE true`;
  return {
    count: () => countRows(ctx, { rows }),
    page: (page: KeyPage<number>, query: Pick<Prisma.DriveFindManyArgs, 'include' | 'select'>) =>
      readPageRows(ctx, { rows, id: sql`d.id`, key: sql`d.id` }, page, (ids: number[]) => {
        const where = { id: { in: ids } };
        return ctx.db.prisma.drive.findMany({ ...(query as object), where, orderBy: { id: 'asc' } });
      }),
  };
}

/** By the ids of the drives. */
export async function readClaimed(ctx: Context, ids: readonly number[]): Promise<Map<number, boolean>> {
  const { rows } = await ctx.db.pool.query<{ id: number; isClaimed: boolean }>(
    sql`SELECT d.id, ${isClaimed} AS "isClaimed" FROM drive d WHERE d.id = ANY(${ids}::int[])`,
  );
  return new Map(rows.map((drive) => [drive.id, drive.isClaimed]));
}

/** Those of a library that an engine works with. */
export interface DriveRange {
  /** Of the library. */
  id: number;
  name: string;
  /** Drives 1 to so many. */
  drives: number;
}

/** What the names of a library's drives begin with, before their numbers. */
export function drivePrefix({ id, name }: Pick<DriveRange, 'id' | 'name'>): string {
  return id === FIRST_LIBRARY ? 'drive-' : `${name}-`;
}

/** Makes sure that the first library has drives 1 to `count`. */
export async function ensureDrives(ctx: Context, count: number): Promise<void> {
  await ctx.db.pool.query(
    sql`INSERT INTO drive (name) SELECT 'drive-' || n FROM generate_series(1, ${count}::int) AS n ON CONFLICT (name) DO NOTHING`,
  );
}

/**
 * Claims a drive that nobody holds or whose holder is gone; of two engines that try at once, each gets another one.
 * @param claim.of which drives may be claimed; unless given, any from a holder that is gone or has left recalls running
 * @param claim.except drives that the engine holds: one that has woken from a long sleep renews its leases
 */
export async function claimDrive(
  ctx: Context,
  claim: { engineId: string; of?: DriveRange | undefined; leaseSeconds: number; except?: readonly number[] },
): Promise<Lease | undefined> {
  const { of } = claim;
  const isOfSite = of
    ? sql`(d.library_id = ${of.id}::int AND d.name IN (SELECT ${drivePrefix(of)} || n FROM generate_series(1, ${of.drives}::int) AS n))`
    : sql`false`;
  const { rows } = await ctx.db.pool.query<Omit<Lease, 'engineId'>>(
    sql`UPDATE drive SET engine_id = ${claim.engineId}, volume_id = NULL, rate = NULL,
       epoch = greatest(epoch + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
       lease_until = timezone('utc', clock_timestamp()) + make_interval(secs => ${claim.leaseSeconds})
     WHERE id = (
       SELECT d.id FROM drive d
       WHERE d.id <> ALL(${claim.except ?? []}::int[]) AND (${of === undefined} OR ${isOfSite})
         AND (d.lease_until < timezone('utc', clock_timestamp())
           -- a start that its engine did not wait for was committed after the drive was given back
           OR (d.engine_id IS NULL AND (${isOfSite} OR EXISTS (
             SELECT FROM recall c WHERE c.drive_id = d.id AND c.state = 'RUNNING'))))
       ORDER BY d.id LIMIT 1 ${locking.freeDrive})
     RETURNING id AS "driveId", name AS "driveName", library_id AS "libraryId", epoch, failures`,
  );
  return rows[0] && { ...rows[0], engineId: claim.engineId };
}

/**
 * Renews a lease, and notes how fast the drive reads, in bytes a second; an expired one too as long as nobody has taken the drive. Waits for no lock: neither for a start
 * (`locking.driveKept`) nor, where somebody else has the row, for that one's end.
 * @returns `lost` when another engine has, or had, the drive; `busy` when its row is locked, and it may be tried again
 */
export async function renewLease(
  ctx: Context,
  lease: Lease,
  leaseSeconds: number,
  rate = 0,
): Promise<'renewed' | 'busy' | 'lost'> {
  const { rows } = await ctx.db.vitalPool.query<{ answer: 'renewed' | 'busy' | 'lost' }>(
    sql`WITH renewed AS (
       UPDATE drive SET rate = ${rate}::float8, lease_until = timezone('utc', clock_timestamp()) + make_interval(secs => ${leaseSeconds})
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
 * Gives the drive back; does nothing when the lease is lost. Where an error left recalls running, the lease only runs
 * out, so that whoever comes next puts them in order.
 */
export async function giveBackDrive(ctx: Context, lease: Lease): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE drive d SET engine_id = NULL, volume_id = NULL, rate = NULL, lease_until = CASE
       WHEN EXISTS (SELECT FROM recall c WHERE c.drive_id = d.id AND c.state = 'RUNNING') THEN timezone('utc', clock_timestamp())
     END WHERE ${isHeldUnder(lease)}`,
  );
}

/**
 * Notes which volume the drive has mounted, or none.
 * @returns false when another drive has it, or the lease is lost
 */
export async function setMount(ctx: Context, lease: Lease, volumeId: number | null): Promise<boolean> {
  try {
    const { rowCount } = await ctx.db.pool.query(
      sql`UPDATE drive d SET volume_id = ${volumeId} WHERE ${isHeldUnder(lease)}`,
    );
    return rowCount === 1;
  } catch (error) {
    if (codeOf(error) === UNIQUE_VIOLATION) return false;
    throw error;
  }
}

/** The drive could not be used. @returns how often by now, one time after another; undefined when the lease is lost */
export async function countDriveFailure(ctx: Context, lease: Lease): Promise<number | undefined> {
  const { rows } = await ctx.db.pool.query<{ failures: number }>(
    sql`UPDATE drive d SET failures = d.failures + 1 WHERE ${isHeldUnder(lease)} RETURNING d.failures`,
  );
  return rows[0]?.failures;
}

/** It was used. */
export async function forgetDriveFailures(ctx: Context, lease: Lease): Promise<void> {
  await ctx.db.pool.query(sql`UPDATE drive d SET failures = 0 WHERE ${isHeldUnder(lease)}`);
}
