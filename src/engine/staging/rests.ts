/** How long a staging library is left alone that could not answer, and when it is asked about what it was asked for. Pure. */
import { LibraryError } from '../../tape/backend.js';
import { RetryLaterError } from '../../tape/staging.js';

/** After calls that failed one after another: a while that doubles. */
const REST_SECONDS = { first: 1, most: 300 };

/** No library says when to come again that is later than this, nor at once. */
const RETRY_LATER_SECONDS = { least: 1, most: 3600 };

/**
 * Trying again does not help before somebody has changed something: the library is held, so that an operator sees why, and is tried again after
 * longer pauses.
 */
export function isRefusal(error: unknown): boolean {
  return error instanceof LibraryError && (error.errorClass === 'PERMANENT' || error.errorClass === 'POLICY');
}

/** A file that is asked for again, though nothing was wrong with it. */
const AGAIN_SECONDS = { first: 1, most: 600 };

/**
 * @param before calls that had failed before, one after another
 * @param random from 0 to 1
 */
export function restSeconds(error: unknown, before: number, random: number): number {
  if (error instanceof RetryLaterError) {
    const { least, most } = RETRY_LATER_SECONDS;
    return Math.min(Math.max(error.retryAfterSeconds, least), most) + random;
  }
  return doubled(REST_SECONDS, before) * (0.75 + random / 4);
}

/** @param before how often it was asked for again already: the first time is at once */
export function againSeconds(before: number): number {
  return before === 0 ? 0 : doubled(AGAIN_SECONDS, before - 1);
}

/**
 * Seconds until the next look at a demand, where the system does not say: a quarter of the time since it was asked, so that
 * what comes soon is seen soon, and what takes a day is not asked about a thousand times.
 * @param random from 0 to 1: demands that were made together are not all looked at together
 */
export function pollSeconds(
  { least, most }: { least: number; most: number },
  secondsSinceAsked: number,
  random: number,
): number {
  const pause = Math.min(Math.max(secondsSinceAsked / 4, least), most);
  return Math.min(pause * (1 + random / 4), most);
}

function doubled({ first, most }: { first: number; most: number }, times: number): number {
  return Math.min(first * 2 ** Math.min(times, 30), most);
}
