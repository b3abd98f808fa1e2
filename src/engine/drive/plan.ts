/** The plan of a mounted volume: the next files, their order, and when to leave the volume. */
import type { Context } from '../../context.js';
import { readShares } from '../../operations/quotas/shares.js';
import { readQueues, readVolumeQueue } from '../../operations/recalls/queue.js';
import { isSuspended } from '../../operations/suspensions.js';
import {
  batchFilesAfter,
  groupByVolume,
  orderRecalls,
  type QueuedRecall,
  takeBatch,
  type WaitingVolume,
} from '../../planner/queue.js';
import { chooseSweep, defaultPolicy, isTimeToLeave, openBacklog, type Sweep } from '../../planner/schedule.js';
import { secondsOf } from '../../time.js';
import type { HeldLease } from './lease.js';

/** Minimum age of a plan before it is renewed because of new files or waiting users. */
const REPLAN_MS = 5000;

/** Empty until `renew`. Created when the drive visits the volume: its time there counts from then on. */
export class VolumePlan {
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private readonly volume: WaitingVolume;
  /** Seconds. */
  private readonly since: number;
  private recalls: QueuedRecall[] = [];
  private sweep: Sweep | undefined;
  private madeAt = 0;
  /** Byte position of the drive after all taken files are read. */
  private head = 0;
  private batchFiles: number | undefined;

  constructor(ctx: Context, lease: HeldLease, volume: WaitingVolume) {
    this.ctx = ctx;
    this.lease = lease;
    this.volume = volume;
    this.since = secondsOf(ctx.now());
  }

  get isEmpty(): boolean {
    return this.recalls.length === 0;
  }

  /** The plan must be renewed before more files are taken. */
  get isOver(): boolean {
    return this.isEmpty || performance.now() - this.madeAt >= REPLAN_MS;
  }

  /** Renews the plan. It stays empty if the volume has no work, or another volume is due. */
  async renew(): Promise<void> {
    this.recalls = await this.chooseRecalls();
    this.madeAt = performance.now();
  }

  takeFiles(): bigint[] {
    const taken = takeBatch(this.recalls, this.batchFiles);
    this.recalls = this.recalls.slice(taken.length);
    const last = taken.findLast(({ start }) => start !== null);
    if (last) this.head = Number(last.start) + Number(last.size);
    return taken.map(({ fileId }) => fileId);
  }

  /** Adapts the size of the next batch to the speed of this one. */
  noteRead(files: number, seconds: number): void {
    this.batchFiles = batchFilesAfter(files, seconds);
  }

  drop(): void {
    this.recalls = [];
  }

  private async chooseRecalls(): Promise<QueuedRecall[]> {
    if (await isSuspended(this.ctx, this.lease)) return [];
    const volumes = groupByVolume(await readQueues(this.ctx, this.lease));
    const here = volumes.find(({ volumeId }) => volumeId === this.volume.volumeId);
    if (!here) return [];
    const shares = await readShares(this.ctx);
    const state = { shares, now: secondsOf(this.ctx.now()), policy: defaultPolicy };
    const others = volumes.filter((volume) => !volume.isMounted);
    if (isTimeToLeave({ since: this.since, medium: here.medium, here: here.users }, openBacklog(others, state), state))
      return [];
    this.sweep = chooseSweep(here, state, this.sweep);
    const recalls = await readVolumeQueue(this.ctx, { volumeId: here.volumeId, users: [...this.sweep.users] });
    return orderRecalls(here.medium, this.head, recalls);
  }
}
