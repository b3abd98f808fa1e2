/**
 * Plans which files a drive reads next, in which order, and for which users. Also plans when the drive unmounts the
 * volume.
 */

import { secondsOf } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import { isSuspended } from '../../domain/health/suspensions.js';
import { readShares } from '../../domain/quotas/shares.js';
import { readQueues, readVolumeQueue } from '../../domain/recalls/queue.js';
import {
  batchFilesAfter,
  groupByVolume,
  orderRecalls,
  type QueuedRecall,
  takeBatch,
  type WaitingVolume,
} from '../../planner/queue.js';
import {
  chooseSweep,
  defaultPolicy,
  isTimeToLeave,
  mustStay,
  openBacklog,
  type ScheduleState,
  type Sweep,
} from '../../planner/schedule.js';
import type { HeldLease } from './lease.js';

interface PlannedFile {
  fileId: bigint;
  size: bigint;
}

/** The files that a drive will read, in read order. A new plan is empty until `renew` is called. */
export class ReadPlan<F extends PlannedFile> {
  private readonly renewMs: number;
  private readonly choose: () => Promise<F[]>;
  private readonly onBatch: (files: readonly F[]) => void;
  private files: F[] = [];
  private madeAt = 0;
  private batchFiles: number | undefined;

  /**
   * @param renewMs milliseconds after which a plan is renewed, so that it includes new files
   * @param choose function that returns the plan's files, in read order
   * @param onBatch function that is called with the files in each batch
   */
  constructor(renewMs: number, choose: () => Promise<F[]>, onBatch: (files: readonly F[]) => void = () => {}) {
    this.renewMs = renewMs;
    this.choose = choose;
    this.onBatch = onBatch;
  }

  get isEmpty(): boolean {
    return this.files.length === 0;
  }

  get isDue(): boolean {
    return this.isEmpty || performance.now() - this.madeAt >= this.renewMs;
  }

  /**
   * Chooses the plan's files again. The plan stays empty if no file is waiting, or if the drive should mount another
   * volume.
   */
  async renew(): Promise<void> {
    this.files = await this.choose();
    this.madeAt = performance.now();
  }

  takeFiles(): bigint[] {
    const taken = takeBatch(this.files, this.batchFiles);
    this.files = this.files.slice(taken.length);
    this.onBatch(taken);
    return taken.map(({ fileId }) => fileId);
  }

  adaptBatchSize(files: number, seconds: number): void {
    this.batchFiles = batchFilesAfter(files, seconds);
  }

  drop(): void {
    this.files = [];
  }
}

export type AnyPlan = Pick<ReadPlan<PlannedFile>, keyof ReadPlan<PlannedFile>>;

const RENEW_MS = 5000;

/** Returns the plan for a mounted volume. The volume's maximum mount time begins with this call. */
export function planVolume(ctx: Context, lease: HeldLease, { volumeId }: WaitingVolume): AnyPlan {
  const since = secondsOf(ctx.now());
  let sweep: Sweep | undefined;
  let head = 0; // current position of the drive on the volume, in bytes
  const moveHead = (files: readonly QueuedRecall[]) => {
    const last = files.findLast(({ start }) => start !== null);
    if (last) head = Number(last.start) + Number(last.size);
  };
  const others = new OtherVolumes(ctx, lease);
  const chooseRecalls = async () => {
    if (await isSuspended(ctx, lease)) return [];
    const { libraryId } = lease;
    const [current] = groupByVolume(await readQueues(ctx, { libraryId, volumeId }));
    if (!current) return [];
    const state = { shares: await readShares(ctx), now: secondsOf(ctx.now()), policy: defaultPolicy };
    if (await others.areDue({ since, medium: current.medium, here: current.users }, state)) return [];
    sweep = chooseSweep(current, state, sweep);
    const recalls = await readVolumeQueue(ctx, { volumeId, users: [...sweep.users] });
    return orderRecalls(current.medium, head, recalls);
  };
  return new ReadPlan<QueuedRecall>(RENEW_MS, chooseRecalls, moveHead);
}

/** Multiple of the time that a read of the whole queue takes, during which a drive does not read the queue again. */
const PAUSE_FACTOR = 20;

/**
 * Finds out whether a drive should leave its volume for others. Reads the queues of the other volumes only when the
 * drive may leave, because a read of a large queue takes seconds.
 */
class OtherVolumes {
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private nextAt = 0;

  constructor(ctx: Context, lease: HeldLease) {
    this.ctx = ctx;
    this.lease = lease;
  }

  async areDue(mounted: Parameters<typeof mustStay>[0], state: ScheduleState): Promise<boolean> {
    const startedAt = performance.now();
    if (mustStay(mounted, state) || startedAt < this.nextAt) return false;
    const volumes = groupByVolume(await readQueues(this.ctx, this.lease));
    const others = openBacklog(
      volumes.filter((volume) => !volume.isMounted),
      state,
    );
    if (isTimeToLeave(mounted, others, state)) return true;
    const endedAt = performance.now();
    this.nextAt = endedAt + (endedAt - startedAt) * PAUSE_FACTOR;
    return false;
  }
}
