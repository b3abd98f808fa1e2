/**
 * A drive's visit to one volume. The drive mounts the volume, reads its files in batches until other volumes are due,
 * and unmounts the volume.
 */
import type { Context } from '../../domain/context.js';
import type { RecallOutcome } from '../../domain/recalls/ends.js';
import { sumOf } from '../../planner/backlog.js';
import type { WaitingVolume } from '../../planner/queue.js';
import {
  DriveError,
  type DriveLibrary,
  isRefusal,
  type LibraryError,
  type MountedVolume,
} from '../../tape/drive-library.js';
import { recordSuccess, recordVolumeFailure } from './drive-failures.js';
import type { HeldLease } from './lease.js';
import type { DriveOptions } from './options.js';
import { toReturned } from './outcomes.js';
import { planVolume } from './read-plan.js';
import type { Batch } from './recall.js';
import { BatchReader } from './starts.js';

/** The volume to read. The database already records the volume as mounted. */
export interface VolumeWork {
  volume: WaitingVolume;
  options: DriveOptions;
}

/**
 * Recalls a volume's requested files until no recall can start, other volumes are due, or the drive must stop. Unmounts
 * the volume after all outcomes are written.
 * @returns whether any recall could start
 * @throws DriveError if the drive is unusable; LibraryError if the library refuses to work; database errors; errors
 *   from the plan or the unmount
 */
export async function workVolume(
  ctx: Context,
  library: DriveLibrary,
  lease: HeldLease,
  work: VolumeWork,
): Promise<boolean> {
  const visit = new Visit(ctx, library, lease, work);
  try {
    return await visit.readBatches();
  } finally {
    await visit.leave();
  }
}

class Visit {
  private readonly ctx: Context;
  private readonly library: DriveLibrary;
  private readonly lease: HeldLease;
  private readonly volume: WaitingVolume;
  private readonly options: DriveOptions;
  private readonly reader: BatchReader;
  private mounted: MountedVolume | undefined;
  /** The error after which the drive stops reading, because the drive or the whole library is unusable. */
  private broken: DriveError | LibraryError | undefined;

  constructor(ctx: Context, library: DriveLibrary, lease: HeldLease, { volume, options }: VolumeWork) {
    this.ctx = ctx;
    this.library = library;
    this.lease = lease;
    this.volume = volume;
    this.options = options;
    const plan = planVolume(ctx, lease, volume);
    this.reader = new BatchReader(ctx, lease, plan, { ...options, volume: volume.volume });
  }

  /** @returns whether any recall could start @throws DriveError, LibraryError */
  async readBatches(): Promise<boolean> {
    const hasRead = await this.reader.readAll(
      () => this.broken !== undefined,
      (batch) => this.workBatch(batch),
    );
    if (this.broken) throw this.broken;
    return hasRead;
  }

  async leave(): Promise<void> {
    await this.reader.leave(async () => {
      const { mounted } = this;
      if (mounted) await this.lease.meter.unmount(() => mounted.unmount());
    });
  }

  private async mount(signal: AbortSignal): Promise<MountedVolume> {
    const { volume, medium } = this.volume;
    const { files } = sumOf(this.volume);
    return await this.lease.meter.mount(medium, files, () => this.library.mount(volume, this.lease.driveName, signal));
  }

  private async workBatch(batch: Batch): Promise<void> {
    const { outcomes } = this.reader;
    const judge = this.options.failures.followReads(this.volume.volume, batch.recalls);
    try {
      this.mounted ??= await this.mount(batch.signal);
      await this.readBatch(this.mounted, batch, (ended) => outcomes.report(ended, judge));
    } catch (error) {
      const isMountFailure = this.mounted === undefined;
      // a failed mount does not count as a try, because the file did not cause the failure
      if (isMountFailure) outcomes.report(batch.recalls.map(toReturned));
      else this.reader.giveUp(batch, error, (ended) => outcomes.report(ended));
      batch.end();
      if (isMountFailure && !batch.signal.aborted) await this.recordFailure(error);
    }
  }

  private async readBatch(
    mounted: MountedVolume,
    batch: Batch,
    report: (outcomes: RecallOutcome[]) => void,
  ): Promise<void> {
    const { failure, written } = await this.reader.read(batch, mounted, report);
    if (failure) {
      // requeue the batch's recalls before recording the failure, because a recorded failure postpones only queued
      // recalls
      await written;
      return await this.recordFailure(failure);
    }
    this.options.failures.succeeded(this.volume.volume);
    // a batch that a suspension stopped might have read nothing, so it does not show that the library can be read
    if (!batch.signal.aborted) await recordSuccess(this.ctx, this.lease);
  }

  private async recordFailure(thrown: unknown): Promise<void> {
    await this.reader.giveBackAhead();
    await this.reader.outcomes.written;
    if (thrown instanceof DriveError || isRefusal(thrown)) {
      this.broken = thrown;
      return this.reader.drop();
    }
    await recordVolumeFailure(this.ctx, this.lease, { ...this.volume, failures: this.options.failures }, thrown);
    this.reader.drop();
  }
}
