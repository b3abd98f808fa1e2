/**
 * What came of a drive's time at a volume, written down in order while the drive reads on. After a write that failed
 * nothing more is written: what was to be written says RUNNING, and the next holder of the drive puts it in order.
 */
import type { Context } from '../../context.js';
import { chargeDriveTime } from '../../operations/quotas/shares.js';
import { noteDoubt } from '../../operations/recalls/doubts.js';
import { finishRecalls, type RecallOutcome } from '../../operations/recalls/ends.js';
import { holdFailing } from '../../operations/suspensions.js';
import { count } from '../../signals.js';
import type { HeldLease } from './lease.js';
import type { Verdict } from './volume-failures.js';

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
