/**
 * One recall of a mounted volume: read, checksummed and written in one pass, synced, and put in place.
 *
 * Killed anywhere, it leaves a partial file and a recall that says RUNNING; whoever gets the drive next removes the one
 * and queues the other again.
 */
import path from 'node:path';
import type { Context } from '../../context.js';
import { TapeError } from '../../errors.js';
import type { RecallOutcome } from '../../operations/recalls/ends.js';
import type { RunningRecall } from '../../operations/recalls/starts.js';
import type { MountedVolume } from '../../tape/backend.js';
import { addSeconds } from '../../time.js';
import { checksumOf } from '../checksum.js';
import { inspect, putInPlace } from '../disk/copy.js';
import { ofDisk } from '../disk/failures.js';
import { type Budget, PartialFile, partialName } from '../disk/partial-file.js';
import type { Folder } from '../disk/restore-area.js';
import { readChecked } from '../tape-copy.js';
import type { HeldLease } from './lease.js';
import { classifyError, describeEnd, pauseSeconds } from './retry.js';

/** A copy that is being made, beside its place. */
export interface CopyInHand {
  folder: Folder;
  partial: string;
  file: PartialFile;
}

/** @throws Error when the lease is lost */
export function beginCopy(
  lease: HeldLease,
  recall: RunningRecall,
  { folder, budget }: { folder: Folder; budget: Budget },
): CopyInHand {
  // who has stood still must not begin a partial file when others have looked for what it left already
  lease.confirm();
  const partial = partialName({ ...lease, fileId: recall.fileId });
  return { folder, partial, file: new PartialFile(folder, partial, budget) };
}

/**
 * Reads the whole file into the copy, which may not be written yet when this returns; the copy is removed when it throws.
 * @returns the checksum
 * @throws TapeError MEDIA when the tape copy is not what the catalogue says
 */
export async function readInto(
  copy: CopyInHand,
  volume: MountedVolume,
  recall: RunningRecall,
  signal: AbortSignal,
): Promise<string> {
  try {
    return await readChecked(volume, recall, {
      signal,
      sink: (chunk) => ofDisk(copy.file.write(chunk)),
      tell: ({ kind, found, expected }) => {
        const has = kind === 'size' ? `${found} bytes` : `checksum ${found}`;
        return `the tape copy has ${has}, and the catalogue says ${expected}: ${recall.path}`;
      },
    });
  } catch (error) {
    await copy.file.discard();
    throw error;
  }
}

/**
 * Syncs a copy that was read and puts it in its place, which lasts once the folder is synced as well. The copy is removed
 * when it throws.
 */
export async function finishCopy(
  lease: HeldLease,
  recall: RunningRecall,
  copy: CopyInHand,
  checksum: string,
): Promise<RecallOutcome> {
  const name = path.basename(recall.path);
  try {
    const mtimeNs = await ofDisk(copy.file.finish());
    await ofDisk(refuseOther(recall, copy.folder, checksum));
    // who has stood still must not put anything in place when the file may be another engine's already
    lease.confirm();
    await ofDisk(putInPlace(copy.folder, copy.partial, name));
    return { fileId: recall.fileId, kind: 'restored', mtimeNs };
  } catch (error) {
    await copy.file.discard();
    throw error;
  }
}

/** The same bytes may stand there, put by an engine that was killed before it could say so; anything else stays. */
async function refuseOther(recall: RunningRecall, folder: Folder, checksum: string): Promise<void> {
  const name = path.basename(recall.path);
  const found = await inspect(folder, name);
  if (found === 'nothing') return;
  if (found === 'file' && (await checksumOf(path.join(folder.at, name), checksum)) === checksum) return;
  throw new TapeError('POLICY', `another file stands at ${recall.mountpoint}${recall.path}, and is left alone`);
}

/** How a recall ends that could not be done: to be tried again after a pause, or failed for good. Told to the log. */
export function outcomeOf(ctx: Context, recall: RunningRecall, thrown: unknown): RecallOutcome {
  const { errorClass, error } = classifyError(thrown);
  const pause = pauseSeconds(errorClass, recall.attempts, Math.random());
  ctx.log.warn({ path: recall.path, errorClass, attempts: recall.attempts + 1, pause }, `recall failed: ${error}`);
  return pause === undefined
    ? { fileId: recall.fileId, kind: 'failed', errorClass, error: describeEnd(error, recall.attempts + 1) }
    : { fileId: recall.fileId, kind: 'retry', errorClass, error, notBefore: addSeconds(ctx.now(), pause) };
}

/** How a recall ends that was stopped or not begun. */
export function toReturned({ fileId }: RunningRecall): RecallOutcome {
  return { fileId, kind: 'returned' };
}
