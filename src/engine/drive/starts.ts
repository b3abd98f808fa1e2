/**
 * Starts the recalls of a plan, and records their outcomes.
 *
 * Starts the next batch while one is read, so that the drive does not wait for the database. Outcomes are written in
 * order.
 * After a failed write nothing more is written: those recalls stay RUNNING, and the drive's next holder recovers them.
 */
import type { Context } from '../../context.js';
import { noteDoubt } from '../../operations/health/circuits.js';
import { chargeDriveTime } from '../../operations/quotas/shares.js';
import { finishRecalls, type RecallOutcome } from '../../operations/recalls/ends.js';
import { readTraceparents } from '../../operations/recalls/queue.js';
import { type RunningRecall, startRecalls } from '../../operations/recalls/starts.js';
import { holdFailing } from '../../operations/suspensions.js';
import { count } from '../../signals.js';
import { isTracing } from '../../traces.js';
import type { Batch } from './batch.js';
import type { Verdict } from './drive-failures.js';
import type { HeldLease } from './lease.js';
import type { DriveOptions } from './options.js';

interface ReadPlan {
  readonly isEmpty: boolean;
  readonly isOver: boolean;
  renew(): Promise<void>;
  takeFiles(): bigint[];
  drop(): void;
}

/** `stagedAt`: id of the staging library, if any; `volume`: name of that library or of the mounted volume. */
type StartOptions = Pick<DriveOptions, 'gauge' | 'running'> & { stagedAt?: number; volume: string };

/** The caller must finally call `takeBack`: recalls started ahead are RUNNING, and no other drive reads them. */
export class BatchStarts {
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private readonly plan: ReadPlan;
  private readonly options: StartOptions;
  private ahead: Promise<Batch> | undefined;
  /** Whether a recall of the current plan could start. If none could, the plan is not renewed, to prevent a loop. */
  private hasStarted = true;

  constructor(ctx: Context, lease: HeldLease, plan: ReadPlan, options: StartOptions) {
    this.ctx = ctx;
    this.lease = lease;
    this.plan = plan;
    this.options = options;
  }

  /** Whether there is another batch. Renews the plan if due; a batch started ahead is read first. */
  async hasNext(): Promise<boolean> {
    if (this.ahead || !this.plan.isOver) return true;
    if (this.plan.isEmpty && !this.hasStarted) return false; // the remaining files cannot start now
    this.hasStarted = false;
    await this.plan.renew();
    return !this.plan.isEmpty;
  }

  /**
   * Returns the next batch, which the caller must end; empty if no recall could start. Starts the following one if due.
   */
  async takeNext(): Promise<Batch> {
    const batch = await (this.takeAhead() ?? this.start());
    this.ahead = this.plan.isOver ? undefined : this.start();
    this.ahead?.catch(() => {}); // the next `takeNext` or `takeBack` throws it
    if (batch.recalls.length > 0) this.hasStarted = true;
    return batch;
  }

  /** Ends the batch that was started ahead. @returns its unread recalls; undefined if there is none */
  async takeBack(): Promise<readonly RunningRecall[] | undefined> {
    const batch = await this.takeAhead();
    batch?.end();
    return batch?.recalls;
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
    if (recalls.length > 0) this.tell(recalls);
    const fileIds = recalls.map(({ fileId }) => fileId);
    const traces = isTracing() ? await readTraceparents(this.ctx, fileIds).catch(() => undefined) : undefined;
    return { recalls, since, traces, ...this.options.running.begin(fileIds, this.lease.signal) };
  }
  /** Logs a line for each batch, and at `debug` for each file. */
  private tell(recalls: readonly RunningRecall[]): void {
    const at = { drive: this.lease.driveName, volume: this.options.volume };
    const bytes = recalls.reduce((sum, { size }) => sum + size, 0n);
    this.ctx.log.info(
      { ...at, files: recalls.length, bytes: Number(bytes), first: recalls[0]?.path },
      'recalls started',
    );
    if (!this.ctx.log.isLevelEnabled('debug')) return;
    for (const { fileId, path } of recalls) this.ctx.log.debug({ ...at, file: String(fileId), path }, 'recall started');
  }
}

/** No method waits or throws; the caller awaits `written`. */
export class OutcomeWriter {
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
   * @param judge judges the volume. It gets `returned` for files that an import changed meanwhile, because their
   *   outcome says
   *   nothing about the volume's current contents
   */
  report(outcomes: readonly RecallOutcome[], judge?: (outcomes: readonly RecallOutcome[]) => Verdict): void {
    this.append(async () => {
      const superseded = await finishRecalls(this.ctx, this.lease, outcomes);
      for (const outcome of outcomes) this.count(outcome, superseded.has(outcome.fileId));
      const verdict = judge?.(
        outcomes.map((outcome) =>
          superseded.has(outcome.fileId) ? { fileId: outcome.fileId, kind: 'returned' } : outcome,
        ),
      );
      if (verdict) await this.follow(verdict);
    });
  }

  /** Records the doubt first, so that it exists before the volume can return to service. */
  private async follow({ holdReason, isDoubtful }: Verdict): Promise<void> {
    if (isDoubtful !== undefined) await noteDoubt(this.ctx, this.volume, isDoubtful);
    if (holdReason !== undefined)
      await holdFailing(this.ctx, { kind: 'VOLUME', name: this.volume }, { problem: holdReason });
  }

  /** Charges the drive time to the users who requested the files. */
  charge(fileIds: readonly bigint[], seconds: number): void {
    count('tapegate_drive_busy_seconds_total', { drive: this.lease.driveName }, seconds);
    this.append(() => chargeDriveTime(this.ctx, { fileIds, seconds }));
  }

  private count(outcome: RecallOutcome, isSuperseded: boolean): void {
    const ended = isSuperseded ? 'superseded' : outcome.kind;
    const errorClass = 'errorClass' in outcome && !isSuperseded ? outcome.errorClass.toLowerCase() : 'none';
    count('tapegate_recalls_ended_total', { drive: this.lease.driveName, outcome: ended, class: errorClass });
  }

  /** Queues a write before later reports. */
  write(write: () => Promise<unknown>): void {
    this.append(write);
  }

  private append(write: () => Promise<unknown>): void {
    this.last = this.last.then(write);
    this.last.catch(() => {}); // `written` rejects with it
  }
}
