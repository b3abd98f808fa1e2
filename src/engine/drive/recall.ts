/**
 * The steps of one recall: read, checksum and write in one pass, sync, put in place (states in batch.ts).
 *
 * An unrecorded file may be at the path: a user's own, or a copy that the database lost after a failover or a restored
 * backup. The recall leaves it alone. If its bytes equal those just read, the recall needs no other copy.
 */
import type { BigIntStats } from 'node:fs';
import path from 'node:path';
import { codeOf, isExhausted, messageOf, oneLine, TapeError } from '../../core/errors.js';
import { addSeconds } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import { readStaleFilesOn } from '../../domain/disks/stale-files.js';
import type { RecallOutcome } from '../../domain/recalls/ends.js';
import type { RunningRecall } from '../../domain/recalls/starts.js';
import type { WantedAttributes } from '../../restore-area/attributes.js';
import { checksumOf, readChecked, type Sums } from '../../restore-area/checksum.js';
import { putInPlace, recogniseCopy, removeCopy, statIn, storedStats } from '../../restore-area/copy.js';
import { callDisk } from '../../restore-area/failures.js';
import { type Budget, PartialFile, partialName } from '../../restore-area/partial-file.js';
import { type Directory, nameDirectory } from '../../restore-area/restore-area.js';
import type { MountedVolume } from '../../tape/drive-library.js';
import type { Confirmations, HeldLease } from './lease.js';
import { classifyError, describeEnd, EXHAUSTED_PAUSE_SECONDS, isTry, pauseSeconds } from './retry.js';

/** Wraps the reason (`cause`) of a recall's end if its copy could not be removed or examined. */
export class UnseenError extends Error {}

/** Errors of the tape, not of the restore disk: a file with a second tape copy is then read from that. */
const tapeErrors = new WeakSet<object>();

function isTapeFault(thrown: unknown): boolean {
  const error = thrown instanceof UnseenError ? thrown.cause : thrown;
  return error instanceof TapeError && tapeErrors.has(error);
}

interface ActiveCopy {
  directory: Directory;
  partial: string;
  file: PartialFile;
  /** Makes a followed call on the copy's disk. */
  onDisk: <T>(call: (tick: () => void) => Promise<T>) => Promise<T>;
}

interface ReadCopy {
  copy: ActiveCopy;
  sums: Sums;
}

/** @throws NotHeldError if another engine holds the drive */
export async function beginCopy(
  lease: HeldLease,
  confirmations: Confirmations,
  recall: RunningRecall,
  { folder: directory, ...how }: { folder: Directory; budget: Budget; attributes: WantedAttributes },
): Promise<ActiveCopy> {
  // a stalled engine must not open a partial file after its successor has cleaned up
  await confirmations.confirmOpening();
  const partial = partialName({ ...lease, fileId: recall.fileId });
  const file = new PartialFile(directory, partial, how);
  const onDisk: ActiveCopy['onDisk'] = (call) =>
    callDisk(lease.calls, recall, async (tick) => {
      try {
        return await call(tick);
      } catch (error) {
        throw nameDirectory(error, directory);
      }
    });
  return { directory, partial, file, onDisk };
}

/**
 * Reads the whole file into the copy. Writes may still be pending when it returns. Removes the copy on error.
 * @returns the checksum, and the Adler-32 if the catalogue has none
 * @throws TapeError MEDIA if the tape copy differs from the catalogue
 */
