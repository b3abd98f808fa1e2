/** Whether and when a recall that failed is tried again. */
import type { Context } from '../../context.js';
import { type ErrorClass, messageOf, oneLine, TapeError } from '../../errors.js';
import type { RecallOutcome } from '../../operations/recalls/ends.js';
import type { RunningRecall } from '../../operations/recalls/starts.js';
import { addSeconds } from '../../time.js';
import { diskClassOf } from '../disk/failures.js';

interface Rule {
  /** Tries in all; after the last one the file has failed for good. */
  maxAttempts: number;
  firstPauseSeconds: number;
  maxPauseSeconds: number;
}

/** Only waiting helps where a library has no room; a rule of the site and a missing file do not change by trying. */
const RULES: Record<ErrorClass, Rule> = {
  TRANSIENT: { maxAttempts: 8, firstPauseSeconds: 1, maxPauseSeconds: 600 },
  MEDIA: { maxAttempts: 3, firstPauseSeconds: 1, maxPauseSeconds: 60 },
  SPACE: { maxAttempts: Number.POSITIVE_INFINITY, firstPauseSeconds: 30, maxPauseSeconds: 30 },
  POLICY: { maxAttempts: 1, firstPauseSeconds: 0, maxPauseSeconds: 0 },
  PERMANENT: { maxAttempts: 1, firstPauseSeconds: 0, maxPauseSeconds: 0 },
};

/**
 * Seconds until the next try, growing by four from try to try.
 * @param attempts tries before the one that failed now
 * @param random from 0 to 1: recalls that failed together are not all tried again at the same moment
 * @returns undefined when there is no next try
 */
export function pauseSeconds(errorClass: ErrorClass, attempts: number, random: number): number | undefined {
  const rule = RULES[errorClass];
  if (attempts + 1 >= rule.maxAttempts) return undefined;
  const pause = Math.min(rule.firstPauseSeconds * 4 ** Math.min(attempts, 20), rule.maxPauseSeconds);
  return pause * (0.5 + random / 2);
}

/** Whether it counts as a try: a file that waits for room has all of its tries when there is some. */
export const isTry = (errorClass: ErrorClass): boolean => errorClass !== 'SPACE';

/** Seconds until a drive turns to a volume again to which a visit has broken down, after others before it. */
export function breakdownPauseSeconds(before: number, random: number): number {
  const { maxAttempts, maxPauseSeconds } = RULES.TRANSIENT;
  return pauseSeconds('TRANSIENT', Math.min(before, maxAttempts - 2), random) ?? maxPauseSeconds;
}

/** Where too many files are open, which is no try of any of them. */
export const EXHAUSTED_PAUSE_SECONDS = 5;

/** Tries in all that an error of the class is worth. */
export function maxTries(errorClass: ErrorClass): number {
  return RULES[errorClass].maxAttempts;
}

/** What a file that has failed for good says: the last error, and how often it was tried where that was worth it. */
export function describeEnd(error: string, tries: number): string {
  return tries === 1 ? error : `${error}; given up after ${tries} tries`;
}

/** The class of anything that ended a recall; an error of the restore disk is sorted by its code. */
export function classifyError(error: unknown): { errorClass: ErrorClass; error: string } {
  const text = oneLine(messageOf(error));
  if (error instanceof TapeError) return { errorClass: error.errorClass, error: text };
  return { errorClass: diskClassOf(error), error: text };
}

/** A file cannot be had just now, which is no try of it. */
export class PutOffError extends Error {
  readonly seconds: number;

  /** @param seconds until it is tried again */
  constructor(message: string, seconds: number, options?: ErrorOptions) {
    super(message, options);
    this.seconds = seconds;
  }
}

/** How its recall ends. Told to the log. */
export function toPutOff(
  ctx: Context,
  { fileId, logicalPath: path }: RunningRecall,
  { message, seconds }: PutOffError,
): RecallOutcome {
  const error = oneLine(message);
  ctx.log.warn({ path, seconds }, `recall put off: ${error}`);
  const notBefore = addSeconds(ctx.now(), seconds);
  return { fileId, kind: 'postponed', errorClass: 'TRANSIENT', error, notBefore };
}
