/** The life of one drive in one engine: claim, clean up, and then mount, read and unmount while there is work. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../context.js';
import { messageOf } from '../errors.js';
import { claimDrive, releaseDrive, setMount } from '../operations/drives.js';
import { type QueueSummary, readQueue, readQueues } from '../operations/recall-queue.js';
import { readLeftBehind, returnLeftBehind } from '../operations/recall-repair.js';
import { finishRecalls, type RecallOutcome, startRecalls } from '../operations/recalls.js';
import type { MountedVolume, TapeBackend } from '../tape/backend.js';
import { type HeldLease, holdLease } from './lease.js';
import { BATCH_FILES, chooseVolume, takeBatch } from './planner.js';
import { judgeAll, runBatch } from './recall.js';
import { partialName, removePartial } from './restore-area.js';
import type { Waker } from './waker.js';

export interface DriveOptions {
  engineId: string;
  /** Drives of the site. */
  count: number;
  leaseSeconds: number;
  /** No new work after this. */
  stop: AbortSignal;
  /** Work in hand is given up after this. */
  abort: AbortSignal;
  /** Rings when there may be work. */
  work: Waker;
}

/** How long a drive without work sleeps when no bell rings: recalls whose pause has ended ring none. */
const IDLE_MS = 1000;

/** Runs until `stop`. Errors of the database or the back end are logged, and the drive starts afresh. */
export async function runDrive(ctx: Context, backend: TapeBackend, options: DriveOptions): Promise<void> {
  while (!options.stop.aborted) {
    try {
      const claimed = await claimDrive(ctx, options);
      if (claimed) {
        const lease = holdLease(ctx, claimed, { leaseSeconds: options.leaseSeconds, stop: options.abort });
        try {
          await cleanUp(ctx, lease);
          await workDrive(ctx, backend, lease, options);
        } finally {
          lease.letGo();
          await releaseDrive(ctx, claimed);
        }
      }
    } catch (error) {
      ctx.log.error({ err: error }, `drive: ${messageOf(error)}`);
    }
    await sleep(IDLE_MS, undefined, { signal: options.stop }).catch(() => {}); // woken by the stop
  }
}

/** Partial files go first, so that an earlier holder that only slept cannot put one in place any more. */
async function cleanUp(ctx: Context, lease: HeldLease): Promise<void> {
  for (const left of await readLeftBehind(ctx, lease)) {
    await removePartial(left, partialName(left.fileId, left.epoch));
  }
  const count = await returnLeftBehind(ctx, lease);
  if (count > 0) ctx.log.warn({ drive: lease.driveName, count }, 'recalls of an engine that is gone are queued again');
}

async function workDrive(ctx: Context, backend: TapeBackend, lease: HeldLease, options: DriveOptions): Promise<void> {
  while (!options.stop.aborted && !lease.signal.aborted) {
    const seen = options.work.count;
    const queue = chooseVolume(await readQueues(ctx));
    if (!queue) await options.work.wait(seen, IDLE_MS, AbortSignal.any([options.stop, lease.signal]));
    else if (await setMount(ctx, lease, queue.volumeId)) {
      await workVolume(ctx, backend, lease, queue, options);
      await setMount(ctx, lease, null);
    }
  }
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
  // the outcomes of a batch are written down while the next one is read
  let finishing: Promise<unknown> = Promise.resolve();
  try {
    while (!options.stop.aborted && !lease.signal.aborted) {
      const next = await readQueue(ctx, { volumeId: queue.volumeId, from: head, limit: BATCH_FILES });
      if (next.length === 0 && head === 0n) break;
      if (next.length === 0) {
        head = 0n; // what joined behind the head
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
      let outcomes: RecallOutcome[];
      try {
        volume ??= await backend.mount(queue.volume, lease.driveName, lease.signal);
        outcomes = await runBatch(ctx, lease, volume, batch);
      } catch (error) {
        outcomes = lease.signal.aborted
          ? batch.map(({ fileId }) => ({ fileId, kind: 'returned' }))
          : judgeAll(ctx, batch, error);
      }
      await finishing;
      finishing = finishRecalls(ctx, lease, outcomes);
      finishing.catch(() => {}); // awaited above or below
    }
  } finally {
    await volume?.unmount();
    await finishing;
  }
}
