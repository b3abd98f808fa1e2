/** Recovers recalls that earlier engines left running on a drive. */

import { logFailure, UnavailableError } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import { endStaleFiles, readStaleFiles, type StaleFile } from '../../domain/recalls/ends.js';
import { callEach } from '../../restore-area/copies/removal.js';
import type { FailingDisks } from '../../restore-area/failures.js';
import { partialName, removePartial } from '../../restore-area/partial-file.js';
import type { HeldLease } from './lease.js';

/**
 * Recovers recalls that earlier engines left running on the drive. First removes the recalls' partial files, so that a
 * stalled engine can no longer put copies in place. Then requeues the recalls. Keeps a copy that was put in place but
 * not recorded in the database.
 */
export async function cleanUp(ctx: Context, lease: HeldLease, disks: FailingDisks): Promise<void> {
  const stale = await readStaleFiles(ctx, lease);
  const failing = new Set(stale.filter((recall) => recall.isFailing).map((recall) => recall.diskId));
  await callEach(ctx, disks, { copies: stale, failing, what: 'remove' }, (recall) =>
    removePartial(recall, partialName({ ...lease, ...recall })),
  );
  const count = stale.length - (await endEach(ctx, lease, stale));
  if (count > 0) ctx.log.warn({ drive: lease.driveName, count }, 'recovered the recalls of an earlier engine');
}

/**
 * Requeues all stale recalls in one transaction. If the transaction fails, requeues each recall separately, so that a
 * recall that cannot be requeued does not block the other recalls.
 * @returns the number of recalls that could not be requeued
 */
async function endEach(ctx: Context, lease: HeldLease, stale: readonly StaleFile[]): Promise<number> {
  try {
    await endStaleFiles(ctx, lease, stale);
    return 0;
  } catch (error) {
    if (error instanceof UnavailableError) throw error;
    if (stale.length === 1) {
      const message = `cannot recover the recall of file ${stale[0]?.fileId} that an earlier engine started`;
      logFailure(ctx.log, error, message);
      return 1;
    }
  }
  let failed = 0;
  for (const recall of stale) failed += await endEach(ctx, lease, [recall]);
  return failed;
}
