/**
 * Recalls the files of a batch from a mounted volume, one after the other, while earlier ones are still written and
 * synced.
 *
 * | state | step | next |
 * |---|---|---|
 * | STARTED | open the directory, create it if missing | OPENED |
 * | OPENED | read, checksum and write the file to its partial file (`readInto`) | READ |
 * | READ | sync the partial file (`finishCopy`) | SYNCED |
 * | SYNCED | record inode and mtime in the database, confirm the lease | CONFIRMED |
 * | CONFIRMED | put the partial file in place, without replacing a file | PLACED |
 * | PLACED | sync the directory and its parents (`settle`) | REPORTED |
 *
 * An error in any state discards the partial file; `judge` decides the outcome. If the engine is killed, the recall
 * stays RUNNING. The drive's next holder (stale-files.ts) then removes the partial file and requeues the recall. A PLACED
 * copy that was not reported is replaced by the next recall, or removed by a job.
 */
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf, UnavailableError } from '../../core/errors.js';
import { count } from '../../core/signals.js';
import { type Span, startPart } from '../../core/traces.js';
import type { Context } from '../../domain/context.js';
import type { RecallOutcome } from '../../domain/recalls/ends.js';
import type { RunningRecall } from '../../domain/recalls/starts.js';
import { wantedAttributes } from '../../restore-area/attributes.js';
import { callDisk, type FailingDisks, FullError } from '../../restore-area/failures.js';
import type { LinkKeeper } from '../../restore-area/links/keeper.js';
import { OpenDirectories } from '../../restore-area/made-directories.js';
import { type Budget, partialName, removePartial } from '../../restore-area/partial-file.js';
import { type MountedVolume, VolumeError } from '../../tape/drive-library.js';
import { NotReadyError } from '../../tape/staging.js';
import { Confirmations, type HeldLease, NotHeldError } from './lease.js';
import { beginCopy, finishCopy, outcomeOf, readInto, toReturned, toUnplaced, UnseenError } from './recall.js';
import { PostponedError, toNotReady, toPostponed } from './retry.js';

export interface Batch {
  recalls: readonly RunningRecall[];
  /** Start of the batch, before disks were assigned; milliseconds of `performance.now()`. */
  since: number;
  /** Trace context by file id; undefined if nothing is traced. */
  traces?: ReadonlyMap<bigint, string> | undefined;
  /** One for each recall: aborts when the recall, or all work of the drive, must stop. */
  signals: readonly AbortSignal[];
  /** Aborts when no recall of the batch remains. */
  signal: AbortSignal;
  /** The caller calls this when no recall of the batch is running. */
  end(): void;
}

interface BatchWork {
  batch: Batch;
  /** May be called several times; must not wait. */
  report: (outcomes: RecallOutcome[]) => void;
  /** Limits the drive's bytes that are read but not yet written. */
  budget: Budget;
  disks: FailingDisks;
  links: LinkKeeper;
  /** Name of the volume or staging library. */
  name: string;
}

/**
 * Reads recalls in the given order, and reports one outcome for each; recalls stopped by their signal are `returned`.
 * @returns once all are read. The caller must await `written`, which settles when all outcomes are reported; if it
 *   rejects, unreported recalls have no outcome. `failure` is why the volume became unreadable; the rest is `returned`
 */
export async function runBatch(
  ctx: Context,
  lease: HeldLease,
  volume: MountedVolume,
  work: BatchWork,
): Promise<{ written: Promise<void>; failure: VolumeError | undefined }> {
  const run = new BatchRun(ctx, lease, volume, work);
  await run.read();
  return { written: run.finish(), failure: run.failure };
}

const REPORT_MS = 1000;

/** Wait after the lease has ended: the database may hang. */
const LEASE_MARGIN_MS = 1000;

/** Duration and interval of further removals after the lease is lost. */
const CLEANUP_MS = 60_000;
const CLEANUP_PAUSE_MS = 1000;

class BatchRun {
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private readonly volume: MountedVolume;
  private readonly work: BatchWork;
  private readonly directories: OpenDirectories;
  private readonly confirmations: Confirmations;
  /** Files that are read, and still being written, synced and put in place. Never rejects. */
  private readonly finishing: Promise<void>[] = [];
  private readonly timer: NodeJS.Timeout;
  private ended: EndedRecall[] = [];
  /** After the first error, nothing more is reported. */
  private reporting = Promise.resolve();
  /** An error that shows that the whole volume is unreadable, not one file. */
  failure: VolumeError | undefined;

