/** Compares tape copies with the catalogue while a drive is idle. */

import { isExhausted } from '../../core/errors.js';
import { addSeconds } from '../../core/time.js';
import {
  endVerification,
  findUnconfirmed,
  readUnconfirmed,
  type UnconfirmedCopy,
  type UnconfirmedVolume,
  type VerificationFailure,
} from '../../domain/catalogue/verifications.js';
import type { Context } from '../../domain/context.js';
import { isSuspended } from '../../domain/health/suspensions.js';
import { hasReadyRecalls } from '../../domain/recalls/queue.js';
import { type Mismatch, readChecked } from '../../restore-area/checksum.js';
import { DriveError, type DriveLibrary, isRefusal, type MountedVolume, VolumeError } from '../../tape/drive-library.js';
import { recordSuccess, recordVolumeFailure, type VolumeFailures, visitVolume } from './drive-failures.js';
import type { HeldLease } from './lease.js';
import { classifyError, EXHAUSTED_PAUSE_SECONDS, pauseSeconds } from './retry.js';

const PAGE = 100;

/**
 * Verifies a volume's tape copies that were never verified. Stops after the current copy if a recall is waiting.
 * @param how.failures counter of failed mounts, which are not recorded as tape copy errors
 * @returns false if a recall needs the drive, or if no tape copies remain to verify
 * @throws DriveError, LibraryError
 */
export async function verifyNext(
  ctx: Context,
  library: DriveLibrary,
  lease: HeldLease,
  how: { stop: AbortSignal; failures: VolumeFailures },
): Promise<boolean> {
  const { stop, failures } = how;
  if (failures.isLibraryPaused) return false;
  const volume = await findUnconfirmed(ctx, lease.libraryId, failures.pausedAt(ctx.now()));
  if (!volume) return false;
  const { volumeId } = volume;
  let hasRead = false;
  await visitVolume(ctx, lease, { volumeId, stop }, async () => {
    hasRead = await verifyVolume(ctx, library, lease, { volume, ...how });
    return true;
  });
  return hasRead;
}

async function verifyVolume(
  ctx: Context,
  library: DriveLibrary,
  lease: HeldLease,
  { volume, stop, failures }: { volume: UnconfirmedVolume; stop: AbortSignal; failures: VolumeFailures },
): Promise<boolean> {
  let mounted: MountedVolume | undefined;
  let hasRead = false;
  try {
    for (let after: UnconfirmedCopy | undefined; ; ) {
      const copies = await readUnconfirmed(ctx, { volumeId: volume.volumeId, after, limit: PAGE });
      for (const copy of copies) {
        if (stop.aborted || (await hasReadyRecalls(ctx, lease)) || (await isSuspended(ctx, lease))) return hasRead;
        hasRead = true;
        let failure: VerificationFailure | undefined;
        try {
          mounted ??= await library.mount(volume.volume, lease.driveName, lease.signal);
          await readChecked(mounted, copy, { signal: lease.signal, describe: describeMismatch });
        } catch (error) {
          if (lease.signal.aborted) return hasRead;
          if (error instanceof DriveError || isRefusal(error)) throw error;
          if (!mounted || error instanceof VolumeError) {
            await recordVolumeFailure(ctx, lease, { ...volume, failures }, error);
            return hasRead;
          }
          failure = explainFailure(ctx, copy, error);
        }
        await endVerification(ctx, { ...copy, volumeId: volume.volumeId }, failure);
        failures.succeeded(volume.volume);
        if (!failure) await recordSuccess(ctx, lease);
      }
      if (copies.length < PAGE) return hasRead;
      after = copies.at(-1);
    }
  } finally {
    await mounted?.unmount();
  }
}

export function describeMismatch({ kind, found, expected }: Mismatch): string {
  if (found === 'more') return `the tape copy is larger than the ${expected} bytes in the catalogue`;
  const unit = kind === 'size' ? ' bytes' : '';
  return `the ${kind} of the tape copy is ${found}${unit}, but the catalogue says ${expected}${unit}`;
}

/** Logs a failed verification. @returns the error to record, and when to verify the tape copy again */
export function explainFailure(
  ctx: Context,
  copy: Pick<UnconfirmedCopy, 'path' | 'attempts'>,
  thrown: unknown,
): VerificationFailure {
  const { errorClass, error } = classifyError(thrown);
  const isTry = !isExhausted(thrown); // an error about too many open files says nothing about the tape copy
  const pause = isTry ? pauseSeconds(errorClass, copy.attempts, Math.random()) : EXHAUSTED_PAUSE_SECONDS;
  ctx.log.warn(
    { path: copy.path, errorClass, attempts: copy.attempts + Number(isTry), pause },
    `not confirmed: ${error}`,
  );
  return { errorClass, error, isTry, notBefore: pause === undefined ? undefined : addSeconds(ctx.now(), pause) };
}
