/** Decides whether and when a failed recall is tried again. */

import { type ErrorClass, messageOf, oneLine, TapeError } from '../../core/errors.js';
import { diskClassOf } from '../../restore-area/failures.js';

interface Rule {
  /** Number of tries, including the first try, after which the recall fails permanently. */
  maxAttempts: number;
  firstPauseSeconds: number;
  maxPauseSeconds: number;
}

/** Retry rules by error class. SPACE errors are retried without limit. POLICY and PERMANENT errors are not retried. */
const RULES: Record<ErrorClass, Rule> = {
  TRANSIENT: { maxAttempts: 8, firstPauseSeconds: 1, maxPauseSeconds: 600 },
  MEDIA: { maxAttempts: 3, firstPauseSeconds: 1, maxPauseSeconds: 60 },
  SPACE: { maxAttempts: Number.POSITIVE_INFINITY, firstPauseSeconds: 30, maxPauseSeconds: 30 },
  POLICY: { maxAttempts: 1, firstPauseSeconds: 0, maxPauseSeconds: 0 },
  PERMANENT: { maxAttempts: 1, firstPauseSeconds: 0, maxPauseSeconds: 0 },
};

/**
 * Returns the seconds until a failed recall is tried again, or undefined if the recall is not tried again. Each pause
 * is four times the previous pause.
 * @param attempts number of tries before this failure
 * @param random random value from 0 to 1 that spreads the retries of recalls that failed together
 */
export function pauseSeconds(errorClass: ErrorClass, attempts: number, random: number): number | undefined {
  const rule = RULES[errorClass];
  if (attempts + 1 >= rule.maxAttempts) return undefined;
  const pause = Math.min(rule.firstPauseSeconds * 4 ** Math.min(attempts, 20), rule.maxPauseSeconds);
  return pause * (0.5 + random / 2);
}

/**
 * Returns whether a failure counts as a try. If a recall fails because the disk has no free space, the failure does not
 * count.
 */
export const isTry = (errorClass: ErrorClass): boolean => errorClass !== 'SPACE';

/**
 * Returns the seconds for which drives must not mount a volume again after an unexpected error. The pause grows with
 * the number of earlier errors (`before`).
 */
export function breakdownPauseSeconds(before: number, random: number): number {
  const { maxAttempts, maxPauseSeconds } = RULES.TRANSIENT;
  return pauseSeconds('TRANSIENT', Math.min(before, maxAttempts - 2), random) ?? maxPauseSeconds;
}

/** Seconds after which a recall is tried again if it failed because too many files were open. */
export const EXHAUSTED_PAUSE_SECONDS = 5;

/** Returns the number of tries, including the first try, after which an error of this class is permanent. */
export function maxTries(errorClass: ErrorClass): number {
  return RULES[errorClass].maxAttempts;
}

/** Returns a failed recall's error text: the last error, and the number of tries if there was more than one. */
export function describeEnd(error: string, tries: number): string {
  return tries === 1 ? error : `${error}; given up after ${tries} tries`;
}

/**
 * Returns the class of an error that made a recall fail. If the error comes from a restore disk, the class depends on
 * the error code.
 */
export function classifyError(error: unknown): { errorClass: ErrorClass; error: string } {
  const text = oneLine(messageOf(error));
  if (error instanceof TapeError) return { errorClass: error.errorClass, error: text };
  return { errorClass: diskClassOf(error), error: text };
}

/** Thrown if a file on tape is temporarily unavailable. The failed read does not count as a try. */
export class PostponedError extends Error {
  readonly seconds: number;

  constructor(message: string, seconds: number, options?: ErrorOptions) {
    super(message, options);
    this.seconds = seconds;
  }
}
