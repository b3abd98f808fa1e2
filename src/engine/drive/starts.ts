/**
 * Starts a plan's recalls in batches, reads the files, and records the outcomes. The next batch's recalls are started
 * while a batch is being read, so that the drive does not wait for the database. After a failed write to the database,
 * no further outcomes are written.
 */

import { count } from '../../core/signals.js';
import { isTracing } from '../../core/traces.js';
import type { Context } from '../../domain/context.js';
import { suspendFailing } from '../../domain/health/suspensions.js';
import { chargeDriveTime } from '../../domain/quotas/shares.js';
import { finishRecalls, type RecallOutcome } from '../../domain/recalls/ends.js';
import { readTraceparents } from '../../domain/recalls/queue.js';
import { type RunningRecall, startRecalls } from '../../domain/recalls/starts.js';
import { DiskError } from '../../restore-area/failures.js';
import { createBudget } from '../../restore-area/partial-file.js';
import type { MountedVolume } from '../../tape/drive-library.js';
import type { HeldLease } from './lease.js';
import type { DriveOptions } from './options.js';
import { outcomeOf, toReturned } from './outcomes.js';
import type { AnyPlan } from './read-plan.js';
import { type Batch, runBatch } from './recall.js';
import { countEnded } from './recall-counts.js';

/**
 * `stagedAt` is the id of a staging library; undefined if the drive reads a volume. `volume` is the name of the staging
 * library or of the mounted volume.
 */
type StartOptions = DriveOptions & { stagedAt?: number; volume: string };

/**
 * Writes the outcomes of recalls to the database, in order. The methods only queue the writes, and do not throw. The
 * caller must await `written`.
 */
class OutcomeWriter {
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private readonly volume: string;
  private last: Promise<unknown> = Promise.resolve();

  constructor(ctx: Context, lease: HeldLease, volume: string) {
    this.ctx = ctx;
    this.lease = lease;
    this.volume = volume;
  }

  /**
   * Promise that settles when all queued writes have ended. The promise rejects with the error from the first failed
   * write.
   */
  get written(): Promise<unknown> {
    return this.last;
  }

  /**
   * Queues the outcomes of recalls to be written.
   * @param judge function that receives the written outcomes and returns the reason to suspend the volume, if any. If
   *   an import has changed a file, `judge` receives the outcome `returned` for this file
   */
  report(outcomes: readonly RecallOutcome[], judge?: (outcomes: readonly RecallOutcome[]) => string | undefined): void {
    this.write(async () => {
      const superseded = await finishRecalls(this.ctx, this.lease, outcomes);
      for (const outcome of outcomes) countEnded(this.lease.driveName, outcome, superseded.has(outcome.fileId));
      const problem = judge?.(
        outcomes.map((outcome) =>
          superseded.has(outcome.fileId) ? { fileId: outcome.fileId, kind: 'returned' } : outcome,
        ),
      );
      if (problem !== undefined) await suspendFailing(this.ctx, { kind: 'VOLUME', name: this.volume }, { problem });
    });
  }

  charge(fileIds: readonly bigint[], seconds: number): void {
    count('tapegate_drive_busy_seconds_total', { drive: this.lease.driveName }, seconds);
    this.write(() => chargeDriveTime(this.ctx, { fileIds, seconds }));
  }

  write(write: () => Promise<unknown>): void {
    this.last = this.last.then(write);
    this.last.catch(() => {}); // ignore a failed write here, because `written` rejects with the error
  }
}

/**
 * Reads a plan's files in batches. The drive reads a batch while the copies of the previous batch are still being
 * written and synced.
 */
export class BatchReader {
  readonly outcomes: OutcomeWriter;
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private readonly plan: AnyPlan;
  private readonly options: StartOptions;
  private readonly budget = createBudget();
  /** Settles when the previous batch's copies are written and synced. Never rejects. */
  private writing: Promise<unknown> = Promise.resolve();
  private ahead: Promise<Batch> | undefined;
  /**
   * Whether any recall in the current plan could start. If no recall could start, the plan is not renewed, to prevent
   * an endless loop.
   */
  private hasStarted = true;

  constructor(ctx: Context, lease: HeldLease, plan: AnyPlan, options: StartOptions) {
    this.ctx = ctx;
    this.lease = lease;
    this.plan = plan;
    this.options = options;
    this.outcomes = new OutcomeWriter(ctx, lease, options.volume);
  }

  /**
   * Reads batches until no recall can start, or the drive must stop.
   * @param isOver function that returns whether the drive must stop reading
   * @param readBatch function that must read or end a started batch
   * @returns whether any recall could start
   */
  async readAll(isOver: () => boolean, readBatch: (batch: Batch) => Promise<void>): Promise<boolean> {
    const isStopped = () => isOver() || this.options.stop.aborted || this.lease.signal.aborted;
    let hasRead = false;
    while (!isStopped() && (await this.hasNext())) {
      // charge the batch's users for the time to start and read the batch, but not for the time to plan it
      const startedAt = performance.now();
      const batch = await this.takeNext();
      if (batch.recalls.length === 0) {
        batch.end();
        continue;
      }
      hasRead = true;
      const before = { writing: this.writing, outcomes: this.outcomes.written };
      await readBatch(batch);
      await before.writing;
      await before.outcomes;
      const fileIds = batch.recalls.map(({ fileId }) => fileId);
      this.outcomes.charge(fileIds, (performance.now() - startedAt) / 1000);
    }
    return hasRead;
  }

