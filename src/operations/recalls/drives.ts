/**
 * Drives and their leases. A drive belongs to one engine at a time, which renews its lease while it lives; the epoch
 * grows with each claim, and whatever an earlier holder still writes carries an old epoch and changes nothing.
 * Leases are timed by the database's clock, since engines may run on several hosts.
 */
import type { Context } from '../../context.js';
import { codeOf } from '../../errors.js';

/** A claimed drive. */
export interface Lease {
  driveId: number;
  driveName: string;
  engineId: string;
  epoch: bigint;
}

const UNIQUE_VIOLATION = '23505';

/** Makes sure that there are drives 1 to `count`. */
export async function ensureDrives(ctx: Context, count: number): Promise<void> {
  await ctx.db.pool.query(
    `INSERT INTO drive (name) SELECT 'drive-' || n FROM generate_series(1, $1::int) AS n ON CONFLICT (name) DO NOTHING`,
    [count],
  );
}

/**
 * Claims a drive that nobody holds or whose holder is gone; of two engines that try at once, each gets another one.
 * @param count drives 1 to `count` may be claimed, and any drive from a holder that is gone
 */
export async function claimDrive(
  ctx: Context,
  claim: { engineId: string; count: number; leaseSeconds: number },
): Promise<Lease | undefined> {
  const { rows } = await ctx.db.pool.query<Omit<Lease, 'engineId'>>(
    `UPDATE drive SET engine_id = $1, epoch = epoch + 1, volume_id = NULL,
       lease_until = timezone('utc', clock_timestamp()) + make_interval(secs => $3)
     WHERE id = (
       SELECT id FROM drive
       WHERE lease_until < timezone('utc', clock_timestamp())
         OR (engine_id IS NULL AND name IN (SELECT 'drive-' || n FROM generate_series(1, $2::int) AS n))
       ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
     RETURNING id AS "driveId", name AS "driveName", epoch`,
    [claim.engineId, claim.count, claim.leaseSeconds],
  );
  return rows[0] && { ...rows[0], engineId: claim.engineId };
}

/** @returns false when the lease is lost: another engine has the drive, or may have it at any time */
export async function renewLease(ctx: Context, lease: Lease, leaseSeconds: number): Promise<boolean> {
  const { rowCount } = await ctx.db.vitalPool.query(
    `UPDATE drive SET lease_until = timezone('utc', clock_timestamp()) + make_interval(secs => $3)
     WHERE id = $1 AND epoch = $2 AND lease_until >= timezone('utc', clock_timestamp())`,
    [lease.driveId, lease.epoch, leaseSeconds],
  );
  return rowCount === 1;
}

/**
 * Gives the drive back; does nothing when the lease is lost. Where an error left recalls running, the lease only runs
 * out, so that whoever comes next puts them in order.
 */
export async function releaseDrive(ctx: Context, lease: Lease): Promise<void> {
  await ctx.db.pool.query(
    `UPDATE drive d SET engine_id = NULL, volume_id = NULL, lease_until = CASE
       WHEN EXISTS (SELECT FROM recall c WHERE c.drive_id = d.id AND c.state = 'RUNNING') THEN timezone('utc', clock_timestamp())
     END WHERE id = $1 AND epoch = $2`,
    [lease.driveId, lease.epoch],
  );
}

/**
 * Notes which volume the drive has mounted, or none.
 * @returns false when another drive has it, or the lease is lost
 */
export async function setMount(ctx: Context, lease: Lease, volumeId: number | null): Promise<boolean> {
  try {
    const { rowCount } = await ctx.db.pool.query('UPDATE drive SET volume_id = $3 WHERE id = $1 AND epoch = $2', [
      lease.driveId,
      lease.epoch,
      volumeId,
    ]);
    return rowCount === 1;
  } catch (error) {
    if (codeOf(error) === UNIQUE_VIOLATION) return false;
    throw error;
  }
}
