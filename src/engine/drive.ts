/** The life of one drive in one engine: claim, clean up, and then mount, read and unmount while there is work. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../context.js';
import { messageOf } from '../errors.js';
import { claimDrive, releaseDrive, setMount } from '../operations/drives.js';
import { type QueueSummary, readQueue, readQueues } from '../operations/recall-queue.js';
import { finishRecalls, type RecallOutcome, startRecalls } from '../operations/recalls.js';
import type { MountedVolume, TapeBackend } from '../tape/backend.js';
import { type HeldLease, holdLease } from './lease.js';
import { cleanUp } from './left-behind.js';
import { BATCH_FILES, chooseVolume, takeBatch } from './planner.js';
import { judgeAll, runBatch } from './recall.js';
import type { Waker } from './waker.js';

export interface LeaseOptions {
  engineId: string;
  leaseSeconds: number;
  /** No new work after this. */
  stop: AbortSignal;
  /** Work in hand is given up after this. */
  abort: AbortSignal;
}

export interface DriveOptions extends LeaseOptions {
  /** Drives of the site. */
  count: number;
  /** Rings when there may be work. */
  work: Waker;
}

/** How long a drive without work sleeps when no bell rings: recalls whose pause has ended ring none. */
const IDLE_MS = 1000;

/** Runs until `stop`. Errors of the database or the back end are logged, and the drive starts afresh. */
export async function runDrive(ctx: Context, backend: TapeBackend, options: DriveOptions): Promise<void> {
  while (!options.stop.aborted) {
    try {
      await takeOver(ctx, options);
      await useDrive(ctx, options, options.count, (lease) => workDrive(ctx, backend, lease, options));
    } catch (error) {
      ctx.log.error({ err: error }, `drive: ${messageOf(error)}`);
    }
    await sleep(IDLE_MS, undefined, { signal: options.stop }).catch(() => {}); // woken by the stop
  }
}

/** Puts in order what drives of dead engines left, also of drives that the site does not have any more. */
export async function takeOver(ctx: Context, options: LeaseOptions): Promise<void> {
  while (!options.stop.aborted && (await useDrive(ctx, options, 0, async () => {})));
}

/** Claims a drive, puts it in order, uses it and gives it back. @returns false when none can be claimed */
async function useDrive(
  ctx: Context,
  options: LeaseOptions,
  count: number,
  use: (lease: HeldLease) => Promise<void>,
): Promise<boolean> {
  const { engineId, leaseSeconds } = options;
  const claimed = await claimDrive(ctx, { engineId, count, leaseSeconds });
  if (!claimed) return false;
  const lease = holdLease(ctx, claimed, { leaseSeconds, stop: options.abort });
  try {
    await cleanUp(ctx, lease);
    await use(lease);
  } finally {
    lease.letGo();
    await releaseDrive(ctx, claimed);
  }
  return true;
}

async function workDrive(ctx: Context, backend: TapeBackend, lease: HeldLease, options: DriveOptions): Promise<void> {
  const stop = AbortSignal.any([options.stop, lease.signal]);
  while (!stop.aborted) {
    const seen = options.work.count;
    const queue = chooseVolume(await readQueues(ctx));
    if (queue && (await setMount(ctx, lease, queue.volumeId))) {
      await workVolume(ctx, backend, lease, queue, options);
      await setMount(ctx, lease, null);
    } else await options.work.wait(seen, IDLE_MS, stop);
  }
}

function toReturned({ fileId }: { fileId: bigint }): RecallOutcome {
  return { fileId, kind: 'returned' };
}

/** Reads what is queued for a volume, in order of position, and what joins the queue meanwhile. */
async function workVolume(
  ctx: Context,
  backend: TapeBackend,
  lease: HeldLease,
  queue: QueueSummary,
  options: DriveOptions,
): Promise<void> {
  let volume: MountedVolume | undefined;
  let head = 0n;
  // the outcomes of a batch are written down, in order, while the next one is read
  let finishing: Promise<unknown> = Promise.resolve();
  const report = (outcomes: RecallOutcome[]) => {
    finishing = finishing.then(() => finishRecalls(ctx, lease, outcomes));
    finishing.catch(() => {}); // awaited below
  };
  let hasStarted = true;
  try {
    while (!options.stop.aborted && !lease.signal.aborted) {
      const next = await readQueue(ctx, { volumeId: queue.volumeId, from: head, limit: BATCH_FILES });
      if (next.length === 0 && head === 0n) break;
      if (next.length === 0) {
        if (!hasStarted) break; // what is left cannot start now
        head = 0n; // what joined behind the head
        hasStarted = false;
        continue;
      }
      const chosen = takeBatch(next);
      const batch = await startRecalls(
        ctx,
        lease,
        chosen.map((recall) => recall.fileId),
      );
      head = (chosen.at(-1)?.position ?? 0n) + 1n;
      if (batch.length === 0) continue;
      hasStarted = true;
      const before = finishing;
      try {
        volume ??= await backend.mount(queue.volume, lease.driveName, lease.signal);
        await runBatch(ctx, lease, volume, batch, report);
      } catch (error) {
        // what has been reported already is not touched by this
        report(lease.signal.aborted ? batch.map(toReturned) : judgeAll(ctx, batch, error));
      }
      await before;
    }
  } finally {
    await volume?.unmount();
    await finishing;
  }
}
