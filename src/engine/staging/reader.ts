/**
 * The work of a staging library's drive. It mounts nothing, but reads ready files into the restore area, batch by
 * batch, and
 * verifies tape copies while no recall is ready. The drive's next holder recovers after a crash (drive/left-behind.ts).
 */
import type { Context } from '../../context.js';
import { isExhausted, messageOf, oneLine } from '../../errors.js';
import { endVerification, type VerificationFailure } from '../../operations/catalogue/verifications.js';
import { closeCircuit, openCircuit, trialSeconds } from '../../operations/health/circuits.js';
import { readShares } from '../../operations/quotas/shares.js';
import type { RecallOutcome } from '../../operations/recalls/ends.js';
import { letGoFiles } from '../../operations/staging/answers.js';
import {
  leaveReadBack,
  type ReadyCopy,
  type ReadyFile,
  readReady,
  readStagingOf,
  takeReadBack,
} from '../../operations/staging/intend.js';
import { readRests } from '../../operations/staging/stagers.js';
import { holdFailing, isSuspended } from '../../operations/suspensions.js';
import { batchFilesAfter, takeBatch } from '../../planner/queue.js';
import { LibraryError } from '../../tape/backend.js';
import { NotReadyError } from '../../tape/staging.js';
import { addSeconds } from '../../time.js';
import { readChecked } from '../checksum.js';
import { DiskError } from '../disk/failures.js';
import { createBudget } from '../disk/partial-file.js';
import { type Batch, runBatch } from '../drive/batch.js';
import type { DriveWork } from '../drive/drive.js';
import type { HeldLease } from '../drive/lease.js';
import type { DriveOptions } from '../drive/options.js';
import { outcomeOf, toReturned } from '../drive/recall.js';
import { classifyError, PutOffError, pauseSeconds } from '../drive/retry.js';
import { BatchStarts, OutcomeWriter } from '../drive/starts.js';
import { tellMismatch } from '../drive/verify.js';
import type { StagingPlace } from './place.js';
import { isRefusal, restSeconds } from './rests.js';
import { StagedSource, Unread } from './source.js';

/** Reads ready files, also while the library drains. Returns if the library refuses: other hosts may have access. */
export function readStaged(place: StagingPlace): DriveWork {
  return async (ctx, lease, options) => {
    const stop = AbortSignal.any([options.stop, lease.signal]);
    while (!stop.aborted && !(await options.share.isToGiveBack(lease.driveName))) {
      const seen = options.work.count;
      const { readRestUntil, readFailures } = await readRests(ctx, place.id);
      const mayRead = readRestUntil === null && !(await isSuspended(ctx, lease, 'reading'));
      const isDoubtful = readFailures > 0;
      const came = mayRead ? await readWhatIsReady(ctx, place, { lease, options, isDoubtful }) : 'nothing';
      if (came === 'refused') return true;
      if (came === 'nothing') await options.work.wait(seen, options.idleMs, stop);
    }
    return false;
  };
}

/**
 * Reads ready files until none can start, the library is unreadable, or the drive must stop.
 * @returns the result, after all outcomes are written
 * @throws errors of the database; recalls that are still RUNNING are left to the drive's next holder
 */
async function readWhatIsReady(
  ctx: Context,
  place: StagingPlace,
  how: HowToVisit,
): Promise<'read' | 'nothing' | 'refused'> {
  const visit = new ReadingVisit(ctx, place, how);
  try {
    const hasRead = (await visit.readBatches()) || (await visit.readBack());
    if (visit.isRefused) return 'refused';
    return hasRead ? 'read' : 'nothing';
  } finally {
    await visit.leave();
  }
}

interface HowToVisit {
  lease: HeldLease;
  options: DriveOptions;
  /** The last visit found no readable file. */
  isDoubtful: boolean;
}

