/** The database's clock, as it was told to this process: read often, without asking each time. */
import { timeOf } from '../time.js';

/** By how much two clocks may part: microseconds in a millisecond. */
const DRIFT = 0.1;

/** A clock that was set back by less than this stands still for that long, so that what follows is not dated before. */
const SMALL_STEP_MICROS = 1_000_000;

export class DatabaseClock {
  /** Microseconds since 1970 at 0 of the process's own clock, which knows no time zone and is never set. */
  private origin = Math.round(performance.timeOrigin * 1000);
  /** How wrong that may be, in microseconds, and since when, by `performance.now()`. */
  private doubt = Number.POSITIVE_INFINITY;
  private readAt = 0;
  private last = 0;

  /**
   * Takes what the database has said, unless what is known is surer and may be true as well: an answer that took long
   * says little, but that the clock was set, or that this host stood still, it says too.
   * @param micros since 1970
   * @param asked by `performance.now()`: when it was asked, and when it had answered
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

  /** The present time. */
  now(): string {
    const micros = Math.round(this.origin + performance.now() * 1000);
    if (micros > this.last || this.last - micros > SMALL_STEP_MICROS) this.last = micros;
    return timeOf(this.last / 1e6);
  }

  /** By how much this host's clock is ahead; negative where it is behind. */
  get hostAheadSeconds(): number {
    return (Date.now() - (this.origin / 1000 + performance.now())) / 1000;
  }
}
