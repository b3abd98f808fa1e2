/** Places of which each call has one until it has really ended, whoever still waits for it. */
import { TapeError } from '../../errors.js';

export class CallPlaces {
  private free: number;
  private readonly waitMs: number;
  private readonly waiting: (() => void)[] = [];

  /** @param waitMs for which a call waits for a place at most: all may be kept by what hangs */
  constructor(places: number, waitMs: number) {
    this.free = places;
    this.waitMs = waitMs;
  }

  /** In the order in which they come. @returns what gives the place back, once @throws TapeError TRANSIENT where there was none in time */
  async enter(): Promise<() => void> {
    if (this.free > 0) this.free -= 1;
    else await this.waitForPlace();
    return () => this.leave();
  }

  /** The same, however long it takes. */
  async enterAtLast(): Promise<() => void> {
    if (this.free > 0) this.free -= 1;
    else await new Promise<void>((resolve) => this.waiting.push(resolve));
    return () => this.leave();
  }

  private async waitForPlace(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const take = () => {
        clearTimeout(late);
        resolve();
      };
      const late = setTimeout(() => {
        this.waiting.splice(this.waiting.indexOf(take), 1);
        reject(new TapeError('TRANSIENT', `the restore disks have not answered for ${this.waitMs / 1000} s`));
      }, this.waitMs);
      this.waiting.push(take);
    });
  }

  private leave(): void {
    const next = this.waiting.shift();
    if (next) next();
    else this.free += 1;
  }
}
