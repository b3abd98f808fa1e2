/**
 * The steps of one recall: read, checksummed and written in one pass, synced, and put in place (states in batch.ts).
 *
 * An unrecorded file may be at the path: a user's own, or a copy that the database has lost (a standby took over, a backup was restored). It is left
 * alone. If it has the bytes that were just read, the file needs no other copy.
 */
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf, isExhausted, messageOf, oneLine, TapeError } from '../../errors.js';
import { readLeftOn } from '../../operations/disks/left-behind.js';
import type { RecallOutcome } from '../../operations/recalls/ends.js';
import type { RunningRecall } from '../../operations/recalls/starts.js';
import type { MountedVolume } from '../../tape/backend.js';
import { addSeconds } from '../../time.js';
import { checksumOf, readChecked } from '../checksum.js';
import type { WantedAttributes } from '../disk/attributes.js';
import { inodeOf, lookInto, putInPlace } from '../disk/copy.js';
import { ofDisk } from '../disk/failures.js';
import { type Budget, PartialFile, partialName } from '../disk/partial-file.js';
import { removeLeftCopy } from '../disk/removal.js';
import { type Folder, nameFolder } from '../disk/restore-area.js';
import type { Confirmations, HeldLease } from './lease.js';
import { classifyError, describeEnd, EXHAUSTED_PAUSE_SECONDS, isTry, pauseSeconds } from './retry.js';

/** Why a recall ended (`cause`) whose copy could not be removed, or looked at. */
export class UnseenError extends Error {}

/** Errors of reading the tape, and not of the restore disk: a file with a second copy is read there. */
const ofTape = new WeakSet<object>();

function isOfTape(thrown: unknown): boolean {
  const error = thrown instanceof UnseenError ? thrown.cause : thrown;
  return error instanceof TapeError && ofTape.has(error);
}

/** A copy that is being made, beside its place. */
interface CopyInHand {
  folder: Folder;
  partial: string;
  file: PartialFile;
  /** Makes a call on its disk, and follows it. */
  onDisk: <T>(call: (tick: () => void) => Promise<T>) => Promise<T>;
}

/** @throws NotHeldError when the drive is somebody else's by now */
export async function beginCopy(
  lease: HeldLease,
  confirmations: Confirmations,
  recall: RunningRecall,
  { folder, ...how }: { folder: Folder; budget: Budget; attributes: WantedAttributes },
): Promise<CopyInHand> {
  // who has stood still must not begin a partial file when others have looked for what it left already
  await confirmations.confirmOpening();
  const partial = partialName({ ...lease, fileId: recall.fileId });
  const file = new PartialFile(folder, partial, how);
  const onDisk: CopyInHand['onDisk'] = (call) =>
    ofDisk(lease.calls, recall, async (tick) => {
      try {
        return await call(tick);
      } catch (error) {
        throw nameFolder(error, folder);
      }
    });
  return { folder, partial, file, onDisk };
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
  { signal, noteBytes }: { signal: AbortSignal; noteBytes?: (bytes: number) => void },
): Promise<string> {
  let isOfDisk = false;
  try {
    const onTape = { ...recall, path: recall.tapePath };
    return await readChecked(volume, onTape, {
      signal,
      sink: (chunk) => {
        noteBytes?.(chunk.length);
        return copy
          .onDisk(() => copy.file.write(chunk))
          .catch((error: unknown) => {
            isOfDisk = true;
            throw error;
          });
      },
      tell: ({ kind, found, expected }) => {
        const has = kind === 'size' ? `${found} bytes` : `checksum ${found}`;
        const who = kind === 'checksum' && recall.isChecksumTaken ? 'its first restore gave' : 'the catalogue says';
        return `the tape copy has ${has}, and ${who} ${expected}: ${recall.logicalPath}`;
      },
    });
  } catch (error) {
    if (error instanceof TapeError && !isOfDisk) ofTape.add(error);
    throw await giveUp(copy, error);
  }
}

