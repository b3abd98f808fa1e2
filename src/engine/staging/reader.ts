/**
 * Reads staged files into the restore area in batches. While no file for a recall is staged, verifies tape copies.
 * After a crash, the engine that next claims the drive requeues unfinished recalls (drive/stale-files.ts).
 */

import { isExhausted, messageOf, oneLine, TapeError } from '../../core/errors.js';
import { addSeconds } from '../../core/time.js';
import { endVerification, type VerificationFailure } from '../../domain/catalogue/verifications.js';
import type { Context } from '../../domain/context.js';
import { closeCircuit, openCircuit, trialSeconds } from '../../domain/health/circuits.js';
import { isSuspended, suspendFailing } from '../../domain/health/suspensions.js';
import { readShares } from '../../domain/quotas/shares.js';
import type { RecallOutcome } from '../../domain/recalls/ends.js';
import { releaseStaged } from '../../domain/staging/call-results.js';
import { leaveReadBack, type ReadyCopy, readReady, readStagingOf, takeReadBack } from '../../domain/staging/intend.js';
import { readRests } from '../../domain/staging/stagers.js';
import { findMedium } from '../../planner/media.js';
import { readChecked } from '../../restore-area/checksum.js';
import { isRefusal, LibraryError } from '../../tape/drive-library.js';
import { NotReadyError } from '../../tape/staging.js';
import type { DriveWork } from '../drive/drive.js';
import type { HeldLease } from '../drive/lease.js';
import type { DriveOptions } from '../drive/options.js';
import { ReadPlan } from '../drive/read-plan.js';
import type { Batch } from '../drive/recall.js';
import { PostponedError } from '../drive/retry.js';
import { BatchReader } from '../drive/starts.js';
import { describeMismatch, explainFailure } from '../drive/verify.js';
import { type OpenStagingLibrary, writeUsage } from './open-library.js';
import { restSeconds } from './rests.js';
import { StagedSource, UndeliveredFiles } from './source.js';

/**
 * Reads staged files, even while the library is draining. Releases the drive if the library refuses to work, because
 * another host might have access to the library.
 */
export function readStaged(staging: OpenStagingLibrary): DriveWork {
  return async (ctx, lease, options) => {
    const stop = AbortSignal.any([options.stop, lease.signal]);
    while (!stop.aborted && !(await options.share.mustRelease(lease.driveName))) {
      const seen = options.work.count;
      const { readRestUntil, readFailures } = await readRests(ctx, staging.id);
      const mayRead = readRestUntil === null && !(await isSuspended(ctx, lease, 'reading'));
      const isDoubtful = readFailures > 0;
      const result = mayRead ? await readReadyFiles(ctx, staging, { lease, options, isDoubtful }) : 'nothing';
      if (result === 'refused') return true;
      if (result === 'nothing') await options.work.wait(seen, options.idleMs, stop);
    }
    return false;
  };
}

/**
 * Reads staged files until no recall can start, the library is unreadable, or the drive must stop.
 * @throws database errors. After such an error, the engine that next claims the drive recovers recalls that are still
 *   RUNNING
 */
async function readReadyFiles(
  ctx: Context,
  staging: OpenStagingLibrary,
  options: VisitOptions,
): Promise<'read' | 'nothing' | 'refused'> {
  const visit = new ReadingVisit(ctx, staging, options);
  try {
    const hasRead = (await visit.readBatches()) || (await visit.readBack());
    if (visit.isRefused) return 'refused';
    return hasRead ? 'read' : 'nothing';
  } finally {
    await visit.leave();
  }
}

/** Milliseconds after which a read plan is renewed, because more files might be staged by then. */
const RENEW_MS = 2000;

const PLANNED_FILES = 1000;

/** The cost model of reads from a staging library. */
const LINEAR = findMedium('linear');

interface VisitOptions {
  lease: HeldLease;
  options: DriveOptions;
  isDoubtful: boolean;
}

class ReadingVisit {
  private readonly ctx: Context;
  private readonly staging: OpenStagingLibrary;
  private readonly lease: HeldLease;
  private readonly reader: BatchReader;
  private readonly undelivered = new UndeliveredFiles();
  private isOver = false;
  isRefused = false;

  constructor(ctx: Context, staging: OpenStagingLibrary, { lease, options, isDoubtful: isShuffled }: VisitOptions) {
    this.ctx = ctx;
    this.staging = staging;
    this.lease = lease;
    // after failed reads, read files in random order, to find a readable file sooner
    const plan = new ReadPlan(RENEW_MS, async () => {
      const shares = await readShares(ctx);
      return await readReady(ctx, { libraryId: staging.id, shares, isShuffled, limit: PLANNED_FILES });
    });
    lease.meter.use(LINEAR, 1);
    this.reader = new BatchReader(ctx, lease, plan, { ...options, stagedAt: staging.id, volume: staging.name });
  }

  async readBatches(): Promise<boolean> {
    return await this.reader.readAll(
      () => this.isOver,
      (batch) => this.workBatch(batch),
    );
  }