export async function readInto(
  copy: ActiveCopy,
  volume: MountedVolume,
  recall: RunningRecall,
  { signal, noteBytes: recordBytes }: { signal: AbortSignal; noteBytes?: (bytes: number) => void },
): Promise<Sums> {
  let isDiskFault = false;
  try {
    const onTape = { ...recall, path: recall.tapePath };
    return await readChecked(volume, onTape, {
      signal,
      wantsAdler32: !recall.hasAdler32,
      sink: (chunk) => {
        recordBytes?.(chunk.length);
        return copy
          .onDisk(() => copy.file.write(chunk))
          .catch((error: unknown) => {
            isDiskFault = true;
            throw error;
          });
      },
      describe: ({ kind, found, expected }) => {
        const has = kind === 'size' ? `${found} bytes` : `checksum ${found}`;
        const source = kind === 'checksum' && recall.isChecksumTaken ? 'its first restore gave' : 'the catalogue says';
        return `the tape copy has ${has}, and ${source} ${expected}: ${recall.logicalPath}`;
      },
    });
  } catch (error) {
    if (error instanceof TapeError && !isDiskFault) tapeErrors.add(error);
    throw await giveUp(copy, error);
  }
}

/**
 * Syncs a copy and puts it in place. Removes the copy on error.
 *
 * First records its inode and mtime, and confirms the lease. An engine that stalls after that overwrites nothing: the
 * drive's next holder has removed the partial file, and an existing file is never replaced.
 */
export async function finishCopy(
  ctx: Context,
  confirmations: Confirmations,
  recall: RunningRecall,
  { copy, sums }: ReadCopy,
): Promise<RecallOutcome> {
  try {
    const { ino, mtimeNs } = await copy.onDisk(() => copy.file.finish());
    await confirmations.confirmPlacing({ fileId: recall.fileId, ino, mtimeNs });
    const placed = await placeCopy(ctx, recall, copy, { ino, checksum: sums.checksum });
    if (typeof placed !== 'string') return await keepExisting(ctx, recall, { copy, sums }, placed);
    // the partial file is a second link to the same bytes, which no later job would find
    const isUnseen = placed === 'unsure' && !(await discard(copy));
    const ctimeNs = await readChangeTime(recall, copy, ino);
    return { fileId: recall.fileId, kind: 'restored', ino, mtimeNs, ctimeNs, ...sums, isUnseen };
  } catch (error) {
    throw await giveUp(copy, error);
  }
}

/**
 * Never rejects: the copy is in place, and a retry after an error would find it there.
 * @returns null if it cannot be read: then the checksum identifies the copy
 */
async function readChangeTime(recall: RunningRecall, copy: ActiveCopy, ino: bigint): Promise<bigint | null> {
  try {
    const inPlace = await copy.onDisk(() => statIn(copy.directory, path.basename(recall.path)));
    const stored = inPlace && storedStats(inPlace);
    return stored?.ino === ino ? stored.ctimeNs : null;
  } catch {
    return null;
  }
}

async function keepExisting(
  ctx: Context,
  recall: RunningRecall,
  { copy, sums }: ReadCopy,
  standing: BigIntStats,
): Promise<RecallOutcome> {
  const { mtimeNs, ctimeNs } = storedStats(standing);
  const isUnseen = !(await discard(copy));
  const existing = recall.mountpoint + recall.path;
  ctx.log.warn(
    { path: recall.logicalPath },
    `${existing} has the same bytes, and nobody knows who has put it there: it is left alone`,
  );
  return { fileId: recall.fileId, kind: 'standing', ...sums, mtimeNs, ctimeNs, isUnseen };
}

/** @returns whether the copy is gone */
async function discard(copy: ActiveCopy): Promise<boolean> {
  return await copy.onDisk(() => copy.file.discard()).catch(() => false); // the disk hangs
}

/** @returns the error to throw */
async function giveUp(copy: ActiveCopy, error: unknown): Promise<unknown> {
  const isGone = await discard(copy);
  return isGone || error instanceof UnseenError ? error : new UnseenError(messageOf(error), { cause: error });
}

/**
 * @returns `unsure` if the partial file may remain; the file's stats if an unrecorded file with the same bytes is at
 *   the path
 * @throws TapeError POLICY if any other file is there
 */