/**
 * Syncs a copy that was read and puts it in its place, which lasts once the folder is synced as well. The copy is removed
 * when it throws.
 *
 * What the copy is known by is noted first, together with the question whether the drive is still ours. Whoever stands
 * still after that overwrites nothing: the next holder of the drive has removed the partial file, and what stands in the
 * place is not replaced.
 *
 * Where a file that nobody has noted stands in the place and has the same bytes, it stays, and the copy goes.
 */
export async function finishCopy(
  ctx: Context,
  confirmations: Confirmations,
  recall: RunningRecall,
  { copy, checksum }: { copy: CopyInHand; checksum: string },
): Promise<RecallOutcome> {
  try {
    const { ino, mtimeNs } = await copy.onDisk(() => copy.file.finish());
    await confirmations.confirmPlacing({ fileId: recall.fileId, ino, mtimeNs });
    const taken = await takePlace(ctx, recall, copy, { ino, checksum });
    if (taken === 'standing') return await leaveStanding(ctx, recall, { copy, checksum });
    // another link to the same bytes, which nobody would look for any more
    const isUnseen = taken === 'unsure' && !(await discard(copy));
    const ctimeNs = await readChangeTime(recall, copy, ino);
    return { fileId: recall.fileId, kind: 'restored', ino, mtimeNs, ctimeNs, checksum, isUnseen };
  } catch (error) {
    throw await giveUp(copy, error);
  }
}

/**
 * Never rejects: the copy is in place, and a recall that failed now would find its own copy there the next time.
 * @returns null where it cannot be read: the copy is known by its bytes then
 */
async function readChangeTime(recall: RunningRecall, copy: CopyInHand, ino: bigint): Promise<bigint | null> {
  try {
    const inPlace = await copy.onDisk(() => lookInto(copy.folder, path.basename(recall.path)));
    return inPlace && inodeOf(inPlace) === ino ? inPlace.ctimeNs : null;
  } catch {
    return null;
  }
}

async function leaveStanding(
  ctx: Context,
  recall: RunningRecall,
  { copy, checksum }: { copy: CopyInHand; checksum: string },
): Promise<RecallOutcome> {
  const isUnseen = !(await discard(copy));
  const place = recall.mountpoint + recall.path;
  ctx.log.warn(
    { path: recall.logicalPath },
    `${place} has the same bytes, and nobody knows who has put it there: it is left alone`,
  );
  return { fileId: recall.fileId, kind: 'standing', checksum, isUnseen };
}

/** @returns whether nothing of it is there any more */
async function discard(copy: CopyInHand): Promise<boolean> {
  return await copy.onDisk(() => copy.file.discard()).catch(() => false); // it hangs
}

/** @returns what is to be thrown */
async function giveUp(copy: CopyInHand, error: unknown): Promise<unknown> {
  const isGone = await discard(copy);
  return isGone || error instanceof UnseenError ? error : new UnseenError(messageOf(error), { cause: error });
}

/**
 * @returns `placed`, or `unsure` where the partial file may be left beside it; `standing` where a file of which nothing is noted stands
 *   there, with the same bytes
 * @throws TapeError POLICY where any other file stands there
 */
async function takePlace(
  ctx: Context,
  recall: RunningRecall,
  copy: CopyInHand,
  { ino, checksum }: { ino: bigint; checksum: string },
): Promise<'placed' | 'unsure' | 'standing'> {
  const name = path.basename(recall.path);
  for (let attempt = 1; ; attempt++) {
    try {
      await copy.onDisk(() => putInPlace(copy.folder, copy.partial, name));
      return 'placed';
    } catch (error) {
      const found = await copy
        .onDisk(() => lookInto(copy.folder, name))
        .catch(() => {
          throw new UnseenError(messageOf(error), { cause: error });
        });
      // it is there: a network file system may say that it is not, or the partial file could not be removed any more
      if (found && inodeOf(found) === ino) return 'unsure';
      if (codeOf(error) !== 'EEXIST') throw error;
    }
    if (attempt === 2 || !(await removeEarlier(ctx, recall, copy))) {
      if (await standsFor(copy, name, checksum)) return 'standing';
      throw new TapeError('POLICY', `another file stands at ${recall.mountpoint}${recall.path}, and is left alone`);
    }
  }
}

