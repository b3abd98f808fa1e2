/**
 * Brings files of a mounted volume into the restore area: read, checksum and write in one pass, then sync, rename.
 *
 * Reading goes on while the file before is still being synced. Nothing is reported as restored before its folder is
 * synced as well. Killed anywhere, it leaves partial files and recalls that say RUNNING; whoever gets the drive next
 * removes the ones and queues the others again.
 */
import { createReadStream } from 'node:fs';
import { type FileHandle, unlink } from 'node:fs/promises';
import path from 'node:path';
import type { Context } from '../context.js';
import { TapeError } from '../errors.js';
import type { RecallOutcome, RunningRecall } from '../operations/recalls.js';
import type { MountedVolume } from '../tape/backend.js';
import { addSeconds } from '../time.js';
import { createChecksum } from './checksum.js';
import type { HeldLease } from './lease.js';
import { createPartial, type Folder, inspect, openFolder, partialName, putInPlace } from './restore-area.js';
import { classifyError, pauseSeconds } from './retry.js';

/**
 * Reads recalls in the order given.
 * @param lease its signal stops the work; what is not done then is `returned`
 * @returns one outcome for each recall
 */
export async function runBatch(
  ctx: Context,
  lease: HeldLease,
  volume: MountedVolume,
  batch: readonly RunningRecall[],
): Promise<RecallOutcome[]> {
  const folders = new Map<string, Folder>();
  const outcomes: Promise<RecallOutcome>[] = [];
  const settle = (recall: RunningRecall) => (error: unknown) =>
    lease.signal.aborted ? ({ fileId: recall.fileId, kind: 'returned' } as const) : judge(ctx, recall, error);
  try {
    for (const recall of batch) {
      try {
        lease.signal.throwIfAborted();
        const copy = await readOne(lease, volume, recall, await folderOf(recall, folders));
        outcomes.push(finishCopy(lease, recall, copy).catch(settle(recall)));
      } catch (error) {
        outcomes.push(Promise.resolve(settle(recall)(error)));
      }
    }
    const done = await Promise.all(outcomes);
    for (const folder of folders.values()) await folder.handle.sync();
    return done;
  } finally {
    await Promise.all(outcomes);
    for (const folder of folders.values()) await folder.handle.close();
  }
}

/** A file that has been read whole and verified, not yet synced. */
interface UnfinishedCopy {
  folder: Folder;
  partial: string;
  handle: FileHandle;
  checksum: string;
}

async function readOne(
  lease: HeldLease,
  volume: MountedVolume,
  recall: RunningRecall,
  folder: Folder,
): Promise<UnfinishedCopy> {
  const partial = partialName(recall.fileId, lease.epoch);
  const handle = await createPartial(folder, partial);
  try {
    return { folder, partial, handle, checksum: await copyBytes(volume, recall, handle, lease.signal) };
  } catch (error) {
    await discard({ folder, partial, handle });
    throw error;
  }
}

/** A partial file that cannot be removed now is removed by the next try. */
async function discard(copy: { folder: Folder; partial: string; handle: FileHandle }): Promise<void> {
  await copy.handle.close().catch(() => {}); // closed already when the rename was what failed
  await unlink(path.join(copy.folder.at, copy.partial)).catch(() => {});
}

async function folderOf(recall: RunningRecall, folders: Map<string, Folder>): Promise<Folder> {
  const key = path.join(recall.mountpoint, path.dirname(recall.path));
  const folder = folders.get(key) ?? (await openFolder(recall.mountpoint, recall.path));
  folders.set(key, folder);
  return folder;
}

async function copyBytes(
  volume: MountedVolume,
  recall: RunningRecall,
  handle: FileHandle,
  signal: AbortSignal,
): Promise<string> {
  const checksum = createChecksum(recall.checksum);
  let bytes = 0n;
  for await (const chunk of volume.read(recall.position, signal)) {
    signal.throwIfAborted();
    bytes += BigInt(chunk.length);
    if (bytes > recall.size) break;
    const writing = writeAll(handle, chunk);
    checksum.update(chunk); // while the disk writes
    await writing;
  }
  if (bytes !== recall.size) {
    const got = bytes > recall.size ? 'more' : `${bytes}`;
    throw new TapeError(
      'MEDIA',
      `the tape copy of ${recall.path} has ${got} bytes, and the catalogue says ${recall.size}`,
    );
  }
  const digest = checksum.digest();
  if (recall.checksum !== null && digest !== recall.checksum) {
    throw new TapeError(
      'MEDIA',
      `the tape copy of ${recall.path} has checksum ${digest}, and the catalogue says ${recall.checksum}`,
    );
  }
  return digest;
}

async function writeAll(handle: FileHandle, chunk: Uint8Array): Promise<void> {
  for (let offset = 0; offset < chunk.length; ) {
    const { bytesWritten } = await handle.write(chunk, offset);
    offset += bytesWritten;
  }
}

async function finishCopy(lease: HeldLease, recall: RunningRecall, copy: UnfinishedCopy): Promise<RecallOutcome> {
  const name = path.basename(recall.path);
  try {
    await copy.handle.sync();
    const { mtimeNs } = await copy.handle.stat({ bigint: true });
    await copy.handle.close();
    await checkPlace(recall, copy, name);
    lease.check();
    await putInPlace(copy.folder, copy.partial, name);
    return { fileId: recall.fileId, kind: 'restored', mtimeNs };
  } catch (error) {
    await discard(copy);
    throw error;
  }
}

/** The same bytes may stand there, put by an engine that was killed before it could say so; anything else stays. */
async function checkPlace(recall: RunningRecall, copy: UnfinishedCopy, name: string): Promise<void> {
  const found = await inspect(copy.folder, name);
  if (found === 'nothing') return;
  if (found === 'file' && (await checksumOf(path.join(copy.folder.at, name), copy.checksum)) === copy.checksum) return;
  throw new TapeError('POLICY', `another file stands at ${recall.mountpoint}${recall.path}, and is left alone`);
}

async function checksumOf(file: string, like: string): Promise<string> {
  const checksum = createChecksum(like);
  for await (const chunk of createReadStream(file)) checksum.update(chunk);
  return checksum.digest();
}

function judge(ctx: Context, recall: RunningRecall, thrown: unknown): RecallOutcome {
  const { errorClass, error } = classifyError(thrown);
  const pause = pauseSeconds(errorClass, recall.attempts);
  ctx.log.warn({ path: recall.path, errorClass, attempts: recall.attempts + 1, pause }, `recall failed: ${error}`);
  return pause === undefined
    ? { fileId: recall.fileId, kind: 'failed', errorClass, error }
    : { fileId: recall.fileId, kind: 'retry', errorClass, error, notBefore: addSeconds(ctx.now(), pause) };
}

/** All recalls of a batch end the same way, when their volume could not be mounted. */
export function judgeAll(ctx: Context, batch: readonly RunningRecall[], error: unknown): RecallOutcome[] {
  return batch.map((recall) => judge(ctx, recall, error));
}
