/**
 * Brings files of a mounted volume into the restore area: read, checksum and write in one pass, then sync, rename.
 *
 * Reading goes on while files before are still being written and synced. Nothing is reported as restored before its folder is
 * synced as well. Killed anywhere, it leaves partial files and recalls that say RUNNING; whoever gets the drive next
 * removes the ones and queues the others again.
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
import { type Budget, PartialFile, partialName } from '../disk/partial-file.js';
import { type Folder, openFolder } from '../disk/restore-area.js';
import { readChecked } from '../tape-copy.js';
import type { HeldLease } from './lease.js';
import { classifyError, describeEnd, pauseSeconds } from './retry.js';

/** What has ended is reported at least so often, while a batch goes on: a file in place is told of in time. */
const REPORT_MS = 1000;

/** Recalls that were started together. */
export interface Batch {
  recalls: readonly RunningRecall[];
  /** Of each recall: aborts when the recall, or all work of the drive, is to stop. */
  signals: readonly AbortSignal[];
  /** Aborts when nothing of the batch is left to do. */
  signal: AbortSignal;
  /** To be called when no recall of the batch runs any more. */
  end(): void;
}

/**
 * Reads recalls in the order given, and reports one outcome for each; what its signal stops is `returned`.
 * @param work.report may be called several times; it must not wait
 * @param work.budget of the drive: what is read and not yet written
 * @returns once all are read; `written` settles when all outcomes are reported, and must be awaited
 */
export async function runBatch(
  ctx: Context,
  lease: HeldLease,
  volume: MountedVolume,
  work: {
    batch: Batch;
    report: (outcomes: RecallOutcome[]) => void;
    budget: Budget;
  },
): Promise<{ written: Promise<void> }> {
  const { batch, report, budget } = work;
  const folders = new Map<string, Folder>();
  const ended: RecallOutcome[] = [];
  const finishing: Promise<unknown>[] = [];
  const end = (outcome: RecallOutcome) => ended.push(outcome);
  let reporting = Promise.resolve();
  const reportEnded = async () => {
    const outcomes = ended.splice(0);
    if (outcomes.length === 0) return;
    await Promise.all([...folders.values()].map((folder) => folder.handle.sync()));
    report(outcomes);
  };
  const timer = setInterval(() => {
    reporting = reporting.then(reportEnded);
    reporting.catch(() => {}); // awaited in finishAll
  }, REPORT_MS);
  for (const [index, recall] of batch.recalls.entries()) {
    const signal = batch.signals[index] ?? lease.signal;
    const settle = (error: unknown) =>
      signal.aborted ? ({ fileId: recall.fileId, kind: 'returned' } as const) : judge(ctx, recall, error);
    try {
      signal.throwIfAborted();
      const folder = await folderOf(recall, folders);
      // who has stood still must not begin a partial file when others have looked for what it left already
      lease.check();
      const partial = partialName({ ...lease, fileId: recall.fileId });
      const copy = { folder, partial, file: new PartialFile(folder, partial, budget) };
      const checksum = await readInto(copy.file, volume, recall, signal);
      finishing.push(finishCopy(lease, recall, copy, checksum).catch(settle).then(end));
    } catch (error) {
      end(settle(error));
    }
  }
  const finishAll = async () => {
    try {
      await Promise.all(finishing);
      clearInterval(timer);
      await reporting.then(reportEnded);
    } finally {
      clearInterval(timer);
      await Promise.all([...folders.values()].map((folder) => folder.handle.close()));
    }
  };
  return { written: finishAll() };
}

interface Copy {
  folder: Folder;
  partial: string;
  file: PartialFile;
}

async function folderOf(recall: RunningRecall, folders: Map<string, Folder>): Promise<Folder> {
  const key = path.join(recall.mountpoint, path.dirname(recall.path));
  const folder = folders.get(key) ?? (await openFolder(recall, recall.path));
  folders.set(key, folder);
  return folder;
}

/** @returns the checksum, once the whole file is read and found to be what the catalogue says */
async function readInto(
  file: PartialFile,
  volume: MountedVolume,
  recall: RunningRecall,
  signal: AbortSignal,
): Promise<string> {
  try {
    return await readChecked(volume, recall, {
      signal,
      sink: (chunk) => file.write(chunk),
      tell: ({ kind, found, expected }) => {
        const has = kind === 'size' ? `${found} bytes` : `checksum ${found}`;
        return `the tape copy has ${has}, and the catalogue says ${expected}: ${recall.path}`;
      },
    });
  } catch (error) {
    await file.discard();
    throw error;
  }
}

async function finishCopy(
  lease: HeldLease,
  recall: RunningRecall,
  copy: Copy,
  checksum: string,
): Promise<RecallOutcome> {
  const name = path.basename(recall.path);
  try {
    const mtimeNs = await copy.file.finish();
    await checkPlace(recall, copy.folder, checksum);
    lease.check();
    await putInPlace(copy.folder, copy.partial, name);
    return { fileId: recall.fileId, kind: 'restored', mtimeNs };
  } catch (error) {
    await copy.file.discard();
    throw error;
  }
}

/** The same bytes may stand there, put by an engine that was killed before it could say so; anything else stays. */
async function checkPlace(recall: RunningRecall, folder: Folder, checksum: string): Promise<void> {
  const name = path.basename(recall.path);
  const found = await inspect(folder, name);
  if (found === 'nothing') return;
  if (found === 'file' && (await checksumOf(path.join(folder.at, name), checksum)) === checksum) return;
  throw new TapeError('POLICY', `another file stands at ${recall.mountpoint}${recall.path}, and is left alone`);
}

function judge(ctx: Context, recall: RunningRecall, thrown: unknown): RecallOutcome {
  const { errorClass, error } = classifyError(thrown);
  const pause = pauseSeconds(errorClass, recall.attempts, Math.random());
  ctx.log.warn({ path: recall.path, errorClass, attempts: recall.attempts + 1, pause }, `recall failed: ${error}`);
  return pause === undefined
    ? { fileId: recall.fileId, kind: 'failed', errorClass, error: describeEnd(error, recall.attempts + 1) }
    : { fileId: recall.fileId, kind: 'retry', errorClass, error, notBefore: addSeconds(ctx.now(), pause) };
}

/** All recalls of a batch end the same way, when their volume could not be mounted. */
export function judgeAll(ctx: Context, batch: readonly RunningRecall[], error: unknown): RecallOutcome[] {
  return batch.map((recall) => judge(ctx, recall, error));
}
