/** Pauses of staging libraries after failures, and poll intervals. Pure functions. */
import { RetryLaterError } from '../../tape/staging.js';

/** Pause after a failure. The pause doubles with each consecutive failure. */
const REST_SECONDS = { first: 1, most: 300 };

/** Pause before a file that did not fail is requested again. */
const AGAIN_SECONDS = { first: 1, most: 600 };

/**
 * Returns the seconds to pause after a failure. @param before number of earlier consecutive failures @param random
 * value from 0 to 1
 */
export function restSeconds(error: unknown, before: number, random: number): number {
  if (error instanceof RetryLaterError) return error.retryAfterSeconds + random;
  return doubled(REST_SECONDS, before) * (0.75 + random / 4);
}

/**
 * Returns the seconds until a file is requested again. @param before number of earlier repeats; the first repeat is
 * immediate
 */
export function againSeconds(before: number): number {
  return before === 0 ? 0 : doubled(AGAIN_SECONDS, before - 1);
}

/**
 * Returns the seconds until the next poll of a stage request: a quarter of the request's age, within limits. Fast
 * requests are noticed soon, and slow requests are polled rarely.
 * @param random value from 0 to 1 that spreads requests made together
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