class ReadingVisit {
  private readonly ctx: Context;
  private readonly place: StagingPlace;
  private readonly lease: HeldLease;
  private readonly options: DriveOptions;
  private readonly plan: ReadyPlan;
  private readonly starts: BatchStarts;
  private readonly outcomes: OutcomeWriter;
  private readonly budget = createBudget();
  private readonly unread = new Unread();
  /** Writes and syncs of the previous batch, while the next one is read. Never rejects. */
  private writing: Promise<unknown> = Promise.resolve();
  private isOver = false;
  /** The library is suspended for that: an operator must act. */
  isRefused = false;

  constructor(ctx: Context, place: StagingPlace, { lease, options, isDoubtful }: HowToVisit) {
    this.ctx = ctx;
    this.place = place;
    this.lease = lease;
    this.options = options;
    this.plan = new ReadyPlan(ctx, { libraryId: place.id, isShuffled: isDoubtful });
    this.starts = new BatchStarts(ctx, lease, this.plan, { ...options, stagedAt: place.id, volume: place.name });
    this.outcomes = new OutcomeWriter(ctx, lease, place.name);
  }

  async readBatches(): Promise<boolean> {
    const isStopped = () => this.isOver || this.options.stop.aborted || this.lease.signal.aborted;
    let hasRead = false;
    while (!isStopped() && (await this.starts.hasNext())) {
      const startedAt = performance.now();
      const batch = await this.starts.takeNext();
      if (batch.recalls.length === 0) batch.end();
      else {
        hasRead = true;
        await this.workBatch(batch, startedAt);
      }
    }
    return hasRead;
  }

  /** @returns whether a copy was read for verification */
  async readBack(): Promise<boolean> {
    try {
      const how = { unread: this.unread, signal: this.lease.signal };
      return !this.isOver && (await readBackNext(this.ctx, this.place, how));
    } catch (error) {
      if (!(error instanceof LibraryError)) throw error;
      await this.rest(error);
      return false;
    }
  }

  /** Ends all work, even on error: another engine may get the drive next. */
  async leave(): Promise<void> {
    try {
      await this.writing;
      const unread = await this.starts.takeBack();
      if (unread) this.outcomes.report(unread.map(toReturned));
    } finally {
      await this.outcomes.written;
      await this.place.usage.write(this.ctx, 'now');
    }
  }

  /** Reads one batch while the previous one is written, then waits for that one. Limits the work to two batches. */
  private async workBatch(batch: Batch, startedAt: number): Promise<void> {
    const before = { writing: this.writing, outcomes: this.outcomes.written };
    try {
      await this.readBatch(batch);
    } catch (error) {
      this.giveUp(batch, error);
      batch.end();
    }
    await before.writing;
    await before.outcomes;
    const fileIds = batch.recalls.map(({ fileId }) => fileId);
    this.outcomes.charge(fileIds, (performance.now() - startedAt) / 1000);
    await this.place.usage.write(this.ctx, 'now and then');
  }

  /** Returns when all files are read; `writing` continues, and ends the batch. */
  private async readBatch(batch: Batch): Promise<void> {
    const fileIds = batch.recalls.map(({ fileId }) => fileId);
    const rows = await readStagingOf(this.ctx, { libraryId: this.place.id, fileIds });
    const source = new StagedSource(this.ctx, this.place, rows, this.unread);
    const readAt = performance.now();
    const report = (outcomes: RecallOutcome[]) => this.report(outcomes);
    const { disks, links } = this.options;
    const work = { batch, report, budget: this.budget, disks, links, name: this.place.name };
    const { written, failure } = await runBatch(this.ctx, this.lease, source, work);
    this.writing = written.catch((error: unknown) => this.giveUp(batch, error)).finally(batch.end);
    const problem = failure ?? this.unread.outcome;
    if (problem) await this.rest(problem);
    else await closeCircuit(this.ctx, { of: 'reads', id: this.place.id });
    this.plan.noteRead(batch.recalls.length, (performance.now() - readAt) / 1000);
  }

