/** Suspends and retries failing drives. The pause before a retry grows until the drive has read a volume. */

import type { ErrorClass } from '../../core/errors.js';
import { addSeconds } from '../../core/time.js';
import { sql } from '../../db/sql.js';
import { isHeldUnder } from '../conditions.js';
import type { Context } from '../context.js';
import { trialSeconds } from './circuits.js';
import { suspendFailing } from './suspensions.js';

/**
 * Number of consecutive failures after which a drive is not retried, if the error is likely to be permanent. Further
 * attempts might damage cartridges. Only an operator can then resume the drive.
 */
const MAX_TRIALS = 3;
const LASTING: readonly ErrorClass[] = ['MEDIA', 'POLICY', 'PERMANENT'];

interface DriveClaim {
  driveId: number;
  driveName: string;
  engineId: string;
  epoch: bigint;
}

/**
 * Counts a failure, and suspends the drive until the next attempt. Does nothing if the engine has lost the lease on the
 * drive.
 */
export async function suspendFailingDrive(
  ctx: Context,
  lease: DriveClaim,
  { errorClass, error: problem }: { errorClass: ErrorClass; error: string },
): Promise<void> {
  const failures = await countFailure(ctx, lease);
  if (failures === undefined) return;
  const isFinal = LASTING.includes(errorClass) && failures >= MAX_TRIALS;
  const retryAt = isFinal ? null : addSeconds(ctx.now(), trialSeconds(failures - 1));
  await suspendFailing(ctx, { kind: 'DRIVE', name: lease.driveName }, { problem, retryAt });
}

async function countFailure(ctx: Context, lease: DriveClaim): Promise<number | undefined> {
  const rows = await ctx.db.rows<{ failures: number }>(
    sql`UPDATE drive d SET failures = d.failures + 1 WHERE ${isHeldUnder(lease)} RETURNING d.failures`,
  );
  return rows[0]?.failures;
}

export async function resetDriveFailures(ctx: Context, lease: DriveClaim): Promise<void> {
  await ctx.db.pool.query(sql`UPDATE drive d SET failures = 0 WHERE ${isHeldUnder(lease)}`);
}
