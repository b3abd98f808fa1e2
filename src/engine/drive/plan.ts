/** The plan of a mounted volume: which files are read next, in which order and for whom, and when it is time to leave. */
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

/** How often a plan is made anew at most, while files go on arriving or other users wait. */
const REPLAN_MS = 5000;

/** Empty until `renew`. Made when the drive turns to the volume, from when on its time there counts. */
export class VolumePlan {
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private readonly volume: WaitingVolume;
  /** Seconds. */
  private readonly since: number;
  private recalls: QueuedRecall[] = [];
  private sweep: Sweep | undefined;
  private madeAt = 0;
  /** Byte of the volume at which the drive stands when all is read that was taken. */
  private head = 0;
  private batchFiles: number | undefined;

  constructor(ctx: Context, lease: HeldLease, volume: WaitingVolume) {
    this.ctx = ctx;
    this.lease = lease;
    this.volume = volume;
    this.since = secondsOf(ctx.now());
  }

  /** Nothing is left of it. */
  get isEmpty(): boolean {
    return this.recalls.length === 0;
  }

  /** It is to be made anew before more of it is taken. */
  get isOver(): boolean {
    return this.isEmpty || performance.now() - this.madeAt >= REPLAN_MS;
  }

  /** Makes it anew. Empty afterwards: the volume has no work, or it is time for another one. */
  async renew(): Promise<void> {
    this.recalls = await this.chooseRecalls();
    this.madeAt = performance.now();
  }

  /** Takes the files of the next batch out of it. */
  takeFiles(): bigint[] {
    const taken = takeBatch(this.recalls, this.batchFiles);
    this.recalls = this.recalls.slice(taken.length);
    const last = taken.findLast(({ start }) => start !== null);
    if (last) this.head = Number(last.start) + Number(last.size);
    return taken.map(({ fileId }) => fileId);
  }

  /** Learns from a batch how many files make up the next one. */
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
