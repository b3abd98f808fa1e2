/**
 * Limits how many long lists are read at the same time. Each list occupies a slot. A caller gets another slot only if
 * more slots are free than the caller already uses. While other callers wait, slow readers lose their slots, so that a
 * few slow readers cannot block all long lists. Transactions that write also use slots, but never lose their slots.
 */
import { checkWanted, OverShareError, UnavailableError, unwanted } from '../../core/errors.js';

export interface LongRead {
  pace: ReaderPace;
  signal: AbortSignal;
  leave(): void;
}

interface Reader {
  /** The caller's rate-limit key; undefined for Tapegate itself, which may use all slots. */
  share: string | undefined;
  pace: ReaderPace;
  lost: AbortController;
}

interface WaitingRead {
  reader: Reader;
  take(): void;
}

interface Options {
  slots: number;
  waitMs: number;
  least: LeastPace;
  what: string;
}

const CHECK_MS = 500;

export class LongReads {
  readonly slots: number;
  private readonly options: Options;
  private readonly waiting = new Set<WaitingRead>();
  private readonly readers = new Set<Reader>();
  private check: NodeJS.Timeout | undefined;

  constructor(options: Options) {
    this.slots = options.slots;
    this.options = options;
  }

  /**
   * Waits for a slot. Readers get slots in order of arrival. Skips a reader if its caller already uses as many slots as
   * are free.
   * @param share the caller's rate-limit key; undefined for Tapegate itself
   * @throws UnavailableError if no slot becomes free in time, or `wanted` aborts
   * @throws OverShareError if no slot becomes free in time, and the caller already has slots
   */
  async enter(share?: string, wanted?: AbortSignal): Promise<LongRead> {
    checkWanted(wanted);
    const reader = { share, pace: new ReaderPace(this.options.least), lost: new AbortController() };
    if (this.hasSlot(share)) this.readers.add(reader);
    else await this.queue(reader, wanted);
    const leave = () => {
      if (this.readers.delete(reader)) this.admit();
    };
    return { pace: reader.pace, signal: reader.lost.signal, leave };
  }

  private hasSlot(share: string | undefined): boolean {
    const left = this.slots - this.readers.size;
    return left > 0 && this.countOf(share) < left;
  }

  private countOf(share: string | undefined): number {
    if (share === undefined) return 0;
    return [...this.readers].filter((reader) => reader.share === share).length;
  }

  /** Gives free slots to waiting readers immediately, before new readers can take the slots. */
  private admit(): void {
    for (const { reader, take } of [...this.waiting]) {
      if (this.hasSlot(reader.share)) take();
    }
  }

  private queue(reader: Reader, wanted: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const giveUp = () => {
        leave();
        reject(unwanted());
      };
      wanted?.addEventListener('abort', giveUp);
      const leave = () => {
        wanted?.removeEventListener('abort', giveUp);
        clearTimeout(timer);
        this.waiting.delete(waiting);
        if (this.waiting.size === 0) clearInterval(this.check);
      };
      const take = () => {
        leave();
        this.readers.add(reader);
        resolve();
      };
      const waiting = { reader, take };
      const timer = setTimeout(() => {
        leave();
        reject(this.refusal(reader));
      }, this.options.waitMs);
      if (this.waiting.size === 0) this.check = setInterval(() => this.dropSlow(), CHECK_MS);
      this.waiting.add(waiting);
      this.dropSlow();
    });
  }

  private refusal({ share }: Reader): UnavailableError {
    const { what } = this.options;
    const own = this.countOf(share);
    if (own === 0) return new UnavailableError('busy', `too many concurrent ${what}`);
    return new OverShareError(`you already have ${own} ${what} in progress`);
  }

  /**
   * Frees one slot for each waiting reader by ending a slow reader. Among slow readers, first ends those whose caller
   * uses the most slots. If the waiting reader's caller already has slots, ends only readers of the same caller, or of
   * callers with more slots.
   */
  private dropSlow(): void {
    const all = [...this.readers];
    let leaving = all.filter(({ lost }) => lost.signal.aborted).length;
    for (const { reader } of this.waiting) {
      if (leaving-- > 0) continue;
      const own = this.countOf(reader.share);
      const [slowest] = all
        .filter(({ pace, lost }) => pace.isSlow && !lost.signal.aborted)
        .map((slow) => ({ ...slow, count: slow.share === reader.share ? own : this.countOf(slow.share) }))
        .filter(({ share, count }) => own === 0 || share === reader.share || count > own)
        .sort((a, b) => b.count - a.count);
      slowest?.lost.abort(this.tooSlow());
    }
  }

  private tooSlow(): UnavailableError {
    const { least } = this.options;
    const pace = `less than ${least.bytesPerSecond} bytes per second for ${least.windowMs / 1000} s`;
    return new UnavailableError('busy', `the client read ${pace} while other clients waited`);
  }
}

export interface LeastPace {
  /** Period in milliseconds over which a reader's rate is measured. */
  windowMs: number;
  bytesPerSecond: number;
}

/**
 * Measures a reader's speed as a credit in milliseconds. Time spent waiting for the reader reduces the credit, and
 * bytes that the reader takes increase the credit. A reader without credit has been too slow for about `windowMs`.
 */
class ReaderPace {
  private readonly least: LeastPace;
  private creditMs: number;
  /** The time at which the reader received the current page. Undefined while the reader waits for the next page. */
  private since: number | undefined;

  constructor(least: LeastPace) {
    this.least = least;
    this.creditMs = least.windowMs;
  }

  begin(): void {
    this.since = performance.now();
  }

  end(): void {
    this.creditMs = this.leftMs;
    this.since = undefined;
  }

  took(bytes: number): void {
    const { windowMs, bytesPerSecond } = this.least;
    const restored = Math.max(this.leftMs, -windowMs) + (bytes / bytesPerSecond) * 1000;
    this.creditMs = Math.min(restored, windowMs);
    if (this.since !== undefined) this.since = performance.now();
  }

  get isSlow(): boolean {
    return this.leftMs <= 0;
  }

  private get leftMs(): number {
    return this.since === undefined ? this.creditMs : this.creditMs - (performance.now() - this.since);
  }
}
