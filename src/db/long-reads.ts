/**
 * Slots for readers of lists. A reader that finds no free slot waits for a limited time.
 * A caller never gets more slots than remain free for others: the first caller gets at most half, the second half of the rest.
 * While others wait, the slowest readers lose their slots: each holds a snapshot, and a few could block all long lists.
 * Transactions that change something have slots of the same kind, but never lose them: a wait for a lock may be long.
 */
import { checkWanted, OverShareError, UnavailableError, unwanted } from '../core/errors.js';

export interface LongRead {
  pace: ReaderPace;
  /** Aborts with the reason when the limiter takes the slot away. */
  signal: AbortSignal;
  leave(): void;
}

interface Reader {
  /** Rate-limit key; undefined for the program itself, which has no limit. */
  share: string | undefined;
  pace: ReaderPace;
  lost: AbortController;
}

interface Waiting {
  reader: Reader;
  take(): void;
}

interface Options {
  slots: number;
  waitMs: number;
  least: LeastPace;
  /** The limited work, for error messages. */
  what: string;
}

/** Interval of checks for slow readers while another one waits. */
const LOOK_MS = 500;

export class LongReads {
  readonly slots: number;
  private readonly options: Options;
  private readonly waiting = new Set<Waiting>();
  private readonly readers = new Set<Reader>();
  private look: NodeJS.Timeout | undefined;

  constructor(options: Options) {
    this.slots = options.slots;
    this.options = options;
  }

  /**
   * Waits for a slot, in turn; a caller at its limit lets others pass.
   * @param share rate-limit key; undefined for the program itself
   * @param wanted aborts when no client waits for the work
   * @throws UnavailableError if no slot becomes free in time, or `wanted` aborts; OverShareError if only the caller's
   * own readers could free one
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

  /** Admits at once, so that no other caller gets a slot that has become free. */
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
        if (this.waiting.size === 0) clearInterval(this.look);
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
      if (this.waiting.size === 0) this.look = setInterval(() => this.dropSlow(), LOOK_MS);
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

  /** Drops as many slow readers as others wait: those with the most slots first, or the waiting caller's own. */
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
    const pace = `less than ${least.bytesPerSecond} bytes a second for ${least.windowMs / 1000} s`;
    return new UnavailableError('busy', `the client read ${pace} while others waited`);
  }
}

export interface LeastPace {
  /** The pace is measured over this time. */
  windowMs: number;
  bytesPerSecond: number;
}

/**
 * A reader's credit in milliseconds, at most a window: waiting for the reader uses it up, and bytes that it takes restore
 * it. So a reader without credit took less than it must for about a window.
 */
class ReaderPace {
  private readonly least: LeastPace;
  private creditMs: number;
  /** When the list began to wait; undefined while the reader waits for the list. */
  private since: number | undefined;

  constructor(least: LeastPace) {
    this.least = least;
    this.creditMs = least.windowMs;
  }

  /** The reader gets a page. */
  begin(): void {
    this.since = performance.now();
  }

  /** The reader has taken the page, and wants the next. */
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