  async readBack(): Promise<boolean> {
    try {
      const options = { unread: this.undelivered, signal: this.lease.signal };
      return !this.isOver && (await readBackNext(this.ctx, this.staging, options));
    } catch (error) {
      if (!(error instanceof LibraryError)) throw error;
      await this.pause(error);
      return false;
    }
  }

  async leave(): Promise<void> {
    await this.reader.leave().finally(() => writeUsage(this.ctx, this.staging));
  }

  private async workBatch(batch: Batch): Promise<void> {
    const report = (outcomes: RecallOutcome[]) => this.report(outcomes);
    try {
      const fileIds = batch.recalls.map(({ fileId }) => fileId);
      const rows = await readStagingOf(this.ctx, { libraryId: this.staging.id, fileIds });
      const source = new StagedSource(this.ctx, this.staging, rows, this.undelivered);
      const { failure } = await this.reader.read(batch, source, report);
      const problem = failure ?? this.undelivered.outcome;
      if (problem) await this.pause(problem);
      // a batch that a suspension stopped might have read nothing, so it does not show that the library can be read
      else if (!batch.signal.aborted) await closeCircuit(this.ctx, { of: 'reads', id: this.staging.id });
    } catch (error) {
      this.reader.giveUp(batch, error, report);
      batch.end();
    }
    await writeUsage(this.ctx, this.staging);
  }

  /** Releases files with MEDIA errors, so that the library stages them again. */
  private report(outcomes: readonly RecallOutcome[]): void {
    const damaged = outcomes.filter((outcome) => outcome.kind === 'retry' && outcome.errorClass === 'MEDIA');
    const fileIds = damaged.map(({ fileId }) => fileId);
    if (fileIds.length > 0) this.reader.outcomes.write(() => releaseStaged(this.ctx, this.staging.id, fileIds));
    this.reader.outcomes.report(outcomes);
  }

  /** Pauses or suspends an unreadable library. Does not count the failure against a volume or file. */
  private async pause(error: unknown): Promise<void> {
    this.isOver = true;
    const { readFailures } = await readRests(this.ctx, this.staging.id);
    this.isRefused = isRefusal(error);
    const seconds = this.isRefused ? trialSeconds(readFailures) : restSeconds(error, readFailures, Math.random());
    const problem = oneLine(messageOf(error));
    this.ctx.log.error({ drive: this.lease.driveName, seconds }, `library ${this.staging.name}: ${problem}`);
    const until = addSeconds(this.ctx.now(), seconds);
    await openCircuit(this.ctx, { of: 'reads', id: this.staging.id }, { until, problem });
    const key = { kind: 'LIBRARY', name: this.staging.name } as const;
    if (this.isRefused) await suspendFailing(this.ctx, key, { problem, retryAt: until });
  }
}

/**
 * Verifies one tape copy.
 * @returns whether there was a tape copy to verify
 * @throws LibraryError if the library is unreadable; the tape copy then stays unverified
 */
async function readBackNext(
  ctx: Context,
  staging: OpenStagingLibrary,
  { unread: undelivered, signal }: { unread: UndeliveredFiles; signal: AbortSignal },
): Promise<boolean> {
  const copy = await takeReadBack(ctx, staging.id);
  if (!copy) return false;
  const { path, size, position, checksum, isChecksumTaken, volumeId, fileId, tries } = copy;
  const expected = { path, size, position, checksum, isChecksumTaken };
  const source = new StagedSource(ctx, staging, [copy], undelivered);
  let failure: VerificationFailure | undefined;
  try {
    await readChecked(source, expected, { signal, describe: describeMismatch });
  } catch (thrown) {
    const isUnready = thrown instanceof NotReadyError;
    if (isUnready && tries === 0) return true; // the library stages the file again before the next try
    const error = isUnready ? new TapeError('TRANSIENT', thrown.message, { cause: thrown }) : thrown;
    if (signal.aborted || error instanceof LibraryError || isExhausted(error)) {
      await leaveReadBack(ctx, staging.id, copy);
      throw error;
    }
    failure =
      error instanceof PostponedError
        ? postpone(ctx, copy, error)
        : explainFailure(ctx, { path, attempts: tries }, error);
    if (failure.isTry) await releaseStaged(ctx, staging.id, [fileId]);
  }
  await endVerification(ctx, { fileId, path, size, position, checksum, attempts: tries, volumeId }, failure);
  return true;
}

/**
 * Logs that a staged tape copy is temporarily unreadable.
 * @returns a verification failure that does not count as a try
 */
function postpone(ctx: Context, { path }: ReadyCopy, { message, seconds }: PostponedError): VerificationFailure {
  const error = oneLine(message);
  ctx.log.warn({ path, seconds }, `read-back postponed: ${error}`);
  return { errorClass: 'TRANSIENT', error, isTry: false, notBefore: addSeconds(ctx.now(), seconds) };
}
