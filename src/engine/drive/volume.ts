/** One volume in a drive: reads it batch by batch, and leaves it in time. */
import type { Context } from '../../context.js';
import type { RecallOutcome } from '../../operations/recalls/ends.js';
import { postponeVolume } from '../../operations/recalls/queue.js';
import type { RunningRecall } from '../../operations/recalls/starts.js';
import { holdFailing } from '../../operations/suspensions.js';
import type { WaitingVolume } from '../../planner/queue.js';
import { DriveError, LibraryError, type MountedVolume, type TapeBackend } from '../../tape/backend.js';
import { DiskError } from '../disk/failures.js';
import { createBudget } from '../disk/partial-file.js';
import { type Batch, runBatch } from './batch.js';
import { noteWorks } from './drive-failures.js';
import type { HeldLease } from './lease.js';
import type { DriveOptions } from './options.js';
import { VolumePlan } from './plan.js';
import { outcomeOf, toReturned } from './recall.js';
import { BatchStarts, OutcomeWriter } from './starts.js';

/** Work for a drive; the database already records the volume as mounted. */
export interface VolumeWork {
  volume: WaitingVolume;
  options: DriveOptions;
}

/**
 * Reads the requested files of a volume, until none can start, other volumes are due, or the drive must stop.
 * @returns whether any file could start, after all outcomes are written and the volume is unmounted
 * @throws DriveError if the drive is unusable; errors of the database, the plan or the unmount. Recalls that are then
 *   still
 *   RUNNING are left to the drive's next holder
 */
export async function workVolume(
  ctx: Context,
  backend: TapeBackend,
  lease: HeldLease,
  work: VolumeWork,
): Promise<boolean> {
  const visit = new Visit(ctx, backend, lease, work);
  try {
    return await visit.readBatches();
  } finally {
    await visit.leave();
  }
}

class Visit {
  private readonly ctx: Context;
  private readonly backend: TapeBackend;
  private readonly lease: HeldLease;
  private readonly volume: WaitingVolume;
  private readonly options: DriveOptions;
  private readonly plan: VolumePlan;
  private readonly starts: BatchStarts;
  private readonly outcomes: OutcomeWriter;
  private readonly budget = createBudget();
  private mounted: MountedVolume | undefined;
  /** Writes and syncs of the previous batch, while the drive reads the next one. Never rejects. */
  private writing: Promise<unknown> = Promise.resolve();
  /** Shows that the drive is unusable; ends the visit. */
  private broken: DriveError | undefined;

  constructor(ctx: Context, backend: TapeBackend, lease: HeldLease, { volume, options }: VolumeWork) {
    this.ctx = ctx;
    this.backend = backend;
    this.lease = lease;
    this.volume = volume;
    this.options = options;
    this.plan = new VolumePlan(ctx, lease, volume);
    this.starts = new BatchStarts(ctx, lease, this.plan, { ...options, volume: volume.volume });
    this.outcomes = new OutcomeWriter(ctx, lease, volume.volume);
  }

  /** @returns whether there was anything to read @throws DriveError */
  async readBatches(): Promise<boolean> {
    const isStopped = () => this.options.stop.aborted || this.lease.signal.aborted;
    let hasRead = false;
    while (!this.broken && !isStopped() && (await this.starts.hasNext())) {
      const startedAt = performance.now(); // users are charged for waiting for their batch, not for planning
      const batch = await this.starts.takeNext();
      if (batch.recalls.length === 0) batch.end();
      else {
        hasRead = true;
        await this.workBatch(batch, startedAt);
      }
    }
    if (this.broken) throw this.broken;
    return hasRead;
  }

  /** Ends all work of the visit, even on error: another engine may get the drive next. */
  async leave(): Promise<void> {
    try {
      await this.writing; // the last copies are put in place, or discarded if their signals abort
      await this.mounted?.unmount();
      await this.giveBackAhead();
    } finally {
      await this.outcomes.written; // last, because the steps above still report outcomes
    }
  }

