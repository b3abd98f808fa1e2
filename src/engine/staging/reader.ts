/**
 * The work of a staging library's drive. It mounts nothing, but reads ready files into the restore area, batch by
 * batch, and verifies tape copies while no recall is ready. The drive's next holder recovers after a crash
 * (drive/stale-files.ts).
 */

import { isExhausted, messageOf, oneLine, TapeError } from '../../core/errors.js';
import { addSeconds } from '../../core/time.js';
import { endVerification, type VerificationFailure } from '../../domain/catalogue/verifications.js';
import type { Context } from '../../domain/context.js';
import { closeCircuit, openCircuit, trialSeconds } from '../../domain/health/circuits.js';
import { isSuspended, suspendFailing } from '../../domain/health/suspensions.js';
import { readShares } from '../../domain/quotas/shares.js';
import type { RecallOutcome } from '../../domain/recalls/ends.js';
import { letGoFiles } from '../../domain/staging/answers.js';
import { leaveReadBack, type ReadyCopy, readReady, readStagingOf, takeReadBack } from '../../domain/staging/intend.js';
import { readRests } from '../../domain/staging/stagers.js';
import { readChecked } from '../../restore-area/checksum.js';
import { isRefusal, LibraryError } from '../../tape/drive-library.js';
import { NotReadyError } from '../../tape/staging.js';
import type { Batch } from '../drive/batch.js';
import type { DriveWork } from '../drive/drive.js';
import type { HeldLease } from '../drive/lease.js';
import type { DriveOptions } from '../drive/options.js';
import { ReadPlan } from '../drive/plan.js';
import { PutOffError } from '../drive/retry.js';
import { BatchReader } from '../drive/starts.js';
import { explainFailure, tellMismatch } from '../drive/verify.js';
import { type StagingPlace, writeUsage } from './place.js';
import { restSeconds } from './rests.js';
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

/** Minimum age of a plan: more files become ready, and other drives read them too. */
const RENEW_MS = 2000;

const PLANNED_FILES = 1000;

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
  private readonly reader: BatchReader;
  private readonly unread = new Unread();
  private isOver = false;
  /** The library is suspended for that: an operator must act. */
  isRefused = false;

  constructor(ctx: Context, place: StagingPlace, { lease, options, isDoubtful: isShuffled }: HowToVisit) {
    this.ctx = ctx;
    this.place = place;
    this.lease = lease;
    // random order finds readable files sooner among many unreadable ones
    const plan = new ReadPlan(RENEW_MS, async () => {
      const shares = await readShares(ctx);
      return await readReady(ctx, { libraryId: place.id, shares, isShuffled, limit: PLANNED_FILES });
    });
    this.reader = new BatchReader(ctx, lease, plan, { ...options, stagedAt: place.id, volume: place.name });
  }

  async readBatches(): Promise<boolean> {
    return await this.reader.readAll(
      () => this.isOver,
      (batch) => this.workBatch(batch),
    );
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

  async leave(): Promise<void> {
    await this.reader.leave().finally(() => writeUsage(this.ctx, this.place));
  }

  private async workBatch(batch: Batch): Promise<void> {
    const report = (outcomes: RecallOutcome[]) => this.report(outcomes);
    try {
      const fileIds = batch.recalls.map(({ fileId }) => fileId);
      const rows = await readStagingOf(this.ctx, { libraryId: this.place.id, fileIds });
      const source = new StagedSource(this.ctx, this.place, rows, this.unread);
      const { failure } = await this.reader.read(batch, source, report);
      const problem = failure ?? this.unread.outcome;
      if (problem) await this.rest(problem);
      else await closeCircuit(this.ctx, { of: 'reads', id: this.place.id });
    } catch (error) {
      this.reader.giveUp(batch, error, report);
      batch.end();
    }
    await writeUsage(this.ctx, this.place);
  }

  /** Releases files with MEDIA errors, so that the system stages them again before the next read. */
  private report(outcomes: readonly RecallOutcome[]): void {
    const wrong = outcomes.filter((outcome) => outcome.kind === 'retry' && outcome.errorClass === 'MEDIA');
    const fileIds = wrong.map(({ fileId }) => fileId);
    if (fileIds.length > 0) this.reader.outcomes.write(() => letGoFiles(this.ctx, this.place.id, fileIds));
    this.reader.outcomes.report(outcomes);
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
    const key = { kind: 'LIBRARY', name: this.place.name } as const;
    if (this.isRefused) await suspendFailing(this.ctx, key, { problem, retryAt: until });
  }
}

/**
 * Reads one copy for verification. @returns whether there was one
 * @throws LibraryError if the library is unreadable, which says nothing about the copy
 */
async function readBackNext(
  ctx: Context,
  place: StagingPlace,
  { unread, signal }: { unread: Unread; signal: AbortSignal },
): Promise<boolean> {
  const copy = await takeReadBack(ctx, place.id);
  if (!copy) return false;
  const { path, size, position, checksum, isChecksumTaken, volumeId, fileId, tries } = copy;
  const expected = { path, size, position, checksum, isChecksumTaken };
  const source = new StagedSource(ctx, place, [copy], unread);
  let failure: VerificationFailure | undefined;
  try {
    await readChecked(source, expected, { signal, tell: tellMismatch });
  } catch (thrown) {
    const isUnready = thrown instanceof NotReadyError;
    if (isUnready && tries === 0) return true; // it is staged again
    const error = isUnready ? new TapeError('TRANSIENT', thrown.message, { cause: thrown }) : thrown;
    if (signal.aborted || error instanceof LibraryError || isExhausted(error)) {
      await leaveReadBack(ctx, place.id, copy);
      throw error;
    }
    failure =
      error instanceof PutOffError ? putOff(ctx, copy, error) : explainFailure(ctx, { path, attempts: tries }, error);
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
