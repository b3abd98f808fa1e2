/** Clocks that a test controls. */
import { addSeconds, isBefore, parseZonedTime, timeOf } from '../../src/core/time.js';

/** Returns the time of this host. */
export function currentTime(): string {
  return timeOf((performance.timeOrigin + performance.now()) / 1000);
}

/** Returns whether a time of GraphQL is present and within the range. */
export function isWithin(zoned: string | null, [from, to]: readonly [string, string]): boolean {
  const time = parseZonedTime(zoned ?? '');
  return time !== undefined && !isBefore(time, from) && !isBefore(to, time);
}

export type Clock = ReturnType<typeof createClock>;

/** Creates a clock that runs in real time. A test can advance and freeze the clock. */
export function createClock() {
  let ahead = 0;
  let frozenAt: string | undefined;
  return {
    now: (): string => frozenAt ?? addSeconds(currentTime(), ahead),
    advance: (seconds: number): void => {
      ahead += seconds;
      frozenAt &&= addSeconds(frozenAt, seconds);
    },
    freeze: (): void => {
      frozenAt = addSeconds(currentTime(), ahead);
    },
    goOn: (): void => {
      frozenAt = undefined;
    },
  };
}