  /** Reads one batch while the previous one is written, then waits for that one. Limits the work to two batches. */
  private async workBatch(batch: Batch, startedAt: number): Promise<void> {
    const before = { writing: this.writing, outcomes: this.outcomes.written };
    try {
      await this.readBatch(await this.mount(batch.signal), batch);
    } catch (error) {
      const isMountFailure = this.mounted === undefined;
      // no file is at fault for a failed mount, which does not count as a try
      if (isMountFailure) this.outcomes.report(batch.recalls.map(toReturned));
      else this.giveUp(batch, error);
      batch.end();
      // an aborted mount says nothing about the volume
      if (isMountFailure && !batch.signal.aborted) await this.noteVolumeFailure(error);
    }
    await before.writing;
    await before.outcomes;
    const fileIds = batch.recalls.map(({ fileId }) => fileId);
    this.outcomes.charge(fileIds, (performance.now() - startedAt) / 1000);
  }

  private async mount(signal: AbortSignal): Promise<MountedVolume> {
    this.mounted ??= await this.backend.mount(this.volume.volume, this.lease.driveName, signal);
    return this.mounted;
  }

  /** Returns when all files are read; `writing` continues, and ends the batch. */
  private async readBatch(mounted: MountedVolume, batch: Batch): Promise<void> {
    const judge = this.options.failures.followReads(this.volume.volume, batch.recalls);
    const report = (outcomes: RecallOutcome[]) => this.outcomes.report(outcomes, judge);
    const readAt = performance.now();
    const { disks, links } = this.options;
    const work = { batch, report, budget: this.budget, disks, links, name: this.volume.volume };
    const { written, failure } = await runBatch(this.ctx, this.lease, mounted, work);
    this.writing = written.catch((error: unknown) => this.giveUp(batch, error)).finally(batch.end);
    if (failure) {
      await this.writing; // the returned recalls wait for the next mount too
      return await this.noteVolumeFailure(failure);
    }
    this.options.failures.succeeded(this.volume.volume);
    await noteWorks(this.ctx, this.lease);
    this.plan.noteRead(batch.recalls.length, (performance.now() - readAt) / 1000);
  }

  /** Ends all unreported recalls of the batch the same way. Their progress is unknown: copies may be in place. */
  private giveUp({ recalls, signal }: Batch, error: unknown): void {
    const isNoTry = signal.aborted || error instanceof DiskError; // the affected copies are unknown
    const end = (recall: RunningRecall) => (isNoTry ? toReturned(recall) : outcomeOf(this.ctx, recall, error));
    this.outcomes.report(recalls.map((recall) => ({ ...end(recall), isUnseen: true })));
  }

  private async giveBackAhead(): Promise<void> {
    const unread = await this.starts.takeBack();
    if (unread) this.outcomes.report(unread.map((recall) => toReturned(recall)));
  }

  /** Suspends a volume that keeps failing; until then, all its files wait for the next mount. */
  private async noteVolumeFailure(thrown: unknown): Promise<void> {
    await this.giveBackAhead();
    await this.outcomes.written; // the returned recalls wait too
    if (thrown instanceof DriveError) {
      this.broken = thrown;
      return this.starts.drop();
    }
    const { volume, volumeId } = this.volume;
    const at = { now: this.ctx.now(), random: Math.random() };
    const { errorClass, error, notBefore, holdReason } = this.options.failures.failed(volume, thrown, at);
    if (holdReason !== undefined)
      await holdFailing(this.ctx, { kind: 'VOLUME', name: volume }, { problem: holdReason });
    else if (thrown instanceof LibraryError) this.ctx.log.error({ drive: this.lease.driveName }, error);
    if (notBefore !== undefined) await postponeVolume(this.ctx, volumeId, { errorClass, error, notBefore });
    this.starts.drop();
  }
}
