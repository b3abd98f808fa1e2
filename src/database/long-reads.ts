/**
 * Places for the readers of lists: whoever finds none waits for a while, and is told then, instead of for ever. Nobody takes more
 * places than are left for the others, so that the next one always finds one: the first to come gets half of them at most, the
 * second half of the rest. While somebody waits, readers that take next to nothing lose their places: each holds a snapshot, and
 * a few of them would keep all others from long lists for as long as they like.
 *
 * Whoever changes something has places of the same kind, which nobody loses: what others have locked, they may keep for long.
 */
import { checkWanted, OverShareError, UnavailableError, unwanted } from '../errors.js';

/** A place at a list. */
export interface LongRead {
  pace: ReaderPace;
  /** Aborts when the place is taken away, with the reason. */
  signal: AbortSignal;
  /** Gives it back. */
  leave(): void;
}

interface Reader {
  /** As whom it counts; undefined for the program itself, which has no share. */
  share: string | undefined;
  pace: ReaderPace;
  lost: AbortController;
}

interface Waiting {
  reader: Reader;
  take(): void;
}

interface Options {
  places: number;
  waitMs: number;
  least: LeastPace;
  /** For people, in the plural. */
  what: string;
  /** What is done with them, where that is not reading. */
  doing?: string;
}

/** How often it is looked whether a reader has become slow while somebody waits. */
const LOOK_MS = 500;

export class LongReads {
  readonly places: number;
  private readonly options: Options;
  private readonly waiting = new Set<Waiting>();
  private readonly readers = new Set<Reader>();
  private look: NodeJS.Timeout | undefined;

  constructor(options: Options) {
    this.places = options.places;
    this.options = options;
  }

  /**
   * Waits for a place, in turn; who has its share already lets others pass.
   * @param share as whom the reader counts; undefined for the program itself
   * @param wanted aborts when nobody waits for what is to be done there any more
   * @throws UnavailableError when none gets free in time, or nobody waits any more; OverShareError when it is the reader's own that
   *   would have to
   */
  async enter(share?: string, wanted?: AbortSignal): Promise<LongRead> {
    checkWanted(wanted);
    const reader = { share, pace: new ReaderPace(this.options.least), lost: new AbortController() };
    if (this.hasPlace(share)) this.readers.add(reader);
    else await this.queue(reader, wanted);
    const leave = () => {
      if (this.readers.delete(reader)) this.admit();
    };
    return { pace: reader.pace, signal: reader.lost.signal, leave };
  }

  private hasPlace(share: string | undefined): boolean {
    const left = this.places - this.readers.size;
    return left > 0 && this.countOf(share) < left;
  }

  private countOf(share: string | undefined): number {
    if (share === undefined) return 0;
    return [...this.readers].filter((reader) => reader.share === share).length;
  }

  /** At once, whoever may: nobody else gets a place that has become free. */
  private admit(): void {
    for (const { reader, take } of [...this.waiting]) {
      if (this.hasPlace(reader.share)) take();
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
    const { what, doing } = this.options;
    const own = this.countOf(share);
    const who = doing === undefined ? 'readers' : 'others';
    if (own === 0) return new UnavailableError('busy', `too many ${who} are at ${what}`);
    return new OverShareError(`you are ${doing ?? 'reading'} ${own} ${what} already`);
  }

  /** As many as others wait for: of those who have most places, and of one's own. */
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
    const { least, what } = this.options;
    const pace = `less than ${least.bytesPerSecond} bytes a second for ${least.windowMs / 1000} s`;
    return new UnavailableError('busy', `a reader of ${what} took ${pace}, and others wait`);
  }
}

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

class ReaderPace {
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