/** An earlier try may have come so far, and its end was not seen. @returns whether that was what stood there */
async function removeEarlier(ctx: Context, recall: RunningRecall, copy: CopyInHand): Promise<boolean> {
  for (const left of await readLeftOn(ctx, recall)) {
    if ((await copy.onDisk(() => removeLeftCopy(left))) === 'same') return true;
  }
  return false;
}

/** How a recall ends that could not be done: to be tried again after a pause, or failed for good. Told to the log. */
export function outcomeOf(ctx: Context, recall: RunningRecall, thrown: unknown): RecallOutcome {
  const { errorClass, error } = classifyError(thrown);
  if (isExhausted(thrown)) {
    ctx.log.warn({ file: String(recall.fileId), path: recall.logicalPath }, `recall put off: ${error}`);
    const notBefore = addSeconds(ctx.now(), EXHAUSTED_PAUSE_SECONDS);
    return { fileId: recall.fileId, kind: 'postponed', errorClass, error, notBefore };
  }
  const pause = pauseSeconds(errorClass, recall.attempts, Math.random());
  const what = {
    file: String(recall.fileId),
    path: recall.logicalPath,
    errorClass,
    attempts: recall.attempts + 1,
    pause,
  };
  ctx.log.warn(what, `recall failed: ${error}`);
  return pause === undefined
    ? {
        fileId: recall.fileId,
        kind: 'failed',
        errorClass,
        error: describeEnd(error, recall.attempts + 1),
        isOfTape: isOfTape(thrown),
      }
    : {
        fileId: recall.fileId,
        kind: isTry(errorClass) ? 'retry' : 'postponed',
        ...{ errorClass, error, notBefore: addSeconds(ctx.now(), pause) },
      };
}

/** How a recall ends that was stopped or not begun. */
export function toReturned({ fileId }: RunningRecall): RecallOutcome {
  return { fileId, kind: 'returned' };
}

/** How a recall ends whose disk takes no more: another disk may have it at once, or it waits for room. */
export function toUnplaced({ fileId }: RunningRecall, error: string): RecallOutcome {
  return { fileId, kind: 'postponed', errorClass: 'SPACE', error: oneLine(error) };
}

/** A copy that is whole, beside its place. */
interface WholeCopy {
  folder: Folder;
  partial: string;
  /** Makes a call on its disk, and follows it; a long one shows progress. */
  onDisk: <T>(call: (tick: () => void) => Promise<T>) => Promise<T>;
}

/**
 * Is what stands there a plain file with the very bytes of the copy in hand, which whoever may read that one may read as well?
 * It is read to its end for that; nothing is written.
 * @param checksum of the copy in hand
 * @throws what the disk says, also where what stands there goes meanwhile
 */
async function standsFor({ folder, partial, onDisk }: WholeCopy, name: string, checksum: string): Promise<boolean> {
  const [standing, copy] = [await onDisk(() => lookInto(folder, name)), await onDisk(() => lookInto(folder, partial))];
  if (!standing?.isFile() || !copy || standing.size !== copy.size) return false;
  const readers = copy.mode & 0o444n;
  const isAnybodys = (copy.mode & 0o004n) !== 0n;
  if ((standing.mode & readers) !== readers) return false;
  if (!isAnybodys && (standing.uid !== copy.uid || standing.gid !== copy.gid)) return false;
  const read = (file: string, like: string) => onDisk((tick) => checksumOf(path.join(folder.at, file), like, tick));
  if ((await read(name, checksum)) !== checksum) return false;
  // 32 bits tell what a tape has lost; here two files are told apart
  return !checksum.startsWith('adler32:') || (await read(name, 'sha256')) === (await read(partial, 'sha256'));
}