  constructor(ctx: Context, lease: HeldLease, volume: MountedVolume, work: BatchWork) {
    this.ctx = { ...ctx, log: ctx.log.child({ drive: lease.driveName, volume: work.name }) };
    this.lease = lease;
    this.volume = volume;
    this.work = work;
    this.directories = new OpenDirectories(ctx, lease.calls);
    this.confirmations = new Confirmations(ctx, lease);
    this.timer = setInterval(() => {
      this.reportNext();
      this.reporting.catch(() => {}); // thrown by `finish`
    }, REPORT_MS);
  }

  async read(): Promise<void> {
    const { recalls, signals } = this.work.batch;
    for (const [index, recall] of recalls.entries()) await this.readOne(recall, signals[index] ?? this.lease.signal);
  }

  /** Never rejects: a bad file does not delay the others. */
  private async readOne(recall: RunningRecall, signal: AbortSignal): Promise<void> {
    const span = this.startSpan(recall);
    const end = (outcome: RecallOutcome) => {
      span?.end({ 'tapegate.outcome': outcome.kind }, 'error' in outcome ? outcome.error : undefined);
      this.ended.push({ recall, signal, outcome });
    };
    const fail = async (error: unknown) => end(await this.judge(recall, error, signal));
    if (this.failure) return end(toReturned(recall));
    const full = this.work.disks.findFull(recall, this.work.batch.since);
    if (full !== undefined) return end(toUnplaced(recall, full));
    try {
      signal.throwIfAborted();
      // a stalled engine must not create directories either: its successor has already cleaned up
      const directory = await this.directories.open(recall, () => this.confirmations.confirmOpening());
      const options = {
        folder: directory,
        budget: this.work.budget,
        attributes: wantedAttributes(this.ctx.config, recall),
      };
      const copy = await beginCopy(this.lease, this.confirmations, recall, options);
      const { recordBytes } = this.lease;
      const reading = startPart('read', span?.traceparent);
      const sums = await readInto(copy, this.volume, recall, { signal, noteBytes: recordBytes }).finally(() =>
        reading?.end(),
      );
      count('tapegate_recalled_bytes_total', { drive: this.lease.driveName }, Number(recall.size));
      const placing = startPart('put in place', span?.traceparent);
      const placed = finishCopy(this.ctx, this.confirmations, recall, { copy, sums }).finally(() => placing?.end());
      this.finishing.push(placed.then(end, fail));
    } catch (error) {
      await fail(error);
    }
  }

  private startSpan({ fileId, logicalPath, size, attempts }: RunningRecall): Span | undefined {
    const at = { 'tapegate.drive': this.lease.driveName, 'tapegate.volume': this.work.name };
    const file = { 'tapegate.file': String(fileId), 'tapegate.path': logicalPath, 'tapegate.size': Number(size) };
    return startPart('recall', this.work.batch.traces?.get(fileId), { ...at, ...file, 'tapegate.attempts': attempts });
  }

  /**
   * Syncs the directories of ended recalls. If a sync fails, the copy may be lost when its host crashes: the recall
   * then ends as unseen. The same holds if an empty directory that was created for it cannot be removed. Never rejects.
   */
  private async syncAndJudge(ended: readonly EndedRecall[]): Promise<RecallOutcome[]> {
    const failureOf = await this.directories.sync();
    const removeRemains = this.createRemover();
    const judgeOne = async ({ recall, signal, outcome }: EndedRecall) => {
      const { kind, isUnseen = false } = outcome;
      const isInPlace = kind === 'standing' || kind === 'restored';
      const isCleared = (isInPlace && !isUnseen) || (await removeRemains(recall, isUnseen));
      if (!isInPlace) return isCleared ? outcome : { ...outcome, isUnseen: true };
      if (outcome.kind === 'standing') return outcome;
      const failure = failureOf(recall);
      if (failure) return await this.judge(recall, new UnseenError(messageOf(failure), { cause: failure }), signal);
      this.work.disks.succeeded(recall.diskId);
      return outcome;
    };
    const outcomes = await Promise.all(ended.map(judgeOne));
    const restored = ended.filter((_, n) => outcomes[n]?.kind === 'restored');
    await this.work.links.makeEarly(restored.map(({ recall }) => recall));
    return outcomes;
  }

  /** Returns the outcome of a failed recall. Never rejects. */
  private async judge(recall: RunningRecall, thrown: unknown, signal: AbortSignal): Promise<RecallOutcome> {
    if (!(thrown instanceof UnseenError)) return await this.judgeReason(recall, thrown, signal);
    return { ...(await this.judgeReason(recall, thrown.cause, signal)), isUnseen: true };
  }

