/** Builds the outcomes of recalls that did not restore a file. */

import { isExhausted, oneLine, TapeError } from '../../core/errors.js';
import { addSeconds } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import type { RecallOutcome } from '../../domain/recalls/ends.js';
import type { RunningRecall } from '../../domain/recalls/starts.js';
import type { NotReadyError } from '../../tape/staging.js';
import {
  classifyError,
  describeEnd,
  EXHAUSTED_PAUSE_SECONDS,
  isTry,
  type PostponedError,
  pauseSeconds,
} from './retry.js';

/**
 * Thrown if the copy of a failed recall cannot be removed or examined. `cause` is the error that made the recall fail.
 */
export class UnseenError extends Error {}

/**
 * Errors that the tape caused, not the restore disk. If a tape error makes a recall fail permanently, Tapegate reads
 * the file's other tape copy.
 */
const tapeErrors = new WeakSet<object>();

export function markTapeFault(error: TapeError): void {
  tapeErrors.add(error);
}

function isTapeFault(thrown: unknown): boolean {
  const error = thrown instanceof UnseenError ? thrown.cause : thrown;
  return error instanceof TapeError && tapeErrors.has(error);
}

/**
 * Logs a failed recall.
 * @returns the recall's outcome: a retry after a pause, or a permanent failure
 */
export function outcomeOf(ctx: Context, recall: RunningRecall, thrown: unknown): RecallOutcome {
  const { errorClass, error } = classifyError(thrown);
  if (isExhausted(thrown)) {
    ctx.log.warn({ file: String(recall.fileId), path: recall.logicalPath }, `recall postponed: ${error}`);
    const notBefore = addSeconds(ctx.now(), EXHAUSTED_PAUSE_SECONDS);
    return { fileId: recall.fileId, kind: 'postponed', errorClass, error, notBefore };
  }
  const pause = pauseSeconds(errorClass, recall.attempts, Math.random());
  const fields = {
    file: String(recall.fileId),
    path: recall.logicalPath,
    errorClass,
    attempts: recall.attempts + 1,
    pause,
  };
  ctx.log.warn(fields, `recall failed: ${error}`);
  return pause === undefined
    ? {
        fileId: recall.fileId,
        kind: 'failed',
        errorClass,
        error: describeEnd(error, recall.attempts + 1),
        isOfTape: isTapeFault(thrown),
      }
    : {
        fileId: recall.fileId,
        kind: isTry(errorClass) ? 'retry' : 'postponed',
        ...{ errorClass, error, notBefore: addSeconds(ctx.now(), pause) },
      };
}

/** Returns the outcome of a recall that was stopped or not started. */
export function toReturned({ fileId }: RunningRecall): RecallOutcome {
  return { fileId, kind: 'returned' };
}

/**
 * Returns the outcome of a recall that failed because its restore disk was full. The next try uses another disk, or
 * waits for free space.
 */
export function toUnplaced({ fileId }: RunningRecall, error: string): RecallOutcome {
  return { fileId, kind: 'postponed', errorClass: 'SPACE', error: oneLine(error) };
}

/**
 * Returns the outcome of a recall whose file must be staged again. The failure does not count as a try, but users see
 * the reason.
 */
export function toNotReady({ fileId }: RunningRecall, { message }: NotReadyError): RecallOutcome {
  return { fileId, kind: 'postponed', errorClass: 'TRANSIENT', error: oneLine(message) };
}

/**
 * Logs a postponed recall.
 * @returns the recall's outcome, with the time of the next try
 */
export function toPostponed(
  ctx: Context,
  { fileId, logicalPath: path }: RunningRecall,
  { message, seconds }: PostponedError,
): RecallOutcome {
  const error = oneLine(message);
  ctx.log.warn({ path, seconds }, `recall postponed: ${error}`);
  const notBefore = addSeconds(ctx.now(), seconds);
  return { fileId, kind: 'postponed', errorClass: 'TRANSIENT', error, notBefore };
}
