/** Places for the readers of long lists: whoever finds none waits for a while, and is told then, instead of for ever. */
import { UnavailableError } from '../errors.js';

export class LongReads {
  private free: number;
  private readonly waitMs: number;
  private readonly waiting = new Set<() => void>();

  constructor({ places, waitMs }: { places: number; waitMs: number }) {
    this.free = places;
    this.waitMs = waitMs;
  }

  /**
   * Waits for a place, in turn.
   * @returns what gives it back
   * @throws UnavailableError when none gets free in time
   */
  async enter(): Promise<() => void> {
    if (this.free > 0) this.free--;
    else await this.queue();
    let hasLeft = false;
    return () => {
      if (hasLeft) return;
      hasLeft = true;
      const [next] = this.waiting;
      if (next) next();
      else this.free++;
    };
  }

  private queue(): Promise<void> {
    return new Promise((resolve, reject) => {
      const take = () => {
        clearTimeout(timer);
        this.waiting.delete(take);
        resolve();
      };
      const timer = setTimeout(() => {
        this.waiting.delete(take);
        reject(new UnavailableError('busy', 'too many readers are at long lists'));
      }, this.waitMs);
      this.waiting.add(take);
    });
  }
}
