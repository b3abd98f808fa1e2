/**
 * Places for the readers of long lists: whoever finds none waits for a while, and is told then, instead of for ever. While
 * somebody waits, readers that take next to nothing lose their places: each holds a snapshot, and a few of them would
 * keep all others from long lists for as long as they like.
 */
import { UnavailableError } from '../errors.js';
import { type LeastPace, ReaderPace } from './reader-pace.js';

/** A place at a long list. */
export interface LongRead {
  pace: ReaderPace;
  /** Aborts when the place is taken away, with the reason. */
  signal: AbortSignal;
  /** Gives it back. */
  leave(): void;
}

interface Reader {
  pace: ReaderPace;
  lost: AbortController;
}

/** How often it is looked whether a reader has become slow while somebody waits. */
const LOOK_MS = 500;

export class LongReads {
  private readonly places: number;
  private readonly waitMs: number;
  private readonly least: LeastPace;
  private readonly waiting = new Set<() => void>();
  private readonly readers = new Set<Reader>();
  private look: NodeJS.Timeout | undefined;

  constructor({ places, waitMs, least }: { places: number; waitMs: number; least: LeastPace }) {
    this.places = places;
    this.waitMs = waitMs;
    this.least = least;
  }

  /**
   * Waits for a place, in turn.
   * @throws UnavailableError when none gets free in time
   */
  async enter(): Promise<LongRead> {
    const reader = { pace: new ReaderPace(this.least), lost: new AbortController() };
    if (this.readers.size < this.places) this.readers.add(reader);
    else await this.queue(reader);
    const leave = () => {
      if (!this.readers.delete(reader)) return;
      const [next] = this.waiting;
      next?.();
    };
    return { pace: reader.pace, signal: reader.lost.signal, leave };
  }

  private queue(reader: Reader): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        clearTimeout(timer);
        this.waiting.delete(take);
        if (this.waiting.size === 0) clearInterval(this.look);
      };
      const take = () => {
        leave();
        this.readers.add(reader); // at once: nobody else gets the place that has become free
        resolve();
      };
      const timer = setTimeout(() => {
        leave();
        reject(new UnavailableError('busy', 'too many readers are at long lists'));
      }, this.waitMs);
      if (this.waiting.size === 0) this.look = setInterval(() => this.dropSlow(), LOOK_MS);
      this.waiting.add(take);
      this.dropSlow();
    });
  }

  /** As many as others wait for. */
  private dropSlow(): void {
    const all = [...this.readers];
    const leaving = all.filter(({ lost }) => lost.signal.aborted).length;
    const slow = all.filter(({ pace, lost }) => pace.isSlow && !lost.signal.aborted);
    for (const { lost } of slow.slice(0, Math.max(this.waiting.size - leaving, 0))) {
      const pace = `less than ${this.least.bytesPerSecond} bytes a second for ${this.least.windowMs / 1000} s`;
      lost.abort(new UnavailableError('busy', `a reader of a long list took ${pace}, and others wait`));
    }
  }
}