async function placeCopy(
  ctx: Context,
  recall: RunningRecall,
  copy: ActiveCopy,
  { ino, checksum }: { ino: bigint; checksum: string },
): Promise<'placed' | 'unsure' | BigIntStats> {
  const name = path.basename(recall.path);
  for (let attempt = 1; ; attempt++) {
    try {
      await copy.onDisk(() => putInPlace(copy.directory, copy.partial, name));
      return 'placed';
    } catch (error) {
      const found = await copy.onDisk(() => statIn(copy.directory, name)).catch(() => undefined);
      // the copy is in place: a network file system lost the reply, or the partial file could not be removed
      if (found && storedStats(found).ino === ino) return 'unsure';
      // a slow disk may still put it in place
      if (codeOf(error) !== 'EEXIST' || !found) throw new UnseenError(messageOf(error), { cause: error });
    }
    if (attempt === 2 || !(await removeStaleCopy(ctx, recall, copy))) {
      const existing = await findEqualFile(copy, name, checksum);
      if (existing) return existing;
      throw new TapeError('POLICY', `another file stands at ${recall.mountpoint}${recall.path}, and is left alone`);
    }
  }
}

/** Removes an earlier attempt's copy whose end was not recorded. @returns whether nothing is in place now */
async function removeStaleCopy(ctx: Context, recall: RunningRecall, copy: ActiveCopy): Promise<boolean> {
  for (const stale of await readStaleFilesOn(ctx, recall)) {
    if (stale.ino === null || stale.path !== recall.path) continue; // its file was renamed since
    const isRemoved = await copy.onDisk(async (tick) => {
      const found = await recogniseCopy(stale, tick);
      return found !== 'changed' && (await removeCopy(stale, found));
    });
    if (isRemoved) return true;
  }
  return false;
}

/** Logs a failed recall. @returns its outcome: retry after a pause, or final failure */
export function outcomeOf(ctx: Context, recall: RunningRecall, thrown: unknown): RecallOutcome {
  const { errorClass, error } = classifyError(thrown);
  if (isExhausted(thrown)) {
    ctx.log.warn({ file: String(recall.fileId), path: recall.logicalPath }, `recall put off: ${error}`);
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

/** Outcome of a recall that was stopped or not started. */
export function toReturned({ fileId }: RunningRecall): RecallOutcome {
  return { fileId, kind: 'returned' };
}

/** Outcome of a recall whose disk is full: it gets another disk, or waits for room. */
export function toUnplaced({ fileId }: RunningRecall, error: string): RecallOutcome {
  return { fileId, kind: 'postponed', errorClass: 'SPACE', error: oneLine(error) };
}

/**
 * Returns the file in place if it has the copy's bytes, and the same users may read it. Reads it completely.
 * @throws the disk's error, also if the file disappears meanwhile
 */
async function findEqualFile(
  { directory, partial, onDisk }: ActiveCopy,
  name: string,
  checksum: string,
): Promise<BigIntStats | undefined> {
  const [existing, copy] = [
    await onDisk(() => statIn(directory, name)),
    await onDisk(() => statIn(directory, partial)),
  ];
  if (!existing?.isFile() || !copy || existing.size !== copy.size) return undefined;
  const readers = copy.mode & 0o444n;
  const isWorldReadable = (copy.mode & 0o004n) !== 0n;
  if ((existing.mode & readers) !== readers) return undefined;
  if (!isWorldReadable && (existing.uid !== copy.uid || existing.gid !== copy.gid)) return undefined;
  const read = (file: string, like: string) =>
    onDisk((tick) => checksumOf(path.join(directory.fdPath, file), like, tick));
  if ((await read(name, checksum)) !== checksum) return undefined;
  // Adler-32 detects tape errors, but cannot prove that two files are equal
  const isEqual = !checksum.startsWith('adler32:') || (await read(name, 'sha256')) === (await read(partial, 'sha256'));
  return isEqual ? existing : undefined;
}
