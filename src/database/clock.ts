/** The database server's clock, read from this process without asking each time. */
import { timeOf } from '../time.js';

/** Drift between two clocks: microseconds in a millisecond. */
const DRIFT = 0.1;

/** If the clock is set back by less than this, it pauses instead, so that later events do not get earlier times. */
const SMALL_STEP_MICROS = 1_000_000;

export class DatabaseClock {
  /** Microseconds since 1970 at 0 of `performance.now()`. */
  private origin = Math.round(performance.timeOrigin * 1000);
  /** The possible error of `origin` in microseconds, as of `readAt` of `performance.now()`. */
  private doubt = Number.POSITIVE_INFINITY;
  private readAt = 0;
  private last = 0;

  /**
   * Takes a reading unless the present one is more exact and agrees with it. A slow answer is inexact, but it still
   * shows if the clock was set or this host stalled.
   * @param micros since 1970
   * @param asked times of `performance.now()`: of the question, and of the answer
   */
  set(micros: number, asked: { from: number; until: number }): void {
    const origin = micros - ((asked.from + asked.until) / 2) * 1000;
    const doubt = ((asked.until - asked.from) / 2) * 1000;
    const known = this.doubt + (asked.until - this.readAt) * DRIFT;
    if (doubt > known && Math.abs(origin - this.origin) <= doubt + known) return;
    this.origin = origin;
    this.doubt = doubt;
    this.readAt = asked.until;
  }

  now(): string {
    const micros = Math.round(this.origin + performance.now() * 1000);
    if (micros > this.last || this.last - micros > SMALL_STEP_MICROS) this.last = micros;
    return timeOf(this.last / 1e6);
  }
}