  /** Releases files with MEDIA errors, so that the system stages them again before the next read. */
  private report(outcomes: readonly RecallOutcome[]): void {
    const wrong = outcomes.filter((outcome) => outcome.kind === 'retry' && outcome.errorClass === 'MEDIA');
    const fileIds = wrong.map(({ fileId }) => fileId);
    if (fileIds.length > 0) this.outcomes.write(() => letGoFiles(this.ctx, this.place.id, fileIds));
    this.outcomes.report(outcomes);
  }

  /** Ends all recalls of the batch the same way. Their progress is unknown: copies may be in place. */
  private giveUp({ recalls, signal }: Batch, error: unknown): void {
    const isNoTry = signal.aborted || error instanceof DiskError;
    this.report(
      recalls.map((recall) => ({
        ...(isNoTry ? toReturned(recall) : outcomeOf(this.ctx, recall, error)),
        isUnseen: true,
      })),
    );
  }

  /** Pauses or suspends an unreadable library; does not charge volumes or files. */
  private async rest(error: unknown): Promise<void> {
    this.isOver = true;
    const { readFailures } = await readRests(this.ctx, this.place.id);
    this.isRefused = isRefusal(error);
    const seconds = this.isRefused ? trialSeconds(readFailures) : restSeconds(error, readFailures, Math.random());
    const problem = oneLine(messageOf(error));
    this.ctx.log.error({ drive: this.lease.driveName, seconds }, `library ${this.place.name}: ${problem}`);
    const until = addSeconds(this.ctx.now(), seconds);
    await openCircuit(this.ctx, { of: 'reads', id: this.place.id }, { until, problem });
    const key = { kind: 'BACKEND', name: this.place.name } as const;
    if (this.isRefused) await holdFailing(this.ctx, key, { problem, retryAt: until });
  }
}

/** Minimum age of a plan: more files become ready, and other drives read them too. */
const REPLAN_MS = 2000;

const PLANNED_FILES = 1000;

class ReadyPlan {
  private readonly ctx: Context;
  private readonly libraryId: number;
  private readonly isShuffled: boolean;
  private files: ReadyFile[] = [];
  private madeAt = 0;
  private batchFiles: number | undefined;

  /** @param of.isShuffled random order finds readable files sooner among many unreadable ones */
  constructor(ctx: Context, { libraryId, isShuffled }: { libraryId: number; isShuffled: boolean }) {
    this.ctx = ctx;
    this.libraryId = libraryId;
    this.isShuffled = isShuffled;
  }

  get isEmpty(): boolean {
    return this.files.length === 0;
  }

  get isOver(): boolean {
    return this.isEmpty || performance.now() - this.madeAt >= REPLAN_MS;
  }

  async renew(): Promise<void> {
    const shares = await readShares(this.ctx);
    const { libraryId, isShuffled } = this;
    this.files = await readReady(this.ctx, { libraryId, shares, isShuffled, limit: PLANNED_FILES });
    this.madeAt = performance.now();
  }

  takeFiles(): bigint[] {
    const files = takeBatch(this.files, this.batchFiles);
    this.files = this.files.slice(files.length);
    return files.map(({ fileId }) => fileId);
  }

  noteRead(files: number, seconds: number): void {
    this.batchFiles = batchFilesAfter(files, seconds);
  }

  drop(): void {
    this.files = [];
  }
}

/**
 * Reads one copy for verification.
 * @returns whether there was one
 * @throws LibraryError if the library is unreadable, which says nothing about the copy
 */
async function readBackNext(
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
    if (error instanceof NotReadyError) return true; // it is staged again
    if (signal.aborted || error instanceof LibraryError || isExhausted(error)) {
      await leaveReadBack(ctx, place.id, copy);
      throw error;
    }
    failure = error instanceof PutOffError ? putOff(ctx, copy, error) : explainReadBack(ctx, copy, error);
    if (failure.isTry) await letGoFiles(ctx, place.id, [fileId]); // staged again before the next try
  }
  await endVerification(ctx, { fileId, path, size, position, checksum, attempts: tries, volumeId }, failure);
  return true;
}

/** Logs a copy that is ready, but temporarily unreadable. */
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
