/**
 * Starts the recalls of a plan, batch by batch: the next batch is started while one is read, so that the drive does not
 * wait for the database.
 */
import type { Context } from '../../context.js';
import { type RunningRecall, startRecalls } from '../../operations/recalls/starts.js';
import type { Batch } from './batch.js';
import type { HeldLease } from './lease.js';
import type { DriveOptions } from './options.js';
import type { VolumePlan } from './plan.js';

/** Whoever is done with it calls `takeBack`: what is started ahead is RUNNING, and nobody else comes to it. */
export class BatchStarts {
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private readonly plan: VolumePlan;
  private readonly options: DriveOptions;
  private ahead: Promise<Batch> | undefined;
  /** Of the plan in hand something could start. A plan of which nothing could would be made again and again. */
  private hasStarted = true;

  constructor(ctx: Context, lease: HeldLease, plan: VolumePlan, options: DriveOptions) {
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
    });
    const fileIds = recalls.map(({ fileId }) => fileId);
    return { recalls, since, ...this.options.running.begin(fileIds, this.lease.signal) };
  }
}
