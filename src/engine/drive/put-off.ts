/** Files that are put off, since others may come meanwhile. */
import type { Context } from '../../context.js';
import { oneLine } from '../../errors.js';
import type { RecallOutcome } from '../../operations/recalls/ends.js';
import type { RunningRecall } from '../../operations/recalls/starts.js';
import { addSeconds } from '../../time.js';

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
