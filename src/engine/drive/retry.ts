/** Decides whether and when a failed recall is tried again. */

import { type ErrorClass, messageOf, oneLine, TapeError } from '../../core/errors.js';
import { diskClassOf } from '../../restore-area/failures.js';

interface Rule {
  /** Including the first try; then the file fails permanently. */
  maxAttempts: number;
  firstPauseSeconds: number;
  maxPauseSeconds: number;
}

/** SPACE is retried without limit. POLICY and PERMANENT errors do not change with a retry. */
const RULES: Record<ErrorClass, Rule> = {
  TRANSIENT: { maxAttempts: 8, firstPauseSeconds: 1, maxPauseSeconds: 600 },
  MEDIA: { maxAttempts: 3, firstPauseSeconds: 1, maxPauseSeconds: 60 },
  SPACE: { maxAttempts: Number.POSITIVE_INFINITY, firstPauseSeconds: 30, maxPauseSeconds: 30 },
  POLICY: { maxAttempts: 1, firstPauseSeconds: 0, maxPauseSeconds: 0 },
  PERMANENT: { maxAttempts: 1, firstPauseSeconds: 0, maxPauseSeconds: 0 },
};

/**
 * Returns the seconds until the next try; the pause grows fourfold.
 * @param attempts tries before this failure
 * @param random 0 to 1; spreads the retries of recalls that failed together
 * @returns undefined if there is no next try
 */
export function pauseSeconds(errorClass: ErrorClass, attempts: number, random: number): number | undefined {
  const rule = RULES[errorClass];
  if (attempts + 1 >= rule.maxAttempts) return undefined;
  const pause = Math.min(rule.firstPauseSeconds * 4 ** Math.min(attempts, 20), rule.maxPauseSeconds);
  return pause * (0.5 + random / 2);
}

/** Whether a failure counts as a try: waiting for room does not. */
export const isTry = (errorClass: ErrorClass): boolean => errorClass !== 'SPACE';

/** Seconds until a drive visits a volume again after `before` + 1 unexpected errors. */
export function breakdownPauseSeconds(before: number, random: number): number {
  const { maxAttempts, maxPauseSeconds } = RULES.TRANSIENT;
  return pauseSeconds('TRANSIENT', Math.min(before, maxAttempts - 2), random) ?? maxPauseSeconds;
}

/** Pause if too many files are open, which does not count as a try. */
export const EXHAUSTED_PAUSE_SECONDS = 5;

/** Tries for an error class, including the first. */
export function maxTries(errorClass: ErrorClass): number {
  return RULES[errorClass].maxAttempts;
}

/** Final error text: the last error, and the number of tries if more than one. */
export function describeEnd(error: string, tries: number): string {
  return tries === 1 ? error : `${error}; given up after ${tries} tries`;
}

/** Error class of any error that ended a recall; restore disk errors are classified by code. */
export function classifyError(error: unknown): { errorClass: ErrorClass; error: string } {
  const text = oneLine(messageOf(error));
  if (error instanceof TapeError) return { errorClass: error.errorClass, error: text };
  return { errorClass: diskClassOf(error), error: text };
}

/** A file is temporarily unavailable; does not count as a try. */
export class PostponedError extends Error {
  readonly seconds: number;

  /** @param seconds until the next try */
  constructor(message: string, seconds: number, options?: ErrorOptions) {
    super(message, options);
    this.seconds = seconds;
  }
}
