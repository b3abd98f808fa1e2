/**
 * How fast the reader of a long list takes it, over the last while. Only the time in which the list waits for the reader
 * counts: a database that is slow makes nobody slow.
 */
export interface LeastPace {
  /** So long a reader is looked at. */
  windowMs: number;
  bytesPerSecond: number;
}

/** Parts of the window that are told from each other. */
const PARTS = 60;

interface Mark {
  /** Milliseconds that the list has waited for the reader by then. */
  at: number;
  /** Bytes that it had taken. */
  bytes: number;
}

export class ReaderPace {
  private readonly least: LeastPace;
  private bytes = 0;
  private waitedMs = 0;
  /** When the list began to wait; undefined while the reader waits for the list. */
  private since: number | undefined;
  /** From the last one on that is not in the window. */
  private marks: Mark[] = [{ at: 0, bytes: 0 }];

  constructor(least: LeastPace) {
    this.least = least;
  }

  /** The reader is given something. */
  begin(): void {
    this.since = performance.now();
  }

  /** It has taken that, and asks for more. */
  end(): void {
    this.waitedMs = this.elapsedMs;
    this.since = undefined;
  }

  took(bytes: number): void {
    this.bytes += bytes;
    const at = this.elapsedMs;
    if (at - (this.marks.at(-1)?.at ?? 0) >= this.least.windowMs / PARTS) this.marks.push({ at, bytes: this.bytes });
    const from = at - this.least.windowMs;
    while ((this.marks[1]?.at ?? Number.POSITIVE_INFINITY) <= from) this.marks.shift();
  }

  /** Has it taken less than it has to? Not before it was waited for as long as the window. */
  get isSlow(): boolean {
    const { windowMs, bytesPerSecond } = this.least;
    const from = this.elapsedMs - windowMs;
    const before = this.marks.findLast(({ at }) => at <= from);
    return before !== undefined && this.bytes - before.bytes < (bytesPerSecond * windowMs) / 1000;
  }

  private get elapsedMs(): number {
    return this.since === undefined ? this.waitedMs : this.waitedMs + performance.now() - this.since;
  }
}
