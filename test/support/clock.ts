/** The time that an app goes by, where a test has it go on. */
import { addSeconds, isBefore, parseZonedTime, timeOf } from '../../src/time.js';

/** The time of this host. */
export function currentTime(): string {
  return timeOf((performance.timeOrigin + performance.now()) / 1000);
}

/** Is the time there, as GraphQL tells it, and between the two? */
export function isWithin(told: string | null, [from, to]: readonly [string, string]): boolean {
  const time = parseZonedTime(told ?? '');
  return time !== undefined && !isBefore(time, from) && !isBefore(to, time);
}

/** A clock that goes on like the real one, can be moved forward, and can stand still. */
export interface Clock {
  now(): string;
  advance(seconds: number): void;
  freeze(): void;
  goOn(): void;
}

export function createClock(): Clock {
  let ahead = 0;
  let frozenAt: string | undefined;
  return {
    now: () => frozenAt ?? addSeconds(currentTime(), ahead),
    advance: (seconds) => {
      ahead += seconds;
    },
    freeze: () => {
      frozenAt = addSeconds(currentTime(), ahead);
    },
    goOn: () => {
      frozenAt = undefined;
    },
  };
}
