/** A drive's visit to a volume, from the note that it is mounted there to the note that it is not. */
import type { Context } from '../../context.js';
import { isExhausted, logFailure, messageOf, oneLine, UnavailableError } from '../../errors.js';
import { closeCircuit, countFailures, openCircuit } from '../../operations/health/circuits.js';
import { setMount } from '../../operations/recalls/drives.js';
import { DriveError, LibraryError } from '../../tape/backend.js';
import { addSeconds } from '../../time.js';
import type { HeldLease } from './lease.js';
import { breakdownPauseSeconds } from './retry.js';

/**
 * What `use` throws is nobody's fault that is known, and would be thrown again: it counts against the volume, so that
 * the drive turns to others first, and to this one after a pause that grows.
 * @param use returns whether it has read anything, which ends the count
 * @returns what it returned; nothing where another drive has the volume, or the lease is lost
 */
export async function visitVolume(
  ctx: Context,
  lease: HeldLease,
  { volumeId, stop }: { volumeId: number; stop: AbortSignal },
  use: () => Promise<boolean>,
): Promise<boolean | undefined> {
  if (!(await setMount(ctx, lease, volumeId))) return undefined;
  let hasRead: boolean;
  try {
    hasRead = await use();
  } catch (error) {
    const isAway = error instanceof UnavailableError && error.kind === 'away';
    const isElse = error instanceof DriveError || error instanceof LibraryError; // of which the volume is none
    if (!stop.aborted && !isAway && !isElse && !isExhausted(error)) await countBreakdown(ctx, volumeId, error);
    throw error; // the drive is given back, and whoever has it next puts in order what was in hand
  }
  if (hasRead) await closeCircuit(ctx, { of: 'volume', id: volumeId });
  await setMount(ctx, lease, null);
  return hasRead;
}

/** Never rejects: what is thrown is what broke the visit. */
async function countBreakdown(ctx: Context, volumeId: number, thrown: unknown): Promise<void> {
  const random = Math.random();
  try {
    const circuit = { of: 'volume', id: volumeId } as const;
    const until = addSeconds(ctx.now(), breakdownPauseSeconds(await countFailures(ctx, circuit), random));
    await openCircuit(ctx, circuit, { until, problem: oneLine(messageOf(thrown)) });
  } catch (error) {
    logFailure(ctx.log, error, 'drive');
  }
}
