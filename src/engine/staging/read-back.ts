/**
 * Confirms tape copies of a staging library that somebody wants read back: what is ready is read and compared with what the catalogue says, while no
 * recall has anything to be read.
 */
import type { Context } from '../../context.js';
import { isExhausted, oneLine } from '../../errors.js';
import { endVerification, type VerificationFailure } from '../../operations/catalogue/verifications.js';
import { letGoFiles } from '../../operations/staging/letting-go.js';
import { leaveReadBack, type ReadyCopy, takeReadBack } from '../../operations/staging/read-back.js';
import { LibraryError } from '../../tape/backend.js';
import { NotReadyError } from '../../tape/staging.js';
import { addSeconds } from '../../time.js';
import { PutOffError } from '../drive/put-off.js';
import { classifyError, pauseSeconds } from '../drive/retry.js';
import { tellMismatch } from '../drive/verify.js';
import { readChecked } from '../tape-copy.js';
import type { StagingPlace } from './place.js';
import { StagedSource } from './source.js';
import type { Unread } from './unread.js';

/**
 * Reads one copy.
 * @param how.unread of the visit
 * @returns whether there was one
 * @throws LibraryError when the library cannot be read, which says nothing of the copy
 */
export async function readBackNext(
  ctx: Context,
  place: StagingPlace,
  { unread, signal }: { unread: Unread; signal: AbortSignal },
): Promise<boolean> {
  const copy = await takeReadBack(ctx, place.id);
  if (!copy) return false;
  const { path, size, position, checksum, volumeId, fileId, tries } = copy;
  const expected = { path, size, position, checksum };
  const source = new StagedSource(ctx, place, [copy], unread);
  let failure: VerificationFailure | undefined;
  try {
    await readChecked(source, expected, { signal, tell: tellMismatch });
  } catch (error) {
    if (error instanceof NotReadyError) return true; // it is asked for again
    if (signal.aborted || error instanceof LibraryError || isExhausted(error)) {
      await leaveReadBack(ctx, place.id, copy);
      throw error;
    }
    failure = error instanceof PutOffError ? putOff(ctx, copy, error) : explainReadBack(ctx, copy, error);
    if (failure.isTry) await letGoFiles(ctx, place.id, [fileId]); // what is there is brought anew before the next try
  }
  await endVerification(ctx, { fileId, path, size, position, checksum, attempts: tries, volumeId }, failure);
  return true;
}

/** It is there, and could not be read just now. */
function putOff(ctx: Context, { path }: ReadyCopy, { message, seconds }: PutOffError): VerificationFailure {
  const error = oneLine(message);
  ctx.log.warn({ path, seconds }, `read-back put off: ${error}`);
  return { errorClass: 'TRANSIENT', error, isTry: false, notBefore: addSeconds(ctx.now(), seconds) };
}

function explainReadBack(ctx: Context, { path, tries }: ReadyCopy, thrown: unknown): VerificationFailure {
  const { errorClass, error } = classifyError(thrown);
  const pause = pauseSeconds(errorClass, tries, Math.random());
  ctx.log.warn({ path, errorClass, attempts: tries + 1, pause }, `not confirmed: ${error}`);
  return { errorClass, error, isTry: true, notBefore: pause === undefined ? undefined : addSeconds(ctx.now(), pause) };
}
