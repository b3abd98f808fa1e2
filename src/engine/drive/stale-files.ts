/**
 * Recovers recalls of a drive's earlier holder. Removes their partial files, so that a stalled engine cannot put them
 * in place any more, and requeues the recalls. Their other files stay recorded: the file's next recall replaces a copy
 * that was put in place and not reported, or a job removes it (restore-area/removal.ts).
 */

import { logFailure, UnavailableError } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import { endStaleFiles, readStaleFiles, type StaleFile } from '../../domain/recalls/ends.js';
import type { FailingDisks } from '../../restore-area/failures.js';
import { partialName, removePartial } from '../../restore-area/partial-file.js';
import { callEach } from '../../restore-area/removal.js';
import type { HeldLease } from './lease.js';

/** Removes the partial files of recalls that earlier holders left running, and requeues the recalls. */
export async function cleanUp(ctx: Context, lease: HeldLease, disks: FailingDisks): Promise<void> {
  const stale = await readStaleFiles(ctx, lease);
  const failing = new Set(stale.filter((recall) => recall.isFailing).map((recall) => recall.diskId));
  await callEach(ctx, disks, { copies: stale, failing, what: 'looked for' }, (recall) =>
    removePartial(recall, partialName({ ...lease, ...recall })),
  );
  const count = stale.length - (await endEach(ctx, lease, stale));
  if (count > 0) ctx.log.warn({ drive: lease.driveName, count }, 'recovered the recalls of an earlier engine');
}

/**
 * Ends all recalls together, or else one by one, so that a failed one delays neither the others nor the drive. The
 * doctor reports it, and the next claim tries again. @returns the number of failures
 */
async function endEach(ctx: Context, lease: HeldLease, stale: readonly StaleFile[]): Promise<number> {
  try {
    await endStaleFiles(ctx, lease, stale);
    return 0;
  } catch (error) {
    if (error instanceof UnavailableError) throw error;
    if (stale.length === 1) {
      const message = `cannot recover a recall of an earlier engine: file ${stale[0]?.fileId}`;
      logFailure(ctx.log, error, message);
      return 1;
    }
  }
  let failed = 0;
  for (const recall of stale) failed += await endEach(ctx, lease, [recall]);
  return failed;
}