  /**
   * Reads a batch's files. The returned promise settles when all files are read. The result contains the error that
   * made the volume unreadable (`failure`), and a promise (`written`) that settles when the batch has ended.
   */
  async read(batch: Batch, mounted: MountedVolume, report: Report) {
    const readAt = performance.now();
    const { disks, links, volume: name } = this.options;
    const work = { batch, report, budget: this.budget, disks, links, name };
    const { written, failure } = await runBatch(this.ctx, this.lease, mounted, work);
    const writing = written.catch((error: unknown) => this.giveUp(batch, error, report)).finally(batch.end);
    this.writing = writing;
    if (!failure) this.plan.adaptBatchSize(batch.recalls.length, (performance.now() - readAt) / 1000);
    return { failure, written: writing };
  }

  /**
   * Reports the same outcome for all recalls in a failed batch. Marks the outcomes as uncertain (`isUnseen`), because
   * some copies might be in place.
   */
  giveUp({ recalls, signal }: Batch, error: unknown, report: Report): void {
    // a disk error does not count as a try, because it does not show which copies are affected
    const isNoTry = signal.aborted || error instanceof DiskError;
    const end = (recall: RunningRecall) => (isNoTry ? toReturned(recall) : outcomeOf(this.ctx, recall, error));
    report(recalls.map((recall) => ({ ...end(recall), isUnseen: true })));
  }

  /**
   * Requeues the recalls of a batch that was started but not read. If these recalls stayed RUNNING, no drive would read
   * their files.
   */
  async giveBackAhead(): Promise<void> {
    const batch = await this.takeAhead();
    batch?.end();
    if (batch) this.outcomes.report(batch.recalls.map(toReturned));
  }

  private async hasNext(): Promise<boolean> {
    if (this.ahead || !this.plan.isDue) return true;
    if (this.plan.isEmpty && !this.hasStarted) return false;
    this.hasStarted = false;
    await this.plan.renew();
    return !this.plan.isEmpty;
  }

  /**
   * Returns the next batch, and starts the following batch unless the plan must be renewed. If no recall could start,
   * the returned batch is empty, and the caller must end the batch.
   */
  private async takeNext(): Promise<Batch> {
    const batch = await (this.takeAhead() ?? this.start());
    this.ahead = this.plan.isDue ? undefined : this.start();
    this.ahead?.catch(() => {}); // ignore a failed start here, because the error is thrown when this batch is taken
    if (batch.recalls.length > 0) this.hasStarted = true;
    return batch;
  }

  drop(): void {
    this.plan.drop();
    this.hasStarted = false;
  }

  /**
   * Takes the batch that was started in advance. Each batch can be taken only once, so that the error of a failed start
   * is thrown only once.
   */
  private takeAhead(): Promise<Batch> | undefined {
    const batch = this.ahead;
    this.ahead = undefined;
    return batch;
  }

  /**
   * Starts the recalls of the plan's next files. Takes the files from the plan before the first await, so that a
   * concurrent call takes other files.
   */
  private async start(): Promise<Batch> {
    const since = performance.now();
    const recalls = await startRecalls(this.ctx, this.lease, {
      fileIds: this.plan.takeFiles(),
      measure: (disks) => this.options.gauge.measure(disks),
      stagedAt: this.options.stagedAt,
    });
    count('tapegate_recalls_started_total', { drive: this.lease.driveName }, recalls.length);
    if (recalls.length > 0) this.logStarted(recalls);
    const fileIds = recalls.map(({ fileId }) => fileId);
    const traces = isTracing() ? await readTraceparents(this.ctx, fileIds).catch(() => undefined) : undefined;
    return { recalls, since, traces, ...this.options.running.begin(fileIds, this.lease.signal) };
  }

  private logStarted(recalls: readonly RunningRecall[]): void {
    const at = { drive: this.lease.driveName, volume: this.options.volume };
    const bytes = recalls.reduce((sum, { size }) => sum + size, 0n);
    this.ctx.log.info(
      { ...at, files: recalls.length, bytes: Number(bytes), first: recalls[0]?.path },
      'recalls started',
    );
    if (!this.ctx.log.isLevelEnabled('debug')) return;
    for (const { fileId, path } of recalls) this.ctx.log.debug({ ...at, file: String(fileId), path }, 'recall started');
  }

  /**
   * Ends all work on the volume, even after an error, before another engine can claim the drive.
   * @param unmount function that is called after the last copies are in place or discarded
   */
  async leave(unmount?: () => Promise<void>): Promise<void> {
    try {
      await this.writing;
      await unmount?.();
      await this.giveBackAhead();
    } finally {
      // await the database writes last, because requeueing the recalls queues further writes
      await this.outcomes.written;
    }
  }
}

type Report = (outcomes: RecallOutcome[]) => void;
