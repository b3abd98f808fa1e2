/**
 * Starts the recalls of a plan in batches, reads them, and records their outcomes.
 *
 * Starts the next batch while one is read, so that the drive does not wait for the database. Outcomes are written in
 * order. After a failed write nothing more is written: the drive's next holder recovers recalls that stay RUNNING.
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
import type { AnyPlan } from './plan.js';
import { type Batch, runBatch } from './recall.js';

/** `stagedAt`: id of the staging library, if any; `volume`: name of that library or of the mounted volume. */
type StartOptions = DriveOptions & { stagedAt?: number; volume: string };

/** Writes outcomes in order. No method waits or throws; the caller awaits `written`. */
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

  /** Settles when all reports so far are written; rejects with the first error. */
  get written(): Promise<unknown> {
    return this.last;
  }

  /**
   * @param judge returns why the volume must be suspended, if so. It gets `returned` for files that an import changed
   *   meanwhile, because their outcome says nothing about the volume's current contents
   */
  report(outcomes: readonly RecallOutcome[], judge?: (outcomes: readonly RecallOutcome[]) => string | undefined): void {
    this.write(async () => {
      const superseded = await finishRecalls(this.ctx, this.lease, outcomes);
      for (const outcome of outcomes) this.count(outcome, superseded.has(outcome.fileId));
      const problem = judge?.(
        outcomes.map((outcome) =>
          superseded.has(outcome.fileId) ? { fileId: outcome.fileId, kind: 'returned' } : outcome,
        ),
      );
      if (problem !== undefined) await suspendFailing(this.ctx, { kind: 'VOLUME', name: this.volume }, { problem });
    });
  }

  /** Charges the drive time to the users who requested the files. */
  charge(fileIds: readonly bigint[], seconds: number): void {
    count('tapegate_drive_busy_seconds_total', { drive: this.lease.driveName }, seconds);
    this.write(() => chargeDriveTime(this.ctx, { fileIds, seconds }));
  }

  private count(outcome: RecallOutcome, isSuperseded: boolean): void {
    const ended = isSuperseded ? 'superseded' : outcome.kind;
    const errorClass = 'errorClass' in outcome && !isSuperseded ? outcome.errorClass.toLowerCase() : 'none';
    count('tapegate_recalls_ended_total', { drive: this.lease.driveName, outcome: ended, class: errorClass });
  }

  /** Queues a write before later reports. */
  write(write: () => Promise<unknown>): void {
    this.last = this.last.then(write);
    this.last.catch(() => {}); // `written` rejects with it
  }
}

/** Reads the batches of a plan: reads one while the previous one is written and synced. */
export class BatchReader {
  readonly outcomes: OutcomeWriter;
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private readonly plan: AnyPlan;
  private readonly options: StartOptions;
  private readonly budget = createBudget();
  /** Writes and syncs of the previous batch. Never rejects. */
  private writing: Promise<unknown> = Promise.resolve();
  private ahead: Promise<Batch> | undefined;
  /** Whether a recall of the current plan could start. If none could, the plan is not renewed, to prevent a loop. */
  private hasStarted = true;

  constructor(ctx: Context, lease: HeldLease, plan: AnyPlan, options: StartOptions) {
    this.ctx = ctx;
    this.lease = lease;
    this.plan = plan;
    this.options = options;
    this.outcomes = new OutcomeWriter(ctx, lease, options.volume);
  }

  /**
   * Reads batches until no recall can start, or the drive must stop. After each, waits until the previous one is
   * written.
   * @param readBatch calls `read`, or ends the batch if it fails before
   * @returns whether any recall could start
   */
  async readAll(isOver: () => boolean, readBatch: (batch: Batch) => Promise<void>): Promise<boolean> {
    const isStopped = () => isOver() || this.options.stop.aborted || this.lease.signal.aborted;
    let hasRead = false;
    while (!isStopped() && (await this.hasNext())) {
      const startedAt = performance.now(); // users are charged for waiting for their batch, not for planning
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
   * @returns when all files are read. `failure`: why the volume became unreadable. `written` continues, and ends the
   *   batch
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

  /** Ends all unreported recalls of the batch the same way. Their progress is unknown: copies may be in place. */
  giveUp({ recalls, signal }: Batch, error: unknown, report: Report): void {
    const isNoTry = signal.aborted || error instanceof DiskError; // the affected copies are unknown
    const end = (recall: RunningRecall) => (isNoTry ? toReturned(recall) : outcomeOf(this.ctx, recall, error));
    report(recalls.map((recall) => ({ ...end(recall), isUnseen: true })));
  }

  /** Requeues recalls that were started ahead: they are RUNNING, and no other drive reads them. */
  async giveBackAhead(): Promise<void> {
    const batch = await this.takeAhead();
    batch?.end();
    if (batch) this.outcomes.report(batch.recalls.map(toReturned));
  }

  /** Whether there is another batch. Renews the plan if due; a batch started ahead is read first. */
  private async hasNext(): Promise<boolean> {
    if (this.ahead || !this.plan.isDue) return true;
    if (this.plan.isEmpty && !this.hasStarted) return false; // the remaining files cannot start now
    this.hasStarted = false;
    await this.plan.renew();
    return !this.plan.isEmpty;
  }

  /**
   * Returns the next batch, which the caller must end; empty if no recall could start. Starts the following one if due.
   */
  private async takeNext(): Promise<Batch> {
    const batch = await (this.takeAhead() ?? this.start());
    this.ahead = this.plan.isDue ? undefined : this.start();
    this.ahead?.catch(() => {}); // the next `takeNext` or `giveBackAhead` throws it
    if (batch.recalls.length > 0) this.hasStarted = true;
    return batch;
  }

  /** Drops the plan; only a batch that was started ahead remains. */
  drop(): void {
    this.plan.drop();
    this.hasStarted = false;
  }

  /** Clears `ahead` before the caller awaits it, so that its error is thrown only once. */
  private takeAhead(): Promise<Batch> | undefined {
    const batch = this.ahead;
    this.ahead = undefined;
    return batch;
  }

  /** Takes files from the plan before the first await, so that a second start takes the following files. */
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

  /** Logs a line for each batch, and at `debug` for each file. */
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
   * Ends all work of the visit, even on error: another engine may get the drive next.
   * @param unmount called when the last copies are in place, or discarded after an abort
   */
  async leave(unmount?: () => Promise<void>): Promise<void> {
    try {
      await this.writing;
      await unmount?.();
      await this.giveBackAhead();
    } finally {
      await this.outcomes.written; // last, because the steps above still report outcomes
    }
  }
}

type Report = (outcomes: RecallOutcome[]) => void;
