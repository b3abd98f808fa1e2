/**
 * How the recalls of a batch ended, reported every now and then, one report after the other: each once the folders are
 * synced, so that what is told as restored stays in its place.
 */
import type { RecallOutcome } from '../../operations/recalls/ends.js';

/** What has ended is reported at least so often, while a batch goes on: a file in place is told of in time. */
const REPORT_MS = 1000;

/** To be ended by `finish`, or by `stop` when that is not to come. */
export class Reports {
  private readonly syncFolders: () => Promise<void>;
  private readonly report: (outcomes: RecallOutcome[]) => void;
  private readonly timer: NodeJS.Timeout;
  private ended: RecallOutcome[] = [];
  /** The first failure is the last word: what was to be reported with it, or later, is not. */
  private reporting = Promise.resolve();

  constructor(syncFolders: () => Promise<void>, report: (outcomes: RecallOutcome[]) => void) {
    this.syncFolders = syncFolders;
    this.report = report;
    this.timer = setInterval(() => {
      this.reportNext();
      this.reporting.catch(() => {}); // thrown by `finish`
    }, REPORT_MS);
  }

  add(outcome: RecallOutcome): void {
    this.ended.push(outcome);
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
    const outcomes = this.ended;
    this.ended = [];
    if (outcomes.length === 0) return;
    // taken before the folders are synced: what is put in place meanwhile is reported the next time
    await this.syncFolders();
    this.report(outcomes);
  }
}
