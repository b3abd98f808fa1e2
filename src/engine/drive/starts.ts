/**
 * Starts the recalls of a plan, and writes down how they end.
 *
 * The next batch is started while one is read, so that the drive does not wait for the database. Outcomes are written in order. After a write that failed
 * nothing more is written: those recalls stay RUNNING, and the next holder of the drive recovers them.
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

/** What a drive reads next, until it is to be made anew. */
interface ReadPlan {
  /** Nothing is left of it. */
  readonly isEmpty: boolean;
  /** It is to be made anew before more of it is taken. */
  readonly isOver: boolean;
  renew(): Promise<void>;
  /** Takes the files of the next batch out of it. */
  takeFiles(): bigint[];
  drop(): void;
}

/** `stagedAt`: the id of the staging library that the drive reads at; `volume`: its name, or that of the volume that is mounted. */
type StartOptions = Pick<DriveOptions, 'gauge' | 'running'> & { stagedAt?: number; volume: string };

/** Whoever is done with it calls `takeBack`: what is started ahead is RUNNING, and nobody else comes to it. */
export class BatchStarts {
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private readonly plan: ReadPlan;
  private readonly options: StartOptions;
  private ahead: Promise<Batch> | undefined;
  /** Of the plan in hand something could start. A plan of which nothing could would be made again and again. */
  private hasStarted = true;

  constructor(ctx: Context, lease: HeldLease, plan: ReadPlan, options: StartOptions) {
    this.ctx = ctx;
    this.lease = lease;
    this.plan = plan;
    this.options = options;
  }

  /** Is there a batch to be taken? Plans anew where that is due; what is started ahead is read first all the same. */
  async hasNext(): Promise<boolean> {
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
  async takeNext(): Promise<Batch> {
    const batch = await (this.takeAhead() ?? this.start());
    this.ahead = this.plan.isOver ? undefined : this.start();
    this.ahead?.catch(() => {}); // thrown by the next `takeNext`, or by `takeBack`
    if (batch.recalls.length > 0) this.hasStarted = true;
    return batch;
  }

  /** Ends the batch that is started ahead. @returns its recalls, which nobody reads now; undefined where there is none */
  async takeBack(): Promise<readonly RunningRecall[] | undefined> {
    const batch = await this.takeAhead();
    batch?.end();
    return batch?.recalls;
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
}

/** None of its methods waits or throws; whoever uses it awaits `written`. */
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

  /** Settles when all is written that was given so far; rejects with what the first write that failed threw. */
  get written(): Promise<unknown> {
    return this.last;
  }

  /**
   * @param judge says what that means for the volume; what was read of a file that an import has changed since
   *   is told as returned, since it says nothing of what the volume holds now
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

  /** The doubt first: nobody puts the volume back into service without. */
  private async follow({ holdReason, isDoubtful }: Verdict): Promise<void> {
    if (isDoubtful !== undefined) await noteDoubt(this.ctx, this.volume, isDoubtful);
    if (holdReason !== undefined)
      await holdFailing(this.ctx, { kind: 'VOLUME', name: this.volume }, { problem: holdReason });
  }

  /** Charges whoever wanted the files with the time that the drive has spent on them. */
  charge(fileIds: readonly bigint[], seconds: number): void {
    count('tapegate_drive_busy_seconds_total', { drive: this.lease.driveName }, seconds);
    this.append(() => chargeDriveTime(this.ctx, { fileIds, seconds }));
  }

  private count(outcome: RecallOutcome, isSuperseded: boolean): void {
    const ended = isSuperseded ? 'superseded' : outcome.kind;
    const errorClass = 'errorClass' in outcome && !isSuperseded ? outcome.errorClass.toLowerCase() : 'none';
    count('tapegate_recalls_ended_total', { drive: this.lease.driveName, outcome: ended, class: errorClass });
  }

  /** Has something written down before what is reported later. */
  write(write: () => Promise<unknown>): void {
    this.append(write);
  }

  private append(write: () => Promise<unknown>): void {
    this.last = this.last.then(write);
    this.last.catch(() => {}); // thrown by `written`
  }
}
