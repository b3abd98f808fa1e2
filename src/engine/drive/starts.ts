/**
 * Starts the recalls of a plan batch by batch, has them read, and writes down how they end.
 *
 * Starts the next batch while one is read, so that the drive does not wait for the database. Outcomes are written in
 * order. After a failed write nothing more is written: those recalls stay RUNNING, and the drive's next holder recovers
 * them.
 */
import type { Context } from '../../context.js';
import { noteDoubt } from '../../operations/health/circuits.js';
import { chargeDriveTime } from '../../operations/quotas/shares.js';
import { finishRecalls, type RecallOutcome } from '../../operations/recalls/ends.js';
import { readTraceparents } from '../../operations/recalls/queue.js';
import { type RunningRecall, startRecalls } from '../../operations/recalls/starts.js';
import { holdFailing } from '../../operations/suspensions.js';
import { count } from '../../signals.js';
import type { MountedVolume } from '../../tape/backend.js';
import { isTracing } from '../../traces.js';
import { DiskError } from '../disk/failures.js';
import { createBudget } from '../disk/partial-file.js';
import { type Batch, runBatch } from './batch.js';
import type { Verdict } from './drive-failures.js';
import type { HeldLease } from './lease.js';
import type { DriveOptions } from './options.js';
import type { AnyPlan } from './plan.js';
import { outcomeOf, toReturned } from './recall.js';

/** `stagedAt`: the id of the staging library that the drive reads at; `volume`: its name, or that of the volume that is mounted. */
type StartOptions = DriveOptions & { stagedAt?: number; volume: string };

/** None of its methods waits or throws; its user awaits `written`. */
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
   * @param judge judges the volume. It gets `returned` for files that an import changed meanwhile, because their
   *   outcome says nothing about the volume's current contents
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

/** Reads the batches of a plan: the next one is read while the one before is written and synced. */
export class BatchReader {
  readonly outcomes: OutcomeWriter;
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private readonly plan: AnyPlan;
  private readonly options: StartOptions;
  private readonly budget = createBudget();
  /** Of the batch that was read last. Never rejects. */
  private writing: Promise<unknown> = Promise.resolve();
  private ahead: Promise<Batch> | undefined;
  /** Something of the current plan could start. Otherwise it would be made again and again. */
  private hasStarted = true;

  constructor(ctx: Context, lease: HeldLease, plan: AnyPlan, options: StartOptions) {
    this.ctx = ctx;
    this.lease = lease;
    this.plan = plan;
    this.options = options;
    this.outcomes = new OutcomeWriter(ctx, lease, options.volume);
  }

  /**
   * Reads batches until nothing is left that can start, or the drive is to stop. After each it waits until the one before it is written.
   * @param readBatch calls `read`, and ends the batch if that is not reached
   * @returns whether anything could start
   */
  async readAll(isOver: () => boolean, readBatch: (batch: Batch) => Promise<void>): Promise<boolean> {
    const isStopped = () => isOver() || this.options.stop.aborted || this.lease.signal.aborted;
    let hasRead = false;
    while (!isStopped() && (await this.hasNext())) {
      const startedAt = performance.now(); // users are charged for the wait for their batch, not for the plan
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

  /** @returns when all is read, `failure` if the volume could not be read on; `written` goes on, never rejects, and ends the batch */
  async read(batch: Batch, mounted: MountedVolume, report: Report) {
    const readAt = performance.now();
    const { disks, links, volume: name } = this.options;
    const work = { batch, report, budget: this.budget, disks, links, name };
    const { written, failure } = await runBatch(this.ctx, this.lease, mounted, work);
    const writing = written.catch((error: unknown) => this.giveUp(batch, error, report)).finally(batch.end);
    this.writing = writing;
    if (!failure) this.plan.noteRead(batch.recalls.length, (performance.now() - readAt) / 1000);
    return { failure, written: writing };
  }

  /**
   * Ends all recalls of the batch in the same way. Outcomes that were reported before stay. How far the others came is not known: their
   * copies may be in place.
   */
  giveUp({ recalls, signal }: Batch, error: unknown, report: Report): void {
    const isNoTry = signal.aborted || error instanceof DiskError; // which copies it would have cost is not known
    const end = (recall: RunningRecall) => (isNoTry ? toReturned(recall) : outcomeOf(this.ctx, recall, error));
    report(recalls.map((recall) => ({ ...end(recall), isUnseen: true })));
  }

  /** Returns recalls that were started ahead to the queue: they are RUNNING, and no other drive reads them. */
  async giveBackAhead(): Promise<void> {
    const batch = await this.takeAhead();
    batch?.end();
    if (batch) this.outcomes.report(batch.recalls.map(toReturned));
  }

  /** Is there a batch to be taken? Plans anew where that is due; what is started ahead is read first all the same. */
  private async hasNext(): Promise<boolean> {
    if (this.ahead || !this.plan.isOver) return true;
    if (this.plan.isEmpty && !this.hasStarted) return false; // what is left cannot start now
    this.hasStarted = false;
    await this.plan.renew();
    return !this.plan.isEmpty;
  }

  /**
   * The next batch, which the caller has to end; it is without recalls where none of them could start. Begins to start
   * the one after it, unless the plan is to be made anew before.
   */
  private async takeNext(): Promise<Batch> {
    const batch = await (this.takeAhead() ?? this.start());
    this.ahead = this.plan.isOver ? undefined : this.start();
    this.ahead?.catch(() => {}); // thrown by the next `takeNext`, or by `takeBack`
    if (batch.recalls.length > 0) this.hasStarted = true;
    return batch;
  }

  /** There is no next batch any more, unless one is started ahead. */
  drop(): void {
    this.plan.drop();
    this.hasStarted = false;
  }

  /** Forgotten before it is awaited, so that a start that failed is thrown once. */
  private takeAhead(): Promise<Batch> | undefined {
    const batch = this.ahead;
    this.ahead = undefined;
    return batch;
  }

  /** Its files leave the plan before anything is awaited: a second start takes the files after them. */
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

  /** A line a batch; one a file, of which there may be millions, at `debug`. */
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

  /**
   * Ends the visit: nothing of it goes on afterwards, even if this throws, because another engine may have the drive then.
   * @param unmount called when the last copies are in place, or were given up because their signals aborted
   */
  async leave(unmount?: () => Promise<void>): Promise<void> {
    try {
      await this.writing;
      await unmount?.();
      await this.giveBackAhead();
    } finally {
      await this.outcomes.written; // last: all of the above is still reported
    }
  }
}

type Report = (outcomes: RecallOutcome[]) => void;
