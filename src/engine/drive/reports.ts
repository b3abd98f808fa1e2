/**
 * How the recalls of a batch ended, reported every now and then, one report after the other: each once the folders are
 * synced, so that what is told as restored stays in its place. What is below a folder that cannot be synced ends otherwise
 * (batch.ts), and holds up no other.
 */
import type { RecallOutcome } from '../../operations/recalls/ends.js';
import type { RunningRecall } from '../../operations/recalls/starts.js';

/** What has ended is reported at least so often, while a batch goes on: a file in place is told of in time. */
const REPORT_MS = 1000;

/** A recall that has come to its end, but for its folder. */
export interface EndedRecall {
  recall: RunningRecall;
  /** Of the recall. */
  signal: AbortSignal;
  outcome: RecallOutcome;
}

/** To be ended by `finish`, or by `stop` when that is not to come. */
export class Reports {
  private readonly settle: (ended: readonly EndedRecall[]) => Promise<RecallOutcome[]>;
  private readonly report: (outcomes: RecallOutcome[]) => void;
  private readonly timer: NodeJS.Timeout;
  private ended: EndedRecall[] = [];
  /** The first failure is the last word: what was to be reported with it, or later, is not. */
  private reporting = Promise.resolve();

  /** @param settle syncs the folders, and says how the recalls end then */
  constructor(
    settle: (ended: readonly EndedRecall[]) => Promise<RecallOutcome[]>,
    report: (outcomes: RecallOutcome[]) => void,
  ) {
    this.settle = settle;
    this.report = report;
    this.timer = setInterval(() => {
      this.reportNext();
      this.reporting.catch(() => {}); // thrown by `finish`
    }, REPORT_MS);
  }

  add(ended: EndedRecall): void {
    this.ended.push(ended);
  }

  /** Reports what is left. @throws what a report threw */
  async finish(): Promise<void> {
    this.stop();
    this.reportNext();
    await this.reporting;
  }

  /** No further report after those that have begun. */
  stop(): void {
    clearInterval(this.timer);
  }

  private reportNext(): void {
    this.reporting = this.reporting.then(() => this.reportEnded());
  }

  private async reportEnded(): Promise<void> {
    const ended = this.ended;
    this.ended = [];
    if (ended.length === 0) return;
    // taken before the folders are synced: what is put in place meanwhile is reported the next time
    this.report(await this.settle(ended));
  }
}
