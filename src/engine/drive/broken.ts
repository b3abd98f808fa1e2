/**
 * A drive that cannot be used, as its library has told (DriveError): it is held by itself, with the time of the next try, and what it was
 * to read goes to other drives.
 */
import type { Context } from '../../context.js';
import type { ErrorClass } from '../../errors.js';
import { trialSeconds } from '../../operations/health/circuits.js';
import { countDriveFailure, forgetDriveFailures } from '../../operations/recalls/drives.js';
import { beginTrial, holdFailing, readOpening } from '../../operations/suspensions.js';
import type { DriveError } from '../../tape/backend.js';
import { addSeconds } from '../../time.js';
import type { HeldLease } from './lease.js';
import { classifyError } from './retry.js';

/** What does not pass by itself is tried so often, one time after another, and then left to an operator: it may spoil cartridges. */
const MOST_TRIES = 3;
const LASTING: readonly ErrorClass[] = ['MEDIA', 'POLICY', 'PERMANENT'];

/** Before the drive is given back, so that nobody else walks into it. */
export async function holdBroken(ctx: Context, lease: HeldLease, thrown: DriveError): Promise<void> {
  const failures = await countDriveFailure(ctx, lease);
  if (failures === undefined) return;
  const { errorClass, error: problem } = classifyError(thrown);
  const isLeft = LASTING.includes(errorClass) && failures >= MOST_TRIES;
  const retryAt = isLeft ? null : addSeconds(ctx.now(), trialSeconds(failures - 1));
  await holdFailing(ctx, { kind: 'DRIVE', name: lease.driveName }, { problem, retryAt });
}

/** Returns what `readOpening` says of the drive. A drive whose next try is due is in service again with this. */
export async function openNow(ctx: Context, lease: HeldLease): Promise<{ isQueued: boolean } | undefined> {
  const opening = await readOpening(ctx, lease);
  if (opening) return opening;
  const isTried = await beginTrial(ctx, { kind: 'DRIVE', name: lease.driveName });
  return isTried ? await readOpening(ctx, lease) : undefined;
}

/** A volume was mounted on it, and read. */
export async function noteWorks(ctx: Context, lease: HeldLease): Promise<void> {
  if (lease.failures === 0) return;
  await forgetDriveFailures(ctx, lease);
  lease.failures = 0;
}
