/**
 * Computes pauses after staging library failures, and intervals between polls of stage requests. All functions are
 * pure.
 */
import { RetryLaterError } from '../../tape/staging.js';

/** Seconds to pause after a library failure. The pause doubles with each consecutive failure. */
const REST_SECONDS = { first: 1, most: 300 };

/**
 * Seconds to wait before requesting a file again after the library has lost the file's stage request. Failed releases
 * are retried after the same pause. The pause doubles with each attempt.
 */
const AGAIN_SECONDS = { first: 1, most: 600 };

/**
 * Returns the seconds for which a library is paused after a failure.
 * @param before number of consecutive earlier failures
 * @param random random value from 0 to 1 that varies the pause
 */
export function restSeconds(error: unknown, before: number, random: number): number {
  if (error instanceof RetryLaterError) return error.retryAfterSeconds + random;
  return doubled(REST_SECONDS, before) * (0.75 + random / 4);
}

export function againSeconds(before: number): number {
  return before === 0 ? 0 : doubled(AGAIN_SECONDS, before - 1);
}

/**
 * Returns the seconds until a stage request is polled again: a quarter of the request's age, within limits.
 * @param random random value from 0 to 1 that spreads the polls over time
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