  private async judgeReason(recall: RunningRecall, error: unknown, signal: AbortSignal): Promise<RecallOutcome> {
    if (signal.aborted || error instanceof NotHeldError) return toReturned(recall);
    if (error instanceof UnavailableError) return toReturned(recall); // the database is unavailable: the file is not at fault
    // the file will be staged again, and delays no other
    if (error instanceof NotReadyError && recall.attempts === 0) return toNotReady(recall, error);
    if (error instanceof PostponedError) return toPostponed(this.ctx, recall, error);
    if (error instanceof VolumeError) {
      this.failure = error;
      return toReturned(recall);
    }
    try {
      const problem = await this.work.disks.blame(recall, error);
      if (error instanceof FullError) {
        await this.work.disks.recordFull(recall, error);
        return toUnplaced(recall, error.message);
      }
      if (problem === undefined) return outcomeOf(this.ctx, recall, error);
      return { fileId: recall.fileId, kind: 'postponed', errorClass: 'TRANSIENT', error: problem };
    } catch {
      return toReturned(recall); // the database is unavailable, so the error cannot be recorded
    }
  }

  /**
   * Examines each directory once for recalls that end together.
   * @returns a function that removes directories created for a recall without a copy, and its partial file if it may
   *   exist (`isUnseen`). It never rejects, and returns false if a later job must do this
   */
  private createRemover(): (recall: RunningRecall, isUnseen: boolean) => Promise<boolean> {
    const directories = new Map<string, Promise<boolean>>();
    return async (recall, isUnseen) => {
      if (isUnseen) return await this.removeRemainsInTime(recall, isUnseen);
      const directory = path.join(recall.mountpoint, path.dirname(recall.path));
      const removed = directories.get(directory) ?? this.removeRemainsInTime(recall, isUnseen);
      directories.set(directory, removed);
      return await removed;
    };
  }

  private async removeRemainsInTime(recall: RunningRecall, isUnseen: boolean): Promise<boolean> {
    const done = new AbortController();
    const late = waitPast(this.lease.signal, done.signal);
    return await Promise.race([this.removeRemains(recall, isUnseen), late]).finally(() => done.abort());
  }

  /**
   * Leaves failed removals to a periodic job while the lease is held. After its loss, that job may already have run, so
   * a stalled engine retries for a while. Only this engine has these partial files; any process may remove an empty
   * directory.
   */
  private async removeRemains(recall: RunningRecall, isUnseen: boolean): Promise<boolean> {
    const until = performance.now() + CLEANUP_MS;
    const { calls: jobCalls } = this.work.disks;
    for (;;) {
      if (await this.removeRemainsOnce(recall, isUnseen)) return true;
      const isHung = this.lease.calls.hasHung || jobCalls.hasHung; // the disk is suspended, and this process will exit
      if (!this.lease.signal.aborted || isHung || performance.now() >= until) return false;
      await sleep(CLEANUP_PAUSE_MS, undefined, { ref: false });
    }
  }

  private async removeRemainsOnce(recall: RunningRecall, isUnseen: boolean): Promise<boolean> {
    const isLost = this.lease.signal.aborted;
    const calls = isLost ? this.work.disks.calls : this.lease.calls;
    try {
      const name = partialName({ ...this.lease, fileId: recall.fileId });
      if (isLost && isUnseen) await callDisk(calls, recall, () => removePartial(recall, name));
    } catch {
      return false;
    }
    return !this.directories.mayHaveCreated(recall) || (await this.directories.removeEmpty(recall, calls));
  }

  private reportNext(): void {
    this.reporting = this.reporting.then(async () => {
      const ended = this.ended;
      this.ended = [];
      // taken before the directories are synced: copies placed meanwhile belong to the next report
      if (ended.length > 0) this.work.report(await this.syncAndJudge(ended));
    });
  }

  /** Waits until the last file is in place and reported, then always closes the directories. */
  async finish(): Promise<void> {
    try {
      await Promise.all(this.finishing);
      this.reportNext();
      await this.reporting;
    } finally {
      clearInterval(this.timer);
      await this.directories.close();
    }
  }
}

/** A recall that has ended, except for the sync of its directory. */
interface EndedRecall {
  recall: RunningRecall;
  signal: AbortSignal;
  outcome: RecallOutcome;
}

/** Waits until shortly after the lease ends, or until `done` aborts. @returns false */
async function waitPast(lease: AbortSignal, done: AbortSignal): Promise<false> {
  try {
    if (!lease.aborted) await once(lease, 'abort', { signal: done });
    await sleep(LEASE_MARGIN_MS, undefined, { signal: done });
  } catch {
    // it ended in time
  }
  return false;
}
